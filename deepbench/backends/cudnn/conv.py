"""Convolution in cuDNN: builds and times every plan that the heuristics propose, and measures the fastest."""

from __future__ import annotations

import ctypes

from deepbench.backends.cudnn import plans
from deepbench.backends.cudnn.plans import ChosenPlan
from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native.gpu import cudnn, layouts
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.gpu.runtime import Runtime

# By direction: the operation, and its attributes for x, w, y, the convolution, alpha and beta.
OPERATIONS = {
    "forward": (cudnn.CONVOLUTION_FORWARD, {"x": 704, "w": 703, "y": 705}, 702, 700, 701),
    "backward_data": (cudnn.CONVOLUTION_BACKWARD_DATA, {"dx": 710, "w": 709, "dy": 711}, 708, 706, 707),
    "backward_weights": (cudnn.CONVOLUTION_BACKWARD_FILTER, {"x": 716, "dw": 715, "dy": 717}, 714, 712, 713),
}


def prepare(backend: GpuBackend, case: Case, arrays: Arrays, chosen: dict[str, ChosenPlan]) -> Kernel:
    """The kernel of one convolution in any direction. `chosen` keeps the choice of the search by case."""
    layouts.refuse_conv(backend.title, case)

    def build() -> plans.OperationGraph:
        return operation_graph(backend.gpu, case, arrays)

    return plans.fastest(backend, case, arrays, chosen, build, refuse_workspace=layouts.refuse_workspace)


def operation_graph(gpu: Runtime, case: Case, arrays: Arrays) -> plans.OperationGraph:
    """The graph of this operation."""
    from deepbench.core.precision import type_name

    p = case.problem
    deep = slice(0 if p.dimensions == 3 else 1, None)
    convolution = cudnn.Descriptor(gpu, cudnn.CONVOLUTION)
    convolution.set(cudnn.CONVOLUTION_COMPUTE, cudnn.DATA_TYPE, cudnn.TYPES[case.precision.accumulate])
    convolution.set(cudnn.CONVOLUTION_MODE, cudnn.MODE, cudnn.CROSS_CORRELATION)
    convolution.set(cudnn.CONVOLUTION_DIMENSIONS, cudnn.INT64, p.dimensions)
    convolution.set(cudnn.CONVOLUTION_DILATIONS, cudnn.INT64, *p.dilation[deep])
    convolution.set(cudnn.CONVOLUTION_STRIDES, cudnn.INT64, *p.stride[deep])
    convolution.set(cudnn.CONVOLUTION_PRE_PADDINGS, cudnn.INT64, *p.pad[deep])
    convolution.set(cudnn.CONVOLUTION_POST_PADDINGS, cudnn.INT64, *p.pad[deep]).finish()
    kind, attributes, convolution_attribute, alpha, beta = OPERATIONS[case.direction]
    graph = plans.OperationGraph(gpu)
    tensors = {
        attribute: graph.tensor(name, type_name(arrays[name].dtype), *layouts.sizes_and_strides(case, arrays[name]))
        for name, attribute in attributes.items()
    }
    scale = case.operation.facts(case).get("scale", 1.0)
    if case.operation.result_type(case) == "s32":
        # cuDNN 9.19 multiplies sums in s32 by the bits of alpha as an s32: on an H200, by 1065353216 for 1.0.
        scale = ctypes.c_float.from_buffer(ctypes.c_int32(1)).value
    scales = ((alpha, cudnn.FLOAT, scale), (beta, cudnn.FLOAT, 0.0))
    graph.add(kind, convolution_attribute, convolution, tensors, scales)
    return graph
