"""Compare the outputs of a convolution with float64."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deepbench.core.op import AnswerComparison
from deepbench.core.operands import generator
from deepbench.core.precision import STORAGE_ROUNDOFF
from deepbench.core.tolerance import sum_roundoff
from deepbench.ops.conv.problem import is_quantized, result_type
from deepbench.ops.conv.reference import CONVOLUTIONS, backward_data, exact_output, forward, logical_views

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# Up to this many multiply-adds, every element is computed in float64 (a tenth of a second).
FULL_CHECK_MULTIPLY_ADDS = 2**27
# Beyond, blocks of this many channels are summed with random signs, and one channel of each block is checked alone.
BLOCK, BLOCK_16_BITS = 32, 16

# Tolerance of an element, in units of roundoff · √(number of products) · √(sum of their squares). With random signs,
# direct summation needs 0.7 units; Winograd's transforms of 4 × 4 tiles lose up to ten times as much.
# Barabasz et al., "Error analysis and improving the accuracy of Winograd convolution for deep neural networks", 2020.
TOLERANCE_UNITS = 64.0
# If results have 16 bits, libraries may round partial sums to 16 bits: PyTorch's backward passes on CPUs do so when
# they add filter positions (data gradient) or images (weight gradient). The errors of n additions grow like √n; the
# largest of ten million elements was 1.5 to 2.5 times that, in units of the roundoff of a typical element.
PARTIAL_SUMS, LEAST_PARTIAL_SUMS = 3.0, 8.0
FORWARD_PARTIAL_SUMS = 2.0
# Safety factor for a sum of errors with random signs, which add like the root of their sum of squares.
SUM_SAFETY = 4.0


def compare(case: Case, arrays: Arrays) -> Iterator[AnswerComparison]:
    """See `ConvOp.compare`."""
    views = logical_views(case, arrays)
    if "db" in arrays:
        yield _compare_bias_gradient(case, views)
    if is_quantized(case):
        # Every element is within half a step of the exact value: this is what rounding means.
        got, want = views["y"].astype(np.float64), exact_output(case, views)
        yield AnswerComparison("every element", got, want, np.full(want.shape, 0.5), want.size, want.size)
        return
    p = case.problem
    channels = (p.c if case.direction == "backward_data" else p.k) // p.groups
    if p.multiply_adds <= FULL_CHECK_MULTIPLY_ADDS or channels == 1:
        mix = _Mix("every element", np.eye(channels), np.ones(channels))
    else:
        mix = _blocks(channels, BLOCK if STORAGE_ROUNDOFF[result_type(case)] == 0 else BLOCK_16_BITS)
    yield _compare_mixed(case, views, mix)


class _Mix(NamedTuple):
    """Linear combinations of the channels of one group."""

    how: str
    weights: Array
    """(combinations, channels)."""
    safety: Array
    """Factor on the tolerance of each combination."""


def _blocks(channels: int, block: int) -> _Mix:
    """One channel of each block alone, then all channels of each block with random signs."""
    choices = generator(stream=9)
    starts = range(0, channels, block)
    single, signs = np.zeros((2, len(starts), channels))
    for row, start in enumerate(starts):
        width = min(block, channels - start)
        single[row, start + choices.integers(0, width)] = 1.0
        signs[row, start : start + width] = choices.integers(0, 1, width, endpoint=True) * 2.0 - 1.0
    safety = np.repeat([1.0, SUM_SAFETY], len(starts))
    return _Mix(f"one channel in {block}, and every element in a sum of {block}", np.r_[single, signs], safety)


def _mix(weights: Array, array: Array, axis: int, groups: int) -> Array:
    """Combine the entries along `axis`, group by group, with each row of `weights`."""
    before, after = math.prod(array.shape[:axis]), math.prod(array.shape[axis + 1 :])
    sums = weights @ array.reshape(before * groups, weights.shape[1], after)
    mixed: Array = sums.reshape(*array.shape[:axis], groups * len(weights), *array.shape[axis + 1 :])
    return mixed


def _compare_bias_gradient(case: Case, views: Arrays) -> AnswerComparison:
    dy = views["dy"].astype(np.float64)
    want, squares = dy.sum(axis=(0, 2, 3, 4)), (dy**2).sum(axis=(0, 2, 3, 4))
    tolerance = TOLERANCE_UNITS * case.precision.roundoff * np.sqrt(dy.size // want.size * squares)
    storage = np.abs(want) + _partial_sum_units(case) * np.sqrt(squares)
    tolerance += STORAGE_ROUNDOFF[result_type(case)] * storage
    got = views["db"].astype(np.float64)
    return AnswerComparison("every element of db", got, want, tolerance, want.size, want.size, "db")


def _compare_mixed(case: Case, views: Arrays, mix: _Mix) -> AnswerComparison:
    """Compare combinations of output channels.

    A convolution is linear in its filters (and its gradients in the filters and in dy), so a combination of output
    channels is the output of the same combination of filters, at a fraction of the cost.
    """
    p, g = case.problem, case.problem.groups
    convolve, data_name, filters_name, output_name = CONVOLUTIONS[case.direction]
    is_forward, is_data = case.direction == "forward", case.direction == "backward_data"
    axis = 1 if is_forward or is_data else 0
    with np.errstate(invalid="ignore"):  # poison is NaN, and must remain visible in the result
        output = views[output_name].astype(np.float64)
        got, got_squares = _mix(mix.weights, output, axis, g), _mix(mix.weights**2, output**2, axis, g)
    data, filters = views[data_name], views[filters_name].astype(np.float64)
    want = convolve(p, data, _mix(mix.weights, filters, 0 if is_forward else 1, 1 if is_data else g))
    # Sum of squares of the products in each element: that of the filter times that of the data that it meets.
    if is_data:
        per_group = filters.reshape(g, p.k // g, p.c // g, -1)
        filter_squares = np.einsum("gkct,gkct->gc", per_group, per_group).reshape(-1)
    else:
        filter_squares = (filters**2).sum(axis=(1, 2, 3, 4) if is_forward else (0, 2, 3, 4))
    filter_squares, data_squares = _mix(mix.weights**2, filter_squares, 0, g), _data_squares(case, data)
    if axis == 0:
        squares = filter_squares.reshape(g, -1, 1) * data_squares.reshape(g, 1, -1)
        squares = squares.reshape(len(want), -1)[:, :, None, None, None]
    else:
        squares = np.repeat(data_squares, len(mix.weights), axis=1) * filter_squares[None, :, None, None, None]
    if "b" in views:  # one more addition
        bias = views["b"].astype(np.float64)
        want += _mix(mix.weights, bias, 0, g)[None, :, None, None, None]
        squares = squares + _mix(mix.weights**2, bias**2, 0, g)[None, :, None, None, None]
    products = p.multiply_adds / output.size
    with np.errstate(invalid="ignore"):
        storage = np.sqrt(got_squares) + _partial_sum_units(case) * np.sqrt(squares / products)
        tolerance = TOLERANCE_UNITS * sum_roundoff(case.precision, products) * np.sqrt(squares)
        tolerance = tolerance + STORAGE_ROUNDOFF[result_type(case)] * storage
    shape = [1] * 5
    shape[axis] = -1
    tolerance = np.tile(mix.safety, g).reshape(shape) * tolerance
    return AnswerComparison(mix.how, got, want, tolerance, output.size, output.size)


def _data_squares(case: Case, data: Array) -> Array:
    """Sum of squares of the data that each output reads: (n, groups, places), or for dw one per channel of x."""
    p = case.problem
    if case.direction == "backward_weights":
        by_channel: Array = (data.astype(np.float64) ** 2).sum(axis=(0, 2, 3, 4))
        return by_channel
    squares = data.astype(np.float64).reshape(len(data), p.groups, -1, *data.shape[2:])
    squares = np.einsum("ngc...,ngc...->ng...", squares, squares)
    one_channel, ones = dataclasses.replace(p, c=p.groups, k=p.groups), np.ones((p.groups, 1, *p.filter))
    convolve = forward if case.direction == "forward" else backward_data
    return convolve(one_channel, squares, ones)


def _partial_sum_units(case: Case) -> float:
    """Error of rounding partial sums to 16 bits, in units of the roundoff of a typical element."""
    if case.direction == "forward":
        return FORWARD_PARTIAL_SUMS
    p = case.problem
    taps = math.prod(p.filter) / math.prod(p.stride)  # filter positions that each element of the image meets
    additions: float = taps if case.direction == "backward_data" else p.n
    return max(LEAST_PARTIAL_SUMS, PARTIAL_SUMS * math.sqrt(additions))
