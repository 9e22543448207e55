"""What the backends of GPU libraries share: opening, facts, buffers, scalars, the choice of an algorithm."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from deepbench.core.backend import Backend
from deepbench.core.kernel import Call, Kernel
from deepbench.core.precision import dtype
from deepbench.native.gpu.vendor import CUDA, Cuda

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays
    from deepbench.native.gpu.device import Buffers


class GpuBackend(Backend):
    """A library of a GPU's maker. Subclasses say which `part` of the table it is, and create its handle."""

    part: ClassVar[str]
    """Which library of `functions.PARTS`."""
    vendor: ClassVar[Cuda] = CUDA
    device = "cuda"

    def open(self) -> dict[str, Any]:
        from deepbench.native import library
        from deepbench.native.gpu import functions
        from deepbench.native.gpu.device import open_gpu

        self.gpu = open_gpu(self.vendor)
        loaded = self.gpu.library(self.part)
        self._chosen: dict[str, tuple[int, dict[str, Any]]] = {}
        self.start()
        symbol = next(n for n in functions.FUNCTIONS if functions.part_of(n) == self.part)
        return {
            "name": self.title,
            "version": self.version(),
            "path": library.path_of(loaded, self.vendor.symbol(symbol)),
            "card": self.gpu.facts(),
        }

    def start(self) -> None:
        """Create what the library needs before anything else, such as a handle."""
        raise NotImplementedError

    def version(self) -> str | None:
        """By its own version call."""
        raise NotImplementedError

    def cache_bytes(self) -> int | None:
        """The card's L2 cache."""
        return self.gpu.cache_bytes or None

    def memory_free(self) -> int | None:
        """Of the card."""
        return self.gpu.memory()[0]

    def handle(self, create: str, *arguments: Any) -> ctypes.c_void_p:
        """What a function makes through the address that is its first argument."""
        made = ctypes.c_void_p()
        self.gpu.call(create, ctypes.byref(made), *arguments)
        return made

    def buffers(
        self,
        case: Case,
        arrays: Arrays,
        leading: Mapping[str, int] | None = None,
        views: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> Buffers:
        """The arrays of a case on the card."""
        from deepbench.core.op import find_op
        from deepbench.native.gpu.device import Buffers

        return Buffers(self.gpu, arrays, find_op(case.op).outputs, leading, views)

    def enqueue(self, name: str, *arguments: Any) -> Call:
        """A call that puts work into the stream, with its status looked at."""
        return Call(self.gpu.function(name), *arguments, status=True)

    def kernel(
        self, calls: Sequence[Call], buffers: Buffers, arrays: Arrays, notes: dict[str, Any], *keep: object
    ) -> Kernel:
        """A kernel of these calls on these buffers; `keep` is what must live as long as it."""
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
        candidates: Sequence[Callable[[], Kernel]],
        load: Callable[[], None] | None = None,
        most_s: float | None = None,
    ) -> tuple[Kernel, int]:
        """The fastest of these kernels, and which it is; the search is in its notes.

        `load` fills the buffers that they share; without it each candidate loads its own.

        They are timed once in a process: sets of buffers that take turns use the same choice.
        """
        from deepbench.native.gpu import timing

        if case.text not in self._chosen:
            self._chosen[case.text] = timing.fastest(self.gpu, candidates, load, most_s or timing.SEARCH_MOST_S)
        best, notes = self._chosen[case.text]
        kernel = candidates[best]()
        kernel.notes |= notes
        return kernel, best


def scalar(type_name: str, value: float) -> ctypes.Array[ctypes.c_char]:
    """A number in the type a library computes in, for its address: an integer 1 is no float 1.0."""
    import numpy as np

    return ctypes.create_string_buffer(np.array(value).astype(dtype(type_name)).tobytes())
