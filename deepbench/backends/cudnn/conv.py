"""Convolution in cuDNN: builds and times every plan that the heuristics propose, and measures the fastest."""

from __future__ import annotations

import ctypes
from functools import partial

from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native.gpu import cudnn, layouts, timing
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.gpu.runtime import Runtime

# By direction: the operation, and its attributes for x, w, y, the convolution, alpha and beta.
OPERATIONS = {
    "forward": (cudnn.CONVOLUTION_FORWARD, {"x": 704, "w": 703, "y": 705}, 702, 700, 701),
    "backward_data": (cudnn.CONVOLUTION_BACKWARD_DATA, {"dx": 710, "w": 709, "dy": 711}, 708, 706, 707),
    "backward_weights": (cudnn.CONVOLUTION_BACKWARD_FILTER, {"x": 716, "dw": 715, "dy": 717}, 714, 712, 713),
}


def prepare(
    backend: GpuBackend, case: Case, arrays: Arrays, plans: dict[str, tuple[cudnn.Descriptor, cudnn.Descriptor]]
) -> Kernel:
    """The kernel of one convolution in any direction. `plans` keeps the choice of the search by case."""
    layouts.refuse_conv(backend.title, case)
    gpu, buffers = backend.gpu, backend.buffers(case, arrays)
    addresses = {i: buffers.address[name] for i, name in enumerate(OPERATIONS[case.direction][1])}

    def kernel(config: cudnn.Descriptor, plan: cudnn.Descriptor) -> Kernel:
        needed = plan.get(cudnn.PLAN_WORKSPACE, cudnn.INT64)[0]
        layouts.refuse_workspace(needed)
        variant = cudnn.variant(gpu, addresses, gpu.workspace(max(needed, 1))[0])
        call = backend.prepare_call("cudnnBackendExecute", backend.handle, plan.handle, variant.handle)
        notes = {
            "implementation": cudnn.name(config),
            "algorithm": cudnn.algorithm(config),
            "workspace_bytes": needed,
        }
        return backend.kernel([call], buffers, arrays, notes, plan, variant, config)

    if case.text in plans:  # with `cache=cold`: another set of buffers
        return kernel(*plans[case.text])
    graph = operation_graph(gpu, case, arrays)
    graph.set(cudnn.GRAPH_HANDLE, cudnn.HANDLE, backend.handle).finish()
    allowed_ones = [c for c in cudnn.configurations(gpu, graph) if allowed(case, cudnn.notes(c))]
    configs = {cudnn.name(c): c for c in allowed_ones}
    built: dict[str, cudnn.Descriptor] = {}

    def candidate(name: str) -> Kernel:
        if name not in built:
            built[name] = cudnn.plan(gpu, configs[name], backend.handle)
        return kernel(configs[name], built[name])

    candidates = {name: partial(candidate, name) for name in configs}
    best, name = backend.fastest(case, candidates, buffers.load, timing.COMPILED_SEARCH_MOST_S)
    plans[case.text] = configs[name], built[name]
    return best


def operation_graph(gpu: Runtime, case: Case, arrays: Arrays) -> cudnn.Descriptor:
    """The graph of this operation, not finished: it still needs the handle or the GPU's properties."""
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
    operation = cudnn.Descriptor(gpu, kind).set(convolution_attribute, cudnn.DESCRIPTOR, convolution)
    for number, (name, attribute) in enumerate(attributes.items()):
        sizes, strides = layouts.sizes_and_strides(case, arrays[name])
        tensor = cudnn.tensor(gpu, number, type_name(arrays[name].dtype), sizes, strides)
        operation.set(attribute, cudnn.DESCRIPTOR, tensor)
    scale = case.operation.facts(case).get("scale", 1.0)
    if case.operation.result_type(case) == "s32":
        # cuDNN 9.19 multiplies sums in s32 by the bits of alpha as an s32: on an H200, by 1065353216 for 1.0.
        scale = ctypes.c_float.from_buffer(ctypes.c_int32(1)).value
    operation.set(alpha, cudnn.FLOAT, scale).set(beta, cudnn.FLOAT, 0.0).finish()
    return cudnn.Descriptor(gpu, cudnn.OPERATION_GRAPH).set(cudnn.GRAPH_OPERATIONS, cudnn.DESCRIPTOR, operation)


def allowed(case: Case, notes: set[int]) -> bool:
    """Whether an engine with these numerical notes computes in the precision of the case."""
    if cudnn.CONVERTED_DOWN in notes:
        return False
    if case.precision.name == "f32":  # tensor cores multiply 19 bits of each operand
        return cudnn.TENSOR_CORES not in notes
    return cudnn.REDUCED not in notes
