"""Windows that move over arrays: convolutions, and reductions of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepbench.native.stablehlo._values import HloValue, tensor


@dataclass(frozen=True)
class HloWindow:
    """Windows along one axis."""

    size: int = 1
    stride: int = 1
    low: int = 0
    high: int = 0
    """Padding before the first element and after the last."""
    apart: int = 1
    """Distance of the elements in a window."""
    spread: int = 1
    """Distance of the elements of the array, with zeros between them."""


def convolution(
    left: HloValue,
    right: HloValue,
    numbers: str,
    axes: Sequence[HloWindow],
    result: tuple[Sequence[int], str],
    groups: int = 1,
    batch_groups: int = 1,
) -> HloValue:
    """A convolution; `numbers` are those of its dimensions, such as `[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]`.

    `result` has its shape and type, and `axes` those of the dimensions 0, 1 …
    """
    window = {"stride": [a.stride for a in axes], "pad": [[a.low, a.high] for a in axes]}
    window |= {"lhs_dilate": [a.spread for a in axes], "rhs_dilate": [a.apart for a in axes]}
    how = ", ".join(f"{name} = {of}" for name, of in window.items())
    highest = ", ".join(["#stablehlo<precision HIGHEST>"] * 2)
    text = f"stablehlo.convolution({left.name}, {right.name}) dim_numbers = {numbers}, window = {{{how}}} "
    text += f"{{batch_group_count = {batch_groups} : i64, feature_group_count = {groups} : i64, "
    text += f"precision_config = [{highest}]}} : ({left.type}, {right.type}) -> {tensor(*result)}"
    return left.lines.write(text, *result)


def windows(x: HloValue, operation: str, start: float, axes: Sequence[HloWindow]) -> HloValue:
    """`operation` of all numbers of each window."""
    initial = x.lines.constant(start, (), x.kind)
    total = [(n - 1) * axis.spread + 1 + axis.low + axis.high for n, axis in zip(x.shape, axes, strict=True)]
    shape = [(n - axis.size) // axis.stride + 1 for n, axis in zip(total, axes, strict=True)]
    lists = {"window_dimensions": [a.size for a in axes], "window_strides": [a.stride for a in axes]}
    lists["base_dilations"] = [a.spread for a in axes]
    how = ", ".join(f"{name} = array<i64: {', '.join(map(str, of))}>" for name, of in lists.items())
    text = f'"stablehlo.reduce_window"({x.name}, {initial.name}) <{{{how}, {_padding(axes)}}}> '
    text += f"{x.lines.function(operation, x.kind)} : ({x.type}, {initial.type}) -> "
    return x.lines.write(text + tensor(shape, x.kind), shape, x.kind)


def scatter_to_largest(x: HloValue, values: HloValue, axes: Sequence[HloWindow]) -> HloValue:
    """Zeros, with the value of each window added where its largest number is: the first of equal ones."""
    zero, scalar = x.lines.constant(0, (), x.kind), tensor((), x.kind)
    one, two, go = x.lines.name(), x.lines.name(), x.lines.name()
    lists = {"window_dimensions": [a.size for a in axes], "window_strides": [a.stride for a in axes]}
    how = ", ".join(f"{name} = array<i64: {', '.join(map(str, of))}>" for name, of in lists.items())
    text = f'"stablehlo.select_and_scatter"({x.name}, {values.name}, {zero.name}) <{{{how}, {_padding(axes)}}}> '
    text += f"({{\n^bb0({one}: {scalar}, {two}: {scalar}):\n"
    text += f"{go} = stablehlo.compare GE, {one}, {two} : ({scalar}, {scalar}) -> tensor<i1>\n"
    text += f"stablehlo.return {go} : tensor<i1>\n}}, {x.lines.function('add', x.kind).removeprefix('(')}"
    text += f" : ({x.type}, {values.type}, {zero.type}) -> {x.type}"
    return x.lines.write(text, x.shape, x.kind)


def _padding(axes: Sequence[HloWindow]) -> str:
    return f"padding = dense<{[[a.low, a.high] for a in axes]}> : tensor<{len(axes)}x2xi64>"
