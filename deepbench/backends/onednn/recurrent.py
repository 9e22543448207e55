"""Recurrent layers in oneDNN: one primitive for each layer; the backward pass computes all gradients at once."""

from __future__ import annotations

import ctypes
from typing import Any

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.operands import empty
from deepbench.core.precision import type_name
from deepbench.native import onednn as c
from deepbench.ops.recurrent.problem import PER_LAYER, skips_input

FORWARD = {
    "x": c.ARG_SRC,
    "h0": c.ARG_SRC_ITER,
    "c0": c.ARG_SRC_ITER_C,
    "w": c.ARG_WEIGHTS,
    "r": c.ARG_WEIGHTS_ITER,
    "b": c.ARG_BIAS,
    "y": c.ARG_DST,
}
GRADIENTS = {
    "dx": c.ARG_DIFF_SRC,
    "dh0": c.ARG_DIFF_SRC_ITER,
    "dc0": c.ARG_DIFF_SRC_ITER_C,
    "dw": c.ARG_DIFF_WEIGHTS,
    "dr": c.ARG_DIFF_WEIGHTS_ITER,
    "db": c.ARG_DIFF_BIAS,
    "dy": c.ARG_DIFF_DST,
}


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """The kernel of one pass. A backward kernel runs its forward pass when it is loaded, before timing starts.

    A stack is a chain of primitives, one for each layer: oneDNN's own stacks have no layer that is wider than the
    others, and give no layer the states of both directions of time.
    """
    p = case.problem
    if not case.precision.roundoff and (p.cell == "vanilla" or case.settings["mode"] == "training"):
        raise Unsupported("oneDNN has 8-bit layers only for LSTM and GRU, in inference")
    if not case.precision.roundoff and p.cell == "gru" and case.settings["gru_reset"] == "after":
        raise Unsupported("oneDNN's 8-bit GRU applies the reset gate before its product; choose gru_reset=before")
    if skips_input(case):
        raise Unsupported("oneDNN's layers multiply their input; choose input=narrow")
    ahead = "pack_s" if case.settings["weights"] == "packed" else None
    layers = [_Layer(dnn, case, views, bool(ahead)) for views in _views_of_layers(case, arrays)]
    forward = [layer.forward for layer in layers]
    if case.direction == "forward":
        return _chain([conversions.kernel(ahead) for conversions in forward])
    backward = _chain([layer.backward().kernel(ahead) for layer in reversed(layers)])
    before = _chain([conversions.kernel(ahead=None) for conversions in forward])
    backward.private_buffers += before.private_buffers
    backward.keep += before.keep
    load_backward = backward.load

    def load() -> None:
        before.load()
        dnn.run(before.calls)
        load_backward()

    backward.load = load
    return backward


def _views_of_layers(case: Case, arrays: Arrays) -> list[dict[str, Any]]:
    """The arrays of each layer with oneDNN's axes, which begin with layers and directions of time.

    What one layer passes to the next is in buffers of our own.
    """
    p = case.problem
    between = range(p.layers - 1)
    states = [arrays["x"], *(empty(arrays["y"].shape, type_name(arrays["y"].dtype)) for _ in between), arrays["y"]]
    gradients = []
    if "dy" in arrays:
        gradients = [arrays["dx"], *(empty(arrays["dy"].shape, "f32") for _ in between), arrays["dy"]]
    views = []
    for layer in range(p.layers):
        own = {name: arrays[name][layer : layer + 1] for name in PER_LAYER if name in arrays}
        for name in ("w", "dw"):
            if name in arrays:
                first = arrays[name].reshape(1, *arrays[name].shape)  # [None] would have a stride of 0
                own[name] = arrays[f"{name}_deep"][layer - 1 : layer] if layer else first
        own |= {"x": states[layer], "y": states[layer + 1]}
        if gradients:
            own |= {"dx": gradients[layer], "dy": gradients[layer + 1]}
        views.append(own)
    return views


