"""Models of recurrent layers: a sequence operation for each layer, with constant weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deepbench.core.errors import Unsupported
from deepbench.native.openvino import Graph, Value
from deepbench.ops.recurrent.problem import skips_input

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

# The operation of each cell, its functions, and where our gates are in its order.
LAYERS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "vanilla": ("RNNSequence", {"activations": "relu"}, (0,)),
    "lstm": ("LSTMSequence", {"activations": "sigmoid,tanh,tanh"}, (1, 0, 2, 3)),
    "gru": ("GRUSequence", {"activations": "sigmoid,tanh"}, (0, 1, 2)),
}


def recurrent(case: Case, arrays: Arrays) -> Graph:
    """A chain of layers. Everything is declared as f32, and computed as the property of the model says."""
    p = case.problem
    if case.settings["weights"] != "packed":
        raise Unsupported("OpenVINO computes layers step by step unless weights are constant; choose weights=packed")
    if case.settings["mode"] != "inference":
        raise Unsupported("OpenVINO keeps nothing for a backward pass; choose mode=inference")
    if skips_input(case):
        raise Unsupported("OpenVINO's layers multiply their input; choose input=narrow")
    kind, graph = case.precision.data, Graph()
    name, attributes, order = LAYERS[p.cell]
    if p.cell == "gru":
        attributes = {**attributes, "linear_before_reset": case.settings["gru_reset"] == "after"}
    attributes = {
        **attributes, "hidden_size": p.hidden, "direction": "bidirectional" if p.bidirectional else "forward",
        "activations_alpha": "", "activations_beta": "", "clip": "0.0",
    }  # fmt: skip
    x = graph.op("Transpose", graph.convert(graph.parameter(arrays["x"]), "f32"), graph.axes(1, 0, 2))
    lengths = graph.constant(np.full(p.batch, p.timesteps, np.int64), "i64")
    for layer in range(p.layers):
        states = [_state(graph, arrays[state][layer]) for state in ("h0", "c0") if state in arrays]
        weights = [arrays["w_deep"][layer - 1] if layer else arrays["w"], arrays["r"][layer]]
        constants = [_gates_first(w, order) for w in weights]
        bias = arrays["b"][layer][:, [*order, *range(len(order), arrays["b"].shape[2])]]
        constants.append(bias.reshape(p.time_directions, -1).astype(np.float32))
        outputs = 3 if p.cell == "lstm" else 2
        inputs = [x, *states, lengths, *map(graph.constant, constants)]
        y = graph.op(name, *inputs, outputs=outputs, **attributes)  # (batch, directions, steps, hidden)
        if layer + 1 < p.layers:
            y = graph.op("Transpose", y, graph.axes(0, 2, 1, 3))
            x = graph.op("Reshape", y, graph.axes(p.batch, p.timesteps, p.output_size), special_zero=False)
    y = graph.op("Transpose", y, graph.axes(2, 0, 1, 3))
    graph.result(graph.convert(y, kind), arrays["y"])
    return graph


def _state(graph: Graph, array: Any) -> Value:
    """The initial states of a layer, (directions, batch, hidden), with the axis of the batch first."""
    directions, batch, hidden = array.shape
    if directions == 1:
        return graph.convert(graph.parameter(array, (batch, 1, hidden)), "f32")
    return graph.op("Transpose", graph.convert(graph.parameter(array), "f32"), graph.axes(1, 0, 2))


def _gates_first(weights: Any, order: tuple[int, ...]) -> Any:
    """From (directions, from, gate, to) to (directions, gate · to, from), with the gates in the library's order."""
    turned = weights[:, :, list(order)].transpose(0, 2, 3, 1)
    return np.ascontiguousarray(turned, np.float32).reshape(weights.shape[0], -1, weights.shape[1])
