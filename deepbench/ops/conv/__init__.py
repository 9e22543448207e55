"""Convolution in two or three dimensions, y = x ∗ w, and its gradients for data and weights.

As usual in neural networks, the filter is not flipped (a cross-correlation). With the usual letters: n images of c
channels, h × w pixels (and depth d); k filters of r × s (and depth t); outputs of p × q (and depth z).

    forward           y[n,k,p,q]  = Σ x[n,c,p·stride − pad + r·dilation, …] · w[k,c,r,s]   (+ b[k] with bias=yes)
    backward_data     dx[n,c,h,w] = the gradient of Σ y·dy with respect to x
    backward_weights  dw[k,c,r,s] = the gradient of Σ y·dy with respect to w              (and db[k] with bias=yes)

Channels are divided into `groups` that are convolved separately; groups = c is a depthwise convolution. Arrays are NCHW
and KCRS (NCDHW and KCTRS in three dimensions). With `layout=nhwc` channels come last, in filters too (KRSC); with
`layout=any` the library chooses, and converts from and to NCHW.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from deepbench.core.lowering import MatrixProduct
from deepbench.core.op import AnswerComparison, Op
from deepbench.core.precision import BITS
from deepbench.core.traffic import product_bytes
from deepbench.ops.conv.problem import Conv, is_channels_last, is_quantized, layout, quantization_scale, result_type

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays
    from deepbench.core.precision import Precision

# Winograd's F(4 × 4, 3 × 3) needs 36 multiplications where the definition needs 144.
WINOGRAD_SAVING = 4.0

# What libraries call an algorithm that multiplies every pair of the definition (`notes.algorithm`).
DIRECT_ALGORITHMS = ("direct", "gemm", "implicit gemm")


class ConvOp(Op):
    name = "conv"
    sweep_field = "n"
    Problem = Conv
    directions = ("forward", "backward_data", "backward_weights")
    settings = {  # noqa: RUF012  (ClassVar in Op)
        "layout": ("nchw", "any", "nhwc"),
        "bias": ("no", "yes"),
        "result": ("narrow", "wide"),
    }
    weights = ("w",)
    saves_flop = True
    smoke = (
        Conv(1, 1, 1, 1, 1, 1, 1),
        Conv(2, 3, 9, 7, 5, 3, 3, pad_h=1, pad_w=1),
        Conv(2, 1, 13, 17, 8, 5, 10, stride_h=2, stride_w=2),
        Conv(1, 16, 8, 8, 32, 1, 1, stride_h=2, stride_w=2),
        Conv(1, 4, 7, 7, 8, 1, 1, pad_h=3, pad_w=3, stride_h=2, stride_w=2),
        Conv(2, 8, 12, 11, 12, 3, 3, pad_h=2, pad_w=2, dilation_h=2, dilation_w=2),
        Conv(2, 8, 10, 10, 16, 3, 3, pad_h=1, pad_w=1, groups=4),
        Conv(2, 16, 9, 9, 16, 3, 3, pad_h=1, pad_w=1, groups=16),
        Conv(1, 3, 6, 8, 4, 3, 3, pad_h=1, pad_w=1, d=5, t=3, pad_d=1),
        Conv(1, 100, 5, 5, 150, 3, 2, pad_h=1),
        Conv(1, 1, 40, 40, 8, 1, 1),
    )
    outputs = ("y", "dx", "dw", "db")

    def operand_bytes(self, case: Case) -> int:
        """Bytes of all arrays of this direction as stored."""
        return sum(math.prod(shape) * BITS[kind] // 8 for shape, kind in layout(case).values())

    def workspace_bytes(self, case: Case) -> int:
        """Bytes that the check needs: outputs, data and squares of data in float64."""
        return 24 * sum(math.prod(shape) for shape, _ in layout(case).values())

    def operands(self, case: Case) -> Arrays:
        """The arrays of this direction in their stored layout; see the top of this file."""
        from deepbench.core import operands

        arrays = {}
        for stream, (name, (shape, kind)) in enumerate(layout(case).items()):
            stored = (shape[0], *shape[2:], shape[1]) if is_channels_last(case, name) else shape
            is_output = name in self.outputs
            arrays[name] = operands.empty(stored, kind) if is_output else operands.random(stored, kind, stream)
        self.reset(case, arrays)
        return arrays

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """The outputs of this direction in their stored layout."""
        from deepbench.ops.conv.reference import reference

        return reference(case, arrays)

    def compare(self, case: Case, arrays: Arrays) -> Iterator[AnswerComparison]:
        """Every element of a small convolution; samples of a large one, and sums that cover every element."""
        from deepbench.ops.conv.check import compare

        return compare(case, arrays)

    def free_inputs(self, case: Case) -> tuple[str, ...]:
        """All but the filters and the bias: libraries may convert these ahead."""
        return tuple(name for name in layout(case) if name in ("x", "dy"))

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """`bias` does not affect the data gradient; `result` matters only if the data is narrower than the sums."""
        bias = ("bias",) if direction == "backward_data" else ()
        return (*bias, "result") if precision.data == precision.result else bias

    def flop(self, case: Case) -> int:
        """2·n·k·p·q·(c/groups)·r·s (·z·t), as the original counts: products with padding are included."""
        return int(2 * case.problem.multiply_adds)

    def matrix_products(self, case: Case) -> tuple[MatrixProduct, ...]:
        """One per group of channels, on rows of pixels that are copied for each position of the filter (im2col)."""
        p = case.problem
        rows, filters = p.n * math.prod(p.output), p.k // p.groups
        taps = p.c // p.groups * math.prod(p.filter)
        sizes = {
            "forward": (rows, filters, taps),
            "backward_data": (rows, taps, filters),
            "backward_weights": (filters, taps, rows),
        }
        return (MatrixProduct("", *sizes[case.direction], p.groups),)

    def other_flop(self, case: Case) -> dict[str, int]:
        """`without_padding`: without products with padding."""
        return {"without_padding": 2 * case.problem.multiply_adds_without_padding}

    def least_flop(self, case: Case) -> float:
        """Padding can be skipped, and Winograd's algorithm saves multiplications where filter positions overlap."""
        overlaps = case.problem.stride == (1, 1, 1) and max(case.problem.filter) > 1
        return self.other_flop(case)["without_padding"] / (WINOGRAD_SAVING if overlaps else 1.0)

    def algorithm_flop(self, case: Case, algorithm: str) -> float:
        """Without products with padding. Only Winograd's algorithm and Fourier transforms save multiplications."""
        is_direct = algorithm in DIRECT_ALGORITHMS
        return float(self.other_flop(case)["without_padding"]) if is_direct else self.least_flop(case)

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Every array once, or as much as blocks that fit into the level need; see `core/traffic.py`.

        Inputs without what only meets padding, or what a stride larger than the filter skips.
        """
        p, arrays = case.problem, layout(case)
        counts = {name: math.prod(shape) for name, (shape, _) in arrays.items()}
        read = {name: count for name, count in p.read.items() if name in counts}
        if "db" in arrays:
            del read["dy"]  # it is added up as a whole
        counts |= read
        least = sum(count * BITS[arrays[name][1]] // 8 for name, count in counts.items())
        if capacity is None:
            return least
        if least <= capacity:
            return 0
        narrowest = min(BITS[kind] for _, kind in arrays.values()) / 8
        reuse = math.prod(p.filter) / math.prod(p.stride)
        return max(least, product_bytes(int(self.least_flop(case) / 2), capacity, narrowest, reuse))

    def result_type(self, case: Case) -> str:
        """`result=narrow`: the type of the data, as the next layer reads it; `wide`: that of the accumulation."""
        return result_type(case)

    def title(self, problem: Any) -> str:
        """`16 × 64 × 56 × 56, 64 of 3 × 3, stride 2, pad 1`: n × c × h × w, then the filters."""
        p = problem
        shown = slice(0 if p.dimensions == 3 else 1, None)
        parts = [_times(p.n, p.c, *p.image[shown]), f"{p.k} of {_times(*p.filter[shown])}"]
        for name, sizes, default in (("stride", p.stride, 1), ("pad", p.pad, 0), ("dilation", p.dilation, 1)):
            distinct = set(sizes[shown])
            if distinct != {default}:
                parts.append(f"{name} {sizes[-1] if len(distinct) == 1 else _times(*sizes[shown])}")
        return ", ".join([*parts, *([f"{p.groups} groups"] if p.groups > 1 else [])])

    def facts(self, case: Case) -> dict[str, Any]:
        """`scale`: factor by which integer sums are multiplied before they are rounded to 8 bits."""
        return {"scale": quantization_scale(case)} if is_quantized(case) else {}


def _times(*sizes: int) -> str:
    return " × ".join(map(str, sizes))


OP = ConvOp()
