"""Graphs of ONNX operators that compute our operations. They need no library.

Matrices of ours that are stored by columns are the transposed ones by rows, so products are Cᵀ = Bᵀ·Aᵀ. Weights that
are packed ahead are constants of the model; all other arrays are its inputs and outputs.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from deepbench.backends.onnxruntime.library import TITLE
from deepbench.backends.onnxruntime.model import MICROSOFT, OnnxGraph
from deepbench.core.errors import Unsupported
from deepbench.core.operands import copy
from deepbench.core.precision import SIXTEEN_BITS
from deepbench.core.rows import EPSILON
from deepbench.ops.recurrent.problem import layer_arrays, resets_after, skips_input

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

RECURRENT = {"vanilla": "RNN", "lstm": "LSTM", "gru": "GRU"}
# Where ONNX's gates are among ours: input, output, forget and cell of an LSTM; a GRU has our order.
LSTM_ORDER = (0, 3, 1, 2)

# What `MatMulNBits` takes: groups of a power of two.
LEAST_GROUP = 16


def _graph(case: Case, arrays: Arrays, weights: tuple[str, ...] = ()) -> OnnxGraph:
    """A graph without nodes, whose arrays have the names of the case's; `weights` are constants if they are packed."""
    written = [name for name in case.operation.outputs if name in arrays]
    constant = [name for name in weights if name in arrays and case.settings.get("weights") == "packed"]
    inputs = {name: array for name, array in arrays.items() if name not in (*written, *constant)}
    constants = {name: arrays[name] for name in constant}
    graph = OnnxGraph(inputs, {name: arrays[name] for name in written}, constants, private_buffers=tuple(constant))
    graph.packing = "pack_s" if constant else ""
    return graph


def _refuse(condition: bool, reason: str) -> None:
    if condition:
        raise Unsupported(reason)


def _refuse_wide(case: Case) -> None:
    wide = case.precision.name in SIXTEEN_BITS and case.settings["result"] == "wide"
    _refuse(wide, "products of ONNX have the type of their operands; choose result=narrow")


def gemm(case: Case, arrays: Arrays) -> OnnxGraph:
    """`Gemm`. With beta = 1, C is an input and the output, in one memory: the operator copies and adds."""
    p = case.problem
    _refuse_wide(case)
    graph = _graph(case, arrays, ("a",))
    added = case.settings["beta"] == "1"
    if added:
        graph.inputs["c0"] = arrays["c"]
    if case.precision.roundoff:
        graph.add("Gemm", "b a c0" if added else "b a", "c", transA=p.b_t, transB=p.a_t)
        return graph
    left, right = _transposed(graph, "b", p.b_t, [1, 0]), _transposed(graph, "a", p.a_t, [1, 0])
    graph.add("MatMulInteger", f"{left} {right}", "product" if added else "c")
    if added:
        graph.add("Add", "product c0", "c")
    return graph


def _transposed(graph: OnnxGraph, name: str, is_stored_transposed: int, order: list[int]) -> str:
    """The name of a matrix as a product needs it."""
    if not is_stored_transposed:
        return name
    graph.add("Transpose", name, f"{name}_turned", perm=order)
    return f"{name}_turned"


def batched_gemm(case: Case, arrays: Arrays) -> OnnxGraph:
    """`MatMul`, which ONNX Runtime fuses with the transposition of operands."""
    p = case.problem
    _refuse_wide(case)
    graph = _graph(case, arrays)
    left, right = _transposed(graph, "b", p.b_t, [0, 2, 1]), _transposed(graph, "a", p.a_t, [0, 2, 1])
    graph.add("MatMul", f"{left} {right}", "c")
    return graph


def linear(case: Case, arrays: Arrays) -> OnnxGraph:
    """`Gemm` with the bias as C, and the activation."""
    graph, kind = _graph(case, arrays, ("a", "bias")), case.settings["activation"]
    operands = "b a bias" if "bias" in arrays else "b a"
    graph.add("Gemm", operands, "c" if kind == "none" else "z", transB=1)
    if kind != "none":
        _activate(graph, kind, "z", "c")
    return graph


