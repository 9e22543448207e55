"""Convolutions and recurrent layers through the fake MIOpen."""

import pytest

CONV = "conv n=2 c=8 h=9 w=7 k=12 r=3 s=3 pad_h=1 pad_w=1"
LAYER = "recurrent cell={} hidden=12 batch=3 timesteps=5"
DIRECTIONS = ["forward", "backward_data", "backward_weights"]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("changed", ["", "layout=nhwc"])
def test_every_solution_is_compiled_and_the_fastest_is_measured(gpu, direction, changed):
    record = gpu(f"{CONV} {direction} f16 miopen threads=1 {changed}")

    assert ("ok", None) == (record["status"], record["reason"])
    notes = record["notes"]
    assert (3, 2, 1) == tuple(notes[f"algorithms_{n}"] for n in ("proposed", "tried", "failed"))
    assert "implicit GEMM" == notes["algorithm"]
    assert notes["implementation"].endswith("Immediate 102")
    assert 8192 == notes["workspace_bytes"]


@pytest.mark.parametrize(
    ("text", "status"),
    [("f32 groups=2", "ok"), ("i8 result=wide", "ok"), ("i8", "unsupported"), ("bf16 result=wide", "unsupported")],
)
def test_types_of_convolutions(gpu, text, status):
    precision, *rest = text.split()
    sizes = [w for w in rest if w.startswith("groups")]
    settings = [w for w in rest if not w.startswith("groups")]
    record = gpu(" ".join([CONV, *sizes, "forward", precision, "miopen threads=1", *settings]))

    assert status == record["status"], record["reason"]
    assert "ok" == status or "choose result=" in record["reason"]


def test_the_reason_of_a_failed_convolution_is_the_librarys_text(gpu):
    record = gpu(f"{CONV} forward f32 miopen threads=1", FAKE_GPU_FAIL="miopenConvolutionForwardImmediate=6")

    assert "unsupported" == record["status"]
    assert "NotImplemented" in record["reason"]


@pytest.mark.parametrize("cell", ["vanilla", "lstm", "gru"])
@pytest.mark.parametrize("settings", ["", "input=skip", "input_size=7"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_both_algorithms_of_a_layer_are_timed(gpu, cell, settings, direction):
    record = gpu(f"{LAYER.format(cell)} {direction} f16 miopen threads=1 {settings}")

    assert ("ok", None) == (record["status"], record["reason"])
    notes = record["notes"]
    assert ("fundamental", 2, 2) == (notes["algorithm"], notes["algorithms_proposed"], notes["algorithms_tried"])
    assert (notes["reserve_bytes"] > 0) == (direction != "forward")


def test_unsupported_settings_have_a_reason(gpu):
    any_layout = gpu(f"{CONV} forward f32 miopen threads=1 layout=any")
    reset_before = gpu(f"{LAYER.format('gru')} forward f32 miopen threads=1 gru_reset=before")

    assert ("unsupported", "unsupported") == (any_layout["status"], reset_before["status"])
    assert "choose layout=nchw or nhwc" in any_layout["reason"]
    assert "choose gru_reset=after" in reset_before["reason"]


def test_the_version_is_in_the_record(gpu):
    record = gpu(f"{CONV} forward f32 miopen threads=1")

    assert ("MIOpen", "3.3.0") == (record["library"]["name"], record["library"]["version"])
