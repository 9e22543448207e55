"""Intel oneMKL through its single dynamic library: GEMM (plain, packed, batched), sparse products, vector functions.

GEMM uses Fortran names with all arguments by address. `sgemm_64` and the like take 64-bit integers; releases without
them read the same bytes, see `native/blas.py`.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, ClassVar

from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.errors import LibraryError, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Arrays
from deepbench.core.precision import SIXTEEN_BITS
from deepbench.core.product import Product, products_of
from deepbench.native import blas, library
from deepbench.ops.gemm import Gemm

ROUTINES = {"f32": "sgemm", "bf16": "gemm_bf16bf16f32", "f16": "gemm_f16f16f32", "i8u8": "gemm_s8u8s32"}

# mkl_spblas.h
SPARSE_NON_TRANSPOSE = 10
SPARSE_INDEX_BASE_ZERO = 0
SPARSE_ROW_MAJOR, SPARSE_COLUMN_MAJOR = 101, 102
SPARSE_NOT_SUPPORTED = 6
SPARSE_STATUS = {
    1: "not initialized",
    2: "allocation failed",
    3: "invalid value",
    4: "execution failed",
    5: "internal error",
}
# mkl_vml_functions.h: for each kind of the operation `elementwise` the functions with their arrays. gelu(a) = a · Φ(a),
# silu(a) = a / (1 + exp(-a)). Vectors of `CONSTANTS` and one for `scratch` are added to those of the case.
ONE_PLUS_EXP = (("vsSub", "zeros", "a", "y"), ("vsExp", "y", "y"), ("vsAdd", "y", "ones", "y"))
CONSTANTS = {"zeros": 0.0, "ones": 1.0, "sixes": 6.0}
VECTOR_FUNCTIONS: dict[str, dict[str, tuple[tuple[str, ...], ...]]] = {
    "forward": {
        "add": (("vsAdd", "a", "b", "y"),),
        "multiply": (("vsMul", "a", "b", "y"),),
        "multiply_add": (("vsMul", "a", "b", "y"), ("vsAdd", "y", "c", "y")),
        "tanh": (("vsTanh", "a", "y"),),
        "gelu": (("vsCdfNorm", "a", "y"), ("vsMul", "a", "y", "y")),
        "geglu": (("vsCdfNorm", "a", "y"), ("vsMul", "a", "y", "y"), ("vsMul", "y", "b", "y")),
        "relu": (("vsFmax", "a", "zeros", "y"),),
        "relu6": (("vsFmax", "a", "zeros", "y"), ("vsFmin", "y", "sixes", "y")),
        "add_relu": (("vsAdd", "a", "b", "y"), ("vsFmax", "y", "zeros", "y")),
        "elu": (
            *(("vsFmin", "a", "zeros", "scratch"), ("vsExpm1", "scratch", "scratch")),
            *(("vsFmax", "a", "zeros", "y"), ("vsAdd", "y", "scratch", "y")),
        ),
        "sigmoid": (*ONE_PLUS_EXP, ("vsInv", "y", "y")),
        "silu": (*ONE_PLUS_EXP, ("vsDiv", "a", "y", "y")),
        "swiglu": (*ONE_PLUS_EXP, ("vsDiv", "a", "y", "y"), ("vsMul", "y", "b", "y")),
    },
    "backward": {
        "multiply": (("vsMul", "dy", "b", "da"), ("vsMul", "dy", "a", "db")),
        "multiply_add": (("vsMul", "dy", "b", "da"), ("vsMul", "dy", "a", "db")),
        "elu": (("vsFmin", "a", "zeros", "da"), ("vsExp", "da", "da"), ("vsMul", "da", "dy", "da")),
        "sigmoid": (("vsSub", "ones", "result", "da"), ("vsMul", "da", "result", "da"), ("vsMul", "da", "dy", "da")),
        "tanh": (("vsSqr", "result", "da"), ("vsSub", "ones", "da", "da"), ("vsMul", "da", "dy", "da")),
    },
}
# The number of products that the inspector is told to expect: many, as in a server.
EXPECTED_CALLS = 1000


class MatrixDescr(ctypes.Structure):
    """struct matrix_descr: a general matrix. MKL ignores the fields about triangles and diagonals."""

    _fields_ = (("type", ctypes.c_int), ("mode", ctypes.c_int), ("diag", ctypes.c_int))

    def __init__(self) -> None:
        super().__init__(20, 40, 50)  # SPARSE_MATRIX_TYPE_GENERAL, SPARSE_FILL_MODE_LOWER, SPARSE_DIAG_NON_UNIT

    @property
    def words(self) -> tuple[int, int]:
        """The two registers that pass it by value (System V ABI on x86-64, the only one MKL runs on)."""
        return self.type | self.mode << 32, self.diag


class MKL(Backend):
    name = "mkl"
    title = "MKL"
    loads_at_once = True
    platforms = ("linux-x86_64",)
    path_variable = "DEEPBENCH_MKL_PATH"
    package = "mkl"
    thread_variables = ("MKL_NUM_THREADS",)
    override_variables = ("MKL_DOMAIN_NUM_THREADS", "MKL_THREADING_LAYER", "MKL_INTERFACE_LAYER")
    fixed_variables: ClassVar[Mapping[str, str]] = {"MKL_DYNAMIC": "FALSE"}
    tuning_variables = ("MKL_*",)

    def open(self) -> dict[str, Any]:
        self.library = library.load(
            self.title,
            self.path_variable,
            ("libmkl_rt.so*",),
            needs=("mkl_get_version_string",),
            remedy=library.remedy(
                "pip install mkl, or name a libmkl_rt.so in DEEPBENCH_MKL_PATH",
                "MKL is for x86-64 only; OpenBLAS has matrix products here: pip install scipy-openblas64",
            ),
        )
        buffer = ctypes.create_string_buffer(256)
        self.library.mkl_get_version_string(buffer, len(buffer))
        text = buffer.value.decode(errors="replace").strip()
        version = re.search(r"Version ([0-9][0-9.]*)", text)
        return {
            "name": self.title,
            "version": version[1] if version else text,
            "path": library.path_of(self.library, "mkl_get_version_string"),
            "build": text,
            "threading": "OpenMP",
        }

    def threads_in_use(self) -> int | None:
        return int(self.library.MKL_Get_Max_Threads())

    @kernel("gemm", precisions=("f32", "bf16", "f16", "i8u8"))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """With `i8u8`, A is s8, B is u8, sums are s32; the offsets of A, B and C are zero."""
        self._refuse_narrow(case)
        call, notes = self._product(case, case.problem, arrays, case.settings["beta"])
        return Kernel(calls=(call,), notes=notes)

    @kernel("batched_gemm", precisions=("f32", "bf16", "f16"))
    def batched_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`sgemm_batch_strided`; MKL has no batched GEMM for 16 bits, so there it is one call after another."""
        products = products_of(case, arrays)
        if case.precision.name != "f32":
            return self._one_by_one(case, products)
        call = blas.strided_call(self._function("sgemm_batch_strided"), products, arrays)
        return Kernel(calls=(call,), notes={"implementation": "sgemm_batch_strided"})

    @kernel("grouped_gemm", precisions=("f32", "bf16", "f16"), directions=("forward", "backward_weights"))
    def grouped_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`sgemm_batch` with a group for each expert; in 16 bits one call after another."""
        products = products_of(case, arrays)
        if case.precision.name != "f32":
            return self._one_by_one(case, products)
        call = blas.batch_call(self._function("sgemm_batch"), products)
        return Kernel(calls=(call,), keep=(arrays,), notes={"implementation": "sgemm_batch"})

    @kernel("linear", precisions=("f32",))
    def linear(self, case: Case, arrays: Arrays) -> Kernel:
        """Three steps: C = bias · 1ᵀ, C = A·B + C, and the activation by vector functions: Φ is `vsCdfNorm`."""
        from deepbench.core.operands import full

        p, activation, c = case.problem, case.settings["activation"], arrays["c"]
        if activation == "silu":
            raise Unsupported("MKL has no function for SiLU; choose activation=none, relu or gelu")
        calls, has_bias = [], case.settings["bias"] == "yes"
        call, notes = self._product(case, Gemm(p.m, p.n, p.k, a_t=1), arrays, "1" if has_bias else "0")
        if has_bias:
            outer = {"a": arrays["bias"], "b": full((p.n,), "f32", 1.0), "c": c}
            calls = [blas.gemm_call(self._function("sgemm"), Gemm(p.m, p.n, 1), {"beta": "0"}, outer)]
        calls.append(call)
        if activation == "relu":
            calls.append(Call(self._function("vsFmax"), c.size, c, full(c.shape, "f32", 0.0), c))
        if activation == "gelu":
            phi = full(c.shape, "f32", 0.0)
            calls += [
                Call(self._function("vsCdfNorm"), c.size, c, phi),
                Call(self._function("vsMul"), c.size, c, phi, c),
            ]
        notes["implementation"] = ", ".join(call.function.__name__ for call in calls)
        return Kernel(calls=tuple(calls), notes=notes)

    def _refuse_narrow(self, case: Case) -> None:
        if case.settings["result"] == "narrow" and case.precision.name in SIXTEEN_BITS:
            raise Unsupported(f"MKL's {ROUTINES[case.precision.name]} stores f32; choose result=wide")

    def _one_by_one(self, case: Case, products: Sequence[Product]) -> Kernel:
        """A call for each product."""
        self._refuse_narrow(case)
        routine = ROUTINES[case.precision.name]
        calls = tuple(blas.product_call(self._function(routine), product) for product in products)
        return Kernel(calls=calls, notes={"implementation": f"{routine}, {len(calls)} calls"})

    def _product(self, case: Case, p: Any, arrays: Arrays, beta: str) -> tuple[Call, dict[str, Any]]:
        """The call for one product, with plain or packed weights, and notes."""
        kind, routine = case.precision.name, ROUTINES[case.precision.name]
        a, a_letter, alpha, notes = arrays["a"], blas.letter(p.a_t), [ctypes.c_float(1.0)], dict[str, Any]()
        if case.settings["weights"] == "packed":
            in_pack, alpha = (alpha, []) if kind == "f32" else ([], alpha)  # only SGEMM applies alpha when it packs
            a, notes = self._pack(routine, p, a, in_pack)
            a_letter, routine = b"P", f"{routine}_compute"
        # "F": one offset for all of C.
        one_offset, zero, zeros = ([b"F"], [ctypes.c_int8(0)], [ctypes.c_int32(0)]) if kind == "i8u8" else ([], [], [])
        lda, ldb, ldc = blas.leading_dimensions(p)
        call = Call(
            self._function(routine), a_letter, blas.letter(p.b_t), *one_offset, *blas.sizes(p), *alpha, a, lda, *zero,
            arrays["b"], ldb, *zero, blas.beta_of({"beta": beta}), arrays["c"], ldc, *zeros,
        )  # fmt: skip
        return call, {"implementation": routine, **notes}

    @kernel("sparse_gemm", precisions=("f32",))
    def sparse_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """Inspector-executor interface: the inspector analyses A for this shape before timing starts."""
        p = case.problem
        matrix = ctypes.c_void_p()
        starts = arrays["row_starts"].ctypes.data
        self._sparse(
            "create_csr", ctypes.byref(matrix), SPARSE_INDEX_BASE_ZERO, p.m, p.k, ctypes.c_void_p(starts),
            ctypes.c_void_p(starts + 4), ctypes.c_void_p(arrays["columns"].ctypes.data),
            ctypes.c_void_p(arrays["values"].ctypes.data), prefix="mkl_sparse_s",
        )  # fmt: skip
        by_row = case.settings["order"] == "row"
        order, ldb, ldc = (SPARSE_ROW_MAJOR, p.n, p.n) if by_row else (SPARSE_COLUMN_MAJOR, p.k, p.m)
        start = perf_counter()
        if p.n == 1:
            self._sparse("set_mv_hint", matrix, SPARSE_NON_TRANSPOSE, MatrixDescr(), EXPECTED_CALLS)
        else:
            self._sparse("set_mm_hint", matrix, SPARSE_NON_TRANSPOSE, MatrixDescr(), order, p.n, EXPECTED_CALLS)
        self._sparse("optimize", matrix)
        notes: dict[str, Any] = {"optimize_s": perf_counter() - start}
        beta, b, c = float(case.settings["beta"]), arrays["b"], arrays["c"]
        arguments: list[Any] = [SPARSE_NON_TRANSPOSE, 1.0, matrix, *MatrixDescr().words]
        if p.n == 1:
            notes["implementation"], rest = "mkl_sparse_s_mv", [b, beta, c]
        else:
            notes["implementation"], rest = "mkl_sparse_s_mm", [order, b, p.n, ldb, beta, c, ldc]
        call = Call(self.library[notes["implementation"]], *arguments, *rest, status=True)
        return Kernel(calls=(call,), keep=(arrays,), notes=notes)

    @kernel("elementwise", precisions=("f32",), directions=("forward", "backward"))
    def elementwise(self, case: Case, arrays: Arrays) -> Kernel:
        """Vector functions, in their most accurate mode (the default), one after the other where one is not enough."""
        from deepbench.core.operands import full

        steps = VECTOR_FUNCTIONS[case.direction].get(case.problem.kind)
        if steps is None:
            raise Unsupported(
                f"MKL has no vector functions for {case.problem.kind} {case.direction} without other steps"
            )
        needed = {operand for _, *operands in steps for operand in operands} - arrays.keys()
        extra = {name: full((case.problem.n,), "f32", CONSTANTS.get(name, 0.0)) for name in needed}
        vectors = {**arrays, **extra}
        calls = [
            Call(self._function(name), case.problem.n, *(vectors[operand] for operand in operands))
            for name, *operands in steps
        ]
        notes = {
            "implementation": " and ".join(dict.fromkeys(name for name, *_ in steps)),
            "workspace_bytes": sum(array.nbytes for array in extra.values()),
        }
        return Kernel(calls=tuple(calls), notes=notes)

    @kernel("attention", precisions=("f32",), directions=("forward", "backward"))
    def attention(self, case: Case, arrays: Arrays) -> Kernel:
        """Batched SGEMM and our own softmax; MKL has no attention."""
        from deepbench.native import blas_attention

        return blas_attention.prepare(self._function("cblas_sgemm_batch"), case, arrays)

    def _sparse(self, name: str, *arguments: Any, prefix: str = "mkl_sparse") -> None:
        status = self.library[f"{prefix}_{name}"](*arguments)
        if status == SPARSE_NOT_SUPPORTED:
            raise Unsupported(f"MKL: {prefix}_{name} does not support this")
        if status:
            raise LibraryError(self.title, f"{prefix}_{name}", status, SPARSE_STATUS.get(status, "unknown status"))

    def _pack(self, routine: str, p: Any, a: Any, alpha: list[Any]) -> tuple[Any, dict[str, Any]]:
        """A in MKL's own format; and the seconds and bytes of packing, for the notes."""
        from deepbench.core.operands import empty

        sizes = blas.sizes(p)
        get_size = self._function(f"{routine}_pack_get_size")
        get_size.restype = ctypes.c_size_t
        packed_bytes = get_size(ctypes.c_char_p(b"A"), *map(ctypes.byref, sizes))
        packed = empty((packed_bytes,), "u8")
        lda = blas.leading_dimensions(p)[0]
        pack = Call(self._function(f"{routine}_pack"), b"A", blas.letter(p.a_t), *sizes, *alpha, a, lda, packed)
        start = perf_counter()
        pack.function(*map(ctypes.c_void_p, pack.words))
        return packed, {"pack_s": perf_counter() - start, "converted_bytes": packed_bytes}

    def _function(self, routine: str) -> Any:
        function = library.first_symbol(self.library, (f"{routine}_64", routine))
        if function is None:
            raise Unsupported(f"this MKL has no {routine}; newer releases have it")
        return function


BACKEND = MKL()
