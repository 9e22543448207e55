"""ONNX Runtime: its table of functions, our models, what it must not be asked to compute, and plug-in providers."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deepbench.backends.onnxruntime import library, model, operations, providers, session
from deepbench.backends.onnxruntime.library import ENTRIES, PATH_VARIABLE, PLAIN_ENTRIES, OnnxRuntime, opened
from deepbench.backends.onnxruntime.model import MICROSOFT, OnnxGraph, fields, operators
from deepbench.core.backend import find_backend
from deepbench.core.case import parse_case
from deepbench.core.errors import DeepBenchError, LibraryError, Unavailable, Unsupported
from deepbench.core.op import find_op
from deepbench.machine import describe
from deepbench.measuring.check import check
from deepbench.measuring.heat import measure_case
from deepbench.native import callloop
from deepbench.plan.modes import Rules

SHORT = Rules(least_samples=2, least_s=0.0, most_s=0.002, warm_up_s=0.001)
WEIGHTS_OF_4_BITS = "weight_only_gemm m=8 n=1 k=32 group=32 forward f16 onnxruntime threads=1"
PRODUCT = "gemm m=8 n=8 k=8 a_t=0 b_t=0 forward f32 onnxruntime threads=1 beta=0"

# A Vulkan driver that computes on the CPU, as Debian's chromium-common has it, with a loader.
SWIFTSHADER = Path(os.environ.get("SWIFTSHADER_FOLDER", "/usr/lib/chromium"))


def graph_of(text):
    case = parse_case(text)
    arrays = find_op(case.op).operands(case)
    return case, arrays, getattr(operations, case.op)(case, arrays)


@pytest.fixture(scope="module")
def ort():
    """The library in this process, with one thread."""
    try:
        found = opened(os.environ.get(PATH_VARIABLE))
    except Unavailable as missing:
        pytest.skip(str(missing))
    found.start(1)
    return found


# ---- models


def test_numbers_have_seven_bits_a_byte():
    assert bytes([0]) == model.varint(0)
    assert bytes([0xAC, 0x02]) == model.varint(300)
    assert bytes([0xFF] * 9 + [1]) == model.varint(-1)


def test_what_is_written_is_read():
    _, _, graph = graph_of("linear m=7 n=3 k=9 forward f32 onnxruntime threads=1 activation=silu weights=packed")

    assert ["Gemm", "Sigmoid", "Mul"] == operators(graph.model)
    assert {"a", "bias"} == graph.constants.keys()


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [(b"\x80", "does not end"), (b"\x0a\x05ab", "too early"), (b"\x0b", "the kind 3"), (b"\x0d\0\0", "too early")],
)
def test_a_damaged_message_is_refused(damaged, reason):
    with pytest.raises(ValueError, match=reason):
        list(fields(memoryview(damaged)))


@pytest.mark.parametrize(
    "text",
    [
        "gemm m=5 n=4 k=3 a_t=1 b_t=1 forward f32 onnxruntime threads=1 weights=packed",
        "gemm m=5 n=4 k=3 a_t=1 b_t=0 forward i8u8 onnxruntime threads=1",
        "conv n=1 c=4 h=6 w=6 k=8 r=3 s=3 pad_h=1 groups=2 forward f32 onnxruntime threads=1 bias=yes layout=any",
        "recurrent cell=vanilla hidden=5 batch=2 timesteps=3 forward f32 onnxruntime threads=1",
        "attention batch=1 heads=2 kv_heads=1 queries=3 keys=9 head_size=4 mask=causal forward f16 onnxruntime "
        "threads=1",
        "elementwise kind=relu6 n=9 forward f32 onnxruntime threads=1",
    ],
)
def test_our_models_are_those_of_the_onnx_package(text):
    onnx = pytest.importorskip("onnx", reason="onnx not found; pip install onnx")
    _, _, graph = graph_of(text)

    read = onnx.load_from_string(graph.model)
    onnx.checker.check_model(read, full_check=True)

    assert operators(graph.model) == [node.op_type for node in read.graph.node]
    for ours, theirs in ((graph.inputs, read.graph.input), (graph.outputs, read.graph.output)):
        shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in theirs}
        assert {name: array.shape for name, array in ours.items()} == shapes
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in read.graph.initializer}
    assert graph.constants.keys() == constants.keys()
    assert all(np.array_equal(graph.constants[name], value) for name, value in constants.items())


def test_attributes_are_those_of_the_onnx_package():
    onnx = pytest.importorskip("onnx", reason="onnx not found; pip install onnx")
    graph = OnnxGraph({}, {})
    graph.add("Any", "a - b", "y", MICROSOFT, whole=-3, real=0.25, text="tanh", sizes=[1, 300], names=["Relu", "Tanh"])

    (node,) = onnx.load_from_string(graph.model).graph.node

    assert (["a", "", "b"], ["y"], "Any", MICROSOFT) == (list(node.input), list(node.output), node.op_type, node.domain)
    found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert {"whole": -3, "real": 0.25, "text": b"tanh", "sizes": [1, 300], "names": [b"Relu", b"Tanh"]} == found


# ---- the library


def _address(buffer):
    return ctypes.addressof(buffer)


class FakeLibrary:
    """A library whose `GetApi` returns null."""

    def __init__(self, has_base=True):
        void, number = ctypes.c_void_p, ctypes.c_uint32
        text = ctypes.create_string_buffer(b"1.9")
        self.keep = ctypes.CFUNCTYPE(void, number)(lambda version: 0), ctypes.CFUNCTYPE(void)(lambda: _address(text))
        self.base = (void * 2)(*(ctypes.cast(f, void).value for f in self.keep))
        self.OrtGetApiBase = ctypes.CFUNCTYPE(void)(lambda: ctypes.addressof(self.base) if has_base else 0)


@pytest.mark.parametrize(
    ("has_base", "reason"), [(True, r"ONNX Runtime 1\.9 .* lacks version 24 of its API; pip install"), (False, "null")]
)
def test_an_older_or_broken_library_is_refused(monkeypatch, has_base, reason):
    monkeypatch.setattr(library.library, "load", lambda *arguments, **options: FakeLibrary(has_base))

    with pytest.raises(Unavailable, match=reason):
        OnnxRuntime()


def test_a_file_without_the_entry_is_refused(monkeypatch):
    file = callloop.native_library()
    if file is None:
        pytest.skip("the C loop is not built")
    monkeypatch.setenv(PATH_VARIABLE, file._name)

    with pytest.raises(Unavailable, match=r"has no function OrtGetApiBase\); pip install 'onnxruntime>=1\.24'"):
        find_backend("onnxruntime").open()


def test_no_number_is_used_twice():
    numbers = [*ENTRIES.values(), *(number for number, _ in PLAIN_ENTRIES.values())]

    assert len(numbers) == len(set(numbers))


@pytest.mark.programs
def test_functions_are_where_the_table_says(ort):
    """Called with null pointers, these return an error that names them or what they take. They include the last one."""
    named = {
        "CopyTensors": "CopyTensors",
        "SetGlobalIntraOpNumThreads": "OrtThreadingOptions",
        "SetGlobalInterOpNumThreads": "OrtThreadingOptions",
        "SetGlobalSpinControl": "OrtThreadingOptions",
        "EpAssignedSubgraph_GetEpName": "EpAssignedSubgraph_GetEpName",
        "EpAssignedSubgraph_GetNodes": "EpAssignedSubgraph_GetNodes",
        "EpAssignedNode_GetOperatorType": "EpAssignedNode_GetOperatorType",
    }
    code = f"""
