"""The steps of measuring one case in this process. `worker.py` and `group/rank.py` call them in order.

Each step returns what it found, or raises an error that decides the status of the record. `StepResults` collects what
the steps returned, and `record_of` puts the record together, also if a step fails.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from deepbench.core import errors, operands, stats, units
from deepbench.core.kernel import Device, EventDeviceTimer, Kernel, in_turn
from deepbench.core.variables import thread_variables, tuning
from deepbench.machine import describe, energy
from deepbench.machine.system import allowed_cpus
from deepbench.measuring.check import Verdict, check, fingerprint, fingerprint_of_outputs
from deepbench.measuring.clock import DeviceClock, Loop, Sample, Sampler, SystemClock, take_sample
from deepbench.measuring.launch import Request
from deepbench.native import callloop
from deepbench.results import record as records
from deepbench.results.record import Measurement, Record, RecordWarning

if TYPE_CHECKING:
    from deepbench.core.op import Arrays

# With `cache=cold`, the buffers that take turns are this many times as large as the caches, which evicts the oldest.
TIMES_CACHE = 2
# Assumed where the system does not report the size of the caches.
ASSUMED_CACHE_BYTES = 64 * 2**20
# The most kernels that are prepared. A smaller problem stays partly in the caches, and the record says so.
MOST_SETS = 2048

# What a first call may do besides its work: loading a library (MKL's code for this CPU) takes about this long, and
# memory is touched for the first time at about this rate. A larger share of its time than this makes it untypical.
LOADING_S, TOUCH_BYTES_PER_S, MOST_EXTRA = 0.04, 2e9, 0.02

# After timing, calls are made one by one in the loop that was timed, each with outputs that were just reset: a call
# that does nothing leaves a wrong result. At least LEAST_CHECKED calls, and further ones until MOST_CHECKED, or until
# they take this share of the time of sampling and CHECKED_S. So a library that skips every n-th call is found up to
# n = MOST_CHECKED if a call takes a millisecond or less, and up to n = LEAST_CHECKED in any case.
LEAST_CHECKED, MOST_CHECKED, CHECKED_SHARE, CHECKED_S = 3, 32, 0.25, 0.05

# Where every call adds the same to the outputs, they tell how many of the timed calls did their work. The estimate may
# be off by this share, and by the roundoff of f32 in each call; where that is more than MOST_DRIFT, it is not made.
COUNT_TOLERANCE, F32_ROUNDOFF, MOST_DRIFT = 0.02, 2.0**-24, 0.25

# Memory for everything but the operands: the interpreter, the library with its scratch, and parts of the check.
HEADROOM_BYTES = 512 * 2**20


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What any step may add to the record."""

    notes: dict[str, Any] = field(default_factory=dict)
    warnings: list[RecordWarning] = field(default_factory=list)


@dataclass(frozen=True)
class Library(StepResult):
    """The library as it was loaded."""

    facts: records.LibraryFacts
    others: describe.OtherPrograms
    """The load since before it was loaded, on the CPUs of this process before the library pinned its threads."""


@dataclass(frozen=True)
class Buffers(StepResult):
    """The operands of one kernel; with `cache=cold` or `cache=weights` of several kernels that take turns."""

    sets: list[Arrays]
    checksums: dict[str, int]
    """Of the inputs by their name, before any call."""


@dataclass(frozen=True)
class Prepared(StepResult):
    """A kernel for each set of buffers, and their timers."""

    kernels: list[Kernel]
    first_timer: Any
    """Of the first kernel alone."""
    timer: Any
    """Of all kernels in turn."""
    loop: Loop

    @property
    def device(self) -> Device | None:
        """The accelerator that runs them; None: the CPU."""
        return self.kernels[0].device


@dataclass(frozen=True)
class CheckResult:
    """What was found in the inputs and outputs after a call."""

    verdict: Verdict | None
    """None if an input changed, so that the outputs mean nothing."""
    error: str | None
    """Why the result is wrong; None if it is right."""


