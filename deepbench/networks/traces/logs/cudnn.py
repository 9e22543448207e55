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

TYPES = {
    "CUDNN_DATA_FLOAT": "f32",
    "CUDNN_DATA_HALF": "f16",
    "CUDNN_DATA_BFLOAT16": "bf16",
    "CUDNN_DATA_INT8": "s8",
    "CUDNN_DATA_INT32": "s32",
}
# The precision of a convolution by the types of its operands and of its sums.
CONVOLUTIONS = {
    ("f32", "f32"): "f32",
    ("f16", "f32"): "f16",
    ("f16", "f16"): "f16f16",
    ("bf16", "f32"): "bf16",
    ("s8", "s32"): "i8",
}
# Kinds of arithmetic that convert no operands.
MATH = ("CUDNN_DEFAULT_MATH", "CUDNN_TENSOR_OP_MATH", "CUDNN_FMA_MATH")
ACTIVATIONS = {
    "CUDNN_ACTIVATION_RELU": "relu",
    "CUDNN_ACTIVATION_SIGMOID": "sigmoid",
    "CUDNN_ACTIVATION_TANH": "tanh",
    "CUDNN_ACTIVATION_ELU": "elu",
    "CUDNN_ACTIVATION_CLIPPED_RELU": "relu6",
    "CUDNN_ACTIVATION_SWISH": "silu",
}

# The descriptors of arrays of data.
DATA = ("xDesc", "yDesc", "zDesc", "dxDesc", "dyDesc", "dzDesc", "srcDesc", "destDesc", "srcDiffDesc", "destDiffDesc")

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

    def type(self, *descriptors: str) -> str:
        """Of the numbers of an array; `BadInput` for types that we have not."""
        kind = self.word(*(f"{d}.dataType" for d in descriptors))
        if kind not in TYPES:
            raise BadInput(f"{self.function}: {kind} is no precision of ours")
        return TYPES[kind]

    def precision(self) -> str:
        """The type of all arrays of data."""
        kinds = {self.type(name) for name in DATA if f"{name}.dataType" in self.values}
        if len(kinds) != 1:
            raise BadInput(f"{self.function}: its data have the types {' and '.join(sorted(kinds)) or 'none'}")
        return kinds.pop()

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
    kernel = find(block)
    return kernel_call(f"cudnn.{block.function.removeprefix('cudnn')}", kernel, *_notes(block, kernel))


def _notes(block: CudnnCall, kernel: str) -> list[str]:
    """How a call differs from its kernel."""
    is_joined = block.function == "cudnnConvolutionBiasActivationForward" and (
        block.word("activationDesc.mode") != "CUDNN_ACTIVATION_IDENTITY"
    )
    normalization = block.word("bnOps") if "bnOps" in block.values else "CUDNN_BATCHNORM_OPS_BN"
    notes = [FUSED] if is_joined or normalization != "CUDNN_BATCHNORM_OPS_BN" else []
    factors = [value for name, value in block.values.items() if re.fullmatch(r"beta\w*|alpha2", name)]
    notes += [rules.ADDED] if any(re.search(r"[1-9]|nan|inf", value) for value in factors) else []
    op, words = kernel.partition(" ")[0], kernel.split()
    if op == "conv" and "i8" in words:
        notes += [rules.RESCALED] if "f32" in (block.type(d) for d in DATA if f"{d}.dataType" in block.values) else []
    algorithms = [block.values[name] for name in ("algo", "algorithm") if name in block.values]
    if op == "softmax" and any("CUDNN_SOFTMAX_LOG" in value for value in algorithms):
        notes.append(rules.LOGARITHM)
    return notes


