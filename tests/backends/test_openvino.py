"""OpenVINO: that no kernel in another precision than that of the case is measured, and what is refused."""

import gc
import re

import numpy as np
import pytest

from deepbench.backends import openvino
from deepbench.core.backend import find_backend
from deepbench.core.case import parse_case
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.measuring.check import check
from deepbench.measuring.heat import measure_case
from deepbench.native.openvino import Graph, Node
from deepbench.plan.modes import Rules

SHORT = Rules(least_samples=2, least_s=0.0, most_s=0.002, warm_up_s=0.001)


@pytest.fixture(scope="module")
def backend():
    """The opened library."""
    found = find_backend("openvino")
    try:
        found.open()
    except Unavailable as error:
        pytest.skip(str(error))
    return found


@pytest.fixture
def multiplies_bf16(backend):
    """The same, where it computes in bf16 unless told otherwise."""
    if "BF16" not in backend.ov.device_property("CPU", "OPTIMIZATION_CAPABILITIES").split():
        pytest.skip("this CPU does not multiply bf16")
    return backend


def prepared(backend, text):
    """The kernel of a case, with its arrays after one call."""
    case = parse_case(text)
    arrays = case.operation.operands(case)
    kernel = backend.prepare(case, arrays)
    for call in kernel.calls:
        assert 0 == call.function(*call.arguments)
    return kernel, arrays


def test_without_it_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("DEEPBENCH_OPENVINO_PATH", str(tmp_path / "libopenvino_c.so"))

    with pytest.raises(Unavailable, match=r"^OpenVINO not found \(.*\); pip install openvino, or name a "):
        find_backend("openvino").open()


def test_a_model_without_a_precision_is_found_by_what_it_runs(multiplies_bf16):
    """The trap: f32 in, f32 out, and bf16 in between."""
    complete = openvino.settings

    def without_precision(threads, kind):
        return {k: v for k, v in complete(threads, kind).items() if k != "INFERENCE_PRECISION_HINT"}

    graph = Graph()
    array = np.ones((64, 64), np.float32)
    inputs = [graph.parameter(array) for _ in range(2)]
    graph.result(graph.op("MatMul", *inputs, transpose_a=False, transpose_b=False), array)
    nodes = multiplies_bf16._executed(graph, without_precision(1, "f32"))

    assert re.match(
        r"OpenVINO computed MatMul as \w+_bf16, not in f32", openvino.other_precision(nodes, "f32", "f32") or ""
    )
    assert openvino.other_precision(multiplies_bf16._executed(graph, complete(1, "f32")), "f32", "f32") is None


def test_a_case_is_refused_if_its_model_is_told_another_precision(multiplies_bf16, monkeypatch):
    complete = openvino.settings
    monkeypatch.setattr(openvino, "settings", lambda threads, kind: complete(threads, "bf16"))

    with pytest.raises(Unsupported, match=r"OpenVINO computed MatMul as \w+_bf16, not in f32"):
        prepared(multiplies_bf16, "gemm m=64 n=32 k=48 forward f32 openvino threads=1")


@pytest.mark.parametrize(
    ("nodes", "kind", "computed", "reason"),
    [
        ([("MatMul", "brgemm_avx512_bf16")], "f32", "f32", "computed MatMul as brgemm_avx512_bf16, not in f32"),
        ([("MatMul", "brgemm_avx512_f32")], "bf16", "bf16", "computed MatMul as brgemm_avx512_f32, not in bf16"),
        ([("FullyConnected", "gemm_i8")], "f32", "f32", "computed FullyConnected as gemm_i8, not in f32"),
        ([("MatMul", "gemm_f32"), ("Reorder", "jit_f16")], "f32", "f32", "computed Reorder as jit_f16, not in f32"),
        ([("Subgraph", "jit_avx512_f32")], "bf16", "bf16", "computed nothing in bf16: it ran Subgraph jit_avx512_f32"),
        ([], "f32", "f32", "computed nothing in f32: it ran no node"),
        ([("RMS", "jit_avx512_f32"), ("Subgraph", "jit_avx512_bf16")], "bf16", "f32", None),
        ([("MatMul", "brgemm_avx512_bf16"), ("Reorder", "jit_uni_f32")], "bf16", "bf16", None),
    ],
)
def test_nodes_of_another_precision_are_named(nodes, kind, computed, reason):
    found = openvino.other_precision([Node(*node) for node in nodes], kind, computed)

    assert found == (None if reason is None else f"OpenVINO {reason}")


def test_a_property_that_the_library_changes_is_named():
    wanted = openvino.settings(4, "f16")

    assert openvino.changed_property(wanted, {**wanted, "ENABLE_CPU_PINNING": "no"}) is None
    found = {**wanted, "INFERENCE_PRECISION_HINT": "bf16"}
    assert "OpenVINO computes in bf16 instead of f16 on this CPU" == openvino.changed_property(wanted, found)
    found = {**wanted, "INFERENCE_NUM_THREADS": "2"}
    changed = "OpenVINO changes INFERENCE_NUM_THREADS from 4 to 2 on this machine"
    assert changed == openvino.changed_property(wanted, found)


