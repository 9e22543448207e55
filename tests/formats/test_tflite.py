"""Models of TensorFlow Lite: in LiteRT next to float64, and counted again from their own bytes."""

import json

import numpy as np
import pytest

import deepbench
from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.formats import _tflite_graph as graphs

CONV = "conv n=2 c=6 h=9 w=8 k=4 r=3 s=2 pad_h=1 pad_w=1 stride_h=2 stride_w=1 forward f32"
PRODUCTS = [
    "gemm m=12 n=5 k=7 a_t=1 forward f32 beta=0",
    "gemm m=9 n=5 k=9 forward f32 beta=0",
    "gemm m=9 n=5 k=9 b_t=1 forward f32 beta=0",
    "linear m=6 n=5 k=4 forward f32 activation=relu",
    "batched_gemm batch=3 m=4 n=5 k=6 forward f32",
    "gemm m=64 n=5 k=300 a_t=1 forward i8 beta=0",
]
CONVOLUTIONS = [
    CONV,
    "conv n=2 c=4 h=6 w=7 k=8 r=3 s=3 pad_h=1 pad_w=2 dilation_h=2 dilation_w=1 groups=2 forward f32",
    "conv n=2 c=6 h=9 w=8 k=12 r=3 s=2 pad_h=1 stride_w=2 groups=6 forward f32",
    "conv n=1 c=6 h=9 w=8 k=4 r=3 s=3 pad_h=1 pad_w=1 forward f32 layout=nhwc bias=yes",
    "conv n=1 c=32 h=9 w=8 k=16 r=3 s=3 pad_h=1 pad_w=1 forward i8 result=wide",
]
RECURRENT = [
    "recurrent cell=vanilla hidden=16 batch=3 timesteps=20 forward f32",
    "recurrent cell=vanilla hidden=8 batch=2 timesteps=5 input_size=6 forward f32",
    "recurrent cell=lstm hidden=16 batch=3 timesteps=20 forward f32",
    "recurrent cell=lstm hidden=8 batch=2 timesteps=5 input_size=6 forward f32",
    "recurrent cell=gru hidden=16 batch=3 timesteps=20 forward f32",
    "recurrent cell=gru hidden=8 batch=2 timesteps=5 input_size=6 forward f32",
    "recurrent cell=gru hidden=8 batch=2 timesteps=5 input_size=6 forward f32 gru_reset=before",
]

# Of f32 results, relative and absolute. The largest error on the suite deepbench/device is 0.7 of it.
TOLERANCE = 1e-4

# Operations of the suites that have no model.
OTHERS = ("sparse_gemm", "all_reduce")


@pytest.fixture
def exported(tmp_path):
    """Write problems; the models by name, and counts.json."""

    def write(*what, **options):
        made = deepbench.export_problems(list(what), "tflite", tmp_path / "out", **options)
        counts = json.loads((tmp_path / "out" / "counts.json").read_text())
        return made, counts, {path.stem: path.read_bytes() for path in (tmp_path / "out").glob("*.tflite")}

    return write


def given_and_wanted(case, arrays):
    """What the model gets, by the name of the tensor, and the reference in its layout."""
    want = dict(case.operation.reference(case, arrays).items())
    if case.op == "conv":
        if case.settings["layout"] == "nhwc":
            return {"x": arrays["x"]}, want["y"]
        return {"x": np.moveaxis(arrays["x"], 1, -1)}, np.moveaxis(want["y"], 1, -1)
    if case.op == "recurrent":
        states = {"h": arrays["h0"][0, 0], "h0": arrays["h0"][0, 0], "c": arrays.get("c0", arrays["h0"])[0, 0]}
        return {"x": arrays["x"], **states}, want["y"]
    if case.op == "batched_gemm":
        return {"a": arrays["b"], "b": arrays["a"]}, want["c"]
    return {"x": arrays["b"].T if getattr(case.problem, "b_t", 0) else arrays["b"]}, want["c"]


@pytest.mark.parametrize("texts", [PRODUCTS, CONVOLUTIONS, RECURRENT], ids=["products", "convolutions", "recurrent"])
def test_tflite_models_compute_the_operation(exported, texts):
    """In LiteRT, next to float64; 8-bit results within one step of their scale."""
    runtime = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed; make test-simulators")
    made, counts, models = exported(*texts)
    assert [] == made.left_out
    for text, problem in zip(texts, counts["problems"], strict=True):
        case = parse_case(f"{text} reference threads=1")
        arrays = case.operation.operands(case)
        model = runtime.Interpreter(model_content=models[problem["name"]])
        model.allocate_tensors()
        given, want = given_and_wanted(case, arrays)
        inputs = {entry["name"]: entry["index"] for entry in model.get_input_details()}
        if case.op == "recurrent" and "h0" not in inputs:  # states that the operator keeps
            inputs |= {d["name"]: d["index"] for d in model.get_tensor_details() if d["name"] in ("h", "c")}
        for name, index in inputs.items():
            model.set_tensor(index, np.ascontiguousarray(given[name]))
        model.invoke()
        (output,) = model.get_output_details()
        result = model.get_tensor(output["index"])
        if result.dtype == np.int8:
            scale, _ = output["quantization"]
            want = np.clip(np.round(want / scale), -128, 127)
            assert np.mean(np.abs(want)) > 10
            np.testing.assert_allclose(result, want, atol=1, err_msg=text)
        else:
            np.testing.assert_allclose(result, want, rtol=TOLERANCE, atol=TOLERANCE, err_msg=text)


