"""TensorFlow Lite: a model per problem, for LiteRT on phones and for compilers that read these files.

Weights and biases are constants, as in an app. Products are `FULLY_CONNECTED` (of batches `BATCH_MATMUL`), convolutions
`PAD` and `CONV_2D` or `DEPTHWISE_CONV_2D` with channels last; `_tflite_recurrent.py` has recurrent layers. f32, and i8
with the scale 1 of inputs and weights and a power of two for outputs, which the model states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from deepbench.core.case import Case, check_settings
from deepbench.core.errors import DeepBenchError, Unsupported
from deepbench.formats._flatbuffers import Number
from deepbench.formats._problems import ProblemExport, ProblemFormat, ProblemOptions, WrittenLayer
from deepbench.formats._tflite_graph import (
    BATCH_MATMUL,
    CONV_2D,
    DEPTHWISE,
    FULLY_CONNECTED,
    PAD,
    RELU,
    TfliteGraph,
    TfliteModel,
    multiply_adds_of,
)
from deepbench.formats._tflite_recurrent import recurrent
from deepbench.ops.conv.problem import Conv
from deepbench.plan.problems import ExportedProblem

# Constants are made and written. The second limit is that of all models.
MOST_BYTES, MOST_TOGETHER = 2**30, 2**31

ACTIVATIONS = {"none": 0, "relu": RELU}
VALID = 1

# How many standard deviations of a sum the scale of results of 8 bits covers.
DEVIATIONS = 4.0

# What models do in place of what a case may ask for: the settings of what they compute.
COMPUTED = {
    "gemm": {"beta": "0", "weights": "packed"},
    "linear": {"weights": "packed"},
    "conv": {"layout": "nhwc"},
    "recurrent": {"mode": "inference", "weights": "packed"},
}


class Tflite(ProblemFormat):
    name = "tflite"
    reads = "LiteRT (TensorFlow Lite)"

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`NAME.tflite` per problem."""
        export, together = ProblemExport(), 0
        for problem in problems:
            case = problem.case
            try:
                if (make := MODELS.get(case.op)) is None or case.direction != "forward":
                    raise Unsupported(f"models have {', '.join(MODELS)} forward")
                if case.precision.name not in ("f32", "i8"):
                    raise Unsupported(f"models have f32 and i8, not {case.precision.name}")
                if (size := case.operation.operand_bytes(case)) > MOST_BYTES:
                    raise Unsupported(f"its arrays have {size} bytes, and at most {MOST_BYTES} are made")
                content = make(problem)
            except DeepBenchError as reason:
                export.left_out.append(f"{problem.text}: {reason}")
                continue
            if together + len(content) > MOST_TOGETHER:
                export.left_out.append(f"{problem.text}: all models together have more than {MOST_TOGETHER} bytes")
                continue
            together += len(content)
            export.files[f"{problem.name}.tflite"] = content
            export.layers.append(WrittenLayer(problem.name, problem.name, 1, problem.flop // 2))
            export.computed[problem.name] = replace(problem, case=computed(case)).text
            export.remarks += [f"{problem.name}: {words}" for words in _differences(case)]
        return export

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """From the shapes of the tensors of each operator."""
        models = {path: content for path, content in export.files.items() if isinstance(content, bytes)}
        return {path.removesuffix(".tflite"): multiply_adds_of(content) for path, content in models.items()}


def computed(case: Case) -> Case:
    """The case that a model computes: with its layouts, with weights that are packed ahead, and without C."""
    settings = {**dict(case.overrides), **COMPUTED.get(case.op, {})}
    is_transposed = getattr(case.problem, "b_t", 0) == 1
    problem = replace(case.problem, b_t=0) if is_transposed else case.problem
    return replace(case, problem=problem, overrides=check_settings(case.op, settings))


def _differences(case: Case) -> list[str]:
    """What a model does that its case does not ask for."""
    found = ["without the addition to C"] * (case.settings.get("beta") == "1")
    found += ["its data are not transposed"] * (getattr(case.problem, "b_t", 0) == 1)
    found += ["results of 8 bits in place of 32"] * (case.op == "gemm" and case.precision.name == "i8")
    found += ["keeps nothing for gradients"] * (case.op == "recurrent" and case.settings["mode"] == "training")
    return found


def _scale(weights: Any, depth: int) -> float:
    """A power of two: results of 8 bits that are rarely cut off, if data are as large as weights."""
    largest = DEVIATIONS * math.sqrt(depth) * max(1.0, float(weights.var()))
    return float(2.0 ** math.ceil(math.log2(largest / 127)))


def fully_connected(problem: ExportedProblem) -> bytes:
    """Y = X·Wᵀ + bias with X n × k and W m × k: what `gemm` and `linear` store by columns."""
    import numpy as np

    case, p = problem.case, problem.case.problem
    kind = case.settings.get("activation", "none")
    if kind not in ACTIVATIONS:
        raise Unsupported(f"no operator of a product has the activation {kind}")
    arrays = case.operation.operands(case)
    is_small = case.precision.name == "i8"
    is_by_rows = case.op == "linear" or p.a_t == 1  # otherwise by columns, which is k × m as an array
    weights = arrays["a"] if is_by_rows else arrays["a"].T
    one, graph = (1.0 if is_small else None), TfliteModel().graph()
    data = "int8" if is_small else "float32"
    x = graph.input("x", (p.n, p.k), data, one)
    inputs = [x, graph.constant("w", np.ascontiguousarray(weights), one)]
    if "bias" in arrays:
        kept = arrays["bias"].astype("int32" if is_small else "float32")
        inputs.append(graph.constant("bias", kept, one))
    y = graph.tensor("y", (p.n, p.m), data, _scale(weights, p.k) if is_small else None)
    graph.add(FULLY_CONNECTED, inputs, [y], {0: Number("b", ACTIVATIONS[kind])})
    return _with_output(graph, y)


def batched(problem: ExportedProblem) -> bytes:
    """Cᵀ = Bᵀ·Aᵀ for each of the batch, both operands as inputs, by rows."""
    p = problem.case.problem
    if problem.case.precision.name != "f32":
        raise Unsupported("batches of products are written in f32")
    graph = TfliteModel().graph()
    a, b = graph.input("a", (p.batch, p.n, p.k)), graph.input("b", (p.batch, p.k, p.m))
    y = graph.tensor("y", (p.batch, p.n, p.m), "float32")
    graph.add(BATCH_MATMUL, [a, b], [y], {0: Number("B", 0), 1: Number("B", 0)})
    return _with_output(graph, y)


def convolution(problem: ExportedProblem) -> bytes:
    """A convolution in two dimensions, with its padding as an operator of its own."""
    import numpy as np

    case, p = problem.case, problem.case.problem
    assert isinstance(p, Conv), "it is a convolution"
    if p.dimensions != 2:
        raise Unsupported("models have convolutions in two dimensions")
    arrays = case.operation.operands(case)
    is_small = case.precision.name == "i8"
    if is_small and arrays["x"].dtype.name != "int8":
        raise Unsupported("models have signed data of 8 bits")
    one, graph, data = (1.0 if is_small else None), TfliteModel().graph(), "int8" if is_small else "float32"
    is_depthwise = p.groups == p.c > 1
    filters = arrays["w"] if case.settings["layout"] == "nhwc" else np.moveaxis(arrays["w"], 1, -1)
    if is_depthwise:  # k × r × s × 1 becomes 1 × r × s × k
        filters = np.moveaxis(filters, 0, -1)[..., 0, :][np.newaxis]
    x = graph.input("x", (p.n, p.h, p.w, p.c), data, one)
    source = x
    if p.pad_h or p.pad_w:
        edges = np.array([[0, 0], [p.pad_h] * 2, [p.pad_w] * 2, [0, 0]], np.int32)
        source = graph.tensor("padded", (p.n, p.h + 2 * p.pad_h, p.w + 2 * p.pad_w, p.c), data, one)
        graph.add(PAD, [x, graph.constant("edges", edges)], [source])
    inputs = [source, graph.constant("w", np.ascontiguousarray(filters), one)]
    bias = arrays["b"] if "b" in arrays else np.zeros(p.k)  # the operator of 8 bits requires one
    inputs.append(graph.constant("bias", bias.astype("int32" if is_small else "float32"), one))
    depth = p.c // p.groups * p.r * p.s
    y = graph.tensor("y", (p.n, *p.output[1:], p.k), data, _scale(filters, depth) if is_small else None)
    strides = {0: Number("b", VALID), 1: Number("i", p.stride_w), 2: Number("i", p.stride_h)}
    dilation = Number("i", p.dilation_w), Number("i", p.dilation_h)
    if is_depthwise:
        options = {**strides, 3: Number("i", p.k // p.c), 4: Number("b", 0), 5: dilation[0], 6: dilation[1]}
    else:
        options = {**strides, 3: Number("b", 0), 4: dilation[0], 5: dilation[1]}
    graph.add(DEPTHWISE if is_depthwise else CONV_2D, inputs, [y], options)
    return _with_output(graph, y)


def _with_output(graph: TfliteGraph, y: int) -> bytes:
    graph.outputs = [y]
    return graph.model.content()


MODELS: dict[str, Callable[[ExportedProblem], bytes]] = {
    "gemm": fully_connected,
    "linear": fully_connected,
    "batched_gemm": batched,
    "conv": convolution,
    "recurrent": recurrent,
}

FORMAT = Tflite()
