"""Models of TensorFlow Lite: their graphs, written, and the products in them, counted.

Numbers of operators, of their tables of options and of fields are those of TensorFlow's schema.fbs. A graph is a list
of operators on tensors. A model has several where one of them is the body of a loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepbench.formats._flatbuffers import Number, Numbers, Table, TableReader, text, written

SCHEMA, IDENTIFIER = 3, b"TFL3"

CONV_2D, DEPTHWISE, FULLY_CONNECTED, PAD, BATCH_MATMUL = 3, 4, 9, 34, 126
SEQUENCE_RNN, SEQUENCE_LSTM, IF = 35, 44, 118
ADD, SUB, MUL, LOGISTIC, TANH, SPLIT, PACK, UNPACK = 0, 41, 18, 14, 28, 49, 83, 88

# The table of options that an operator has: its number in the union. LOGISTIC and TANH have none.
OPTIONS = {CONV_2D: 1, DEPTHWISE: 2, FULLY_CONNECTED: 8, ADD: 11, MUL: 21, PAD: 22, SUB: 28, SEQUENCE_RNN: 31}
OPTIONS |= {SPLIT: 35, PACK: 59, UNPACK: 64, SEQUENCE_LSTM: 71, IF: 92, BATCH_MATMUL: 101}
# The version of an operator that we need; 1 where it is not listed.
VERSIONS = {CONV_2D: 3, DEPTHWISE: 3, FULLY_CONNECTED: 4, PAD: 2}

TYPES = {"float32": 0, "int32": 2, "int64": 4, "bool": 6, "int8": 9}
RELU, FUSED_TANH = 1, 4
NONE = -1
"""An input that an operator does not have."""


@dataclass
class TfliteModel:
    """The graphs of a model. The first is the one that runs; the others belong to its loops."""

    graphs: list[TfliteGraph] = field(default_factory=list)
    buffers: list[Table] = field(default_factory=lambda: [{}])

    def graph(self) -> TfliteGraph:
        """A new graph."""
        self.graphs.append(TfliteGraph(self, len(self.graphs)))
        return self.graphs[-1]

    def content(self) -> bytes:
        """The file."""
        codes = list(dict.fromkeys(code for graph in self.graphs for code, _ in graph.operators))
        # The older field for the operator has one byte; 127 says that the newer one counts.
        listed = [{0: Number("b", min(c, 127)), 2: Number("i", VERSIONS.get(c, 1)), 3: Number("i", c)} for c in codes]
        graphs: list[Table] = [
            {
                0: graph.tensors,
                1: Numbers("i", graph.inputs),
                2: Numbers("i", graph.outputs),
                3: [{0: Number("I", codes.index(code)), **rest} for code, rest in graph.operators],
            }
            for graph in self.graphs
        ]
        root: Table = {0: Number("I", SCHEMA), 1: listed, 2: graphs, 3: text("deepbench"), 4: self.buffers}
        return written(root, IDENTIFIER)


@dataclass
class TfliteGraph:
    """One graph: tensors, and operators in the order in which they run."""

    model: TfliteModel
    number: int
    tensors: list[Table] = field(default_factory=list)
    operators: list[tuple[int, Table]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def tensor(
        self, name: str, shape: Sequence[int], kind: str, scale: float | None = None, is_state: bool = False
    ) -> int:
        """A tensor without values; its number. A state keeps its values between calls, and begins with zeros."""
        found: dict[int, Any] = {0: Numbers("i", list(shape)), 1: Number("b", TYPES[kind]), 3: text(name)}
        if scale is not None:
            found[4] = {2: Numbers("f", [scale]), 3: Numbers("q", [0], 8)}
        if is_state:
            found[5] = Number("B", 1)
        self.tensors.append(found)
        return len(self.tensors) - 1

    def input(self, name: str, shape: Sequence[int], kind: str = "float32", scale: float | None = None) -> int:
        """A tensor that the caller fills."""
        self.inputs.append(self.tensor(name, shape, kind, scale))
        return self.inputs[-1]

    def constant(self, name: str, values: Any, scale: float | None = None) -> int:
        """A tensor with values."""
        number = self.tensor(name, values.shape, values.dtype.name, scale)
        self.tensors[number] = {**self.tensors[number], 2: Number("I", len(self.model.buffers))}
        self.model.buffers.append({0: Numbers("B", values.tobytes(), 16)})
        return number

    def add(self, code: int, inputs: Sequence[int], outputs: Sequence[int], options: Table | None = None) -> None:
        """An operator."""
        kind: dict[int, Any] = {3: Number("B", OPTIONS[code]), 4: options or {}} if code in OPTIONS else {}
        self.operators.append((code, {1: Numbers("i", list(inputs)), 2: Numbers("i", list(outputs)), **kind}))


# ---- counting


def shapes_of(content: bytes) -> dict[str, list[int]]:
    """The shape of each tensor of the graph that runs, by its name."""
    graph = TableReader.root(content).tables(2)[0]
    return {tensor.text(3): tensor.numbers(0) for tensor in graph.tables(0)}


def multiply_adds_of(content: bytes) -> int:
    """The multiply-adds of one run, from the shapes of the tensors of each operator.

    Inputs of recurrent layers that have width 1 do not count, as in the problems (docs/method.md).
    """
    root = TableReader.root(content)
    codes = [code.number(3) or 0 for code in root.tables(1)]
    return sum(_in_graph(root, codes, 0))


def _in_graph(root: TableReader, codes: Sequence[int], number: int) -> Iterator[int]:
    """Those of each operator of a graph."""
    graph = root.tables(2)[number]
    tensors = graph.tables(0)
    for operator in graph.tables(3):
        code, inputs = codes[operator.number(0) or 0], operator.numbers(1)
        shapes = [[] if i == NONE else tensors[i].numbers(0) for i in inputs]
        outputs = math.prod(tensors[operator.numbers(2)[0]].numbers(0))
        if code == IF:
            yield sum(_in_graph(root, codes, operator.table(4).number(0) or 0))
        elif code in (SEQUENCE_RNN, SEQUENCE_LSTM):
            gates = 1 if code == SEQUENCE_RNN else 4
            recurrent = shapes[2] if code == SEQUENCE_RNN else shapes[5]
            yield gates * outputs * (recurrent[-1] + _counted(shapes[0][-1]))
        elif code == FULLY_CONNECTED:
            width = shapes[1][-1]
            yield outputs * (_counted(width) if number else width)
        elif code == CONV_2D:  # each output is a sum over all dimensions of its filter
            yield outputs * math.prod(shapes[1][1:])
        elif code == DEPTHWISE:  # the filter is 1 × r × s × k
            yield outputs * math.prod(shapes[1][1:3])
        elif code == BATCH_MATMUL:
            yield outputs * shapes[0][-1]


def _counted(width: int) -> int:
    """Of the input of a recurrent layer."""
    return 0 if width == 1 else width