from deepbench.backends.onnxruntime.library import OnnxRuntime
import ctypes
ort = OnnxRuntime()
for name in {list(named)}:
    try:
        ort(name, *[ctypes.c_void_p(0)] * 6)
    except Exception as error:
        print(name, str(error).partition("(")[2], flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert named.keys() == said.keys(), done.stderr
    assert [] == [name for name, word in named.items() if word not in said[name]]
    assert max(ENTRIES.values()) == ENTRIES["EpAssignedNode_GetOperatorType"]


def test_errors_have_the_text_of_the_library(ort):
    with pytest.raises(LibraryError, match=r"^ONNX Runtime [\d.]+: CreateSessionFromArray returned \d+ \(.*protobuf"):
        session._create(ort, b"no model", None, None)


def test_a_process_has_one_number_of_threads(ort):
    with pytest.raises(DeepBenchError, match="has 1 threads in this process, so 2 need another one"):
        ort.start(2)


@pytest.mark.programs
def test_nothing_is_sent_and_threads_are_those_of_the_case(ort, tmp_path):
    """Version 1.32 has a thread that sends events, and a file with an identifier, unless a variable forbids it."""
    code = """
from deepbench.backends.onnxruntime.library import OnnxRuntime
import os
before = len(os.listdir("/proc/self/task"))
ort = OnnxRuntime()
ort.start(3)
print(len(os.listdir("/proc/self/task")) - before)
"""
    kept = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment = {**kept, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)

    assert "2" == done.stdout.strip(), done.stderr
    assert [] == list(tmp_path.iterdir())


# ---- what ran


@pytest.mark.programs
@pytest.mark.parametrize(
    ("text", "ran"),
    [
        ("gemm m=64 n=8 k=32 a_t=1 b_t=0 forward f32 onnxruntime threads=2", "Gemm"),
        ("linear m=64 n=8 k=32 forward f32 onnxruntime threads=1 activation=relu weights=packed", "FusedGemm"),
        ("conv n=1 c=16 h=8 w=8 k=32 r=3 s=3 forward f32 onnxruntime threads=1 layout=any", "Conv"),
    ],
)
def test_the_record_has_what_ran_after_all_optimizations(ort, text, ran):
    record = measure_case(parse_case(text), 1, SHORT, 60.0)

    assert "ok" == record["status"], record["reason"]
    assert ran in record["notes"]["implementation"].split(", ")
    assert ("spinning" if "threads=2" in text else None) == record["notes"].get("threads_wait")
    assert ("weights=packed" in text) == ("pack_s" in record["notes"])
    assert ("ONNX Runtime", False) == (record["library_title"], record["framework"])
    assert "1" == record["process"]["environment"]["ORT_DISABLE_TELEMETRY"]


@pytest.mark.programs
def test_it_runs_without_the_compiled_loop(ort, monkeypatch):
    monkeypatch.setenv(callloop.NO_NATIVE, "1")

    record = measure_case(parse_case(PRODUCT), 1, SHORT, 60.0)

    assert ("ok", "python") == (record["status"], record["measurement"]["loop"]), record["reason"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other processors have products of f16")
def test_a_product_of_f16_that_is_computed_in_f32_is_refused(ort):
    _, _, graph = graph_of("gemm m=8 n=8 k=8 a_t=0 b_t=0 forward f16 onnxruntime threads=1 beta=0 result=narrow")

    with pytest.raises(Unsupported, match=r"in another precision on this machine: it runs Cast, Cast, Gemm, Cast; ch"):
        session.open_session(ort, graph)


def test_what_has_no_kernel_is_refused_with_the_reason(ort):
    _, _, graph = graph_of("gemm m=8 n=8 k=8 a_t=0 b_t=0 forward bf16 onnxruntime threads=1 beta=0 result=narrow")

    with pytest.raises(Unsupported, match=r"Could not find an implementation for Gemm.*no such kernel"):
        session.open_session(ort, graph)


@pytest.mark.parametrize("places", [{"CPUExecutionProvider": ["Gemm"], "Other": ["Add"]}, {"Other": ["Gemm"]}, {}])
def test_what_runs_elsewhere_is_refused(ort, monkeypatch, places):
    monkeypatch.setattr(session, "_providers", lambda *arguments: places)

    with pytest.raises(Unsupported, match="does not run all of this on CPUExecutionProvider"):
        session.open_session(ort, graph_of(PRODUCT)[2])


def test_constants_that_no_model_can_hold_are_refused(ort, monkeypatch):
    monkeypatch.setattr(session, "MOST_MODEL_BYTES", 255)

    with pytest.raises(Unsupported, match="at most 255 bytes; choose weights=plain"):
        session.open_session(ort, graph_of(f"{PRODUCT} weights=packed")[2])


def test_a_session_is_released_with_its_kernel(ort, monkeypatch):
    released = []
    monkeypatch.setattr(ort, "release", lambda objects: released.extend(kind for kind, _ in objects))
    kernel = session.prepare(ort, graph_of(PRODUCT)[2])

    assert [] == released
    del kernel
    assert ["Session", "Value", "Value", "Value", "IoBinding"] == released


# ---- providers


def test_named_files_come_before_installed_packages(monkeypatch, tmp_path):
    installed = tmp_path / "onnxruntime_ep_any" / "libonnxruntime_providers_any.so"
    installed.parent.mkdir()
    installed.touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delenv(providers.PROVIDERS_VARIABLE, raising=False)
    assert [os.path.realpath(installed)] == providers.provider_paths()

    monkeypatch.setenv(providers.PROVIDERS_VARIABLE, "/a.so:/b.so")
    assert ["/a.so", "/b.so"] == providers.provider_paths()


def probed(path, timeout_s=30.0):
    """The devices of a provider, or the reason why there are none, from a process of its own."""
    from deepbench.measuring.devices import probe

    found = probe("onnxruntime", path, timeout_s)
    return getattr(found, "reason", found)


def test_files_that_are_no_provider_are_named(ort, tmp_path):
    text = tmp_path / "text.so"
    text.write_text("no library")

    assert "/no/such/provider.so does not exist" == probed("/no/such/provider.so")
    assert "no provider for ONNX Runtime" in probed(str(text))
    assert "no provider for ONNX Runtime" in probed(callloop.native_library()._name)


@pytest.mark.programs
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("does", "problem"),
    [
        ("abort()", "SIGABRT"),
        ("_exit(0)", "it ended without an answer"),
        ("for (;;) pause()", "no sign of life for 2 s"),
    ],
)
def test_a_provider_that_aborts_or_hangs_ends_its_own_process_only(ort, tmp_path, does, problem):
    source, file = tmp_path / "bad.c", tmp_path / "bad.so"
    entries = f"void CreateEpFactories(void) {{ {does}; }}\nvoid ReleaseEpFactory(void) {{ }}\n"
    source.write_text(f"#include <stdlib.h>\n#include <unistd.h>\n{entries}")
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(file)], check=True)

    assert problem in probed(str(file), 2.0 if "pause" in does else 30.0)


