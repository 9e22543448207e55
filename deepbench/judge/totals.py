"""Totals by application: all kernels that a suite lists for it, on one machine, in one precision.

A kernel is a row of a suite in one direction. Each counts with its fastest library, and in a suite of a model as often
as one pass calls it. Totals are computed from summaries alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from deepbench.core.precision import PRECISIONS
from deepbench.plan.suites import is_suite, is_training_suite, read_suite
from deepbench.results.summary import Summary

Row = tuple[str, str, int, str]
"""Suite, operation, row of the suite and direction."""

Kind = tuple[str, str, str, int | None]
"""Suite, application, precision and number of threads."""


@dataclass(frozen=True)
class Total:
    """The kernels of an application on one machine. Missing values are None, never 0."""

    application: str
    suite: str
    precision: str
    threads: int | None
    kernels: int
    """How many the application has: those that its suite lists, or that the file has in any precision."""
    measured: int
    """How many of them have a time."""
    disturbed: int
    """How many of these times other programs disturbed."""
    single_process: int
    """How many of these times have an interval that comes from one process, and so is too narrow."""
    sum_s: float | None
    """The sum over the kernels that have a time. Sums over different kernels cannot be compared."""
    time_s: float | None
    """The same where every kernel has a time: the total."""
    low_s: float | None
    """The sum of the lower ends of the 95 % intervals of all kernels, where each has one.

    This assumes that all errors of a run go in the same direction. If they do not, some cancel out, and the interval is
    wider than it needs to be. Each error must be about normally distributed.
    """
    high_s: float | None
    """The sum of the upper ends."""
    joules: float | None
    """Energy of the same calls, where the energy of every kernel was measured."""
    by_op_s: Mapping[str, float]
    """The sum by operation."""

    @property
    def kind(self) -> Kind:
        """What makes it another total of the same machine."""
        return self.suite, self.application, self.precision, self.threads

    @property
    def is_ranked(self) -> bool:
        """Whether it is compared with other machines: every kernel has a time that is trusted."""
        return self.time_s is not None and not self.disturbed

    @property
    def half_width(self) -> float | None:
        """Half the interval relative to the time; None without an interval."""
        if self.time_s is None or self.low_s is None or self.high_s is None:
            return None
        return (self.high_s - self.low_s) / 2 / self.time_s

    @property
    def coverage(self) -> str:
        """`38 of 88 kernels, 3 disturbed`."""
        disturbed = f", {self.disturbed} disturbed" if self.disturbed else ""
        return f"{self.measured} of {self.kernels} kernels{disturbed}"

    @property
    def bits(self) -> int | None:
        """How many bits are multiplied; None for a precision of another program that is unknown here."""
        precision = PRECISIONS.get(self.precision)
        return precision.multiplied_bits if precision else None

    @property
    def below_minimum(self) -> str | None:
        """Why the precision does not meet DeepBench's minimum for the suite; None if it does, or if it is unknown."""
        precision = PRECISIONS.get(self.precision)
        return precision.below_minimum(is_training_suite(self.suite)) if precision else None

    def values(self) -> dict[str, Any]:
        """All of it as plain values, for pages and programs."""
        return {**asdict(self), "bits": self.bits, "below_minimum": self.below_minimum}


@dataclass(frozen=True)
class SuiteKernel:
    """A row of a suite in one direction, precision and number of threads."""

    application: str
    precision: str
    threads: int
    suite: str
    row: int
    op: str
    direction: str
    count: int = 1
    """How often one pass of a model calls it."""

    @property
    def kind(self) -> Kind:
        """The total that it belongs to."""
        return self.suite, self.application, self.precision, self.threads


def of_summaries(summaries: Sequence[Summary]) -> list[Total]:
    """By suite, precision and threads: the application with the longest sum first.

    A row that a suite lists twice counts twice. Gradients that training does not need do not count.
    """
    kinds: dict[Kind, dict[SuiteKernel, Summary | None]] = {}
    for kernel, s in kernel_times(summaries).items():
        kinds.setdefault(kernel.kind, {})[kernel] = s
    missing = _missing_kernels(kinds)
    found = [_total(kind, kernels, missing[kind]) for kind, kernels in kinds.items()]
    return sorted(found, key=lambda t: (t.suite, t.precision, t.threads or 0, -(t.sum_s or 0.0)))


def _total(kind: Kind, kernels: Mapping[SuiteKernel, Summary | None], missing: int) -> Total:
    suite, application, precision, threads = kind
    timed = {kernel: s for kernel, s in kernels.items() if s is not None}
    by_op: dict[str, float] = {}
    for kernel, s in timed.items():
        by_op[kernel.op] = by_op.get(kernel.op, 0.0) + kernel.count * s.time_s
    whole = not missing and len(timed) == len(kernels)
    sum_s = sum(kernel.count * s.time_s for kernel, s in timed.items()) if timed else None
    estimates = [(kernel.count, s.estimate) for kernel, s in timed.items()]
    return Total(
        application,
        suite,
        precision,
        threads,
        kernels=len(kernels) + missing,
        measured=len(timed),
        disturbed=sum(s.is_disturbed for s in timed.values()),
        single_process=sum(s.single_process for s in timed.values()),
        sum_s=sum_s,
        time_s=sum_s if whole else None,
        low_s=_sum(_times(count, e.low_s if e else None) for count, e in estimates) if whole else None,
        high_s=_sum(_times(count, e.high_s if e else None) for count, e in estimates) if whole else None,
        joules=_sum(_times(kernel.count, s.joules_per_call) for kernel, s in timed.items()) if whole else None,
        by_op_s=by_op,
    )


