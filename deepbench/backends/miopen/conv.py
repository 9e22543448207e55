"""Convolution in MIOpen: compiles and times every solution of the immediate mode, and measures the fastest."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.precision import type_name
from deepbench.native.gpu import layouts, miopen, timing
from deepbench.native.gpu.library import GpuBackend

# By direction: the common part of the functions' names, two inputs and the output.
OPERATIONS = {
    "forward": ("miopenConvolutionForward", ("w", "x", "y")),
    "backward_data": ("miopenConvolutionBackwardData", ("dy", "w", "dx")),
    "backward_weights": ("miopenConvolutionBackwardWeights", ("dy", "x", "dw")),
}
CROSS_CORRELATION = 0
# miopenConvolutionAttrib_t. By default MI200 multiplies in bf16 for gradients in f16; 0 makes it multiply in f16.
FP16_ALTERNATIVE = 0
# miopenConvAlgorithm_t
ALGORITHMS = {0: "GEMM", 1: "direct", 2: "FFT", 3: "Winograd", 5: "implicit GEMM"}


class Solution(ctypes.Structure):
    """miopenConvSolution_t."""

    _fields_ = (
        ("milliseconds", ctypes.c_float),
        ("workspace", ctypes.c_size_t),
        ("number", ctypes.c_uint64),
        ("algorithm", ctypes.c_int),
    )


def prepare(backend: GpuBackend, case: Case, arrays: Arrays) -> Kernel:
    """The kernel of one convolution in any direction."""
    layouts.refuse_conv(backend.title, case)
    if case.settings["result"] == "wide" and case.precision.name in ("bf16", "f16"):
        raise Unsupported("MIOpen stores 16-bit results in 16 bits; choose result=narrow")
    if case.settings["result"] == "narrow" and case.precision.name == "i8":
        raise Unsupported("MIOpen stores sums of 8-bit products in 32 bits; choose result=wide")
    gpu, buffers = backend.gpu, backend.buffers(case, arrays)
    function, names = OPERATIONS[case.direction]
    tensors = [
        miopen.tensor(backend, type_name(arrays[n].dtype), *layouts.sizes_and_strides(case, arrays[n])) for n in names
    ]
    first, second, output = tensors
    convolution = _convolution(backend, case)
    problem = first, second, convolution, output
    at = [buffers.address[n] for n in names]

    def candidate(solution: Solution) -> Kernel:
        layouts.refuse_workspace(solution.workspace)
        gpu.call(f"{function}CompileSolution", backend.handle, *problem, solution.number)
        workspace = gpu.workspace(max(solution.workspace, 1))[0]
        call = backend.prepare_call(
            f"{function}Immediate", backend.handle, first, at[0], second, at[1], convolution, output, at[2],
            workspace, solution.workspace, solution.number,
        )  # fmt: skip
        notes: dict[str, Any] = {
            "implementation": f"{function}Immediate {solution.number}",
            "algorithm": ALGORITHMS.get(solution.algorithm, f"number {solution.algorithm}"),
            "workspace_bytes": solution.workspace,
        }
        return backend.kernel([call], buffers, arrays, notes, tensors, convolution)

    candidates = {str(s.number): partial(candidate, s) for s in _solutions(backend, function, problem)}
    return backend.fastest(case, candidates, buffers.load, timing.COMPILED_SEARCH_MOST_S)[0]


def _convolution(backend: GpuBackend, case: Case) -> ctypes.c_void_p:
    p, gpu = case.problem, backend.gpu
    deep = slice(0 if p.dimensions == 3 else 1, None)
    convolution, row = backend.create("miopenCreateConvolutionDescriptor"), ctypes.c_int * p.dimensions
    pad, stride, dilation = (row(*values[deep]) for values in (p.pad, p.stride, p.dilation))
    sizes = p.dimensions, pad, stride, dilation
    gpu.call("miopenInitConvolutionNdDescriptor", convolution, *sizes, CROSS_CORRELATION)
    gpu.call("miopenSetConvolutionGroupCount", convolution, p.groups)
    gpu.call("miopenSetConvolutionAttribute", convolution, FP16_ALTERNATIVE, 0)
    return convolution


def _solutions(backend: GpuBackend, function: str, problem: tuple[ctypes.c_void_p, ...]) -> list[Solution]:
    """The solutions that the library proposes, probably fastest first."""
    count = ctypes.c_size_t()
    most = backend.number(f"{function}GetSolutionCount", backend.handle, *problem, kind=ctypes.c_size_t)
    table = (Solution * max(most, 1))()
    backend.gpu.call(f"{function}GetSolution", backend.handle, *problem, most, ctypes.byref(count), table)
    if not count.value:
        raise Unsupported("MIOpen has no solution for this")
    return [table[i] for i in range(count.value)]
