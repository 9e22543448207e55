"""What a self-test found, as plain sentences, and what to do about each weakness."""

from __future__ import annotations

from statistics import median
from typing import Any

from deepbench.core import stats, units
from deepbench.judge import selftest
from deepbench.judge.selftest import ColdProof, Findings, Sensitivity

# What a machine should do better than; beyond it a sentence says what to do.
MOST_FALSE_ALARMS, MOST_UNSTEADY, MOST_CORE_GAP, MOST_LOOP_S = 0.05, 0.05, 1.03, 50e-9
GOOD_CHANGE = 0.05


def page(found: Findings) -> list[str]:
    """The page, a line a sentence; remedies begin with an arrow."""
    return [
        *_alarms("two files of one session", found.separate),
        *_alarms("two sides in turn (run --ab, --against)", found.interleaved),
        *_power(found),
        *_sessions(found),
        *_harness(found),
        *_cores(found),
        *_cold(found.cold),
    ]


def _alarms(how: str, cases: list[Sensitivity]) -> list[str]:
    if not cases:
        return []
    share = sum(c.rates.false_alarms for c in cases) / len(cases)
    same = sum(c.rates.same for c in cases) / len(cases)
    lines = [
        f"Equal code, {how}, {selftest.PROCESSES} processes a side: called faster or slower in "
        f"{units.percent(share, 1)} of comparisons, same in {units.percent(same)}, cannot tell in the rest."
    ]
    if share > MOST_FALSE_ALARMS:
        worst = max(cases, key=lambda c: c.rates.false_alarms)
        lines.append(
            f"→ More than 1 in 20: the worst is {worst.case}. Take more rounds (--rounds 10), pin threads "
            "(--set pin=cores), and let the sides take turns."
        )
    return lines


def _power(found: Findings) -> list[str]:
    lines = []
    for how, cases in (("two files of one session", found.separate), ("in turn", found.interleaved)):
        known = [(c.smallest if c.smallest is not None else float("inf")) for c in cases]
        if not known:
            continue
        middle, worst = median(known), max(known)
        lines.append(
            f"The smallest change found nine times out of ten, {how}: {_change(middle)} for the middle case, "
            f"{_change(worst)} for the worst."
        )
    best = [c.smallest for c in found.interleaved if c.smallest is not None]
    if not best or median(best) > GOOD_CHANGE:
        lines.append(
            "→ This machine is noisy: other programs or guests of its host share the cores. Close them, wait for a "
            "calm hour, or take more rounds: four times as many halve the change that is found."
        )
    return lines


def _change(value: float) -> str:
    return f"+{units.percent(value, 1)}" if value < 1 else f"none up to +{units.percent(selftest.CHANGES[-1])}"


def _sessions(found: Findings) -> list[str]:
    if found.between_sessions is None:
        return [
            "How much times move from one session to the next is not known yet: run selftest again on another day; "
            "compare then widens its intervals by it."
        ]
    return [
        f"From one session to the next times move by {units.percent(found.between_sessions, 1)} (standard deviation), "
        "beyond what processes show; compare widens the intervals of files of this machine by it."
    ]


def _harness(found: Findings) -> list[str]:
    lines = [
        f"A call costs {1e9 * found.loop_s:.1f} ns beside the library's own time ({found.loop} loop); "
        f"two readings of the clock take {1e9 * found.clock_s:.0f} ns, once a sample of 1.5 ms."
    ]
    if found.loop_s > MOST_LOOP_S:
        lines.append("→ Calls are made from Python. Install gcc, then install deepbench again, for some 5 ns a call.")
    return lines


def _cores(found: Findings) -> list[str]:
    if not found.cores:
        return []
    disturbed = median(c["disturbed"] for c in found.cores.values())
    slow = {cpu: v for cpu, v in found.core_speeds.items() if v > MOST_CORE_GAP}
    lines = [
        f"Of equal blocks of work of 1 ms, {units.percent(disturbed)} take over 5 % longer than the fastest one "
        f"({len(found.cores)} cores, one at a time)."
    ]
    if disturbed > MOST_UNSTEADY:
        lines.append(
            "→ The clock changes, or something takes the core away: deepbench info --doctor looks for the cause."
        )
    if slow:
        names = ", ".join(f"core {cpu} {units.percent(v - 1)}" for cpu, v in slow.items())
        lines.append(f"→ Cores differ in speed ({names} slower than the fastest): pin threads (--set pin=cores).")
    return lines


def _cold(cold: ColdProof | None) -> list[str]:
    if cold is None:
        return ["Whether cold is cold was not measured: no library here multiplies a matrix by a vector."]
    rates = (cold["large_hot_bytes_per_s"], cold["small_hot_bytes_per_s"], cold["small_cold_bytes_per_s"])
    large_hot, small_hot, small_cold = (rate / 1e9 for rate in rates)
    size = units.data_bytes(cold["cache_bytes"] // 8)
    line = (
        f"A matrix beyond all caches is read at {large_hot:.1f} GB/s; one of {size} at {small_hot:.1f} hot "
        f"and {small_cold:.1f} cold."
    )
    if not cold["cold_is_cold"]:
        return [
            line,
            "→ Cold is not cold here: something keeps buffers in a cache. cache=cold and cache=weights are refused.",
        ]
    if not cold["has_cache"]:
        return [line, "Cold is cold, though no cache here is much faster than memory."]
    return [line, "Cold is cold."]


def table(found: Findings) -> list[dict[str, Any]]:
    """A row a case, for people and programs."""
    in_turn = {c.case: c for c in found.interleaved}
    return [
        {
            "case": c.case,
            "time": stats.lower_quartile(found.times[c.case]),
            "spread": stats.faster_half_range(found.times[c.case]) / stats.lower_quartile(found.times[c.case]),
            "false alarms": c.rates.false_alarms,
            "finds": c.smallest,
            "false alarms in turn": in_turn[c.case].rates.false_alarms if c.case in in_turn else None,
            "finds in turn": in_turn[c.case].smallest if c.case in in_turn else None,
        }
        for c in found.separate
    ]
