"""A backend that does nothing: its time is what DeepBench itself adds to every call."""

from __future__ import annotations

import ctypes
from typing import Any

from deepbench.core.backend import Backend, Mark, marks_of_every_op
from deepbench.core.case import Case
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Arrays


class Null(Backend):
    name = "null"
    title = "null"
    default = False
    computes = False

    def open(self) -> dict[str, Any]:
        return {"name": "null (an empty C function)", "version": None, "path": None}

    def marks(self) -> list[Mark]:
        return marks_of_every_op()

    def prepare(self, case: Case, arrays: Arrays) -> Kernel:
        """`labs` of the C library, which uses only the first argument, with as many arguments as SGEMM has."""
        return Kernel(calls=(Call(ctypes.CDLL(None).labs, *range(13)),))


BACKEND = Null()
