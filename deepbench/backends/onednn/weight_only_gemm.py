"""GEMM with quantized weights as oneDNN's matmul, which dequantizes them (since version 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepbench.core.case import Case
from deepbench.core.errors import LibraryError, Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native import onednn as c

if TYPE_CHECKING:
    from deepbench.ops.weight_only_gemm import WeightOnlyGemm

BOTH_AXES = 0b11  # the mask of scales that differ along k and along m

# Versions up to this one multiply weights of 4 bits right in bf16; 3.13 does so for some groups only. Others were not
# tried.
LAST_RIGHT = (3, 6)


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """Cᵀ = Bᵀ·Aᵀ, where Aᵀ is k × m with a scale for each block of group × 1.

    Weights of 8 bits are brought to the library's format ahead. It has none of its own for 4 bits.
    """
    p, kind, weights = case.problem, case.precision.data, f"s{case.problem.bits}"
    if not hasattr(dnn.library, "dnnl_primitive_attr_set_fpmath_mode_v2"):
        raise Unsupported("this build of oneDNN does not multiply with quantized weights; version 3.5 and later do")
    if p.bits not in (4, 8):
        raise Unsupported(f"oneDNN has no {p.bits}-bit weights; choose bits=4 or bits=8")
    if p.bits == 4 and kind == "bf16" and (dnn.version.major, dnn.version.minor) > LAST_RIGHT and not is_right(p):
        raise Unsupported(
            f"oneDNN {dnn.version.text} gives wrong results for weights of 4 bits in bf16 with k={p.k} in groups of "
            f"{p.group}; choose a k that 16 divides, in groups of 16 or of a multiple of 32, or one group"
        )
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


def is_right(p: WeightOnlyGemm) -> bool:
    """Whether oneDNN 3.13 multiplies weights of 4 bits right in bf16, as 61 pairs of k and group have shown."""
    return p.k % 16 == 0 and (p.group in (16, p.k) or p.group % 32 == 0)