def test_f16_is_computed_in_f16_or_refused(backend):
    record = measure_case(parse_case("softmax rows=8 columns=16 forward f16 openvino threads=1"), 1, SHORT, 60.0)

    computed = record["status"] == "ok" and "_f16" in record["notes"]["implementation"]
    assert computed or "instead of f16 on this CPU" in record["reason"], record["reason"]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_model_has_the_threads_of_the_case_in_one_stream(backend, threads):
    _, arrays = prepared(backend, f"batched_gemm batch=2 m=64 n=48 k=32 forward f32 openvino threads={threads}")
    names = ("INFERENCE_NUM_THREADS", "NUM_STREAMS", "DYNAMIC_QUANTIZATION_GROUP_SIZE")

    assert [str(threads), "1", "0"] == [backend.ov.property(backend.model.compiled, name) for name in names]
    assert np.isfinite(arrays["c"]).all()


def test_c_is_added_in_place_and_not_overwritten_by_the_product(backend):
    """The result is written to C, which is read, too: the library must not compute the product there."""
    text = "gemm m=300 n=257 k=1031 forward f32 openvino threads=2"
    case = parse_case(text)
    before = case.operation.operands(case)["c"]
    _, arrays = prepared(backend, text)
    product = arrays["b"].astype(float) @ arrays["a"].astype(float)

    assert np.abs(arrays["c"] - before - product).max() < 1e-3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gemm m=8 n=8 k=8 forward bf16 openvino threads=1", "OpenVINO rounds a product to 16 bits before it adds C"),
        (
            "weight_only_gemm m=16 n=5 k=33 group=33 bits=8 forward bf16 openvino threads=1",
            "OpenVINO gives wrong results for an odd k in 16 bits",
        ),
        (
            "weight_only_gemm m=1 n=1 k=2 group=2 forward f32 openvino threads=1",
            "OpenVINO converts these weights to f32 ahead",
        ),
        ("recurrent cell=gru hidden=8 batch=1 timesteps=2 forward f32 openvino threads=1", "choose weights=packed"),
    ],
)
def test_what_it_does_not_compute_as_asked_is_refused(backend, text, reason):
    record = measure_case(parse_case(text), 1, SHORT, 60.0)

    assert "unsupported" == record["status"], record["reason"]
    assert reason in record["reason"]


def test_why_an_odd_k_is_refused(multiplies_bf16, monkeypatch):
    monkeypatch.setattr(openvino, "ODD_K_IS_WRONG", False)
    text = "weight_only_gemm m=16 n=5 k=33 group=33 bits=8 forward bf16 openvino threads=1"
    case = parse_case(text)
    try:
        _, arrays = prepared(multiplies_bf16, text)
    except Unsupported as reason:  # a CPU with AMX
        pytest.skip(str(reason))

    assert not check(case.operation, case, arrays).passed, "ODD_K_IS_WRONG can go, at least for this version"


@pytest.mark.costly
@pytest.mark.parametrize("setting", ["cache=cold", "weights=packed cache=cold", "cache=weights"])
def test_every_set_of_buffers_is_read_and_written(backend, setting):
    """Sets share a model, unless it contains their weights."""
    text = f"linear m=1024 n=2 k=1024 forward f32 openvino threads=1 {setting}"
    record = measure_case(parse_case(text), 1, SHORT, 60.0)

    assert "ok" == record["status"], record["reason"]
    assert record["notes"]["buffer_sets"] > 1
    assert 0 < record["notes"]["compile_s"] < 30


def test_a_record_says_what_ran(backend):
    text = "linear m=64 n=8 k=32 forward f32 openvino threads=1 weights=packed activation=gelu"
    record = measure_case(parse_case(text), 1, SHORT, 60.0)

    assert "ok" == record["status"], record["reason"]
    assert re.match(r"FullyConnected \w+_f32", record["notes"]["implementation"])
    assert ("OpenVINO", False) == (record["library_title"], record["framework"])
    assert re.fullmatch(r"20\d\d\.\d+\.\d+", record["library"]["version"])
    assert record["notes"]["converted_bytes"] >= 64 * 32 * 4


def test_a_model_that_is_used_again_keeps_its_constants(backend):
    """The mask of this attention is a constant, which the library reads where it is."""
    text = (
        "attention batch=1 heads=2 kv_heads=1 queries=40 keys=40 head_size=8 mask=causal forward f32 openvino threads=1"
    )
    case = parse_case(text)
    first, arrays = prepared(backend, text)
    model, wanted = backend.model, arrays["y"].copy()
    del first, arrays
    gc.collect()
    others = [np.full(40 * 80 + 16, 1e9, np.float32) for _ in range(64)]  # where the mask was, if it was freed
    _, arrays = prepared(backend, text)

    assert backend.model is model
    assert len(others) == 64
    assert np.array_equal(wanted, arrays["y"])
    assert check(case.operation, case, arrays).passed
