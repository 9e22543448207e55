"""Batched, grouped, linear and weight-only products in PyTorch, as a Python program would call them."""

from __future__ import annotations

import platform
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Any

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.precision import SIXTEEN_BITS
from deepbench.ops.weight_only_gemm.drawn import unpack

Function = Callable[[], Any]

# `_grouped_mm` needs rows that start at multiples of this.
ROW_BYTES = 16

# Groups and multiples of outputs that `_weight_int4pack_mm_for_cpu` takes.
INT4_GROUPS, INT4_OUTPUTS = (32, 64, 128, 256), 16

# `_weight_int8pack_mm` reads that many inputs at a time: with bf16, and with every type on Arm.
INT8_INPUTS = 16


def refuse_wide(case: Case) -> None:
    """PyTorch's products have the type of their operands."""
    if case.precision.name in SIXTEEN_BITS and case.settings["result"] == "wide":
        raise Unsupported("PyTorch stores 16-bit products in 16 bits; choose result=narrow")


def batched(torch: Any, tensors: dict[str, Any], case: Case) -> Kernel:
    """`bmm`: Cᵀ = Bᵀ·Aᵀ in row-major order."""
    refuse_wide(case)
    p, a, b, c = case.problem, tensors["a"], tensors["b"], tensors["c"]
    left, right = b.mT if p.b_t else b, a.mT if p.a_t else a
    return Kernel(run=lambda: torch.bmm(left, right, out=c), notes={"implementation": "bmm"})


def grouped(torch: Any, tensors: dict[str, Any], case: Case) -> Kernel:
    """`grouped_mm` where rows are aligned as it demands, else `mm` for each expert, as models without it do."""
    refuse_wide(case)
    p, b, offsets = case.problem, tensors["b"], tensors["offsets"]
    groups = list(enumerate(pairwise(p.offsets)))
    parts: list[tuple[Any, Any, Any]]
    if case.direction == "forward":
        a, c = tensors["a"], tensors["c"]
        left, right, output = b, a.mT, c
        parts = [(b[start:end], a[i].T, c[start:end]) for i, (start, end) in groups if end > start]
    else:
        dc, output = tensors["dc"], tensors["da"]
        left, right = dc.T, b
        parts = [(dc[start:end].T, b[start:end], output[i]) for i, (start, end) in groups]
    function = getattr(torch.nn.functional, "grouped_mm", None)
    if function is not None and not any(size * b.element_size() % ROW_BYTES for size in (p.m, p.k)):
        ends = offsets[1:].contiguous()
        return _returning(lambda: function(left, right, offs=ends), output, "grouped_mm")

    def run() -> None:
        for rows, weights, out in parts:
            torch.mm(rows, weights, out=out)

    return Kernel(run=run, notes={"implementation": f"mm, {len(parts)} calls"})


def linear(
    torch: Any,
    tensors: dict[str, Any],
    case: Case,
    change: Callable[[Function], Function] = lambda function: function,
) -> Kernel:
    """`nn.functional.linear`, and `relu`, `gelu` or `silu` as an operator of its own.

    `change` may return another function, such as a compiled one, for the one that computes the result.
    """
    if case.settings["weights"] == "packed":
        raise Unsupported("PyTorch has no interface to pack weights ahead")
    functional, a, b, bias = torch.nn.functional, tensors["a"], tensors["b"], tensors.get("bias")
    name = case.settings["activation"]
    if name == "none":
        return _returning(change(lambda: functional.linear(b, a, bias)), tensors["c"], "linear")
    activation = getattr(functional, name)
    return _returning(change(lambda: activation(functional.linear(b, a, bias))), tensors["c"], f"linear, {name}")


def weight_only(torch: Any, tensors: dict[str, Any], arrays: Arrays, case: Case) -> Kernel:
    """`_weight_int4pack_mm_for_cpu` and `_weight_int8pack_mm`, as torchao calls them; 4 bits are packed ahead."""
    p, b, c = case.problem, tensors["b"], tensors["c"]
    if b.device.type != "cpu":
        raise Unsupported("PyTorch has these operators on CPUs only")
    if p.bits not in (4, 8):  # looked for among all operators of PyTorch 2.13
        raise Unsupported(f"PyTorch has no product with {p.bits}-bit weights on CPUs; choose bits=4 or bits=8")
    if p.bits == 8:
        if p.group != p.k:
            raise Unsupported("PyTorch has one scale for each output with 8 bits; choose group=k")
        is_arm = platform.machine() in ("aarch64", "arm64")
        if p.k % INT8_INPUTS and (is_arm or case.precision.name == "bf16"):  # PyTorch crashes, or is wrong on Arm
            types = "8 bits on Arm" if is_arm else "8 bits and bf16"
            raise Unsupported(f"PyTorch takes {types} only with k a multiple of {INT8_INPUTS}")
        a, scale = tensors["a"], tensors["scales"][0]
        return _returning(lambda: torch._weight_int8pack_mm(b, a, scale), c, "_weight_int8pack_mm")
    if p.group not in INT4_GROUPS or p.m % INT4_OUTPUTS:
        groups = ", ".join(map(str, INT4_GROUPS))
        raise Unsupported(f"PyTorch takes 4 bits with groups of {groups} and m a multiple of {INT4_OUTPUTS}")
    start = perf_counter()
    integers = torch.from_numpy(unpack(arrays["a"])).to(torch.int32) + 8  # PyTorch's have an offset of 8
    packed = torch._convert_weight_to_int4pack_for_cpu(integers, 1)
    scales = tensors["scales"]
    scales_and_zeros = torch.stack([scales, torch.zeros_like(scales)], dim=-1).contiguous()
    seconds = perf_counter() - start
    function = torch._weight_int4pack_mm_for_cpu
    kernel = _returning(lambda: function(b, packed, p.group, scales_and_zeros), c, "_weight_int4pack_mm_for_cpu")
    kernel.notes["pack_s"] = seconds
    kernel.private_buffers = ("a", "scales")
    return kernel


def _returning(function: Any, c: Any, name: str) -> Kernel:
    """A kernel of an operator that allocates its result, which is copied to `c` after timing."""
    result: list[Any] = []

    def run() -> None:
        result[:] = [function()]

    def store() -> None:
        if result:
            c.copy_(result[0])

    return Kernel(run=run, load=result.clear, store=store, notes={"implementation": name})
