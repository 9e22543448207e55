"""Connectionist temporal classification: the reference against all alignments and against differences."""

import itertools

import numpy as np
import pytest

from deepbench.core.case import parse_case
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
