"""Which of our kernels an operator of PyTorch is: a private function for each operator, named like it.

A function has the arguments of the operator by their names in PyTorch's schema, and its results. It returns the texts
of the kernels that the operator consists of, each with the tensors that it reads and writes; none where the operator is
no operation of ours in this form, such as an addition with broadcasting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.networks.traces.kernels import kernel_text, spatial

PRECISIONS = {"torch.float32": "f32", "torch.bfloat16": "bf16", "torch.float16": "f16"}

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """A kernel of an operator with its tensors."""

    kernel: str
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]


def text(op: str, values: Mapping[str, int | str], tensor: Any, direction: str = "forward", **settings: str) -> str:
    """The text of a case without library and threads. `BadInput` if the sizes or the type are none of ours."""
    precision = PRECISIONS.get(str(tensor.dtype))
    if precision is None:
        raise BadInput(f"{tensor.dtype} is no precision of {op}")
    return kernel_text(op, values, precision, direction, **settings)


# ---- products


def _matrix(tensor: Any) -> tuple[int, Any] | None:
    """Whether a matrix is stored transposed (1 or 0); None if its rows and columns are both strided."""
    rows, columns = tensor.stride()[-2:]
    if columns == 1 and rows >= tensor.shape[-1]:
        return 0, tensor
    return (1, tensor) if rows == 1 and columns >= tensor.shape[-2] else None


def _product(left: Any, right: Any, written: Any, add: Any = None) -> list[Found]:
    """left (n × k) · right (k × m): row-major matrices are our column-major ones, so A is `right`."""
    stored = _matrix(left), _matrix(right)
    b_t, a_t = (1 if s is None else s[0] for s in stored)
    (n, k), m = left.shape, right.shape[1]
    sizes = {"m": m, "n": n, "k": k, "a_t": a_t, "b_t": b_t}
    precision = {} if left.dtype.itemsize == 4 else {"result": "narrow"}
    beta = "0" if add is None else "1"
    reads = (left, right) if add is None else (left, right, add)
    return [Found(text("gemm", sizes, left, beta=beta, **precision), reads, (written,))]


def _mm(a: Arguments, result: Any) -> list[Found]:
    return _product(a["self"], a["mat2"], result)


def _addmm(a: Arguments, result: Any) -> list[Found]:
    bias, left, right = a["self"], a["mat1"], a["mat2"]
    if bias.dim() == 2 and bias.shape[0] > 1:
        return _product(left, right, result, bias)
    return _layer(left, right.mT, bias, result)


def _layer(x: Any, weight: Any, bias: Any, result: Any) -> list[Found]:
    sizes = {"m": weight.shape[0], "n": math.prod(x.shape[:-1]), "k": x.shape[-1]}
    has = "no" if bias is None else "yes"
    reads = (x, weight) if bias is None else (x, weight, bias)
    return [Found(text("linear", sizes, x, bias=has), reads, (result,))]


def _linear(a: Arguments, result: Any) -> list[Found]:
    return _layer(a["input"], a["weight"], a["bias"], result)


def _products(left: Any, right: Any, result: Any) -> list[Found]:
    stored = _matrix(left), _matrix(right)
    b_t, a_t = (1 if s is None else s[0] for s in stored)
    batch, n, k = left.shape
    sizes = {"batch": batch, "m": right.shape[2], "n": n, "k": k, "a_t": a_t, "b_t": b_t}
    return [Found(text("batched_gemm", sizes, left), (left, right), (result,))]


def _bmm(a: Arguments, result: Any) -> list[Found]:
    return _products(a["self"], a["mat2"], result)


def _baddbmm(a: Arguments, result: Any) -> list[Found]:
    return _products(a["batch1"], a["batch2"], result)


# ---- convolution, pooling, resizing


def _is_channels_last(tensor: Any) -> bool:
    """Whether the channels of an image are next to each other, and it would not be the usual layout, too."""
    strides = tensor.stride()
    return tensor.dim() > 3 and strides[1] == 1 and not tensor.is_contiguous() and tensor.shape[1] > 1


def _axes(values: Sequence[int], axes: int) -> list[int]:
    """A number for each axis of an image: depth, height, width. One number is for all; one axis is the width."""
    values = list(values) * axes if len(values) == 1 else list(values)
    return values


def _conv_sizes(a: Arguments, x: Any, w: Any) -> dict[str, int]:
    axes = x.dim() - 2
    filters = spatial("", w.shape[2:], 1)
    return {
        **spatial("", x.shape[2:], 1),
        **spatial("stride_", _axes(a["stride"], axes), 1),
        **spatial("pad_", _axes(a["padding"], axes), 0),
        **spatial("dilation_", _axes(a["dilation"], axes), 1),
        "n": x.shape[0],
        "c": x.shape[1],
        "k": w.shape[0],
        "t": filters["d"],
        "r": filters["h"],
        "s": filters["w"],
        "groups": a["groups"],
    }


def _convolution(a: Arguments, result: Any) -> list[Found]:
    """A transposed convolution is the data gradient of the convolution from its result to its input."""
    x, w, bias = a["input"], a["weight"], a["bias"]
    layout = "nhwc" if _is_channels_last(x) or _is_channels_last(w) else "nchw"
    if a["transposed"]:
        kernel = text("conv", _conv_sizes(a, result, w), x, "backward_data", layout=layout)
        return [Found(kernel, (x, w), (result,))]
    has = "no" if bias is None else "yes"
    reads = (x, w) if bias is None else (x, w, bias)
    return [Found(text("conv", _conv_sizes(a, x, w), x, layout=layout, bias=has), reads, (result,))]


def _convolution_backward(a: Arguments, result: Any) -> list[Found]:
    dy, x, w = a["grad_output"], a["input"], a["weight"]
    dx, dw, db = result
    layout = "nhwc" if any(map(_is_channels_last, (dy, x, w))) else "nchw"
    if a["transposed"]:
        sizes, of_data = _conv_sizes(a, dy, w), "forward"
    else:
        sizes, of_data = _conv_sizes(a, x, w), "backward_data"
    found = []
    if dx is not None:
        found.append(Found(text("conv", sizes, x, of_data, layout=layout), (dy, w), (dx,)))
    if dw is not None:
        has = "no" if db is None else "yes"
        writes = (dw,) if db is None else (dw, db)
        found.append(Found(text("conv", sizes, x, "backward_weights", layout=layout, bias=has), (dy, x), writes))
    return found


def _pooling(kind: str, a: Arguments, x: Any, reads: tuple[Any, ...], result: Any, direction: str) -> list[Found]:
    axes = x.dim() - 2
    if any(n != 1 for n in a.get("dilation") or ()) or a["ceil_mode"] or a.get("divisor_override") or axes < 1:
        return []
    window = spatial("", _axes(a["kernel_size"], axes), 1)
    stride = a["stride"] or a["kernel_size"]
    sizes: dict[str, int | str] = {
        "kind": kind,
        **spatial("", x.shape[2:], 1),
        **spatial("stride_", _axes(stride, axes), 1),
        **spatial("pad_", _axes(a["padding"], axes), 0),
        "n": x.shape[0],
        "c": x.shape[1],
        "t": window["d"],
        "r": window["h"],
        "s": window["w"],
    }
    layout = "nhwc" if _is_channels_last(x) else "nchw"
    writes = tuple(result) if isinstance(result, tuple) else (result,)
    return [Found(text("pooling", sizes, x, direction, layout=layout), reads, writes)]


def _max_pool2d_with_indices(a: Arguments, result: Any) -> list[Found]:
    return _pooling("max", a, a["self"], (a["self"],), result, "forward")


def _max_pool2d_with_indices_backward(a: Arguments, result: Any) -> list[Found]:
    return _pooling("max", a, a["self"], (a["grad_output"], a["indices"]), result, "backward")


def _avg_pool2d(a: Arguments, result: Any) -> list[Found]:
    return _pooling("average", a, a["self"], (a["self"],), result, "forward")


def _avg_pool2d_backward(a: Arguments, result: Any) -> list[Found]:
    return _pooling("average", a, a["self"], (a["grad_output"],), result, "backward")


def _upsample_nearest2d(a: Arguments, result: Any) -> list[Found]:
    x, (n, c, h, w) = a["input"] if "input" in a else a["self"], result.shape
    if h % x.shape[2] or w % x.shape[3] or h // x.shape[2] != w // x.shape[3]:
        return []
    sizes = {"n": n, "c": c, "h": x.shape[2], "w": x.shape[3], "scale": h // x.shape[2]}
    layout = "nhwc" if _is_channels_last(x) else "nchw"
    return [Found(text("upsample", sizes, x, layout=layout), (x,), (result,))]


# ---- normalization and softmax


def _native_layer_norm(a: Arguments, result: Any) -> list[Found]:
    x = a["input"]
    columns = math.prod(a["normalized_shape"])
    reads = tuple(t for t in (x, a["weight"], a["bias"]) if t is not None)
    return [Found(text("layer_norm", {"rows": x.numel() // columns, "columns": columns}, x), reads, tuple(result))]


def _native_layer_norm_backward(a: Arguments, result: Any) -> list[Found]:
    x = a["input"]
    columns = math.prod(a["normalized_shape"])
    kernel = text("layer_norm", {"rows": x.numel() // columns, "columns": columns}, x, "backward")
    return [Found(kernel, (a["grad_out"], x), tuple(t for t in result if t is not None))]


def _fused_rms_norm(a: Arguments, result: Any) -> list[Found]:
    x = a["input"]
    columns = math.prod(a["normalized_shape"])
    reads = tuple(t for t in (x, a["weight"]) if t is not None)
    return [Found(text("rms_norm", {"rows": x.numel() // columns, "columns": columns}, x), reads, (result[0],))]


def _batch(x: Any) -> dict[str, int]:
    return {"n": x.shape[0], "c": x.shape[1], **{"h": 1, "w": 1}, **spatial("", x.shape[2:], 1)}


def _native_batch_norm(a: Arguments, result: Any) -> list[Found]:
    x = a["input"]
    layout = "nhwc" if _is_channels_last(x) else "nchw"
    mode = "training" if a["training"] else "inference"
    return [Found(text("batch_norm", _batch(x), x, mode=mode, layout=layout), (x,), (result[0],))]


def _native_batch_norm_backward(a: Arguments, result: Any) -> list[Found]:
    x = a["input"]
    layout = "nhwc" if _is_channels_last(x) or _is_channels_last(a["grad_out"]) else "nchw"
    mode = "training" if a["train"] else "inference"
    writes = tuple(t for t in result if t is not None)
    return [Found(text("batch_norm", _batch(x), x, "backward", mode=mode, layout=layout), (a["grad_out"], x), writes)]


def _native_group_norm(a: Arguments, result: Any) -> list[Found]:
    x = a["input"]
    sizes = {"n": a["N"], "c": a["C"], "h": a["HxW"], "w": 1, "groups": a["group"]}
    return [Found(text("group_norm", sizes, x), (x,), (result[0],))]


def _native_group_norm_backward(a: Arguments, result: Any) -> list[Found]:
    x = a["input"]
    sizes = {"n": a["N"], "c": a["C"], "h": a["HxW"], "w": 1, "groups": a["group"]}
    return [
        Found(text("group_norm", sizes, x, "backward"), (a["grad_out"], x), tuple(t for t in result if t is not None))
    ]


def _softmax(a: Arguments, result: Any) -> list[Found]:
    """Also its logarithm, which has as many exponentials."""
    x, dim = a["self"], a["dim"] % a["self"].dim()
    if dim != x.dim() - 1:
        return []
    sizes = {"rows": x.numel() // x.shape[-1], "columns": x.shape[-1]}
    return [Found(text("softmax", sizes, x), (x,), (result,))]


def _softmax_backward_data(a: Arguments, result: Any) -> list[Found]:
    dy, dim = a["grad_output"], a["dim"] % a["grad_output"].dim()
    if dim != dy.dim() - 1:
        return []
    sizes = {"rows": dy.numel() // dy.shape[-1], "columns": dy.shape[-1]}
    return [Found(text("softmax", sizes, dy, "backward"), (dy, a["output"]), (result,))]


# ---- attention


def _attention(q: Any, k: Any, v: Any, is_causal: bool, direction: str) -> str:
    sizes: dict[str, int | str] = {
        "batch": math.prod(q.shape[:-3]),
        "heads": q.shape[-3],
        "kv_heads": k.shape[-3],
        "queries": q.shape[-2],
        "keys": k.shape[-2],
        "head_size": q.shape[-1],
        "value_size": v.shape[-1],
        "mask": "causal" if is_causal else "none",
    }
    return text("attention", sizes, q, direction)


def _scaled_dot_product_flash_attention_for_cpu(a: Arguments, result: Any) -> list[Found]:
    """A mask in an array takes part as data; which pairs it hides is not known, so all count."""
    q, k, v = a["query"], a["key"], a["value"]
    reads = (q, k, v) if a["attn_mask"] is None else (q, k, v, a["attn_mask"])
    return [Found(_attention(q, k, v, a["is_causal"], "forward"), reads, tuple(result))]


def _scaled_dot_product_flash_attention_for_cpu_backward(a: Arguments, result: Any) -> list[Found]:
    q, k, v = a["query"], a["key"], a["value"]
    reads = (a["grad_out"], q, k, v, a["out"])
    return [Found(_attention(q, k, v, a["is_causal"], "backward"), reads, tuple(result))]


# ---- operations that memory limits


def _bernoulli_(a: Arguments, result: Any) -> list[Found]:
    """Drawing a mask of ones and zeros takes about as long as dropout. Attention draws one and multiplies by it."""
    keeps = a["p"]
    return [Found(dropout(result, 1 - keeps), (), (result,))] if isinstance(keeps, float) else []


def dropout(tensor: Any, probability: float) -> str:
    """The kernel that drops elements of a tensor with a probability, to a percent."""
    return text("dropout", {"n": tensor.numel(), "percent": min(99, max(1, round(100 * probability)))}, tensor)


def _same(*tensors: Any) -> bool:
    """Whether tensors have one shape, type and order, without gaps: an elementwise function of vectors."""
    first = tensors[0]
    return all(
        t.shape == first.shape and t.dtype == first.dtype and t.stride() == first.stride() for t in tensors
    ) and _is_dense(first)


def _is_dense(tensor: Any) -> bool:
    """Whether a tensor fills its part of the memory."""
    size = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length != 1:
            if stride != size:
                return False
            size *= length
    return True


def _elementwise(kind: str, direction: str, names: tuple[str, ...]) -> Callable[[Arguments, Any], list[Found]]:
    def find(a: Arguments, result: Any) -> list[Found]:
        inputs = [a[name] for name in names]
        if not all(hasattr(t, "shape") for t in inputs) or not _same(*inputs) or not inputs[0].numel():
            return []
        kernel = text("elementwise", {"kind": kind, "n": inputs[0].numel()}, inputs[0], direction)
        return [Found(kernel, tuple(inputs), (result,))]

    return find


def _by_argument(
    argument: str, kinds: Mapping[Any, str], direction: str, names: tuple[str, ...]
) -> Callable[[Arguments, Any], list[Found]]:
    def find(a: Arguments, result: Any) -> list[Found]:
        kind = kinds.get(a[argument])
        return _elementwise(kind, direction, names)(a, result) if kind else []

    return find


def _hardtanh(direction: str, names: tuple[str, ...]) -> Callable[[Arguments, Any], list[Found]]:
    def find(a: Arguments, result: Any) -> list[Found]:
        kind = "relu6" if (a["min_val"], a["max_val"]) == (0, 6) else "hardtanh"
        return _elementwise(kind, direction, names)(a, result)

    return find


def _addcmul(a: Arguments, result: Any) -> list[Found]:
    if a["value"] != 1:
        return []
    return _elementwise("multiply_add", "forward", ("self", "tensor1", "tensor2"))(a, result)


def _reduction(kind: str) -> Callable[[Arguments, Any], list[Found]]:
    def find(a: Arguments, result: Any) -> list[Found]:
        x = a["self"]
        dims = sorted({d % x.dim() for d in a.get("dim") or range(x.dim())}) if x.dim() else []
        if not dims or not x.is_contiguous() or not x.numel():
            return []
        over = math.prod(x.shape[d] for d in dims)
        if dims == list(range(x.dim() - len(dims), x.dim())):
            sizes = {"kind": kind, "rows": x.numel() // over, "columns": over}
        elif dims == list(range(len(dims))):
            sizes = {"kind": kind, "rows": over, "columns": x.numel() // over, "axis": "rows"}
        else:
            return []
        return [Found(text("reduction", sizes, x), (x,), (result,))]

    return find


def _embedding(a: Arguments, result: Any) -> list[Found]:
    table, indices = a["weight"], a["indices"]
    sizes = {"rows": table.shape[0], "dim": table.shape[1], "bags": indices.numel()}
    return [Found(text("embedding_bag", sizes, table), (indices,), (result,))]


def _embedding_dense_backward(a: Arguments, result: Any) -> list[Found]:
    dy, indices = a["grad_output"], a["indices"]
    sizes = {"rows": a["num_weights"], "dim": dy.shape[-1], "bags": indices.numel()}
    return [Found(text("embedding_bag", sizes, dy, "backward"), (dy, indices), (result,))]


def _embedding_bag(a: Arguments, result: Any) -> list[Found]:
    table, indices, offsets = a["weight"], a["indices"], a["offsets"]
    bags = offsets.numel() - bool(a.get("include_last_offset"))
    if a["mode"] != 0 or a["per_sample_weights"] is not None or not bags or indices.numel() % bags:
        return []
    sizes = {"rows": table.shape[0], "dim": table.shape[1], "bags": bags, "bag": indices.numel() // bags}
    return [Found(text("embedding_bag", sizes, table), (indices, offsets), (result[0],))]


def _embedding_bag_backward(a: Arguments, result: Any) -> list[Found]:
    dy, indices = a["grad"], a["indices"]
    bags = dy.shape[0]
    if a["mode"] != 0 or a["sparse"] or not bags or indices.numel() % bags:
        return []
    sizes = {"rows": a["num_weights"], "dim": dy.shape[1], "bags": bags, "bag": indices.numel() // bags}
    return [Found(text("embedding_bag", sizes, dy, "backward"), (dy, indices), (result,))]


def _topk(a: Arguments, result: Any) -> list[Found]:
    x = a["self"]
    if a["dim"] % x.dim() != x.dim() - 1 or not a["largest"]:
        return []
    sizes = {"rows": x.numel() // x.shape[-1], "columns": x.shape[-1], "k": a["k"]}
    return [Found(text("top_k", sizes, x, sorted="yes" if a["sorted"] else "no"), (x,), tuple(result))]


def _fused(kind: str) -> Callable[[Arguments, Any], list[Found]]:
    def find(a: Arguments, result: Any) -> list[Found]:
        parameters = a["self"]
        state = [t for name, values in a.items() if isinstance(values, list) and name != "state_steps" for t in values]
        n = sum(t.numel() for t in parameters)
        written = tuple(t for t in state if t is not None)
        return [Found(text("optimizer", {"kind": kind, "n": n}, parameters[0]), tuple(state), written)]

    return find


TANH_OR_NOT = {"none": "gelu", "tanh": "gelu_tanh"}

KERNELS: dict[str, Callable[[Arguments, Any], list[Found]]] = {
    "mm": _mm,
    "addmm": _addmm,
    "linear": _linear,
    "bmm": _bmm,
    "baddbmm": _baddbmm,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "max_pool2d_with_indices": _max_pool2d_with_indices,
    "max_pool2d_with_indices_backward": _max_pool2d_with_indices_backward,
    "max_pool3d_with_indices": _max_pool2d_with_indices,
    "max_pool3d_with_indices_backward": _max_pool2d_with_indices_backward,
    "avg_pool2d": _avg_pool2d,
    "avg_pool2d_backward": _avg_pool2d_backward,
    "avg_pool3d": _avg_pool2d,
    "avg_pool3d_backward": _avg_pool2d_backward,
    "upsample_nearest2d": _upsample_nearest2d,
    "native_layer_norm": _native_layer_norm,
    "native_layer_norm_backward": _native_layer_norm_backward,
    "_fused_rms_norm": _fused_rms_norm,
    "native_batch_norm": _native_batch_norm,
    "_native_batch_norm_legit": _native_batch_norm,
    "native_batch_norm_backward": _native_batch_norm_backward,
    "native_group_norm": _native_group_norm,
    "native_group_norm_backward": _native_group_norm_backward,
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "_softmax_backward_data": _softmax_backward_data,
    "_log_softmax_backward_data": _softmax_backward_data,
    "_scaled_dot_product_flash_attention_for_cpu": _scaled_dot_product_flash_attention_for_cpu,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _scaled_dot_product_flash_attention_for_cpu_backward,
    "bernoulli_": _bernoulli_,
    "relu": _elementwise("relu", "forward", ("self",)),
    "relu_": _elementwise("relu", "forward", ("self",)),
    "threshold_backward": _elementwise("relu", "backward", ("grad_output", "self")),
    "gelu": _by_argument("approximate", TANH_OR_NOT, "forward", ("self",)),
    "gelu_backward": _by_argument("approximate", TANH_OR_NOT, "backward", ("grad_output", "self")),
    "silu": _elementwise("silu", "forward", ("self",)),
    "silu_": _elementwise("silu", "forward", ("self",)),
    "silu_backward": _elementwise("silu", "backward", ("grad_output", "self")),
    "sigmoid": _elementwise("sigmoid", "forward", ("self",)),
    "sigmoid_": _elementwise("sigmoid", "forward", ("self",)),
    "sigmoid_backward": _elementwise("sigmoid", "backward", ("grad_output", "output")),
    "tanh": _elementwise("tanh", "forward", ("self",)),
    "tanh_": _elementwise("tanh", "forward", ("self",)),
    "tanh_backward": _elementwise("tanh", "backward", ("grad_output", "output")),
    "elu": _elementwise("elu", "forward", ("self",)),
    "hardtanh": _hardtanh("forward", ("self",)),
    "hardtanh_": _hardtanh("forward", ("self",)),
    "hardtanh_backward": _hardtanh("backward", ("grad_output", "self")),
    "add.Tensor": _elementwise("add", "forward", ("self", "other")),
    "add_.Tensor": _elementwise("add", "forward", ("self", "other")),
    "mul.Tensor": _elementwise("multiply", "forward", ("self", "other")),
    "mul_.Tensor": _elementwise("multiply", "forward", ("self", "other")),
    "addcmul": _addcmul,
    "sum": _reduction("sum"),
    "sum.dim_IntList": _reduction("sum"),
    "mean": _reduction("mean"),
    "mean.dim": _reduction("mean"),
    "amax": _reduction("max"),
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_dense_backward,
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_backward": _embedding_bag_backward,
    "_embedding_bag_dense_backward": _embedding_bag_backward,
    "topk": _topk,
    "_fused_sgd_": _fused("sgd"),
    "_fused_adam_": _fused("adam"),
    "_fused_adamw_": _fused("adamw"),
    "_fused_adagrad_": _fused("adagrad"),
}
"""By the name of an operator, or of an operator and its overload."""


def kernels_of(name: str, overload: str, arguments: Arguments, result: Any) -> list[Found]:
    """The kernels of an operator; none of one that is no operation of ours with these sizes and types."""
    find = KERNELS.get(f"{name}.{overload}") or KERNELS.get(name)
    if find is None:
        return []
    try:
        return find(arguments, result)
    except BadInput:
        return []
