"""Sparse GEMM as oneDNN's matmul with CSR weights, in builds that have sparse encodings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepbench.errors import LibraryError, Unsupported
from deepbench.native import onednn as c

if TYPE_CHECKING:
    from deepbench.backend import Kernel
    from deepbench.case import Case
    from deepbench.op import Arrays

INT32 = 4  # dnnl_s32


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """C = A·B with A as CSR; matrices stored column by column are transposed views in oneDNN's row-major order."""
    p = case.problem
    if not hasattr(dnn.library, "dnnl_memory_desc_create_with_csr_encoding"):
        raise Unsupported(
            "this oneDNN has no sparse encodings; builds of 3.4 and later with ONEDNN_EXPERIMENTAL_SPARSE do"
        )
    try:
        source = dnn.create(
            "dnnl_memory_desc_create_with_csr_encoding",
            2,
            c.dims((p.m, p.k)),
            c.DATA_TYPE[case.precision.weights],
            c.int64(p.non_zeros),
            INT32,
            INT32,
        )
    except (Unsupported, LibraryError) as error:
        raise Unsupported(f"this build of oneDNN has no sparse encodings ({error})") from None
    b, out = arrays["b"].T, arrays["c"].T
    attribute = dnn.sum_post_op() if case.settings["beta"] == "1" else None
    primitive_desc = dnn.create(
        "dnnl_matmul_primitive_desc_create", dnn.engine, source, dnn.desc_of(b), None, dnn.desc_of(out), attribute
    )
    conversions = c.Conversions(dnn, primitive_desc)
    handles = [arrays["values"], arrays["columns"], arrays["row_starts"]]
    conversions.arguments[c.ARG_SRC] = dnn.memory_of_buffers(source, handles)
    conversions.keep.extend(handles)
    conversions.add(c.ARG_WEIGHTS, "b", b)
    conversions.add(c.ARG_DST, "c", out, output=True)
    return conversions.kernel(ahead=None)
