"""Where arrays of images have their channels: on the last axis, or on the second."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.native.stablehlo._values import HloValue


def channels_last(case: Case) -> bool:
    """Whether the channels are on the last axis; `Unsupported` if the library is to choose."""
    layout: str = case.settings["layout"]
    if layout == "any":
        reason = "the arguments of a program have the layout of its text; choose layout=nchw or nhwc"
        raise Unsupported(reason)
    return layout == "nhwc"


def channel_axis(case: Case, array: HloValue) -> int:
    """The axis of the channels of an array."""
    return len(array.shape) - 1 if channels_last(case) else 1


def other_axes(case: Case, array: HloValue) -> list[int]:
    """All axes but that of the channels, in order."""
    return [i for i in range(len(array.shape)) if i != channel_axis(case, array)]


def per_channel(case: Case, values: HloValue, array: HloValue) -> HloValue:
    """Values of the shape (channels,) with as many axes as an array, for arithmetic with it."""
    channels = channel_axis(case, array)
    return values.reshape(*(-1 if i == channels else 1 for i in range(len(array.shape))))


def dimension_numbers(case: Case, *arrays: str) -> str:
    """What the axes of three arrays mean to a convolution, from two letters of each: before and at the channels."""
    last, spatial = channels_last(case), [str(i) for i in range(case.problem.dimensions)]
    left, right, result = (
        f"[{', '.join([array[0], *spatial, array[1]] if last else [array[0], array[1], *spatial])}]" for array in arrays
    )
    return f"{left}x{right}->{result}"
