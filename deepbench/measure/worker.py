"""The child process: one request comes in on standard input, messages go out on a private descriptor.

It serves one case and ends, so that each round of a case meets a fresh process: a library that prints, leaks,
crashes or hangs can spoil nothing else. Standard output and error belong to the libraries.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.kernel import Kernel
    from deepbench.core.op import Arrays, Op

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Serve the request on standard input; the argument is the descriptor for messages."""
    _die_with_parent()
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    most = LARGEST_OUTPUT_BYTES if hard == resource.RLIM_INFINITY else min(hard, LARGEST_OUTPUT_BYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # a child of a library must not keep the pipe open
    with open(descriptor, "w", encoding="utf-8") as pipe:
        request = json.loads(sys.stdin.readline())
        if request.get("cpus"):
            os.sched_setaffinity(0, request["cpus"])  # before any library counts its cores
        import_numpy_without_threads()
        say(pipe, _open(request["open"]) if "open" in request else {"record": _measure(request, pipe)})
    # Leave without the libraries' destructors: some hang or crash there, and the answer is already out.
    os._exit(0)


def import_numpy_without_threads() -> None:
    """NumPy's wheel has an OpenBLAS of its own, whose waiting threads would spin beside the library we time."""
    threads = os.environ.pop("OPENBLAS_NUM_THREADS", None)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import numpy  # noqa: F401

    if threads is None:
        del os.environ["OPENBLAS_NUM_THREADS"]
    else:
        os.environ["OPENBLAS_NUM_THREADS"] = threads


# Nothing a library writes is larger, but for one that prints for ever: it would fill the disk.
LARGEST_OUTPUT_BYTES = 2**30


def say(pipe: IO[str], message: dict[str, Any]) -> None:
    """One message to the parent, as a line of JSON."""
    pipe.write(json.dumps(message, allow_nan=False) + "\n")
    pipe.flush()


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, however it dies (Linux)."""
    parent = int(os.environ.get("DEEPBENCH_PARENT", "0"))
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:  # it died before we asked
        os._exit(1)


def _open(name: str) -> dict[str, Any]:
    """Facts about a library, or why it is not here."""
    from deepbench.core.backend import find_backend
    from deepbench.core.errors import DeepBenchError, Unavailable
    from deepbench.machine import describe

    try:
        return {"library": find_backend(name).open(), "openmp": describe.openmp_runtimes()}
    except Unavailable as error:
        return {"unavailable": {"reason": error.reason, "remedy": error.remedy}}
    except DeepBenchError as error:
        return {"unavailable": {"reason": str(error), "remedy": "name another build of the library"}}


def _measure(request: dict[str, Any], pipe: IO[str]) -> Any:
    """inputs → prepare → check → measure → check again; every way out is a record."""
    from deepbench.core.case import parse_case
    from deepbench.results.record import make_record

    case = parse_case(request["case"])
    result: Any = make_record(case, request["round"], "ok")
    started, clock = datetime.now(UTC), perf_counter()
    with recorded(result):
        _fill(result, case, request, pipe)
    result["process"] = process_facts(request, started, perf_counter() - clock)
    return result


@contextmanager
def recorded(result: dict[str, Any]) -> Iterator[None]:
    """Turn an error that was raised on purpose into the status and reason of a record."""
    from deepbench.core import errors

    try:
        yield
    except errors.Unavailable as error:
        result["status"], result["reason"] = "unavailable", str(error)
    except errors.Unsupported as error:
        result["status"], result["reason"] = "unsupported", str(error)
    except (errors.OutOfMemory, MemoryError) as error:
        result["status"], result["reason"] = "out_of_memory", str(error) or "an allocation failed"
    except errors.DeepBenchError as error:
        result["status"], result["reason"] = "crashed", str(error)


def _fill(result: dict[str, Any], case: Case, request: dict[str, Any], pipe: IO[str]) -> None:
    """Measure into `result`; raises when that is not possible, keeping what was found until then."""
    from deepbench.core import errors, units
    from deepbench.core.backend import find_backend
    from deepbench.core.kernel import in_turn
    from deepbench.core.op import find_op
    from deepbench.machine import describe, energy
    from deepbench.measure.check import fingerprint
    from deepbench.measure.clock import DeviceClock, SystemClock, measure_kernel, take_sample
    from deepbench.plan.modes import Rules
    from deepbench.results.record import make_warning

    allowed = os.sched_getaffinity(0)
    from deepbench.native import callloop

    op, backend = find_op(case.op), find_backend(case.backend)
    if case.settings["pin"] == "cores" and case.threads > len(os.sched_getaffinity(0)):
        cores = len(os.sched_getaffinity(0))
        raise errors.Unsupported(f"pin=cores wants a core for each of {case.threads} threads, there are {cores}")
    refuse_too_large(op.operand_bytes(case), case.settings, op.workspace_bytes(case))
    result["library"] = backend.open()
    free = backend.memory_free()
    if free is not None and op.operand_bytes(case) > free:
        needs = units.data_bytes(op.operand_bytes(case))
        raise errors.OutOfMemory(f"needs {needs} of operands on the GPU, free are {units.data_bytes(free)}")
    if len(runtimes := describe.openmp_runtimes()) > 1:
        text = f"{' and '.join(runtimes)} are both loaded and may fight for the cores"
        result["warnings"].append(make_warning("two_openmp_runtimes", text))
    if backend.device == "cpu" and not describe.has_multiplier(case.precision.name, describe.instructions()):
        text = f"this CPU has no instructions that multiply {case.precision.name}; the library converts"
        result["warnings"].append(make_warning("converted", text))
    say(pipe, {"phase": "inputs"})
    sets = _buffer_sets(op, case, op.operands(case), backend.cache_bytes() or describe.cache_bytes(), result)
    inputs = fingerprint(op, sets[0])
    say(pipe, {"phase": "prepare"})
    kernels = [backend.prepare(case, sets[0])]
    _refuse_own_buffers(op, case, kernels[0], len(sets))
    kernels += [backend.prepare(case, arrays) for arrays in sets[1:]]
    _put_back(op, case, sets, kernels)
    result["notes"] |= op.facts(case) | kernels[0].notes
    single, loop = callloop.timer(kernels[0])
    device = kernels[0].device
    clock = SystemClock if device is None else DeviceClock
    say(pipe, {"phase": "first call"})
    first = take_sample(clock(single), 1)
    say(pipe, {"phase": "check"})
    kernels[0].store()
    if backend.computes and not _passes(result, "before", op, case, sets[0], inputs):
        return
    say(pipe, {"phase": "measure"})
    rules = Rules(**request["rules"])
    if not backend.loads_at_once:
        rules = replace(rules, first_call_counts_s=None)
    # Where repeated calls leave what one leaves, what timing left is checked. So is a kernel so long that it will be
    # sampled once. Otherwise one more call is made.
    fresh = op.is_idempotent(case) or (first.call_s >= rules.most_s and len(sets) == 1)
    if fresh:
        _put_back(op, case, sets, kernels)
    timer = single if len(sets) == 1 else callloop.timer(in_turn(kernels))[0]
    before = device.conditions() if device is not None else None
    others = describe.OtherPrograms(allowed)
    measurement = measure_kernel(clock(timer, len(sets)), rules, first, loop)
    busy = others.cpus()
    result["measurement"] = {**measurement.as_dict(), "other_cpus": busy}
    if device is not None:
        facts = timer.facts(len(sets), rules.energy_s)  # type: ignore[attr-defined]  # a DeviceTimer, since there is a device
        seen = {"before": before, "after": device.conditions(), **facts}
        result["measurement"]["device"] = seen
        result["warnings"] += [make_warning(*w) for w in device.warnings(seen)]
    elif rules.energy_s is not None:
        say(pipe, {"phase": "energy"})
        turn_s = min(measurement.samples_s) * len(sets)
        result["measurement"]["energy"] = energy.measure_energy(timer, turn_s, len(sets), rules.energy_s)
    if not backend.computes:
        result["status"] = "unchecked"
        result["reason"] = f"{backend.title} computes nothing; this is the time of the harness"
        return
    if measurement.stopped == "first_call":  # the call that was timed has just been checked
        return
    say(pipe, {"phase": "check again"})
    calls = measurement.warm_up_calls + len(measurement.samples_s) * measurement.calls_per_sample
    overwrites = op.is_idempotent(case) and kernels[0].repeats
    left_by_timing = overwrites or (fresh and calls == 1 and device is None and rules.energy_s is None)
    for i in sorted({0, len(sets) // 2, len(sets) - 1}):
        if not left_by_timing:
            _put_back(op, case, [sets[i]], [kernels[i]])
            callloop.timer(kernels[i])[0](1)
        kernels[i].store()
        if not _passes(result, "after", op, case, sets[i], inputs):
            return


def _put_back(op: Op, case: Case, sets: list[Arrays], kernels: list[Kernel]) -> None:
    """Outputs as a kernel must find them, also where it works on buffers of its own."""
    for arrays, kernel in zip(sets, kernels, strict=True):
        op.reset(case, arrays)
        kernel.load()


def _refuse_own_buffers(op: Op, case: Case, kernel: Kernel, count: int) -> None:
    """Raise for kernels whose own buffers would make other things cold than asked for, or would not fit so often."""
    from deepbench.core import errors

    others = sorted(set(kernel.private_buffers) - set(op.weights))
    if case.settings["cache"] == "weights" and others:
        raise errors.Unsupported(
            f"the library keeps {', '.join(others)} in buffers of its own, which would be cold too"
        )
    if count > 1:
        refuse_too_large(int(kernel.notes.get("converted_bytes", 0)) * (count - 1), {})


# Buffers that take turns are together so many times the caches: what was used last time is gone.
TIMES_CACHE = 2
# Where the system does not say how large the caches are.
GUESSED_CACHE_BYTES = 64 * 2**20
# More kernels than this are not prepared; a problem so small stays partly in the caches, and the record says so.
MOST_SETS = 2048


def _buffer_sets(op: Op, case: Case, arrays: Arrays, cache_bytes: int | None, result: dict[str, Any]) -> list[Arrays]:
    """The operands of one kernel, or with `cache=cold` and `cache=weights` of many kernels that take turns.

    With `weights` only the weights are copied, and all kernels share the other arrays.
    """
    from deepbench.core import operands
    from deepbench.core.errors import Unsupported
    from deepbench.results.record import make_warning

    if case.settings["cache"] == "hot":
        return [arrays]
    rotating = [name for name in arrays if case.settings["cache"] == "cold" or name in op.weights]
    if not rotating:
        raise Unsupported(f"{case.op} {case.direction} has no weights to keep out of the caches")
    set_bytes = sum(arrays[name].nbytes for name in rotating)
    caches = cache_bytes or GUESSED_CACHE_BYTES
    wanted = max(2, -(-TIMES_CACHE * caches // set_bytes))
    count = min(wanted, MOST_SETS)
    refuse_too_large(set_bytes * (count - 1), case.settings)
    if count < wanted:
        text = f"{count} sets of buffers hold {count * set_bytes} bytes, caches hold {caches}"
        result["warnings"].append(make_warning("not_cold", text))
    result["notes"] |= {"buffer_sets": count, "buffer_bytes": count * set_bytes}
    copies = [{n: operands.copy(a) if n in rotating else a for n, a in arrays.items()} for _ in range(count - 1)]
    return [arrays, *copies]


def _passes(result: dict[str, Any], when: str, op: Op, case: Case, arrays: Arrays, inputs: dict[str, int]) -> bool:
    """Whether the inputs are untouched and the outputs right; what is wrong goes into `result`."""
    from deepbench.measure.check import check, fingerprint

    reason = None
    changed = [name for name, value in fingerprint(op, arrays).items() if value != inputs[name]]
    if changed:
        reason = f"the library changed its input {', '.join(changed)}"
    else:
        verdict = check(op, case, arrays)
        result["check"][when] = verdict.as_dict()
        if not verdict.passed:
            reason = ("after timing, " if when == "after" else "") + verdict.sentence
    if reason is not None:
        result["status"], result["reason"] = "wrong", reason
    return reason is None


# Match the operands: the interpreter, the library and its scratch, and the strips of the check.
HEADROOM_BYTES = 512 * 2**20


def refuse_too_large(operand_bytes: int, settings: dict[str, str], work_bytes: int = 0) -> None:
    """Raise `OutOfMemory` with the numbers before anything is allocated."""
    from deepbench.core import units
    from deepbench.core.errors import OutOfMemory
    from deepbench.machine import describe

    own_format = settings.get("weights") == "packed" or "layout" in settings
    copies = 2 if own_format else 1
    wanted = operand_bytes * copies + work_bytes + HEADROOM_BYTES
    available = describe.memory_available()
    if available is not None and wanted > available:
        raise OutOfMemory(
            f"needs {units.data_bytes(wanted)} ({units.data_bytes(operand_bytes)} of operands"
            f"{', twice because they may be packed,' if copies == 2 else ''} "
            f"and {units.data_bytes(wanted - operand_bytes * copies)} beside them), "
            f"available are {units.data_bytes(available)}"
        )


def process_facts(request: dict[str, Any], started: datetime, duration_s: float) -> dict[str, Any]:
    """How this process ran: threads, binding, environment, memory."""
    from deepbench.core.variables import tuning
    from deepbench.machine import describe

    return {
        "started": started.isoformat(timespec="milliseconds"),
        "duration_s": round(duration_s, 4),
        "cpus": sorted(os.sched_getaffinity(0)),
        "openmp_runtimes": describe.openmp_runtimes(),
        "environment": tuning(os.environ),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "rules": request["rules"],
    }


if __name__ == "__main__":
    main()
