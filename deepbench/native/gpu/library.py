"""The base class of GPU backends: opening the library, facts, buffers, scalars, choosing an algorithm."""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from deepbench.core import devices
from deepbench.core.backend import Backend
from deepbench.core.case import Case
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Arrays
from deepbench.core.precision import dtype
from deepbench.native.gpu.runtime import DeviceBuffers
from deepbench.native.gpu.vendor import CUDA, Cuda


class GpuBackend(Backend):
    """A vendor's GPU library. Subclasses set `part` and create the library's handle in `start`."""

    part: ClassVar[str]
    """The library's name in `vendor.py`: `blas`, `dnn` …"""
    vendor: ClassVar[Cuda] = CUDA
    device = "cuda"
    handle: ctypes.c_void_p
    """The library's own handle, if it has one."""

    @property
    def path_variable(self) -> str:  # type: ignore[override]  # an attribute elsewhere
        """As in `vendor.py`."""
        return self.vendor.libraries[self.part].variable

    number_of_gpu = 0
    """Which of the GPUs that this process sees."""

    def reaches(self, device: str) -> bool:
        """Every GPU of its maker: `cuda`, `cuda:1` …"""
        return devices.base(device) == self.device

    def select(self, device: str) -> None:
        """Use this GPU."""
        self.number_of_gpu = devices.index(device)

    def is_default_on(self, device: str) -> bool:
        """On any GPU of its maker."""
        return self.default and self.reaches(device)

    def open(self) -> dict[str, Any]:
        from deepbench.native import library
        from deepbench.native.gpu import functions
        from deepbench.native.gpu.device import open_gpu

        self.gpu = open_gpu(self.vendor, self.number_of_gpu)
        loaded = self.gpu.library(self.part)
        self._choices: dict[str, tuple[str, dict[str, Any]]] = {}
        self.start()
        symbol = next(n for n in functions.FUNCTIONS if functions.part_of(n) == self.part)
        return {
            "name": self.title,
            "version": self.version(),
            "path": library.path_of(loaded, self.vendor.symbol(symbol)),
            "card": self.gpu.facts(),
        }

    def start(self) -> None:
        """Create `handle` and whatever else the library needs first."""

    @abstractmethod
    def version(self) -> str:
        """The library's version, from the library."""

    def cache_bytes(self) -> int | None:
        """The L2 cache of the GPU."""
        return self.gpu.cache_bytes

    def memory_free(self) -> int | None:
        """Free memory of the GPU."""
        return self.gpu.memory_info()[0]

    def create(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        """The object that a function creates and returns through its first argument."""
        created = ctypes.c_void_p()
        self.gpu.call(function, ctypes.byref(created), *arguments)
        return created

    def number(self, function: str, *arguments: Any, kind: Any = ctypes.c_int) -> int:
        """The C int, or integer of another `kind`, that a function returns through its last argument."""
        number = kind()
        self.gpu.call(function, *arguments, ctypes.byref(number))
        return int(number.value)

    def buffers(
        self,
        case: Case,
        arrays: Arrays,
        leading: Mapping[str, int] | None = None,
        views: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> DeviceBuffers:
        """The arrays of a case on the GPU; see `DeviceBuffers`."""
        return DeviceBuffers(self.gpu, arrays, case.operation.outputs, leading, views)

    def prepare_call(self, function: str, *arguments: Any) -> Call:
        """A call that enqueues work and returns a status."""
        return Call(self.gpu.function(function), *arguments, status=True)

    def kernel(
        self, calls: Sequence[Call], buffers: DeviceBuffers, arrays: Arrays, notes: dict[str, Any], *keep: object
    ) -> Kernel:
        """A kernel of these calls on these buffers; `keep` must live as long as the kernel."""
        return Kernel(
            calls=tuple(calls),
            load=buffers.load,
            store=buffers.store,
            private_buffers=tuple(arrays),
            keep=(buffers, *keep),
            notes=notes,
            device=self.gpu,
        )

    def fastest(
        self,
        case: Case,
        candidates: Mapping[str, Callable[[], Kernel]],
        load: Callable[[], None] | None = None,
        most_s: float | None = None,
    ) -> tuple[Kernel, str]:
        """The fastest of these kernels and its name; the notes describe the search.

        Candidates are named so that a later process recognizes them. If an earlier one has chosen one of them, that
        one is used, unless it does not run any more. `load` fills the buffers that candidates share; without it each
        candidate loads its own. Candidates are timed once per process: with `cache=cold`, all sets of buffers use the
        same choice.
        """
        from deepbench.native.gpu import timing

        if case.text not in self._choices:
            earlier = self.earlier_choice
            refused = timing.refusal(self.gpu, candidates, earlier, load) if earlier is not None else None
            if earlier is not None and refused is None:
                self._choices[case.text] = earlier, {"choice": earlier, "search": "reused"}
            else:
                best, notes = timing.fastest(self.gpu, candidates, load, most_s or timing.SEARCH_MOST_S)
                notes |= {"choice": best, "search": f"again: {refused}" if refused else "now"}
                self._choices[case.text] = best, notes
        best, notes = self._choices[case.text]
        kernel = candidates[best]()
        kernel.notes |= notes
        return kernel, best


def scalar(type_name: str, value: float) -> ctypes.Array[ctypes.c_char]:
    """A number in the given type, to be passed by address."""
    import numpy as np

    return ctypes.create_string_buffer(np.array(value).astype(dtype(type_name)).tobytes())
