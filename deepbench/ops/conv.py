"""Convolution of two or three dimensions: y = x ∗ w, and its gradients for data and for weights.

As in neural networks the filter is not turned round (a cross-correlation). With the field's letters: n images of c
channels, h × w (and d deep); k filters of r × s (and t deep); outputs are p × q (and z deep).

    forward           y[n,k,p,q]  = Σ x[n,c,p·stride − pad + r·dilation, …] · w[k,c,r,s]   (+ b[k] with bias=yes)
    backward_data     dx[n,c,h,w] = the gradient of Σ y·dy for x
    backward_weights  dw[k,c,r,s] = the gradient of Σ y·dy for w                          (and db[k] with bias=yes)

Channels fall into `groups` that do not see each other; groups = c is a depthwise convolution. Arrays are NCHW and KCRS
(NCDHW and KCTRS in three dimensions); with the setting `layout=nhwc` channels come last, in filters too (KRSC).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.core.op import Comparison, Op
from deepbench.core.precision import BITS, STORAGE_ROUNDOFF
from deepbench.core.problem import BaseProblem, size

if TYPE_CHECKING:
    import numpy as np

    from deepbench.core.case import Case
    from deepbench.core.op import Arrays
    from deepbench.core.precision import Precision

    Array = np.ndarray[Any, Any]

# Up to so many multiply-adds every element is computed in float64 (a tenth of a second).
FULL_CHECK_MULTIPLY_ADDS = 2**27
# Beyond, channels are summed with random signs, so many at a time, and one channel of each such block is taken alone.
BLOCK, BLOCK_16_BITS = 32, 16

# Allowed error of an element, in units of roundoff · √(products) · √(sum of their squares); random signs give 0.7 of it
# for direct summation. Winograd's transforms of 4 × 4 tiles lose up to ten times as much.
# Barabasz et al., "Error analysis and improving the accuracy of Winograd convolution for deep neural networks", 2020.
TOLERANCE_UNITS = 64.0
# Where results are stored in 16 bits, libraries may round partial sums to 16 bits on the way: PyTorch's backward passes
# on CPUs add taps (of data) or images (of weights) so. The roundings of so many additions grow like their root; the
# largest of ten million elements was at 1.5 to 2.5 times that, in roundoff of a typical element.
PARTIAL_SUMS, LEAST_PARTIAL_SUMS = 3.0, 8.0
FORWARD_PARTIAL_SUMS = 2.0
# A sum of errors with random signs: the root of the sum of their squares, times this for safety.
SUM_SAFETY = 4.0

# Winograd's F(4 × 4, 3 × 3) multiplies 36 times where the definition does 144: a rate may be so far above the roof.
WINOGRAD = 4.0

LARGEST_FILTER = 4096


@dataclass(frozen=True)
class Conv(BaseProblem):
    """Sizes of one convolution; `d`, `t` and what belongs to them are for three dimensions."""

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
            raise BadInput(f"groups={self.groups} must divide c={self.c} and k={self.k}")
        for name, output in zip("dhw", self.output, strict=True):
            if output < 1:
                raise BadInput(
                    f"the filter is larger than the padded image in {name}; make the image or pad_{name} larger"
                )

    @property
    def dimensions(self) -> int:
        """2, or 3 where there is any depth."""
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
        """1 where a filter is dense, as cuDNN and PyTorch count; oneDNN counts one less."""
        return self.dilation_d, self.dilation_h, self.dilation_w

    @property
    def output(self) -> tuple[int, int, int]:
        """z, p, q: places where the filter fits."""
        z, p, q = (
            1 + (image + 2 * pad - dilation * (filter_ - 1) - 1) // stride
            for image, filter_, pad, stride, dilation in zip(
                self.image, self.filter, self.pad, self.stride, self.dilation, strict=True
            )
        )
        return z, p, q


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
        """All arrays of this direction at their stored sizes."""
        return sum(_count(shape) * BITS[kind] // 8 for shape, kind in self._layout(case).values())

    def operands(self, case: Case) -> Arrays:
        """The arrays of this direction, shaped as they lie in memory; see the top of this file."""
        from deepbench.core import operands

        made = {}
        for stream, (name, (shape, kind)) in enumerate(self._layout(case).items()):
            stored = _channels_last(shape) if self._last(case, name) else shape
            made[name] = operands.empty(stored, kind) if name in self.outputs else operands.random(stored, kind, stream)
        self.reset(case, made)
        return made

    def reset(self, case: Case, arrays: Arrays) -> None:
        """Poison: every output is written, none is added to."""
        from deepbench.core.operands import poison

        for name in self.outputs:
            if name in arrays:
                poison(arrays[name])

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """The outputs of this direction, shaped as they lie in memory."""
        p, seen = case.problem, self._seen(case, arrays)
        if case.direction == "forward":
            found = {"y": self._stored(case, _forward(p, seen["x"], seen["w"]), seen.get("b"))}
        elif case.direction == "backward_data":
            found = {"dx": _backward_data(p, seen["dy"], seen["w"])}
        else:
            found = {"dw": _backward_weights(p, seen["x"], seen["dy"])}
            if "db" in arrays:
                found["db"] = seen["dy"].sum(axis=(0, 2, 3, 4), dtype="float64")
        return {n: self._as_stored(case, n, values) for n, values in found.items()}

    def compare(self, case: Case, arrays: Arrays) -> Iterator[Comparison]:
        """Every element of a small convolution; of a large one every element within a sum, and a sample alone."""
        import numpy as np

        seen = self._seen(case, arrays)
        if "db" in arrays:
            want = seen["dy"].sum(axis=(0, 2, 3, 4), dtype=np.float64)
            squares = (seen["dy"].astype(np.float64) ** 2).sum(axis=(0, 2, 3, 4))
            count = seen["dy"].size // want.size
            tolerance = TOLERANCE_UNITS * case.precision.roundoff * np.sqrt(count * squares)
            tolerance += STORAGE_ROUNDOFF[self.result_type(case)] * (
                np.abs(want) + self._partial_sums(case) * np.sqrt(squares)
            )
            got = seen["db"].astype(np.float64)
            yield Comparison("every element of db", got, want, tolerance, want.size, want.size, "db")
        if self._rounds_to_integers(case):
            yield self._requantised(case, seen)
        else:
            small = self._multiply_adds(case) <= FULL_CHECK_MULTIPLY_ADDS
            channels = self._channels(case)
            block = BLOCK if STORAGE_ROUNDOFF[self.result_type(case)] == 0 else BLOCK_16_BITS
            yield self._summed(case, seen, *(_each(channels) if small or channels == 1 else _blocks(channels, block)))

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """A bias has no part in the gradient of the data; what is summed as it is stored has one kind of result."""
        bias = ("bias",) if direction == "backward_data" else ()
        return (*bias, "result") if precision.data == precision.result else bias

    def workspace_bytes(self, case: Case) -> int:
        """Outputs, and data with their squares, in float64: what the check holds."""
        return 24 * sum(_count(shape) for shape, _ in self._layout(case).values())

    def flop(self, case: Case) -> int:
        """2·n·k·p·q·(c/groups)·r·s (·z·t): the original's count, products with padding zeros included."""
        return 2 * self._multiply_adds(case)

    def other_flop(self, case: Case) -> dict[str, int]:
        """`without_padding`: products with padding zeros left out."""
        p = case.problem
        places = 1
        for i in range(3):
            places *= _real_places(p.image[i], p.filter[i], p.pad[i], p.stride[i], p.dilation[i], p.output[i])
        return {"without_padding": 2 * p.n * p.k * (p.c // p.groups) * places}

    def least_flop(self, case: Case) -> float:
        """Padding may be left out, and Winograd's algorithm saves multiplications where filters overlap."""
        overlap = case.problem.stride == (1, 1, 1) and max(case.problem.filter) > 1
        return self.other_flop(case)["without_padding"] / (WINOGRAD if overlap else 1.0)

    def traffic_bytes(self, case: Case) -> int:
        """Every array of this direction once."""
        return self.operand_bytes(case)

    def result_type(self, case: Case) -> str:
        """`result=narrow`: as the next layer reads it, in the type of the data. `wide`: as sums are kept."""
        return case.precision.data if case.settings["result"] == "narrow" else case.precision.result

    def title(self, problem: Any) -> str:
        """`16 × 64 × 56 × 56, 64 of 3 × 3, stride 2, pad 1`: n × c × h × w, then filters."""
        p = problem
        deep = slice(0 if p.dimensions == 3 else 1, None)
        parts = [_times(p.n, p.c, *p.image[deep]), f"{p.k} of {_times(*p.filter[deep])}"]
        for name, values, usual in (("stride", p.stride, 1), ("pad", p.pad, 0), ("dilation", p.dilation, 1)):
            shown = values[deep]
            if set(shown) != {usual}:
                parts.append(f"{name} {shown[0] if len(set(shown)) == 1 else _times(*shown)}")
        return ", ".join([*parts, *([f"{p.groups} groups"] if p.groups > 1 else [])])

    def facts(self, case: Case) -> dict[str, Any]:
        """`scale`: what integer sums are multiplied by before they are rounded to 8 bits."""
        return {"scale": self._scale(case)} if self._rounds_to_integers(case) else {}

    def _scale(self, case: Case) -> float:
        """What integer sums are multiplied by before they are rounded to 8 bits; a power of two, so exact.

        Chosen so that about three standard deviations of the sums fill the 8 bits.
        """
        p, kind = case.problem, {"u8": 17.8, "s8": 8.9}[case.precision.data]  # root mean squares, see arrays.py
        deviation = 8.9 * kind * math.sqrt(p.c // p.groups * math.prod(p.filter))
        return 2.0 ** -math.ceil(math.log2(3 * deviation / 128))

    # ---- arrays

    def _layout(self, case: Case) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name → logical shape and type, inputs first."""
        p, types, result = case.problem, case.precision, self.result_type(case)
        deep = slice(0 if p.dimensions == 3 else 1, None)
        x, y = (p.n, p.c, *p.image[deep]), (p.n, p.k, *p.output[deep])
        w = (p.k, p.c // p.groups, *p.filter[deep])
        bias = case.settings["bias"] == "yes"
        if case.direction == "forward":
            kind = "f32" if types.roundoff else "s32"
            named = {"x": (x, types.data), "w": (w, types.weights)}
            return {**named, **({"b": ((p.k,), kind)} if bias else {}), "y": (y, result)}
        if case.direction == "backward_data":
            return {"dy": (y, types.data), "w": (w, types.weights), "dx": (x, result)}
        named = {"x": (x, types.data), "dy": (y, types.data), "dw": (w, result)}
        return {**named, **({"db": ((p.k,), result)} if bias else {})}

    def _last(self, case: Case, name: str) -> bool:
        return case.settings["layout"] == "nhwc" and name not in ("b", "db")

    def _seen(self, case: Case, arrays: Arrays) -> Arrays:
        """Every array as N, C, D, H, W (or K, C, T, R, S), whatever its layout: views, nothing is copied."""
        import numpy as np

        seen = {}
        for name, array in arrays.items():
            view = np.moveaxis(array, -1, 1) if self._last(case, name) else array
            seen[name] = view[:, :, None] if view.ndim == 4 else view
        return seen

    def _as_stored(self, case: Case, name: str, values: Array) -> Array:
        import numpy as np

        if values.ndim == 5 and case.problem.dimensions == 2:
            values = values[:, :, 0]
        return np.moveaxis(values, 1, -1) if self._last(case, name) else values

    def _stored(self, case: Case, y: Array, bias: Array | None) -> Array:
        """Sums as they are stored: with the bias, and rounded where they are scaled to 8 bits."""
        import numpy as np

        if bias is not None:
            y = y + bias[None, :, None, None, None]
        if not self._rounds_to_integers(case):
            return y
        low, high = {"s8": (-128, 127), "u8": (0, 255)}[self.result_type(case)]
        return np.clip(np.rint(y * self._scale(case)), low, high)

    # ---- checking

    def _multiply_adds(self, case: Case) -> int:
        p = case.problem
        return int(p.n * p.k * _count(p.output) * (p.c // p.groups) * _count(p.filter))

    def _partial_sums(self, case: Case) -> float:
        """Roundings of a typical element, beside the one of the result."""
        if case.direction == "forward":
            return FORWARD_PARTIAL_SUMS
        p = case.problem
        met = _count(p.filter) / _count(p.stride)  # taps that an element of the image takes part in
        additions: float = met if case.direction == "backward_data" else p.n
        return max(LEAST_PARTIAL_SUMS, PARTIAL_SUMS * math.sqrt(additions))

    def _rounds_to_integers(self, case: Case) -> bool:
        return case.direction == "forward" and self.result_type(case) in ("s8", "u8")

    def _output(self, case: Case) -> str:
        return {"forward": "y", "backward_data": "dx", "backward_weights": "dw"}[case.direction]

    def _channels(self, case: Case) -> int:
        """Channels of a group that sums run over: of dx for `backward_data`, else filters."""
        p = case.problem
        return int((p.c if case.direction == "backward_data" else p.k) // p.groups)

    def _requantised(self, case: Case, seen: Arrays) -> Comparison:
        """Every element within half a step of the exact value: what rounding means."""
        import numpy as np

        exact = _forward(case.problem, seen["x"], seen["w"])
        if "b" in seen:
            exact += seen["b"][None, :, None, None, None]
        low, high = {"s8": (-128, 127), "u8": (0, 255)}[self.result_type(case)]
        want = np.clip(exact * self._scale(case), low, high)
        return Comparison(
            "every element", seen["y"].astype(np.float64), want, np.full(want.shape, 0.5), want.size, want.size
        )

    def _summed(self, case: Case, seen: Arrays, how: str, rows: Array, safety: Array) -> Comparison:
        """Weighted sums of channels, each row of `rows` one: a convolution of so many channels instead of all.

        A convolution is linear in its filters (and the gradients in theirs and in dy), so the sum of outputs is the
        output of the sum, at a fraction of the cost. Errors of a sum add like their squares, times `safety`.
        """
        import numpy as np

        from deepbench.core.tolerance import sum_roundoff

        p, g, output = case.problem, case.problem.groups, self._output(case)
        weights = case.direction == "backward_weights"
        axis = 0 if weights else 1
        with np.errstate(invalid="ignore"):  # poison that was not overwritten is NaN, and must show as such
            raw = seen[output].astype(np.float64)
            got, got_squares = _mixed(rows, raw, axis, g), _mixed(rows**2, raw**2, axis, g)
        data, filters = seen["x" if "x" in seen else "dy"], seen["dy" if weights else "w"]
        mixed_axis = 0 if case.direction == "forward" else 1
        mixed = _mixed(rows, filters.astype(np.float64), mixed_axis, 1 if case.direction == "backward_data" else g)
        if case.direction == "forward":
            want = _forward(p, data, mixed)
            filter_squares = (filters.astype(np.float64) ** 2).sum(axis=(1, 2, 3, 4))
        elif case.direction == "backward_data":
            want = _backward_data(p, data, mixed)
            per_group = filters.astype(np.float64).reshape(g, p.k // g, p.c // g, -1)
            filter_squares = np.einsum("gkct,gkct->gc", per_group, per_group).reshape(-1)
        else:
            want = _backward_weights(p, data, mixed)
            filter_squares = (filters.astype(np.float64) ** 2).sum(axis=(0, 2, 3, 4))
        if "b" in seen:
            bias = seen["b"].astype(np.float64)
            want += _mixed(rows, bias, 0, g)[None, :, None, None, None]
        spread = _mixed(rows**2, filter_squares, 0, g)
        reached = _reached(case, data)
        if weights:
            squares = spread.reshape(g, -1, 1) * reached.reshape(g, 1, -1)
            squares = squares.reshape(len(want), -1)[:, :, None, None, None]
        else:
            squares = np.repeat(reached, len(rows), axis=1) * spread[None, :, None, None, None]
        if "b" in seen:  # one more addition
            squares = squares + _mixed(rows**2, bias**2, 0, g)[None, :, None, None, None]
        products = self._multiply_adds(case) / raw.size
        unit = TOLERANCE_UNITS * sum_roundoff(case.precision, products)
        shape = [1] * 5
        shape[axis] = -1
        with np.errstate(invalid="ignore"):
            partial = self._partial_sums(case) * np.sqrt(squares / products)
            tolerance = unit * np.sqrt(squares) + STORAGE_ROUNDOFF[self.result_type(case)] * (
                np.sqrt(got_squares) + partial
            )
        return Comparison(how, got, want, np.tile(safety, g).reshape(shape) * tolerance, raw.size, raw.size)


# ---- the mathematics, on N, C, D, H, W arrays


def _taps(p: Conv) -> Iterator[tuple[tuple[int, int, int], tuple[slice, ...]]]:
    """Each place in the filter, and the slices of the padded image that it meets."""
    for t in range(p.t):
        for r in range(p.r):
            for s in range(p.s):
                starts = [i * dilation for i, dilation in zip((t, r, s), p.dilation, strict=True)]
                yield (
                    (t, r, s),
                    tuple(
                        slice(start, start + stride * (output - 1) + 1, stride)
                        for start, stride, output in zip(starts, p.stride, p.output, strict=True)
                    ),
                )


def _padded(p: Conv, image: Array | None) -> Array:
    """One image (C, D, H, W) in float64 with its padding, or zeros of that size."""
    import numpy as np

    sizes = [size + 2 * pad for size, pad in zip(p.image, p.pad, strict=True)]
    made = np.zeros((p.c if image is None else len(image), *sizes))
    if image is not None:
        made[_inside(p)] = image
    return made


def _inside(p: Conv) -> tuple[slice, ...]:
    return (slice(None), *(slice(pad, pad + size) for size, pad in zip(p.image, p.pad, strict=True)))


def _forward(p: Conv, x: Array, w: Array) -> Array:
    """y; `w` may have any number of filters in each group."""
    import numpy as np

    g, k = p.groups, len(w) // p.groups
    filters = w.astype(np.float64).reshape(g, k, -1, *p.filter)
    y = np.zeros((len(x), g, k, _count(p.output)))
    for image, sums in zip(x, y, strict=True):
        padded = _padded(p, image)
        for tap, places in _taps(p):
            seen = padded[(slice(None), *places)].reshape(g, p.c // g, -1)
            sums += filters[(..., *tap)] @ seen
    return y.reshape(len(x), g * k, *p.output)


def _backward_data(p: Conv, dy: Array, w: Array) -> Array:
    """dx; `w` may have any number of channels in each group."""
    import numpy as np

    g, channels = p.groups, w.shape[1]
    filters = w.astype(np.float64).reshape(g, p.k // g, channels, *p.filter).swapaxes(1, 2)
    dx = np.empty((len(dy), g * channels, *p.image))
    for gradient, image in zip(dy, dx, strict=True):
        seen = gradient.astype(np.float64).reshape(g, p.k // g, -1)
        padded = np.zeros((g * channels, *(s + 2 * pad for s, pad in zip(p.image, p.pad, strict=True))))
        for tap, places in _taps(p):
            padded[(slice(None), *places)] += (filters[(..., *tap)] @ seen).reshape(g * channels, *p.output)
        image[...] = padded[_inside(p)]
    return dx


def _backward_weights(p: Conv, x: Array, dy: Array) -> Array:
    """dw; `dy` may have any number of filters in each group."""
    import numpy as np

    g, k = p.groups, dy.shape[1] // p.groups
    dw = np.zeros((g, k, p.c // g, *p.filter))
    for image, gradient in zip(x, dy, strict=True):
        padded = _padded(p, image)
        outer = gradient.astype(np.float64).reshape(g, k, -1)
        for tap, places in _taps(p):
            seen = padded[(slice(None), *places)].reshape(g, p.c // g, -1)
            dw[(..., *tap)] += outer @ seen.swapaxes(1, 2)
    return dw.reshape(g * k, p.c // g, *p.filter)


def _mixed(rows: Array, array: Array, axis: int, groups: int) -> Array:
    """Sums over `axis`, weighted by each row of `rows`, group by group."""
    before, after = _count(array.shape[:axis]), _count(array.shape[axis + 1 :])
    sums = rows @ array.reshape(before * groups, rows.shape[1], after)
    mixed: Array = sums.reshape(*array.shape[:axis], groups * len(rows), *array.shape[axis + 1 :])
    return mixed


def _reached(case: Case, data: Array) -> Array:
    """Sums of squares of the data that each output meets: by image, group and place; for dw by channel of x."""
    import dataclasses

    import numpy as np

    p = case.problem
    if case.direction == "backward_weights":
        by_channel: Array = (data.astype(np.float64) ** 2).sum(axis=(0, 2, 3, 4))
        return by_channel
    squares = data.astype(np.float64).reshape(len(data), p.groups, -1, *data.shape[2:])
    squares = np.einsum("ngc...,ngc...->ng...", squares, squares)
    alone, ones = dataclasses.replace(p, c=p.groups, k=p.groups), np.ones((p.groups, 1, *p.filter))
    reached: Array = (_forward if case.direction == "forward" else _backward_data)(alone, squares, ones)
    return reached


def _each(channels: int) -> tuple[str, Array, Array]:
    """Every channel alone: how to say it, rows of weights, and what the tolerance is multiplied by."""
    import numpy as np

    return "every element", np.eye(channels), np.ones(channels)


def _blocks(channels: int, block: int) -> tuple[str, Array, Array]:
    """One channel of each block alone, then all channels of each block with random signs."""
    import numpy as np

    from deepbench.core.operands import generator

    choices = generator(stream=9)
    starts = range(0, channels, block)
    single, signs = np.zeros((2, len(starts), channels))
    for row, start in enumerate(starts):
        width = min(block, channels - start)
        single[row, start + choices.integers(0, width)] = 1.0
        signs[row, start : start + width] = choices.integers(0, 1, width, endpoint=True) * 2.0 - 1.0
    safety = np.repeat([1.0, SUM_SAFETY], len(starts))
    return f"one channel in {block}, and every element in a sum of {block}", np.r_[single, signs], safety


def _real_places(image: int, filter_: int, pad: int, stride: int, dilation: int, output: int) -> int:
    """Pairs of an output and a place in the filter that meet the image and not its padding, in one dimension."""
    total = 0
    for r in range(filter_):
        offset = r * dilation - pad
        first = max(0, -(-(0 - offset) // stride))
        last = min(output - 1, (image - 1 - offset) // stride)
        total += max(0, last - first + 1)
    return total


def _count(shape: tuple[int, ...]) -> int:
    import math

    return math.prod(shape)


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], *shape[2:], shape[1])


def _times(*sizes: int) -> str:
    return " × ".join(map(str, sizes))


OP = ConvOp()
