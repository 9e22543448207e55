"""What can go wrong on a GPU: no driver, no memory, errors, an endless stall, graphs that cannot be captured."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from deepbench.measuring.parent import open_backend
from deepbench.native import library
from deepbench.native.gpu.vendor import CUDA, HIP
from deepbench.plan.modes import Rules
from tests.conftest import ROOT

CASE = "gemm m=64 n=48 k=80 forward f32 cublas threads=1"
SMALL = "gemm m=8 n=8 k=8 forward f32 cublas threads=1"
# Seconds per call: too long for a graph, and too long for a stalled stream.
HELD, LONG = "2e-4", "6e-3"


def device_of(record):
    assert "ok" == record["status"], record["reason"]
    return record["measurement"]["device"]


def test_without_a_driver_one_sentence_says_what_is_missing(deepbench, tmp_path):
    done = deepbench("run", "--device", "cuda", "gemm m=3 n=4 k=5", DEEPBENCH_CUDA_DRIVER_PATH=str(tmp_path / "none"))

    assert 64 == done.returncode
    assert "" == done.stdout
    assert 1 == done.stderr.count("\n")
    assert "no NVIDIA GPU here" in done.stderr
    assert [] == list(tmp_path.iterdir())


def test_without_a_driver_other_cases_are_measured(deepbench, tmp_path):
    words = ("gemm m=3 n=4 k=5", "--backend", "cublas,null", "--quick", "-o", "out.jsonl")
    done = deepbench("run", *words, DEEPBENCH_CUDA_DRIVER_PATH=str(tmp_path / "none"))

    assert 0 == done.returncode, done.stderr
    assert "cuBLAS unavailable: no NVIDIA GPU here" in done.stdout


@pytest.mark.parametrize(("device", "backend", "call"), [("cuda", "cublas", "cuda"), ("hip", "hipblas", "hip")])
def test_a_driver_without_a_gpu_is_unavailable(gpu, monkeypatch, device, backend, call):
    monkeypatch.setenv("FAKE_GPU_FAIL", f"{call}GetDeviceCount=100")
    answer = open_backend(backend, 60)

    assert "no device is detected" in answer["unavailable"]["reason"]


def test_a_run_on_the_fake_gpu_from_the_command_line(gpu, deepbench):
    words = ("gemm m=64 n=48 k=80", "--device", "cuda", "--precision", "f32,f16", "--quick", "-o", "out.jsonl")
    done = deepbench("run", *words, FAKE_GPU_MEMORY=str(80 * 2**20))  # too little for the probes of limits

    assert 0 == done.returncode, done.stderr
    assert "GPU        NVIDIA Fake GPU, 4 multiprocessors" in done.stdout
    assert "cuBLASLt" in done.stdout


def test_missing_memory_is_reported_in_numbers(gpu):
    operands = gpu("gemm m=512 n=512 k=512 forward f32 cublas threads=1", FAKE_GPU_MEMORY=str(2**21))
    workspace = gpu(CASE, FAKE_GPU_MEMORY=str(2**20))

    assert ("out_of_memory", "out_of_memory") == (operands["status"], workspace["status"])
    assert "the operands need 3.00 MiB on the GPU, 2.00 MiB are free" == operands["reason"]
    assert "the workspace needs" in workspace["reason"]


@pytest.mark.parametrize(
    ("status", "wanted"), [(15, "unsupported"), (3, "out_of_memory"), (13, "crashed"), (14, "crashed")]
)
def test_a_status_of_the_library_becomes_a_status_of_the_record(gpu, status, wanted):
    record = gpu(CASE.replace("cublas", "cublaslt"), FAKE_GPU_FAIL=f"cublasLtMatmulAlgoGetHeuristic={status}")

    assert wanted == record["status"]
    assert "cublasLtMatmulAlgoGetHeuristic" in record["reason"]


def test_when_no_algorithm_runs_the_reason_is_the_librarys_text(gpu):
    refused = gpu(CASE.replace("cublas", "cublaslt"), FAKE_GPU_FAIL="cublasLtMatmul=15")
    broken = gpu(CASE.replace("cublas", "cublaslt"), FAKE_GPU_FAIL="cublasLtMatmul=13")

    assert ("unsupported", "crashed") == (refused["status"], broken["status"])
    assert "none of 3 algorithms runs this: cublasLtMatmul: status 15" in refused["reason"]
    assert "cublasLtMatmul" in broken["reason"]


def test_an_asynchronous_error_ends_the_case(gpu):
    record = gpu(CASE, FAKE_GPU_FAIL="cudaEventSynchronize=700")

    assert "crashed" == record["status"]
    assert "cudaEventSynchronize" in record["reason"]


def test_calls_of_a_hundred_microseconds_are_timed_in_a_stalled_stream(gpu):
    assert "stalled events" == device_of(gpu(SMALL, FAKE_GPU_SLOW=HELD))["clock"]


def test_a_long_call_is_timed_between_plain_events(gpu):
    assert "events" == device_of(gpu(SMALL, FAKE_GPU_SLOW=LONG))["clock"]


@pytest.mark.parametrize("call", ["cudaStreamBeginCapture", "cudaStreamEndCapture"])
def test_if_capture_fails_the_stream_is_stalled(gpu, call):
    device = device_of(gpu(SMALL, FAKE_GPU_FAIL=f"{call}=900"))

    assert "graph" != device["clock"]
    assert call in device["fallback"]


def test_if_the_stream_cannot_be_stalled_the_record_warns_about_plain_events(gpu):
    record = gpu(SMALL, FAKE_GPU_FAIL="cuStreamWaitValue32_v2=801", FAKE_GPU_SLOW=HELD)

    assert "events" == device_of(record)["clock"]
    assert "801" in record["measurement"]["device"]["fallback"]
    assert "plain_clock" in [w["code"] for w in record["warnings"]]


def test_a_stall_that_fills_the_drivers_queue_is_released(gpu, monkeypatch):
    """After a thousand launches the fake waits for the GPU, as drivers do; only the watchdog can end that."""
    monkeypatch.setattr("deepbench.native.gpu.timing.MOST_STALLED_CALLS", 10**6)
    from deepbench.native.gpu import device, timing

    monkeypatch.setattr(timing, "STALL_MOST_S", 0.05)
    fake = device.Gpu(device.Cuda())
    timer = fake.timer(lambda repeats: [fake.record(timer._start) for _ in range(repeats)], 1)
    timer._no_graph = "not for this test"
    timer(1)
    timer(2000)

    assert not fake.stall.usable
    assert "took over 0.05 s" in fake.stall.reason
    assert "events" == timer.clock
    assert timer(3) > 0


def test_throttling_and_other_processes_cause_warnings(gpu):
    record = gpu(CASE, FAKE_GPU_REASONS="0x44", FAKE_GPU_OTHERS="2")

    texts = {w["code"]: w["text"] for w in record["warnings"]}
    assert "hardware thermal slowdown" in texts["throttled"]
    assert "software power cap" in texts["throttled"]
    assert "shared_card" in texts
    assert 2 == device_of(record)["after"]["other_processes"]


def test_without_nvml_the_record_warns(gpu, tmp_path):
    record = gpu(CASE, DEEPBENCH_NVML_PATH=str(tmp_path / "none"))

    assert device_of(record)["before"] is None
    assert ["no_telemetry"] == [w["code"] for w in record["warnings"]]


@pytest.mark.parametrize("backend", ["cublas", "hipblas"])
def test_energy_is_measured_over_seconds(gpu, backend):
    rules = Rules(least_samples=3, most_s=0.01, energy_s=0.6)
    energy = device_of(gpu(CASE.replace("cublas", backend), rules))["energy"]

    assert 0.6 <= energy["window_s"] < 2.6
    assert 100.0 == pytest.approx(energy["watts"], rel=0.05)  # the fake uses 100 W
    assert 100.0 * energy["window_s"] == pytest.approx(energy["joules_per_call"] * energy["calls"], rel=0.05)


@pytest.mark.parametrize("rocm", [6, 7])
def test_amds_sensors(gpu, rocm):
    old = {"FAKE_GPU_ROCM6": "1"} if rocm == 6 else {}
    record = gpu(CASE.replace("cublas", "hipblas"), FAKE_GPU_OTHERS="2", **old)

    seen = device_of(record)["after"]
    wanted = {"clock_mhz": 900, "memory_clock_mhz": 2000, "limited_by": None, "watts": 250, "celsius": 40}
    assert {**wanted, "other_processes": 2} == seen
    assert 1000 == record["library"]["card"]["clock_mhz"]
    assert "shared_card" in [w["code"] for w in record["warnings"]]


def test_an_f32_rate_above_the_gpus_peak_is_wrong():
    from deepbench.judge.limits import Limits
    from deepbench.measuring.probes import Prober
    from tests.help import samples

    record = samples.measured(seconds=1e-3)
    record["library"] = {"card": {"peak_f32_flop_per_s": record["flop"] / 1e-3 / 1.1}}
    judged = Prober(Limits(), [], lambda case, rules: record, lambda line: None).judge(record)

    assert "wrong" == judged["status"]
    assert "peak" in judged["reason"]


@pytest.mark.parametrize("signal", ["works", "is missing"])
def test_a_stream_of_hip_waits_for_signal_memory_where_there_is_any(gpu, signal):
    """The fake, as HIP's documentation says, does not wait for other memory."""
    failing = {} if signal == "works" else {"FAKE_GPU_FAIL": "hipExtMallocWithFlags=1"}
    record = gpu(SMALL.replace("cublas", "hipblas"), FAKE_GPU_SLOW="1e-3", **failing)  # launching is no part of it

    assert "stalled events" == device_of(record)["clock"]
    assert record["measurement"]["device"]["fallback"] is None


