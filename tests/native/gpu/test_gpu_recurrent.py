"""Recurrent layers through the fake cuDNN: algorithms, arithmetic, weights, gradients."""

import pytest

LAYER = "recurrent cell={} hidden=12 batch=3 timesteps=5"
CELLS = ["vanilla", "lstm", "gru"]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("direction", ["forward", "backward", "backward_data", "backward_weights"])
def test_algorithms_and_math_types_are_timed_and_the_fastest_is_measured(gpu, cell, direction):
    record = gpu(f"{LAYER.format(cell)} {direction} f16 cudnn threads=1")

    assert ("ok", None) == (record["status"], record["reason"])
    notes = record["notes"]
    # Four algorithms times three math types; the fake lacks the small persistent algorithm.
    assert (12, 9, 3) == (notes["algorithms_proposed"], notes["algorithms_tried"], notes["algorithms_failed"])
    assert notes["algorithm"].startswith("persistent")
    assert (notes["reserve_bytes"] > 0) == (direction != "forward")


@pytest.mark.parametrize("cell", CELLS)
def test_strict_f32_uses_only_multiply_adds(gpu, tmp_path, cell):
    strict = gpu(f"{LAYER.format(cell)} forward f32 cudnn threads=1", FAKE_GPU_LOG=str(tmp_path / "strict"))
    loose = gpu(f"{LAYER.format(cell)} forward tf32 cudnn threads=1", FAKE_GPU_LOG=str(tmp_path / "loose"))

    assert ("ok", "ok") == (strict["status"], loose["status"]), (strict["reason"], loose["reason"])
    assert "math 0" not in (tmp_path / "strict").read_text()
    assert "math 0" in (tmp_path / "loose").read_text()


def test_training_fills_the_reserve(gpu, tmp_path):
    record = gpu(f"{LAYER.format('gru')} forward f32 cudnn threads=1 mode=training", FAKE_GPU_LOG=str(tmp_path / "log"))

    assert "ok" == record["status"], record["reason"]
    assert record["notes"]["reserve_bytes"] > 0
    assert "mode 1" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("direction", ["forward", "backward", "backward_data", "backward_weights"])
@pytest.mark.parametrize("cell", CELLS)
def test_the_input_product_can_be_skipped(gpu, cell, direction):
    record = gpu(f"{LAYER.format(cell)} {direction} f32 cudnn threads=1 input=skip")

    assert "ok" == record["status"], record["reason"]


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("cell", CELLS)
def test_the_input_may_have_any_width(gpu, cell, direction):
    record = gpu(f"{LAYER.format(cell)} input_size=7 {direction} f32 cudnn threads=1")

    assert "ok" == record["status"], record["reason"]


@pytest.mark.parametrize("sizes", ["layers=2", "bidirectional=1"])
def test_stacks_and_both_directions_of_time_are_unsupported(gpu, sizes):
    record = gpu(f"{LAYER.format('lstm')} {sizes} forward f32 cudnn threads=1")

    assert "unsupported" == record["status"]
    assert "one layer in one direction of time" in record["reason"]


def test_unsupported_settings_have_a_reason(gpu):
    reset_before = gpu(f"{LAYER.format('gru')} forward f32 cudnn threads=1 gru_reset=before")
    packed = gpu(f"{LAYER.format('gru')} forward f32 cudnn threads=1 weights=packed")

    assert ("unsupported", "unsupported") == (reset_before["status"], packed["status"])


def test_memory_of_candidates_is_given_back(gpu):
    """Nine algorithms, each with its weights and its room for the backward pass: together they would not fit."""
    layer = "recurrent cell=lstm hidden=256 batch=2 timesteps=2 backward f32 cudnn threads=1"
    record = gpu(layer, FAKE_GPU_MEMORY=str(16 * 2**20))

    assert "ok" == record["status"], record["reason"]
    assert 3 == record["notes"]["algorithms_tried"]
