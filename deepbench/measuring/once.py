"""One call of one case in this process, for tools that watch a process: simulators, tracers, counters.

There is no worker, no warm-up and no clock. Numbers follow from their places instead of a generator of random numbers,
so that little is executed besides the call. Two marks enclose the call:

- `deepbench_region_begin` and `deepbench_region_end`, two empty functions of the compiled loop, for tools that find
  functions by their names (`valgrind --tool=callgrind --toggle-collect=deepbench_time_calls`, `perf probe`, debuggers);
- on NVIDIA's GPUs, `cuProfilerStart` and `cuProfilerStop` of the driver (`ncu --profile-from-start off`, NVBit);
- `region_begin` and `region_end` of a library that `DEEPBENCH_REGION_PATH` names, for everything else, such as the
  instructions of gem5.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from deepbench.core import devices
from deepbench.core.case import Case
from deepbench.core.errors import BadInput, DeepBenchError
from deepbench.measuring.launch import Request, worker_environment
from deepbench.measuring.worker import import_numpy
from deepbench.native import callloop
from deepbench.plan.modes import DEFAULT

REGION_PATH = "DEEPBENCH_REGION_PATH"
"""A library with the functions `region_begin` and `region_end`, which are called without arguments."""


@dataclass(frozen=True)
class OneCall:
    """What one call gave."""

    case: Case
    library: str
    """Name and version."""
    loop: str
    """`native`: the call was made by compiled code; `python`: by this interpreter."""
    error: str | None
    """Why the result is wrong; None: it is right, or was not checked."""
    checked: str | None
    """How it was checked; None: it was not."""


def run_once(case: Case, checked: bool = True) -> OneCall:
    """Make one call and compare its result with float64; `DeepBenchError` where there is none.

    The environment and the numbers of this process are then those of the call: it is good for nothing else.
    """
    if case.operation.is_group:
        raise BadInput(f"--once makes one call in one process, and {case.op} needs several; use a launcher")
    os.environ.update(worker_environment(case.threads, case.settings["pin"], [], os.environ))
    import_numpy()

    from deepbench.core import operands
    from deepbench.measuring import steps

    operands.use_plain_numbers()
    marks = _marks(case.device)
    request = Request(case, 1, DEFAULT.rules, float("inf"))
    library = steps.open_library(request)
    steps.check_cores(request)
    steps.check_memory(request)
    buffers = steps.make_inputs(request)
    prepared = steps.prepare(request, buffers)
    call = callloop.once(prepared.first_timer)
    with _region(marks):
        call(1)
    result = steps.check_result(request, buffers, prepared) if checked and request.backend.computes else None
    facts = library.facts
    return OneCall(
        case,
        " ".join(filter(None, (facts["name"], facts["version"]))),
        prepared.loop,
        result.error if result else None,
        result.verdict.how if result and result.verdict else None,
    )


Marks = list[tuple[Callable[[], object], Callable[[], object]]]


def _marks(device: str) -> Marks:
    """Pairs of functions: what begins the region, and what ends it. A driver is loaded for its own device only."""
    marks: Marks = []
    if path := os.environ.get(REGION_PATH):
        try:
            library = ctypes.CDLL(path)
            marks.append((library.region_begin, library.region_end))
        except (OSError, AttributeError) as error:
            raise DeepBenchError(f"{REGION_PATH}: {error}; name a library with region_begin and region_end") from None
    if devices.base(device) == "cuda":
        with suppress(OSError, AttributeError):  # the library says what is missing
            driver = ctypes.CDLL("libcuda.so.1")
            marks.append((driver.cuProfilerStart, driver.cuProfilerStop))
    loop = callloop.native_library()
    if loop is not None and hasattr(loop, "deepbench_region_begin"):  # one that was built from older sources has none
        marks.append((loop.deepbench_region_begin, loop.deepbench_region_end))
    return marks


@contextmanager
def _region(marks: Marks) -> Iterator[None]:
    for begin, _ in marks:
        begin()
    yield
    for _, end in reversed(marks):
        end()
