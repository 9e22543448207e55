"""Fortran's GEMM interface, which MKL and OpenBLAS share: column-major, every argument by address.

    SGEMM(TRANSA, TRANSB, M, N, K, ALPHA, A, LDA, B, LDB, BETA, C, LDC)

Integers are handed over as 64-bit; a build with 32-bit integers reads the low half of the same bytes, which is the
number itself on little-endian machines (all that these libraries run on).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from deepbench.core.kernel import Call, NativeFunction


def integer(value: int) -> ctypes.c_int64:
    """An integer to be passed by address."""
    return ctypes.c_int64(value)


def letter(transposed: int) -> bytes:
    """`N` or `T`."""
    return b"T" if transposed else b"N"


def leading_dimensions(problem: Any) -> tuple[int, int, int]:
    """lda, ldb, ldc of a `Gemm` problem whose matrices are stored without gaps."""
    return (
        problem.k if problem.a_t else problem.m,
        problem.n if problem.b_t else problem.k,
        problem.m,
    )


def beta_of(settings: dict[str, str]) -> ctypes.c_float:
    """The setting `beta` as a float to be passed by address."""
    return ctypes.c_float(float(settings["beta"]))


def gemm_call(
    function: NativeFunction,
    problem: Any,
    settings: dict[str, str],
    arrays: dict[str, np.ndarray[Any, Any]],
) -> Call:
    """The thirteen arguments of SGEMM and of its bf16 and f16 sisters; alpha = 1."""
    lda, ldb, ldc = leading_dimensions(problem)
    return Call(
        function,
        letter(problem.a_t),
        letter(problem.b_t),
        integer(problem.m),
        integer(problem.n),
        integer(problem.k),
        ctypes.c_float(1.0),
        arrays["a"],
        integer(lda),
        arrays["b"],
        integer(ldb),
        beta_of(settings),
        arrays["c"],
        integer(ldc),
    )
