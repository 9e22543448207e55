"""What a backend prepares: C calls with all arguments, or a Python function, and the device that runs them."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Protocol, runtime_checkable


class NativeFunction(Protocol):
    """A function of a shared library, from ctypes."""

    __name__: str

    def __call__(self, *arguments: Any) -> int: ...


class Call:
    """One C call with all its arguments converted, so that timing it converts nothing.

    By value: integers and `c_void_p` handles, as machine words; a Python float, as a C float (floats travel in
    registers of their own, so their position among the other arguments does not matter). By address, as Fortran
    expects: bytes, NumPy arrays, and ctypes numbers, structures and arrays.
    `status=True` means that the function returns 0 for success; any other value stops the timing.
    """

    def __init__(self, function: NativeFunction, *arguments: Any, status: bool = False) -> None:
        self.function = function
        self.status = status
        self.arguments = arguments
        self.words = [_word(a) for a in arguments if not isinstance(a, float)]
        self.floats = [a for a in arguments if isinstance(a, float)]

    @property
    def address(self) -> int:
        """Address of the function's code."""
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


class Queue(ABC):
    """The calls of a kernel on a device that works while the host goes on; what the clock for such devices needs.

    `native/slope.py` times it. Subclasses implement `enqueue`, `wait` and `fetch`; the rest proves more.
    """

    on_host: bool = False
    """Whether the device is made of the processors of this machine, which other programs use too."""
    now: Callable[[], int] = staticmethod(perf_counter_ns)
    """Nanoseconds on the clock of the host. Tests replace it."""

    @abstractmethod
    def enqueue(self, calls: int) -> object:
        """Give the device this many calls, to be made one after the other; return before they are done, if possible."""

    @abstractmethod
    def wait(self) -> object:
        """Return when all of them are done."""

    @abstractmethod
    def fetch(self) -> object:
        """Copy some of the result of the last call to the host, which must wait for that call by itself.

        It shows whether `wait` waits.
        """

    def elapsed(self, program: Callable[[], object]) -> int:
        """Nanoseconds of what a function gives the device; by the clock of the host unless the device has a better one.

        It returns when all is done.
        """
        start = self.now()
        program()
        self.wait()
        return self.now() - start

    def rest(self) -> object:  # noqa: B027  # most leave nothing
        """Give back what calls have left. Called while nothing is timed."""

    def empty(self) -> Queue | None:
        """Calls of a program that computes next to nothing: what a call costs by itself. None if there is none."""
        return None

    def count(self, calls: int) -> int | None:
        """How many of so many calls the device makes, by a program that adds 1 in each; None if there is none."""
        return None

    def loop(self, turns: int) -> Callable[[], object] | None:
        """A function that gives the device one program, which makes the call this many times; None if there is none."""
        return None

    def keeps_loop(self) -> bool | None:
        """Whether the compiled program still computes in every turn; None if the interface does not tell."""
        return None


class Device(Protocol):
    """An accelerator. Its kernels are timed on its own clock."""

    on_host: bool
    """Whether it is made of the processors of this machine, which other programs use too."""

    def in_turn(self, others: Sequence[Device]) -> Device:
        """The device of calls of this one's kernel and then of those of others, again and again."""

    def timer(self, enqueue: Callable[[int], int], calls: int) -> DeviceTimer:
        """A timer for `enqueue(repeats)`, which makes `calls` calls per repeat."""

    def each_timer(self, kernel: Kernel) -> Any:
        """A timer for the calls of a group's kernel, after its barrier; like `callloop.EachTimer`."""

    def conditions(self) -> dict[str, Any] | None:
        """Clocks, throttling, power and temperature now; None if they cannot be read."""

    def warnings(self, seen: dict[str, Any]) -> list[tuple[str, str]]:
        """Code and sentence of each warning for a reader; `seen` has the conditions `before` and `after`."""


class DeviceTimer(Protocol):
    """Repeats → nanoseconds on the device."""

    def __call__(self, repeats: int) -> int: ...

    def facts(self, sets: int, energy_s: float | None = None) -> dict[str, Any]:
        """For the record: the clock, the time that the host sees, and joules per call over a window of `energy_s`.

        One repeat is a call on each of so many `sets` of buffers.
        """


@runtime_checkable
class EventDeviceTimer(Protocol):
    """The timer of a device with events and sensors: it chooses between clocks, and can load the device for seconds."""

    def settle(self) -> None:
        """The warm-up is over: how samples are timed must not change any more."""

    def facts(self, sets: int, energy_s: float | None = None, sustained_s: float | None = None) -> dict[str, Any]:
        """As of `DeviceTimer`, and clock and power over time under a load of `sustained_s`."""


@dataclass
class Kernel:
    """What a backend prepared: C `calls` that run one after the other, or a Python function `run`.

    A kernel with private buffers (in another format, or on another device) has `load`, which copies all arrays into
    them, outputs included, and `store`, which copies the outputs back. Neither is timed.
    """

    calls: tuple[Call, ...] = ()
    run: Callable[[], object] | None = None
    load: Callable[[], object] = lambda: None
    store: Callable[[], object] = lambda: None
    private_buffers: tuple[str, ...] = ()
    """Names of the arrays that the kernel holds in private buffers."""
    keep: tuple[object, ...] = ()
    """Objects that must live as long as the kernel, besides the arguments of its calls."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Facts for the record: name of the implementation, workspace bytes, seconds of packing."""
    repeats: bool = True
    """False if a call destroys what the next one needs: then the check runs the kernel once more, after `load`."""
    device: Device | None = None
    """The accelerator that runs the calls; None: the CPU."""
    others: tuple[Any, ...] = ()
    """Further accelerators, if one process drives several."""
    parts: dict[str, Kernel] = field(default_factory=dict)
    """In a group: the parts of the work, each also timed separately, for the notes of the record."""
    barrier: Kernel | None = None
    """In a group: runs before each call, untimed. Synchronizes all ranks, and restores buffers that calls add to."""


def in_turn(kernels: Sequence[Kernel]) -> Kernel:
    """One kernel that runs these one after the other."""
    device = kernels[0].device
    if device is not None:
        device = device.in_turn([k.device for k in kernels[1:] if k.device is not None])
    functions = [k.run for k in kernels if k.run is not None]
    if not functions:
        calls = tuple(call for k in kernels for call in k.calls)
        return Kernel(calls=calls, keep=tuple(kernels), device=device)

    def run() -> None:
        for function in functions:
            function()

    return Kernel(run=run, device=device)
