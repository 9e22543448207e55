"""What GPU libraries say alike of convolutions: tensors by sizes and strides, and what none of them takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepbench.core.errors import Unsupported

if TYPE_CHECKING:
    from deepbench.core.case import Case

# Scratch memory an algorithm may use: some unfold the whole image beyond it, and training has no room for them.
CONV_WORKSPACE_BYTES = 2**30


def sizes_and_strides(case: Case, array: Any) -> tuple[list[int], list[int]]:
    """Sizes as libraries name them, channels second, and strides in elements as the tensor lies."""
    strides = [s // array.itemsize for s in array.strides]
    sizes = list(array.shape)
    if case.settings["layout"] == "nhwc":
        sizes = [sizes[0], sizes[-1], *sizes[1:-1]]
        strides = [strides[0], strides[-1], *strides[1:-1]]
    return sizes, strides


def refuse_conv(title: str, case: Case) -> None:
    """`Unsupported` for settings that no GPU library has."""
    if case.settings["layout"] == "any":
        raise Unsupported(f"{title} takes tensors as they lie; choose layout=nchw or nhwc")
    if case.settings["bias"] == "yes" and case.direction != "backward_data":
        raise Unsupported(f"{title}'s convolution has no bias of its own; choose bias=no")
