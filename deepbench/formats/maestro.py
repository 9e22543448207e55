"""MAESTRO: a network in its own language, with the dataflow of each layer.

The dataflow is a part of the workload there: channels and filters are spread over the processing elements, and weights
stay (`KC_P_WS`, as MAESTRO's authors call it). Its tiles are those of their template; change them for your array. A
convolution is written with its padded images. Other products are layers of type GEMM.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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

CONV_DATAFLOW = (
    "SpatialMap(1,1) K;",
    "TemporalMap(64,64) C;",
    "TemporalMap(Sz(R),Sz(R)) R;",
    "TemporalMap(Sz(S),Sz(S)) S;",
    "TemporalMap(Sz(R),1) Y;",
    "TemporalMap(Sz(S),1) X;",
    "Cluster(64, P);",
    "SpatialMap(1,1) C;",
    "TemporalMap(Sz(R),1) Y;",
    "TemporalMap(Sz(S),1) X;",
    "TemporalMap(Sz(R),Sz(R)) R;",
    "TemporalMap(Sz(S),Sz(S)) S;",
)
GEMM_DATAFLOW = (
    "SpatialMap(1,1) M;",
    "TemporalMap(1,1) N;",
    "TemporalMap(64,64) K;",
    "Cluster(64, P);",
    "SpatialMap(1,1) K;",
)

LAYER = re.compile(r"Layer (\w+) \{\n((?:.*\n)*?)  Dataflow")


class Maestro(ProblemFormat):
    name = "maestro"
    reads = "MAESTRO"

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`network.m`."""
        export, lines = ProblemExport(), []
        convolutions, products = divided(problems, _is_plain, export)
        for problem, p in convolutions:
            lines += _conv(problem.name, p)
        for _, product, layer in layers_of_products(products, export):
            sizes = {"M": product.m, "N": product.n, "K": product.k}
            lines += _layer(layer.name, ["Type: GEMM"], sizes, GEMM_DATAFLOW)
        export.files["network.m"] = "\n".join(["Network deepbench {", *lines, "}"]) + "\n"
        return export

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """M · N · K; of a convolution the outputs that its padded images and its stride give, times the filter."""
        counts = {}
        for name, body in LAYER.findall(text_of(export, "network.m")):
            sizes = {word: int(size) for word, size in re.findall(r"\b([A-Z]): (\d+)", body.split("Dimensions")[1])}
            if "Type: GEMM" in body:
                counts[name] = sizes["M"] * sizes["N"] * sizes["K"]
                continue
            stride_x, stride_y = map(int, re.findall(r"Stride \{ X: (\d+), Y: (\d+) \}", body)[0])
            rows, columns = (sizes["Y"] - sizes["R"]) // stride_y + 1, (sizes["X"] - sizes["S"]) // stride_x + 1
            counts[name] = sizes["N"] * sizes["K"] * sizes["C"] * sizes["R"] * sizes["S"] * rows * columns
        return counts


def _is_plain(p: Conv) -> bool:
    """It knows neither dilation nor groups, and two dimensions only."""
    return p.groups == 1 and p.dimensions == 2 and set(p.dilation) == {1}


def _conv(name: str, p: Conv) -> list[str]:
    sizes = {"N": p.n, "K": p.k, "C": p.c, "R": p.r, "S": p.s, "Y": p.h + 2 * p.pad_h, "X": p.w + 2 * p.pad_w}
    return _layer(name, ["Type: CONV", f"Stride {{ X: {p.stride_w}, Y: {p.stride_h} }}"], sizes, CONV_DATAFLOW)


def _layer(name: str, words: list[str], sizes: dict[str, int], dataflow: Sequence[str]) -> list[str]:
    dimensions = ", ".join(f"{word}: {size}" for word, size in sizes.items())
    return [
        f"Layer {name} {{",
        *(f"  {word}" for word in words),
        f"  Dimensions {{ {dimensions} }}",
        "  Dataflow {",
        *(f"    {line}" for line in dataflow),
        "  }",
        "}",
    ]


FORMAT = Maestro()
