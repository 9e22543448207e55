"""GEMM, batched GEMM and fully connected layers as oneDNN's matmul, with plain or packed weights."""

from __future__ import annotations

from typing import Any

from deepbench.core.case import Case
from deepbench.core.kernel import Kernel, in_turn
from deepbench.core.op import Arrays
from deepbench.core.precision import type_name
from deepbench.core.product import products_of
from deepbench.native import onednn as c


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """C = A·B + C or C = A·B."""
    attribute = dnn.sum_post_op() if case.settings["beta"] == "1" else None
    return _one(dnn, case, arrays, attribute)


def prepare_linear(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """Bias and activation are part of the primitive."""
    activation, attribute = case.settings["activation"], None
    if activation != "none":
        attribute = dnn.eltwise_post_op(activation)
    return _one(dnn, case, arrays, attribute, arrays.get("bias"))


def prepare_batched(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """One matmul with three axes."""
    p, a, b = case.problem, arrays["a"], arrays["b"]
    weights, source = a.swapaxes(1, 2) if p.a_t else a, b.swapaxes(1, 2) if p.b_t else b
    return _matmul(dnn, source, weights, arrays["c"])


def prepare_grouped(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """A matmul for each group with rows, one after the other: oneDNN has no grouped matmul for CPUs."""
    products = products_of(case, arrays)
    matmuls = [_matmul(dnn, p.right, p.left, p.c) for p in products if p.multiply_adds]
    # The gradients of experts without rows are zero; oneDNN does not write the result of a sum of nothing.
    zeros = [Kernel(calls=dnn.zeros(p.c)) for p in products if not p.multiply_adds]
    kernel = in_turn([*matmuls, *zeros])
    name = f"{matmuls[0].notes['implementation']}, {len(matmuls)} calls" + " and zeros" * bool(zeros)
    kernel.notes = {**matmuls[0].notes, "implementation": name}
    return kernel


def _one(dnn: c.OneDNN, case: Case, arrays: Arrays, attribute: Any, bias: Any = None) -> Kernel:
    """One product with the setting `weights`; the arrays of a fully connected layer are those with `a_t=1`."""
    a, b, a_t = arrays["a"], arrays["b"], getattr(case.problem, "a_t", 1)
    source = b.T if getattr(case.problem, "b_t", 0) else b
    packed = case.settings["weights"] == "packed"
    return _matmul(dnn, source, a.T if a_t else a, arrays["c"], attribute, bias, packed)


def _matmul(
    dnn: c.OneDNN, source: Any, weights: Any, target: Any, attribute: Any = None, bias: Any = None, packed: bool = False
) -> Kernel:
    """C = A·B in column-major order, computed as Cᵀ = Bᵀ·Aᵀ in row-major order: B is the source, A the weights."""
    primitive_desc = dnn.create(
        "dnnl_matmul_primitive_desc_create",
        dnn.engine,
        dnn.desc_of(source),
        dnn.memory_desc_any(weights.shape, type_name(weights.dtype)) if packed else dnn.desc_of(weights),
        None if bias is None else dnn.desc_of(bias[None]),
        dnn.desc_of(target),
        attribute,
    )
    conversions = c.Conversions(dnn, primitive_desc)
    conversions.add(c.ARG_SRC, "b", source)
    conversions.add(c.ARG_WEIGHTS, "a", weights)
    if bias is not None:
        conversions.add(c.ARG_BIAS, "bias", bias[None])
    conversions.add(c.ARG_DST, "c", target, output=True)
    return conversions.kernel(ahead="pack_s" if packed else None)
