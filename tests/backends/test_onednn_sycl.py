"""oneDNN on SYCL: how it is missing, which file is taken, its devices, threads and clock, and what 3.13 lacks."""

import os
from types import SimpleNamespace

import pytest

from deepbench.backends import onednn_sycl
from deepbench.backends.onednn import OneDNNBackend, uses_sycl, weight_only_gemm
from deepbench.core import devices
from deepbench.core.backend import find_backend
from deepbench.core.case import parse_case
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.measuring.devices import find_devices
from deepbench.measuring.heat import measure_case
from deepbench.native import library
from deepbench.plan.modes import Rules

pytestmark = pytest.mark.programs

SHORT = Rules(least_samples=2, least_s=0.0, most_s=0.002, warm_up_s=0.001)
VARIABLE = onednn_sycl.OneDNNSycl.path_variable
GEMM = "gemm m=96 n=80 k=64 forward f32 onednn_sycl threads=2"


@pytest.fixture
def backend(monkeypatch):
    """The opened library."""
    monkeypatch.setenv(onednn_sycl.OPENCL_FILES, "")
    monkeypatch.delenv(onednn_sycl.OPENCL_FILES)
    found = find_backend("onednn_sycl")
    found.select("cpu")
    try:
        found.open()
    except Unavailable as error:
        pytest.skip(str(error))
    return found


# ---- without the library


