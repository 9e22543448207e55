"""Measures the kernels of a step, and the step itself in turn with them.

Between two kernels a process of its own runs the real step for a moment. A machine that is slower for a while is
slower for both, so each kernel's time is compared with the steps next to it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from deepbench.core import stats
from deepbench.measure.clock import Sample
from deepbench.measure.session import Options, Progress, Session, Step, no_progress
from deepbench.networks.predict import Need, Time, Times, predict, yardstick
from deepbench.networks.runner import OVERHEAD, Request, Runner
from deepbench.networks.trace import Trace
from deepbench.plan.cases import Planned
from deepbench.results.file import ResultFile

# Seconds of steps between two kernels.
SLICE_S = 0.15

# Seconds of steps of the network that measures the overhead.
OVERHEAD_S = 1.0


@dataclass
class StepTimes:
    """The real step, as it ran between the kernels. Samples that other programs disturbed do not count."""

    slices: list[list[Sample]] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    """How many records the file had at each slice."""

    @cached_property
    def _medians_s(self) -> list[float | None]:
        """Of each slice; None where all of its samples were disturbed."""
        used = iter(undisturbed([sample for samples in self.slices for sample in samples]))
        kept = [[sample.call_s for sample in samples if next(used)] for samples in self.slices]
        return [statistics.median(times) if times else None for times in kept]

    @property
    def seconds(self) -> float:
        """The median of all slices."""
        known = [s for s in self._medians_s if s is not None]
        return statistics.median(known or [sample.call_s for samples in self.slices for sample in samples])

    @property
    def time(self) -> Time:
        """The median of all slices, with its 95 % interval."""
        interval = stats.median_interval([s for s in self._medians_s if s is not None])
        return Time(self.seconds, *(interval or (None, None)))

    def speeds(self, file: ResultFile) -> dict[str, float]:
        """For each case: the time of the step over that of the steps next to the case."""
        found: dict[str, list[float]] = {}
        for number, record in enumerate(file.records):
            before = max((i for i, count in enumerate(self.after) if count <= number), default=0)
            near = [s for s in self._medians_s[before : before + 2] if s is not None]
            if near:
                found.setdefault(record["case"], []).append(self.seconds / statistics.mean(near))
        return {case: statistics.mean(values) for case, values in found.items()}


def undisturbed(samples: Sequence[Sample]) -> list[bool]:
    """For each sample, whether other programs left it alone."""
    return stats.undisturbed(
        [s.call_s for s in samples],
        [s.cpu_s for s in samples],
        [s.involuntary_switches for s in samples],
        [s.steal_s for s in samples],
        1,
    )


def planned(wanted: Sequence[Need], library: str, threads: int) -> list[Planned]:
    """The cases of kernels, and of the additions for other operators, each once."""
    cases = [case for need in wanted for case in need.cases]
    cases += yardstick(library, threads).values()
    return [Planned(case, []) for case in dict.fromkeys(cases)]


def measure_in_turn(
    path: Path, request: Request, cases: Sequence[Planned], options: Options, progress: Progress = no_progress
) -> tuple[ResultFile, StepTimes]:
    """Measure cases into a new file, and run steps of a network between them."""
    steps = StepTimes()
    with Runner(request) as runner, Session.create(path, cases, options) as session:

        def observe(step: Step) -> None:
            progress(step)
            steps.after.append(len(session.file.records))
            steps.slices.append(runner.samples(SLICE_S))

        session.run(observe, options.begin)
        observe(Step("the step again"))
        return session.file, steps


def overhead_of(trace: Trace, times: Times, library: str, threads: int, capacity: int) -> Time:
    """What each operator costs besides its kernel: of a network whose kernels take next to no time.

    `trace` is that of the network, and `times` has its kernels.
    """
    with Runner(Request(OVERHEAD, {}, trace.is_training, threads=threads)) as runner:
        samples = runner.samples(OVERHEAD_S)
    used = stats.samples_used([s.call_s for s in samples], undisturbed(samples))
    kernels = predict(trace, times, library, threads, capacity, None).known.seconds
    quarters = statistics.quantiles(used, n=4)
    low, middle, high = ((s - kernels) / trace.operators for s in quarters)
    return Time(middle, low, high)
