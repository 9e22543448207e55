"""Fortran's GEMM interface, which MKL and OpenBLAS share: column-major, every argument by address.

    SGEMM(TRANSA, TRANSB, M, N, K, ALPHA, A, LDA, B, LDB, BETA, C, LDC)

Integers are passed as 64-bit. A build with 32-bit integers reads the low half of the same bytes, which is the same
number on little-endian machines (all that these libraries run on).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from deepbench.core.kernel import Call, NativeFunction
from deepbench.core.op import Arrays
from deepbench.core.product import Product


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


def product_call(function: NativeFunction, product: Product) -> Call:
    """A call of SGEMM or a variant for one of many products: alpha = 1, beta = 0."""
    transposed, (m, n, k, lda, ldb) = layout(product)
    return Call(
        function, letter(transposed[0]), letter(transposed[1]), *map(ctypes.c_int64, (m, n, k)), ctypes.c_float(1.0),
        product.left, ctypes.c_int64(lda), product.right, ctypes.c_int64(ldb), ctypes.c_float(0.0), product.c,
        ctypes.c_int64(m),
    )  # fmt: skip


def strided_call(function: NativeFunction, products: Sequence[Product], arrays: Arrays) -> Call:
    """A call of SGEMM_BATCH_STRIDED for products of equal size without gaps between them: alpha = 1, beta = 0."""
    transposed, (m, n, k, lda, ldb) = layout(products[0])
    return Call(
        function, letter(transposed[0]), letter(transposed[1]), *map(ctypes.c_int64, (m, n, k)), ctypes.c_float(1.0),
        arrays["a"], ctypes.c_int64(lda), ctypes.c_int64(m * k), arrays["b"], ctypes.c_int64(ldb),
        ctypes.c_int64(k * n), ctypes.c_float(0.0), arrays["c"], ctypes.c_int64(m), ctypes.c_int64(m * n),
        ctypes.c_int64(len(products)),
    )  # fmt: skip


def batch_call(function: NativeFunction, products: Sequence[Product]) -> Call:
    """A call of SGEMM_BATCH with a group of one product for each: alpha = 1, beta = 0.

    It takes arrays of integers, so here their width matters: names with `64` take 64 bits.
    """
    count, layouts = len(products), [layout(p) for p in products]
    integer = ctypes.c_int64 if "64" in function.__name__ else ctypes.c_int32
    m, n, k, lda, ldb = ((integer * count)(*column) for column in zip(*(sizes for _, sizes in layouts), strict=True))
    matrices = zip(*((p.left, p.right, p.c) for p in products), strict=True)
    a, b, c = ((ctypes.c_void_p * count)(*(x.ctypes.data for x in column)) for column in matrices)
    letters = [b"".join(letter(transposed[i]) for transposed, _ in layouts) for i in (0, 1)]
    alpha, beta = (ctypes.c_float * count)(*[1.0] * count), (ctypes.c_float * count)()
    each = (integer * count)(*[1] * count)
    return Call(function, *letters, m, n, k, alpha, a, lda, b, ldb, beta, c, m, integer(count), each)


def layout(product: Product) -> tuple[tuple[int, int], tuple[int, int, int, int, int]]:
    """Whether A and B are stored transposed, and m, n, k, lda, ldb. A vector may count as either."""
    (n, m), k = product.c.shape, product.right.shape[1]
    views: tuple[Any, Any] = product.left, product.right
    a_t, b_t = (int(not view.flags.c_contiguous) for view in views)
    return (a_t, b_t), (m, n, k, max(1, k if a_t else m), max(1, n if b_t else k))  # k may be 0
