"""GEMM as oneDNN's matmul, with plain or packed weights."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native import onednn as c


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """C = A·B in column-major order, computed as Cᵀ = Bᵀ·Aᵀ in row-major order: B is the source, A the weights."""
    p, packed = case.problem, case.settings["weights"] == "packed"
    source = arrays["b"].T if p.b_t else arrays["b"]
    weights = arrays["a"].T if p.a_t else arrays["a"]
    primitive_desc = dnn.create(
        "dnnl_matmul_primitive_desc_create",
        dnn.engine,
        dnn.desc_of(source),
        dnn.memory_desc_any(weights.shape, case.precision.weights) if packed else dnn.desc_of(weights),
        None,
        dnn.desc_of(arrays["c"]),
        dnn.sum_post_op() if case.settings["beta"] == "1" else None,
    )
    conversions = c.Conversions(dnn, primitive_desc)
    conversions.add(c.ARG_SRC, "b", source)
    conversions.add(c.ARG_WEIGHTS, "a", weights)
    conversions.add(c.ARG_DST, "c", arrays["c"], output=True)
    return conversions.kernel(ahead="pack_s" if packed else None)
