"""RMS normalization: correct kernels pass with room, and each likely mistake is found."""

import pytest

from deepbench.core import parts, rows
from tests.ops.norm_kernels import gradient, normalized, solved, spoiled, without_last

SIZES = ["rows=3 columns=35", "rows=40 columns=129", "rows=60 columns=4096"]
FORWARD = ["centered", "no scale", "one added to the scale", "last row not written", "last row copied"]
EXACT = ["biased variance", "no epsilon"]
BACKWARD = [
    *("centered", "product of the gradient forgotten", "gradient not divided", "no scale"),
    *("last row not written", "last row of the sums forgotten", "dscale zero"),
]


def kernel(case, a, mistake):
    z, reciprocal = normalized(a["x"], mistake, centered=mistake == "centered")
    scale = a["scale"] * (mistake != "no scale") + (mistake in ("no scale", "one added to the scale"))
    if case.direction == "forward":
        return spoiled({"y": z * scale}, mistake)
    dx = gradient(a["dy"] * scale, z, reciprocal, mistake, centered=mistake == "centered")
    dscale = without_last(a["dy"] * z, mistake, "last row of the sums forgotten").sum(axis=0)
    return spoiled({"dx": dx, "dscale": dscale}, mistake)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("size", ["rows=1 columns=2", *SIZES])
def test_a_correct_kernel_passes_with_room(size, kind, direction):
    verdict, error = solved(f"rms_norm {size} {direction} {kind}", kernel)

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
    assert not solved(f"rms_norm {size} {direction} {kind}", kernel, mistake)[0].passed


@pytest.mark.parametrize("mistake", [None, "dscale zero", "last row not written", "last row of the sums forgotten"])
def test_a_sample_of_rows_and_columns_finds_mistakes(monkeypatch, mistake):
    monkeypatch.setattr(parts, "FULL_CHECK_WORK", 0)
    monkeypatch.setattr(rows, "SAMPLED_ELEMENTS", 0)
    verdict, _ = solved("rms_norm rows=70 columns=999 backward f32", kernel, mistake)

    assert verdict.passed == (mistake is None)
    assert mistake or " parts" in verdict.how
