"""ggml, the library of llama.cpp: products with weights in its own formats of 1 to 8 bits, and of floats.

PyPI has it as `libggml-python`. Its functions and types change every month, so only versions that were tried are
loaded. A kernel is a graph with one product (or with an addition behind it), and a call computes the graph. Weights are
in the layout that the CPU backend offers for their format, as in llama.cpp, and in files' order where it offers none.
Activations are rounded to the type in the note `activations`, in each call.
"""

from __future__ import annotations

import ctypes
import os
from time import perf_counter
from typing import Any

from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.errors import LibraryError, Unavailable, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Array, Arrays
from deepbench.core.precision import type_name
from deepbench.native import library

FILES = ("libggml/lib*/libggml-cpu.so*", "libggml-cpu.so*")
TRIED = ("0.20.2",)
REMEDY = "pip install libggml-python==0.20.2.post1, or name a libggml-cpu.so in DEEPBENCH_GGML_PATH"

# enum ggml_type
TYPES = {
    **{"f32": 0, "f16": 1, "q8_0": 8, "q2_k": 10, "q4_k": 12, "q6_k": 14, "bf16": 30, "tq1_0": 34, "tq2_0": 35},
    **{"mxfp4": 39, "q1_0": 41, "q2_0": 42},
}

# What `ggml_cpu_has_*` can be asked: the instructions that a build uses.
INSTRUCTIONS = (
    *("sse3", "ssse3", "avx", "avx2", "avx_vnni", "bmi2", "f16c", "fma", "avx512", "avx512_vbmi", "avx512_vnni"),
    *("avx512_bf16", "amx_int8", "neon", "arm_fma", "fp16_va", "dotprod", "matmul_int8", "sve", "sme", "riscv_v"),
    *("vsx", "vxe", "llamafile"),
)

# Names of functions and their types: p pointer, s text, z size_t, n int64_t, i int, b bool; the result comes first, v
# is none.
SIGNATURES = {
    "version": "s",
    "type_name": "si",
    "blck_size": "ni",
    "type_size": "zi",
    "tensor_overhead": "z",
    "graph_overhead_custom": "zzb",
    "new_tensor_2d": "ppinn",
    "mul_mat": "pppp",
    "add_inplace": "pppp",
    "new_graph_custom": "ppzb",
    "build_forward_expand": "vpp",
    "threadpool_params_init": "vpi",
    "threadpool_new": "pp",
    "get_type_traits_cpu": "pi",
    "backend_cpu_init": "p",
    "backend_cpu_reg": "p",
    "backend_cpu_set_n_threads": "vpi",
    "backend_cpu_set_threadpool": "vpp",
    "backend_cpu_buffer_from_ptr": "ppz",
    "backend_tensor_alloc": "ippp",
    "backend_tensor_set": "vppzz",
    "backend_reg_dev_get": "ppz",
    "backend_reg_get_proc_address": "pps",
    "backend_dev_supports_op": "bpp",
    "backend_buft_name": "sp",
    "backend_buft_get_alloc_size": "zpp",
    "backend_buft_alloc_buffer": "ppz",
    "backend_buffer_get_base": "pp",
    "backend_buffer_free": "vp",
}
C_TYPES: dict[str, Any] = {
    **{"p": ctypes.c_void_p, "s": ctypes.c_char_p, "z": ctypes.c_size_t, "n": ctypes.c_int64, "i": ctypes.c_int},
    **{"b": ctypes.c_bool, "v": None},
}

# More than its structure has; only ggml reads and writes it.
POOL_PARAMETERS_BYTES = 4096

# Room for tensors and operations in a graph.
NODES = 8


class InitParams(ctypes.Structure):
    """struct ggml_init_params."""

    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


class TypeTraits(ctypes.Structure):
    """struct ggml_type_traits_cpu."""

    _fields_ = (
        *(("from_float", ctypes.c_void_p), ("vec_dot", ctypes.c_void_p), ("vec_dot_type", ctypes.c_int)),
        ("nrows", ctypes.c_int64),
    )


