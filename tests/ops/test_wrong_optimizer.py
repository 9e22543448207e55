"""The check of optimizers passes float32 and finds likely mistakes."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.measuring.check import check
from deepbench.ops.optimizer import BETA1, BETA2, DECAY, EPSILON, MOMENTUM, RATE, STEP
from tests.ops.evaluation import is_found, is_right_with_room

SIZES = (1003, 3_000_017)
KINDS = ["sgd", "adam", "adamw", "lamb", "adagrad"]


def stepped(problem, arrays, **changes):
    """A step in float32; `changes` replace one of its numbers."""
    f = np.float32
    c = {"beta1": BETA1, "beta2": BETA2, "bias": True, "nesterov": False, "coupled": False, "decay": DECAY, **changes}
    p, g, v = (arrays[name] for name in "pgv")
    if problem.kind == "sgd":
        v = f(c.get("momentum", MOMENTUM)) * v + g
        step = g + f(MOMENTUM) * v if c["nesterov"] else v
        return {"p": p - f(RATE) * step, "v": v}
    if problem.kind == "adagrad":
        v = (f(c.get("keep", 1.0)) * v + g * g).astype(f)
        of = arrays["v"] if c.get("old") else v
        return {"p": p - f(RATE) * g / (np.sqrt(of) if c.get("root", True) else of), "v": v}
    if c["coupled"]:
        g = g + f(DECAY) * p
    m = f(c["beta1"]) * arrays["m"] + f(1 - c["beta1"]) * g
    v = f(c["beta2"]) * v + f(1 - c["beta2"]) * g * g
    corrections = (1 - BETA1**STEP, 1 - BETA2**STEP) if c["bias"] else (1.0, 1.0)
    old = arrays["m"] if c.get("old") else m
    if problem.kind == "lamb":
        r = old / f(corrections[0]) / (np.sqrt(v / f(corrections[1])) + f(EPSILON)) + f(c["decay"]) * p
        size_p, size_r = (np.sqrt((x[: c.get("count")].astype(float) ** 2).sum()) for x in (p, r))
        size_p, size_r = c.get("norms", lambda *sizes: sizes)(size_p, size_r)
        return {"p": p - f(RATE * size_p / size_r) * r, "m": m, "v": v}
    if problem.kind == "adamw" and not c["coupled"]:
        p = p * f(1 - RATE * c["decay"])
    return {
        "p": p - f(RATE) * (old / f(corrections[0])) / (np.sqrt(v / f(corrections[1])) + f(EPSILON)),
        "m": m,
        "v": v,
    }


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("n", [1, *SIZES])
@pytest.mark.parametrize("kind", KINDS)
def test_float32_passes(kind, n, precision):
    assert is_right_with_room(f"optimizer kind={kind} n={n} forward {precision}", stepped)


def without_the_last(problem, arrays):
    """The last parameter keeps its value."""
    found = stepped(problem, arrays)
    found["p"][-1] = arrays["p"][-1]
    return found


WRONG = {
    "no correction of the bias": ("adam", {"bias": False}),
    "other beta1": ("adam", {"beta1": 0.99}),
    "other beta2": ("adam", {"beta2": 0.99}),
    "the moment before the step": ("adam", {"old": True}),
    "other momentum": ("sgd", {"momentum": 0.99}),
    "Nesterov": ("sgd", {"nesterov": True}),
    "no ratio of norms": ("lamb", {"norms": lambda p, r: (1.0, 1.0)}),
    "the ratio the other way round": ("lamb", {"norms": lambda p, r: (r, p)}),
    "squares of norms": ("lamb", {"norms": lambda p, r: (p * p, r * r)}),
    "the moment before the step in LAMB": ("lamb", {"old": True}),
    "a mean of squares": ("adagrad", {"keep": 0.999}),
    "without the square root": ("adagrad", {"root": False}),
    "the squares before the step": ("adagrad", {"old": True}),
}


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_step_is_found(name, n, precision):
    kind, changes = WRONG[name]
    text = f"optimizer kind={kind} n={n} forward {precision}"

    assert is_found(text, lambda problem, arrays: stepped(problem, arrays, **changes))


@pytest.mark.parametrize("changes", [{"decay": 0.0}, {"coupled": True}])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_a_wrong_decay_is_found_in_f32(kind, changes, n):
    """In bf16 it is smaller than the rounding of the parameters."""
    text = f"optimizer kind={kind} n={n} forward f32"

    assert is_found(text, lambda problem, arrays: stepped(problem, arrays, **changes))


@pytest.mark.parametrize("n", SIZES)
def test_a_missing_correction_of_the_bias_is_found_in_lamb(n):
    """Only in f32: the ratio of norms makes up for a factor of r, but for its share of the decay."""
    text = f"optimizer kind=lamb n={n} forward f32"

    assert is_found(text, lambda problem, arrays: stepped(problem, arrays, bias=False))


@pytest.mark.parametrize("n", SIZES)
def test_norms_of_a_part_of_the_parameters_are_found(n):
    """One thread of four forgets its share of the sums: the ratio is wrong only by the randomness of the parts."""
    text = f"optimizer kind=lamb n={n} forward f32"

    assert is_found(text, lambda problem, arrays: stepped(problem, arrays, count=problem.n * 3 // 4))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_parameter_that_is_not_updated_is_found(kind, n):
    assert is_found(f"optimizer kind={kind} n={n} forward f32", without_the_last)


@pytest.mark.parametrize("kind", ["sgd", "adam", "lamb", "adagrad"])
def test_a_second_step_is_not_the_first(kind):
    case = parse_case(f"optimizer kind={kind} n=1003 forward f32 reference threads=1")
    op = find_op("optimizer")
    arrays = op.operands(case)
    for name, values in op.reference(case, arrays).items():
        arrays[name][...] = values
    assert check(op, case, arrays).passed
    for name, values in stepped(case.problem, arrays).items():
        arrays[name][...] = values
    assert not check(op, case, arrays).passed
    op.reset(case, arrays)
    for name, values in stepped(case.problem, arrays).items():
        arrays[name][...] = values
    assert check(op, case, arrays).passed
