"""TensorFlow Lite: a model per problem, for LiteRT on phones and for compilers that read these files.

Weights and biases are constants, as in an app. Products are `FULLY_CONNECTED` (of batches `BATCH_MATMUL`), convolutions
`PAD` and `CONV_2D` or `DEPTHWISE_CONV_2D` with channels last. f32, and i8 with the scale 1 of inputs and weights and a
power of two for outputs, which the model states. Numbers of operators and fields are those of TensorFlow's schema.fbs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deepbench.core.errors import DeepBenchError, Unsupported
from deepbench.formats._flatbuffers import Number, Numbers, Table, TableReader, text, written
from deepbench.formats._problems import ProblemExport, ProblemFormat, ProblemOptions, WrittenLayer
from deepbench.ops.conv.problem import Conv
from deepbench.plan.problems import ExportedProblem

# Constants are made and written. The second limit is that of all models.
MOST_BYTES, MOST_TOGETHER = 2**30, 2**31

SCHEMA, IDENTIFIER = 3, b"TFL3"

# Operators, and the table of options that each has: its number in the union, and the version that we need.
CONV_2D, DEPTHWISE, FULLY_CONNECTED, PAD, BATCH_MATMUL = 3, 4, 9, 34, 126
OPTIONS = {CONV_2D: 1, DEPTHWISE: 2, FULLY_CONNECTED: 8, PAD: 22, BATCH_MATMUL: 101}
VERSIONS = {CONV_2D: 3, DEPTHWISE: 3, FULLY_CONNECTED: 4, PAD: 2, BATCH_MATMUL: 1}

TYPES = {"float32": 0, "int32": 2, "int64": 4, "int8": 9}
ACTIVATIONS = {"none": 0, "relu": 1}
VALID = 1

# How many standard deviations of a sum the scale of results of 8 bits covers.
DEVIATIONS = 4.0


@dataclass
class TfliteModel:
    """A graph of one or two operators."""

    tensors: list[Table] = field(default_factory=list)
    buffers: list[Table] = field(default_factory=lambda: [{}])
    operators: list[tuple[int, Table]] = field(default_factory=list)

    def tensor(self, name: str, shape: Sequence[int], kind: str, scale: float | None = None) -> int:
        """A tensor without values; its number."""
        found: dict[int, Any] = {0: Numbers("i", list(shape)), 1: Number("b", TYPES[kind]), 3: text(name)}
        if scale is not None:
            found[4] = {2: Numbers("f", [scale]), 3: Numbers("q", [0], 8)}
        self.tensors.append(found)
        return len(self.tensors) - 1

    def constant(self, name: str, values: Any, scale: float | None = None) -> int:
        """A tensor with values."""
        number = self.tensor(name, values.shape, values.dtype.name, scale)
        self.tensors[number] = {**self.tensors[number], 2: Number("I", len(self.buffers))}
        self.buffers.append({0: Numbers("B", values.tobytes(), 16)})
        return number

    def add(self, code: int, inputs: Sequence[int], output: int, options: Table) -> None:
        """An operator."""
        self.operators.append(
            (
                code,
                {1: Numbers("i", list(inputs)), 2: Numbers("i", [output]), 3: Number("B", OPTIONS[code]), 4: options},
            )
        )

    def content(self, inputs: Sequence[int], output: int) -> bytes:
        """The file."""
        codes = list(dict.fromkeys(code for code, _ in self.operators))
        # The older field for the operator has one byte; 127 says that the newer one counts.
        listed = [{0: Number("b", min(c, 127)), 2: Number("i", VERSIONS[c]), 3: Number("i", c)} for c in codes]
        operators: list[Table] = [{0: Number("I", codes.index(code)), **rest} for code, rest in self.operators]
        graph: Table = {0: self.tensors, 1: Numbers("i", list(inputs)), 2: Numbers("i", [output]), 3: operators}
        root: Table = {0: Number("I", SCHEMA), 1: listed, 2: [graph], 3: text("deepbench"), 4: self.buffers}
        return written(root, IDENTIFIER)


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
            if case.settings.get("beta") == "1":
                export.remarks.append(f"{problem.name}: without the addition to C")
        return export

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """From the shapes of the tensors of each model."""
        counts = {}
        for path, content in export.files.items():
            if isinstance(content, bytes):
                shapes = shapes_of(content)
                # Each output is a sum over all dimensions of its filter, or of its row, but the first.
                depth = shapes["w"][1:] if "w" in shapes else shapes["a"][-1:]
                # The filter of a depthwise layer is 1 × r × s × k, and each of its outputs has r · s products.
                depth = depth[:-1] if len(depth) == 3 and shapes["w"][0] == 1 and _is_depthwise(content) else depth
                counts[path.removesuffix(".tflite")] = math.prod(shapes["y"]) * math.prod(depth)
        return counts


def shapes_of(content: bytes) -> dict[str, list[int]]:
    """The shape of each tensor of a model, by its name."""
    (graph,) = TableReader.root(content).tables(2)
    return {tensor.text(3): tensor.numbers(0) for tensor in graph.tables(0)}


def _is_depthwise(content: bytes) -> bool:
    return any(code.number(3) == DEPTHWISE for code in TableReader.root(content).tables(1))


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
    one, model = (1.0 if is_small else None), TfliteModel()
    data = "int8" if is_small else "float32"
    x = model.tensor("x", (p.n, p.k), data, one)
    inputs = [x, model.constant("w", np.ascontiguousarray(weights), one)]
    if "bias" in arrays:
        kept = arrays["bias"].astype("int32" if is_small else "float32")
        inputs.append(model.constant("bias", kept, one))
    y = model.tensor("y", (p.n, p.m), data, _scale(weights, p.k) if is_small else None)
    model.add(FULLY_CONNECTED, inputs, y, {0: Number("b", ACTIVATIONS[kind])})
    return model.content([x], y)


def batched(problem: ExportedProblem) -> bytes:
    """Cᵀ = Bᵀ·Aᵀ for each of the batch, both operands as inputs, by rows."""
    p = problem.case.problem
    if problem.case.precision.name != "f32":
        raise Unsupported("batches of products are written in f32")
    model = TfliteModel()
    a, b = model.tensor("a", (p.batch, p.n, p.k), "float32"), model.tensor("b", (p.batch, p.k, p.m), "float32")
    y = model.tensor("y", (p.batch, p.n, p.m), "float32")
    model.add(BATCH_MATMUL, [a, b], y, {0: Number("B", 0), 1: Number("B", 0)})
    return model.content([a, b], y)


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
    one, model, data = (1.0 if is_small else None), TfliteModel(), "int8" if is_small else "float32"
    is_depthwise = p.groups == p.c > 1
    filters = arrays["w"] if case.settings["layout"] == "nhwc" else np.moveaxis(arrays["w"], 1, -1)
    if is_depthwise:  # k × r × s × 1 becomes 1 × r × s × k
        filters = np.moveaxis(filters, 0, -1)[..., 0, :][np.newaxis]
    x = model.tensor("x", (p.n, p.h, p.w, p.c), data, one)
    source = x
    if p.pad_h or p.pad_w:
        edges = np.array([[0, 0], [p.pad_h] * 2, [p.pad_w] * 2, [0, 0]], np.int32)
        source = model.tensor("padded", (p.n, p.h + 2 * p.pad_h, p.w + 2 * p.pad_w, p.c), data, one)
        model.add(PAD, [x, model.constant("edges", edges)], source, {})
    inputs = [source, model.constant("w", np.ascontiguousarray(filters), one)]
    bias = arrays["b"] if "b" in arrays else np.zeros(p.k)  # the operator of 8 bits requires one
    inputs.append(model.constant("bias", bias.astype("int32" if is_small else "float32"), one))
    depth = p.c // p.groups * p.r * p.s
    y = model.tensor("y", (p.n, *p.output[1:], p.k), data, _scale(filters, depth) if is_small else None)
    strides = {0: Number("b", VALID), 1: Number("i", p.stride_w), 2: Number("i", p.stride_h)}
    dilation = Number("i", p.dilation_w), Number("i", p.dilation_h)
    if is_depthwise:
        options = {**strides, 3: Number("i", p.k // p.c), 4: Number("b", 0), 5: dilation[0], 6: dilation[1]}
    else:
        options = {**strides, 3: Number("b", 0), 4: dilation[0], 5: dilation[1]}
    model.add(DEPTHWISE if is_depthwise else CONV_2D, inputs, y, options)
    return model.content([x], y)


MODELS = {"gemm": fully_connected, "linear": fully_connected, "batched_gemm": batched, "conv": convolution}

FORMAT = Tflite()
