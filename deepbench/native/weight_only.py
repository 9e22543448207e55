"""Calls of our own loop for products with weights of 1 to 8 bits (`weight_only.c`)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.operands import full
from deepbench.native import library

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

# As in `weight_only.c`: rows whose scales a thread arranges together, and columns for which there may be tables.
ROWS, MOST_TABLES = 16, 4


class WeightOnlyProduct(ctypes.Structure):
    """struct product."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("a", "scales", "b", "c", "columns", "row_scales")),
        *((name, ctypes.c_int64) for name in ("m", "n", "k", "group", "bits", "is_bf16")),
    )


def prepare(case: Case, arrays: Arrays) -> Kernel:
    """The call, with room for B in f32 and for the scales of some rows of each thread."""
    loops = library.compiled("weight_only")
    if loops is None:
        raise Unsupported("the C loop is not built: install gcc, then install DeepBench again")
    p = case.problem
    room = {
        "columns": full((p.n, p.k * (4 if p.bits == 1 and p.n <= MOST_TABLES else 1)), "f32", 0.0),
        "row_scales": full((case.threads * (p.k // p.group + 1) * ROWS,), "f32", 0.0),
    }
    addresses = {name: array.ctypes.data for name, array in {**arrays, **room}.items()}
    sizes = {name: getattr(p, name) for name in ("m", "n", "k", "group", "bits")}
    call = Call(
        loops.deepbench_weight_only_gemm, WeightOnlyProduct(**addresses, **sizes, is_bf16=case.precision.name == "bf16")
    )
    notes = {"implementation": "own loop", "workspace_bytes": sum(array.nbytes for array in room.values())}
    return Kernel(calls=(call,), keep=(arrays, room), notes=notes)
