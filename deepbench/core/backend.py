"""A backend: one library behind one interface.

A new library is one file in `backends/` that ends in `BACKEND = MyLibrary()`. Its methods are marked with the op,
precisions and directions that they serve; the table of supported work is read from these marks:

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case, arrays): ...

Such a method does everything that happens before timing starts (create, pack, choose an algorithm) and returns a
`Kernel`. It raises `Unsupported` for limits that a mark cannot express.
"""

from __future__ import annotations

import platform
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from deepbench.core import devices, registry
from deepbench.core.errors import Unsupported

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.collective import RankGroup
    from deepbench.core.kernel import Kernel
    from deepbench.core.op import Arrays

Method = TypeVar("Method", bound=Callable[..., Any])


@cache
def marks_of_every_op() -> list[Mark]:
    """The marks of a backend that supports everything that ops allow, except groups."""
    from deepbench.core.op import all_ops
    from deepbench.core.precision import PRECISIONS

    return [
        Mark(op.name, tuple(p.name for p in PRECISIONS.values() if op.allows(direction, p)), (direction,))
        for op in all_ops().values()
        for direction in op.directions
        if not op.is_group
    ]


def this_platform() -> str:
    """System and processor, as Python's wheels name them: `linux-x86_64`, `linux-aarch64`, `darwin-arm64`."""
    return f"{sys.platform}-{platform.machine()}"


@dataclass(frozen=True)
class Mark:
    """What one method of a backend serves."""

    op: str
    precisions: tuple[str, ...]
    directions: tuple[str, ...]
    rare_settings: tuple[str, ...] = ()
    """Those of the operation's `rare_settings` whose values the method knows."""

    def serves(self, op: str, precision: str, direction: str) -> bool:
        """Whether this is part of it."""
        return op == self.op and precision in self.precisions and direction in self.directions


def kernel(
    op: str,
    precisions: tuple[str, ...],
    directions: tuple[str, ...] = ("forward",),
    rare_settings: tuple[str, ...] = (),
) -> Callable[[Method], Method]:
    """Mark a method as serving an op in these precisions and directions; `ValueError` for an unknown precision.

    A method may have several marks.
    """
    from deepbench.core.precision import PRECISIONS

    if not set(precisions) <= PRECISIONS.keys():
        raise ValueError(f"@kernel({op!r}): expected a tuple of {', '.join(PRECISIONS)}, found {precisions!r}")

    def mark(method: Method) -> Method:
        method.marks = (Mark(op, precisions, directions, rare_settings), *getattr(method, "marks", ()))  # type: ignore[attr-defined]
        return method

    return mark


@cache
def _marked_methods(backend: type[Backend]) -> list[tuple[str, Mark]]:
    return [(name, mark) for name in dir(backend) for mark in getattr(getattr(backend, name), "marks", ())]


