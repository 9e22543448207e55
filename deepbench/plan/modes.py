"""How thoroughly to measure: rounds of processes, and sampling rules inside each process."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rules:
    """How long to sample in one process. Times are in seconds; shares are of the median."""

    target: float = 0.01
    """Stop when the confidence interval of the median is narrower than this share of it."""
    least_samples: int = 20
    least_s: float = 0.05
    most_s: float = 0.12
    warm_up_s: float = 0.05
    """The longest warm-up after the first call."""
    sample_s: float = 1.5e-3
    """A sample makes as many calls as take about this long, at least one."""
    first_call_counts_s: float | None = None
    """A first call that takes longer than this is the only sample. None: the first call never counts."""
    patience: int = 5
    """Where other programs disturbed too many samples, a process goes on for up to so many times `most_s`."""
    least_slices: int = 8
    """In a heat with rivals: the number of slices of each rival, unless `most_s` is over before."""
    energy_s: float | None = None
    """How long to run for energy per call, where the CPU or the device counts energy. None: not at all."""
    sustained_s: float | None = None
    """How long a device is loaded after sampling, to store its clock and power over time. None: not at all."""


@dataclass(frozen=True)
class Rounds:
    """How many processes measure a case."""

    least: int
    most: int
    target: float
    """Between `least` and `most`, a case needs no more rounds once its 95 % interval is within ± this share."""
    most_s: float
    """A case whose rounds together took longer than this gets no more than `least`."""


@dataclass(frozen=True)
class Mode:
    """One of the lengths of a run."""

    rounds: Rounds
    rules: Rules
    rounds_of_sides: tuple[int, int]
    """Least and most heats of the sides of a comparison: the interval of a ratio needs more than that of a time."""
    rules_of_sides: Rules
    keeps_memory: bool = False
    """Whether the processes keep the memory of freed arrays: `launch.KEEPS_MEMORY`."""


# A second call of a long kernel would double the time of a quick run. What the libraries concerned load in a first call
# (`Backend.loads_at_once`) takes some 40 ms, 2 % of the two seconds above which a default run skips the second call.
QUICK = Mode(
    Rounds(1, 1, 0.03, 0.0),
    Rules(least_samples=10, least_s=0.02, most_s=0.06, warm_up_s=0.02, first_call_counts_s=0.25, least_slices=5),
    (4, 6),
    Rules(most_s=0.25, patience=1, least_slices=20),
)
DEFAULT = Mode(
    Rounds(3, 5, 0.03, 3.0), Rules(first_call_counts_s=2.0), (6, 15), Rules(most_s=0.4, patience=1, least_slices=30)
)
# The fastest sample of a probe counts. Short samples are more often free of other programs.
PROBE = replace(QUICK.rules, sample_s=0.2e-3, least_samples=30, least_s=0.05, most_s=0.12, patience=1)
RIGOROUS = Mode(
    Rounds(10, 20, 0.005, 120.0),
    Rules(target=0.005, least_samples=50, least_s=0.2, most_s=1.0, warm_up_s=0.3),
    (10, 40),
    Rules(target=0.005, most_s=1.0, patience=1, warm_up_s=0.3, least_slices=60),
)
# For sums of kernels, as in predictions: the errors of many kernels cancel in part, so one process of each is enough.
# But each needs an interval, also where its operands take turns and a single sample takes a tenth of a second.
STEPS = Mode(
    Rounds(1, 1, 0.03, 0.0),
    Rules(target=0.02, least_samples=10, least_s=0.05, most_s=1.5, patience=2),
    (4, 6),
    Rules(most_s=0.25, patience=1, least_slices=20),
    keeps_memory=True,
)
MODES = {"quick": QUICK, "default": DEFAULT, "rigorous": RIGOROUS, "steps": STEPS}

# Energy counters are refreshed about ten times per second, so this window is accurate to a few percent.
ENERGY_S = 2.0

# Within a tenth of a second the power limit lowers the clock of a GPU; heat needs longer.
SUSTAINED_S = 3.0
