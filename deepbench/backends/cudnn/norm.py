"""Normalizations in cuDNN: one operation of its graph interface, or four for `batch_norm` with given statistics.

Statistics that are given come as 1 / sqrt(variance + EPSILON), as cuDNN keeps them; this is prepared before timing. The
variance that `batch_norm` returns in training is computed from what cuDNN returns, after timing.
"""

from __future__ import annotations

from deepbench.backends.cudnn import plans
from deepbench.backends.cudnn.plans import ChosenPlan
from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Array, Arrays
from deepbench.core.precision import BITS
from deepbench.core.rows import EPSILON
from deepbench.native.gpu import cudnn, layouts
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.gpu.runtime import Runtime

MODES = {"layer_norm": cudnn.LAYER_NORM, "rms_norm": cudnn.RMS_NORM, "batch_norm": cudnn.BATCH_NORM}

# By direction: the operation, and its attributes of the mode and of our arrays.
OPERATIONS = {
    "forward": (
        cudnn.NORM_FORWARD,
        2000,
        {"x": 2002, "mean": 2003, "batch_mean": 2003, "reciprocal": 2004, "batch_variance": 2004}
        | {"scale": 2005, "shift": 2006, "y": 2013},
    ),
    "backward": (
        cudnn.NORM_BACKWARD,
        2100,
        {"x": 2101, "mean": 2102, "reciprocal": 2103, "dy": 2104, "scale": 2105}
        | {"dscale": 2107, "dshift": 2108, "dx": 2109},
    ),
}
FORWARD_PHASE, FORWARD_EPSILON = 2001, 2007

# Of channels that are next to each other, kernels load so many bits at a time.
LOADED_BITS = 128


def prepare(backend: GpuBackend, case: Case, arrays: Arrays, chosen: dict[str, ChosenPlan]) -> Kernel:
    """The kernel of a normalization. `chosen` keeps the choice of the search by case."""
    refuse(case)
    inputs = prepared(arrays)

    def build() -> plans.OperationGraph:
        return operation_graph(backend.gpu, case, {**arrays, **inputs})

    kernel = plans.fastest(backend, case, arrays, chosen, build, inputs)
    if "batch_variance" in arrays:
        store = kernel.store

        def store_variance() -> None:
            store()
            reciprocal = arrays["batch_variance"].astype("float64")
            arrays["batch_variance"][...] = reciprocal**-2 - EPSILON

        kernel.store = store_variance
    return kernel


def refuse(case: Case) -> None:
    """`Unsupported` if channels cannot be loaded 16 bytes at a time."""
    if case.op != "batch_norm" or (case.direction == "forward" and case.settings["mode"] == "inference"):
        return
    kind, c = case.precision.data, case.problem.c
    multiple = LOADED_BITS // BITS[kind]
    if c % multiple:
        raise Unsupported(f"cuDNN's batch normalization in {kind} needs c to be a multiple of {multiple}, found {c}")


def prepared(arrays: Arrays) -> Arrays:
    """`reciprocal`, of the deviation that rows or channels are divided by, if that is given."""
    import numpy as np

    squares = arrays.get("variance", arrays.get("mean_square"))
    if squares is None:
        return {}
    return {"reciprocal": ((squares.astype(np.float64) + EPSILON) ** -0.5).astype(np.float32)}


def operation_graph(gpu: Runtime, case: Case, arrays: Arrays) -> plans.OperationGraph:
    """The graph of this operation; `arrays` with those that are prepared."""
    from deepbench.core.precision import type_name

    graph = plans.OperationGraph(gpu)
    if case.direction == "forward" and "reciprocal" in arrays:
        _with_given_statistics(graph, case, arrays)
        return graph
    kind, mode, attributes = OPERATIONS[case.direction]
    rank = max(4, arrays["x"].ndim)
    tensors = {}
    for name in sorted(attributes.keys() & arrays.keys()):
        sizes, strides = _sizes_and_strides(case, name, arrays[name], rank)
        tensors[attributes[name]] = graph.tensor(name, type_name(arrays[name].dtype), sizes, strides)
    values = [(mode, cudnn.NORM_MODE, MODES[case.op])]
    if case.direction == "forward":
        phase = cudnn.TRAINING if "batch_mean" in arrays else cudnn.INFERENCE
        values.append((FORWARD_PHASE, cudnn.NORM_PHASE, phase))
        tensors[FORWARD_EPSILON] = graph.scalar(EPSILON, rank)
    graph.add(kind, None, None, tensors, values)
    return graph


def _with_given_statistics(graph: plans.OperationGraph, case: Case, arrays: Arrays) -> None:
    """(x - mean) · reciprocal · scale + shift: cuDNN has no operation for it.

    Images are matrices of channels and pixels, or one matrix of pixels and channels: engines for elements need numbers
    next to each other in the last axis.
    """
    p = case.problem
    pixels = p.d * p.h * p.w
    is_last = case.settings["layout"] == "nhwc"
    sizes, of_channel = ((1, p.n * pixels, p.c), (1, 1, p.c)) if is_last else ((p.n, p.c, pixels), (1, p.c, 1))
    y = graph.tensor("x", case.precision.data, sizes)
    for mode, name in ((cudnn.SUBTRACT, "mean"), (cudnn.MULTIPLY, "reciprocal"), (cudnn.MULTIPLY, "scale")):
        y = graph.pointwise(mode, y, graph.tensor(name, "f32", of_channel))
    shift = graph.tensor("shift", "f32", of_channel)
    graph.pointwise(cudnn.ADD, y, shift, to=graph.tensor("y", case.precision.data, sizes))


def _sizes_and_strides(case: Case, name: str, array: Array, rank: int) -> tuple[list[int], list[int]]:
    """As cuDNN lists them: of images with channels second. The rows of a matrix are images of one pixel."""
    ones = [1] * (rank - 2)
    if case.op == "batch_norm" and array.ndim > 1:
        return layouts.sizes_and_strides(case, array)
    if array.ndim > 1:
        return [*array.shape, *ones], [array.shape[1], 1, *ones]
    if case.op != "batch_norm" and name in ("mean", "reciprocal"):
        return [array.size, 1, *ones], [1, 1, *ones]
    return [1, array.size, *ones], [array.size, 1, *ones]