@dataclass(frozen=True)
class Timing(StepResult):
    """What the clock read."""

    measurement: Measurement
    outputs_are_valid: bool = False
    """Whether the outputs are now as one call leaves them."""
    calls: int | None = None
    """Calls since the outputs were reset, on each set of buffers; None where that is not known."""
    spent_s: float = 0.0
    """How long it took to sample."""


@dataclass
class StepResults:
    """What the steps have returned so far. A field is None if its step was not reached."""

    library: Library | None = None
    group: records.GroupFacts | None = None
    buffers: Buffers | None = None
    prepared: StepResult | None = None
    before: CheckResult | None = None
    timing: Timing | None = None
    energy: records.CpuEnergy | None = None
    after: CheckResult | None = None
    waited_s: float = 0.0
    """How long rivals had their turns."""


def record_of(request: Request, measure: Callable[[StepResults], None], where: str = "") -> Record:
    """The record of what `measure` found, also if it fails. `where` begins the reason of a failure."""
    started, clock, findings = datetime.now(UTC), perf_counter(), StepResults()
    cpus_allowed = sorted(allowed_cpus())
    status: records.Status = "ok"
    reason = None
    try:
        measure(findings)
        wrong = [result.error for result in (findings.before, findings.after) if result is not None and result.error]
        if wrong:
            status, reason = "wrong", wrong[0]
        elif not request.backend.computes:
            status, reason = "unchecked", f"{request.backend.title} computes nothing; this is the time of the harness"
    except errors.DeepBenchError as error:
        status, reason = error.record_status, f"{where}{error}"
    except MemoryError as error:
        status, reason = "out_of_memory", where + (str(error) or "an allocation failed")
    record = records.make_record(request.case, request.round_number, status, reason)
    for step in filter(None, (findings.library, findings.buffers, findings.prepared, findings.timing)):
        record["notes"] |= step.notes
        record["warnings"] += step.warnings
    record["library"] = findings.library.facts if findings.library is not None else None
    record["group"] = findings.group
    record["check"] = {"before": _verdict(findings.before), "after": _verdict(findings.after)}
    if findings.timing is not None:
        record["measurement"] = measurement = findings.timing.measurement
        if findings.energy is not None:
            measurement["energy"] = findings.energy
    record["process"] = {
        "started": started.isoformat(timespec="milliseconds"),
        "duration_s": round(max(0.0, perf_counter() - clock - findings.waited_s), 4),
        "cpus": sorted(allowed_cpus()),
        "cpus_allowed": cpus_allowed,
        "openmp_runtimes": describe.openmp_runtimes(),
        "environment": tuning(os.environ),
        "peak_memory_bytes": describe.peak_memory_bytes(),
        "rules": asdict(request.rules),
    }
    return record


def _verdict(result: CheckResult | None) -> records.Check | None:
    return result.verdict.fields if result is not None and result.verdict is not None else None


# ---- the library


def open_library(request: Request) -> Library:
    """Load the library, and compare the threads it reports with those of the case."""
    case, backend, warnings = request.case, request.backend, []
    others = describe.OtherPrograms(allowed_cpus())
    backend.select(case.device)
    facts = cast(records.LibraryFacts, backend.open())
    threads = backend.threads_in_use() if case.device == "cpu" and not backend.is_group else None
    if threads is not None and threads != case.threads:
        raise errors.DeepBenchError(
            f"{backend.title} reports {threads} threads, but the case has {case.threads}; DeepBench sets "
            f"{', '.join(thread_variables())}: this process may have too few CPUs, or another variable or a "
            "configuration file of the library overrides them"
        )
    if len(runtimes := describe.openmp_runtimes()) > 1:
        text = f"{' and '.join(runtimes)} are both loaded and may compete for the cores"
        warnings.append(RecordWarning(code="two_openmp_runtimes", text=text))
    calculates = case.device == "cpu" and request.op.flop(case) > 0
    multipliers = describe.MULTIPLIES.get(case.precision.name)
    if calculates and multipliers and not multipliers & set(describe.instructions()):
        text = f"this CPU has no instructions for arithmetic in {case.precision.name}; the library converts"
        warnings.append(RecordWarning(code="converted", text=text))
    return Library(facts, others, warnings=warnings)


