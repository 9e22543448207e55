"""Our own C loops: reading, copying and triad, by as many threads as the case has."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.core.backend import Backend, kernel
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.core.kernel import Call, Kernel

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

FOLDER = Path(__file__).parent.parent / "native"


class Loops(Backend):
    name = "loops"
    title = "C loops"

    def open(self) -> dict[str, Any]:
        for path in sorted(FOLDER.glob("_memory*.so")):
            try:
                self.library = ctypes.CDLL(str(path))
            except OSError:  # built for another machine
                continue
            self.library.deepbench_threads.restype = ctypes.c_int64
            return {"name": "deepbench's own loops", "version": None, "path": str(path), "threading": "OpenMP"}
        raise Unavailable(
            "the C loops are not built: there was no C compiler with OpenMP when deepbench was installed",
            "install gcc, then install deepbench again",
        )

    @kernel("memory", precisions=("f32",))
    def memory(self, case: Case, arrays: Arrays) -> Kernel:
        threads = self.library.deepbench_threads()
        if threads != case.threads:
            raise Unsupported(f"the loops were built without OpenMP: they have {threads} thread, not {case.threads}")
        kind, n = case.problem.kind, case.problem.n
        streams = {"read": ("a", "c"), "copy": ("a", "c"), "triad": ("a", "b", "c")}[kind]
        count = n // 2 if kind == "read" else n
        return Kernel(calls=(Call(self.library[f"deepbench_{kind}"], *(arrays[s] for s in streams), count),))


BACKEND = Loops()
