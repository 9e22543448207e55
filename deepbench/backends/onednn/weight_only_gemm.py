"""GEMM with quantized weights as oneDNN's matmul, which dequantizes them (since version 3.5)."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.core.errors import LibraryError, Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native import onednn as c

BOTH_AXES = 0b11  # the mask of scales that differ along k and along m


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """Cᵀ = Bᵀ·Aᵀ, where Aᵀ is k × m with a scale for each block of group × 1.

    Weights of 8 bits are brought to the library's format ahead. It has none of its own for 4 bits.
    """
    p, kind, weights = case.problem, case.precision.data, f"s{case.problem.bits}"
    if not hasattr(dnn.library, "dnnl_primitive_attr_set_fpmath_mode_v2"):
        raise Unsupported("this build of oneDNN does not multiply with quantized weights; version 3.5 and later do")
    attribute = dnn.create("dnnl_primitive_attr_create")
    dnn.call("dnnl_primitive_attr_set_fpmath_mode_v2", attribute, c.FPMATH[kind], 1)
    groups, scale_type = c.dims((p.group, 1)), c.DATA_TYPE[kind]
    dnn.call("dnnl_primitive_attr_set_scales", attribute, c.ARG_WEIGHTS, BOTH_AXES, 2, groups, scale_type)
    plain = dnn.memory_desc((p.k, p.m), weights, (1, p.k))
    source, target = dnn.desc_of(arrays["b"]), dnn.desc_of(arrays["c"])
    wanted = plain if p.bits == 4 else dnn.memory_desc_any((p.k, p.m), weights)
    try:
        function = "dnnl_matmul_primitive_desc_create"
        primitive_desc = dnn.create(function, dnn.engine, source, wanted, None, target, attribute)
    except LibraryError:
        if p.m % 2 or p.k % 2:
            raise Unsupported("oneDNN takes weights of 4 bits only with even m and k") from None
        raise
    if dnn.facts(primitive_desc)["implementation"].startswith("ref"):
        raise Unsupported(f"this build of oneDNN has only slow reference code for {kind} with weights of {p.bits} bits")
    conversions = c.Conversions(dnn, primitive_desc)
    conversions.add(c.ARG_SRC, "b", arrays["b"])
    conversions.add_as(c.ARG_WEIGHTS, "a", plain, arrays["a"])
    conversions.add(c.ARG_DST, "c", arrays["c"], output=True)
    scales = arrays["scales"]
    conversions.arguments[c.ARG_SCALES + c.ARG_WEIGHTS] = dnn.memory(dnn.desc_of(scales), scales)
    return conversions.kernel(ahead="pack_s")