class Backend(ABC):
    """One library. Subclass it, mark methods with `kernel`, and end the file with `BACKEND = MyLibrary()`."""

    name: ClassVar[str]
    """One word, as in the text of a case."""
    title: ClassVar[str]
    """The library's name as its makers spell it."""
    device: ClassVar[str] = "cpu"
    """Its usual device (`core/devices.py`): the one where none is named."""
    default: bool = True
    """Whether runs that name no backend use this one."""
    platforms: ClassVar[tuple[str, ...]] = ()
    """Where the library exists, such as `linux-x86_64` or `darwin-arm64`; empty: everywhere. Others never use it unless
    it is named."""
    is_group: ClassVar[bool] = False
    """Whether several processes work together on a case; then it derives from `GroupBackend`."""
    framework: ClassVar[bool] = False
    """Whether it calls libraries of others: its times show what it adds to them."""
    loads_at_once: ClassVar[bool] = False
    """Whether a first call loads almost nothing (less than 0.1 s), so that a long one is the kernel's own time."""
    computes: ClassVar[bool] = True
    """False if its outputs mean nothing: its records are `unchecked`."""
    earlier_choice: str | None = None
    """What an earlier search for the fastest algorithm chose for the case; set before `prepare`. None: search now."""

    # Environment variables of this library alone. Those of shared runtimes such as OpenMP are in `core/variables.py`.
    path_variable: str | None = None
    """Names the file to load, or a folder that has it, such as `DEEPBENCH_MKL_PATH`."""
    package: ClassVar[str | None] = None
    """The package that contains the library, such as `mkl`, whose versions are those of the library."""
    thread_variables: ClassVar[tuple[str, ...]] = ()
    """Set to the number of threads of the case, such as `MKL_NUM_THREADS`."""
    override_variables: ClassVar[tuple[str, ...]] = ()
    """Removed, because they would override the threads of the case."""
    fixed_variables: ClassVar[Mapping[str, str]] = {}
    """Set to these values, such as `MKL_DYNAMIC` to `FALSE`."""
    tuning_variables: ClassVar[tuple[str, ...]] = ()
    """They may change the speed: they are recorded, and passed on to other hosts.

    A name that ends in `*` stands for all that begin so: only where nothing but this library uses that beginning.
    """

    def defect(self) -> str | None:
        """Why this backend cannot be used: the first attribute that is missing or wrong."""
        types: dict[str, type | tuple[type, ...]] = {
            **{"title": str, "path_variable": (str, NoneType)},
            **dict.fromkeys(("is_group", "framework", "loads_at_once", "computes"), bool),
            **dict.fromkeys(("thread_variables", "override_variables", "tuning_variables", "platforms"), tuple),
        }
        if wrong := registry.wrong_attribute(self, types):
            return wrong
        if not devices.is_name(self.device):
            return f"device must be a name such as cpu or cuda, found {self.device!r:.60}"
        fixed = self.fixed_variables
        if not isinstance(fixed, Mapping) or not all(isinstance(word, str) for item in fixed.items() for word in item):
            return f"fixed_variables must map texts to texts, found {fixed!r:.60}"
        if self.is_group != isinstance(self, GroupBackend):
            return "is_group is for classes that derive from GroupBackend, and only for these"
        return None

    @abstractmethod
    def open(self) -> dict[str, Any]:
        """Load the library; return facts about it (`name`, `version`, `path` …), or raise `Unavailable`.

        Called once in a new process, before any kernel is prepared and after the variables above are set. Import and
        load here, never at the top of the file.
        """

    def reaches(self, device: str) -> bool:
        """Whether cases may run on this device."""
        return device == self.device

    def select(self, device: str) -> None:  # noqa: B027  # most have one device
        """Called before `open` with the device of the case."""

    def is_default_on(self, device: str) -> bool:
        """Whether runs on this device that name no backend use this one."""
        return self.default and device == self.device and self.exists_here

    @property
    def exists_here(self) -> bool:
        """Whether the library exists for this system and processor."""
        return not self.platforms or this_platform() in self.platforms

    def threads_in_use(self) -> int | None:
        """The number of threads that the library says it uses; None if it does not say. Called after `open`."""
        return None

    def cache_bytes(self) -> int | None:
        """Bytes of the caches that matter for `cache=cold`; None if unknown. Called after `open`."""
        return None

    def memory_free(self) -> int | None:
        """Free bytes of its device's own memory, if it has any. Called after `open`."""
        return None

    def marks(self) -> list[Mark]:
        """What the marked methods serve."""
        return [mark for _, mark in _marked_methods(type(self))]

    def supports(self, op: str, precision: str, direction: str) -> bool:
        """Whether a method is marked for this."""
        return any(mark.serves(op, precision, direction) for mark in self.marks())

    def refuse_unmarked(self, case: Case) -> None:
        """`Unsupported` for an operation, direction, precision or rare setting without a mark."""
        rare = {name for name in case.operation.rare_settings if name in dict(case.overrides)}
        marks = [m for m in self.marks() if m.serves(case.op, case.precision.name, case.direction)]
        if not any(rare <= {*mark.rare_settings} for mark in marks):
            words = [f"{name}={case.settings[name]}" for name in sorted(rare)] if marks else []
            have = " ".join([case.op, case.direction, *words])
            raise Unsupported(f"{self.title} has no {have} in {case.precision.name}")

    def prepare(self, case: Case, arrays: Arrays) -> Kernel:
        """Call the method that is marked for this case."""
        self.refuse_unmarked(case)
        rare = {name for name in case.operation.rare_settings if name in dict(case.overrides)}
        marked = [m for m in _marked_methods(type(self)) if m[1].serves(case.op, case.precision.name, case.direction)]
        for name, mark in marked:
            if rare <= {*mark.rare_settings}:
                kernel: Kernel | None = getattr(self, name)(case, arrays)
                if kernel is None:
                    raise TypeError(f"{name}() of {self.title} returned None, not a Kernel")
                return kernel
        raise TypeError(f"{self.title} has no method with the marks that it states")


