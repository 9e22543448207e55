"""Measures the kernels of a step, and the step itself in turn with them.

Between two kernels a process of its own runs the real step for a moment. A machine that is slower for a while is
slower for both, so each kernel's time is compared with the steps next to it. All of it is kept in the result file: a
prediction and its error can be computed again from it.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from deepbench.core import stats
from deepbench.core.progress import Activity, Progress, no_progress
from deepbench.core.times import Time
from deepbench.measuring.clock import Sample
from deepbench.measuring.session import Options, Session
from deepbench.networks.predictions.predict import FEW_SAMPLES, Need, Speed, Times, predict, yardstick
from deepbench.networks.predictions.runner import OVERHEAD, Runner, StepRequest
from deepbench.networks.traces.trace import Trace
from deepbench.plan.cases import Planned
from deepbench.results.file import ResultFile
from deepbench.results.record import NetworkSteps

# Seconds of steps between two kernels.
SLICE_S = 0.15

# Seconds of steps of the network that measures the overhead, at the start, at the end, and each time after so many
# kernels.
OVERHEAD_SLICE_S, KERNELS_PER_SLICE = 0.25, 12


@dataclass
class StepTimes:
    """The real step, as it ran between the kernels. Samples that other programs disturbed do not count."""

    slices: list[list[Sample]] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    """How many records the file had at each slice."""

    @classmethod
    def of(cls, file: ResultFile, network: str, is_training: bool) -> StepTimes | None:
        """The steps of a network in a file, by its title; None without any."""
        found = [(after, line) for after, line in file.steps if _is_of(line, network, is_training)]
        return cls([samples_of(line) for _, line in found], [after for after, _ in found]) if found else None

    @cached_property
    def _medians_s(self) -> list[float | None]:
        """Of each slice; None where all of its samples were disturbed."""
        used = iter(undisturbed([sample for samples in self.slices for sample in samples]))
        kept = [[sample.call_s for sample in samples if next(used)] for samples in self.slices]
        return [statistics.median(times) if times else None for times in kept]

    @cached_property
    def _known_s(self) -> list[float]:
        """The medians that are known; those of all samples where all were disturbed."""
        known = [s for s in self._medians_s if s is not None]
        return known or [statistics.median(s.call_s for s in samples) for samples in self.slices if samples]

    @property
    def seconds(self) -> float:
        """The median of all slices."""
        return statistics.median(self._known_s)

    @property
    def time(self) -> Time:
        """The median of all slices, with its 95 % interval; an upper bound where most slices were disturbed."""
        if 2 * self._medians_s.count(None) > len(self.slices):
            return Time.at_most(self.seconds)
        interval = stats.median_interval(self._known_s)
        return Time(self.seconds, *(interval or (None, None)))

    def speeds(self, cases: Iterable[str]) -> dict[str, Speed]:
        """For each case of a file, whose records are in this order: how fast the machine was, by the steps next to it.

        Steps next to each other differ by a few percent for no reason that lasts, so all steps from one before to one
        after the case count. Where all of them were disturbed, the speed may have been that of any step.
        """
        found: dict[str, list[Speed]] = {}
        for number, case in enumerate(cases):
            before = max((i for i, count in enumerate(self.after) if count <= number), default=0)
            near = [s for s in self._medians_s[before : before + 2] if s is not None]
            factor = self.seconds / statistics.mean(near) if near else 1.0
            any_s = near or self._known_s
            found.setdefault(case, []).append(Speed(factor, self.seconds / max(any_s), self.seconds / min(any_s)))
        return {
            case: Speed(statistics.mean(s.factor for s in each), min(s.low for s in each), max(s.high for s in each))
            for case, each in found.items()
        }


def _is_of(line: NetworkSteps, network: str, is_training: bool) -> bool:
    return (line["network"], line["is_training"]) == (network, is_training)


def samples_of(line: NetworkSteps) -> list[Sample]:
    """The samples of a line of a result file."""
    lists = line["samples_s"], line["cpu_s"], line["involuntary_switches"], line["steal_s"]
    return [Sample(*values) for values in zip(*lists, strict=False)]


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


def measure(
    path: Path,
    cases: Sequence[Planned],
    options: Options,
    progress: Progress = no_progress,
    network: tuple[str, StepRequest] | None = None,
    overheads: Mapping[bool, int] | None = None,
) -> ResultFile:
    """Measure cases into a new file, with steps of networks between them.

    `network` has the title and the program of the real step. `overheads` has, for forward passes and for training,
    how many threads the network that measures the overhead of operators uses.
    """
    with contextlib.ExitStack() as stack:
        runners = []
        if network is not None:
            runners.append((network[0], network[1], stack.enter_context(Runner(network[1]))))
        probes = []
        for is_training, threads in (overheads or {}).items():
            request = StepRequest(OVERHEAD, {}, is_training, threads=threads)
            probes.append((OVERHEAD, request, stack.enter_context(Runner(request))))
        session = stack.enter_context(Session.create(path, cases, options))
        seen = [-KERNELS_PER_SLICE]

        def observe(activity: Activity) -> None:
            progress(activity)
            for title, request, runner in runners:
                session.keep_steps(_line(title, request, runner.samples(SLICE_S)))
            count = len(session.file.records)
            if count - seen[0] >= KERNELS_PER_SLICE:
                seen[0] = count
                for title, request, runner in probes:
                    session.keep_steps(_line(title, request, runner.samples(OVERHEAD_SLICE_S)))

        session.run(observe, options.begin)
        seen[0] = -KERNELS_PER_SLICE
        observe(Activity("the step again" if runners else "overhead of operators"))
        return session.file


def _line(title: str, request: StepRequest, samples: Sequence[Sample]) -> NetworkSteps:
    return {
        "network": title,
        "settings": dict(request.settings),
        "is_training": request.is_training,
        "optimizer": request.optimizer,
        "threads": request.threads,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "samples_s": [s.call_s for s in samples],
        "cpu_s": [s.cpu_s for s in samples],
        "involuntary_switches": [s.involuntary_switches for s in samples],
        "steal_s": [s.steal_s for s in samples],
    }


def overhead_of(
    files: Iterable[ResultFile], trace: Trace, times: Times, library: str, threads: int, capacity: int
) -> Time | None:
    """What each operator costs besides its kernel, at least 0: of a network whose kernels take next to no time.

    `trace` is that of the network, and `times` has its kernels. None if no file has steps of it, or lacks its kernels.
    """
    samples = [
        sample
        for file in files
        for _, line in file.steps
        if _is_of(line, OVERHEAD, trace.is_training) and line["threads"] == threads
        for sample in samples_of(line)
    ]
    kernels = predict(trace, times, library, threads, capacity, None)
    if not samples or kernels.time is None:
        return None
    used = stats.samples_used([s.call_s for s in samples], undisturbed(samples))
    median_s, known = statistics.median(used), kernels.known
    few = (1 - FEW_SAMPLES) * median_s, (1 + FEW_SAMPLES) * median_s
    low_s, high_s = stats.median_interval(used) or few
    # A disturbed kernel takes at most its time, and at least nothing.
    ends = (
        (median_s, known.seconds),
        (low_s, known.high_s),
        (high_s, 0.0 if known.is_bound else known.low_s),
    )
    middle, low, high = (None if own is None else max(0.0, step_s - own) / trace.operators for step_s, own in ends)
    return None if middle is None else Time(middle, low, high)
