"""Convolution in MIOpen: every solution its immediate mode proposes is compiled and timed, the fastest measured."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import Unsupported
from deepbench.core.precision import type_name
from deepbench.native.gpu import layouts

if TYPE_CHECKING:
    from deepbench.backends.miopen import MIOpen
    from deepbench.core.case import Case
    from deepbench.core.kernel import Kernel
    from deepbench.core.op import Arrays

WORKSPACE_BYTES = layouts.CONV_WORKSPACE_BYTES
SEARCH_MOST_S = 30.0

# By direction: what the functions are called, and the two arrays that are read and the one that is written.
OPERATIONS = {
    "forward": ("miopenConvolutionForward", ("w", "x", "y")),
    "backward_data": ("miopenConvolutionBackwardData", ("dy", "w", "dx")),
    "backward_weights": ("miopenConvolutionBackwardWeights", ("dy", "x", "dw")),
}
CROSS_CORRELATION = 0
# miopenConvolutionAttrib_t. By default MI200 multiplies bf16 in the gradients of f16; 0 says that f16 is f16.
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


def prepare(backend: MIOpen, case: Case, arrays: Arrays) -> Kernel:
    """The kernel of one convolution in any direction."""
    layouts.refuse_conv(backend.title, case)
    if case.settings["result"] == "wide" and case.precision.name in ("bf16", "f16"):
        raise Unsupported("MIOpen stores 16-bit results in 16 bits; choose result=narrow")
    if case.settings["result"] == "narrow" and case.precision.name == "i8":
        raise Unsupported("MIOpen stores the sums of 8-bit products as they are; choose result=wide")
    gpu, buffers = backend.gpu, backend.buffers(case, arrays)
    function, names = OPERATIONS[case.direction]
    described = [backend.tensor(type_name(arrays[n].dtype), *layouts.sizes_and_strides(case, arrays[n])) for n in names]
    first, second, output = described
    convolution = _convolution(backend, case)
    problem = first, second, convolution, output
    at = [buffers.address[n] for n in names]
    solutions = _solutions(backend, function, problem)

    def candidate(solution: Solution) -> Kernel:
        if solution.workspace > WORKSPACE_BYTES:
            said = f"{solution.workspace} bytes of workspace, allowed are {WORKSPACE_BYTES}"
            raise Unsupported(f"the solution wants {said}")
        gpu.call(f"{function}CompileSolution", backend.miopen, *problem, solution.number)
        workspace = gpu.workspace(max(solution.workspace, 1))[0]
        call = backend.enqueue(
            f"{function}Immediate", backend.miopen, first, at[0], second, at[1], convolution, output, at[2],
            workspace, solution.workspace, solution.number,
        )  # fmt: skip
        notes: dict[str, Any] = {
            "implementation": f"{function}Immediate {solution.number}",
            "algorithm": ALGORITHMS.get(solution.algorithm, f"number {solution.algorithm}"),
            "workspace_bytes": solution.workspace,
        }
        return backend.kernel([call], buffers, arrays, notes, described, convolution)

    return backend.fastest(case, [partial(candidate, s) for s in solutions], buffers.load, SEARCH_MOST_S)[0]


def _convolution(backend: MIOpen, case: Case) -> ctypes.c_void_p:
    p, gpu = case.problem, backend.gpu
    deep = slice(0 if p.dimensions == 3 else 1, None)
    made, row = backend.handle("miopenCreateConvolutionDescriptor"), ctypes.c_int * p.dimensions
    pad, stride, dilation = (row(*values[deep]) for values in (p.pad, p.stride, p.dilation))
    gpu.call("miopenInitConvolutionNdDescriptor", made, p.dimensions, pad, stride, dilation, CROSS_CORRELATION)
    gpu.call("miopenSetConvolutionGroupCount", made, p.groups)
    gpu.call("miopenSetConvolutionAttribute", made, FP16_ALTERNATIVE, 0)
    return made


def _solutions(backend: MIOpen, function: str, problem: tuple[ctypes.c_void_p, ...]) -> list[Solution]:
    """What the library proposes, which it thinks fastest first."""
    count, found = ctypes.c_size_t(), ctypes.c_size_t()
    backend.gpu.call(f"{function}GetSolutionCount", backend.miopen, *problem, ctypes.byref(count))
    table = (Solution * max(count.value, 1))()
    backend.gpu.call(f"{function}GetSolution", backend.miopen, *problem, count.value, ctypes.byref(found), table)
    if not found.value:
        raise Unsupported("MIOpen has no solution for this")
    return [table[i] for i in range(found.value)]
