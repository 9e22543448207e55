"""What convolutions of all GPU libraries share: tensors by sizes and strides, and unsupported settings."""

from __future__ import annotations

from typing import Any

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported

# Most workspace of an algorithm. Some unfold the whole image into more; training has no memory to spare for that.
CONV_WORKSPACE_BYTES = 2**30


def sizes_and_strides(case: Case, array: Any) -> tuple[list[int], list[int]]:
    """Sizes with channels second, as libraries list them, and strides in elements."""
    strides = [s // array.itemsize for s in array.strides]
    sizes = list(array.shape)
    if case.settings["layout"] == "nhwc":
        sizes = [sizes[0], sizes[-1], *sizes[1:-1]]
        strides = [strides[0], strides[-1], *strides[1:-1]]
    return sizes, strides


def refuse_conv(title: str, case: Case) -> None:
    """`Unsupported` for settings that no GPU library has."""
    if case.settings["layout"] == "any":
        raise Unsupported(f"{title} works on tensors in the given layout; choose layout=nchw or nhwc")
    if case.settings["bias"] == "yes" and case.direction != "backward_data":
        raise Unsupported(f"{title}'s convolution has no bias; choose bias=no")


def refuse_workspace(needed: int) -> None:
    """`Unsupported` for an algorithm that needs too much workspace."""
    if needed > CONV_WORKSPACE_BYTES:
        raise Unsupported(f"the algorithm needs {needed} bytes of workspace, the limit is {CONV_WORKSPACE_BYTES}")
