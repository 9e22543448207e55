"""Normalizations and softmax in PyTorch: each function returns what to call, and where its results belong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deepbench.core.case import Case
from deepbench.core.rows import EPSILON

Tensors = dict[str, Any]
Prepared = tuple[Callable[[], Any], list[Any], str]
"""The function, the tensors that its results are copied to, in their order, and the operator's name."""


def layer_norm(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`layer_norm`; backward the operator that autograd calls."""
    functional, shape = torch.nn.functional, [case.problem.columns]
    if case.direction == "forward":
        return lambda: functional.layer_norm(t["x"], shape, t["scale"], t["shift"], EPSILON), [t["y"]], "layer_norm"
    operator = torch.ops.aten.native_layer_norm_backward
    mean, reciprocal = t["mean"][:, None], torch.rsqrt(t["variance"][:, None] + EPSILON)
    shift, which = torch.zeros_like(t["scale"]), [True, True, True]
    outputs = [t["dx"], t["dscale"], t["dshift"]]

    def run() -> Any:
        return operator(t["dy"], t["x"], shape, mean, reciprocal, t["scale"], shift, which)

    return run, outputs, "native_layer_norm_backward"


def rms_norm(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`rms_norm`; backward autograd, because PyTorch has no operator for it on CPUs. It runs the steps one by one."""
    function, shape = torch.nn.functional.rms_norm, (case.problem.columns,)
    if case.direction == "forward":
        return lambda: function(t["x"], shape, t["scale"], EPSILON), [t["y"]], "rms_norm"
    inputs = [t[name].detach().requires_grad_() for name in ("x", "scale")]
    with torch.enable_grad():
        y = function(inputs[0], shape, inputs[1], EPSILON)
    return lambda: torch.autograd.grad(y, inputs, t["dy"], retain_graph=True), [t["dx"], t["dscale"]], "autograd"


def batch_norm(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`batch_norm`; in training and backward the operators that autograd calls. The second axis has the channels."""
    functional, aten = torch.nn.functional, torch.ops.aten
    if case.direction == "backward":
        reciprocal, which = torch.rsqrt(t["variance"] + EPSILON), [True, True, True]

        def backward() -> Any:
            statistics = (None, None, t["mean"], reciprocal)
            return aten.native_batch_norm_backward(t["dy"], t["x"], t["scale"], *statistics, True, EPSILON, which)

        return backward, [t["dx"], t["dscale"], t["dshift"]], "native_batch_norm_backward"
    x, scale, shift = t["x"], t["scale"], t["shift"]
    if case.settings["mode"] == "training":
        outputs = [t["y"], t["batch_mean"], FromReciprocal(t["batch_variance"])]

        def training() -> Any:
            return aten.native_batch_norm(x, scale, shift, None, None, True, 0.0, EPSILON)

        return training, outputs, "native_batch_norm"

    def inference() -> Any:
        return functional.batch_norm(x, t["mean"], t["variance"], scale, shift, False, 0.0, EPSILON)

    return inference, [t["y"]], "batch_norm"


def group_norm(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`group_norm`; backward the operator that autograd calls."""
    p = case.problem
    if case.direction == "forward":
        function = torch.nn.functional.group_norm
        return lambda: function(t["x"], p.groups, t["scale"], t["shift"], EPSILON), [t["y"]], "group_norm"
    operator, which = torch.ops.aten.native_group_norm_backward, [True, True, True]
    reciprocal, sizes = torch.rsqrt(t["variance"] + EPSILON), (p.n, p.c, p.h * p.w, p.groups)
    outputs = [t["dx"], t["dscale"], t["dshift"]]

    def run() -> Any:
        return operator(t["dy"], t["x"], t["mean"], reciprocal, t["scale"], *sizes, which)

    return run, outputs, "native_group_norm_backward"


def softmax(torch: Any, case: Case, t: Tensors) -> Prepared:
    """`softmax`; backward the operator that autograd calls."""
    if case.direction == "forward":
        return lambda: torch.softmax(t["x"], 1), [t["y"]], "softmax"
    operator = torch.ops.aten._softmax_backward_data
    return lambda: operator(t["dy"], t["p"], 1, t["p"].dtype), [t["dx"]], "_softmax_backward_data"


class FromReciprocal:
    """Takes the reciprocal of a standard deviation, which is what PyTorch returns, for a variance."""

    def __init__(self, variance: Any) -> None:
        self.variance = variance

    def copy_(self, reciprocal: Any) -> None:
        """Store the variance."""
        self.variance.copy_(reciprocal.double() ** -2 - EPSILON)
