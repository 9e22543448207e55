"""Pooling: the largest number or the average of each window of each channel of an image.

    p = ⌊(h + 2·pad - r) / stride⌋ + 1         the same in the other dimensions

`max` ignores padding. `average` divides by the size of the window, padding included. The backward pass has the gradient
`dy` of y. That of `average` spreads it evenly over the window; that of `max` adds it to the largest number of the
window, the first in row-major order if several are equal. For that it has x, or what a library keeps of it from a
forward pass before: the positions. Everything has the type of the data. Layouts are as in convolutions: (n, c, h, w),
with `layout=nhwc` (n, h, w, c); in three dimensions d comes before h; `layout=any` as the convolutions of a library
leave them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from deepbench.core.errors import BadInput
from deepbench.core.parts import Expected, PartsOp, Tensor
from deepbench.core.precision import Precision
from deepbench.core.problem import BaseProblem, choice, size
from deepbench.core.windows import Windows

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

LARGEST_WINDOW = 4096


@dataclass(frozen=True)
class Pooling(BaseProblem):
    """Sizes as in a convolution, with windows of r × s. `d`, `t` and the fields in `_d` are for three dimensions."""

    kind: str = choice("max", "average")
    n: int = size()
    c: int = size()
    h: int = size()
    w: int = size()
    r: int = size(most=LARGEST_WINDOW)
    s: int = size(most=LARGEST_WINDOW)
    pad_h: int = size(default=0, least=0)
    pad_w: int = size(default=0, least=0)
    stride_h: int = size(default=1)
    stride_w: int = size(default=1)
    d: int = size(default=1, omit_default=True)
    t: int = size(default=1, most=LARGEST_WINDOW, omit_default=True)
    pad_d: int = size(default=0, least=0, omit_default=True)
    stride_d: int = size(default=1, omit_default=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, window, pad, output in zip("dhw", self.window, self.pad, self.output, strict=True):
            if 2 * pad > window:
                raise BadInput(f"pad_{name} must be at most half of the window, {window // 2}, found {pad}")
            if output < 1:
                raise BadInput(f"the window is larger than the padded image; increase {name} or pad_{name}")

    @property
    def dimensions(self) -> int:
        """3 if the image or the window has depth, else 2."""
        return 3 if self.d > 1 or self.t > 1 else 2

    @property
    def image(self) -> tuple[int, int, int]:
        """(d, h, w)."""
        return self.d, self.h, self.w

    @property
    def window(self) -> tuple[int, int, int]:
        """(t, r, s)."""
        return self.t, self.r, self.s

    @property
    def stride(self) -> tuple[int, int, int]:
        """In (d, h, w)."""
        return self.stride_d, self.stride_h, self.stride_w

    @property
    def pad(self) -> tuple[int, int, int]:
        """In (d, h, w)."""
        return self.pad_d, self.pad_h, self.pad_w

    @property
    def windows(self) -> tuple[Windows, Windows, Windows]:
        """What the windows meet in d, h and w."""
        d, h, w = (Windows(*sizes) for sizes in zip(self.image, self.window, self.pad, self.stride, strict=True))
        return d, h, w

    @property
    def output(self) -> tuple[int, int, int]:
        """(z, p, q)."""
        z, p, q = (windows.count for windows in self.windows)
        return z, p, q


class PoolingOp(PartsOp):
    name = "pooling"
    Problem = Pooling
    directions = ("forward", "backward")
    settings: ClassVar[dict[str, tuple[str, ...]]] = {"layout": ("nchw", "nhwc", "any")}
    outputs = ("y", "dx")
    sweep_field = "n"
    smoke = (
        Pooling("max", 1, 1, 1, 1, 1, 1),
        Pooling("max", 2, 5, 13, 11, 3, 3, 1, 1, 2, 2),
        Pooling("average", 2, 3, 9, 8, 3, 2, 1, 1, 2, 1),
        Pooling("average", 2, 16, 7, 7, 7, 7),
        Pooling("max", 1, 17, 9, 8, 2, 3, 1, 0, 1, 2),
        Pooling("max", 1, 3, 8, 9, 2, 2, stride_h=2, stride_w=2, d=7, t=2, stride_d=2),
        Pooling("average", 1, 4, 6, 5, 3, 3, 1, 1, 1, 1, d=5, t=3, pad_d=1),
    )

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def result_type(self, case: Case) -> str:
        """Results have the type of the data."""
        return case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`x` and `y`, or `x` (of `max`), `dy` and `dx`."""
        p, kind = case.problem, case.precision.data
        x, y = (Tensor(self._shape(case, sizes), kind) for sizes in (p.image, p.output))
        if case.direction == "forward":
            return {"x": x, "y": y}
        return {**({"x": x} if p.kind == "max" else {}), "dy": y, "dx": x}

    def _shape(self, case: Case, sizes: tuple[int, ...]) -> tuple[int, ...]:
        p = case.problem
        spatial = sizes[3 - p.dimensions :]
        return (p.n, *spatial, p.c) if case.settings["layout"] == "nhwc" else (p.n, p.c, *spatial)

    def parts(self, case: Case) -> int:
        """Images."""
        return int(case.problem.n)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """One image after the other, element by element of the window."""
        import numpy as np

        output = "y" if case.direction == "forward" else "dx"
        got = arrays[output][parts]
        want, tolerance = np.zeros((2, *got.shape))
        for at, part in enumerate(parts):
            inputs = {name: self._spatial_last(case, a[part]) for name, a in arrays.items() if name not in self.outputs}
            results = self._image(case, {name: a.astype(np.float64) for name, a in inputs.items()})
            for target, values in zip((want, tolerance), results, strict=True):
                self._spatial_last(case, target[at])[...] = values
        yield Expected(output, got, want, tolerance)

    def _spatial_last(self, case: Case, image: Array) -> Array:
        """A view of one image with the axes (c, d, h, w)."""
        import numpy as np

        view = np.moveaxis(image, -1, 0) if case.settings["layout"] == "nhwc" else image
        return view[:, None] if case.problem.dimensions == 2 else view

    def _image(self, case: Case, inputs: dict[str, Array]) -> tuple[Array, Array]:
        """The result of one image and its tolerance."""
        import numpy as np

        from deepbench.core.precision import STORAGE_ROUNDOFF
        from deepbench.core.tolerance import TOLERANCE_UNITS

        p, unit = case.problem, TOLERANCE_UNITS * case.precision.roundoff
        taps, size = _taps(p), math.prod(p.window)
        first = None
        if p.kind == "max":
            x = _padded(p, inputs["x"], -np.inf)
            largest = np.full((p.c, *p.output), -np.inf)
            first = np.zeros(largest.shape, np.int32)
            for number, tap in enumerate(taps):
                larger = x[tap] > largest
                first[larger], largest[larger] = number, x[tap][larger]
            if case.direction == "forward":
                return largest, np.zeros_like(largest)
        if case.direction == "forward":
            x = _padded(p, inputs["x"], 0.0)
            total, squares = sum(x[tap] for tap in taps), sum(x[tap] ** 2 for tap in taps)
            return total / size, unit * np.sqrt(squares * size) / size
        # Gradients of windows that overlap add, in the type of the data if a library stores them one by one.
        dx, squares, counts = (_padded(p, np.zeros((p.c, *p.image)), 0.0) for _ in range(3))
        for number, tap in enumerate(taps):
            dy = inputs["dy"] / size if first is None else inputs["dy"] * (first == number)
            dx[tap] += dy
            squares[tap] += dy**2
            counts[tap] += 1.0 if first is None else first == number
        unit += 2 * STORAGE_ROUNDOFF[case.precision.data] * bool(overlaps(p))
        tolerance = unit * np.sqrt(squares * counts) * (1.0 if first is None else counts > 1)
        inner = (slice(None), *(slice(pad, pad + length) for pad, length in zip(p.pad, p.image, strict=True)))
        return dx[inner], tolerance[inner]

    def flop(self, case: Case) -> int:
        """Forward: one per element of each window. Backward: for `average` the same, for `max` one per window."""
        p = case.problem
        windows = p.n * p.c * math.prod(p.output)
        return int(windows if case.direction == "backward" and p.kind == "max" else windows * math.prod(p.window))

    def other_flop(self, case: Case) -> dict[str, int]:
        """`without_padding`: without the elements of windows that are padding."""
        if case.direction == "backward" and case.problem.kind == "max":
            return {}
        p = case.problem
        return {"without_padding": int(p.n * p.c * math.prod(windows.pairs for windows in p.windows))}

    def least_flop(self, case: Case) -> float:
        """Padding can be skipped."""
        return float(self.other_flop(case).get("without_padding", self.flop(case)))

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Each array once, without the elements of x that no window has.

        For the gradient of `max`, x is not read: the positions take at least a byte per window.
        """
        if self.stays_in(case, capacity):
            return 0
        p, tensors = case.problem, self.tensors(case)
        if case.direction == "forward":
            seen = Tensor((p.n, p.c, *(windows.seen for windows in p.windows)), tensors["x"].type_name)
            return seen.bytes + tensors["y"].bytes
        if "x" not in tensors:
            return self.operand_bytes(case)
        return tensors["dy"].bytes + tensors["dx"].bytes + tensors["dy"].size

    def title(self, problem: Any) -> str:
        """`max 3 × 3 / 2 of 64 × 64 × 112 × 112`: window, stride, and n × c × h × w."""
        p, deep = problem, slice(3 - problem.dimensions, None)
        window, strides = " × ".join(map(str, p.window[deep])), p.stride[deep]
        text = str(strides[0]) if len(set(strides)) == 1 else " × ".join(map(str, strides))
        stride = "" if set(strides) == {1} else f" / {text}"
        image = " × ".join(map(str, (p.n, p.c, *p.image[deep])))
        return f"{p.kind} {window}{stride} of {image}"


def overlaps(p: Pooling) -> bool:
    """Whether an element may be in several windows."""
    return any(k > stride for k, stride in zip(p.window, p.stride, strict=True))


def _padded(p: Pooling, image: Array, value: float) -> Array:
    """The image (c, d, h, w) with its padding."""
    import numpy as np

    return np.pad(image, [(0, 0), *((pad, pad) for pad in p.pad)], constant_values=value)


def _taps(p: Pooling) -> list[tuple[slice, ...]]:
    """For each element of a window, in row-major order, where it is in all windows of a padded image."""
    return [
        (
            slice(None),
            *(
                slice(start, start + (count - 1) * stride + 1, stride)
                for start, count, stride in zip(place, p.output, p.stride, strict=True)
            ),
        )
        for place in itertools.product(*map(range, p.window))
    ]


OP = PoolingOp()
