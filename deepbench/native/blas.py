"""Fortran's GEMM interface, which MKL and OpenBLAS share: column-major, every argument by address.

    SGEMM(TRANSA, TRANSB, M, N, K, ALPHA, A, LDA, B, LDB, BETA, C, LDC)

Integers are passed as 64-bit. A build with 32-bit integers reads the low half of the same bytes, which is the same
number on little-endian machines (all that these libraries run on).
"""

from __future__ import annotations

import ctypes
from typing import Any

from deepbench.core.kernel import Call, NativeFunction
from deepbench.core.op import Arrays


def letter(transposed: int) -> bytes:
    """`N` or `T`."""
    return b"T" if transposed else b"N"


def sizes(problem: Any) -> list[ctypes.c_int64]:
    """m, n, k, to be passed by address."""
    return [ctypes.c_int64(x) for x in (problem.m, problem.n, problem.k)]


def leading_dimensions(problem: Any) -> list[ctypes.c_int64]:
    """lda, ldb, ldc of matrices without gaps, to be passed by address."""
    p = problem
    return [ctypes.c_int64(x) for x in (p.k if p.a_t else p.m, p.n if p.b_t else p.k, p.m)]


def beta_of(settings: dict[str, str]) -> ctypes.c_float:
    """The setting `beta`, to be passed by address."""
    return ctypes.c_float(float(settings["beta"]))


def gemm_call(function: NativeFunction, problem: Any, settings: dict[str, str], arrays: Arrays) -> Call:
    """A call of SGEMM or of a bf16 or f16 variant with the same arguments; alpha = 1."""
    lda, ldb, ldc = leading_dimensions(problem)
    return Call(
        function, letter(problem.a_t), letter(problem.b_t), *sizes(problem), ctypes.c_float(1.0), arrays["a"], lda,
        arrays["b"], ldb, beta_of(settings), arrays["c"], ldc,
    )  # fmt: skip
