"""OpenVINO, Intel's runtime for trained models: each operation as a model of its own, called through its C API.

It is not counted as a framework: a call runs kernels of its own (and of the oneDNN and MLAS that it contains), from C.
There are no backward passes.

Left alone, OpenVINO computes models of f32 in bf16 where the CPU multiplies bf16. So the precision is always set, read
back from the compiled model, and compared with the types of the kernels that ran. The same model, compiled with
`PERF_COUNT`, tells these; the one that is timed does not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import finalize

from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.errors import LibraryError, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Arrays
from deepbench.core.precision import type_name
from deepbench.core.rows import EPSILON
from deepbench.machine import describe
from deepbench.native import library

if TYPE_CHECKING:
    from deepbench.native.openvino import Graph, Node, Value

FLOATS = ("f32", "bf16", "f16")

# What an operation of ours is in OpenVINO: its name and its attributes. Several are applied one after the other.
ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "relu6": ("Clamp", {"min": 0.0, "max": 6.0}),
    "hardtanh": ("Clamp", {"min": -1.0, "max": 1.0}),
    "gelu": ("Gelu", {"approximation_mode": "ERF"}),
    "gelu_tanh": ("Gelu", {"approximation_mode": "TANH"}),
    "silu": ("Swish", {}),
    "elu": ("Elu", {"alpha": 1.0}),
    "sigmoid": ("Sigmoid", {}),
    "tanh": ("Tanh", {}),
}
GATED = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}
REDUCTIONS = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}

# Nodes that multiply matrices: they must multiply numbers of the type of the case.
PRODUCTS = (
    *("MatMul", "FullyConnected", "FullyConnectedCompressed", "Convolution", "GroupConvolution"),
    *("ScaledDotProductAttention", "LSTMSequence", "GRUSequence", "RNNSequence"),
)

NORMS = ("batch_norm", "group_norm", "layer_norm", "rms_norm")

# In 16 bits, version 2026.4 multiplies weights of 8 bits wrong if k is odd and B has more than four columns. A test
# tells when it no longer does.
ODD_K_IS_WRONG = True


@dataclass(frozen=True)
class CompiledCase:
    """The compiled model of a case, and what it runs."""

    text: str
    compiled: Any
    implementation: str
    graph: Graph
    """The model reads the constants where they are."""


class OpenVINOBackend(Backend):
    name = "openvino"
    title = "OpenVINO"
    default = False
    path_variable = "DEEPBENCH_OPENVINO_PATH"
    package = "openvino"
    tuning_variables = ("OV_CPU_*", "ONEDNN_*", "DNNL_*")
    target = "CPU"
    """The device as OpenVINO names it."""

    model: CompiledCase | None = None

    def open(self) -> dict[str, Any]:
        from deepbench.native.openvino import OpenVINO

        loaded = library.load(
            self.title,
            self.path_variable,
            ("openvino/libs/libopenvino_c.so*", "libopenvino_c.so*"),
            needs=("ov_core_read_model_from_memory_buffer",),
            remedy="pip install openvino, or name a libopenvino_c.so in DEEPBENCH_OPENVINO_PATH",
        )
        known = getattr(self, "ov", None)
        if known is None or known.library._handle != loaded._handle:  # each core has threads
            self.ov, self.model = OpenVINO(loaded), None
        version, _, build = self.ov.version().partition("-")
        return {
            "name": self.title,
            "version": version,
            "path": library.path_of(loaded, "ov_core_create"),
            "build": build,
            "cpu_kernels": self.ov.device_property(self.target, "OPTIMIZATION_CAPABILITIES"),
            "threading": "TBB",
        }

    @kernel("gemm", precisions=FLOATS)
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`MatMul` of Cᵀ = Bᵀ·Aᵀ in row-major order; with `weights=packed` A is a constant of the model."""
        p, packed = case.problem, case.settings["weights"] == "packed"
        adds = case.settings["beta"] == "1"
        if adds and type_name(arrays["c"].dtype) != case.precision.data:
            raise Unsupported("OpenVINO rounds a product to 16 bits before it adds C; choose beta=0 or result=narrow")
        graph = self._graph()
        c = graph.parameter(arrays["c"]) if adds else None
        product = _matmul(graph, arrays, p.b_t, p.a_t, packed)
        # In this order the product gets memory of its own. The other way round it would be computed in that of C.
        graph.result(product if c is None else graph.op("Add", c, product), arrays["c"])
        return self._kernel(case, graph, ("a",) if packed else ())

    @kernel("batched_gemm", precisions=FLOATS)
    def batched_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`MatMul` with three axes."""
        graph = self._graph()
        graph.result(_matmul(graph, arrays, case.problem.b_t, case.problem.a_t), arrays["c"])
        return self._kernel(case, graph)

    @kernel("linear", precisions=FLOATS)
    def linear(self, case: Case, arrays: Arrays) -> Kernel:
        """`MatMul`, `Add` and the activation; with `weights=packed` the weights and the bias are constants."""
        packed, activation = case.settings["weights"] == "packed", case.settings["activation"]
        graph = self._graph()
        z = _matmul(graph, arrays, 0, 1, packed)
        if "bias" in arrays:
            source = graph.constant if packed else graph.parameter
            z = graph.op("Add", z, source(arrays["bias"]))
        graph.result(_activated(graph, activation, z), arrays["c"])
        return self._kernel(case, graph, ("a", "bias") if packed else ())

    @kernel("weight_only_gemm", precisions=FLOATS)
    def weight_only_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`MatMul` with constants of 4 or 8 bits that are converted and multiplied by their scales."""
        p, kind = case.problem, case.precision.data
        if p.bits not in (4, 8):
            raise Unsupported(f"OpenVINO multiplies no signed {p.bits}-bit integers; choose bits=4 or bits=8")
        if ODD_K_IS_WRONG and kind != "f32" and p.k % 2:
            raise Unsupported("OpenVINO gives wrong results for an odd k in 16 bits; choose an even k")
        graph = self._graph()
        stored = graph.constant(arrays["a"], f"i{p.bits}", (p.m, p.k // p.group, p.group))
        scales = graph.constant(arrays["scales"].T[:, :, None])
        weights = graph.op("Multiply", graph.convert(stored, kind), scales)
        weights = graph.op("Reshape", weights, graph.axes(p.m, p.k), special_zero=False)
        product = graph.op("MatMul", graph.parameter(arrays["b"]), weights, transpose_a=False, transpose_b=True)
        graph.result(product, arrays["c"])
        made = self._kernel(case, graph, ("a", "scales"))
        if not made.notes["implementation"].startswith("FullyConnectedCompressed"):
            raise Unsupported(f"OpenVINO converts these weights to {kind} ahead on this CPU; choose f32 or larger m, k")
        return made

    @kernel("conv", precisions=FLOATS)
    def conv(self, case: Case, arrays: Arrays) -> Kernel:
        """Filters are inputs, which each call converts to the library's layout. With `layout=any` they are constants.

        Images then have the layout that its convolutions prefer, with the channels last.
        """
        from deepbench.backends.openvino import images

        if case.settings["layout"] != "any":
            return self._kernel(case, images.conv(case, arrays))
        constants = ("w", "b") if "b" in arrays else ("w",)
        return self._of_own_layout(case, arrays, images.conv, constants)

    @kernel("pooling", precisions=FLOATS)
    def pooling(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.openvino import images

        return self._of_images(case, arrays, images.pooling)

    @kernel("upsample", precisions=FLOATS)
    def upsample(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.openvino import images

        return self._of_images(case, arrays, images.upsample)

    @kernel("batch_norm", precisions=FLOATS)
    def batch_norm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.openvino import images

        constants = ("scale", "shift", "mean", "variance")
        return self._kernel(case, images.batch_norm(case, arrays), constants, computed="f32")

    @kernel("group_norm", precisions=FLOATS)
    def group_norm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.openvino import images

        return self._kernel(case, images.group_norm(case, arrays), ("scale", "shift"), computed="f32")

    @kernel("recurrent", precisions=FLOATS)
    def recurrent(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.openvino import recurrent

        constants = tuple(name for name in ("w", "r", "b", "w_deep") if name in arrays)
        return self._kernel(case, recurrent.recurrent(case, arrays), constants)

    @kernel("attention", precisions=FLOATS)
    def attention(self, case: Case, arrays: Arrays) -> Kernel:
        """`ScaledDotProductAttention`, in which the queries of a group of heads are the rows of one matrix."""
        from deepbench.native.attention import additive_mask

        p = case.problem
        if p.page:
            raise Unsupported("a model of OpenVINO with one attention has no paged cache; leave out page")
        if case.settings["algorithm"] != "default":
            raise Unsupported("OpenVINO chooses the algorithm; choose algorithm=default")
        rows = p.group * p.queries
        graph = self._graph()
        inputs = [graph.parameter(arrays["q"], (p.batch, p.kv_heads, rows, p.head_size))]
        inputs += [graph.parameter(arrays[name]) for name in "kv"]
        mask = additive_mask(case, case.precision.data)
        inputs += [] if mask is None else [graph.constant(mask)]
        y = graph.op("ScaledDotProductAttention", *inputs, causal=False)
        graph.result(y, arrays["y"])
        return self._kernel(case, graph)

    @kernel("softmax", precisions=FLOATS)
    def softmax(self, case: Case, arrays: Arrays) -> Kernel:
        """`SoftMax` of the rows."""
        return self._of_one(case, arrays, lambda graph, x: graph.op("SoftMax", x, axis=1))

    @kernel("reduction", precisions=FLOATS)
    def reduction(self, case: Case, arrays: Arrays) -> Kernel:
        """`ReduceSum`, `ReduceMean` or `ReduceMax`."""
        kind, axis = REDUCTIONS[case.problem.kind], int(case.problem.axis == "columns")
        return self._of_one(case, arrays, lambda graph, x: graph.op(kind, x, graph.axes(axis), keep_dims=False))

    @kernel("elementwise", precisions=FLOATS)
    def elementwise(self, case: Case, arrays: Arrays) -> Kernel:
        """One operation, or several that the library fuses."""
        kind = case.problem.kind
        graph = self._graph()
        a, *more = (graph.parameter(arrays[name]) for name in "abc" if name in arrays)
        if kind in ("add", "add_relu"):
            y = graph.op("Add", a, more[0])
            y = graph.op("Relu", y) if kind == "add_relu" else y
        elif kind in ("multiply", "multiply_add"):
            y = graph.op("Multiply", a, more[0])
            y = graph.op("Add", y, more[1]) if kind == "multiply_add" else y
        else:
            y = _activated(graph, GATED.get(kind, kind), a)
            y = graph.op("Multiply", y, more[0]) if kind in GATED else y
        graph.result(y, arrays["y"])
        return self._kernel(case, graph)

    @kernel("layer_norm", precisions=FLOATS)
    def layer_norm(self, case: Case, arrays: Arrays) -> Kernel:
        """`MVN`, `Multiply` and `Add`, in f32 as the operation says; scale and shift are constants."""

        def normalized(graph: Graph, x: Value) -> Value:
            attributes: dict[str, Any] = {"eps": EPSILON, "normalize_variance": True, "eps_mode": "INSIDE_SQRT"}
            z = graph.op("MVN", x, graph.axes(1), **attributes)
            return graph.op(
                "Add",
                graph.op("Multiply", z, graph.constant(arrays["scale"][None])),
                graph.constant(arrays["shift"][None]),
            )

        return self._of_one(case, arrays, normalized, ("scale", "shift"), in_f32=True)

    @kernel("rms_norm", precisions=FLOATS)
    def rms_norm(self, case: Case, arrays: Arrays) -> Kernel:
        """The operations that the library recognizes as one, in f32 as the operation says; the scale is a constant."""

        def normalized(graph: Graph, x: Value) -> Value:
            mean = graph.op("ReduceMean", graph.op("Power", x, graph.number(2.0)), graph.axes(-1), keep_dims=True)
            root = graph.op("Sqrt", graph.op("Add", mean, graph.number(EPSILON)))
            z = graph.op("Multiply", x, graph.op("Divide", graph.number(1.0), root))
            return graph.op("Multiply", z, graph.constant(arrays["scale"]))

        return self._of_one(case, arrays, normalized, ("scale",), in_f32=True)

    def _graph(self) -> Graph:
        from deepbench.native.openvino import Graph

        return Graph()

    def _of_one(
        self,
        case: Case,
        arrays: Arrays,
        function: Callable[[Graph, Value], Value],
        constants: Sequence[str] = (),
        in_f32: bool = False,
    ) -> Kernel:
        """The kernel of y = function(x)."""
        graph = self._graph()
        x, kind = graph.parameter(arrays["x"]), case.precision.data
        if in_f32 and kind != "f32":
            y = graph.convert(function(graph, graph.convert(x, "f32")), kind)
        else:
            y = function(graph, x)
        graph.result(y, arrays["y"])
        return self._kernel(case, graph, constants, "f32" if in_f32 else kind)

    def _of_images(self, case: Case, arrays: Arrays, model: Callable[[Case, Arrays], Graph]) -> Kernel:
        """The kernel of images in the layout of the case."""
        if case.settings["layout"] == "any":
            return self._of_own_layout(case, arrays, model)
        return self._kernel(case, model(case, arrays))

    def _of_own_layout(
        self, case: Case, arrays: Arrays, model: Callable[[Case, Arrays], Graph], constants: Sequence[str] = ()
    ) -> Kernel:
        """The kernel of images that are converted ahead, to the layout with the channels last."""
        from deepbench.backends.openvino.images import channels_last

        begin = perf_counter()
        own = {name: channels_last(array) for name, array in arrays.items() if name not in constants}
        seconds = perf_counter() - begin
        made = self._kernel(case, model(case, {**arrays, **own}), constants)
        if re.search(r"\b(Reorder|Transpose) ", implementation := made.notes["implementation"]):
            raise Unsupported(f"OpenVINO's own layout is not channels last here: {implementation}; choose layout=nchw")

        def load() -> None:
            for name, array in own.items():
                array[...] = channels_last(arrays[name])

        def store() -> None:
            arrays["y"][...] = own["y"].transpose(0, -1, *range(1, own["y"].ndim - 1))

        made.load, made.store = load, store
        made.private_buffers = (*made.private_buffers, *own)
        made.notes["convert_s"] = seconds
        made.notes["converted_bytes"] = sum(arrays[name].nbytes for name in made.private_buffers)
        return made

    def _kernel(self, case: Case, graph: Graph, constants: Sequence[str] = (), computed: str | None = None) -> Kernel:
        """The call of the compiled model. `constants` names the arrays that it has copied.

        `computed` is the type to compute in, by default that of the data.
        """
        _refuse_on_arm(case)
        begin = perf_counter()
        # Further buffers of the same case share a model, unless it contains some of them.
        model, self.model = self.model, None
        if model is None or model.text != case.text or constants:
            known = model.implementation if model is not None and model.text == case.text else None
            if model is not None:
                self.ov.free("compiled_model", model.compiled)
            model = self._compile(case, graph, settings(case.threads, computed or case.precision.data), known)
        self.model = model
        request = self.ov.request(model.compiled, graph.inputs, graph.outputs)
        call = Call(self.ov.library.ov_infer_request_infer, request, status=True)
        notes: dict[str, Any] = {"implementation": model.implementation, "compile_s": perf_counter() - begin}
        if constants:
            notes["converted_bytes"] = 0 if graph.constants is None else graph.constants.nbytes
        # A request has its model, and a model has threads: they end when the kernel does.
        finalize(graph, self.ov.free, "infer_request", request).atexit = False
        return Kernel(calls=(call,), private_buffers=tuple(constants), keep=(graph,), notes=notes)

    def _compile(self, case: Case, graph: Graph, properties: dict[str, str], known: str | None) -> CompiledCase:
        """The model, if it has these properties and computes in the precision of the case.

        `known` is what it runs, if that has been looked at.
        """
        try:
            compiled = self.ov.compile(graph, self.target, properties)
        except LibraryError as error:
            if "could not create a primitive" in str(error):
                raise Unsupported(f"OpenVINO has no kernel for this on this CPU: {error}") from None
            raise
        found = {name: self.ov.property(compiled, name) for name in properties}
        nodes: list[Node] = []
        problem = changed_property(properties, found)
        if problem is None and known is None:
            nodes = self._executed(graph, properties)
            problem = other_precision(nodes, case.precision.data, properties["INFERENCE_PRECISION_HINT"])
        if problem is not None:
            self.ov.free("compiled_model", compiled)
            raise Unsupported(problem)
        return CompiledCase(case.text, compiled, known or _names(nodes), graph)

    def _executed(self, graph: Graph, properties: dict[str, str]) -> list[Node]:
        """What runs: from one call of a model that counts its nodes, into memory of its own."""
        counting = self.ov.compile(graph, self.target, {**properties, "PERF_COUNT": "YES"})
        request = self.ov.request(counting, graph.inputs)
        self.ov.call("ov_infer_request_infer", request)
        nodes = self.ov.executed(request)
        self.ov.free("infer_request", request)
        self.ov.free("compiled_model", counting)
        return nodes


def _refuse_on_arm(case: Case) -> None:
    """`Unsupported` for what loses digits there, as seen with 2026.4: norms 1.9 times the tolerance, tanh 5.9 times."""
    if "asimd" not in describe.instructions():
        return
    if case.op in NORMS and case.precision.data == "bf16":
        raise Unsupported("OpenVINO rounds parts of a norm to bf16 on this CPU (Arm); choose f32 or f16")
    if case.op == "elementwise" and case.problem.kind == "tanh" and case.precision.data == "f32":
        raise Unsupported("OpenVINO's tanh loses digits of small results on this CPU (Arm); choose another kind")


def settings(threads: int, kind: str) -> dict[str, str]:
    """Properties of a compiled model: all that decide what is computed, and with how many threads."""
    return {
        "INFERENCE_PRECISION_HINT": kind,
        "INFERENCE_NUM_THREADS": str(threads),
        "NUM_STREAMS": "1",
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": "NO",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",  # else products with weights of 4 or 8 bits round their input to 8
    }


def changed_property(wanted: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """Which property a compiled model has changed; None if it has all as wanted."""
    for name, value in wanted.items():
        if found[name].lower() == value.lower():
            continue
        if name == "INFERENCE_PRECISION_HINT":
            return f"OpenVINO computes in {found[name]} instead of {value} on this CPU"
        return f"OpenVINO changes {name} from {value} to {found[name]} on this machine"
    return None


def other_precision(nodes: Sequence[Node], kind: str, computed: str) -> str | None:
    """Which node computed in another type than the case asks for; None if none did.

    `kind` is the type of the data, in which products must be. What lies between may be f32, and integers are sizes and
    positions. Some node must compute in `computed`: products within a `Subgraph` have no node of their own.
    """
    for node in nodes:
        allowed = (kind,) if node.kind in PRODUCTS else (kind, "f32", "i32", "i64")
        if node.type_name not in allowed:
            return f"OpenVINO computed {node.kind} as {node.implementation}, not in {kind}"
    if computed not in [node.type_name for node in nodes]:
        return f"OpenVINO computed nothing in {computed}: it ran {_names(nodes) or 'no node'}"
    return None


def _names(nodes: Sequence[Node]) -> str:
    return ", ".join(dict.fromkeys(f"{node.kind} {node.implementation}" for node in nodes))


def _matmul(graph: Graph, arrays: Arrays, left_t: int, right_t: int, packed: bool = False) -> Value:
    """The product of `b` and `a`, in the type of `c`.

    Sums of 16-bit numbers stay in f32 where they are converted before the product: the library multiplies what they
    were converted from.
    """
    a = graph.constant(arrays["a"]) if packed else graph.parameter(arrays["a"])
    b, kind = graph.parameter(arrays["b"]), type_name(arrays["c"].dtype)
    if type_name(arrays["b"].dtype) != kind:
        a, b = graph.convert(a, kind), graph.convert(b, kind)
    return graph.op("MatMul", b, a, transpose_a=bool(left_t), transpose_b=bool(right_t))


def _activated(graph: Graph, name: str, value: Value) -> Value:
    if name == "none":
        return value
    kind, attributes = ACTIVATIONS[name]
    return graph.op(kind, value, **attributes)


BACKEND = OpenVINOBackend()