class GGML(Backend):
    name = "ggml"
    title = "ggml"
    default = False  # its builds are for many processors, so others say more about floats on this one
    loads_at_once = True
    path_variable = "DEEPBENCH_GGML_PATH"
    tuning_variables = ("GGML_*",)
    backend: ctypes.c_void_p | None = None

    def open(self) -> dict[str, Any]:
        self.library = library.load(
            self.title,
            self.path_variable,
            FILES,
            needs=("ggml_backend_cpu_init",),
            remedy=REMEDY,
        )
        version = self.check_version()
        if self.backend is None:
            self.backend = ctypes.c_void_p(self.call("backend_cpu_init"))
            threads = library.threads_of_case()
            parameters = ctypes.create_string_buffer(POOL_PARAMETERS_BYTES)
            self.call("threadpool_params_init", parameters, threads)
            before = len(os.listdir("/proc/self/task"))  # without a pool, each call would start threads
            pool = self.call("threadpool_new", parameters)
            self.threads = 1 + len(os.listdir("/proc/self/task")) - before  # the thread that calls is one of them
            self.call("backend_cpu_set_n_threads", self.backend, threads)
            self.call("backend_cpu_set_threadpool", self.backend, pool)
        self.processor = ctypes.c_void_p(self.call("backend_reg_dev_get", self.call("backend_cpu_reg"), 0))
        self.instructions = [name for name in INSTRUCTIONS if self._has(name)]
        return {
            "name": self.title,
            "version": version,
            "path": library.path_of(self.library, "ggml_backend_cpu_init"),
            "cpu_kernels": " ".join(self.instructions),
            "threading": "own threads",
        }

    def threads_in_use(self) -> int | None:
        return self.threads

    @kernel("weight_only_gemm", precisions=("f32",), rare_settings=("format",))
    def weight_only_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """A product with weights in one of its formats."""
        from deepbench.ops.weight_only_gemm.formats import FORMATS

        p, kind = case.problem, case.settings["format"]
        if kind not in TYPES:
            formats = ", ".join(FORMATS)
            raise Unsupported(f"ggml has formats of its own for quantized weights; choose format={formats}")
        graph = GgmlGraph(self)
        product = graph.product(kind, (p.m, p.n, p.k), arrays["a"], arrays["b"], packed=None)
        graph.place(product, arrays["c"])
        return graph.kernel(product, arrays)

    @kernel("gemm", precisions=("f32", "bf16", "f16"))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """Rows of A times rows of B. With beta = 1 a second operation of the graph adds to C."""
        from deepbench.core.operands import full, poison

        p, kind, c = case.problem, case.precision.data, arrays["c"]
        a_in_rows, b_in_rows = p.a_t or 1 in (p.m, p.k), not p.b_t or 1 in (p.n, p.k)
        if not a_in_rows or not b_in_rows:
            raise Unsupported("ggml multiplies rows of A with rows of B; choose a_t=1 b_t=0")
        if case.operation.result_type(case) != "f32":
            raise Unsupported("ggml's products store f32; choose result=wide")
        if kind == "f16" and "fp16_va" in self.instructions:
            raise Unsupported("this build of ggml sums products of f16 in f16 on this CPU")
        graph = GgmlGraph(self)
        product = graph.product(
            kind, (p.m, p.n, p.k), arrays["a"], arrays["b"], packed=case.settings["weights"] == "packed"
        )
        if case.settings["beta"] == "0":
            graph.place(product, c)
            return graph.kernel(product, arrays)
        between = full(c.shape, "f32", 0.0)
        graph.place(product, between)
        result = self.call("add_inplace", graph.context, graph.tensor(c, "f32", c.shape), product)
        made = graph.kernel(result, arrays)
        made.load = lambda: poison(between)
        return made

    def call(self, name: str, *arguments: Any) -> Any:
        """Call `ggml_` and this name."""
        function = getattr(self.library, f"ggml_{name}")
        function.restype, *function.argtypes = (C_TYPES[letter] for letter in tuple(SIGNATURES[name]))
        return function(*arguments)

    def check_version(self) -> str:
        """The version; `Unavailable` if it was not tried, or if its types differ from ours."""
        from deepbench.ops.weight_only_gemm.formats import FORMATS

        found = library.first_symbol(self.library, ("ggml_version",))
        version = "one without a version" if found is None else self.call("version").decode(errors="replace")
        if version not in TRIED:
            reason = f"the functions of ggml change every month: {' and '.join(TRIED)} was tried, found {version}"
            raise Unavailable(reason, REMEDY)
        for name, number in TYPES.items():
            wanted: tuple[Any, ...] = (name,)
            got: tuple[Any, ...] = (self.call("type_name", number).decode().lower(),)
            if name in FORMATS:
                wanted = (*wanted, FORMATS[name].block, FORMATS[name].block_bytes)
                got = (*got, self.call("blck_size", number), self.call("type_size", number))
            if got != wanted:
                raise Unavailable(f"type {number} of this ggml is {got}, wanted {wanted}", REMEDY)
        return str(version)

    def _has(self, instructions: str) -> bool:
        has = library.first_symbol(self.library, (f"ggml_cpu_has_{instructions}",))
        return has is not None and bool(has())

    def layouts(self) -> list[ctypes.c_void_p]:
        """Types of buffers in which weights have another layout, such as `CPU_REPACK`."""
        registry = self.call("backend_cpu_reg")
        get = self.call("backend_reg_get_proc_address", registry, b"ggml_backend_dev_get_extra_bufts")
        if not get:
            return []
        listed = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(get)(self.processor)
        found: list[ctypes.c_void_p] = []
        while listed and listed[len(found)]:
            found.append(ctypes.c_void_p(listed[len(found)]))
        return found


