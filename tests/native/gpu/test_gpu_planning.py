"""The real cuDNN plans graphs for GPUs that are not in this machine, and so checks all our descriptors.

Opt-in, because the wheels are 1.5 GB: DEEPBENCH_TEST_CUDNN=1 with `pip install '.[cuda13]'`. Graphs for which cuDNN
compiles kernels need functions of the driver, which are compiled here (`driver.c`) where there is none.
"""

import ctypes
import json
import os

import pytest

from deepbench.backends.cudnn import attention, conv, norm, plans
from deepbench.core.case import parse_case
from deepbench.core.errors import Unavailable
from deepbench.core.op import find_op
from deepbench.native.gpu import cudnn
from tests.native.gpu.conftest import HERE, Planner, compile_library

# The device properties that cuDNN needs: those of an H200, and what differs on other cards.
H200 = {
    **{"deviceName": "H200", "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000, "multiProcessorCount": 132},
    **{"smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "l2CacheSize": 62914560, "warpSize": 32},
    **{"maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024},
    **{"maxRegistersPerSM": 65536, "regsPerBlock": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024},
    **{"maxThreadsPerSM": 2048, "isTccDriver": 0, "supportCoopLaunch": 1, "pciDeviceId": 0},
    **{"totalGlobalMem": 140_000_000_000, "memoryBusWidth": 6144},
    # cuDNN 9.28 wants them, too; zeros change nothing.
    **{"smCountOrigin": 0, "oversizedSharedMemoryPerBlock": 0},
    **{"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64]},
}
A100 = {
    **{"deviceName": "A100", "deviceVer": 800, "multiProcessorCount": 108, "smClockRateKHz": 1410000},
    **{"memClockRateKHz": 1215000, "l2CacheSize": 41943040, "maxSharedMemoryPerBlockOptin": 166912},
    **{"totalGlobalMem": 80_000_000_000, "memoryBusWidth": 5120},
}
B200 = {
    **{"deviceName": "B200", "deviceVer": 1000, "multiProcessorCount": 148, "smClockRateKHz": 1965000},
    **{"memClockRateKHz": 3996000, "l2CacheSize": 132644864, "totalGlobalMem": 180_000_000_000},
    "memoryBusWidth": 8192,
}
CARDS = {"a100": {**H200, **A100}, "h200": H200, "b200": {**H200, **B200}}

VGG = "conv n=16 c=64 h=56 w=56 k=64 r=3 s=3 pad_h=1 pad_w=1"
CONVOLUTIONS = [
    *(
        f"{VGG} {direction} {precision} cudnn threads=1 layout={layout}"
        for direction in ("forward", "backward_data", "backward_weights")
        for precision in ("f32", "tf32", "f16", "bf16")
        for layout in ("nchw", "nhwc")
    ),
    f"{VGG} forward i8 cudnn threads=1 layout=nhwc",
    "conv n=2 c=8 h=10 w=10 k=16 r=3 s=3 pad_h=1 pad_w=1 groups=4 forward f16 cudnn threads=1",
    "conv n=2 c=8 h=12 w=11 k=12 r=3 s=3 dilation_h=2 dilation_w=2 backward_data f32 cudnn threads=1",
    "conv n=1 c=3 h=6 w=8 k=4 r=3 s=3 pad_h=1 pad_w=1 d=5 t=3 pad_d=1 backward_weights f32 cudnn threads=1",
]

LLAMA, MHA = "attention batch=2 heads=32 kv_heads=8", "attention batch=1 heads=16 kv_heads=16"
ATTENTION = [
    f"{LLAMA} {problem} {direction} bf16 cudnn threads=1"
    for problem in (
        "queries=512 keys=512 head_size=128",
        "queries=512 keys=512 head_size=128 mask=causal",
        "queries=100 keys=333 head_size=64 mask=causal",
        "queries=512 keys=512 head_size=128 mask=causal window=100",
        "queries=100 keys=333 head_size=64 mask=causal window=100",
        "queries=512 keys=512 head_size=128 mask=causal lengths=spread",
        "queries=3 keys=333 head_size=128 mask=causal lengths=spread",
        "queries=77 keys=77 head_size=72",
    )
    for direction in ("forward", "backward")
] + [
    f"{LLAMA} queries=1 keys=4096 head_size=128 mask=causal forward f16 cudnn threads=1",
    f"{LLAMA} queries=1 keys=4096 head_size=128 mask=causal page=16 lengths=spread forward bf16 cudnn threads=1",
    f"{LLAMA} queries=7 keys=1000 head_size=128 mask=causal page=64 forward f16 cudnn threads=1",
    f"{MHA} queries=256 keys=256 head_size=192 value_size=128 mask=causal forward bf16 cudnn threads=1",
    f"{MHA} queries=256 keys=256 head_size=64 mask=causal backward f16 cudnn threads=1",
]

NORMS = [
    f"{problem} {direction} {precision} cudnn threads=1"
    for problem in ("layer_norm rows=4096 columns=1024", "rms_norm rows=4096 columns=4096")
    for direction in ("forward", "backward")
    for precision in ("f32", "bf16")
] + [
    f"batch_norm n=32 c=64 h=28 w=28 {words} layout={layout}"
    for layout in ("nchw", "nhwc")
    for words in (
        "forward f16 cudnn threads=1 mode=training",
        "forward f32 cudnn threads=1 mode=training",
        "forward bf16 cudnn threads=1 mode=inference",
        "forward f32 cudnn threads=1 mode=inference",
        "backward bf16 cudnn threads=1",
        "backward f32 cudnn threads=1",
    )
]


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A driver: that of this machine, or functions that find no device."""
    try:
        return ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        path = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
        compile_library(path, [HERE / "driver.c"], "-Wl,-soname,libcuda.so.1")
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture(scope="module")
def planner(request):
    """The real cuDNN, and the properties of each card."""
    if os.environ.get("DEEPBENCH_TEST_CUDNN") != "1":
        pytest.skip("planning with the real cuDNN is opt-in: DEEPBENCH_TEST_CUDNN=1")
    request.getfixturevalue("driver")
    gpu = Planner()
    try:
        gpu.library("dnn")
    except Unavailable as error:
        pytest.skip(str(error))
    properties = {}
    for card, numbers in CARDS.items():
        text = json.dumps(numbers).encode() + b"\0"
        properties[card] = cudnn.Descriptor(gpu, cudnn.DEVICE_PROPERTIES)
        properties[card].set(cudnn.DEVICE_JSON, cudnn.CHARACTER, *(bytes([b]) for b in text)).finish()
    return gpu, properties


def graph_of(gpu, case):
    """The graph of a case."""
    arrays = {} if case.op == "attention" else find_op(case.op).operands(case)
    if case.op == "attention":
        attention.refuse(case, gpu.function("cudnnGetVersion")())
        return attention.operation_graph(gpu, case)
    if case.op == "conv":
        return conv.operation_graph(gpu, case, arrays)
    return norm.operation_graph(gpu, case, {**arrays, **norm.prepared(arrays)})


def configurations(planner, card, text):
    """Those of this precision that cuDNN proposes; the first one is built."""
    gpu, properties = planner
    case = parse_case(text)
    found = cudnn.configurations(gpu, graph_of(gpu, case).finish(), properties[card])
    configs = [c for c in found if plans.allowed(case, cudnn.notes(c))]

    assert configs
    assert len({cudnn.name(c) for c in configs}) == len(configs)
    assert cudnn.plan(gpu, configs[0], None, properties[card]).get(cudnn.PLAN_WORKSPACE, cudnn.INT64)[0] >= 0
    if case.op == "conv" and case.precision.name == "f32":
        assert not [c for c in configs if "tensor cores" in cudnn.name(c)]
    return configs


@pytest.mark.parametrize("text", CONVOLUTIONS)
def test_cudnn_has_plans_of_convolutions_for_an_h200(planner, text):
    configurations(planner, "h200", text)


@pytest.mark.parametrize("text", ATTENTION)
@pytest.mark.parametrize("card", CARDS)
def test_cudnn_has_plans_of_attention(planner, card, text):
    configurations(planner, card, text)


@pytest.mark.parametrize("text", NORMS)
@pytest.mark.parametrize("card", CARDS)
def test_cudnn_has_plans_of_normalizations(planner, card, text):
    configurations(planner, card, text)
