"""Sparse GEMM as oneDNN's matmul with CSR weights, in builds that support sparse matrices."""

from __future__ import annotations

import ctypes
from time import perf_counter
from typing import Any

import numpy as np

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.operands import copy
from deepbench.native import onednn as c


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """Cᵀ = Bᵀ·Aᵀ with row-major dense matrices, as oneDNN requires. A is converted from rows to columns ahead."""
    p = case.problem
    if not hasattr(dnn.library, "dnnl_memory_desc_create_with_csr_encoding"):
        raise Unsupported("this build of oneDNN has no sparse matrices (ONEDNN_EXPERIMENTAL_SPARSE)")
    start = perf_counter()
    starts, rows, values = _by_columns(case, arrays)
    seconds = perf_counter() - start
    weights = dnn.create(
        "dnnl_memory_desc_create_with_csr_encoding", 2, c.dims((p.k, p.m)), c.DATA_TYPE[case.precision.weights],
        ctypes.c_int64(p.non_zeros), c.DATA_TYPE["s32"], c.DATA_TYPE["s32"],
    )  # fmt: skip
    if case.settings["order"] == "row":
        raise Unsupported("oneDNN's sparse matmul needs column-major dense matrices; choose order=column")
    attribute = dnn.sum_post_op() if case.settings["beta"] == "1" else None
    try:
        b, c_desc = dnn.desc_of(arrays["b"]), dnn.desc_of(arrays["c"])
        function = "dnnl_matmul_primitive_desc_create"
        primitive_desc = dnn.create(function, dnn.engine, b, weights, None, c_desc, attribute)
    except Unsupported:
        if attribute is None:
            raise
        raise Unsupported("oneDNN's sparse matmul does not add to C; choose beta=0") from None
    conversions = c.Conversions(dnn, primitive_desc)
    conversions.add(c.ARG_SRC, "b", arrays["b"])
    conversions.add(c.ARG_DST, "c", arrays["c"], output=True)
    conversions.arguments[c.ARG_WEIGHTS] = dnn.memory_of_buffers(weights, [values, rows, starts])
    conversions.keep += [values, rows, starts]
    return conversions.kernel(ahead=None, notes={"convert_s": seconds})


def _by_columns(case: Case, arrays: Arrays) -> tuple[Any, Any, Any]:
    """Aᵀ as CSR: start of each column of A, rows of the non-zeros, values."""
    lengths = np.diff(arrays["row_starts"])
    order = np.argsort(arrays["columns"], kind="stable")
    starts = np.zeros(case.problem.k + 1, np.int32)
    np.cumsum(np.bincount(arrays["columns"], minlength=case.problem.k), out=starts[1:])
    rows = np.repeat(np.arange(case.problem.m, dtype=np.int32), lengths)[order]
    return copy(starts), copy(rows), copy(arrays["values"][order])
