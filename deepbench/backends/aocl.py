"""AMD's libraries (AOCL): AOCL-BLAS, a BLIS with products in low precision, and AOCL-Sparse.

AOCL-BLAS has two interfaces for products. SGEMM has Fortran's, see `native/blas.py`. The functions `aocl_gemm_…` have
their own: row-major matrices, of which the second may be reordered (packed) ahead, and steps after the product, such
as a bias and an activation. Our C = A·B on column-major matrices is the row-major Cᵀ = Bᵀ·Aᵀ, so the weights A are
their second matrix. They return nothing: whatever they would refuse must be refused here. Their declarations are in
`addon/aocl_gemm` of https://github.com/amd/blis.

The Python package `aoclda` contains both libraries, under names with a hash.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.errors import LibraryError, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Array, Arrays
from deepbench.core.precision import type_name
from deepbench.core.product import Product, products_of
from deepbench.machine.describe import instructions
from deepbench.native import blas, library

# The instructions without which `aocl_gemm_…` prints a message and computes nothing, or converts bf16 to f32.
NEEDED_INSTRUCTIONS = {"f32": "avx2", "bf16": "avx512_bf16", "i8": "avx512_vnni", "i8u8": "avx512_vnni"}
# AOCL-BLAS uses AVX2 for these, on every CPU: `AOCL_ENABLE_INSTRUCTIONS=avx2` chooses one.
AVX2_KERNELS = ("zen", "zen2", "zen3")

# How many products of equal size are one group of a batch: for each, a call takes about 100 bytes of the stack.
MOST_IN_GROUP = 1024

# aocl_gemm_post_ops.h
ELTWISE, BIAS = 2, 3
ACTIVATIONS = {"relu": 0, "gelu": 3, "silu": 5}  # RELU, GELU_ERF, SWISH
STORAGE_TYPES = {"f32": 0, "bf16": 1}

# aoclsparse_types.h
SPARSE_NON_TRANSPOSE = 111
SPARSE_INDEX_BASE_ZERO = 0
SPARSE_ROW_MAJOR, SPARSE_COLUMN_MAJOR = 0, 1
SPARSE_STATUS = {
    1: "not implemented",
    2: "invalid pointer",
    3: "invalid size",
    4: "internal error",
    5: "invalid value",
    6: "invalid index value",
    10: "allocation failed",
    12: "invalid operation",
}
# The number of products that the library is told to expect: many, as in a server.
EXPECTED_CALLS = 1000


class EltwiseStep(ctypes.Structure):
    """aocl_post_op_eltwise, with the fields of its aocl_eltwise_algo."""

    _fields_ = (
        ("is_power_of_2", ctypes.c_bool),
        ("scale_factor", ctypes.c_void_p),
        ("scale_factor_len", ctypes.c_int64),
        ("alpha", ctypes.c_void_p),
        ("beta", ctypes.c_void_p),
        ("algo_type", ctypes.c_int),
    )


class BiasStep(ctypes.Structure):
    """aocl_post_op_bias."""

    _fields_ = (("bias", ctypes.c_void_p), ("stor_type", ctypes.c_int))


class StepsAfter(ctypes.Structure):
    """aocl_post_op: what follows a product, in the order of `seq_vector`."""

    _fields_ = (
        ("sum", ctypes.c_void_p),
        ("eltwise", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("matrix_add", ctypes.c_void_p),
        ("matrix_mul", ctypes.c_void_p),
        ("seq_length", ctypes.c_int64),
        ("seq_vector", ctypes.c_void_p),
        ("pre_ops", ctypes.c_void_p),
        ("post_op_grp", ctypes.c_void_p),
        ("num_eltwise", ctypes.c_int64),
    )


class AOCL(Backend):
    name = "aocl"
    title = "AOCL"
    loads_at_once = True
    platforms = ("linux-x86_64",)
    path_variable = "DEEPBENCH_AOCL_PATH"
    package = "aoclda"
    thread_variables = ("BLIS_NUM_THREADS", "AOCLSPARSE_NUM_THREADS")
    override_variables = ("BLIS_JC_NT", "BLIS_PC_NT", "BLIS_IC_NT", "BLIS_JR_NT", "BLIS_IR_NT")
    tuning_variables = ("BLIS_*", "AOCL_*", "AOCLSPARSE_*")

    def open(self) -> dict[str, Any]:
        self.library = library.load(
            self.title,
            self.path_variable,
            ("aoclda.libs/libblis-mt*.so*", "libblis-mt.so*"),
            needs=("sgemm_pack_",),  # which other builds of BLIS lack
            remedy=library.remedy(
                "pip install aoclda, or name AOCL's libblis-mt.so in DEEPBENCH_AOCL_PATH",
                "AOCL is for x86-64 only; OpenBLAS has matrix products here: pip install scipy-openblas64",
            ),
            beside=("libomp-*.so*",),
        )
        build = self._text("bli_info_get_version_str")
        version = re.search(r"[0-9]+(\.[0-9]+)+", build)
        return {
            "name": self.title,
            "version": version[0] if version else build,
            "path": library.path_of(self.library, "sgemm_"),
            "build": build,
            "cpu_kernels": self._kernels(),
            "threading": "OpenMP",
        }

    def threads_in_use(self) -> int | None:
        self.library.bli_thread_get_num_threads.restype = ctypes.c_int64
        return int(self.library.bli_thread_get_num_threads())

    @kernel("gemm", precisions=("f32", "bf16", "i8", "i8u8"))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """SGEMM, the interface that programs use, for plain f32; else `aocl_gemm_…`.

        That also for packed weights in f32: SGEMM_COMPUTE is slower than SGEMM in version 5.3.
        """
        p, is_packed = case.problem, case.settings["weights"] == "packed"
        if case.precision.name == "f32" and not is_packed:
            call = blas.gemm_call(self._function("sgemm_"), p, case.settings, arrays)
            return Kernel(calls=(call,), notes={"implementation": "sgemm"})
        a, b = arrays["a"], arrays["b"]
        product = Product(a.T if p.a_t else a, b.T if p.b_t else b, arrays["c"])
        return self._one(case, product, beta=int(case.settings["beta"]))

    @kernel("linear", precisions=("f32", "bf16"))
    def linear(self, case: Case, arrays: Arrays) -> Kernel:
        """One call: bias and activation are steps after the product."""
        (product,), steps, keep = products_of(case, arrays), StepsAfter(), list[Any]()
        sequence = []
        if case.settings["bias"] == "yes":
            bias = BiasStep(arrays["bias"].ctypes.data, STORAGE_TYPES[type_name(arrays["bias"].dtype)])
            steps.bias, sequence = ctypes.addressof(bias), [BIAS]
            keep.append(bias)
        if case.settings["activation"] != "none":
            one = ctypes.c_float(1.0)  # SWISH(z) = z / (1 + exp(-alpha·z))
            algorithm = ACTIVATIONS[case.settings["activation"]]
            eltwise = EltwiseStep(alpha=ctypes.addressof(one), algo_type=algorithm)
            steps.eltwise, sequence, steps.num_eltwise = ctypes.addressof(eltwise), [*sequence, ELTWISE], 1
            keep += [one, eltwise]
        order = (ctypes.c_int * len(sequence))(*sequence)
        steps.seq_length, steps.seq_vector = len(sequence), ctypes.addressof(order)
        return self._one(case, product, after=steps, keep=(*keep, order, arrays))

    @kernel("batched_gemm", precisions=("f32", "bf16", "i8", "i8u8"))
    def batched_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """Groups of so many products that each has two threads: with one thread each, the library uses one for all.

        Its `batch_lpgemm_…_get_threading` says so in version 5.2, and 5.3 is as slow.
        """
        products, size = products_of(case, arrays), MOST_IN_GROUP
        if case.threads > 1:
            size = max(1, min(size, case.threads // 2))
        return self._batch(case, [products[i : i + size] for i in range(0, len(products), size)], arrays)

    @kernel("grouped_gemm", precisions=("f32", "bf16", "i8", "i8u8"))
    @kernel("grouped_gemm", precisions=("f32", "bf16"), directions=("backward_weights",))
    def grouped_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """A group for each expert."""
        return self._batch(case, [[product] for product in products_of(case, arrays)], arrays)

    def _one(
        self,
        case: Case,
        product: Product,
        beta: int = 0,
        after: StepsAfter | None = None,
        keep: tuple[object, ...] = (),
    ) -> Kernel:
        """A call of `aocl_gemm_…` with plain or packed weights."""
        name, number = self._routine(case, product.c), _number_type(case)
        (a_t, b_t), (m, n, k, lda, ldb) = blas.layout(product)
        weights, order, notes = product.left, b"n", dict[str, Any]()
        if case.settings["weights"] == "packed":
            weights, notes = self._pack(case, product)
            a_t, lda, order = 0, m, b"r"
        call = Call(
            self._function(f"aocl_gemm_{name}"), *b"r", *_letter(b_t), *_letter(a_t), n, m, k, number(1),
            product.right, ldb, *b"n", weights, lda, *order, number(beta), product.c, m,
            after if after is not None else 0,
        )  # fmt: skip
        return Kernel(calls=(call,), keep=keep, notes={"implementation": f"aocl_gemm_{name}", **notes})

    def _batch(self, case: Case, groups: Sequence[Sequence[Product]], arrays: Arrays) -> Kernel:
        """A call of `aocl_batch_gemm_…`, and one that writes zeros for each product without terms, which it refuses.

        Within a group, sizes are equal.
        """
        name = self._routine(case, groups[0][0].c)
        calls = [Call(library.c_function("memset"), p.c, 0, p.c.nbytes) for (p, *_) in groups if not p.right.shape[1]]
        summed = [group for group in groups if group[0].right.shape[1]]
        if summed:
            number = ctypes.c_int32 if _number_type(case) is int else ctypes.c_float
            layouts, count = [blas.layout(group[0]) for group in summed], len(summed)
            a_letters, b_letters = (b"".join(_letter(stored[i]) for stored, _ in layouts) for i in (0, 1))
            columns = zip(*(sizes for _, sizes in layouts), strict=True)
            m, n, k, lda, ldb = ((ctypes.c_int64 * count)(*column) for column in columns)
            products = [product for group in summed for product in group]
            left, right, c = (
                (ctypes.c_void_p * len(products))(*(matrix.ctypes.data for matrix in matrices))
                for matrices in zip(*((p.left, p.right, p.c) for p in products), strict=True)
            )
            calls.append(
                Call(
                    self._function(f"aocl_batch_gemm_{name}"), b"r" * count, b_letters, a_letters, n, m, k,
                    (number * count)(*[1] * count), right, ldb, left, lda, (number * count)(), c, m, count,
                    (ctypes.c_int64 * count)(*map(len, summed)), b"n" * count, b"n" * count,
                    (ctypes.c_void_p * count)(),
                )
            )  # fmt: skip
        return Kernel(calls=tuple(calls), keep=(arrays,), notes={"implementation": f"aocl_batch_gemm_{name}"})

    def _pack(self, case: Case, product: Product) -> tuple[Array, dict[str, Any]]:
        """The weights in AOCL's own format; and the seconds and bytes of packing, for the notes."""
        from deepbench.core.operands import empty

        name = {"bf16": "bf16bf16f32of32"}.get(case.precision.name) or self._routine(case, product.c)
        (a_t, _), (m, _, k, lda, _) = blas.layout(product)
        get_size = self._function(f"aocl_get_reorder_buf_size_{name}")
        get_size.restype = ctypes.c_size_t
        how = (*b"r", *_letter(a_t), *b"B")
        packed_bytes = get_size(*how, ctypes.c_int64(k), ctypes.c_int64(m))
        packed = empty((packed_bytes,), "u8")
        pack = Call(self._function(f"aocl_reorder_{name}"), *how, product.left, packed, k, m, lda)
        start = perf_counter()
        pack.function(*map(ctypes.c_void_p, pack.words))
        return packed, {"pack_s": perf_counter() - start, "converted_bytes": packed_bytes}

    def _routine(self, case: Case, c: Array) -> str:
        """The end of the name of `aocl_gemm_…`; `Unsupported` where it would compute nothing, or in another type."""
        kind = case.precision.name
        needed = NEEDED_INSTRUCTIONS[kind]
        if needed not in instructions():
            raise Unsupported(f"AOCL multiplies {kind} with {needed} instructions only, which this CPU lacks")
        if kind != "f32" and self._kernels() in AVX2_KERNELS:
            raise Unsupported(
                f"AOCL was told to use AVX2 (kernels for {self._kernels()}), and multiplies {kind} with {needed} "
                "instructions only; unset AOCL_ENABLE_INSTRUCTIONS and BLIS_ARCH_TYPE"
            )
        narrow = "obf16" if type_name(c.dtype) == "bf16" else "of32"
        floats = {"f32": "f32f32f32of32", "bf16": f"bf16bf16f32{narrow}"}
        return {**floats, "i8": "s8s8s32os32", "i8u8": "u8s8s32os32"}[kind]

    @kernel("sparse_gemm", precisions=("f32",))
    def sparse_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """The library may analyse A before timing starts."""
        p, a = case.problem, arrays
        if p.n > 1 and case.settings["beta"] == "0":
            raise Unsupported("aoclsparse_scsrmm reads C with beta = 0 too, and keeps its NaN; choose beta=1")
        if max(p.m, p.k) * p.n >= 2**31:
            raise Unsupported("AOCL-Sparse counts the elements of B and C with 32 bits; choose smaller sizes")
        self.sparse = self._open_sparse()
        matrix, description = ctypes.c_void_p(), ctypes.c_void_p()
        self._sparse("create_mat_descr", ctypes.byref(description))
        self._sparse(
            "create_scsr", ctypes.byref(matrix), SPARSE_INDEX_BASE_ZERO, p.m, p.k, p.non_zeros,
            *(ctypes.c_void_p(a[name].ctypes.data) for name in ("row_starts", "columns", "values")),
        )  # fmt: skip
        start = perf_counter()
        hint = "set_mv_hint" if p.n == 1 else "set_mm_hint"
        self._sparse(hint, matrix, SPARSE_NON_TRANSPOSE, description, EXPECTED_CALLS)
        self._sparse("optimize", matrix)
        notes: dict[str, Any] = {"optimize_s": perf_counter() - start}
        beta, which = float(case.settings["beta"]), (matrix, description)
        if p.n == 1:
            one = ctypes.c_float(1.0)
            arguments = [SPARSE_NON_TRANSPOSE, one, *which, a["b"], ctypes.c_float(beta), a["c"]]
        else:
            by_row = case.settings["order"] == "row"
            order, ldb, ldc = (SPARSE_ROW_MAJOR, p.n, p.n) if by_row else (SPARSE_COLUMN_MAJOR, p.k, p.m)
            arguments = [SPARSE_NON_TRANSPOSE, 1.0, *which, order, a["b"], p.n, ldb, beta, a["c"], ldc]
        notes["implementation"] = "aoclsparse_smv" if p.n == 1 else "aoclsparse_scsrmm"
        call = Call(self.sparse[notes["implementation"]], *arguments, status=True)
        return Kernel(calls=(call,), keep=(arrays,), notes=notes)

    def _open_sparse(self) -> ctypes.CDLL:
        """AOCL-Sparse from the folder of AOCL-BLAS, with what it needs."""
        if self.library.bli_info_get_blas_int_type_size() != 32:
            raise Unsupported("this build of AOCL has indices of 64 bits, and those of the operation have 32")
        folder = os.path.dirname(library.path_of(self.library, "sgemm_") or "")
        library.load_all(folder, ("libaoclutils*.so*", "libflame*.so*"))
        found = library.load_all(folder, ("libaoclsparse*.so*",))
        if not found:
            raise Unsupported(f"this build of AOCL has no libaoclsparse.so in {folder}")
        return found[-1]

    def _sparse(self, name: str, *arguments: Any) -> None:
        status = self.sparse[f"aoclsparse_{name}"](*arguments)
        if status:
            raise LibraryError(self.title, f"aoclsparse_{name}", status, SPARSE_STATUS.get(status, "unknown status"))

    def _kernels(self) -> str:
        """The processor whose kernels AOCL-BLAS uses, such as `zen5`."""
        return self._text("bli_arch_string", self.library.bli_arch_query_id())

    def _text(self, routine: str, *arguments: Any) -> str:
        function = self._function(routine)
        function.restype = ctypes.c_char_p
        return str(function(*arguments).decode(errors="replace"))

    def _function(self, routine: str) -> Any:
        function = library.first_symbol(self.library, (routine,))
        if function is None:
            raise Unsupported(f"this build of AOCL-BLAS has no {routine}")
        return function


def _letter(transposed: int) -> bytes:
    return blas.letter(transposed).lower()


def _number_type(case: Case) -> type[int] | type[float]:
    """The type of alpha and beta."""
    return int if case.precision.accumulate == "s32" else float


BACKEND = AOCL()
