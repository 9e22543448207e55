"""How long a round of a case will take, roughly."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.plan.modes import Rules

# What a round of one case costs beside its calls: a fresh Python with NumPy and the library.
PROCESS_S = 0.35
# Importing a framework in it takes this much longer.
FRAMEWORK_S = 2.0
# Filling, checking and summing operands goes at about this speed.
TOUCH_BYTES_PER_S = 0.6e9
# Where no roof is known yet: two cores of a small server.
GUESSED_FLOP_PER_S = 5e10
GUESSED_BYTES_PER_S = 1e10
# Libraries reach about half the roof over DeepBench's shapes.
SHARE_OF_ROOF = 0.5


# Starting a group, and the calls whose bits are compared.
GROUP_S = 0.3
# On a device: opening it, and the search among algorithms. On an H200, 32 cases took 3.7 s each, all in all.
DEVICE_S = 3.0


def estimated_s(case: Case, roof_flop_per_s: float | None, rules: Rules) -> float:
    """Seconds that one round of a case will take, roughly: for the time left, not for any result."""
    op = case.operation
    call = op.expected_s(case, SHARE_OF_ROOF * (roof_flop_per_s or GUESSED_FLOP_PER_S), GUESSED_BYTES_PER_S)
    sampling = max(call, min(rules.most_s, max(rules.least_s, 30 * call)))
    backend, touching = case.library, op.operand_bytes(case) / TOUCH_BYTES_PER_S
    if backend.loads_at_once and rules.first_call_counts_s is not None and call > rules.first_call_counts_s:
        sampling = 0.0
    more = (0.0 if case.device == "cpu" else DEVICE_S) + (FRAMEWORK_S if backend.framework else 0.0)
    if op.is_group:  # ranks fill, check and hash as many times as there are cores for them, or take turns
        more += GROUP_S + 3 * case.problem.ranks * touching
    return PROCESS_S + touching + call + sampling + more