class GgmlGraph:
    """Tensors on our arrays, and operations on them."""

    def __init__(self, ggml: GGML) -> None:
        self.ggml = ggml
        size = NODES * ggml.call("tensor_overhead") + ggml.call("graph_overhead_custom", NODES, False)
        init = ggml.library.ggml_init
        init.argtypes, init.restype = (InitParams,), ctypes.c_void_p
        self.context = ctypes.c_void_p(init(InitParams(2 * size, None, True)))
        self.keep: list[object] = []
        self.notes: dict[str, Any] = {}

    def tensor(self, array: Array, kind: str, shape: tuple[int, int]) -> int:
        """A tensor of these rows and columns on the memory of an array."""
        tensor = self._new(kind, shape)
        self.place(tensor, array)
        return tensor

    def place(self, tensor: int, array: Array) -> None:
        """Let a tensor lie on the memory of an array."""
        address = ctypes.c_void_p(array.ctypes.data)
        buffer = self.ggml.call("backend_cpu_buffer_from_ptr", address, array.nbytes)
        self._placed(self.ggml.call("backend_tensor_alloc", buffer, tensor, address))
        self.keep.append(array)

    def product(self, kind: str, sizes: tuple[int, int, int], a: Array, b: Array, packed: bool | None) -> int:
        """B·Aᵀ of rows with k numbers, without memory for the result.

        Weights are packed into a layout of ggml's own where it has one for them; not if `packed` is False, and if it is
        True, `Unsupported` where it has none.
        """
        m, n, k = sizes
        data = self.tensor(b, type_name(b.dtype), (n, k))
        for layout in self.ggml.layouts() if packed is not False else []:
            weights = self._new(kind, (m, k))
            room = self.ggml.call("backend_buft_get_alloc_size", layout, weights)
            buffer = self.ggml.call("backend_buft_alloc_buffer", layout, room)
            base = self.ggml.call("backend_buffer_get_base", buffer)
            self._placed(self.ggml.call("backend_tensor_alloc", buffer, weights, base))
            product = self.ggml.call("mul_mat", self.context, weights, data)
            if self.ggml.call("backend_dev_supports_op", self.ggml.processor, product):
                start = perf_counter()
                self.ggml.call("backend_tensor_set", weights, ctypes.c_void_p(a.ctypes.data), 0, a.nbytes)
                name = self.ggml.call("backend_buft_name", layout).decode()
                self.notes |= {"pack_s": perf_counter() - start, "converted_bytes": room}
                return self._named(product, kind, f"mul_mat, {name}")
            self.ggml.call("backend_buffer_free", buffer)
        if packed:
            raise Unsupported(f"this build of ggml has no packed layout for weights of {kind}; choose weights=plain")
        weights = self.tensor(a, kind, (m, k))
        return self._named(self.ggml.call("mul_mat", self.context, weights, data), kind, "mul_mat")

    def kernel(self, result: int, arrays: Arrays) -> Kernel:
        """The kernel that computes this tensor."""
        graph = ctypes.c_void_p(self.ggml.call("new_graph_custom", self.context, NODES, False))
        self.ggml.call("build_forward_expand", graph, result)
        call = Call(self.ggml.library.ggml_backend_graph_compute, self.ggml.backend, graph, status=True)
        return Kernel(calls=(call,), keep=(arrays, self.keep), notes=self.notes)

    def _named(self, product: int, kind: str, implementation: str) -> int:
        traits = TypeTraits.from_address(self.ggml.call("get_type_traits_cpu", TYPES[kind]))
        activations = self.ggml.call("type_name", traits.vec_dot_type).decode().lower()
        self.notes |= {"implementation": implementation, "activations": activations}
        return product

    def _new(self, kind: str, shape: tuple[int, int]) -> int:
        rows, columns = shape
        return int(self.ggml.call("new_tensor_2d", self.context, TYPES[kind], columns, rows))

    def _placed(self, status: int) -> None:
        if status:
            raise LibraryError("ggml", "ggml_backend_tensor_alloc", status, "the tensor was not placed")


BACKEND = GGML()
