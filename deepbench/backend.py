"""What a backend is: one library behind one interface.

A new library is one file in `backends/` that ends in `BACKEND = MyLibrary()`. Its methods are marked with the op,
precisions and directions they serve, and the support table is read from these marks:

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case, arrays): ...

Such a method does all that may happen before the clock starts (create, pack, choose an algorithm) and returns a
`Kernel`. It raises `Unsupported` for what it finds out too late for a mark.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from deepbench import discover
from deepbench.errors import BadInput, Unsupported

if TYPE_CHECKING:
    from deepbench.case import Case
    from deepbench.group import Group
    from deepbench.op import Arrays

Method = TypeVar("Method", bound=Callable[..., Any])


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
        self.arguments = self.keep_alive = arguments
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
    own: tuple[str, ...] = ()
    """Names of the arrays that it holds in buffers of its own."""
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
        return Kernel(calls=tuple(call for k in kernels for call in k.calls), device=kernels[0].device)

    def run() -> None:
        for function in functions:
            function()

    return Kernel(run=run)


def marks_of_every_op() -> list[Mark]:
    """For a backend that serves whatever an op allows."""
    from deepbench.op import all_ops
    from deepbench.precision import PRECISIONS

    return [
        Mark(op.name, tuple(p.name for p in PRECISIONS.values() if op.allows(direction, p)), (direction,))
        for op in all_ops().values()
        for direction in op.directions
        if not op.group
    ]


@dataclass(frozen=True)
class Mark:
    """What one method of a backend serves."""

    op: str
    precisions: tuple[str, ...]
    directions: tuple[str, ...]


def kernel(
    op: str, precisions: tuple[str, ...], directions: tuple[str, ...] = ("forward",)
) -> Callable[[Method], Method]:
    """Mark a method as serving an op in these precisions and directions."""

    def mark(method: Method) -> Method:
        method.mark = Mark(op, precisions, directions)  # type: ignore[attr-defined]
        return method

    return mark


class Backend:
    """One library. Subclass, mark methods with `kernel`, and end the file with `BACKEND = MyLibrary()`."""

    name: ClassVar[str]
    """One word, as in a case's text."""
    title: ClassVar[str]
    """The library as its makers spell it."""
    device: ClassVar[str] = "cpu"
    """`cpu`, `cuda` or `hip`."""
    default: bool = True
    """Part of a run on its device that names no backend."""
    framework: ClassVar[bool] = False
    """True for what calls libraries of others: its times say what it adds to them."""
    loads_at_once: ClassVar[bool] = False
    """Whether a first call loads next to nothing (below 0.1 s), so that a long one is the kernel's own time."""
    computes: ClassVar[bool] = True
    """False for a backend whose outputs mean nothing: its records are `unchecked`."""

    def open(self) -> dict[str, Any]:
        """Load the library; facts about it (`name`, `version`, `path` …), or raise `Unavailable`.

        Called once in a fresh process, before any kernel is prepared. Thread counts are in the environment by
        then. Import and load here, never at the top of the file.
        """
        raise NotImplementedError

    def cache_bytes(self) -> int | None:
        """Bytes of the caches that `cache=cold` must go beyond; None where unknown. Asked after `open`."""
        return None

    def memory_free(self) -> int | None:
        """Free bytes on its device, where that has memory of its own. Asked after `open`."""
        return None

    def marks(self) -> list[Mark]:
        """What the methods say they serve."""
        methods = (getattr(type(self), name) for name in dir(type(self)))
        return [m.mark for m in methods if hasattr(m, "mark")]

    def supports(self, op: str, precision: str, direction: str) -> bool:
        """Whether some method is marked for this."""
        return any(m.op == op and precision in m.precisions and direction in m.directions for m in self.marks())

    def prepare(self, case: Case, arrays: Arrays) -> Kernel:
        """Call the method marked for this case."""
        for name in dir(type(self)):
            mark = getattr(getattr(type(self), name), "mark", None)
            if (
                mark
                and mark.op == case.op
                and case.precision.name in mark.precisions
                and case.direction in mark.directions
            ):
                prepared: Kernel = getattr(self, name)(case, arrays)
                return prepared
        raise Unsupported(f"{self.title} has no {case.op} {case.direction} in {case.precision.name}")


class GroupBackend(Backend):
    """A library through which ranks talk, one process a rank (`collective.py`). Kernels have `barrier`."""

    def processes(self, case: Case) -> int:
        """How many processes the ranks of a case have together: one each, unless a library drives several by one."""
        if case.settings.get("processes") == "one":
            raise Unsupported(f"{self.title} has a process for each rank; choose processes=each")
        return int(case.problem.ranks)

    def prepare_ranks(self, case: Case, parts: dict[int, Arrays]) -> Kernel:
        """The kernel of all ranks that this process serves, by their arrays."""
        (arrays,) = parts.values()
        return self.prepare(case, arrays)

    def launcher(self, ranks: int, hosts: Sequence[str]) -> list[str] | None:
        """The words that start so many ranks of a program, such as `mpiexec -n 4`, on these hosts or on this one.

        None: each is started alone, or on other hosts by an MPI.
        """
        return None

    def environment(self, case: Case) -> dict[str, str]:
        """Variables that ranks need before they load anything; `Unsupported` for a way that this library lacks."""
        return {}

    def settle(self, group: Group) -> None:
        """What a rank must do before it loads the library, knowing which rank of its host it is."""

    def join(self, group: Group, case: Case) -> None:
        """Make the communicator of all ranks of this case; asked after `open`, by every rank."""
        raise NotImplementedError

    def group_facts(self) -> dict[str, Any]:
        """What a reader should know of how ranks talk here, such as the interconnect."""
        return {}


DEVICES = ("cpu", "cuda", "hip")


@cache
def all_backends() -> dict[str, Backend]:
    """Every backend by its name, whether its library is here or not."""
    return discover.named("backends", "BACKEND")


def find(name: str) -> Backend:
    """The backend of that name; `BadInput` for any other word."""
    try:
        return all_backends()[name]
    except KeyError:
        raise BadInput(f"unknown backend {name!r}; there are {', '.join(all_backends())}") from None
