"""GEMM through the fake libraries of both vendors: answers, arguments, the choice of an algorithm."""

import re

import pytest

from deepbench.core.case import parse_case
from deepbench.measuring.heat import measure_case
from deepbench.results.summary import summarize
from tests.native.gpu.conftest import QUICK

GEMM = "gemm m=48 n=32 k=64"
NAMES = {"cuda": ("cublas", "cublaslt"), "hip": ("hipblas", "hipblaslt")}
BLAS = [name for names in NAMES.values() for name in names]


@pytest.mark.parametrize("backend", BLAS)
def test_the_record_has_gpu_algorithm_and_clock(gpu, backend):
    record = gpu(f"gemm m=12 n=8 k=16 forward f32 {backend} threads=1")

    assert ("ok", None) == (record["status"], record["reason"])
    assert "Fake GPU" == record["library"]["card"]["name"]
    assert "9.0" == record["library"]["card"]["capability"]
    device = record["measurement"]["device"]
    assert "graph" == device["clock"]
    assert device["host_call_s"]
    assert [None] == list(set(record["measurement"]["cpu_s"]))


@pytest.mark.parametrize("backend", ["cublaslt", "hipblaslt"])
def test_every_algorithm_is_timed_and_the_fastest_is_measured(gpu, backend):
    """The first algorithm of the fake needs 3 ms more than the second, far more than this problem."""
    notes = gpu(f"gemm m=4 n=8 k=8 forward f16 {backend} threads=1")["notes"]

    assert (3, 2, 1) == (notes["algorithms_proposed"], notes["algorithms_tried"], notes["algorithms_failed"])
    assert notes["algorithm"].startswith("id=2" if backend == "cublaslt" else "number 1")
    assert 1024 == notes["workspace_bytes"]


@pytest.mark.parametrize(
    ("precision", "settings", "types", "compute"),
    [
        ("f32", "", "0,0,0", 68),
        ("tf32", "", "0,0,0", 77),
        ("f16", "", "2,2,0", 68),
        ("f16", "result=narrow", "2,2,2", 68),
        ("bf16", "result=narrow", "14,14,14", 68),
        ("f16f16", "", "2,2,2", 64),
        ("i8", "", "3,3,10", 72),
    ],
)
def test_the_librarys_arguments_follow_the_precision(gpu, tmp_path, precision, settings, types, compute):
    text = f"{GEMM} a_t=1 forward {precision} cublas threads=1 {settings}"
    record = gpu(text, FAKE_GPU_LOG=str(tmp_path / "log"))

    assert "ok" == record["status"], record["reason"]
    assert f"GemmEx 1 0 48 32 64 lda=64 types={types} compute={compute}" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("backend", ["cublas", "hipblas"])
def test_columns_of_integers_begin_at_multiples_of_four(gpu, tmp_path, backend):
    record = gpu(f"gemm m=35 n=7 k=33 forward i8 {backend} threads=1", FAKE_GPU_LOG=str(tmp_path / "log"))

    assert "ok" == record["status"], record["reason"]
    assert "lda=36" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("precision", ["f8e4m3", "f8e5m2"])
@pytest.mark.parametrize("backend", ["cublaslt", "hipblaslt"])
def test_8_bit_floats_need_a_transposed(gpu, precision, backend):
    transposed = gpu(f"gemm m=32 n=17 k=48 a_t=1 forward {precision} {backend} threads=1")
    packed = gpu(f"gemm m=32 n=17 k=48 forward {precision} {backend} threads=1 weights=packed")
    plain = gpu(f"gemm m=32 n=17 k=48 forward {precision} {backend} threads=1")

    assert ("ok", "ok") == (transposed["status"], packed["status"]), (transposed["reason"], packed["reason"])
    assert "unsupported" == plain["status"]
    assert "8-bit kernels for a_t=1 (or weights=packed)" in plain["reason"]


