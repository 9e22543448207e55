"""Times prepared calls with the compiled loop of `callloop.c`, or in Python if it was not built.

The compiled loop adds some nanoseconds per call, Python's up to a microsecond. Every record says which one was used.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from itertools import repeat
from time import perf_counter_ns
from typing import Any

from deepbench.core.errors import LibraryError
from deepbench.core.kernel import Call, Kernel
from deepbench.native.library import compiled

# Set to any text, this variable disables the compiled loop: to see what it saves, and for tests.
NO_NATIVE = "DEEPBENCH_NO_NATIVE_LOOP"

# Runs the kernel a number of times; returns the nanoseconds in total.
Timer = Callable[[int], int]

# A function, its arguments, and whether it returns a status.
Step = tuple[Callable[..., object], tuple[object, ...], bool]


class _NativeCall(ctypes.Structure):
    """struct call of `callloop.c`."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("words", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("status", ctypes.c_int64),
        ("floats", ctypes.c_void_p),
    )


# Limits of `callloop.c` for calls with floats.
MOST_FLOATS = 2


def timer(kernel: Kernel) -> tuple[Timer, str]:
    """A timer for this kernel on its device's clock, and the kind of the loop: `native` or `python`."""
    loop, kind = host_timer(kernel)
    if kernel.device is not None:
        return kernel.device.timer(loop, max(1, len(kernel.calls))), kind
    return loop, kind


def once(timer: Any) -> Timer:
    """A timer of a single call, for a timer that may make further calls in order to time some."""
    single: Timer = getattr(timer, "once", timer)
    return single


def host_timer(kernel: Kernel) -> tuple[Timer, str]:
    """A timer on the host's clock, and the kind of the loop."""
    library = native_library() if kernel.run is None else None
    loop = _python_timer(_steps(kernel)) if library is None else _native_timer(library, kernel.calls)
    loop.kernel = kernel  # type: ignore[attr-defined]  # keeps alive what the loop has addresses of
    return loop, "python" if library is None else "native"


class EachTimer:
    """Times every call of a kernel separately, after its barrier: number of calls → nanoseconds of each."""

    def __init__(self, kernel: Kernel) -> None:
        barrier = kernel.barrier or Kernel()
        self._kernel = kernel  # keeps alive what the loop has addresses of
        library = native_library()
        self._native = library is not None and kernel.run is None and barrier.run is None
        self.kind = "native" if self._native else "python"
        self._before, self._after = _steps(barrier), _steps(kernel)
        if self._native:
            assert library is not None, "_native implies it"
            calls = [*barrier.calls, *kernel.calls]
            self._function, self._calls = library.deepbench_time_each, calls
            self._table, self._keep = _table(library, calls)
            self._counts = len(barrier.calls), len(calls)

    def __call__(self, repeats: int, together: bool = True) -> list[int]:
        """With `together=False` there is no barrier: each rank starts on its own. Always in Python."""
        if not (self._native and together):
            return [self._one(together) for _ in range(repeats)]
        times, failed = (ctypes.c_int64 * repeats)(), ctypes.c_int64(-1)
        counts = map(ctypes.c_int64, (*self._counts, repeats))
        status: int = self._function(self._table, *counts, times, ctypes.byref(failed))
        if status:
            raise _failure(self._calls[failed.value].function, -1 - status)
        return list(times)

    def _one(self, together: bool) -> int:
        if together:
            _run(self._before)
        start = perf_counter_ns()
        _run(self._after)
        return perf_counter_ns() - start


def lacks_compiler(kernel: Kernel) -> bool:
    """Whether this kernel is called from Python only because the loop is not compiled."""
    kernels = [kernel, kernel.barrier] if kernel.barrier is not None else [kernel]
    return native_library() is None and all(k.run is None for k in kernels)


def each_timer(kernel: Kernel) -> Any:
    """An `EachTimer`, or its counterpart on the kernel's device."""
    return EachTimer(kernel) if kernel.device is None else kernel.device.each_timer(kernel)


def _steps(kernel: Kernel) -> list[Step]:
    if kernel.run is not None:
        return [(kernel.run, (), False)]
    return [(c.function, python_arguments(c), c.status) for c in kernel.calls]


def _run(steps: Sequence[Step]) -> None:
    for function, arguments, status in steps:
        result = function(*arguments)
        if status and result:
            raise _failure(function, result)


