"""Timeloop: a problem per file, as dimensions and the data spaces that they project to.

Convolutions forward have their own dimensions; their padding is implied, because Timeloop counts outputs. The names are
those of public designs: Weights, Inputs and Outputs, or A, B and Z. Random zeros are a hypergeometric density of A,
which Sparseloop reads. The steps of a recurrence are several runs of a file. Version 0.4 is that of the Python front
end; 0.3 is the older spelling with hyphens, which the program in C++ reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from deepbench.core.lowering import MatrixProduct
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

Spaces = Mapping[str, Sequence[Sequence[Sequence[str]]]]
"""Per data space its axes, each a sum of products of dimensions and coefficients."""

FACTOR = re.compile(r"density: ([0-9.e-]+)")
# Dimensions are single letters; coefficients are words.
SIZE = re.compile(r"\b([A-Z]): (\d+)")


class Timeloop(ProblemFormat):
    name = "timeloop"
    reads = "Timeloop and Sparseloop"
    versions = ("0.4", "0.3")

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`NAME.yaml` per layer."""
        export, is_old = ProblemExport(), options.version == "0.3"
        convolutions, products = divided(problems, lambda _: True, export)
        for problem, p in convolutions:
            export.files[f"{problem.name}.yaml"] = _text("conv", *_conv(p), {}, is_old)
        for _, product, layer in layers_of_products(products, export, batch=True, sparse=True):
            export.files[f"{layer.name}.yaml"] = _text("gemm", *_product(product), is_old)
        return export

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """The product of the sizes of all dimensions, and of the density."""
        counts = {}
        for path in export.texts:
            instance, count = text_of(export, path).split("instance:")[1], 1
            for _, size in SIZE.findall(instance):
                count *= int(size)
            density = FACTOR.search(instance)
            counts[path.removesuffix(".yaml")] = round(count * float(density[1])) if density else count
        return counts


def _product(p: MatrixProduct) -> tuple[dict[str, int], Spaces, dict[str, int], dict[str, float]]:
    """Dimensions, data spaces, coefficients and densities of a product."""
    batch = [[["B"]]] if p.batch > 1 else []
    sizes = {**({"B": p.batch} if batch else {}), "M": p.m, "N": p.n, "K": p.k}
    spaces = {
        "A": [*batch, [["M"]], [["K"]]],
        "B": [*batch, [["K"]], [["N"]]],
        "Z": [*batch, [["M"]], [["N"]]],
    }
    return sizes, spaces, {}, {} if p.non_zeros is None else {"A": p.non_zeros / (p.m * p.k)}


def _conv(p: Conv) -> tuple[dict[str, int], Spaces, dict[str, int]]:
    """The same of a convolution, where nothing is sparse."""
    axes = [("H", "P", "R", 1), ("W", "Q", "S", 2)]
    axes = [("D", "Z", "T", 0), *axes] if p.dimensions == 3 else axes
    group = [[["G"]]] if p.groups > 1 else []
    sizes = {**({"G": p.groups} if group else {}), "N": p.n, "C": p.c // p.groups, "K": p.k // p.groups}
    coefficients: dict[str, int] = {}
    for axis, output, taps, i in axes:
        sizes |= {output: p.output[i], taps: p.filter[i]}
        coefficients |= {f"{axis}stride": p.stride[i], f"{axis}dilation": p.dilation[i]}
    spaces = {
        "Weights": [*group, [["K"]], [["C"]], *([[taps]] for _, _, taps, _ in axes)],
        "Inputs": [
            *([["N"]], *group, [["C"]]),
            *([[taps, f"{axis}dilation"], [output, f"{axis}stride"]] for axis, output, taps, _ in axes),
        ],
        "Outputs": [[["N"]], *group, [["K"]], *([[output]] for _, output, _, _ in axes)],
    }
    return sizes, spaces, coefficients


def _text(
    name: str,
    sizes: Mapping[str, int],
    spaces: Spaces,
    coefficients: Mapping[str, int],
    densities: Mapping[str, float],
    is_old: bool,
) -> str:
    """The problem in YAML. A data space has the name of a dimension only where its lists are apart."""
    data_spaces, read_write = ("data-spaces", "read-write") if is_old else ("data_spaces", "read_write")
    written = list(spaces)[-1]
    lines = ["problem:", *([] if is_old else ["  version: 0.4"]), "  shape:", f"    name: {name}"]
    lines.append(f"    dimensions: [{', '.join(sizes)}]")
    if coefficients:
        lines += ["    coefficients:", *(f"    - {{name: {word}, default: 1}}" for word in coefficients)]
    lines.append(f"    {data_spaces}:")
    for space, axes in spaces.items():
        lines += [f"    - name: {space}", f"      projection: {_listed(axes)}"]
        lines += [f"      {read_write}: true"] if space == written else []
    lines += ["  instance:", *(f"    {word}: {size}" for word, size in {**sizes, **coefficients}.items())]
    if densities:
        lines.append("    densities:")
        lines += [
            f"      {space}: {{distribution: hypergeometric, density: {density:.17g}}}"
            for space, density in densities.items()
        ]
    return "\n".join(lines) + "\n"


def _listed(value: Any) -> str:
    """A list of lists of words in YAML."""
    return value if isinstance(value, str) else f"[{', '.join(map(_listed, value))}]"


FORMAT = Timeloop()