# On WebGPU with SwiftShader, in a process of its own, because the loader of Vulkan reads variables when it starts.
ON_WEBGPU = """
import json, os
from statistics import median
from time import perf_counter
from deepbench.backends.onnxruntime import providers
from tests.backends.test_onnxruntime import PATH_VARIABLE, on_device, opened

ort = opened(os.environ.get(PATH_VARIABLE))
ort.start(1)
(device,) = providers.devices_of(ort, providers.provider_paths()[0])
answers = {text: on_device(device, text)[1] for text in TEXTS}
kernel, _ = on_device(device, TEXTS[0])

def seconds(calls, end):
    start = perf_counter()
    kernel.enqueue(calls)
    end()
    taken = perf_counter() - start
    kernel.fetch()
    return taken

def slope(end, calls=8):
    return median((seconds(2 * calls, end) - seconds(calls, end)) / calls for _ in range(5))

alone = median(seconds(1, kernel.wait) for _ in range(5))
print("> " + json.dumps([vars(device), answers, alone, slope(kernel.wait), slope(kernel.synchronize)]))
"""
ON_DEVICE = [
    "gemm m=64 n=64 k=64 a_t=0 b_t=0 forward f32 onnxruntime threads=1 beta=0",
    "gemm m=35 n=20 k=17 a_t=1 b_t=1 forward f32 onnxruntime threads=1",
    "conv n=1 c=16 h=8 w=8 k=32 r=3 s=3 pad_h=1 pad_w=1 forward f32 onnxruntime threads=1",
    "rms_norm rows=17 columns=64 forward f32 onnxruntime threads=1",
    "attention batch=1 heads=2 kv_heads=2 queries=8 keys=8 head_size=16 forward f32 onnxruntime threads=1",
]