# ---- cores and memory


def check_cores(request: Request) -> None:
    """`Unsupported` where `pin=cores` asks for more cores than this process may use."""
    threads, cores = request.case.threads, len(allowed_cpus())
    if request.case.settings["pin"] == "cores" and threads > cores:
        raise errors.Unsupported(f"pin=cores needs one core for each of {threads} threads, there are {cores}")


def check_memory(request: Request, ranks: int = 1) -> None:
    """`OutOfMemory` before anything is allocated where the operands of this many ranks do not fit."""
    op, case = request.op, request.case
    _refuse_too_large(ranks * op.operand_bytes(case), ranks * op.workspace_bytes(case), case.settings)


def check_device_memory(request: Request) -> None:
    """`OutOfMemory` where the operands do not fit into the memory of the device. After `open_library`."""
    free, needed = request.backend.memory_free(), request.op.operand_bytes(request.case)
    if free is not None and needed > free:
        raise errors.OutOfMemory(
            f"the operands need {units.data_bytes(needed)} on the GPU, {units.data_bytes(free)} are free"
        )


def _refuse_too_large(operand_bytes: int, work_bytes: int, settings: dict[str, str]) -> None:
    packed = settings.get("weights") == "packed" or "layout" in settings  # a second copy, in the library's own format
    others = work_bytes + HEADROOM_BYTES
    wanted, available = operand_bytes * (2 if packed else 1) + others, describe.memory_available()
    if available is not None and wanted > available:
        raise errors.OutOfMemory(
            f"needs {units.data_bytes(wanted)}: {units.data_bytes(operand_bytes)} of operands"
            f"{', twice because the library may pack them,' if packed else ''} "
            f"and {units.data_bytes(others)} for everything else; {units.data_bytes(available)} are available"
        )


# ---- inputs and kernels of a worker