def _activate(graph: OnnxGraph, kind: str, source: str, target: str) -> None:
    """Nodes of a function of one array."""
    if kind in ("relu", "gelu", "elu", "sigmoid", "tanh"):
        graph.add(kind.capitalize(), source, target)
    elif kind == "gelu_tanh":
        graph.add("Gelu", source, target, approximate="tanh")
    else:
        assert kind == "silu", kind
        graph.add("Sigmoid", source, "sigmoid")
        graph.add("Mul", f"{source} sigmoid", target)


def conv(case: Case, arrays: Arrays) -> OnnxGraph:
    """`Conv`. With `layout=any` the filters are constants, which ONNX Runtime may bring to another layout ahead."""
    _refuse(case.settings["layout"] == "nhwc", "convolutions of ONNX have channels second; choose layout=nchw or any")
    wide = case.precision.name in SIXTEEN_BITS and case.settings["result"] == "wide"
    _refuse(wide, "convolutions of ONNX store the type of their data; choose result=narrow")
    wide_bias = "b" in arrays and arrays["b"].dtype != arrays["x"].dtype and case.precision.name in SIXTEEN_BITS
    _refuse(wide_bias, "convolutions of ONNX take a bias in the type of the data only; choose bias=no")
    graph = _graph(case, arrays)
    names = [name for name in ("w", "b") if name in arrays]
    if case.settings["layout"] == "any":
        graph.constants = {name: graph.inputs.pop(name) for name in names}
        graph.private_buffers, graph.packing = tuple(names), "convert_s"
    options = _windows(case.problem)
    options |= {"dilations": _deep(case.problem, case.problem.dilation), "group": case.problem.groups}
    if case.precision.roundoff:
        graph.add("Conv", " ".join(["x", *names]), "y", **options)
    elif case.settings["result"] == "wide":
        _refuse("b" in arrays, "ConvInteger of ONNX has no bias; choose bias=no or result=narrow")
        graph.add("ConvInteger", "x w", "y", **options)
    else:
        _quantized(graph, {"one": 1.0, "scale": 1 / case.operation.facts(case)["scale"]})
        bias = " b" if "b" in arrays else ""
        graph.add("QLinearConv", f"x one zero_u w one zero_s scale zero_u{bias}", "y", **options)
    return graph


def _quantized(graph: OnnxGraph, scales: dict[str, float]) -> None:
    """Constants: scales, and zeros of both types of 8 bits."""
    import numpy as np

    graph.constants |= {name: np.array(value, np.float32) for name, value in scales.items()}
    graph.constants |= {"zero_u": np.array(0, np.uint8), "zero_s": np.array(0, np.int8)}


def _deep(p: Any, sizes: tuple[int, int, int]) -> list[int]:
    return list(sizes[3 - p.dimensions :])


def _windows(p: Any) -> dict[str, Any]:
    """Strides and padding on both sides."""
    return {"strides": _deep(p, p.stride), "pads": 2 * _deep(p, p.pad)}


def pooling(case: Case, arrays: Arrays) -> OnnxGraph:
    """`MaxPool` or `AveragePool`."""
    p = case.problem
    _refuse(case.settings["layout"] != "nchw", "pooling of ONNX has channels second; choose layout=nchw")
    graph, options = _graph(case, arrays), _windows(p) | {"kernel_shape": _deep(p, p.window)}
    if p.kind == "max":
        graph.add("MaxPool", "x", "y", **options)
    else:
        graph.add("AveragePool", "x", "y", count_include_pad=1, **options)
    return graph


def attention(case: Case, arrays: Arrays) -> OnnxGraph:
    """`Attention`. A mask that is not simply causal is an array of booleans, as models make it."""
    p, algorithm = case.problem, case.settings["algorithm"]
    _refuse(algorithm != "default", f"{TITLE} has no choice of an algorithm of attention; choose algorithm=default")
    _refuse(bool(p.page), "attention of ONNX has no paged cache; leave out page")
    graph = _graph(case, {name: arrays[name] for name in "qkvy"})
    if p.mask == "causal" and p.queries == p.keys and not p.window and p.lengths == "equal":
        graph.add("Attention", "q k v", "y", is_causal=1)
        return graph
    mask = _mask(p)
    if mask is not None:
        graph.inputs["mask"] = mask
    graph.add("Attention", "q k v" if mask is None else "q k v mask", "y")
    return graph


