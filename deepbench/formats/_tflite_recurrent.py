"""Recurrent layers as models of TensorFlow Lite.

Vanilla cells and LSTMs are the built-in operators UNIDIRECTIONAL_SEQUENCE_RNN and UNIDIRECTIONAL_SEQUENCE_LSTM, whose
mathematics is ours: the same order of gates, biases, and activations. They keep their states between calls. TensorFlow
Lite has no operator for GRUs, so these are a loop (WHILE) over time steps, as its converter writes them too.
"""

from __future__ import annotations

from typing import Any

from deepbench.core.errors import Unsupported
from deepbench.formats._flatbuffers import Number
from deepbench.formats._tflite_graph import (
    ADD,
    FULLY_CONNECTED,
    FUSED_TANH,
    IF,
    LOGISTIC,
    MUL,
    NONE,
    PACK,
    RELU,
    SEQUENCE_LSTM,
    SEQUENCE_RNN,
    SPLIT,
    SUB,
    TANH,
    UNPACK,
    TfliteGraph,
    TfliteModel,
)
from deepbench.ops.recurrent.problem import Recurrent, resets_after, single_layer
from deepbench.plan.problems import ExportedProblem


def recurrent(problem: ExportedProblem) -> bytes:
    """One layer in one direction of time; x (T, N, I) by time steps, y (T, N, H)."""
    case, p = problem.case, problem.case.problem
    assert isinstance(p, Recurrent), "it is a recurrent layer"
    if case.precision.name != "f32":
        raise Unsupported("recurrent layers are written in f32")
    if case.settings["input"] == "skip" and p.is_recurrence_only:
        raise Unsupported("no operator adds its input to the gates as it is (input=skip)")
    arrays = single_layer(case, case.operation.operands(case), "TensorFlow Lite")
    model = TfliteModel()
    if p.cell == "gru":
        _gru(model, p, arrays, resets_after(case))
    else:
        _built_in(model, p, arrays)
    return model.content()


def _rows(weights: Any, gate: int | slice) -> Any:
    """Weights [from, gate, to] of some gates as rows for each output, (gates · H) × width."""
    import numpy as np

    return np.ascontiguousarray(weights[:, gate].reshape(len(weights), -1).T)


def _built_in(model: TfliteModel, p: Recurrent, arrays: dict[str, Any]) -> None:
    graph = model.graph()
    x = graph.input("x", (p.timesteps, p.batch, p.input_size))
    h = graph.tensor("h", (p.batch, p.hidden), "float32", is_state=True)
    y = graph.tensor("y", (p.timesteps, p.batch, p.hidden), "float32")
    names = ["i", "f", "g", "o"] if p.cell == "lstm" else [""]
    w = [graph.constant(f"w{name}", _rows(arrays["w"], gate)) for gate, name in enumerate(names)]
    r = [graph.constant(f"r{name}", _rows(arrays["r"], gate)) for gate, name in enumerate(names)]
    b = [graph.constant(f"b{name}", arrays["b"][gate].copy()) for gate, name in enumerate(names)]
    if p.cell == "lstm":
        c = graph.tensor("c", (p.batch, p.hidden), "float32", is_state=True)
        # Without peepholes, projection and normalization. A limit of 0 cuts nothing off.
        inputs = [x, *w, *r, *[NONE] * 3, *b, NONE, NONE, h, c, *[NONE] * 4]
        graph.add(SEQUENCE_LSTM, inputs, [y], {0: Number("b", FUSED_TANH), 3: Number("B", 1)})
    else:
        graph.add(SEQUENCE_RNN, [x, *w, *r, *b, h], [y], {0: Number("B", 1), 1: Number("b", RELU)})
    graph.outputs = [y]


def _gru(model: TfliteModel, p: Recurrent, arrays: dict[str, Any], after: bool) -> None:
    """A chain of calls of one graph, which is a time step from x_t and h to the next h."""
    import numpy as np

    main, step = model.graph(), model.graph()
    x, h = main.input("x", (p.timesteps, p.batch, p.input_size)), main.input("h0", (p.batch, p.hidden))
    always = main.constant("always", np.ones(1, np.bool_))
    steps = [main.tensor(f"x_{t}", (p.batch, p.input_size), "float32") for t in range(p.timesteps)]
    main.add(UNPACK, [x], steps, {0: Number("i", p.timesteps), 1: Number("i", 0)})
    states = [main.tensor(f"h_{t + 1}", (p.batch, p.hidden), "float32") for t in range(p.timesteps)]
    for now, before, state in zip(steps, [h, *states], states, strict=False):
        main.add(IF, [always, now, before], [state], {0: Number("i", step.number), 1: Number("i", step.number)})
    y = main.tensor("y", (p.timesteps, p.batch, p.hidden), "float32")
    main.add(PACK, states, [y], {0: Number("i", p.timesteps), 1: Number("i", 0)})
    main.outputs = [y]

    now, h = step.input("x", (p.batch, p.input_size)), step.input("h", (p.batch, p.hidden))
    from_x = _split(step, p, "from_x", _product(step, p, "w", now, arrays["w"], arrays["b"][:3]), 3)
    if after:
        inner = np.stack([np.zeros_like(arrays["b"][3])] * 2 + [arrays["b"][3]])
        from_h = _split(step, p, "from_h", _product(step, p, "r", h, arrays["r"], inner), 3)
    else:
        from_h = _split(step, p, "from_h", _product(step, p, "r", h, arrays["r"][:, :2], None), 2)
    u, r = (_one(step, p, LOGISTIC, f"gate_{j}", _two(step, p, ADD, f"sum_{j}", from_x[j], from_h[j])) for j in (0, 1))
    if after:
        reset = _two(step, p, MUL, "reset", r, from_h[2])
    else:
        reset = _product(step, p, "rg", _two(step, p, MUL, "reset", r, h), arrays["r"][:, 2:], None)
    g = _one(step, p, TANH, "g", _two(step, p, ADD, "sum_2", from_x[2], reset))
    # u · h + (1 - u) · g
    kept = _two(step, p, MUL, "kept", u, _two(step, p, SUB, "difference", h, g))
    step.outputs = [_two(step, p, ADD, "next_h", g, kept)]


def _product(graph: TfliteGraph, p: Recurrent, name: str, data: int, weights: Any, biases: Any) -> int:
    """What some gates get from their weights."""
    inputs = [data, graph.constant(name, _rows(weights, slice(None)))]
    if biases is not None:
        inputs.append(graph.constant(f"bias_{name}", biases.reshape(-1)))
    made = graph.tensor(f"by_{name}", (p.batch, weights.shape[1] * p.hidden), "float32")
    graph.add(FULLY_CONNECTED, inputs, [made])
    return made


def _split(graph: TfliteGraph, p: Recurrent, name: str, data: int, count: int) -> list[int]:
    """The parts of each gate."""
    import numpy as np

    parts = [graph.tensor(f"{name}_{j}", (p.batch, p.hidden), "float32") for j in range(count)]
    axis = graph.constant(f"axis_{name}", np.array(1, np.int32))
    graph.add(SPLIT, [axis, data], parts, {0: Number("i", count)})
    return parts


def _one(graph: TfliteGraph, p: Recurrent, code: int, name: str, data: int) -> int:
    made = graph.tensor(name, (p.batch, p.hidden), "float32")
    graph.add(code, [data], [made])
    return made


def _two(graph: TfliteGraph, p: Recurrent, code: int, name: str, left: int, right: int) -> int:
    made = graph.tensor(name, (p.batch, p.hidden), "float32")
    graph.add(code, [left, right], [made])
    return made