def make_inputs(request: Request) -> Buffers:
    """Allocate and fill the operands, and as many copies as keep the caches cold."""
    op, case = request.op, request.case
    arrays = op.operands(case)
    checksums = fingerprint(op, arrays)
    if case.settings["cache"] == "hot":
        return Buffers([arrays], checksums)
    rotating = [name for name in arrays if case.settings["cache"] == "cold" or name in op.weights]
    if not rotating:
        raise errors.Unsupported(f"{case.op} {case.direction} has no weights to keep out of the caches")
    set_bytes = sum(arrays[name].nbytes for name in rotating)
    caches = request.backend.cache_bytes() or describe.cache_bytes() or ASSUMED_CACHE_BYTES
    wanted = max(2, -(-TIMES_CACHE * caches // set_bytes))
    count = min(wanted, MOST_SETS)
    _refuse_too_large(set_bytes * (count - 1), 0, case.settings)
    # Of a table, a call reads only the rows that are looked up, and these are the same in every call.
    traffic_bytes = op.traffic_bytes(case)
    touched = traffic_bytes if case.settings["cache"] == "cold" and traffic_bytes < set_bytes / 2 else set_bytes
    warnings = []
    if count * touched < TIMES_CACHE * caches:
        text = f"calls with {count} sets of buffers touch {count * touched} bytes, caches hold {caches}"
        warnings.append(RecordWarning(code="not_cold", text=text))
    copies = [{n: operands.copy(a) if n in rotating else a for n, a in arrays.items()} for _ in range(count - 1)]
    notes = {"buffer_sets": count, "buffer_bytes": count * set_bytes}
    return Buffers([arrays, *copies], checksums, notes=notes, warnings=warnings)


def prepare(request: Request, buffers: Buffers) -> Prepared:
    """A kernel for each set of buffers, with the outputs as a kernel must find them."""
    op, case, sets = request.op, request.case, buffers.sets
    request.backend.earlier_choice = request.choice
    start = perf_counter()
    first = request.backend.prepare(case, sets[0])
    creation_s = perf_counter() - start
    private = sorted(set(first.private_buffers) - set(op.weights))
    if case.settings["cache"] == "weights" and private:
        raise errors.Unsupported(f"the library copies {', '.join(private)}, so more than the weights would be cold")
    if len(sets) > 1:
        _refuse_too_large(int(first.notes.get("converted_bytes", 0)) * (len(sets) - 1), 0, {})
    kernels = [first, *(request.backend.prepare(case, arrays) for arrays in sets[1:])]
    _reset(request, sets, kernels)
    first_timer, loop = callloop.timer(first)
    timer = first_timer if len(kernels) == 1 else callloop.timer(in_turn(kernels))[0]
    notes, warnings = {**op.facts(case), "creation_s": float(f"{creation_s:.4g}"), **first.notes}, loop_warnings(first)
    if (computes_in := first.notes.get("computes_in")) is not None:
        text = f"the library converts, and computes this case of {case.precision.name} in {computes_in}"
        warnings.append(RecordWarning(code="converted", text=text))
    return Prepared(kernels, first_timer, timer, cast(Loop, loop), notes=notes, warnings=warnings)


def loop_warnings(kernel: Kernel) -> list[RecordWarning]:
    """A warning if calls of this kernel are slower than they need to be."""
    text = "the call loop is not compiled, so calls are made from Python"
    return [RecordWarning(code="loop_not_compiled", text=text)] if callloop.lacks_compiler(kernel) else []


def _reset(request: Request, sets: list[Arrays], kernels: list[Kernel]) -> None:
    """Put the outputs back to what a kernel must find, also where it works on private buffers."""
    for arrays, kernel in zip(sets, kernels, strict=True):
        request.op.reset(request.case, arrays)
        kernel.load()


# ---- timing and checks of a worker


@dataclass(frozen=True)
class FirstCall:
    """The very first call."""

    sample: Sample
    others: describe.OtherPrograms
    """The load of other programs since this call; where that is too short, since the library was loaded."""
    is_typical: bool
    """Whether it took as long as any other: it loaded and touched next to nothing, and no other program ran."""


def first_call(prepared: Prepared, earlier: describe.OtherPrograms) -> FirstCall:
    """Time the very first call, and find out what it did besides its work.

    `earlier` is the load since an earlier time: where the measurement is short, it tells more than none.
    """
    others, loaded, resident = earlier.from_now(), describe.shared_libraries(), describe.resident_bytes()
    sample = take_sample(_clock(prepared, callloop.once(prepared.first_timer)), 1)
    other_cpus, grown = others.cpus(), describe.resident_bytes() - resident
    extra_s = max(0, grown) / TOUCH_BYTES_PER_S + (LOADING_S if describe.shared_libraries() - loaded else 0.0)
    is_quiet = other_cpus is None or other_cpus < stats.OTHER_LOAD or not _is_on_host(prepared)
    return FirstCall(sample, others, is_quiet and extra_s <= MOST_EXTRA * sample.call_s)


@dataclass(frozen=True)
class Sampling:
    """A kernel that is warmed up and sampled slice by slice, with what was read before."""

    sampler: Sampler
    request: Request
    prepared: Prepared
    before: dict[str, Any] | None
    others: describe.OtherPrograms
    outputs_are_shared: bool
    """Whether all kernels write to the same outputs."""

    @classmethod
    def begin(cls, request: Request, buffers: Buffers, prepared: Prepared, first: FirstCall) -> Sampling:
        """Warm up all kernels in turn."""
        device = prepared.device
        _reset(request, buffers.sets, prepared.kernels)
        before = conditions(device, request.rivals) if device is not None else None
        clock = _clock(prepared, prepared.timer, len(prepared.kernels))
        sampler = Sampler(clock, request.sampling_rules, first.sample, prepared.loop, first.is_typical)
        if isinstance(prepared.timer, EventDeviceTimer):
            prepared.timer.settle()
        are_shared = _outputs_are_shared(request, buffers)
        return cls(sampler, request, prepared, before, first.others, are_shared)

    def end(self, rivals_s: float = 0.0) -> Timing:
        """The samples; `rivals_s` are the CPU seconds of rivals since the beginning."""
        op, case, rules, device = self.request.op, self.request.case, self.request.rules, self.prepared.device
        measurement, count = self.sampler.measurement(), len(self.prepared.kernels)
        self.others.complete()
        measurement["other_cpus"] = self.others.cpus(rivals_s)
        timer = self.prepared.timer
        if isinstance(timer, EventDeviceTimer):
            facts = timer.facts(count, rules.energy_s, rules.sustained_s)
        else:
            facts = {} if device is None else timer.facts(count, rules.energy_s)
        # The timer of a device makes further calls, and so does the step that measures energy.
        is_counted = device is None and rules.energy_s is None
        calls = ((measurement["warm_up_calls"] or 0) + self.sampler.calls) // count if is_counted else None
        is_single = calls == 1 and not self.outputs_are_shared  # a call of each kernel adds to outputs that are shared
        valid = (op.is_idempotent(case) and self.prepared.kernels[0].repeats) or is_single
        timing = timing_of(measurement, device, self.before, facts, self.request.rivals)
        return replace(timing, outputs_are_valid=valid, calls=calls, spent_s=self.sampler.spent_s)


def timing_of(
    measurement: Measurement,
    device: Device | None,
    before: dict[str, Any] | None,
    facts: dict[str, Any],
    rivals: int = 0,
) -> Timing:
    """A measurement; on a device with its conditions before and after, and the facts of its timer."""
    if device is None:
        return Timing(measurement)
    seen = {"before": before, "after": conditions(device, rivals), **facts}
    measurement["device"] = cast(records.DeviceMeasurement, seen)
    return Timing(
        measurement,
        warnings=[RecordWarning(code=code, text=text) for code, text in device.warnings(seen)],
    )


def conditions(device: Device, rivals: int) -> dict[str, Any] | None:
    """Those of a device, without rivals of the same heat among the other processes."""
    found = device.conditions()
    if found is not None and found.get("other_processes"):
        found["other_processes"] = max(0, found["other_processes"] - rivals)
    return found


def measure_energy(prepared: Prepared, timing: Timing, window_s: float) -> records.CpuEnergy:
    """Joules per call by the counters of the CPU, over a window of this length."""
    count = len(prepared.kernels)
    turn_s = min(timing.measurement["samples_s"]) * count
    return cast(records.CpuEnergy, energy.measure_energy(prepared.timer, turn_s, count, window_s))


def check_result(
    request: Request, buffers: Buffers, prepared: Prepared, index: int = 0, prefix: str = ""
) -> CheckResult:
    """Check the inputs and outputs of one of the kernels. `prefix` begins the reason of a wrong result."""
    prepared.kernels[index].store()
    arrays = buffers.sets[index]
    if changed := _changed_inputs(request, buffers, index):
        return CheckResult(None, changed)
    verdict = check(request.op, request.case, arrays)
    return CheckResult(verdict, None if verdict.passed else prefix + verdict.sentence)


def _changed_inputs(request: Request, buffers: Buffers, index: int) -> str | None:
    """Which inputs of a set of buffers the library changed, as a sentence; None for none."""
    found = fingerprint(request.op, buffers.sets[index])
    changed = [name for name, value in found.items() if value != buffers.checksums[name]]
    return f"the library changed its input {', '.join(changed)}" if changed else None


def check_again(request: Request, buffers: Buffers, prepared: Prepared, timing: Timing) -> CheckResult:
    """Check what timing has left, then calls one by one, then a call with other inputs; the first wrong result.

    If all are right, the first result. Bits that have been checked are not checked again.
    """
    sets, kernels, checked = buffers.sets, prepared.kernels, dict[tuple[int, ...], CheckResult]()

    def look(i: int, prefix: str) -> CheckResult:
        kernels[i].store()
        bits = fingerprint_of_outputs(request.op, sets[i])
        if bits not in checked:
            checked[bits] = check_result(request, buffers, prepared, i, prefix)
        return checked[bits]

    if timing.outputs_are_valid:
        for i in range(len(sets)):
            if (result := look(i, "after timing, ")).error is not None:
                return result
        if timing.calls == 1 and not _outputs_are_shared(request, buffers):
            return result  # every call has been checked
    elif (missing := _missing_calls(request, buffers, prepared, timing)) is not None:
        return CheckResult(None, missing)
    timers = {0: prepared.first_timer}
    order = itertools.cycle(dict.fromkeys([0, len(sets) // 2, len(sets) - 1, *range(len(sets))]))
    ends, calls = perf_counter() + max(CHECKED_S, CHECKED_SHARE * timing.spent_s), 0
    while calls < LEAST_CHECKED or (calls < MOST_CHECKED and perf_counter() < ends):
        i, calls = next(order), calls + 1
        if i not in timers:
            timers[i] = callloop.timer(kernels[i])[0]
        _reset(request, [sets[i]], [kernels[i]])
        callloop.once(timers[i])(1)
        result = look(i, f"the library does not compute in every call: after timing, call {calls} by itself: ")
        if result.error is not None:
            return result
    for i in timers:
        if changed := _changed_inputs(request, buffers, i):
            return CheckResult(None, changed)
    if request.round_number == 1 and (wrong := _check_other_inputs(request, buffers, prepared)) is not None:
        return wrong
    return next(iter(checked.values()))


def _outputs_are_shared(request: Request, buffers: Buffers) -> bool:
    """Whether all sets of buffers have the same outputs, as with `cache=weights`."""
    first, others = buffers.sets[0], buffers.sets[1:]
    return bool(others) and all(others[0][name] is first[name] for name in request.op.outputs if name in first)


def _missing_calls(request: Request, buffers: Buffers, prepared: Prepared, timing: Timing) -> str | None:
    """Where outputs tell how many calls they contain: a sentence if these are not all that were timed."""
    op, sets, are_shared = request.op, buffers.sets, _outputs_are_shared(request, buffers)
    if not timing.calls or (are_shared and set(op.outputs) & set(prepared.kernels[0].private_buffers)):
        return None
    calls = timing.calls * (len(sets) if are_shared else 1)
    drift = F32_ROUNDOFF * calls
    for arrays, kernel in zip(sets, prepared.kernels, strict=True):
        kernel.store()
        found = op.calls_in(request.case, arrays) if drift <= MOST_DRIFT else None
        if found is None:
            return None
        if not abs(found / calls - 1) <= COUNT_TOLERANCE + drift:
            return (
                f"the library does not compute in every call: each of {calls} calls adds the same to the outputs, "
                f"which contain {found:.7g} times as much as one call adds"
            )
        if are_shared:
            return None
    return None


def _check_other_inputs(request: Request, buffers: Buffers, prepared: Prepared) -> CheckResult | None:
    """Move the numbers of inputs within their arrays, call once, and check: what is wrong, or None.

    This finds a library that keeps the result of an earlier call with the same array. It comes last: the inputs stay
    as they are then.
    """
    arrays, kernel = buffers.sets[0], prepared.kernels[0]
    free = [name for name in request.op.free_inputs(request.case) if name not in kernel.private_buffers]
    if not free:
        return None
    for name in free:
        operands.rotate(arrays[name])
    _reset(request, buffers.sets[:1], [kernel])
    callloop.once(prepared.first_timer)(1)
    kernel.store()
    verdict = check(request.op, request.case, arrays)
    prefix = f"the library keeps results of earlier calls: with other numbers in {' and '.join(free)}, "
    return None if verdict.passed else CheckResult(verdict, prefix + verdict.sentence)


def _clock(prepared: Prepared, timer: Any, turn: int = 1) -> SystemClock:
    return (SystemClock if _is_on_host(prepared) else DeviceClock)(timer, turn)


def _is_on_host(prepared: Prepared) -> bool:
    """Whether the processors of this machine compute, so that other programs may disturb them."""
    return prepared.device is None or prepared.device.on_host
