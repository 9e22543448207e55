"""Attention as one pattern of oneDNN's graph interface: matmul, scale, mask, softmax, matmul.

Source: include/oneapi/dnnl/dnnl_graph.h and dnnl_graph_types.h. The queries of a group are the rows of one matrix, so
that grouped heads need no operation of their own. Builds without the graph interface are `Unsupported`.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import LibraryError, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.operands import empty
from deepbench.native import onednn as c
from deepbench.native.attention import additive_mask

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

# dnnl_graph_op_kind_t, dnnl_graph_op_attr_t and dnnl_graph_partition_policy_fusion
ADD, DIVIDE, MATMUL, SOFTMAX = 2, 20, 39, 64
ATTR_AXIS, ATTR_TRANSPOSE_B = 0x30, 0x66
POLICY_FUSION = 1
PROPERTY_VARIABLE = 1

# The bits of dnnl_cpu_isa_t that stand for AMX.
AMX = 0xE00


class LogicalTensor(ctypes.Structure):
    """dnnl_graph_logical_tensor_t."""

    _fields_ = (
        ("id", ctypes.c_size_t),
        ("ndims", ctypes.c_int),
        ("dims", ctypes.c_int64 * c.MAX_DIMS),
        ("data_type", ctypes.c_int),
        ("property", ctypes.c_int),
        ("layout_type", ctypes.c_int),
        ("strides", ctypes.c_int64 * c.MAX_DIMS),
    )


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """The call of the compiled partition."""
    if not hasattr(dnn.library, "dnnl_graph_graph_create"):
        raise Unsupported("this build of oneDNN has no graph interface; choose algorithm=composed")
    if case.direction == "backward":
        raise Unsupported("oneDNN's graph interface has no pattern for the backward pass; choose algorithm=composed")
    kind = case.precision.data
    reasons = []
    for scores in dict.fromkeys(("f32", kind)):  # newer versions keep scores of 16-bit data in f32
        try:
            graph = _Graph(dnn, case, arrays, scores)
            calls = graph.compiled()
        except (Unsupported, LibraryError) as reason:  # an older version calls such a matmul invalid
            reasons.append(str(reason))
            continue
        if scores == "f32" and kind == "bf16" and "mask" in graph.constants and _uses_amx(dnn):
            raise Unsupported(
                f"oneDNN {dnn.version.text} gives wrong results for a mask in bf16 with AMX; choose algorithm=composed"
            )
        workspace = sum(array.nbytes for array in graph.constants.values())
        notes = {"implementation": f"graph, scores in {scores}", "workspace_bytes": workspace}
        return Kernel(calls=calls, keep=(graph, arrays), notes=notes)
    raise Unsupported(f"{reasons[-1]}; choose algorithm=composed")


def _uses_amx(dnn: c.OneDNN) -> bool:
    """Whether oneDNN takes AMX instructions; its graphs with a mask are right on the same CPU without these."""
    return dnn.kind == c.ENGINE_CPU and bool(dnn.library.dnnl_get_effective_cpu_isa() & AMX)


class _Graph:
    """The graph of one case. Tensors are known by name."""

    def __init__(self, dnn: c.OneDNN, case: Case, arrays: Arrays, scores: str) -> None:
        p, kind = case.problem, case.precision.data
        self.dnn = dnn
        rows = p.group * p.queries
        self.tensors: dict[str, LogicalTensor] = {}
        self.constants: Arrays = {"scale": empty((1,), scores)}
        self.constants["scale"][...] = 1 / p.scale
        mask = additive_mask(case, scores)
        if mask is not None:
            self.constants["mask"] = mask
        self.arrays = {**arrays, **self.constants}
        shapes = {
            **{name: (p.batch, p.kv_heads, rows, n) for name, n in (("q", p.head_size), ("y", p.width))},
            **{name: (p.batch, p.kv_heads, p.keys, n) for name, n in (("k", p.head_size), ("v", p.width))},
            **{name: array.shape for name, array in self.constants.items()},
        }
        for name, shape in shapes.items():
            self._tensor(name, shape, scores if name in self.constants else kind)
        self.graph = dnn.create("dnnl_graph_graph_create", dnn.kind)
        steps: list[tuple[int, tuple[str, ...], str, str]] = [
            (MATMUL, ("q", "k"), "s", scores),
            (DIVIDE, ("s", "scale"), "scaled", scores),
        ]
        steps += [(ADD, ("scaled", "mask"), "masked", scores)] if mask is not None else []
        steps += [(SOFTMAX, (steps[-1][2],), "weights", kind), (MATMUL, ("weights", "v"), "y", kind)]
        for number, (operation, inputs, output, stored) in enumerate(steps):
            if output != "y":
                self._tensor(output, (p.batch, p.kv_heads, rows, p.keys), stored)
            self._operation(number, operation, inputs, output)

    def compiled(self) -> tuple[Call, ...]:
        """The calls that execute the graph; `Unsupported` if the library does not take it as a whole."""
        dnn = self.dnn
        dnn.call("dnnl_graph_graph_finalize", self.graph)
        dnn.call("dnnl_graph_graph_filter", self.graph, POLICY_FUSION)
        count = ctypes.c_size_t()
        dnn.call("dnnl_graph_graph_get_partition_num", self.graph, ctypes.byref(count))
        if count.value != 1:
            raise Unsupported(f"this build of oneDNN splits attention into {count.value} parts")
        partition = dnn.create_last("dnnl_graph_graph_get_partitions", self.graph, ctypes.c_size_t(1))
        supported = ctypes.c_uint8()
        dnn.call("dnnl_graph_partition_is_supported", partition, ctypes.byref(supported))
        if not supported.value:
            raise Unsupported("this build of oneDNN does not fuse attention in this precision")
        dnn.call("dnnl_graph_partition_get_input_ports_num", partition, ctypes.byref(count))
        ports = (LogicalTensor * count.value)()
        dnn.call("dnnl_graph_partition_get_input_ports", partition, count, ports)
        names = list(self.tensors)
        inputs = [names[port.id] for port in ports]
        self.executable = dnn.create("dnnl_graph_compiled_partition_create", partition)
        dnn.call(
            "dnnl_graph_partition_compile", partition, self.executable, ctypes.c_size_t(len(inputs)),
            self._described(inputs), ctypes.c_size_t(1), self._described(["y"]), dnn.engine,
        )  # fmt: skip
        function = dnn.library.dnnl_graph_compiled_partition_execute
        given, results = self._memories(inputs), self._memories(["y"])
        call = Call(function, self.executable, dnn.stream, len(inputs), given, 1, results, status=True)
        return dnn.awaited(call)

    def _tensor(self, name: str, shape: tuple[int, ...], type_name: str) -> None:
        """Declare a row-major tensor."""
        strides = [1]
        for length in reversed(shape[1:]):
            strides.insert(0, strides[0] * length)
        tensor = LogicalTensor()
        self.dnn.call(
            "dnnl_graph_logical_tensor_init_with_strides", ctypes.byref(tensor), ctypes.c_size_t(len(self.tensors)),
            c.DATA_TYPE[type_name], len(shape), c.dims(shape), c.dims(strides), PROPERTY_VARIABLE,
        )  # fmt: skip
        self.tensors[name] = tensor

    def _operation(self, number: int, kind: int, inputs: tuple[str, ...], output: str) -> None:
        dnn = self.dnn
        operation = dnn.create("dnnl_graph_op_create", ctypes.c_size_t(number), kind, output.encode())
        if output == "s":
            true = ctypes.c_uint8(1)
            dnn.call("dnnl_graph_op_set_attr_bool", operation, ATTR_TRANSPOSE_B, ctypes.byref(true), ctypes.c_size_t(1))
        if kind == SOFTMAX:
            axis = ctypes.c_int64(-1)
            dnn.call("dnnl_graph_op_set_attr_s64", operation, ATTR_AXIS, ctypes.byref(axis), ctypes.c_size_t(0))
        for name in inputs:
            dnn.call("dnnl_graph_op_add_input", operation, ctypes.byref(self.tensors[name]))
        dnn.call("dnnl_graph_op_add_output", operation, ctypes.byref(self.tensors[output]))
        dnn.call("dnnl_graph_add_op", self.graph, operation)

    def _described(self, names: list[str]) -> Any:
        return (ctypes.POINTER(LogicalTensor) * len(names))(*(ctypes.pointer(self.tensors[name]) for name in names))

    def _memories(self, names: list[str]) -> Any:
        handles = [
            self.dnn.create(
                "dnnl_graph_tensor_create",
                ctypes.byref(self.tensors[name]),
                self.dnn.engine,
                ctypes.c_void_p(self.dnn.address(self.arrays[name])),
            )
            for name in names
        ]
        return (ctypes.c_void_p * len(handles))(*(handle.value for handle in handles))
