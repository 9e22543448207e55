"""The steps of measuring one case in this process. `worker.py` and `group/rank.py` call them in order.

Each step returns what it found, or raises an error that becomes the status of the record. `Findings` collects the
results, and `record_of` puts the record together, also when a step failed.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any

from deepbench.core import errors, operands, units
from deepbench.core.backend import Backend, find_backend
from deepbench.core.case import Case
from deepbench.core.kernel import Device, Kernel, in_turn
from deepbench.core.op import Op, find_op
from deepbench.core.variables import THREAD_VARIABLES, tuning
from deepbench.machine import describe, energy
from deepbench.measure.check import Verdict, check, fingerprint
from deepbench.measure.clock import DeviceClock, Measurement, Sample, SystemClock, measure_kernel, take_sample
from deepbench.native import callloop
from deepbench.plan.modes import Rules
from deepbench.results.record import Record, make_record, make_warning

if TYPE_CHECKING:
    from deepbench.core.op import Arrays

Warnings = list[dict[str, str]]

# With `cache=cold`, buffers that take turns are so many times as large as the caches: the last ones are evicted.
TIMES_CACHE = 2
# Assumed where the system does not report the size of the caches.
ASSUMED_CACHE_BYTES = 64 * 2**20
# At most so many kernels are prepared. A smaller problem stays partly in the caches, and the record says so.
MOST_SETS = 2048

# Memory for everything but the operands: the interpreter, the library with its scratch, and parts of the check.
HEADROOM_BYTES = 512 * 2**20

STATUSES: tuple[tuple[type[Exception], str], ...] = (
    (errors.Unavailable, "unavailable"),
    (errors.Unsupported, "unsupported"),
    (errors.OutOfMemory, "out_of_memory"),
    (MemoryError, "out_of_memory"),
    (errors.DeepBenchError, "crashed"),
)


@dataclass(frozen=True)
class Task:
    """One round of a case, with the operation and the library that it names."""

    case: Case
    round_number: int
    rules: Rules
    op: Op
    backend: Backend
    allowed_cpus: set[int]
    """Those of this process before a library pins its threads."""

    @classmethod
    def of(cls, case: Case, round_number: int, rules: Rules) -> Task:
        """Look the operation and the library up."""
        op, backend = find_op(case.op), find_backend(case.backend)
        return cls(case, round_number, rules, op, backend, os.sched_getaffinity(0))

    @property
    def sampling_rules(self) -> Rules:
        """A long first call is the only sample only where the library loads next to nothing in it."""
        return self.rules if self.backend.loads_at_once else replace(self.rules, first_call_counts_s=None)


@dataclass(frozen=True)
class Library:
    """The library as it was loaded."""

    facts: dict[str, Any]
    warnings: Warnings


@dataclass(frozen=True)
class Buffers:
    """The operands of one kernel; with `cache=cold` or `cache=weights` of several kernels that take turns."""

    sets: list[Arrays]
    checksums: dict[str, int]
    """Of the inputs by their name, before any call."""
    notes: dict[str, Any] = field(default_factory=dict)
    warnings: Warnings = field(default_factory=list)


@dataclass(frozen=True)
class Prepared:
    """A kernel for each set of buffers, and their timers."""

    kernels: list[Kernel]
    notes: dict[str, Any]
    first_timer: Any = None
    """Of the first kernel alone."""
    timer: Any = None
    """Of all kernels in turn."""
    loop: str = "python"

    @property
    def device(self) -> Device | None:
        """The accelerator that runs them; None: the CPU."""
        return self.kernels[0].device


@dataclass(frozen=True)
class Check:
    """What was found in the outputs and inputs after a call."""

    verdict: Verdict | None
    """None if an input changed, so that the outputs mean nothing."""
    error: str | None
    """Why the result is wrong; None if it is right."""


@dataclass(frozen=True)
class Timing:
    """What the clock read."""

    measurement: Measurement
    warnings: Warnings
    outputs_are_valid: bool = False
    """Whether the outputs are now as one call leaves them, so that no other call is needed to check them."""


@dataclass
class Findings:
    """What the steps have returned so far. A field is empty if its step was not reached."""

    library: Library | None = None
    group: dict[str, Any] | None = None
    buffers: Buffers | None = None
    prepared: Prepared | None = None
    before: Check | None = None
    timing: Timing | None = None
    energy: dict[str, Any] | None = None
    part_times: dict[str, float] = field(default_factory=dict)
    after: Check | None = None


def record_of(task: Task, measure: Callable[[Findings], None], where: str = "") -> Record:
    """The record of what `measure` found, whatever happens in it. `where` begins the reason of a failure."""
    started, clock = datetime.now(UTC), perf_counter()
    findings, failure = Findings(), None
    try:
        measure(findings)
    except (errors.DeepBenchError, MemoryError) as error:
        failure = error
    record = make_record(task.case, task.round_number, *_status(task, findings, failure, where))
    for step in (findings.buffers, findings.prepared):
        if step is not None:
            record["notes"] |= step.notes
    record["notes"] |= findings.part_times
    for source in (findings.library, findings.buffers, findings.timing):
        if source is not None:
            record["warnings"] += source.warnings
    for when, result in (("before", findings.before), ("after", findings.after)):
        if result is not None and result.verdict is not None:
            record["check"][when] = result.verdict.as_dict()
    if findings.library is not None:
        record["library"] = findings.library.facts
    if findings.group is not None:
        record["group"] = findings.group
    if findings.timing is not None:
        record["measurement"] = findings.timing.measurement.as_dict()
        if findings.energy is not None:
            record["measurement"]["energy"] = findings.energy
    record["process"] = {
        "started": started.isoformat(timespec="milliseconds"),
        "duration_s": round(perf_counter() - clock, 4),
        "cpus": sorted(os.sched_getaffinity(0)),
        "openmp_runtimes": describe.openmp_runtimes(),
        "environment": tuning(os.environ),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "rules": asdict(task.rules),
    }
    return record


def _status(task: Task, findings: Findings, failure: Exception | None, where: str) -> tuple[str, str | None]:
    """The status of a record and its reason."""
    if failure is not None:
        status = next(status for kind, status in STATUSES if isinstance(failure, kind))
        return status, where + (str(failure) or "an allocation failed")
    wrong = [c.error for c in (findings.before, findings.after) if c is not None and c.error is not None]
    if wrong:
        return "wrong", wrong[0]
    if not task.backend.computes:
        return "unchecked", f"{task.backend.title} computes nothing; this is the time of the harness"
    return "ok", None


# ---- the library


def open_library(task: Task) -> Library:
    """Load the library, and compare the threads it reports with those of the case."""
    case, backend, warnings = task.case, task.backend, []
    facts = backend.open()
    threads = backend.threads_in_use() if backend.device == "cpu" and not backend.is_group else None
    if threads is not None and threads != case.threads:
        raise errors.DeepBenchError(
            f"{backend.title} reports {threads} threads, the case has {case.threads}; "
            f"look for variables other than {', '.join(THREAD_VARIABLES)} that set its threads"
        )
    if len(runtimes := describe.openmp_runtimes()) > 1:
        text = f"{' and '.join(runtimes)} are both loaded and may compete for the cores"
        warnings.append(make_warning("two_openmp_runtimes", text))
    calculates = task.op.flop(case) > 0 and backend.device == "cpu"
    if calculates and not describe.has_multiplier(case.precision.name, describe.instructions()):
        text = f"this CPU has no instructions for arithmetic in {case.precision.name}; the library converts"
        warnings.append(make_warning("converted", text))
    return Library(facts, warnings)


# ---- memory and cores


def check_cores(case: Case) -> None:
    """`Unsupported` where `pin=cores` asks for more cores than this process may use."""
    cores = len(os.sched_getaffinity(0))
    if case.settings["pin"] == "cores" and case.threads > cores:
        raise errors.Unsupported(f"pin=cores needs one core for each of {case.threads} threads, there are {cores}")


def check_memory(task: Task, ranks: int = 1) -> None:
    """`OutOfMemory` before anything is allocated where the operands of so many ranks do not fit."""
    op, case = task.op, task.case
    _refuse_too_large(ranks * op.operand_bytes(case), ranks * op.work_bytes(case), _copies(case))


def check_device_memory(task: Task) -> None:
    """`OutOfMemory` where the operands do not fit into the memory of the device. After `open_library`."""
    free, needed = task.backend.memory_free(), task.op.operand_bytes(task.case)
    if free is not None and needed > free:
        raise errors.OutOfMemory(
            f"the operands need {units.data_bytes(needed)} on the GPU, {units.data_bytes(free)} are free"
        )


def _copies(case: Case) -> int:
    """How often a library may hold the operands: once more in a format of its own."""
    return 2 if case.settings.get("weights") == "packed" or "layout" in case.settings else 1


def _refuse_too_large(operand_bytes: int, work_bytes: int = 0, copies: int = 1) -> None:
    others = work_bytes + HEADROOM_BYTES
    wanted = operand_bytes * copies + others
    available = describe.memory_available()
    if available is not None and wanted > available:
        raise errors.OutOfMemory(
            f"needs {units.data_bytes(wanted)}: {units.data_bytes(operand_bytes)} of operands"
            f"{', twice because the library may pack them,' if copies == 2 else ''} "
            f"and {units.data_bytes(others)} for everything else; {units.data_bytes(available)} are available"
        )


# ---- inputs and kernels of a process that works alone


def make_inputs(task: Task) -> Buffers:
    """Allocate and fill the operands, and as many copies as keep the caches cold."""
    op, case = task.op, task.case
    arrays = op.operands(case)
    checksums = fingerprint(op, arrays)
    if case.settings["cache"] == "hot":
        return Buffers([arrays], checksums)
    rotating = [name for name in arrays if case.settings["cache"] == "cold" or name in op.weights]
    if not rotating:
        raise errors.Unsupported(f"{case.op} {case.direction} has no weights to keep out of the caches")
    set_bytes = sum(arrays[name].nbytes for name in rotating)
    caches = task.backend.cache_bytes() or describe.cache_bytes() or ASSUMED_CACHE_BYTES
    wanted = max(2, -(-TIMES_CACHE * caches // set_bytes))
    count = min(wanted, MOST_SETS)
    _refuse_too_large(set_bytes * (count - 1), copies=_copies(case))
    warnings = []
    if count < wanted:
        text = f"{count} sets of buffers hold {count * set_bytes} bytes, caches hold {caches}"
        warnings.append(make_warning("not_cold", text))
    copies = [{n: operands.copy(a) if n in rotating else a for n, a in arrays.items()} for _ in range(count - 1)]
    notes = {"buffer_sets": count, "buffer_bytes": count * set_bytes}
    return Buffers([arrays, *copies], checksums, notes, warnings)


def prepare(task: Task, buffers: Buffers) -> Prepared:
    """A kernel for each set of buffers, with the outputs as a kernel must find them."""
    op, case = task.op, task.case
    first = task.backend.prepare(case, buffers.sets[0])
    private = sorted(set(first.private_buffers) - set(op.weights))
    if case.settings["cache"] == "weights" and private:
        raise errors.Unsupported(f"the library copies {', '.join(private)}, so more than the weights would be cold")
    if len(buffers.sets) > 1:
        _refuse_too_large(int(first.notes.get("converted_bytes", 0)) * (len(buffers.sets) - 1))
    kernels = [first, *(task.backend.prepare(case, arrays) for arrays in buffers.sets[1:])]
    _reset(task, buffers.sets, kernels)
    first_timer, loop = callloop.timer(first)
    timer = first_timer if len(kernels) == 1 else callloop.timer(in_turn(kernels))[0]
    return Prepared(kernels, op.facts(case) | first.notes, first_timer, timer, loop)


def _reset(task: Task, sets: list[Arrays], kernels: list[Kernel]) -> None:
    """Outputs as a kernel must find them, also where it works on private buffers."""
    for arrays, kernel in zip(sets, kernels, strict=True):
        task.op.reset(task.case, arrays)
        kernel.load()


# ---- timing and checks of a process that works alone


def first_call(prepared: Prepared) -> Sample:
    """Time the very first call."""
    return take_sample(_clock(prepared, prepared.first_timer), 1)


def measure(task: Task, buffers: Buffers, prepared: Prepared, first: Sample) -> Timing:
    """Sample all kernels in turn."""
    op, case, rules, kernels, device = task.op, task.case, task.sampling_rules, prepared.kernels, prepared.device
    # The outputs that timing leaves can be checked where repeated calls leave the same as one, and where a kernel is so
    # long that it is called once. In all other cases another call is made.
    fresh = op.overwrites(case) or (first.call_s >= rules.most_s and len(kernels) == 1)
    if fresh:
        _reset(task, buffers.sets, kernels)
    before = device.conditions() if device is not None else None
    others = describe.OtherPrograms(task.allowed_cpus)
    clock = _clock(prepared, prepared.timer, len(kernels))
    measurement = replace(measure_kernel(clock, rules, first, prepared.loop), other_cpus=others.cpus())
    calls = measurement.warm_up_calls + len(measurement.samples_s) * measurement.calls_per_sample
    valid = op.overwrites(case) and kernels[0].repeats
    valid = valid or (fresh and calls == 1 and device is None and rules.energy_s is None)
    if device is None:
        return Timing(measurement, [], valid)
    return Timing(*with_device(measurement, device, before, prepared.timer.facts(len(kernels), rules.energy_s)), valid)


def with_device(
    measurement: Measurement, device: Device, before: dict[str, Any] | None, facts: dict[str, Any]
) -> tuple[Measurement, Warnings]:
    """A measurement with its conditions before and after, and the facts of the device's timer."""
    seen = {"before": before, "after": device.conditions(), **facts}
    return replace(measurement, device=seen), [make_warning(*w) for w in device.warnings(seen)]