def test_hipblas_2_takes_other_types_and_is_refused(gpu, fakes, monkeypatch, tmp_path):
    answers = {}
    for version in ("2.4.60400", "3.0.70000"):
        path = tmp_path / f"libhipblas.so.{version}"
        shutil.copy(fakes["hip"], path)
        for entry in HIP.libraries.values():
            monkeypatch.setenv(entry.variable, str(path))
        answers[version] = open_backend("hipblas", 60)

    assert "hipBLAS 3 or newer (ROCm 7) is needed" in answers["2.4.60400"]["unavailable"]["reason"]
    assert "found version 2.4.60400" in answers["2.4.60400"]["unavailable"]["reason"]
    assert "library" in answers["3.0.70000"], answers


def test_hipblas_before_3_5_has_the_version_of_its_file(gpu, monkeypatch):
    from deepbench.backends.hipblas import HipBLAS
    from deepbench.core.errors import Unsupported

    def number(*_):
        raise Unsupported("this hipBLAS has no hipblasGetVersion")

    backend = HipBLAS()
    backend.handle = None
    monkeypatch.setattr(backend, "number", number)
    monkeypatch.setattr(backend, "_version_of_file", lambda: "3.0.70000")

    assert "3.0.70000" == backend.version()


def test_libraries_of_nvidia_have_upper_bounds():
    lines = (ROOT / "pyproject.toml").read_text()
    found = re.findall(r'"(nvidia-[^"]*)"', lines)

    assert len(found) >= 16
    assert [] == [requirement for requirement in found if ",<" not in requirement]


def test_libraries_of_any_cuda_version_are_found(tmp_path, monkeypatch):
    for folder in ("cu13", "cu14"):
        (tmp_path / "site-packages/nvidia" / folder / "lib").mkdir(parents=True)
        (tmp_path / "site-packages/nvidia" / folder / f"lib/libcublas.so.{folder[2:]}").touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site-packages")])
    monkeypatch.delenv("DEEPBENCH_CUBLAS_PATH", raising=False)
    found = library.candidates("DEEPBENCH_CUBLAS_PATH", CUDA.libraries["blas"].patterns)

    assert ["libcublas.so.14", "libcublas.so.13"] == [Path(p).name for p in found if str(tmp_path) in p]