def on_device(device, text):
    """A kernel on a device, and whether the result of a call is right, or why there is none."""
    ort = opened(os.environ.get(PATH_VARIABLE))
    ort.start(1)
    case, arrays, graph = graph_of(text)
    try:
        kernel = providers.prepare(ort, device, graph)
    except Unsupported as error:
        return None, str(error)
    kernel.kernel.load()
    kernel.enqueue(1)
    kernel.kernel.store()
    return kernel, check(case.operation, case, arrays).passed


@pytest.mark.programs
@pytest.mark.costly
def test_on_webgpu_only_a_copy_waits_and_answers_are_right(ort, tmp_path):
    files = [p for p in providers.provider_paths() if "webgpu" in p]
    if not files or not (SWIFTSHADER / "libvk_swiftshader.so").exists():
        pytest.skip("needs onnxruntime-ep-webgpu, and SwiftShader in SWIFTSHADER_FOLDER (Debian's chromium-common)")
    driver = {"library_path": str(SWIFTSHADER / "libvk_swiftshader.so"), "api_version": "1.0.5"}
    (tmp_path / "driver.json").write_text(json.dumps({"file_format_version": "1.0.0", "ICD": driver}))
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(SWIFTSHADER),
        "VK_DRIVER_FILES": str(tmp_path / "driver.json"),
        "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1",
        providers.PROVIDERS_VARIABLE: files[0],
    }
    code = f"TEXTS = {ON_DEVICE}\n{ON_WEBGPU}"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)

    assert 0 == done.returncode, done.stderr[-1000:]
    found = next(line for line in done.stdout.splitlines() if line.startswith("> "))
    device, answers, alone, copied, synchronized = json.loads(found[2:])
    assert ("WebGpuExecutionProvider", "Microsoft", 0) == (device["provider"], device["vendor"], device["index"])
    *right, attention = (answers[text] for text in ON_DEVICE)
    assert [True] * len(right) == right, answers
    assert "there is no such kernel" in attention
    assert alone / 5 < copied < 3 * alone
    assert synchronized < copied / 5


@pytest.mark.parametrize(
    ("instructions", "text", "reason"),
    [
        (["asimd", "asimdhp"], PRODUCT.replace("f32", "f16"), "sums products of f16 in 16 bits"),
        (
            ["asimd"],
            "weight_only_gemm m=8 n=1 k=32 group=32 forward f16 onnxruntime threads=1",
            "needs arithmetic in f16",
        ),
    ],
)
def test_on_arm_products_of_f16_are_refused(monkeypatch, instructions, text, reason):
    monkeypatch.setattr(describe, "instructions", lambda: instructions)
    case = parse_case(text)

    with pytest.raises(Unsupported, match=reason):
        find_backend("onnxruntime").operation(case, {})
