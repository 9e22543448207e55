"""The check of elementwise functions passes float32 and finds likely mistakes."""

import math

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.ops.elementwise import KINDS
from tests.ops.evaluation import is_found, is_right_with_room

SIZES = (692, 5001, 3_000_017)
erf = np.vectorize(math.erf, otypes=[np.float32])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normal(x):
    return (1 + erf(x * np.float32(math.sqrt(0.5)))) / 2


def gelu_tanh(a):
    return a * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (a + np.float32(0.044715) * a**3))) / 2


RIGHT = {
    "relu": lambda a: np.maximum(a, 0),
    "relu6": lambda a: np.clip(a, 0, 6),
    "gelu": lambda a: a * normal(a),
    "gelu_tanh": gelu_tanh,
    "silu": lambda a: a * sigmoid(a),
    "elu": lambda a: np.where(a > 0, a, np.exp(np.minimum(a, 0)) - 1),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "multiply_add": lambda a, b, c: a * b + c,
    "add_relu": lambda a, b: np.maximum(a + b, 0),
    "swiglu": lambda a, b: a * sigmoid(a) * b,
    "hardtanh": lambda a: np.clip(a, -1, 1),
    "geglu": lambda a, b: a * normal(a) * b,
    "geglu_tanh": lambda a, b: gelu_tanh(a) * b,
}


def gelu_gradient(a, dy):
    return dy * (normal(a) + a * np.exp(-a * a / 2) * np.float32(1 / math.sqrt(2 * math.pi)))


def silu_gradient(a, dy):
    return dy * sigmoid(a) * (1 + a * (1 - sigmoid(a)))


def gelu_tanh_gradient(a, dy):
    root = np.float32(math.sqrt(2 / math.pi))
    t = np.tanh(root * (a + np.float32(0.044715) * a**3))
    return dy * ((1 + t) / 2 + a * (1 - t * t) * root * (1 + np.float32(3 * 0.044715) * a * a) / 2)


RIGHT_GRADIENT = {
    "relu": lambda y, dy: dy * (y > 0),
    "relu6": lambda a, dy: dy * ((a > 0) & (a < 6)),
    "gelu": gelu_gradient,
    "gelu_tanh": gelu_tanh_gradient,
    "silu": silu_gradient,
    "elu": lambda a, dy: dy * np.exp(np.minimum(a, 0)),
    "sigmoid": lambda y, dy: dy * y * (1 - y),
    "tanh": lambda y, dy: dy * (1 - y * y),
    "multiply": lambda a, b, dy: (dy * b, dy * a),
    "multiply_add": lambda a, b, dy: (dy * b, dy * a),
    "add_relu": lambda y, dy: dy * (y > 0),
    "swiglu": lambda a, b, dy: (silu_gradient(a, dy * b), dy * a * sigmoid(a)),
    "hardtanh": lambda a, dy: dy * ((a > -1) & (a < 1)),
    "geglu": lambda a, b, dy: (gelu_gradient(a, dy * b), dy * a * normal(a)),
    "geglu_tanh": lambda a, b, dy: (gelu_tanh_gradient(a, dy * b), dy * gelu_tanh(a)),
}


def evaluated(function, direction):
    """The function on the arrays of a problem."""

    def evaluate(problem, arrays):
        kind = KINDS[problem.kind]
        if direction == "forward":
            return {"y": function(*(arrays[name] for name in kind.inputs))}
        found = function(*(arrays[name] for name in (*kind.kept, "dy")))
        return dict(zip(kind.gradients, found if isinstance(found, tuple) else (found,), strict=True))

    return evaluate


@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("n", SIZES[:2])
@pytest.mark.parametrize("kind", KINDS)
def test_float32_passes(kind, n, precision):
    assert is_right_with_room(f"elementwise kind={kind} n={n} forward {precision}", evaluated(RIGHT[kind], "forward"))
    if kind in RIGHT_GRADIENT:
        text = f"elementwise kind={kind} n={n} backward {precision}"
        assert is_right_with_room(text, evaluated(RIGHT_GRADIENT[kind], "backward"))


def test_float32_passes_on_a_sample():
    assert is_right_with_room(
        f"elementwise kind=swiglu n={SIZES[2]} forward f32", evaluated(RIGHT["swiglu"], "forward")
    )