@cache
def native_library() -> ctypes.CDLL | None:
    """The compiled loop; None if there was no compiler at installation."""
    library = None if os.environ.get(NO_NATIVE) else compiled("callloop")
    if library is not None:
        library.deepbench_most_words.restype = library.deepbench_most_words_with_floats.restype = ctypes.c_int64
        library.deepbench_time_calls.restype = library.deepbench_time_each.restype = ctypes.c_int64
        library.deepbench_additions.restype = ctypes.c_int64
        library.deepbench_additions.argtypes = [ctypes.c_int64]
    return library


def python_arguments(call: Call) -> tuple[object, ...]:
    """The arguments of a call, in the form that ctypes passes fastest."""
    words = iter(call.words)
    if getattr(call.function, "argtypes", None) is not None:  # then ctypes converts numbers
        return tuple(a if isinstance(a, float) else next(words) for a in call.arguments)
    return tuple(ctypes.c_float(a) if isinstance(a, float) else word_argument(next(words)) for a in call.arguments)


def word_argument(word: int) -> object:
    """A machine word as ctypes passes it fastest: 13 of these cost 0.45 µs per call, 13 `c_void_p` 0.82 µs.

    A reference to the byte at that address passes the word itself; nothing is read from the address.
    """
    return ctypes.byref(ctypes.c_char.from_address(word % 2**64))


def _table(library: ctypes.CDLL, calls: Sequence[Call]) -> tuple[ctypes.Array[_NativeCall], list[object]]:
    """The calls in the form of `callloop.c`, and the arrays that the table points to."""
    most_words, most_with_floats = library.deepbench_most_words(), library.deepbench_most_words_with_floats()
    table = (_NativeCall * len(calls))()
    keep: list[object] = []
    for row, call in zip(table, calls, strict=True):
        assert len(call.words) <= most_words, f"raise DEEPBENCH_MOST_WORDS to {len(call.words)}"
        words = (ctypes.c_int64 * most_words)(*(w - 2**64 if w >= 2**63 else w for w in call.words))
        keep.append(words)
        row.function, row.words = call.address, ctypes.addressof(words)
        row.count, row.status = len(call.words), call.status
        if call.floats:
            assert len(call.floats) <= MOST_FLOATS, f"callloop.c passes {MOST_FLOATS} floats, not {len(call.floats)}"
            assert len(call.words) <= most_with_floats, f"raise DEEPBENCH_MOST_WORDS_WITH_FLOATS to {len(call.words)}"
            floats = (ctypes.c_float * MOST_FLOATS)(*call.floats)
            keep.append(floats)
            row.floats = ctypes.addressof(floats)
    return table, keep


def _native_timer(library: ctypes.CDLL, calls: Sequence[Call]) -> Timer:
    table, keep = _table(library, calls)
    failed = ctypes.c_int64(-1)
    function = library.deepbench_time_calls
    count = ctypes.c_int64(len(calls))

    def run(repeats: int) -> int:
        elapsed: int = function(table, count, ctypes.c_int64(repeats), ctypes.byref(failed))
        if elapsed < 0:
            raise _failure(calls[failed.value].function, -1 - elapsed)
        return elapsed

    run.keep = keep  # type: ignore[attr-defined]  # the table points into these arrays
    return run


def _python_timer(steps: Sequence[Step]) -> Timer:
    if len(steps) == 1:  # without the inner loop, which would add to the time
        function, arguments, status = steps[0]

        def run_one(repeats: int) -> int:
            result: object = 0
            start = perf_counter_ns()
            if status:
                for _ in repeat(None, repeats):
                    result = function(*arguments) or result
            else:
                for _ in repeat(None, repeats):
                    function(*arguments)
            elapsed = perf_counter_ns() - start
            if status and result:
                raise _failure(function, result)
            return elapsed

        return run_one

    def run_all(repeats: int) -> int:
        start = perf_counter_ns()
        for _ in repeat(None, repeats):
            for function, arguments, status in steps:
                result = function(*arguments)
                if status and result:
                    raise _failure(function, result)
        return perf_counter_ns() - start

    return run_all


def _failure(function: object, status: object) -> LibraryError:
    name = getattr(function, "__name__", str(function))
    return LibraryError("the library", name, int(str(status)), "see its header for the meaning")
