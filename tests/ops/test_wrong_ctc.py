"""The check of connectionist temporal classification passes float32 and finds likely mistakes."""

import itertools

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from tests.ops.evaluation import is_found, is_right_with_room

NO = np.float32(-1e30)
SIZES = ("batch=3 time=21 labels=7 classes=5", "batch=5 time=37 labels=9 classes=11 lengths=spread")
REALISTIC = "batch=3 time=300 labels=60 classes=29 lengths=spread"


def alphas(log_y, states, repeats=False, skips=True):
    """The logarithms of α, step by step in float32."""
    alpha = np.full((len(log_y), states.size), NO)
    alpha[0, :2] = log_y[0, states[:2]]
    may = np.zeros(states.size, bool)
    may[2:] = (states[2:] != 0) & (repeats | (states[2:] != states[:-2])) & skips
    for t in range(1, len(log_y)):
        new = alpha[t - 1].copy()
        new[1:] = np.logaddexp(new[1:], alpha[t - 1, :-1])
        new[may] = np.logaddexp(new[may], alpha[t - 1, np.flatnonzero(may) - 2])
        alpha[t] = new + log_y[t, states]
    return alpha


def sequences(arrays):
    for b, (time, length) in enumerate(zip(arrays["steps"], arrays["lengths"], strict=True)):
        states = np.zeros(2 * length + 1, int)
        states[1::2] = arrays["transcripts"][b, :length]
        yield b, arrays["log_probabilities"][:time, b], states


def loss(problem, arrays, blank_only=False, last=None, **how):
    found = np.zeros(problem.batch, np.float32)
    for b, log_y, states in sequences(arrays):
        end = alphas(log_y[:last], states, **how)[-1]
        found[b] = -end[-1] if blank_only else -np.logaddexp(end[-1], end[-2])
    return {"loss": found}


def gradient(problem, arrays, softmax=True, scaled=True, keep_end=False, **how):
    found = np.zeros_like(arrays["log_probabilities"])
    if keep_end:
        found[...] = np.exp(arrays["log_probabilities"])
    for b, log_y, states in sequences(arrays):
        alpha = alphas(log_y, states, **how)
        beta = alphas(log_y[::-1], states[::-1], **how)[::-1, ::-1] - log_y[:, states]
        total = np.logaddexp(alpha[-1, -1], alpha[-1, -2])
        share = np.zeros_like(log_y)
        np.add.at(share.T, states, np.exp(np.maximum(alpha + beta - total, -80)).T)
        scale = arrays["dloss"][b] if scaled else np.float32(1)
        found[: len(log_y), b] = scale * (softmax * np.exp(log_y) - share)
    return {"gradient": found}


@pytest.mark.parametrize("sizes", [*(p.text for p in find_op("ctc").smoke), REALISTIC])
def test_float32_passes(sizes):
    assert is_right_with_room(f"ctc {sizes} forward f32", loss)
    assert is_right_with_room(f"ctc {sizes} backward f32", gradient)


@pytest.mark.parametrize("sizes", [*SIZES, REALISTIC])
@pytest.mark.parametrize(
    "how", [{"repeats": True}, {"skips": False}, {"blank_only": True}, {"last": -1}], ids=lambda how: next(iter(how))
)
def test_a_wrong_loss_is_found(sizes, how):
    assert is_found(f"ctc {sizes} forward f32", lambda p, a: loss(p, a, **how))


@pytest.mark.parametrize("sizes", [*SIZES, REALISTIC])
@pytest.mark.parametrize(
    "how",
    [{"repeats": True}, {"skips": False}, {"softmax": False}, {"scaled": False}, {"keep_end": True}],
    ids=lambda how: next(iter(how)),
)
def test_a_wrong_gradient_is_found(sizes, how):
    if "keep_end" in how and "spread" not in sizes:
        sizes += " lengths=spread"

    assert is_found(f"ctc {sizes} backward f32", lambda p, a: gradient(p, a, **how))


def test_the_loss_is_that_of_all_alignments():
    """The sum over all paths of classes that become the transcript once repeats and blanks are removed."""
    case = parse_case("ctc batch=2 time=5 labels=2 classes=3 forward f32 reference threads=1")
    op = find_op("ctc")
    arrays = op.operands(case)
    found = op.reference(case, arrays)["loss"]
    for b, log_y, _ in sequences(arrays):
        total = 0.0
        for path in itertools.product(range(3), repeat=5):
            labels = [k for k, _ in itertools.groupby(path) if k]
            if labels == arrays["transcripts"][b].tolist():
                total += np.exp(sum(float(log_y[t, k]) for t, k in enumerate(path)))
        assert -np.log(total) == pytest.approx(found[b])


def test_the_gradient_is_that_of_the_loss():
    """Differences of the loss of softmax(x)."""
    op, sizes = find_op("ctc"), "batch=1 time=6 labels=2 classes=4"
    forward, backward = (parse_case(f"ctc {sizes} {d} f32 reference threads=1") for d in op.directions)
    arrays = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in op.operands(backward).items()}
    found = op.reference(backward, arrays)["gradient"] / arrays["dloss"]
    for t, k in itertools.product(range(6), range(4)):
        losses = []
        for step in (1e-5, -1e-5):
            x = arrays["log_probabilities"].copy()
            x[t, 0, k] += step
            x -= np.log(np.exp(x).sum(axis=2, keepdims=True))
            losses.append(op.reference(forward, {**arrays, "log_probabilities": x, "loss": np.zeros(1)})["loss"][0])
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(found[t, 0, k], abs=1e-6)
