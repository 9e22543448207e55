"""The real cuDNN plans convolutions for a GPU that is not in this machine, and so checks all our descriptors.

Opt-in, because the wheels are 1.5 GB: DEEPBENCH_TEST_CUDNN=1 with `pip install '.[cuda13]'`.
"""

import json
import os

import pytest

from deepbench.backends.cudnn import conv
from deepbench.core.case import parse_case
from deepbench.core.errors import Unavailable
from deepbench.core.op import find_op
from deepbench.native.gpu import cudnn
from deepbench.native.gpu.device import Gpu
from deepbench.native.gpu.vendor import CUDA

# The device properties that cuDNN needs, with the numbers of an H200.
H200 = {
    **{"deviceName": "H200", "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000, "multiProcessorCount": 132},
    **{"smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "l2CacheSize": 62914560, "warpSize": 32},
    **{"maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024},
    **{"maxRegistersPerSM": 65536, "regsPerBlock": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024},
    **{"maxThreadsPerSM": 2048, "isTccDriver": 0, "supportCoopLaunch": 1, "pciDeviceId": 0, "totalGlobalMem": 1.4e11},
    **{"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64]},
}
H200["totalGlobalMem"] = int(H200["totalGlobalMem"])
VGG = "conv n=16 c=64 h=56 w=56 k=64 r=3 s=3 pad_h=1 pad_w=1"


class Planner(Gpu):
    """cuDNN without a driver or a GPU."""

    def __init__(self):
        self.vendor, self._libraries, self._functions = CUDA, {}, {}


@pytest.fixture(scope="module")
def planner():
    if os.environ.get("DEEPBENCH_TEST_CUDNN") != "1":
        pytest.skip("planning with the real cuDNN is opt-in: DEEPBENCH_TEST_CUDNN=1")
    gpu = Planner()
    try:
        gpu.library("dnn")
    except Unavailable as error:
        pytest.skip(str(error))
    text = json.dumps(H200).encode() + b"\0"
    properties = cudnn.Descriptor(gpu, cudnn.DEVICE_PROPERTIES)
    properties.set(cudnn.DEVICE_JSON, cudnn.CHARACTER, *(bytes([b]) for b in text)).finish()
    return gpu, properties


@pytest.mark.parametrize(
    "text",
    [
        f"{VGG} {direction} {precision} cudnn threads=1 layout={layout}"
        for direction in ("forward", "backward_data", "backward_weights")
        for precision in ("f32", "tf32", "f16", "bf16")
        for layout in ("nchw", "nhwc")
    ]
    + [
        f"{VGG} forward i8 cudnn threads=1 layout=nhwc",
        "conv n=2 c=8 h=10 w=10 k=16 r=3 s=3 pad_h=1 pad_w=1 groups=4 forward f16 cudnn threads=1",
        "conv n=2 c=8 h=12 w=11 k=12 r=3 s=3 dilation_h=2 dilation_w=2 backward_data f32 cudnn threads=1",
        "conv n=1 c=3 h=6 w=8 k=4 r=3 s=3 pad_h=1 pad_w=1 d=5 t=3 pad_d=1 backward_weights f32 cudnn threads=1",
    ],
)
def test_cudnn_has_plans_for_an_h200(planner, text):
    gpu, properties = planner
    one = parse_case(text)
    graph = conv.operation_graph(gpu, one, find_op(one.op).operands(one)).finish()
    configs = [c for c in cudnn.configurations(gpu, graph, properties) if conv.allowed(one, cudnn.notes(c))]

    assert configs
    assert len({cudnn.name(c) for c in configs}) == len(configs)
    assert cudnn.plan(gpu, configs[0], None, properties).get(cudnn.PLAN_WORKSPACE, cudnn.INT64)[0] >= 0
    if one.precision.name == "f32":
        assert not [c for c in configs if "tensor cores" in cudnn.name(c)]
