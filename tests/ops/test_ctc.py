"""Connectionist temporal classification: the reference against all alignments and against differences."""

import itertools

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from tests.ops.wrong_kernels.ctc import sequences


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


def test_padding_does_not_count():
    """Only the steps and labels of each sequence do; but zeros are written for the gradient of padding."""
    text = "ctc batch=5 time=37 labels=9 classes=11 lengths=spread {} f32 reference threads=1"
    forward, backward = (parse_case(text.format(direction)) for direction in ("forward", "backward"))
    op = find_op("ctc")
    arrays = op.operands(forward)
    steps, labels = arrays["steps"], arrays["lengths"]
    states = int((steps * (2 * labels + 1)).sum())

    assert 3 * states == op.flop(forward) == 7014
    assert 5 * states + 2 * int(steps.sum()) * 11 == op.flop(backward)
    assert int((steps * labels).sum()) == op.gathers(forward)
    distinct = [np.unique(row[:count]).size for row, count in zip(arrays["transcripts"], labels, strict=True)]
    drawn = 4 * (int((steps * (1 + np.array(distinct))).sum()) + int(labels.sum()) + 3 * 5)
    assert op.traffic_bytes(forward) == pytest.approx(drawn, rel=0.05)  # as many labels differ as on average
    assert 4 * (int(steps.sum()) * 11 + int(labels.sum()) + 3 * 5 + 37 * 5 * 11) == op.traffic_bytes(backward)


def test_any_number_of_equal_sequences_is_counted_at_once_and_of_others_few_are_drawn():
    text = "ctc batch=2147483647 time=3 labels=1 classes=2{} forward f32 reference threads=1"
    case = parse_case(text.format(""))

    assert 3 * 2147483647 * 9 == case.operation.flop(case)
    with pytest.raises(BadInput, match="with lengths=spread, batch must be at most 1048576"):
        parse_case(text.format(" lengths=spread"))
