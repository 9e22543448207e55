"""Sizes of a convolution, and what follows from them: shapes, types, and number of multiply-adds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepbench.core.errors import BadInput
from deepbench.core.problem import BaseProblem, size
from deepbench.core.windows import Windows

if TYPE_CHECKING:
    from deepbench.core.case import Case

LARGEST_FILTER = 4096

# Ranges of the 8-bit types, and root mean squares of the random values in `core/operands.py`.
RANGES = {"s8": (-128, 127), "u8": (0, 255)}
RMS = {"s8": 8.9, "u8": 17.8}


@dataclass(frozen=True)
class Conv(BaseProblem):
    """Sizes of one convolution. `d`, `t` and the fields that end in `_d` are for three dimensions."""

    n: int = size()
    c: int = size()
    h: int = size()
    w: int = size()
    k: int = size()
    r: int = size(most=LARGEST_FILTER)
    s: int = size(most=LARGEST_FILTER)
    pad_h: int = size(default=0, least=0)
    pad_w: int = size(default=0, least=0)
    stride_h: int = size(default=1)
    stride_w: int = size(default=1)
    dilation_h: int = size(default=1, omit_default=True)
    dilation_w: int = size(default=1, omit_default=True)
    groups: int = size(default=1, omit_default=True)
    d: int = size(default=1, omit_default=True)
    t: int = size(default=1, most=LARGEST_FILTER, omit_default=True)
    pad_d: int = size(default=0, least=0, omit_default=True)
    stride_d: int = size(default=1, omit_default=True)
    dilation_d: int = size(default=1, omit_default=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.c % self.groups or self.k % self.groups:
            raise BadInput(f"c and k must be multiples of groups, found c={self.c}, k={self.k}, groups={self.groups}")
        for name, output in zip("dhw", self.output, strict=True):
            if output < 1:
                raise BadInput(f"the filter is larger than the padded image; increase {name} or pad_{name}")

    @property
    def dimensions(self) -> int:
        """3 if the image, the filter or the padding has depth, else 2."""
        return 3 if self.d > 1 or self.t > 1 or self.pad_d else 2

    @property
    def image(self) -> tuple[int, int, int]:
        """d, h, w."""
        return self.d, self.h, self.w

    @property
    def filter(self) -> tuple[int, int, int]:
        """t, r, s."""
        return self.t, self.r, self.s

    @property
    def pad(self) -> tuple[int, int, int]:
        return self.pad_d, self.pad_h, self.pad_w

    @property
    def stride(self) -> tuple[int, int, int]:
        return self.stride_d, self.stride_h, self.stride_w

    @property
    def dilation(self) -> tuple[int, int, int]:
        """1 for a dense filter, as in cuDNN and PyTorch; oneDNN counts from 0."""
        return self.dilation_d, self.dilation_h, self.dilation_w

    @property
    def windows(self) -> tuple[Windows, Windows, Windows]:
        """What the filter meets in d, h and w."""
        sizes = zip(self.image, self.filter, self.pad, self.stride, self.dilation, strict=True)
        d, h, w = (Windows(*of_dimension) for of_dimension in sizes)
        return d, h, w

    @property
    def output(self) -> tuple[int, int, int]:
        """z, p, q."""
        z, p, q = (windows.count for windows in self.windows)
        return z, p, q

    @property
    def multiply_adds(self) -> int:
        """n·k·z·p·q·(c/groups)·t·r·s, in every direction."""
        return self.n * self.k * math.prod(self.output) * (self.c // self.groups) * math.prod(self.filter)

    @property
    def multiply_adds_without_padding(self) -> int:
        """The same, without products with padding."""
        return self.n * self.k * (self.c // self.groups) * math.prod(windows.pairs for windows in self.windows)

    @property
    def read(self) -> dict[str, int]:
        """How many elements of each array are multiplied with another element than padding."""
        return {
            "x": self.n * self.c * math.prod(windows.seen for windows in self.windows),
            "w": self.k * (self.c // self.groups) * math.prod(windows.useful_elements for windows in self.windows),
            "dy": self.n * self.k * math.prod(windows.useful for windows in self.windows),
        }


def layout(case: Case) -> dict[str, tuple[tuple[int, ...], str]]:
    """The arrays of a direction, inputs first: name → shape with channels first, and type."""
    p, types, result = case.problem, case.precision, result_type(case)
    spatial = slice(0 if p.dimensions == 3 else 1, None)
    x, y = ((p.n, p.c, *p.image[spatial]), types.data), (p.n, p.k, *p.output[spatial])
    w = (p.k, p.c // p.groups, *p.filter[spatial])
    bias = case.settings["bias"] == "yes"
    if case.direction == "forward":
        b = {"b": ((p.k,), "f32" if types.roundoff else "s32")} if bias else {}
        return {"x": x, "w": (w, types.weights), **b, "y": (y, result)}
    if case.direction == "backward_data":
        return {"dy": (y, types.data), "w": (w, types.weights), "dx": (x[0], result)}
    db = {"db": ((p.k,), result)} if bias else {}
    return {"x": x, "dy": (y, types.data), "dw": (w, result), **db}


def is_channels_last(case: Case, name: str) -> bool:
    """Whether this array is stored with channels last."""
    return case.settings["layout"] == "nhwc" and name not in ("b", "db")


def result_type(case: Case) -> str:
    """See `ConvOp.result_type`."""
    return case.precision.data if case.settings["result"] == "narrow" else case.precision.result


def is_quantized(case: Case) -> bool:
    """Whether integer sums are scaled and rounded to 8 bits."""
    return case.direction == "forward" and result_type(case) in RANGES


def quantization_scale(case: Case) -> float:
    """Factor that maps three standard deviations of the integer sums to 8 bits; a power of two, so exact."""
    p = case.problem
    deviation = RMS[case.precision.weights] * RMS[case.precision.data]
    deviation *= math.sqrt(p.c // p.groups * math.prod(p.filter))
    return 2.0 ** -math.ceil(math.log2(3 * deviation / 128))