class _Layer:
    """The primitives of one layer."""

    def __init__(self, dnn: c.OneDNN, case: Case, views: dict[str, Any], packed: bool) -> None:
        self._dnn, self._case, self._views = dnn, case, views
        attribute = _quantization(dnn, case)
        is_backward = case.direction == "backward"
        kind = c.FORWARD_TRAINING if is_backward or case.settings["mode"] == "training" else c.FORWARD_INFERENCE
        free = {"w", "r"} if packed or is_backward or attribute else set()
        try:
            self._desc = _create(dnn, case, "forward", kind, _descs(dnn, views, free), None, attribute)
        except Unsupported:  # not with the weights in this order: convert them in every call
            self._desc = _create(dnn, case, "forward", kind, _descs(dnn, views, {"w", "r"}), None, attribute)
        self.forward = c.Conversions(dnn, self._desc)
        for name, argument in FORWARD.items():
            if name in views:
                scales = attribute if name in ("w", "r") else None
                self.forward.add(argument, name, views[name], output=name == "y", attribute=scales)
        self.forward.add_workspace()

    def backward(self) -> c.Conversions:
        """The backward pass, which reads the workspace of the forward pass."""
        dnn, views = self._dnn, self._views
        descs = _descs(dnn, views, {"w", "r", "dw", "dr"})
        desc = _create(dnn, self._case, "backward", c.BACKWARD, descs, self._desc, None)
        conversions = c.Conversions(dnn, desc)
        for name, argument in (FORWARD | GRADIENTS).items():
            if name in views:
                conversions.add(argument, name, views[name], output=name in GRADIENTS and name != "dy")
        conversions.arguments[c.ARG_WORKSPACE] = self.forward.arguments[c.ARG_WORKSPACE]
        conversions.keep += self.forward.keep
        return conversions


def _chain(kernels: list[Kernel]) -> Kernel:
    """One kernel that runs these one after the other, in this order; its notes have sums of bytes and of seconds."""
    first = kernels[0]
    if len(kernels) == 1:
        return first
    notes = dict(first.notes)
    for name, value in first.notes.items():
        values = [kernel.notes[name] for kernel in kernels if name in kernel.notes]
        if isinstance(value, int | float):
            notes[name] = sum(values)
        elif isinstance(value, str):
            notes[name] = ", ".join(dict.fromkeys(values))

    def load() -> None:
        for kernel in kernels:
            kernel.load()

    def store() -> None:
        for kernel in kernels:
            kernel.store()

    return Kernel(
        calls=tuple(call for kernel in kernels for call in kernel.calls),
        load=load,
        store=store,
        private_buffers=tuple(dict.fromkeys(name for kernel in kernels for name in kernel.private_buffers)),
        keep=tuple(kernels),
        notes=notes,
    )


def _descs(dnn: c.OneDNN, views: dict[str, Any], free: set[str]) -> dict[str, c.Handle]:
    """Descriptors of all arrays; the library chooses the formats of those in `free`."""
    return {
        name: dnn.memory_desc_any(view.shape, type_name(view.dtype)) if name in free else dnn.desc_of(view)
        for name, view in views.items()
    }


def _create(
    dnn: c.OneDNN, case: Case, direction: str, kind: int, descs: dict[str, c.Handle], hint: Any, attribute: Any
) -> c.Handle:
    """The primitive descriptor. The order of arguments differs between cells."""
    cell = case.problem.cell
    lstm, none = cell == "lstm", [None]
    gru = "gru" if case.settings["gru_reset"] == "before" else "lbr_gru"
    name = {"vanilla": "vanilla_rnn", "lstm": "lstm", "gru": gru}[cell]

    def ordered(prefix: str) -> list[Any]:
        """Input, states, weights, bias and output; without the last states."""
        tensors: list[Any] = [descs[prefix + "x"], descs[prefix + "h0"], *([descs[prefix + "c0"]] if lstm else [])]
        tensors += [descs[prefix + "w"], descs[prefix + "r"], *(none * 2 if lstm else []), descs[prefix + "b"]]
        return [*tensors, descs[prefix + "y"], None, *(none if lstm else [])]

    arguments: list[Any] = [dnn.engine, kind]
    if cell == "vanilla":
        arguments.append(c.ELTWISE_RELU)
    arguments += [c.BIDIRECTIONAL_CONCAT if case.problem.bidirectional else c.LEFT_TO_RIGHT, *ordered("")]
    if direction == "backward":
        arguments += ordered("d")
    arguments.append(c.DIFF_WEIGHTS_OVERWRITE if direction == "backward" else 0)
    if cell == "vanilla":
        arguments += [ctypes.c_float(0.0), ctypes.c_float(0.0)]  # slope of ReLU below zero; not used
    if direction == "backward":
        arguments.append(hint)
    return dnn.create(f"dnnl_{name}_{direction}_primitive_desc_create", *arguments, attribute)


def _quantization(dnn: c.OneDNN, case: Case) -> c.Handle | None:
    """The attribute with the scales of 8-bit numbers; None for floats."""
    if case.precision.roundoff:
        return None
    facts = case.operation.facts(case)
    attribute = dnn.create("dnnl_primitive_attr_create")
    shift = ctypes.c_float(facts["state_shift"])
    dnn.call("dnnl_primitive_attr_set_rnn_data_qparams", attribute, ctypes.c_float(facts["state_scale"]), shift)
    scale = (ctypes.c_float * 1)(facts["weights_scale"])
    dnn.call("dnnl_primitive_attr_set_rnn_weights_qparams", attribute, ctypes.c_int64(1), 0, scale)
    return attribute