def _mask(p: Any) -> Array | None:
    """Where a query sees a key: (batch or 1, 1, queries, keys); None if all see all."""
    import numpy as np

    lengths = p.key_counts if p.lengths == "spread" else (p.keys,)
    if lengths == (p.keys,) and (p.mask == "none" or (p.queries == 1 and not p.window)):
        return None
    seen = np.zeros((len(lengths), 1, p.queries, p.keys), np.bool_)
    for rows, keys in zip(seen[:, 0], lengths, strict=True):
        for query, row in enumerate(rows):
            first, end = p.visible(min(query, p.query_count(keys) - 1), keys)  # padding sees what the last query sees
            row[first:end] = True
    return seen


def softmax(case: Case, arrays: Arrays) -> OnnxGraph:
    """`Softmax` of each row."""
    graph = _graph(case, arrays)
    graph.add("Softmax", "x", "y", axis=-1)
    return graph


def layer_norm(case: Case, arrays: Arrays) -> OnnxGraph:
    """`LayerNormalization` of each row."""
    graph = _graph(case, arrays)
    graph.add("LayerNormalization", "x scale shift", "y", axis=-1, epsilon=EPSILON)
    return graph


def rms_norm(case: Case, arrays: Arrays) -> OnnxGraph:
    """`RMSNormalization` of each row."""
    graph = _graph(case, arrays)
    graph.add("RMSNormalization", "x scale", "y", axis=-1, epsilon=EPSILON)
    return graph


def reduction(case: Case, arrays: Arrays) -> OnnxGraph:
    """`ReduceSum`, `ReduceMean` or `ReduceMax`."""
    graph = _graph(case, arrays)
    _reduce(graph, case.problem.kind, "x", "y", 1 if case.problem.axis == "columns" else 0)
    return graph


def _reduce(graph: OnnxGraph, kind: str, source: str, target: str, axis: int) -> None:
    import numpy as np

    graph.constants["axis"] = np.array([axis], np.int64)
    graph.add(f"Reduce{kind.capitalize()}", f"{source} axis", target, keepdims=0)


def elementwise(case: Case, arrays: Arrays) -> OnnxGraph:
    """One operator, or several that ONNX Runtime may fuse."""
    import numpy as np

    graph, kind = _graph(case, arrays), case.problem.kind
    limits = {"relu6": (0, 6), "hardtanh": (-1, 1)}.get(kind)
    if limits:
        graph.constants = {n: np.array(v, arrays["a"].dtype) for n, v in zip(("low", "high"), limits, strict=True)}
        graph.add("Clip", "a low high", "y")
    elif kind in ("add", "multiply"):
        graph.add("Add" if kind == "add" else "Mul", "a b", "y")
    elif kind == "multiply_add":
        graph.add("Mul", "a b", "product")
        graph.add("Add", "product c", "y")
    elif kind == "add_relu":
        graph.add("Add", "a b", "sum")
        graph.add("Relu", "sum", "y")
    elif kind in ("swiglu", "geglu", "geglu_tanh"):
        _activate(graph, {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}[kind], "a", "gate")
        graph.add("Mul", "gate b", "y")
    else:
        _activate(graph, kind, "a", "y")
    return graph


def embedding_bag(case: Case, arrays: Arrays) -> OnnxGraph:
    """`Gather`, and `ReduceSum` of bags of several rows: ONNX has no operator for both."""
    p = case.problem
    bags = (p.bags,) if p.bag == 1 else (p.bags, p.bag)
    named = {"table": arrays["table"], "indices": arrays["indices"].reshape(bags), "y": arrays["y"]}
    graph = _graph(case, named)
    graph.add("Gather", "table indices", "y" if p.bag == 1 else "rows")
    if p.bag > 1:
        _reduce(graph, "sum", "rows", "y", 1)
    return graph


