"""What a backend is: one library behind one interface.

A new library is one file in `backends/` that ends in `BACKEND = MyLibrary()`. Its methods are marked with the op,
precisions and directions they serve, and the support table is read from these marks:

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case, arrays): ...

Such a method does all that may happen before the clock starts (create, pack, choose an algorithm) and returns a
`Kernel`. It raises `Unsupported` for what it finds out too late for a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from deepbench.core import registry
from deepbench.core.errors import Unsupported

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.collective import Group
    from deepbench.core.kernel import Kernel
    from deepbench.core.op import Arrays

Method = TypeVar("Method", bound=Callable[..., Any])


def marks_of_every_op() -> list[Mark]:
    """For a backend that serves whatever an op allows."""
    from deepbench.core.op import all_ops
    from deepbench.core.precision import PRECISIONS

    return [
        Mark(op.name, tuple(p.name for p in PRECISIONS.values() if op.allows(direction, p)), (direction,))
        for op in all_ops().values()
        for direction in op.directions
        if not op.is_group
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
    is_group: ClassVar[bool] = False
    """Whether it carries messages between ranks, see `GroupBackend`."""
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

    def threads_in_use(self) -> int | None:
        """How many threads the library says it uses; None where it does not report it. Asked after `open`."""
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

    is_group = True

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


def all_backends() -> dict[str, Backend]:
    """Every backend by its name, whether its library is here or not."""
    return registry.registered("backends")


def find_backend(name: str) -> Backend:
    """The backend with this name; `BadInput` for any other word."""
    backend: Backend = registry.backend(name)
    return backend
