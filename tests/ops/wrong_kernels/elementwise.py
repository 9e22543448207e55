"""Elementwise functions and their gradients, computed rightly and with mistakes."""

import math

import numpy as np

from deepbench.ops.elementwise import KINDS
from tests.ops.wrong_kernels import Kernel, of_problem

SIZES = (692, 5001, 80_017)

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


# In bf16 the difference of the approximation of gelu, 5·10⁻⁴ at most, is less than the rounding of large numbers.
APPROXIMATIONS = [
    ("gelu", "forward", gelu_tanh),
    ("gelu_tanh", "forward", RIGHT["gelu"]),
    ("gelu", "backward", gelu_tanh_gradient),
    *((kind, "forward", RIGHT[other]) for kind, other in (("geglu", "geglu_tanh"), ("geglu_tanh", "geglu"))),
    *((kind, "backward", RIGHT_GRADIENT[other]) for kind, other in (("geglu", "geglu_tanh"), ("geglu_tanh", "geglu"))),
]


def made(kind, n, direction, precision, mistake, function):
    text = f"elementwise kind={kind} n={n} {direction} {precision}"
    return Kernel(text, mistake, of_problem(evaluated(function, direction)))


KERNELS = [
    *(
        made(kind, n, direction, precision, None, function)
        for direction, functions in (("forward", RIGHT), ("backward", RIGHT_GRADIENT))
        for kind, function in functions.items()
        for n in SIZES[:2]
        for precision in ("f32", "bf16", "f16")
    ),
    made("swiglu", SIZES[2], "forward", "f32", None, RIGHT["swiglu"]),
    *(
        made(kind, n, direction, precision, name, function)
        for direction, functions in (("forward", WRONG), ("backward", WRONG_GRADIENT))
        for name, (kind, function) in functions.items()
        for n in SIZES
        for precision in ("f32", "bf16")
    ),
    *(
        made(kind, n, direction, "f32", "the approximation for the function, or the other way round", function)
        for kind, direction, function in APPROXIMATIONS
        for n in SIZES
    ),
]
