"""Functions of elements, in f32."""

from __future__ import annotations

import math
from collections.abc import Callable

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import FLOATS, HloValue

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)

ROOT = math.sqrt(2 / math.pi)


def forward(case: Case, arrays: Values) -> Values:
    return _results(case, arrays, FORWARD[case.problem.kind])


def backward(case: Case, arrays: Values) -> Values:
    return _results(case, arrays, BACKWARD[case.problem.kind])


def _results(case: Case, arrays: Values, function: Callable[..., HloValue | tuple[HloValue, ...]]) -> Values:
    """The outputs in their types, from the inputs in f32."""
    outputs = [name for name in arrays if name in case.operation.outputs]
    found = function(*(value.to("f32") for name, value in arrays.items() if name not in outputs))
    results = found if isinstance(found, tuple) else (found,)
    return {name: result.to(arrays[name].kind) for name, result in zip(outputs, results, strict=True)}


def _clip(a: HloValue, low: float, high: float) -> HloValue:
    return a.apply("maximum", low).apply("minimum", high)


def _sigmoid(a: HloValue) -> HloValue:
    return a.apply("logistic")


def _phi(a: HloValue) -> HloValue:
    """The normal distribution; as a complement, which is exact where it is near 0."""
    return (a * -math.sqrt(0.5)).erfc() * 0.5


def _tanh_phi(a: HloValue) -> HloValue:
    """Its approximation: (1 + tanh(z))/2 is sigmoid(2·z)."""
    return _sigmoid((a + a * a * a * 0.044715) * (2 * ROOT))


FORWARD: dict[str, Callable[..., HloValue]] = {
    "relu": lambda a: a.apply("maximum", 0),
    "relu6": lambda a: _clip(a, 0, 6),
    "hardtanh": lambda a: _clip(a, -1, 1),
    "gelu": lambda a: a * _phi(a),
    "gelu_tanh": lambda a: a * _tanh_phi(a),
    "silu": lambda a: a * _sigmoid(a),
    "elu": lambda a: a.compare("GT", 0).choose(a, a.apply("exponential_minus_one")),
    "sigmoid": _sigmoid,
    "tanh": lambda a: a.apply("tanh"),
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "multiply_add": lambda a, b, c: a * b + c,
    "add_relu": lambda a, b: (a + b).apply("maximum", 0),
    "swiglu": lambda a, b: a * _sigmoid(a) * b,
    "geglu": lambda a, b: a * _phi(a) * b,
    "geglu_tanh": lambda a, b: a * _tanh_phi(a) * b,
}


def _gelu_slope(a: HloValue) -> HloValue:
    return _phi(a) + a * (a * a * -0.5).apply("exponential") * (ROOT / 2)


def _gelu_tanh_slope(a: HloValue) -> HloValue:
    s = _tanh_phi(a)
    return s + a * s * (1 - s) * (a * a * (3 * 0.044715) + 1) * (2 * ROOT)


def _silu_slope(a: HloValue) -> HloValue:
    s = _sigmoid(a)
    return s * (a * (1 - s) + 1)


def _where(condition: HloValue, dy: HloValue) -> HloValue:
    return condition.choose(dy, 0)


BACKWARD: dict[str, Callable[..., HloValue | tuple[HloValue, HloValue]]] = {
    "relu": lambda y, dy: _where(y.compare("GT", 0), dy),
    "add_relu": lambda y, dy: _where(y.compare("GT", 0), dy),
    "relu6": lambda a, dy: _where(a.compare("GT", 0) & a.compare("LT", 6), dy),
    "hardtanh": lambda a, dy: _where(a.apply("abs").compare("LT", 1), dy),
    "gelu": lambda a, dy: dy * _gelu_slope(a),
    "gelu_tanh": lambda a, dy: dy * _gelu_tanh_slope(a),
    "silu": lambda a, dy: dy * _silu_slope(a),
    "elu": lambda a, dy: dy * a.apply("minimum", 0).apply("exponential"),
    "sigmoid": lambda y, dy: dy * y * (1 - y),
    "tanh": lambda y, dy: dy * (1 - y * y),
    "multiply": lambda a, b, dy: (dy * b, dy * a),
    "multiply_add": lambda a, b, dy: (dy * b, dy * a),
    "swiglu": lambda a, b, dy: (dy * b * _silu_slope(a), dy * a * _sigmoid(a)),
    "geglu": lambda a, b, dy: (dy * b * _gelu_slope(a), dy * a * _phi(a)),
    "geglu_tanh": lambda a, b, dy: (dy * b * _gelu_tanh_slope(a), dy * a * _tanh_phi(a)),
}
