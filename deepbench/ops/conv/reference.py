"""Convolutions in float64. Arrays are N, C, D, H, W (data) and K, C, T, R, S (filters)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from deepbench.ops.conv.problem import RANGES, Conv, is_channels_last, is_quantized, quantization_scale

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays


def reference(case: Case, arrays: Arrays) -> Arrays:
    """The outputs of this direction in their stored layout."""
    views = logical_views(case, arrays)
    values = exact_output(case, views)
    outputs = {CONVOLUTIONS[case.direction][3]: np.rint(values) if is_quantized(case) else values}
    if "db" in arrays:
        outputs["db"] = views["dy"].sum(axis=(0, 2, 3, 4), dtype=np.float64)
    return {name: _as_stored(case, name, values) for name, values in outputs.items()}


def exact_output(case: Case, views: Arrays) -> Array:
    """y, dx or dw before rounding: with the bias, and for 8-bit results scaled and clipped to their range."""
    convolve, data, filters, _ = CONVOLUTIONS[case.direction]
    values = convolve(case.problem, views[data], views[filters])
    if "b" in views:
        values = values + views["b"][None, :, None, None, None]
    return np.clip(values * quantization_scale(case), *RANGES[case.precision.data]) if is_quantized(case) else values


def logical_views(case: Case, arrays: Arrays) -> Arrays:
    """Views of all arrays as N, C, D, H, W or K, C, T, R, S, independent of the layout."""
    views = {}
    for name, array in arrays.items():
        view = np.moveaxis(array, -1, 1) if is_channels_last(case, name) else array
        views[name] = view[:, :, None] if view.ndim == 4 else view
    return views


def _as_stored(case: Case, name: str, values: Array) -> Array:
    if values.ndim == 5 and case.problem.dimensions == 2:
        values = values[:, :, 0]
    return np.moveaxis(values, 1, -1) if is_channels_last(case, name) else values


def _taps(p: Conv) -> Iterator[tuple[Any, Any]]:
    """For each position in the filter: its index, and that of the places in the padded image that it meets."""
    for tap in itertools.product(*map(range, p.filter)):
        starts = [i * dilation for i, dilation in zip(tap, p.dilation, strict=True)]
        places = (
            slice(start, start + stride * (output - 1) + 1, stride)
            for start, stride, output in zip(starts, p.stride, p.output, strict=True)
        )
        yield (..., *tap), (slice(None), *places)


def _padded(p: Conv, channels: int) -> tuple[Array, Array]:
    """A zero-filled padded image, and a view of it without the padding."""
    padded = np.zeros((channels, *(size + 2 * pad for size, pad in zip(p.image, p.pad, strict=True))))
    inside = (slice(pad, pad + size) for size, pad in zip(p.image, p.pad, strict=True))
    return padded, padded[(slice(None), *inside)]


def forward(p: Conv, x: Array, w: Array) -> Array:
    """y. `w` may have any number of filters per group."""
    g, k = p.groups, len(w) // p.groups
    filters = w.astype(np.float64).reshape(g, k, -1, *p.filter)
    y = np.zeros((len(x), g, k, math.prod(p.output)))
    padded, inside = _padded(p, x.shape[1])
    for image, sums in zip(x, y, strict=True):
        inside[...] = image
        for tap, places in _taps(p):
            sums += filters[tap] @ padded[places].reshape(g, p.c // g, -1)
    return y.reshape(len(x), g * k, *p.output)


def backward_data(p: Conv, dy: Array, w: Array) -> Array:
    """dx. `w` may have any number of channels per group."""
    g, channels = p.groups, w.shape[1]
    filters = w.astype(np.float64).reshape(g, p.k // g, channels, *p.filter).swapaxes(1, 2)
    dx = np.empty((len(dy), g * channels, *p.image))
    for gradient, image in zip(dy, dx, strict=True):
        flat = gradient.astype(np.float64).reshape(g, p.k // g, -1)
        padded, inside = _padded(p, g * channels)
        for tap, places in _taps(p):
            padded[places] += (filters[tap] @ flat).reshape(g * channels, *p.output)
        image[...] = inside
    return dx


def backward_weights(p: Conv, x: Array, dy: Array) -> Array:
    """dw. `dy` may have any number of filters per group."""
    g, k = p.groups, dy.shape[1] // p.groups
    dw = np.zeros((g, k, p.c // g, *p.filter))
    padded, inside = _padded(p, x.shape[1])
    for image, gradient in zip(x, dy, strict=True):
        inside[...] = image
        flat = gradient.astype(np.float64).reshape(g, k, -1)
        for tap, places in _taps(p):
            dw[tap] += flat @ padded[places].reshape(g, p.c // g, -1).swapaxes(1, 2)
    return dw.reshape(g * k, p.c // g, *p.filter)


# For each direction: the function, its two inputs and its output.
CONVOLUTIONS = {
    "forward": (forward, "x", "w", "y"),
    "backward_data": (backward_data, "dy", "w", "dx"),
    "backward_weights": (backward_weights, "x", "dy", "dw"),
}