def test_built_in_recurrent_operators_keep_their_states(exported):
    runtime = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed; make test-simulators")
    _, _, models = exported("recurrent cell=lstm hidden=8 batch=2 timesteps=5 forward f32")
    model = runtime.Interpreter(model_content=models["recurrent_1"])
    model.allocate_tensors()
    results = []
    for _ in range(2):
        model.set_tensor(model.get_input_details()[0]["index"], np.ones((5, 2, 1), np.float32))
        model.invoke()
        results.append(model.get_tensor(model.get_output_details()[0]["index"]))

    assert not np.allclose(results[0], results[1])


def test_models_are_read_again(exported):
    _, _, models = exported(CONV)
    conv = graphs.shapes_of(models["conv_1"])

    assert {"x": [2, 9, 8, 6], "padded": [2, 11, 10, 6], "w": [4, 3, 2, 6], "y": [2, 5, 9, 4]}.items() <= conv.items()
    assert b"TFL3" == models["conv_1"][4:8]


def test_multiply_adds_are_counted_from_the_operators(exported):
    _, counts, models = exported(*PRODUCTS, *CONVOLUTIONS[:3], *RECURRENT)

    assert {p["name"]: p["flop"] // 2 for p in counts["problems"]} == {
        name: graphs.multiply_adds_of(content) for name, content in models.items()
    }
    # A step of the GRU of width 6 has 3 · 8 · (8 + 6) products in each of 2 rows, and there are 5 steps.
    assert 2 * 5 * 3 * 8 * (8 + 6) == graphs.multiply_adds_of(models[counts["problems"][-2]["name"]])


def test_a_long_gru_has_its_weights_once(exported):
    _, _, models = exported("recurrent cell=gru hidden=64 batch=1 timesteps=500 forward f32")

    weights = 4 * 64 * 3 * 64
    assert weights < len(models["recurrent_1"]) < 8 * weights


def test_every_product_convolution_and_recurrent_layer_of_the_original_has_a_model(exported):
    """Small ones are written; the others of these kinds are left out by their size alone."""
    suites = ["deepbench/device", "deepbench/server", "deepbench/train"]
    made, _, _ = exported(*suites, precisions="f32", directions="forward", most_multiply_adds=10**7)

    reasons = [line.rpartition("forward f32: ")[2] for line in made.left_out if line.split()[0] not in OTHERS]
    assert {True} == {"more than --max-macs" in reason for reason in reasons}
    assert {"gemm", "conv", "recurrent"} == {layer.name.rpartition("_")[0] for layer in made.layers}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("recurrent cell=lstm hidden=8 batch=3 timesteps=5 input_size=6 layers=2", "one layer in one direction"),
        ("recurrent cell=lstm hidden=8 batch=3 timesteps=5 input_size=6 bidirectional=1", "one layer in one direction"),
        ("recurrent cell=lstm hidden=8 batch=3 timesteps=5 input=skip", "adds its input to the gates"),
        ("recurrent cell=lstm hidden=8 batch=3 timesteps=5 bf16", "models have f32 and i8, not bf16"),
        ("recurrent cell=lstm hidden=8 batch=3 timesteps=5 backward", "forward"),
        ("sparse_gemm m=20 n=3 k=40 sparsity=90", "models have gemm, linear"),
    ],
)
def test_what_has_no_model_is_named(exported, text, reason):
    with pytest.raises(BadInput, match=reason):
        exported(text if "bf16" in text else f"{text} f32")


def test_counts_say_what_a_model_computes(exported):
    _, counts, _ = exported(
        "gemm m=9 n=5 k=9 b_t=1 f32",
        "gemm m=9 n=5 k=9 i8",
        "conv n=1 c=2 h=5 w=6 k=3 r=3 s=3 f32",
        "recurrent cell=gru hidden=8 batch=2 timesteps=5 f32 mode=training",
        directions="forward",
    )

    assert [
        "gemm m=9 n=5 k=9 a_t=0 b_t=0 forward f32 beta=0 weights=packed",
        "gemm m=9 n=5 k=9 a_t=0 b_t=0 forward i8 beta=0 weights=packed",
        "conv n=1 c=2 h=5 w=6 k=3 r=3 s=3 pad_h=0 pad_w=0 stride_h=1 stride_w=1 forward f32 layout=nhwc",
        "recurrent cell=gru hidden=8 batch=2 timesteps=5 forward f32 weights=packed",
    ] == [problem["computed"] for problem in counts["problems"]]
    assert {
        "gemm_1: without the addition to C",
        "gemm_1: its data are not transposed",
        "gemm_2: results of 8 bits in place of 32",
        "recurrent_4: keeps nothing for gradients",
    } <= set(counts["remarks"])