def _times(count: int, value: float | None) -> float | None:
    return None if value is None else count * value


def _sum(values: Iterable[float | None]) -> float | None:
    """None where a value is missing, or where there is none."""
    listed = list(values)
    known = [v for v in listed if v is not None]
    return sum(known) if known and len(known) == len(listed) else None


_Pass = tuple[str, int, bool]
"""Operation, row of the suite, and whether it is the forward pass."""


def _missing_kernels(kinds: Mapping[Kind, Iterable[SuiteKernel]]) -> dict[Kind, int]:
    """How many kernels a kind lacks that its suite lists, or that the file has in another precision.

    No library may offer an operation in 8 bits, or the run was of one operation only. Then the file has no case of
    the others, and the sum would look whole.
    """
    # By suite and application: the kernels of each pass over a row. One call for both gradients may stand for two.
    passes: dict[tuple[str, str], dict[_Pass, int]] = {}
    of_kind: dict[Kind, Counter[_Pass]] = {}
    for kind, kernels in kinds.items():
        of_kind[kind] = counts = Counter((k.op, k.row, k.direction == "forward") for k in kernels)
        known = passes.setdefault(kind[:2], dict.fromkeys(_passes_of_suite(kind[0]).get(kind[1], ()), 1))
        for key, count in counts.items():
            known[key] = min(count, known.get(key, count))
    return {
        kind: sum(count for key, count in passes[kind[:2]].items() if key not in counts)
        for kind, counts in of_kind.items()
    }


@cache
def _passes_of_suite(name: str) -> dict[str, set[_Pass]]:
    """By application: what training or inference needs of a suite of this version; nothing of other suites."""
    passes: dict[str, set[_Pass]] = {}
    for (op, row, direction), application in _known_kernels(name).items():
        passes.setdefault(application, set()).add((op, row, direction == "forward"))
    return passes


def _known_kernels(suite: str) -> dict[tuple[str, int, str], str]:
    """The same as `kernels_of`; nothing of a suite that this version does not have."""
    try:
        return kernels_of(suite) if is_suite(suite) else {}
    except BadInput:  # a parameter or a model of another version
        return {}


@cache
def kernels_of(suite: str) -> dict[tuple[str, int, str], str]:
    """The application of each kernel of a suite that counts, by operation, row and direction."""
    kernels: dict[tuple[str, int, str], str] = {}
    for entry in read_suite(suite):
        op, source = find_op(entry.pattern.op), entry.source
        if source and source["application"] and source.get("needed", True) and not op.is_group:
            kernels[op.name, source["row"], entry.pattern.direction or "forward"] = source["application"]
    return kernels


def kernel_times(summaries: Sequence[Summary]) -> dict[SuiteKernel, Summary | None]:
    """The fastest case of each kernel that counts, over libraries and settings; None if no library has a time."""
    return _gradients_once(fastest_times(summaries))


def fastest_times(summaries: Sequence[Summary]) -> dict[SuiteKernel, Summary | None]:
    """The same with both gradients in one call, and also separately, where a file has both."""
    fastest: dict[SuiteKernel, Summary | None] = {}
    for s in summaries:
        timed = s if s.is_ranked else None
        for kernel in kernels_served(s):
            known = fastest.get(kernel)
            fastest[kernel] = timed if known is None or (timed and timed.time_s < known.time_s) else known
    return fastest


def kernels_served(s: Summary) -> Iterator[SuiteKernel]:
    """The kernels of applications that a case computes: one for each row of a suite that lists it and counts."""
    if s.is_group:  # how often a model calls it depends on the number of machines
        return
    for source in s.record["sources"]:
        if source["application"] and source.get("needed", True):
            yield SuiteKernel(
                source["application"],
                s.record["precision"],
                s.record["threads"],
                source["suite"],
                source["row"],
                s.record["op"],
                s.record["direction"],
                source.get("count", 1),
            )


GRADIENTS = ("backward_data", "backward_weights")


def _gradients_once(fastest: dict[SuiteKernel, Summary | None]) -> dict[SuiteKernel, Summary | None]:
    """Keep the faster of both gradients in one call and the two separate calls: a pass needs them once."""
    counted = dict(fastest)
    for kernel, both in fastest.items():
        parts = [replace(kernel, direction=d) for d in GRADIENTS] if kernel.direction == "backward" else []
        if parts and all(part in fastest for part in parts):
            known = [s for part in parts if (s := fastest[part]) is not None]
            separate_s = sum(s.time_s for s in known) if len(known) == len(parts) else None
            separate = both is None or (separate_s is not None and separate_s < both.time_s)
            for dropped in [kernel] if separate else parts:
                del counted[dropped]
    return counted
