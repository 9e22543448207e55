"""ZigZag 3: products and convolutions as a list of layers in YAML.

A product is `O[d][k]+=I[d][c]*W[c][k]`, with the letters that its stock mappings know; batches and steps are several
runs of a layer, as counts.json says. Layers do not feed each other. Bits are those of the types of the problem, but
sums of 8-bit operands have 16, as in ZigZag's own designs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from deepbench.core.precision import BITS
from deepbench.formats._problems import (
    ProblemExport,
    ProblemFormat,
    ProblemOptions,
    divided,
    layers_of_products,
    text_of,
)
from deepbench.ops.conv.problem import Conv
from deepbench.plan.problems import ExportedProblem

# Of partial sums and results of 8-bit operands. 32 bits do not fit into the registers of ZigZag's own designs.
SUM_OF_8_BITS = 16

LAYER = re.compile(r"name: (\w+)\n(?:  .*\n)*?  loop_sizes: \[([\d, ]+)\]")


class ZigZag(ProblemFormat):
    name = "zigzag"
    reads = "ZigZag 3"

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`workload.yaml`."""
        export, lines = ProblemExport(), []
        convolutions, products = divided(problems, lambda p: p.dimensions == 2, export)
        for number, (problem, p) in enumerate(convolutions):
            lines += _layer(number, problem, problem.name, *_conv(p))
        for problem, product, layer in layers_of_products(products, export):
            sizes = {"D": product.m, "K": product.n, "C": product.k}
            lines += _layer(len(export.layers) - 1, problem, layer.name, "Gemm", "O[d][k]+=I[d][c]*W[c][k]", sizes, [])
        export.files["workload.yaml"] = "\n".join(lines) + "\n"
        return export

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """The product of the sizes of all loops."""
        counts = {}
        for name, sizes in LAYER.findall(text_of(export, "workload.yaml")):
            counts[name] = 1
            for size in sizes.split(","):
                counts[name] *= int(size)
        return counts


def _conv(p: Conv) -> tuple[str, str, dict[str, int], list[str]]:
    """Operator, equation, loops and further lines of a convolution in two dimensions."""
    sizes = {"B": p.n, "G": p.groups, "K": p.k // p.groups, "C": p.c // p.groups}
    sizes |= {"OY": p.output[1], "OX": p.output[2], "FY": p.r, "FX": p.s}
    more = [
        f"dimension_relations: [ix={p.stride_w}*ox+{p.dilation_w}*fx, iy={p.stride_h}*oy+{p.dilation_h}*fy]",
        "pr_loop_dims: [IX, IY]",
        f"pr_loop_sizes: [{p.w}, {p.h}]",
        f"padding: [[{p.pad_w}, {p.pad_w}], [{p.pad_h}, {p.pad_h}]]",
    ]
    return "Conv", "O[b][g][k][oy][ox]+=W[g][k][c][fy][fx]*I[b][g][c][iy][ix]", sizes, more


def _layer(
    number: int,
    problem: ExportedProblem,
    name: str,
    operator: str,
    equation: str,
    sizes: dict[str, int],
    more: list[str],
) -> list[str]:
    types, result = problem.case.precision, problem.case.operation.result_type(problem.case)
    bits = {"W": types.weights, "I": types.data, "O": types.accumulate, "O_final": result}
    widest = SUM_OF_8_BITS if BITS[types.data] == 8 else max(BITS.values())
    precision = ", ".join(f"{operand}: {min(widest, BITS[kind])}" for operand, kind in bits.items())
    return [
        f"- id: {number}",
        f"  name: {name}",
        f"  operator_type: {operator}",
        f'  equation: "{equation}"',
        f"  loop_dims: [{', '.join(sizes)}]",
        f"  loop_sizes: [{', '.join(map(str, sizes.values()))}]",
        *(f"  {line}" for line in more),
        f"  operand_precision: {{{precision}}}",
        "  operand_source: {}",
    ]


FORMAT = ZigZag()