def _conv(direction: str, x: str, w: str, y: str) -> Callable[[CudnnCall], str]:
    """The names of the descriptors of data, filters and result differ between the functions."""

    def find(block: CudnnCall) -> str:
        image, filters, result = (block.shape(name) for name in (x, w, y))
        kinds = [block.type(name) for name in (x, w, y)]
        operands = {
            "forward": (kinds[0], kinds[1], kinds[2]),
            "backward_data": (kinds[2], kinds[1], kinds[0]),
            "backward_weights": (kinds[0], kinds[2], kinds[1]),
        }[direction]
        groups = int(block.word("convDesc.groupCount")) if "convDesc.groupCount" in block.values else 1
        axes = len(image) - 2
        stride, pad, dilation = (block.numbers(f"convDesc.{n}")[:axes] for n in ("strideA", "padA", "dilationA"))
        window = Window(filters[2:], stride, pad, dilation)
        layout = "nhwc" if "nhwc" in (block.layout(x), block.layout(y)) else "nchw"
        bias = "yes" if "biasDesc" in block.values else "no"
        precision = _arithmetic(block, operands)
        stored = rules.result_setting(precision, operands[2])
        settings = {"bias": bias, "layout": layout, "result": stored}
        return rules.convolution(window, image, result, precision, direction, groups, **settings)

    return find


def _arithmetic(block: CudnnCall, operands: tuple[str, str, str]) -> str:
    """The precision of a convolution with these types of operands and result."""
    sums, how = block.type("convDesc"), block.word("convDesc.mathType") if "convDesc.mathType" in block.values else ""
    precision = CONVOLUTIONS.get((operands[0], sums)) if operands[0] == operands[1] else None
    if precision is None:
        types = " and ".join(dict.fromkeys(operands[:2]))
        raise BadInput(f"{block.function}: there is no convolution of {types} that adds in {sums}")
    if precision == "f32" and how not in ("", *MATH):
        raise BadInput(f"{block.function}: with {how}, its operands may be converted to fewer bits")
    return precision


def _pooling(direction: str) -> Callable[[CudnnCall], str]:
    def find(block: CudnnCall) -> str:
        image, result = block.shape("xDesc", "srcDesc"), block.shape("yDesc", "destDesc")
        axes = len(image) - 2
        window, stride, pad = (
            block.numbers(f"poolingDesc.{n}", f"poolingDesc.{m}")[:axes]
            for n, m in (("windowDimA", "windowDim"), ("strideA", "stride"), ("paddingA", "padding"))
        )
        kind = "max" if block.word("poolingDesc.mode").startswith("CUDNN_POOLING_MAX") else "average"
        precision, layout = block.precision(), block.layout("xDesc", "srcDesc")
        sides = Window(window, stride, pad, [1] * axes)
        return rules.pooling(kind, sides, image, result, precision, direction, layout=layout)

    return find


def _batch_norm(direction: str, mode: str) -> Callable[[CudnnCall], str]:
    def find(block: CudnnCall) -> str:
        if block.word("mode") == "CUDNN_BATCHNORM_PER_ACTIVATION":
            raise BadInput(f"{block.function}: statistics of each pixel are no operation of ours")
        layout = block.layout("xDesc")
        return rules.batch_norm(block.shape("xDesc"), block.precision(), direction, layout=layout, mode=mode)

    return find


def _softmax(direction: str, *names: str) -> Callable[[CudnnCall], str]:
    """Over all of an image, or over the channels of each pixel."""

    def find(block: CudnnCall) -> str:
        shape = block.shape(*names)
        if block.word("mode") == "CUDNN_SOFTMAX_MODE_CHANNEL" and math.prod(shape[2:]) != 1:
            raise BadInput(f"{block.function}: the channels of a pixel are not next to each other")
        return rules.by_rows("softmax", shape, math.prod(shape[1:]), block.precision(), direction)

    return find


def _activation(direction: str, names: Sequence[str]) -> Callable[[CudnnCall], str]:
    def find(block: CudnnCall) -> str:
        mode = block.word("activationDesc.mode")
        if mode not in ACTIVATIONS:
            raise BadInput(f"{block.function}: {mode} is none of ours")
        n = math.prod(block.shape(*names))
        return rules.elementwise(ACTIVATIONS[mode], n, block.precision(), direction)

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
