"""The check of dropout passes right masks and finds likely mistakes."""

from itertools import pairwise

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.measuring.check import check
from tests.ops.evaluation import is_found, is_right_with_room, verdict_of

SIZES = (692, 20_011, 3_000_017)
KEPT = np.float32(0.9)


def masked(mask):
    """Dropout with `mask(n)`: which of n elements are kept."""
    return lambda p, t: {"y": np.where(mask(p.n), t["a"] / KEPT, np.float32(0))}


def drawn(seed, kept=0.9):
    return lambda n: np.random.default_rng(seed).random(n) < kept


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
def test_masks_of_other_generators_pass(n, precision):
    for seed in range(3):
        evaluate = masked(drawn(seed))
        assert verdict_of(f"dropout n={n} forward {precision}", evaluate).passed
    if n == SIZES[1]:
        assert is_right_with_room(f"dropout n={n} forward bf16", masked(drawn(1)))


def test_other_probabilities_have_other_masks():
    def half(p, t):
        return {"y": np.where(drawn(2, 0.5)(p.n), 2 * t["a"], np.float32(0))}

    assert verdict_of("dropout n=20011 percent=50 forward f32", half).passed
    assert is_found("dropout n=20011 percent=50 forward f32", masked(drawn(2)))
    assert is_found("dropout n=20011 percent=40 forward f32", half)


WRONG = {
    "nothing is dropped": masked(lambda n: np.ones(n, bool)),
    "everything is dropped": masked(lambda n: np.zeros(n, bool)),
    "the probability is that of keeping": masked(drawn(0, 0.1)),
    "a fifth is dropped": masked(drawn(0, 0.8)),
    "every tenth is dropped": masked(lambda n: np.arange(n) % 10 > 0),
    "whole rows of 64 are dropped": masked(lambda n: np.repeat(drawn(0)(n // 64 + 1), 64)[:n]),
    "not scaled": lambda p, t: {"y": np.where(drawn(0)(p.n), t["a"], np.float32(0))},
    "the input": lambda p, t: {"y": t["a"]},
}


# A regular pattern is told from chance in the larger vector only.
@pytest.mark.parametrize(
    ("n", "wrong"), [(SIZES[2], w) for w in WRONG] + [(SIZES[1], w) for w in WRONG if "every" not in w]
)
def test_mistakes_are_found(n, wrong):
    assert is_found(f"dropout n={n} forward f32", WRONG[wrong])


def test_masks_of_our_own_loop_differ_between_calls_and_parts():
    from deepbench.backends.loops import Loops
    from deepbench.native import library
    from deepbench.native.onednn import run

    if library.compiled("elementwise") is None:
        pytest.skip("the C loops are not built")
    backend = Loops()
    backend.open()
    case = parse_case(f"dropout n=200000 forward f32 loops threads={backend.threads}")
    op = find_op(case.op)
    arrays, masks = op.operands(case), []
    kernel = backend.prepare(case, arrays)
    for _ in range(20):
        run(kernel.calls)
        assert check(op, case, arrays).passed
        masks.append(arrays["y"] != 0)
    both = np.mean([np.mean(a & b) for a, b in pairwise(masks)])
    lags = [np.mean([np.mean(mask[:-lag] & mask[lag:]) for mask in masks]) for lag in (1, 1024, 100_000)]

    assert [0.81] * 4 == pytest.approx([both, *lags], abs=0.004)
    assert 0.9 == pytest.approx(np.mean(masks), abs=0.001)