def test_without_it_the_remedy_is_named(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(library, "roots", list)

    with pytest.raises(Unavailable, match=r"^oneDNN SYCL not found \(.*\); (pip install onednn|name a libdnnl)"):
        find_backend("onednn_sycl").open()
    assert [] == find_backend("onednn_sycl").candidates()


def test_a_build_without_sycl_is_left_out_and_refused_where_it_is_named(monkeypatch, tmp_path):
    ordinary = OneDNNBackend()
    try:
        path = ordinary.open()["path"]
    except Unavailable as error:
        pytest.skip(str(error))
    assert not uses_sycl(path)
    found = find_backend("onednn_sycl")
    monkeypatch.setattr(library, "candidates", lambda variable, patterns: [path])
    assert [] == found.candidates()

    monkeypatch.setenv(VARIABLE, path)
    assert [path] == found.candidates()
    with pytest.raises(Unavailable, match="is built for OpenMP, not for SYCL; "):
        found.open()


def test_what_needs_sycl_is_told_by_the_file(tmp_path):
    for content, answer in ((b"libtbb.so.12\0libsycl.so.9\0", True), (b"libgomp.so.1\0", False)):
        (tmp_path / "libdnnl.so.3").write_bytes(content)
        assert answer is uses_sycl(str(tmp_path / "libdnnl.so.3"))


@pytest.mark.parametrize(
    ("device", "engines", "remedy"),
    [
        ("cpu", {1: 0, 2: 1}, "0 devices of the kind cpu; pip install intel-opencl-rt"),
        ("xpu", {1: 1, 2: 0}, "0 devices of the kind xpu; install the driver of Intel's GPUs"),
        ("xpu:2", {1: 1, 2: 2}, "2 devices of the kind xpu:2; install"),
    ],
)
def test_a_device_that_is_not_there_ends_with_the_reason(monkeypatch, device, engines, remedy):
    found = find_backend("onednn_sycl")
    monkeypatch.setattr(found, "_load", lambda: None)
    monkeypatch.setattr(onednn_sycl, "_limit_threads", lambda: None)
    monkeypatch.setattr("deepbench.native.onednn_device.count", lambda library, kind: engines[kind])
    monkeypatch.setattr(found, "chosen", device)

    with pytest.raises(Unavailable, match=remedy):
        found.open()


def test_the_engine_is_that_of_the_device(monkeypatch):
    found, made = find_backend("onednn_sycl"), []
    monkeypatch.setattr(found, "_load", lambda: None)
    monkeypatch.setattr(onednn_sycl, "_limit_threads", lambda: None)
    monkeypatch.setattr(found, "facts", lambda: dict.fromkeys(("name", "version", "path", "build", "threading")))
    monkeypatch.setattr("deepbench.native.onednn_device.count", lambda library, kind: 2)
    monkeypatch.setattr("deepbench.native.onednn_device.OneDNNDevice", lambda *a, **o: made.append((a[1:], o)))
    facts = []
    for device in ("cpu", "xpu", "xpu:1"):
        monkeypatch.setattr(found, "chosen", device)
        facts.append(found.open())

    assert [((1, 0), {"copies": False}), ((2, 0), {"copies": True}), ((2, 1), {"copies": True})] == made
    assert ["device" in fact for fact in facts] == [False, True, True]
    assert "Intel GPU" == facts[1]["device"]


def test_intel_gpus_are_xpu_in_all_libraries():
    found = find_backend("onednn_sycl")

    assert ("xpu:1", "torch") == tuple(devices.parse("torch:xpu:1", ("torch",)))
    assert ("xpu", None) == tuple(devices.parse("xpu", ()))
    assert [True, True, False, False] == [found.reaches(d) for d in ("cpu", "xpu:1", "cuda", "hip")]
    assert [False, True] == [found.is_default_on(d) for d in ("cpu", "xpu:1")]
    text = "gemm m=2 n=3 k=4 a_t=0 b_t=0 forward f32 onednn_sycl threads=1 device=xpu"
    assert text == parse_case(text).text


def test_what_3_13_computes_wrong_is_not_offered():
    assert not find_backend("onednn_sycl").supports("rms_norm", "f32", "backward")
    assert find_backend("onednn_sycl").supports("rms_norm", "f32", "forward")
    problem = "weight_only_gemm m=8 n=3 k=96 group={} bits=4 forward bf16 onednn threads=1"
    functions = SimpleNamespace(dnnl_primitive_attr_set_fpmath_mode_v2=None)
    version = SimpleNamespace(major=3, minor=13, text="3.13.2")
    dnn = SimpleNamespace(library=functions, version=version)
    with pytest.raises(Unsupported, match=r"3.13.2 gives wrong results .* k=96 in groups of 48; choose"):
        weight_only_gemm.prepare(dnn, parse_case(problem.format(48)), {})
    version.minor = 6
    with pytest.raises(AttributeError, match="create"):  # an older version goes on
        weight_only_gemm.prepare(dnn, parse_case(problem.format(48)), {})
    assert weight_only_gemm.is_right(parse_case(problem.format(32)).problem)


# ---- with it


def test_the_cpu_is_found(backend):
    found = find_devices(["onednn_sycl"])

    assert [] == found.failed
    assert "oneDNN 3." in next(row for row in found.reached if row.device == "cpu").through["onednn_sycl"]


def test_the_clock_sees_no_fault_and_the_record_says_what_ran(backend):
    record = measure_case(parse_case(GEMM), 1, Rules(least_samples=5, least_s=0.05, most_s=0.2, warm_up_s=0.01), 60.0)

    assert "ok" == record["status"], record["reason"]
    assert ("oneDNN SYCL", "SYCL") == (record["library_title"], record["library"]["threading"])
    queue = record["measurement"]["device"]["queue"]
    assert "slope" == record["measurement"]["device"]["clock"]
    assert 0 < queue["slope_s"] < 1e-3
    assert 0 < queue["empty_s"] < 1e-3


def test_fewer_threads_are_fewer_cpus(backend):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    record = measure_case(parse_case(GEMM.replace("threads=2", "threads=1")), 1, SHORT, 60.0)

    assert "ok" == record["status"], record["reason"]
    assert 1 == len(record["process"]["cpus"])


@pytest.mark.alone
def test_reading_waits_for_calls_of_every_interface(backend):
    text = "attention batch=1 heads=8 kv_heads=8 queries=256 keys=256 head_size=64 forward f32 onednn_sycl threads=2"
    for algorithm in ("default", "graph"):
        case = parse_case(f"{text} algorithm={algorithm}")
        kernel = backend.prepare(case, case.operation.operands(case))
        queue = kernel.device.queue
        queue.enqueue(1)
        queue.wait()
        awaited = queue.elapsed(lambda queue=queue: queue.enqueue(8))
        begin = queue.now()
        queue.enqueue(8)
        queue.fetch()

        assert queue.now() - begin > awaited / 3