def measure_energy(task: Task, prepared: Prepared, timing: Timing) -> dict[str, Any]:
    """Joules per call by the counters of the CPU."""
    assert task.rules.energy_s is not None, "asked only where energy is wanted"
    count = len(prepared.kernels)
    turn_s = min(timing.measurement.samples_s) * count
    return energy.measure_energy(prepared.timer, turn_s, count, task.rules.energy_s)


def check_result(task: Task, buffers: Buffers, prepared: Prepared, index: int = 0, prefix: str = "") -> Check:
    """Check the inputs and outputs of one of the kernels. `prefix` begins the reason of a wrong result."""
    prepared.kernels[index].store()
    arrays = buffers.sets[index]
    changed = [name for name, value in fingerprint(task.op, arrays).items() if value != buffers.checksums[name]]
    if changed:
        return Check(None, f"the library changed its input {', '.join(changed)}")
    verdict = check(task.op, task.case, arrays)
    return Check(verdict, None if verdict.passed else prefix + verdict.sentence)


def check_again(task: Task, buffers: Buffers, prepared: Prepared, timing: Timing) -> Check:
    """Check the first, the middle and the last set of buffers after timing; the first wrong one, or the last."""
    count, result = len(buffers.sets), Check(None, None)
    for i in sorted({0, count // 2, count - 1}):
        if not timing.outputs_are_valid:
            _reset(task, [buffers.sets[i]], [prepared.kernels[i]])
            callloop.timer(prepared.kernels[i])[0](1)
        result = check_result(task, buffers, prepared, i, "after timing, ")
        if result.error is not None:
            break
    return result


def _clock(prepared: Prepared, timer: Any, count: int = 1) -> SystemClock:
    return (SystemClock if prepared.device is None else DeviceClock)(timer, count)
