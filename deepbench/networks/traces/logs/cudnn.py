"""cuDNN's log with CUDNN_LOGINFO_DBG=1, or CUDNN_LOGLEVEL_DBG=3 since version 9: a block of lines for each call.

    I! CuDNN (v8302) function cudnnConvolutionForward() called:
    i!     xDesc: type=cudnnTensorDescriptor_t:
    i!         dimA: type=int; val=[128,64,56,56];

Convolutions, pooling, batch normalization, softmax and activations say all of their sizes. Two kinds of calls do not,
and are not understood: `cudnnBackendExecute`, by which newer programs run a graph that was described before, and
recurrent layers, whose descriptors are shown without sizes. It was written from public examples of such logs, and has
not been tried on that of a real device.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deepbench.core.errors import BadInput
from deepbench.networks.traces import kernel_rules as rules
from deepbench.networks.traces.kernel_rules import Window
from deepbench.networks.traces.logs import FUSED, Logged, kernel_call
from deepbench.networks.traces.logs.lines import FoundCall

FUNCTION = re.compile(r"function (\w+)\(\) called:")
VALUE = re.compile(r"^(?:i!)?(\s+)(\w+): (.*?);?$")

PRECISIONS = {
    "CUDNN_DATA_FLOAT": "f32",
    "CUDNN_DATA_HALF": "f16",
    "CUDNN_DATA_BFLOAT16": "bf16",
    "CUDNN_DATA_INT8": "i8",
}
ACTIVATIONS = {
    "CUDNN_ACTIVATION_RELU": "relu",
    "CUDNN_ACTIVATION_SIGMOID": "sigmoid",
    "CUDNN_ACTIVATION_TANH": "tanh",
    "CUDNN_ACTIVATION_ELU": "elu",
    "CUDNN_ACTIVATION_CLIPPED_RELU": "relu6",
    "CUDNN_ACTIVATION_SWISH": "silu",
}

# Calls that compute something, but whose sizes are not in the log.
WITHOUT_SIZES = ("cudnnBackendExecute", "cudnnRNN", "cudnnMultiHeadAttn", "cudnnCTCLoss")


@dataclass
class CudnnCall:
    """A call with its arguments; those of a descriptor have its name in front, such as `xDesc.dimA`."""

    function: str
    values: dict[str, str] = field(default_factory=dict)
    path: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: str) -> bool:
        """Take a line of the block; whether it is one."""
        match = VALUE.match(line)
        if not match:
            return False
        depth, name, rest = len(match[1]), match[2], match[3]
        while self.path and self.path[-1][0] >= depth:
            self.path.pop()
        value = re.search(r"val=(\[[^\]]*\]|[^;]*)", rest)
        self.values[".".join([*(n for _, n in self.path), name])] = value[1].strip() if value else ""
        self.path.append((depth, name))
        return True

    def word(self, *names: str) -> str:
        """The value of the first of these arguments that there is, without its number: `CUDNN_DATA_FLOAT`."""
        for name in names:
            if name in self.values:
                return self.values[name].split()[0] if self.values[name] else ""
        raise BadInput(f"{self.function}: the log does not say {names[0]}")

    def numbers(self, *names: str) -> list[int]:
        """The value of an argument that is a list."""
        text = next((self.values[name] for name in names if name in self.values), "")
        if not re.fullmatch(r"\[-?\d{1,18}(,-?\d{1,18})*\]", text):
            raise BadInput(f"{self.function}: the log does not say {names[0]}")
        return [int(n) for n in text[1:-1].split(",")]

    def shape(self, *descriptors: str) -> list[int]:
        """The sizes of an array."""
        return self.numbers(*(f"{d}.dimA" for d in descriptors))

    def precision(self, *descriptors: str) -> str:
        """Of an array; `BadInput` for types that have none."""
        kind = self.word(*(f"{d}.dataType" for d in descriptors))
        if kind not in PRECISIONS:
            raise BadInput(f"{self.function}: {kind} is no precision of ours")
        return PRECISIONS[kind]

    def layout(self, *descriptors: str) -> str:
        """Whether the channels of an array are next to each other."""
        shape, strides = self.shape(*descriptors), self.numbers(*(f"{d}.strideA" for d in descriptors))
        return "nhwc" if strides[1] == 1 and shape[1] > 1 and math.prod(shape[2:]) > 1 else "nchw"


def block_of(call: FoundCall) -> CudnnCall:
    """The call with its arguments; each line of it may have the same text before it."""
    first, *lines = call.text.splitlines()
    match = FUNCTION.search(first)
    assert match is not None, "it is what the call was found by"
    block = CudnnCall(match[1])
    for line in lines:
        if not block.add(line.removeprefix(call.before)):
            break
    return block


def is_work(block: CudnnCall) -> bool:
    """Whether a call computes something; most calls describe what later ones do."""
    return block.function in KERNELS or (block.function.startswith(WITHOUT_SIZES) and "Get" not in block.function)


def read(block: CudnnCall) -> Logged:
    """The kernel of a call; `BadInput` says why it is not understood."""
    find = KERNELS.get(block.function)
    if find is None:
        raise BadInput(f"{block.function}: its sizes are not in the log")
    notes = [FUSED] if "Activation" in block.function and "Convolution" in block.function else []
    return kernel_call(f"cudnn.{block.function.removeprefix('cudnn')}", find(block), *notes)


def _conv(direction: str, x: str, w: str, y: str) -> Callable[[CudnnCall], str]:
    """The names of the descriptors of data, filters and result differ between the functions."""

    def find(block: CudnnCall) -> str:
        image, filters, result = (block.shape(name) for name in (x, w, y))
        groups = int(block.word("convDesc.groupCount")) if "convDesc.groupCount" in block.values else 1
        axes = len(image) - 2
        stride, pad, dilation = (block.numbers(f"convDesc.{n}")[:axes] for n in ("strideA", "padA", "dilationA"))
        window = Window(filters[2:], stride, pad, dilation)
        layout = "nhwc" if "nhwc" in (block.layout(x), block.layout(y)) else "nchw"
        bias = "yes" if "biasDesc" in block.values else "no"
        precision = block.precision(x)
        return rules.convolution(window, image, result, precision, direction, groups, bias=bias, layout=layout)

    return find


def _pooling(direction: str) -> Callable[[CudnnCall], str]:
    def find(block: CudnnCall) -> str:
        image, result = block.shape("xDesc", "srcDesc"), block.shape("yDesc", "destDesc")
        axes = len(image) - 2
        window, stride, pad = (
            block.numbers(f"poolingDesc.{n}", f"poolingDesc.{m}")[:axes]
            for n, m in (("windowDimA", "windowDim"), ("strideA", "stride"), ("paddingA", "padding"))
        )
        kind = "max" if block.word("poolingDesc.mode").startswith("CUDNN_POOLING_MAX") else "average"
        precision, layout = block.precision("xDesc", "srcDesc"), block.layout("xDesc", "srcDesc")
        sides = Window(window, stride, pad, [1] * axes)
        return rules.pooling(kind, sides, image, result, precision, direction, layout=layout)

    return find


def _batch_norm(direction: str, mode: str) -> Callable[[CudnnCall], str]:
    def find(block: CudnnCall) -> str:
        if block.word("mode") == "CUDNN_BATCHNORM_PER_ACTIVATION":
            raise BadInput(f"{block.function}: statistics of each pixel are no operation of ours")
        layout = block.layout("xDesc")
        return rules.batch_norm(block.shape("xDesc"), block.precision("xDesc"), direction, layout=layout, mode=mode)

    return find


def _softmax(direction: str, *names: str) -> Callable[[CudnnCall], str]:
    """Over all of an image, or over the channels of each pixel."""

    def find(block: CudnnCall) -> str:
        shape = block.shape(*names)
        if block.word("mode") == "CUDNN_SOFTMAX_MODE_CHANNEL" and math.prod(shape[2:]) != 1:
            raise BadInput(f"{block.function}: the channels of a pixel are not next to each other")
        return rules.by_rows("softmax", shape, math.prod(shape[1:]), block.precision(*names), direction)

    return find


def _activation(direction: str, names: Sequence[str]) -> Callable[[CudnnCall], str]:
    def find(block: CudnnCall) -> str:
        mode = block.word("activationDesc.mode")
        if mode not in ACTIVATIONS:
            raise BadInput(f"{block.function}: {mode} is none of ours")
        n = math.prod(block.shape(*names))
        return rules.elementwise(ACTIVATIONS[mode], n, block.precision(*names), direction)

    return find


KERNELS: dict[str, Callable[[CudnnCall], str]] = {
    "cudnnConvolutionForward": _conv("forward", "xDesc", "wDesc", "yDesc"),
    "cudnnConvolutionBiasActivationForward": _conv("forward", "xDesc", "wDesc", "yDesc"),
    "cudnnConvolutionBackwardData": _conv("backward_data", "dxDesc", "wDesc", "dyDesc"),
    "cudnnConvolutionBackwardFilter": _conv("backward_weights", "xDesc", "dwDesc", "dyDesc"),
    "cudnnPoolingForward": _pooling("forward"),
    "cudnnPoolingBackward": _pooling("backward"),
    "cudnnBatchNormalizationForwardTraining": _batch_norm("forward", "training"),
    "cudnnBatchNormalizationForwardTrainingEx": _batch_norm("forward", "training"),
    "cudnnBatchNormalizationForwardInference": _batch_norm("forward", "inference"),
    "cudnnBatchNormalizationBackward": _batch_norm("backward", "training"),
    "cudnnBatchNormalizationBackwardEx": _batch_norm("backward", "training"),
    "cudnnSoftmaxForward": _softmax("forward", "xDesc", "srcDesc"),
    "cudnnSoftmaxBackward": _softmax("backward", "yDesc", "srcDesc"),
    "cudnnActivationForward": _activation("forward", ("xDesc", "srcDesc")),
    "cudnnActivationBackward": _activation("backward", ("xDesc", "srcDesc")),
}
