"""What a backend prepares: C calls with every argument ready, or a Python function, and the device that runs them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class NativeFunction(Protocol):
    """A function of a shared library as ctypes gives it."""

    def __call__(self, *arguments: Any) -> int: ...


class Call:
    """One C call with all its arguments ready, so that timing it converts nothing.

    Arguments: a whole number or `c_void_p` handle goes by value; bytes, an array of NumPy, and a ctypes number,
    structure or array go by address, as Fortran wants them. A Python float goes by value as a C float: these travel
    in registers of their own, so where they stand among the others does not matter.
    `status=True` says that the function returns 0 for success; any other value stops the timing.
    """

    def __init__(self, function: NativeFunction, *arguments: Any, status: bool = False) -> None:
        self.function = function
        self.status = status
        self.arguments = arguments
        self.words = [_word(a) for a in arguments if not isinstance(a, float)]
        self.floats = [a for a in arguments if isinstance(a, float)]

    @property
    def address(self) -> int:
        """Where the function's code starts."""
        return ctypes.cast(self.function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def _word(argument: Any) -> int:
    if isinstance(argument, int):
        return argument
    if isinstance(argument, ctypes.c_void_p):
        return argument.value or 0
    if isinstance(argument, bytes):
        return ctypes.cast(ctypes.c_char_p(argument), ctypes.c_void_p).value or 0
    if hasattr(argument, "ctypes"):
        return int(argument.ctypes.data)
    return ctypes.addressof(argument)


class Device(Protocol):
    """An accelerator: kernels that run on one are timed on its own clock."""

    def timer(self, enqueue: Callable[[int], int], calls: int) -> DeviceTimer:
        """A timer for what `enqueue(repeats)` makes the device do, `calls` calls in one repeat."""

    def each_timer(self, kernel: Kernel) -> Any:
        """A timer for the calls of a group's kernel, behind its barrier; as `callloop.EachTimer`."""

    def conditions(self) -> dict[str, Any] | None:
        """Clocks, throttling, power and temperature now; None where they cannot be read."""

    def warnings(self, seen: dict[str, Any]) -> list[tuple[str, str]]:
        """Code and sentence of what a reader should know: `seen` has the conditions `before` and `after`."""


class DeviceTimer(Protocol):
    """Repeats → nanoseconds on the device; and what the record should say of it."""

    def __call__(self, repeats: int) -> int: ...

    def facts(self, sets: int, energy_s: float | None = None) -> dict[str, Any]:
        """Which clock it was, the time as the host sees it, joules a call over a window of so many seconds.

        One repeat is a call on each of so many sets of buffers.
        """


@dataclass
class Kernel:
    """What a backend prepared: either C `calls`, made one after the other, or a Python function `run`.

    A kernel that works on buffers of its own (another format, another device) has `load`, which copies every array
    into them, outputs too, and `store`, which copies the outputs back. Neither is timed.
    """

    calls: tuple[Call, ...] = ()
    run: Callable[[], object] | None = None
    load: Callable[[], object] = lambda: None
    store: Callable[[], object] = lambda: None
    private_buffers: tuple[str, ...] = ()
    """Names of the arrays that it holds in buffers of its own."""
    keep: tuple[object, ...] = ()
    """Objects that must live as long as the kernel, beyond the arguments of its calls."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Facts for the record: implementation name, workspace bytes, seconds spent packing."""
    repeats: bool = True
    """False: a second call does not find what the first one did (scratch that it spoils), so what repeated calls leave
    says nothing, and one more after `load` is checked."""
    device: Device | None = None
    """The accelerator whose stream the calls go into; None: the CPU runs them."""
    others: tuple[Any, ...] = ()
    """Further accelerators that its calls go to, where one process drives several."""
    parts: dict[str, Kernel] = field(default_factory=dict)
    """Of a group: kernels that its work is made of, each timed alone too, for the notes of the record."""
    barrier: Kernel | None = None
    """Of a group: what brings all ranks together before each call, and puts buffers back that calls add to. Its time
    does not count."""


def in_turn(kernels: Sequence[Kernel]) -> Kernel:
    """One kernel that runs these one after the other."""
    functions = [k.run for k in kernels if k.run is not None]
    if not functions:
        calls = tuple(call for k in kernels for call in k.calls)
        return Kernel(calls=calls, keep=tuple(kernels), device=kernels[0].device)

    def run() -> None:
        for function in functions:
            function()

    return Kernel(run=run)