class GroupBackend(Backend):
    """A library through which ranks communicate (`core/collective.py`). Its kernels have a `barrier`."""

    is_group = True
    algorithms: ClassVar[Mapping[str, Mapping[str, dict[str, str]]]] = {}
    """Op → value of the setting `algorithm` → the environment variables that select it."""
    overlaps: ClassVar[bool] = False
    """Whether it supports `overlap=gemm`."""

    def processes(self, case: Case) -> int:
        """How many processes run the ranks of a case: one per rank, unless the library can drive several."""
        if case.settings.get("processes") == "one":
            raise Unsupported(f"{self.title} has one process per rank; choose processes=each")
        return int(case.problem.ranks)

    def prepare_ranks(self, case: Case, parts: dict[int, Arrays]) -> Kernel:
        """The kernel of all ranks of this process; `parts` has the arrays of each rank."""
        (arrays,) = parts.values()
        return self.prepare(case, arrays)

    def launcher(self, ranks: int, hosts: Sequence[str]) -> list[str] | None:
        """The command, such as `mpiexec -n 4`, that starts ranks on these hosts, or on this one if there are none.

        None if ranks need no launcher of the library's own.
        """
        return None

    def environment(self, case: Case) -> dict[str, str]:
        """Variables that ranks need before they load anything; `Unsupported` for settings that the library lacks."""
        algorithm, known = case.settings["algorithm"], self.algorithms.get(case.op, {})
        if case.settings.get("overlap", "none") != "none" and not self.overlaps:
            raise Unsupported(f"overlap is not implemented for {self.title}; choose overlap=none")
        if algorithm == "default":
            return {}
        if algorithm not in known:
            choices = " or ".join(["default", *known])
            raise Unsupported(f"{self.title} has no algorithm {algorithm} for {case.op}; choose algorithm={choices}")
        return known[algorithm]

    def settle(self, group: RankGroup) -> None:
        """Called in every rank before `open`; `group` knows the ranks of this host."""

    @abstractmethod
    def join(self, group: RankGroup, case: Case) -> None:
        """Create the communicator of all ranks. Called in every rank after `open`."""

    def group_facts(self) -> dict[str, Any]:
        """Facts about the group for the record, such as its GPUs."""
        return {}


@dataclass(frozen=True)
class FoundDevice:
    """A device that a backend can use here."""

    device: str
    """Its name in cases, such as `cuda` or `pjrt:tpu`."""
    title: str
    """What the device or its driver calls it."""
    through: str
    """What reaches it: a plug-in or provider, with its version."""
    path: str | None = None
    """The file of that."""


class DeviceBackend(Backend):
    """A backend that reaches whatever devices an interface has: those of plug-ins, providers or drivers.

    Its kernels have a `queue` (`core/kernel.py`) where the device works while the host goes on.
    """

    reaches_shared: ClassVar[tuple[str, ...]] = ("cpu", "cuda", "hip", "xpu")
    """Which of the devices that other libraries use too it may reach."""
    chosen: str | None = None
    """The device to open; None: its usual one."""

    def reaches(self, device: str) -> bool:
        return devices.base(device) in self.reaches_shared or device.startswith(f"{self.name}:")

    def select(self, device: str) -> None:
        self.chosen = device

    def is_default_on(self, device: str) -> bool:
        return super().is_default_on(device) or device.startswith(f"{self.name}:")

    @abstractmethod
    def candidates(self) -> list[str]:
        """What may reach devices here, such as files of plug-ins. Nothing is loaded."""

    @abstractmethod
    def probe(self, candidate: str) -> list[FoundDevice]:
        """The devices that one of them reaches; `Unavailable` says what is missing.

        Called in a process of its own with a limit of time: what is loaded may abort, hang or ask the network.
        """


def all_backends() -> dict[str, Backend]:
    """Every backend by name, whether or not its library is installed."""
    return registry.registered("backends")


def known_backend(name: str) -> Backend | None:
    """The backend with this name, or None; no other is loaded."""
    backend: Backend | None = registry.get("backends", name)
    return backend


def find_backend(name: str) -> Backend:
    """The backend with this name; `BadInput` for any other word."""
    backend: Backend = registry.find("backends", name)
    return backend


def all_device_backends() -> dict[str, DeviceBackend]:
    """Those that reach devices of an interface."""
    return {name: b for name, b in all_backends().items() if isinstance(b, DeviceBackend)}
