"""oneDNN through its C API: matmul with plain and with packed weights.

PyPI's newest `onednn` is built on SYCL, which adds 30 to 50 µs to each call, so such a build is used only when the
user names it. `onednn-cpu-gomp` (GNU OpenMP) is the default; a newer libdnnl on the system or in conda wins.
"""

from __future__ import annotations

import ctypes
import mmap
from time import perf_counter
from typing import TYPE_CHECKING, Any

from deepbench.backend import Backend, Call, Kernel, kernel
from deepbench.native import library

if TYPE_CHECKING:
    from deepbench.case import Case
    from deepbench.op import Arrays


def _no_sycl(path: str) -> bool:
    """Whether the file asks for no SYCL runtime."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"libsycl.so") < 0


class OneDNNBackend(Backend):
    name = "onednn"
    title = "oneDNN"

    def open(self) -> dict[str, Any]:
        from deepbench.native.onednn import RUNTIME, OneDNN

        loaded = library.load(
            self.title,
            "DEEPBENCH_ONEDNN_PATH",
            ("libdnnl.so*",),
            needs=("dnnl_matmul_primitive_desc_create",),  # not in version 2
            remedy="pip install onednn-cpu-gomp (x86-64), or name a libdnnl.so.3 in DEEPBENCH_ONEDNN_PATH",
            accept=_no_sycl,
        )
        self.dnn = OneDNN(loaded)
        version = loaded.dnnl_version().contents
        return {
            "name": self.title,
            "version": f"{version.major}.{version.minor}.{version.patch}",
            "path": library.path_of(loaded, "dnnl_version"),
            "build": (version.hash or b"").decode(errors="replace"),
            "cpu_kernels": f"isa {loaded.dnnl_get_effective_cpu_isa():#x}",
            "threading": RUNTIME.get(version.cpu_runtime, f"runtime {version.cpu_runtime}"),
        }

    @kernel("gemm", precisions=("f32", "bf16", "f16", "i8", "i8u8"))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """Cᵀ = Bᵀ·Aᵀ in row-major order is C = A·B in column-major order: B is the source, A the weights."""
        from deepbench.native import onednn as c

        p, types, dnn = case.problem, case.precision, self.dnn
        source = dnn.memory_desc((p.n, p.k), types.data, (1, p.n) if p.b_t else (p.k, 1))
        plain = dnn.memory_desc((p.k, p.m), types.weights, (1, p.k) if p.a_t else (p.m, 1))
        target = dnn.memory_desc((p.n, p.m), types.result, (p.m, 1))
        packing = case.settings["weights"] == "packed"
        weights = dnn.memory_desc_any((p.k, p.m), types.weights) if packing else plain
        attribute = dnn.sum_post_op() if case.settings["beta"] == "1" else None
        primitive_desc = dnn.create(
            "dnnl_matmul_primitive_desc_create",
            dnn.engine,
            source,
            weights,
            None,
            target,
            attribute,
        )
        notes: dict[str, Any] = {
            "implementation": dnn.query(primitive_desc, c.QUERY_IMPLEMENTATION, ctypes.c_char_p()).decode(),
            "workspace_bytes": dnn.query(primitive_desc, c.QUERY_MEMORY_CONSUMPTION, ctypes.c_int64()),
        }
        weights_memory = dnn.memory(plain, arrays["a"])
        keep = []
        if packing:
            from deepbench.arrays import empty

            weights = dnn.weights_desc(primitive_desc)
            packed = empty((dnn.size_bytes(weights),), "u8")
            start = perf_counter()
            weights_memory = dnn.reorder(plain, weights_memory, weights, packed)
            notes["pack_s"] = perf_counter() - start
            notes["packed_bytes"] = packed.nbytes
            notes["packed_is_plain"] = dnn.same_format(plain, weights)
            keep.append(packed)
        arguments = dnn.arguments(
            {
                c.ARG_SRC: dnn.memory(source, arrays["b"]),
                c.ARG_WEIGHTS: weights_memory,
                c.ARG_DST: dnn.memory(target, arrays["c"]),
            }
        )
        call = Call(
            dnn.library.dnnl_primitive_execute,
            dnn.create("dnnl_primitive_create", primitive_desc),
            dnn.stream,
            len(arguments),
            arguments,
            status=True,
        )
        call.keep_alive += (*keep, arrays)
        wait = Call(dnn.library.dnnl_stream_wait, dnn.stream, status=True)
        asynchronous = dnn.library.dnnl_version().contents.cpu_runtime in (8, 512)
        return Kernel(calls=(call, wait) if asynchronous else (call,), notes=notes)


BACKEND = OneDNNBackend()