@pytest.mark.parametrize(
    ("settings", "types", "fast"),
    [("", "28,28,0", 0), ("result=narrow beta=0", "28,28,14", 0), ("accumulate=fast result=narrow", "28,28,14", 1)],
)
def test_results_and_sums_of_8_bit_floats_are_settings(gpu, tmp_path, settings, types, fast):
    text = f"gemm m=32 n=17 k=48 a_t=1 forward f8e4m3 cublaslt threads=1 {settings}"
    record = gpu(text, FAKE_GPU_LOG=str(tmp_path / "log"))

    assert ("ok", None) == (record["status"], record["reason"])
    log = (tmp_path / "log").read_text()
    assert f"types={types} " in log
    assert {str(fast)} == set(re.findall(r"fast=(\d)", log))
    assert all(word in record["case"] for word in settings.split())
    (summary,) = summarize([record])
    assert all(word in summary.problem_title for word in settings.split())
    narrow, beta = "narrow" in settings, "beta=0" not in settings
    assert 32 * 48 + 17 * 48 + 32 * 17 * (2 if narrow else 4) * (1 + beta) == record["traffic_bytes"]


def test_amd_has_no_faster_sums_of_8_bit_floats(gpu):
    record = gpu("gemm m=32 n=17 k=48 a_t=1 forward f8e4m3 hipblaslt threads=1 accumulate=fast")

    assert ("unsupported", "hipBLASLt has no faster sums; choose accumulate=full") == (
        record["status"],
        record["reason"],
    )


def test_other_precisions_and_libraries_have_no_faster_sums(deepbench, tmp_path):
    words = ("gemm m=3 n=4 k=5", "--set", "accumulate=full,fast", "--backend", "cublaslt", "--precision", "f32,f8e4m3")
    lines = deepbench("list", *words).stdout.splitlines()

    assert 3 == len([line for line in lines if " cublaslt " in line])
    record = measure_case(parse_case("gemm m=3 n=4 k=5 forward f32 cublas threads=1 accumulate=fast"), 1, QUICK, 60.0)
    assert record["status"] in ("unsupported", "unavailable")


def test_partial_sums_of_16_bit_results_stay_in_f32(gpu, tmp_path):
    gpu(f"{GEMM} forward bf16 cublas threads=1 result=narrow", FAKE_GPU_LOG=str(tmp_path / "classic"))
    gpu(f"{GEMM} forward bf16 cublaslt threads=1 result=narrow", FAKE_GPU_LOG=str(tmp_path / "lt"))

    assert "math mode 16" in (tmp_path / "classic").read_text()
    assert "preference 3 = 2" in (tmp_path / "lt").read_text()


@pytest.mark.parametrize("backend", BLAS)
def test_without_the_compiled_loop_calls_are_made_from_python(gpu, backend):
    record = gpu(f"{GEMM} forward f32 {backend} threads=1", DEEPBENCH_NO_NATIVE_LOOP="1")

    assert "ok" == record["status"], record["reason"]
    assert "python" == record["measurement"]["loop"]


def test_a_status_for_not_supported_is_not_a_crash(gpu):
    record = gpu(f"{GEMM} forward f32 cublas threads=1", FAKE_GPU_FAIL="cublasGemmEx=15")

    assert "unsupported" == record["status"]


def test_a_probe_that_a_library_refuses_does_not_end_the_search_for_the_peak():
    from deepbench.measuring.probes import compute_probe
    from tests.help import samples

    def measure(case):
        record = {**samples.measured(seconds=1e-3), "case": case.text}
        return {**record, "status": "ok" if case.problem.a_t else "unsupported", "flop": 10**12}

    found = compute_probe("f8e4m3", "cuda", 1, ["cublaslt"]).measure(measure)
    assert " a_t=1 " in found["case"]


@pytest.mark.parametrize("backend", BLAS)
def test_cold_buffers_exceed_the_l2_cache(gpu, backend):
    record = gpu(f"{GEMM} forward f32 {backend} threads=1 cache=cold")

    assert "ok" == record["status"], record["reason"]
    assert record["notes"]["buffer_bytes"] >= 2 * 2**16


def test_cache_weights_is_unsupported_because_all_buffers_are_private(gpu):
    record = gpu(f"{GEMM} forward f32 cublas threads=1 cache=weights")

    assert "unsupported" == record["status"]
    assert "the library copies b, c" in record["reason"]


def test_packed_weights_are_unsupported(gpu):
    record = gpu(f"{GEMM} forward f32 cublas threads=1 weights=packed")

    assert ("unsupported", "cuBLAS has no interface to pack weights ahead") == (record["status"], record["reason"])
