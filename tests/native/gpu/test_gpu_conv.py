"""Convolution through the fake cuDNN: plans, strict f32, precisions, layouts."""

import pytest

CONV = "conv n=2 c=8 h=9 w=7 k=12 r=3 s=3 pad_h=1 pad_w=1"


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weights"])
@pytest.mark.parametrize("layout", ["", "layout=nhwc"])
def test_every_plan_is_built_and_the_fastest_is_measured(gpu, direction, layout):
    record = gpu(f"{CONV} {direction} f16 cudnn threads=1 {layout}")

    assert ("ok", None) == (record["status"], record["reason"])
    notes = record["notes"]
    assert "engine 2 (2=12), tensor cores" == notes["implementation"]
    assert (3, 2, 1) == (notes["algorithms_proposed"], notes["algorithms_tried"], notes["algorithms_failed"])
    assert 8192 == notes["workspace_bytes"]


def test_f32_excludes_tensor_cores_and_tf32_uses_them(gpu):
    strict = gpu(f"{CONV} forward f32 cudnn threads=1")
    loose = gpu(f"{CONV} forward tf32 cudnn threads=1")

    assert ("ok", "ok") == (strict["status"], loose["status"]), (strict["reason"], loose["reason"])
    assert "engine 1 (2=11)" == strict["notes"]["implementation"]
    assert "engine 2 (2=12), tensor cores" == loose["notes"]["implementation"]


def test_tf32_instead_of_f32_is_wrong(gpu):
    """The check detects an engine that multiplies fewer bits than it reports."""
    record = gpu(f"{CONV} forward f32 cudnn threads=1", FAKE_GPU_CUTS="1")

    assert "wrong" == record["status"]


@pytest.mark.parametrize(("text", "compute"), [("f16", 0), ("bf16", 0), ("f32", 0), ("i8", 4), ("i8 result=wide", 4)])
def test_the_compute_type_is_that_of_the_precision(gpu, tmp_path, text, compute):
    precision, *settings = text.split()
    case = f"{CONV} forward {precision} cudnn threads=1 {' '.join(settings)}"
    record = gpu(case, FAKE_GPU_LOG=str(tmp_path / "log"))

    assert "ok" == record["status"], record["reason"]
    assert f"compute {compute}" in (tmp_path / "log").read_text()


def test_unsupported_settings_have_a_reason(gpu):
    any_layout = gpu(f"{CONV} forward f32 cudnn threads=1 layout=any")
    bias = gpu(f"{CONV} forward f32 cudnn threads=1 bias=yes")

    assert ("unsupported", "unsupported") == (any_layout["status"], bias["status"])
    assert "choose layout=nchw or nhwc" in any_layout["reason"]
    assert "choose bias=no" in bias["reason"]


def test_a_problem_without_an_engine_is_unsupported(gpu):
    record = gpu(f"{CONV} forward f32 cudnn threads=1", FAKE_GPU_FAIL="cudnnBackendFinalize=3000")

    assert "unsupported" == record["status"]
    assert "CUDNN_STATUS_NOT_SUPPORTED" in record["reason"]
