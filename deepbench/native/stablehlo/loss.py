"""Losses and their gradients, in f32."""

from __future__ import annotations

from collections.abc import Callable

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import FLOATS, HloValue
from deepbench.native.stablehlo.softmax import softmax

# The weight of examples with t = 1 in the focal loss, as in `ops/loss.py`.
ALPHA = 0.25

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def forward(case: Case, arrays: Values) -> Values:
    """The mean of the losses."""
    x, target, count = _examples(case, arrays)
    return {"loss": (FORWARD[case.problem.kind](x, target).sum(0, 1) / count).reshape(1)}


def backward(case: Case, arrays: Values) -> Values:
    """The gradients of all numbers."""
    x, target, count = _examples(case, arrays)
    return {"dx": (BACKWARD[case.problem.kind](x, target) * (arrays["dloss"] / count)).to(arrays["dx"].kind)}


def _examples(case: Case, arrays: Values) -> tuple[HloValue, HloValue, int]:
    """Numbers and targets in f32, a target for each number; and over how many losses the mean is."""
    p, x, target = case.problem, arrays["x"].to("f32"), arrays["target"]
    if p.kind != "cross_entropy":
        return x, target.to("f32"), p.rows * p.columns
    chosen = x.lines.counted(x.shape, 1).compare("EQ", target.reshape(p.rows, 1))
    return x, chosen.to("f32"), p.rows


def _cross_entropy(x: HloValue, chosen: HloValue) -> HloValue:
    below = x - x.max(1)
    return below.apply("exponential").sum(1).apply("log") - (below * chosen).sum(1)


def _log_sigmoids(x: HloValue) -> tuple[HloValue, HloValue]:
    """-log(sigmoid(x)) and -log(1 - sigmoid(x))."""
    small = (x.apply("abs") * -1).apply("exponential").apply("log_plus_one")
    return small - x.apply("minimum", 0), small + x.apply("maximum", 0)


def _by_class(x: HloValue, t: HloValue) -> tuple[HloValue, HloValue]:
    """-log of the probability of the right class, and of the other."""
    (one, zero), is_one = _log_sigmoids(x), t.compare("GT", 0)
    return is_one.choose(one, zero), is_one.choose(zero, one)


def _smooth_l1(x: HloValue, t: HloValue) -> HloValue:
    d = (x - t).apply("abs")
    return d.compare("LT", 1).choose(d * d * 0.5, d - 0.5)


def _focal(x: HloValue, t: HloValue) -> HloValue:
    loss, other = _by_class(x, t)
    return (t * (2 * ALPHA - 1) + (1 - ALPHA)) * (other * -2).apply("exponential") * loss


def _focal_gradient(x: HloValue, t: HloValue) -> HloValue:
    loss, other = _by_class(x, t)
    miss, hit = (value.apply("negate").apply("exponential") for value in (other, loss))
    return (t * -1 + (1 - ALPHA)) * miss * miss * (hit * loss * 2 + miss)


FORWARD: dict[str, Callable[[HloValue, HloValue], HloValue]] = {
    "cross_entropy": _cross_entropy,
    "binary_cross_entropy": lambda x, t: _by_class(x, t)[0],
    "mean_squared_error": lambda x, t: (x - t) * (x - t),
    "smooth_l1": _smooth_l1,
    "focal": _focal,
}

BACKWARD: dict[str, Callable[[HloValue, HloValue], HloValue]] = {
    "cross_entropy": lambda x, chosen: softmax(x, 1) - chosen,
    "binary_cross_entropy": lambda x, t: x.apply("logistic") - t,
    "mean_squared_error": lambda x, t: (x - t) * 2,
    "smooth_l1": lambda x, t: (x - t).apply("maximum", -1).apply("minimum", 1),
    "focal": _focal_gradient,
}