WRONG = {
    "leaky": ("relu", lambda a: np.where(a > 0, a, np.float32(0.01) * a)),
    "without the upper bound": ("relu6", lambda a: np.maximum(a, 0)),
    "by a sigmoid": ("gelu", lambda a: a * sigmoid(np.float32(1.702) * a)),
    "without the argument": ("silu", sigmoid),
    "of half the size": ("elu", lambda a: np.where(a > 0, a, (np.exp(np.minimum(a, 0)) - 1) / 2)),
    "of the other sign": ("sigmoid", lambda a: sigmoid(-a)),
    "clipped": ("tanh", lambda a: np.clip(a, -1, 1)),
    "difference": ("add", lambda a, b: a - b),
    "square": ("multiply", lambda a, b: a * a),
    "without c": ("multiply_add", lambda a, b, c: a * b),
    "without relu": ("add_relu", lambda a, b: a + b),
    "the gate is the other half": ("swiglu", lambda a, b: b * sigmoid(b) * a),
    "without the lower bound": ("hardtanh", lambda a: np.minimum(a, 1)),
    "a smooth one": ("hardtanh", np.tanh),
    "the gate is the other half of geglu": ("geglu", lambda a, b: b * normal(b) * a),
    "without the other half": ("geglu", lambda a, b: a * normal(a)),
    "a sigmoid as the gate": ("geglu_tanh", lambda a, b: a * sigmoid(a) * b),
    "without the last element": ("silu", lambda a: np.append(RIGHT["silu"](a)[:-1], np.float32(0))),
}


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_function_is_found(name, n, precision):
    kind, function = WRONG[name]

    assert is_found(f"elementwise kind={kind} n={n} forward {precision}", evaluated(function, "forward"))


@pytest.mark.parametrize("n", SIZES)
def test_the_approximation_of_gelu_is_not_gelu(n):
    """In bf16 the difference, 5·10⁻⁴ at most, is less than the rounding of large numbers."""
    text = "elementwise kind={} n={} {} f32"

    assert is_found(text.format("gelu", n, "forward"), evaluated(gelu_tanh, "forward"))
    assert is_found(text.format("gelu_tanh", n, "forward"), evaluated(RIGHT["gelu"], "forward"))
    assert is_found(text.format("gelu", n, "backward"), evaluated(gelu_tanh_gradient, "backward"))
    for kind, other in (("geglu", "geglu_tanh"), ("geglu_tanh", "geglu")):
        assert is_found(text.format(kind, n, "forward"), evaluated(RIGHT[other], "forward"))
        assert is_found(text.format(kind, n, "backward"), evaluated(RIGHT_GRADIENT[other], "backward"))


WRONG_GRADIENT = {
    "of every element": ("relu", lambda y, dy: dy),
    "without the upper bound": ("relu6", lambda a, dy: dy * (a > 0)),
    "without the density": ("gelu", lambda a, dy: dy * normal(a)),
    "without the second term": ("silu", lambda a, dy: dy * sigmoid(a)),
    "of positive numbers": ("elu", lambda a, dy: dy * (a > 0)),
    "without 1 - y": ("sigmoid", lambda y, dy: dy * y),
    "without the square": ("tanh", lambda y, dy: dy * (1 - y)),
    "exchanged": ("multiply", lambda a, b, dy: (dy * a, dy * b)),
    "without b": ("swiglu", lambda a, b, dy: (silu_gradient(a, dy), dy * a * sigmoid(a))),
    "outside of the bounds": ("hardtanh", lambda a, dy: dy * (abs(a) >= 1)),
    "without the lower bound": ("hardtanh", lambda a, dy: dy * (a < 1)),
    "exchanged gradients of geglu": ("geglu", lambda a, b, dy: RIGHT_GRADIENT["geglu"](a, b, dy)[::-1]),
    "the gradient of b without the gate": ("geglu", lambda a, b, dy: (gelu_gradient(a, dy * b), dy * a)),
    "the gradient of a without b": ("geglu_tanh", lambda a, b, dy: (gelu_tanh_gradient(a, dy), dy * gelu_tanh(a))),
}


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", WRONG_GRADIENT)
def test_a_wrong_gradient_is_found(name, n, precision):
    kind, function = WRONG_GRADIENT[name]

    assert is_found(f"elementwise kind={kind} n={n} backward {precision}", evaluated(function, "backward"))


@pytest.mark.parametrize("kind", RIGHT_GRADIENT)
def test_gradients_are_those_of_the_functions(kind):
    """Differences of the float64 definition."""
    op = find_op("elementwise")
    forward, backward = (
        parse_case(f"elementwise kind={kind} n=97 {d} f32 reference threads=1") for d in ("forward", "backward")
    )
    inputs = {n: a.astype(np.float64) for n, a in op.operands(forward).items()}
    made = {n: a.astype(np.float64) for n, a in op.operands(backward).items()}
    made |= {n: a for n, a in inputs.items() if n in made}
    if "result" in made:
        made["result"] = op.reference(forward, inputs)["y"]
    gradients = op.reference(backward, made)
    for name, gradient in gradients.items():
        step = 1e-6
        ends = [op.reference(forward, {**inputs, name[1:]: inputs[name[1:]] + s})["y"] for s in (step, -step)]
        assert (ends[0] - ends[1]) / (2 * step) * made["dy"] == pytest.approx(gradient, abs=1e-6)


def test_the_gradients_of_add_are_nothing_to_compute():
    from deepbench.core.errors import Unsupported

    case = parse_case("elementwise kind=add n=9 backward f32 reference threads=1")
    with pytest.raises(Unsupported, match="nothing to compute"):
        find_op("elementwise").operands(case)
