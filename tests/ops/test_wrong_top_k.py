"""The check of the largest k passes any choice of equal numbers and any allowed order, and finds likely mistakes."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.measuring.check import check
from tests.ops.evaluation import is_found, is_right_with_room

SIZES = ("rows=3 columns=35 k=4", "rows=17 columns=64 k=8", "rows=5 columns=1003 k=100", "rows=300 columns=256 k=8")
SETTINGS = ("", "sorted=no", "softmax=yes", "softmax=yes sorted=no")


def softmax(values):
    e = np.exp(values - values.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def chosen(problem, arrays, settings="", mistake=None):
    """The values and positions, largest first; of equal numbers the last."""
    x, k = arrays["x"].copy(), problem.k
    if mistake == "largest missing":
        x[np.arange(len(x)), x.argmax(axis=1)] = -99
    if mistake == "smallest instead":
        x = -x
    if mistake == "of the sizes":
        x = np.abs(x)
    if mistake == "last columns not seen":
        x[:, -(-x.shape[1] // 4) * 3 :] = -99
    order = np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1]
    at = (x.shape[1] - 1 - order)[:, :k]
    if mistake == "next one instead of the last":
        at[:, -1] = (x.shape[1] - 1 - order)[:, k]
    if mistake == "one twice":
        at[:, -1] = at[:, 0]
    if mistake == "unsorted":
        at = np.roll(at, 1, axis=1)
    values = np.take_along_axis(arrays["x"], at, axis=1)
    if mistake == "softmax of all":
        values = np.take_along_axis(softmax(arrays["x"]), at, axis=1)
    elif "softmax=yes" in settings and mistake != "no softmax":
        values = softmax(values)
    if mistake == "positions shifted":
        at = (at + 1) % x.shape[1]
    if mistake == "positions of the next row":
        at = np.roll(at, 1, axis=0)
    if mistake == "values of another order":
        values = values[:, ::-1]
    if mistake == "position beyond the end":
        at[-1, -1] = x.shape[1]
    if mistake == "last row forgotten":
        values, at = values.copy(), at.copy()
        values[-1], at[-1] = 0, 0
    return {"values": values, "indices": at.astype(np.float32)}


@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("sizes", [*(p.text for p in find_op("top_k").smoke), *SIZES, "rows=2 columns=20000 k=2000"])
def test_the_largest_pass(sizes, settings, precision):
    assert is_right_with_room(f"top_k {sizes} forward {precision} {settings}", lambda p, a: chosen(p, a, settings))


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("settings", ["sorted=no", "softmax=yes sorted=no"])
@pytest.mark.parametrize("sizes", SIZES)
def test_any_order_passes_if_none_is_asked_for(sizes, settings, precision):
    def in_another_order(problem, arrays):
        found = chosen(problem, arrays, settings)
        order = np.random.default_rng(1).permutation(problem.k)
        return {name: array[:, order] for name, array in found.items()}

    assert is_right_with_room(f"top_k {sizes} forward {precision} {settings}", in_another_order)


MISTAKES = (
    *("largest missing", "smallest instead", "of the sizes", "next one instead of the last", "one twice", "unsorted"),
    *("positions shifted", "positions of the next row", "position beyond the end", "last row forgotten"),
    *("values of another order", "last columns not seen"),
)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("sizes", SIZES)
def test_a_mistake_is_found(sizes, settings, mistake, precision):
    if mistake == "unsorted" and "sorted=no" in settings:
        pytest.skip("any order is right")
    kernel = lambda p, a: chosen(p, a, settings, mistake)  # noqa: E731

    assert is_found(f"top_k {sizes} forward {precision} {settings}", kernel)


@pytest.mark.parametrize("mistake", ["no softmax", "softmax of all"])
@pytest.mark.parametrize("sizes", SIZES)
def test_a_wrong_softmax_is_found(sizes, mistake):
    text = f"top_k {sizes} forward bf16 softmax=yes"

    assert is_found(text, lambda p, a: chosen(p, a, "softmax=yes", mistake))


def test_in_bf16_either_of_two_equal_numbers_is_right():
    case = parse_case("top_k rows=4 columns=300 k=20 forward bf16 reference threads=1")
    op = find_op("top_k")
    arrays = op.operands(case)
    for turn in (1, -1):
        order = np.argsort(-arrays["x"].astype(np.float64)[:, ::turn], axis=1, kind="stable")[:, :20]
        arrays["indices"][...] = order if turn == 1 else 299 - order
        arrays["values"][...] = np.take_along_axis(arrays["x"], arrays["indices"].astype(int), axis=1)
        assert check(op, case, arrays).passed
        if turn == 1:
            before = arrays["indices"].copy()
    assert (before != arrays["indices"]).any()


def gradient(problem, arrays, settings="", mistake=None):
    dy, at = arrays["dy"], arrays["chosen"]
    if "softmax=yes" in settings:
        p = arrays["p"]
        product = 0 if mistake == "product forgotten" else (p * dy).sum(axis=1, keepdims=True)
        dy = dy - product if mistake == "not multiplied" else p * (dy - product)
    dx = np.zeros((problem.rows, problem.columns), np.float32)
    if mistake == "not zero elsewhere":
        dx += np.float32(1e-3)
    if mistake == "at the next column":
        at = (at + 1) % problem.columns
    if mistake == "last one forgotten":
        dy, at = dy[:, :-1], at[:, :-1]
    np.put_along_axis(dx, at, dy, axis=1)
    if mistake == "last row not written":
        dx[-1] = np.nan
    return {"dx": dx}


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("settings", ["", "softmax=yes"])
@pytest.mark.parametrize("sizes", SIZES)
def test_gradients_pass_and_mistakes_are_found(sizes, settings, precision):
    text = f"top_k {sizes} backward {precision} {settings}"
    mistakes = ["not zero elsewhere", "at the next column", "last one forgotten", "last row not written"]
    mistakes += ["product forgotten", "not multiplied"] if settings else []

    assert is_right_with_room(text, lambda p, a: gradient(p, a, settings))
    for mistake in mistakes:
        assert is_found(text, lambda p, a, m=mistake: gradient(p, a, settings, m)), mistake
