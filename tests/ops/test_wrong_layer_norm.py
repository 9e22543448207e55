"""Layer normalization: correct kernels pass with room, and each likely mistake is found."""

import pytest

from deepbench.core import parts, rows
from tests.ops.norm_kernels import gradient, normalized, solved, spoiled, without_last

SIZES = ["rows=3 columns=35", "rows=40 columns=129", "rows=60 columns=4096"]
FORWARD = ["mean not subtracted", "no scale", "no shift", "last row not written", "last row copied"]
EXACT = ["biased variance", "no epsilon"]
BACKWARD = [
    *("mean of the gradient forgotten", "product of the gradient forgotten", "gradient not divided", "no scale"),
    *("last row not written", "last row of the sums forgotten", "dscale zero", "dshift zero", "dscale of x"),
]


def kernel(case, a, mistake):
    z, reciprocal = normalized(a["x"], mistake)
    scale = a["scale"] * 0 + 1 if mistake == "no scale" else a["scale"]
    if case.direction == "forward":
        y = z * scale + (0 if mistake == "no shift" else a["shift"])
        return spoiled({"y": y}, mistake)
    dx = gradient(a["dy"] * scale, z, reciprocal, mistake)
    product = a["dy"] * (a["x"] if mistake == "dscale of x" else z)
    rows = [without_last(array, mistake, "last row of the sums forgotten") for array in (product, a["dy"])]
    return spoiled({"dx": dx, "dscale": rows[0].sum(axis=0), "dshift": rows[1].sum(axis=0)}, mistake)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("size", ["rows=1 columns=2", *SIZES])
def test_a_correct_kernel_passes_with_room(size, kind, direction):
    verdict, error = solved(f"layer_norm {size} {direction} {kind}", kernel)

    assert verdict.passed, verdict.sentence
    assert error < 0.5


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("direction", "kind", "mistake"),
    [
        *(("forward", "f32", m) for m in (*FORWARD, *EXACT)),
        *(("forward", "bf16", m) for m in FORWARD),
        *(("backward", kind, m) for kind in ("f32", "bf16") for m in BACKWARD),
    ],
)
def test_a_mistake_is_found(size, direction, kind, mistake):
    assert not solved(f"layer_norm {size} {direction} {kind}", kernel, mistake)[0].passed


def test_a_biased_variance_of_few_columns_is_found_in_bf16():
    assert not solved("layer_norm rows=17 columns=64 forward bf16", kernel, "biased variance")[0].passed


@pytest.mark.parametrize("mistake", [None, "dscale zero", "last row not written", "last row of the sums forgotten"])
def test_a_sample_of_rows_and_columns_finds_mistakes(monkeypatch, mistake):
    monkeypatch.setattr(parts, "FULL_CHECK_WORK", 0)
    monkeypatch.setattr(rows, "SAMPLED_ELEMENTS", 0)
    verdict, _ = solved("layer_norm rows=70 columns=999 backward f32", kernel, mistake)

    assert verdict.passed == (mistake is None)
    assert mistake or " parts" in verdict.how
