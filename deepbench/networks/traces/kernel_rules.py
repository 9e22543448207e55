"""Which kernel an operator is, from the shapes of its arrays: the rules that all readers of networks share.

Every rule returns the text of a kernel, or raises `BadInput` if it is none of ours. The shape of an image is (images,
channels, sides), in whatever order it is stored; the last side is the width.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deepbench.core.errors import BadInput
from deepbench.core.precision import PRECISIONS
from deepbench.networks.traces.kernels import kernel_text

AXES = ("d", "h", "w")

Shape = Sequence[int]

ONE_SIDED = "its padding is not the same on both sides, and that of its kernel is: outputs and FLOP are the same"
BIASED = "it adds a bias, or computes the gradient of one, and its kernel has none"
ADDED = "it adds to numbers that are in memory, and its kernel does not"
RESCALED = "it rescales or converts its numbers, and its kernel does not"
LOGARITHM = "it is the logarithm of a softmax, and its kernel a softmax"
SHARED = "products of a batch share an operand or parts of it, and each has its own in the kernel"


# ---- memory


def is_dense(shape: Shape, strides: Sequence[int]) -> bool:
    """Whether an array fills its part of the memory without gaps, in any order of its axes. Strides are in elements."""
    size = 1
    for stride, length in sorted(zip(strides, shape, strict=True)):
        if length != 1:
            if stride != size:
                return False
            size *= length
    return True


def distinct(shape: Shape, strides: Sequence[int]) -> int:
    """How many elements of an array differ in memory: repeated ones count once."""
    return math.prod(n for n, stride in zip(shape, strides, strict=True) if stride or not n)


# ---- types


def result_setting(precision: str | None, kind: str) -> str:
    """The setting `result` of a product or convolution that stores numbers of this type.

    `BadInput` if its kernels store none of them. Sums of integers that are stored as f32 are converted at the end.
    """
    types = PRECISIONS.get(precision or "")
    if types is None:
        raise BadInput(f"there is no precision {precision}")
    if kind in (types.result, "f32" if types.result == "s32" else ""):
        return "wide"
    if kind != types.data:
        raise BadInput(f"no kernel in {precision} has results in {kind}")
    return "narrow"


# ---- images


@dataclass(frozen=True)
class Window:
    """How filters or windows lie in an image: a value for each axis."""

    sides: Sequence[int]
    stride: Sequence[int]
    low: Sequence[int]
    """Padding before the first pixel."""
    dilation: Sequence[int]

    def sizes(self, image: Shape, outputs: Shape) -> dict[str, int]:
        """Fields of a convolution or of pooling, from an image to its result."""
        values = (image[2:], self.sides, outputs[2:], self.stride, self.dilation, self.low)
        found = [_centered(*axis) for axis in zip(*values, strict=True)]
        window = _spatial("", self.sides, 1)
        return {
            "n": image[0],
            "c": image[1],
            **_spatial("", [side for side, _ in found], 1),
            **{"t": window["d"], "r": window["h"], "s": window["w"]},
            **_spatial("pad_", [pad for _, pad in found], 0),
            **_spatial("stride_", self.stride, 1),
        }

    def is_even(self, image: Shape, outputs: Shape) -> bool:
        """Whether a kernel with the same padding on both sides has exactly this image and these outputs."""
        values = (image[2:], self.sides, outputs[2:], self.stride, self.dilation, self.low)
        return all(_centered(*axis) == (axis[0], axis[-1]) for axis in zip(*values, strict=True))


def convolution(
    window: Window,
    image: Shape,
    outputs: Shape,
    precision: str | None,
    direction: str = "forward",
    groups: int = 1,
    notes: Counter[str] | None = None,
    /,
    **settings: str,
) -> str:
    """A convolution from an image to a result, or a gradient of it; `notes` counts those that differ from their kernel.

    A transposed convolution is the data gradient of the convolution from its result to its image.
    """
    sizes = {**window.sizes(image, outputs), "k": outputs[1], "groups": groups}
    text = kernel_text("conv", sizes | _spatial("dilation_", window.dilation, 1), precision, direction, **settings)
    return _noted(text, window, image, outputs, notes)


def pooling(
    kind: str,
    window: Window,
    image: Shape,
    outputs: Shape,
    precision: str | None,
    direction: str = "forward",
    notes: Counter[str] | None = None,
    /,
    **settings: str,
) -> str:
    """The largest number or the average of each window; `notes` counts those that differ from their kernel."""
    if any(n != 1 for n in window.dilation):
        raise BadInput("windows with gaps are not supported")
    text = kernel_text("pooling", {"kind": kind, **window.sizes(image, outputs)}, precision, direction, **settings)
    return _noted(text, window, image, outputs, notes)


def _noted(kernel: str, window: Window, image: Shape, outputs: Shape, notes: Counter[str] | None) -> str:
    if notes is not None and not window.is_even(image, outputs):
        notes[ONE_SIDED] += 1
    return kernel


def upsample(image: Shape, outputs: Shape, precision: str | None, direction: str = "forward", **settings: str) -> str:
    """The nearest neighbour, by one whole factor in both directions."""
    if len(image) != 4 or image[:2] != outputs[:2] or not min(image):
        raise BadInput("it is not an image that becomes larger")
    factors = {larger / side for side, larger in zip(image[2:], outputs[2:], strict=True)}
    if len(factors) > 1 or outputs[2] % image[2]:
        raise BadInput("the factor is no whole number, or it differs between the directions")
    n, c, h, w = image
    return kernel_text(
        "upsample", {"n": n, "c": c, "h": h, "w": w, "scale": outputs[2] // h}, precision, direction, **settings
    )


def batch_norm(image: Shape, precision: str | None, direction: str = "forward", **settings: str) -> str:
    """Statistics of each channel over all images."""
    sizes = {"n": image[0], "c": image[1], **_spatial("", image[2:], 1)}
    return kernel_text("batch_norm", sizes, precision, direction, **settings)


def group_norm(image: Shape, groups: int, precision: str | None, direction: str = "forward") -> str:
    """Statistics of some channels of each image."""
    sizes = {"n": image[0], "c": image[1], "h": math.prod(image[2:]), "w": 1, "groups": groups}
    return kernel_text("group_norm", sizes, precision, direction)


def _spatial(prefix: str, values: Sequence[int], empty: int) -> dict[str, int]:
    """`pad_d`, `pad_h` and `pad_w` for the values of one to three axes. One axis is the width."""
    if len(values) > len(AXES):
        raise BadInput(f"an image has at most {len(AXES)} axes, found {len(values)}")
    full = [empty] * (len(AXES) - len(values)) + list(values)
    return {f"{prefix}{name}": value for name, value in zip(AXES, full, strict=True)}


def _centered(side: int, window: int, count: int, stride: int, dilation: int, low: int) -> tuple[int, int]:
    """Side of an image and its padding at each end, with which a window has so many outputs (`count`).

    Frameworks may pad one end (`low`) more than the other. Ours have the same padding at both: where no such padding
    gives these outputs, the image is a pixel larger, or as much smaller as is cut off. So the FLOP are always right.
    """
    least = (count - 1) * stride + dilation * (window - 1) + 1 - side
    most = least + stride - 1
    if low >= 0 and least <= 2 * low <= most:
        return side, low
    even = max(0, least + least % 2)
    if even <= most:
        return side, even // 2
    return (side + 1, least // 2) if least > 0 else (side + most, 0)


# ---- products


def product(
    batch: int,
    m: int,
    n: int,
    k: int,
    precision: str | None,
    *,
    a_t: int = 0,
    b_t: int = 0,
    beta: str = "0",
    result: str = "wide",
) -> str:
    """One product of matrices, or a batch of them. Matrices are stored by columns."""
    sizes = {"m": m, "n": n, "k": k, "a_t": a_t, "b_t": b_t}
    if batch == 1:
        return kernel_text("gemm", sizes, precision, beta=beta, result=result)
    return kernel_text("batched_gemm", {"batch": batch, **sizes}, precision, result=result)


def attention(
    query: Shape, key: Shape, value: Shape, is_causal: bool, precision: str | None, direction: str = "forward"
) -> str:
    """Attention of arrays of (batch, heads, positions, size); there may be several axes of batches, or none."""
    if min(map(len, (query, key, value))) < 3:
        raise BadInput("attention has heads, positions and sizes")
    sizes: dict[str, int | str] = {
        "batch": math.prod(query[:-3]),
        "heads": query[-3],
        "kv_heads": key[-3],
        "queries": query[-2],
        "keys": key[-2],
        "head_size": query[-1],
        "value_size": value[-1],
        "mask": "causal" if is_causal else "none",
    }
    return kernel_text("attention", sizes, precision, direction)


# ---- rows and elements


def by_rows(op: str, shape: Shape, columns: int, precision: str | None, direction: str = "forward", **more: int) -> str:
    """An operation on each row of so many elements, such as a softmax or a normalization."""
    rows = math.prod(shape) // columns if columns else 0
    return kernel_text(op, {"rows": rows, "columns": columns, **more}, precision, direction)


def top_k(shape: Shape, k: int, precision: str | None, **settings: str) -> str:
    """The largest elements of each row."""
    rows = math.prod(shape[:-1])
    return kernel_text("top_k", {"rows": rows, "columns": shape[-1], "k": k}, precision, **settings)


def reduction(kind: str, shape: Shape, axes: Iterable[int], precision: str | None) -> str:
    """A reduction of a row-major array over its first or its last axes."""
    chosen = sorted({axis % len(shape) for axis in axes}) if shape else []
    rest = [i for i in range(len(shape)) if i not in chosen]
    over, kept = (math.prod(shape[i] for i in group) for group in (chosen, rest))
    if chosen and chosen == list(range(len(rest), len(shape))):
        return kernel_text("reduction", {"kind": kind, "rows": kept, "columns": over}, precision)
    if chosen and chosen == list(range(len(chosen))):
        return kernel_text("reduction", {"kind": kind, "rows": over, "columns": kept, "axis": "rows"}, precision)
    raise BadInput("a reduction is over the first or the last axes")


def elementwise(kind: str, n: int, precision: str | None, direction: str = "forward") -> str:
    """A function of each of so many elements."""
    return kernel_text("elementwise", {"kind": kind, "n": n}, precision, direction)


def embedding(rows: int, dim: int, bags: int, precision: str | None, direction: str = "forward", bag: int = 1) -> str:
    """Rows of a table, chosen by their numbers, or sums of so many of them."""
    return kernel_text("embedding_bag", {"rows": rows, "dim": dim, "bags": bags, "bag": bag}, precision, direction)
