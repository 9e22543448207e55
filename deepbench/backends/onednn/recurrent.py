"""Recurrent layers in oneDNN: one layer in one direction; the backward pass computes all gradients at once."""

from __future__ import annotations

import ctypes
from typing import Any

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays, find_op
from deepbench.core.precision import type_name
from deepbench.native import onednn as c

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
    """The kernel of one pass. A backward kernel runs its forward pass when it is loaded, before timing starts."""
    if not case.precision.roundoff and (case.problem.cell == "vanilla" or case.settings["mode"] == "training"):
        raise Unsupported("oneDNN has 8-bit layers only for LSTM and GRU, in inference")
    if not case.precision.roundoff and case.problem.cell == "gru" and case.settings["gru_reset"] == "after":
        raise Unsupported("oneDNN's 8-bit GRU applies the reset gate before its product; choose gru_reset=before")
    if case.settings["input"] == "skip":
        raise Unsupported("oneDNN's layers multiply their input; choose input=narrow")
    views = {n: _view(n, a) for n, a in arrays.items()}
    ahead = "pack_s" if case.settings["weights"] == "packed" else None
    attribute = _quantization(dnn, case)
    backward = case.direction == "backward"
    kind = c.FORWARD_TRAINING if backward or case.settings["mode"] == "training" else c.FORWARD_INFERENCE
    free = {"w", "r"} if ahead or backward or attribute else set()
    try:
        forward_desc = _create(dnn, case, "forward", kind, _descs(dnn, views, free), None, attribute)
    except Unsupported:  # not with the weights in this order: convert them in every call
        forward_desc = _create(dnn, case, "forward", kind, _descs(dnn, views, {"w", "r"}), None, attribute)
    forward = c.Conversions(dnn, forward_desc)
    for name, argument in FORWARD.items():
        if name in views:
            scales = attribute if name in ("w", "r") else None
            forward.add(argument, name, views[name], output=name == "y", attribute=scales)
    forward.add_workspace()
    if not backward:
        return forward.kernel(ahead)
    backward_desc = _create(
        dnn, case, "backward", c.BACKWARD, _descs(dnn, views, {"w", "r", "dw", "dr"}), forward_desc, None
    )
    conversions = c.Conversions(dnn, backward_desc)
    for name, argument in (FORWARD | GRADIENTS).items():
        if name in views:
            conversions.add(argument, name, views[name], output=name in GRADIENTS and name != "dy")
    conversions.arguments[c.ARG_WORKSPACE] = forward.arguments[c.ARG_WORKSPACE]
    conversions.keep += forward.keep
    kernel, before = conversions.kernel(ahead), forward.kernel(ahead=None)
    kernel.private_buffers += before.private_buffers
    load_backward = kernel.load

    def load() -> None:
        before.load()
        c.run(before.calls)
        load_backward()

    kernel.load = load
    return kernel


def _view(name: str, array: Any) -> Any:
    """The array with oneDNN's axes, which begin with layers and directions (one each)."""
    if name in ("x", "y", "dx", "dy"):
        return array
    return array.reshape(1, 1, *array.shape)


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
    arguments += [c.LEFT_TO_RIGHT, *ordered("")]
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
    facts = find_op(case.op).facts(case)
    attribute = dnn.create("dnnl_primitive_attr_create")
    shift = ctypes.c_float(facts["state_shift"])
    dnn.call("dnnl_primitive_attr_set_rnn_data_qparams", attribute, ctypes.c_float(facts["state_scale"]), shift)
    scale = (ctypes.c_float * 1)(facts["weights_scale"])
    dnn.call("dnnl_primitive_attr_set_rnn_weights_qparams", attribute, ctypes.c_int64(1), 0, scale)
    return attribute