def recurrent(case: Case, arrays: Arrays) -> OnnxGraph:
    """`RNN`, `LSTM` or `GRU` for each layer. Weights are brought to its order ahead; packed ones are constants.

    An operator keeps the directions of time apart, (steps, directions, batch, hidden), where ours are side by side.
    """
    import numpy as np

    p = case.problem
    _refuse(case.settings["mode"] == "training", f"{TITLE} has no training; choose mode=inference")
    _refuse(skips_input(case), "layers of ONNX multiply their input; choose input=narrow")
    start = perf_counter()
    weights = {f"{n}{layer}": a for layer in range(p.layers) for n, a in _layer_weights(case, arrays, layer).items()}
    seconds = perf_counter() - start
    states = {f"{n}_{layer}": arrays[n][layer] for n in ("h0", "c0") if n in arrays for layer in range(p.layers)}
    shape = (p.timesteps, p.batch, 2, p.hidden) if p.bidirectional else (p.timesteps, 1, p.batch, p.hidden)
    graph = _graph(case, {"x": arrays["x"], **weights, **states, "y": arrays["y"].reshape(shape)}, tuple(weights))
    graph.notes, graph.private_buffers = {"convert_s": seconds}, ("w", "r", "b", "w_deep")
    options: dict[str, Any] = {"hidden_size": p.hidden, "direction": "bidirectional" if p.bidirectional else "forward"}
    if p.cell == "vanilla":
        options["activations"] = ["Relu"] * p.time_directions
    if p.cell == "gru":
        options["linear_before_reset"] = int(resets_after(case))
    if p.layers > 1:
        graph.constants["side_by_side"] = np.array([p.timesteps, p.batch, p.output_size], np.int64)
    source = "x"
    for layer in range(p.layers):
        is_last = layer == p.layers - 1
        cell = f" c0_{layer}" if p.cell == "lstm" else ""
        result = "y" if is_last else f"y{layer}"
        apart = f"apart{layer}" if p.bidirectional else result
        graph.add(RECURRENT[p.cell], f"{source} w{layer} r{layer} b{layer} - h0_{layer}{cell}", apart, **options)
        if p.bidirectional:
            graph.add("Transpose", apart, result, perm=[0, 2, 1, 3])
        if not is_last:
            source = f"x{layer + 1}"
            graph.add("Reshape", f"{result} side_by_side", source)
    return graph


def _layer_weights(case: Case, arrays: Arrays, layer: int) -> Arrays:
    """`w` and `r` (directions, gates · hidden, width) and `b` (directions, 2 · gates · hidden) of a layer."""
    import numpy as np

    p = case.problem
    order = list(LSTM_ORDER if p.cell == "lstm" else range(p.gates))
    ways = [layer_arrays(case, arrays, layer, way) for way in range(p.time_directions)]
    bias = np.zeros((p.time_directions, 2, p.gates, p.hidden), np.float32)  # for the product of x, and for that of h
    for of_way, own in zip(bias, ways, strict=True):
        of_way[0] = own["b"][order]
        if resets_after(case):
            of_way[1, 2] = own["b"][3]
    found = {"b": copy(bias.reshape(p.time_directions, -1))}
    for name in ("w", "r"):
        turned = np.stack([own[name][:, order].transpose(1, 2, 0) for own in ways])
        found[name] = copy(turned.reshape(p.time_directions, p.gates * p.hidden, -1))
    return found


def weight_only_gemm(case: Case, arrays: Arrays) -> OnnxGraph:
    """`MatMulNBits` of ONNX Runtime: its integers have no sign, and 0 in the middle of their range is zero."""
    p = case.problem
    power = p.group >= LEAST_GROUP and not p.group & (p.group - 1)
    _refuse(not power, f"MatMulNBits has groups of a power of two of at least {LEAST_GROUP}; found group={p.group}")
    middle = {2: 0xAA, 4: 0x88, 8: 0x80}
    _refuse(p.bits not in middle, f"MatMulNBits has no {p.bits}-bit weights; choose bits=2, bits=4 or bits=8")
    start = perf_counter()
    shifted = arrays["a"].view("uint8") ^ middle[p.bits]
    weights = shifted.reshape(p.m, p.k // p.group, -1)
    graph = OnnxGraph({"b": arrays["b"]}, {"c": arrays["c"]}, {"weights": weights, "scales": copy(arrays["scales"].T)})
    graph.notes, graph.private_buffers = {"convert_s": perf_counter() - start}, ("a", "scales")
    graph.packing = "pack_s"
    options = {"K": p.k, "N": p.m, "bits": p.bits, "block_size": p.group}
    graph.add("MatMulNBits", "b weights scales", "c", MICROSOFT, **options)
    return graph
