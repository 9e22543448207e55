"""Convolution in cuDNN: every plan that its heuristics propose is built and timed, and the fastest one measured."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from deepbench.core.errors import Unsupported
from deepbench.core.op import find_op
from deepbench.native.gpu import cudnn, layouts

if TYPE_CHECKING:
    from deepbench.backends.cudnn import CuDNN
    from deepbench.core.case import Case
    from deepbench.core.kernel import Kernel
    from deepbench.core.op import Arrays
    from deepbench.native.gpu.device import Gpu

WORKSPACE_BYTES = layouts.CONV_WORKSPACE_BYTES
# Building plans takes most of it: some are compiled then.
SEARCH_MOST_S = 30.0

# By direction: the operation, and its attributes for x, w, y, the convolution, alpha and beta.
OPERATIONS = {
    "forward": (cudnn.CONVOLUTION_FORWARD, {"x": 704, "w": 703, "y": 705}, 702, 700, 701),
    "backward_data": (cudnn.CONVOLUTION_BACKWARD_DATA, {"dx": 710, "w": 709, "dy": 711}, 708, 706, 707),
    "backward_weights": (cudnn.CONVOLUTION_BACKWARD_FILTER, {"x": 716, "dw": 715, "dy": 717}, 714, 712, 713),
}


def prepare(backend: CuDNN, case: Case, arrays: Arrays) -> Kernel:
    """The kernel of one convolution in any direction."""
    layouts.refuse_conv(backend.title, case)
    gpu, buffers = backend.gpu, backend.buffers(case, arrays)
    addresses = {i: buffers.address[name] for i, name in enumerate(OPERATIONS[case.direction][1])}

    def kernel(config: cudnn.Descriptor, plan: cudnn.Descriptor) -> Kernel:
        wanted = plan.get(cudnn.PLAN_WORKSPACE, cudnn.INT64)[0]
        if wanted > WORKSPACE_BYTES:
            raise Unsupported(f"the plan wants {wanted} bytes of workspace, allowed are {WORKSPACE_BYTES}")
        variant = cudnn.variant(gpu, addresses, gpu.workspace(max(wanted, 1))[0])
        call = backend.enqueue("cudnnBackendExecute", backend.dnn, plan.handle, variant.handle)
        facts = {"implementation": cudnn.name(config), "workspace_bytes": wanted}
        return backend.kernel([call], buffers, arrays, facts, plan, variant, config)

    if case.text in backend.plans:  # another set of buffers
        return kernel(*backend.plans[case.text])
    graph = operation_graph(gpu, case, arrays)
    graph.set(cudnn.GRAPH_HANDLE, cudnn.HANDLE, backend.dnn).finish()
    configs = [c for c in cudnn.configurations(gpu, graph) if allowed(case, cudnn.notes(c))]
    made: dict[int, cudnn.Descriptor] = {}

    def candidate(i: int) -> Kernel:
        if i not in made:
            made[i] = cudnn.plan(gpu, configs[i], backend.dnn)
        return kernel(configs[i], made[i])

    numbers = range(len(configs))
    best, i = backend.fastest(case, [partial(candidate, i) for i in numbers], buffers.load, SEARCH_MOST_S)
    backend.plans[case.text] = configs[i], made[i]
    return best


def operation_graph(gpu: Gpu, case: Case, arrays: Arrays) -> cudnn.Descriptor:
    """The graph of this one operation, not finished: it still lacks the handle or the card's properties."""
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
    kind, attributes, with_convolution, alpha, beta = OPERATIONS[case.direction]
    operation = cudnn.Descriptor(gpu, kind).set(with_convolution, cudnn.DESCRIPTOR, convolution)
    for number, (name, attribute) in enumerate(attributes.items()):
        sizes, strides = layouts.sizes_and_strides(case, arrays[name])
        described = cudnn.tensor(gpu, number, type_name(arrays[name].dtype), sizes, strides)
        operation.set(attribute, cudnn.DESCRIPTOR, described)
    scale = find_op(case.op).facts(case).get("scale", 1.0)
    operation.set(alpha, cudnn.FLOAT, scale).set(beta, cudnn.FLOAT, 0.0).finish()
    return cudnn.Descriptor(gpu, cudnn.OPERATION_GRAPH).set(cudnn.GRAPH_OPERATIONS, cudnn.DESCRIPTOR, operation)


def allowed(case: Case, notes: set[int]) -> bool:
    """Whether an engine with these notes multiplies and adds what the precision says."""
    if cudnn.CONVERTED_DOWN in notes:
        return False
    if case.precision.name == "f32":  # tensor cores multiply 19 bits of it
        return cudnn.TENSOR_CORES not in notes
    return cudnn.REDUCED not in notes
