"""Which of our kernels an operator of PyTorch is: a private function for each operator, named like it.

A function has the arguments of the operator by their names in PyTorch's schema, and its results. It returns the texts
of the kernels that the operator consists of, each with the tensors that it reads and writes; none where the operator is
no operation of ours in this form, such as an addition with broadcasting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.networks import rules
from deepbench.networks.kernels import kernel_text
from deepbench.networks.rules import Window

PRECISIONS = {"torch.float32": "f32", "torch.bfloat16": "bf16", "torch.float16": "f16"}

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class OperatorKernel:
    """A kernel of an operator with its tensors."""

    kernel: str
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]


def precision_of(tensor: Any) -> str | None:
    """The precision with the type of a tensor; None if there is none."""
    return PRECISIONS.get(str(tensor.dtype))


# ---- products


def _matrix(tensor: Any) -> tuple[int, Any] | None:
    """Whether a matrix is stored transposed (1 or 0); None if its rows and columns are both strided."""
    rows, columns = tensor.stride()[-2:]
    if columns == 1 and rows >= tensor.shape[-1]:
        return 0, tensor
    return (1, tensor) if rows == 1 and columns >= tensor.shape[-2] else None


def _product(left: Any, right: Any, written: Any, add: Any = None) -> list[OperatorKernel]:
    """left (n × k) · right (k × m): row-major matrices are our column-major ones, so A is `right`."""
    stored = _matrix(left), _matrix(right)
    b_t, a_t = (1 if s is None else s[0] for s in stored)
    (n, k), m = left.shape, right.shape[1]
    sizes = {"m": m, "n": n, "k": k, "a_t": a_t, "b_t": b_t}
    result = "wide" if left.dtype.itemsize == 4 else "narrow"
    beta = "0" if add is None else "1"
    reads = (left, right) if add is None else (left, right, add)
    return [OperatorKernel(kernel_text("gemm", sizes, precision_of(left), beta=beta, result=result), reads, (written,))]


def _mm(a: Arguments, result: Any) -> list[OperatorKernel]:
    return _product(a["self"], a["mat2"], result)


def _addmm(a: Arguments, result: Any) -> list[OperatorKernel]:
    bias, left, right = a["self"], a["mat1"], a["mat2"]
    if bias.dim() == 2 and bias.shape[0] > 1:
        return _product(left, right, result, bias)
    return _layer(left, right.mT, bias, result)


def _layer(x: Any, weight: Any, bias: Any, result: Any) -> list[OperatorKernel]:
    sizes = {"m": weight.shape[0], "n": math.prod(x.shape[:-1]), "k": x.shape[-1]}
    has = "no" if bias is None else "yes"
    reads = (x, weight) if bias is None else (x, weight, bias)
    return [OperatorKernel(kernel_text("linear", sizes, precision_of(x), bias=has), reads, (result,))]


def _linear(a: Arguments, result: Any) -> list[OperatorKernel]:
    return _layer(a["input"], a["weight"], a["bias"], result)


def _products(left: Any, right: Any, result: Any) -> list[OperatorKernel]:
    stored = _matrix(left), _matrix(right)
    b_t, a_t = (1 if s is None else s[0] for s in stored)
    batch, n, k = left.shape
    sizes = {"batch": batch, "m": right.shape[2], "n": n, "k": k, "a_t": a_t, "b_t": b_t}
    return [OperatorKernel(kernel_text("batched_gemm", sizes, precision_of(left)), (left, right), (result,))]


def _bmm(a: Arguments, result: Any) -> list[OperatorKernel]:
    return _products(a["self"], a["mat2"], result)


def _baddbmm(a: Arguments, result: Any) -> list[OperatorKernel]:
    return _products(a["batch1"], a["batch2"], result)


# ---- convolution, pooling, resizing


def _layout(*tensors: Any) -> str:
    """`nhwc` if the channels of an image are next to each other, and it would not be the usual layout, too."""
    is_last = (t.dim() > 3 and t.stride()[1] == 1 and not t.is_contiguous() and t.shape[1] > 1 for t in tensors)
    return "nhwc" if any(is_last) else "nchw"


def _window(a: Arguments, sides: Sequence[int], stride: Sequence[int]) -> Window:
    """One number in place of a list is for all axes."""
    given = (list(values) for values in (sides, stride, a["padding"], a.get("dilation") or [1]))
    axes = a["self" if "self" in a else "input"].dim() - 2
    return Window(*(values * axes if len(values) == 1 else values for values in given))


def _conv(a: Arguments, image: Any, result: Any, x: Any, direction: str, **settings: str) -> str:
    window, groups = _window(a, a["weight"].shape[2:], a["stride"]), a["groups"]
    return rules.convolution(window, image.shape, result.shape, precision_of(x), direction, groups, **settings)


def _convolution(a: Arguments, result: Any) -> list[OperatorKernel]:
    """A transposed convolution is the data gradient of the convolution from its result to its input."""
    x, w, bias = a["input"], a["weight"], a["bias"]
    layout = _layout(x, w)
    if a["transposed"]:
        return [OperatorKernel(_conv(a, result, x, x, "backward_data", layout=layout), (x, w), (result,))]
    has = "no" if bias is None else "yes"
    reads = (x, w) if bias is None else (x, w, bias)
    return [OperatorKernel(_conv(a, x, result, x, "forward", layout=layout, bias=has), reads, (result,))]


def _convolution_backward(a: Arguments, result: Any) -> list[OperatorKernel]:
    dy, x, w = a["grad_output"], a["input"], a["weight"]
    dx, dw, db = result
    layout = _layout(dy, x, w)
    image, of_image, of_data = (dy, x, "forward") if a["transposed"] else (x, dy, "backward_data")
    found = []
    if dx is not None:
        found.append(OperatorKernel(_conv(a, image, of_image, x, of_data, layout=layout), (dy, w), (dx,)))
    if dw is not None:
        has = "no" if db is None else "yes"
        writes = (dw,) if db is None else (dw, db)
        kernel = _conv(a, image, of_image, x, "backward_weights", layout=layout, bias=has)
        found.append(OperatorKernel(kernel, (dy, x), writes))
    return found


def _pooling(kind: str, direction: str) -> Callable[[Arguments, Any], list[OperatorKernel]]:
    def find(a: Arguments, result: Any) -> list[OperatorKernel]:
        if a["ceil_mode"] or a.get("divisor_override"):
            return []
        x, results = a["self"], tuple(result) if isinstance(result, tuple) else (result,)
        is_forward = direction == "forward"
        reads = (x,) if is_forward else tuple(a[name] for name in ("grad_output", "indices") if name in a)
        outputs = results[0] if is_forward else a["grad_output"]
        window = _window(a, a["kernel_size"], a["stride"] or a["kernel_size"])
        kernel = rules.pooling(kind, window, x.shape, outputs.shape, precision_of(x), direction, layout=_layout(x))
        return [OperatorKernel(kernel, reads, results)]

    return find


def _upsample_nearest2d(a: Arguments, result: Any) -> list[OperatorKernel]:
    x = a["input"] if "input" in a else a["self"]
    return [OperatorKernel(rules.upsample(x.shape, result.shape, precision_of(x), layout=_layout(x)), (x,), (result,))]


# ---- normalization and softmax


def _by_rows(op: str, direction: str, names: tuple[str, ...]) -> Callable[[Arguments, Any], list[OperatorKernel]]:
    """A normalization of rows; the inputs by the names of their arguments."""

    def find(a: Arguments, result: Any) -> list[OperatorKernel]:
        x = a["input"]
        kernel = rules.by_rows(op, x.shape, math.prod(a["normalized_shape"]), precision_of(x), direction)
        results = result[:1] if op == "rms_norm" else result
        return [OperatorKernel(kernel, _present(a[name] for name in names), _present(results))]

    return find


def _present(tensors: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(t for t in tensors if t is not None)


def _native_batch_norm(a: Arguments, result: Any) -> list[OperatorKernel]:
    x = a["input"]
    mode = "training" if a["training"] else "inference"
    return [
        OperatorKernel(rules.batch_norm(x.shape, precision_of(x), mode=mode, layout=_layout(x)), (x,), (result[0],))
    ]


def _native_batch_norm_backward(a: Arguments, result: Any) -> list[OperatorKernel]:
    x, dy = a["input"], a["grad_out"]
    mode = "training" if a["train"] else "inference"
    kernel = rules.batch_norm(x.shape, precision_of(x), "backward", mode=mode, layout=_layout(x, dy))
    return [OperatorKernel(kernel, (dy, x), _present(result))]


def _native_group_norm(a: Arguments, result: Any) -> list[OperatorKernel]:
    x = a["input"]
    return [OperatorKernel(rules.group_norm(x.shape, a["group"], precision_of(x)), (x,), (result[0],))]


def _native_group_norm_backward(a: Arguments, result: Any) -> list[OperatorKernel]:
    x = a["input"]
    kernel = rules.group_norm(x.shape, a["group"], precision_of(x), "backward")
    return [OperatorKernel(kernel, (a["grad_out"], x), _present(result))]


def _softmax(direction: str, names: tuple[str, ...]) -> Callable[[Arguments, Any], list[OperatorKernel]]:
    """Also its logarithm, which has as many exponentials."""

    def find(a: Arguments, result: Any) -> list[OperatorKernel]:
        inputs = tuple(a[name] for name in names)
        x = inputs[0]
        if a["dim"] % x.dim() != x.dim() - 1:
            return []
        return [
            OperatorKernel(
                rules.by_rows("softmax", x.shape, x.shape[-1], precision_of(x), direction), inputs, (result,)
            )
        ]

    return find


# ---- attention


def attention(q: Any, k: Any, v: Any, is_causal: bool, direction: str) -> str:
    """The kernel of attention of these tensors."""
    return rules.attention(q.shape, k.shape, v.shape, is_causal, precision_of(q), direction)


def _scaled_dot_product_flash_attention_for_cpu(a: Arguments, result: Any) -> list[OperatorKernel]:
    """A mask in an array takes part as data; which pairs it hides is not known, so all count."""
    q, k, v = a["query"], a["key"], a["value"]
    reads = (q, k, v) if a["attn_mask"] is None else (q, k, v, a["attn_mask"])
    return [OperatorKernel(attention(q, k, v, a["is_causal"], "forward"), reads, tuple(result))]


def _scaled_dot_product_flash_attention_for_cpu_backward(a: Arguments, result: Any) -> list[OperatorKernel]:
    q, k, v = a["query"], a["key"], a["value"]
    reads = (a["grad_out"], q, k, v, a["out"])
    return [OperatorKernel(attention(q, k, v, a["is_causal"], "backward"), reads, tuple(result))]


# ---- operations that memory limits


def _bernoulli_(a: Arguments, result: Any) -> list[OperatorKernel]:
    """Drawing a mask of ones and zeros takes about as long as dropout. Attention draws one and multiplies by it."""
    keeps = a["p"]
    return [OperatorKernel(dropout(result, 1 - keeps), (), (result,))] if isinstance(keeps, float) else []


def dropout(tensor: Any, probability: float) -> str:
    """The kernel that drops elements of a tensor with a probability, to a percent."""
    percent = min(99, max(1, round(100 * probability)))
    return kernel_text("dropout", {"n": tensor.numel(), "percent": percent}, precision_of(tensor))


def _same(*tensors: Any) -> bool:
    """Whether tensors have one shape, type and order, without gaps: an elementwise function of vectors."""
    first = tensors[0]
    return all(
        t.shape == first.shape and t.dtype == first.dtype and t.stride() == first.stride() for t in tensors
    ) and rules.is_dense(first.shape, first.stride())


def _elementwise(kind: str, direction: str, names: tuple[str, ...]) -> Callable[[Arguments, Any], list[OperatorKernel]]:
    def find(a: Arguments, result: Any) -> list[OperatorKernel]:
        inputs = [a[name] for name in names]
        if not all(hasattr(t, "shape") for t in inputs) or not _same(*inputs) or not inputs[0].numel():
            return []
        kernel = rules.elementwise(kind, inputs[0].numel(), precision_of(inputs[0]), direction)
        return [OperatorKernel(kernel, tuple(inputs), (result,))]

    return find


def _by_argument(
    argument: str, kinds: Mapping[Any, str], direction: str, names: tuple[str, ...]
) -> Callable[[Arguments, Any], list[OperatorKernel]]:
    def find(a: Arguments, result: Any) -> list[OperatorKernel]:
        kind = kinds.get(a[argument])
        return _elementwise(kind, direction, names)(a, result) if kind else []

    return find


def _hardtanh(direction: str, names: tuple[str, ...]) -> Callable[[Arguments, Any], list[OperatorKernel]]:
    def find(a: Arguments, result: Any) -> list[OperatorKernel]:
        kind = "relu6" if (a["min_val"], a["max_val"]) == (0, 6) else "hardtanh"
        return _elementwise(kind, direction, names)(a, result)

    return find


def _addcmul(a: Arguments, result: Any) -> list[OperatorKernel]:
    if a["value"] != 1:
        return []
    return _elementwise("multiply_add", "forward", ("self", "tensor1", "tensor2"))(a, result)


def _reduction(kind: str) -> Callable[[Arguments, Any], list[OperatorKernel]]:
    def find(a: Arguments, result: Any) -> list[OperatorKernel]:
        x = a["self"]
        if not x.is_contiguous():
            return []
        return [
            OperatorKernel(
                rules.reduction(kind, x.shape, a.get("dim") or range(x.dim()), precision_of(x)), (x,), (result,)
            )
        ]

    return find


def _embedding(a: Arguments, result: Any) -> list[OperatorKernel]:
    (rows, dim), table, indices = a["weight"].shape, a["weight"], a["indices"]
    return [OperatorKernel(rules.embedding(rows, dim, indices.numel(), precision_of(table)), (indices,), (result,))]


def _embedding_dense_backward(a: Arguments, result: Any) -> list[OperatorKernel]:
    dy, indices = a["grad_output"], a["indices"]
    kernel = rules.embedding(a["num_weights"], dy.shape[-1], indices.numel(), precision_of(dy), "backward")
    return [OperatorKernel(kernel, (dy, indices), (result,))]


def _embedding_bag(a: Arguments, result: Any) -> list[OperatorKernel]:
    (rows, dim), table, indices, offsets = a["weight"].shape, a["weight"], a["indices"], a["offsets"]
    bags = offsets.numel() - bool(a.get("include_last_offset"))
    if a["mode"] != 0 or a["per_sample_weights"] is not None or not bags or indices.numel() % bags:
        return []
    kernel = rules.embedding(rows, dim, bags, precision_of(table), bag=indices.numel() // bags)
    return [OperatorKernel(kernel, (indices, offsets), (result[0],))]


def _embedding_bag_backward(a: Arguments, result: Any) -> list[OperatorKernel]:
    dy, indices = a["grad"], a["indices"]
    bags, dim = dy.shape
    if a["mode"] != 0 or a["sparse"] or not bags or indices.numel() % bags:
        return []
    kernel = rules.embedding(a["num_weights"], dim, bags, precision_of(dy), "backward", indices.numel() // bags)
    return [OperatorKernel(kernel, (dy, indices), (result,))]


def _topk(a: Arguments, result: Any) -> list[OperatorKernel]:
    x = a["self"]
    if a["dim"] % x.dim() != x.dim() - 1 or not a["largest"]:
        return []
    kernel = rules.top_k(x.shape, a["k"], precision_of(x), sorted="yes" if a["sorted"] else "no")
    return [OperatorKernel(kernel, (x,), tuple(result))]


def _fused(kind: str) -> Callable[[Arguments, Any], list[OperatorKernel]]:
    def find(a: Arguments, result: Any) -> list[OperatorKernel]:
        parameters = a["self"]
        state = [t for name, values in a.items() if isinstance(values, list) and name != "state_steps" for t in values]
        n = sum(t.numel() for t in parameters)
        written = tuple(t for t in state if t is not None)
        kernel = kernel_text("optimizer", {"kind": kind, "n": n}, precision_of(parameters[0]))
        return [OperatorKernel(kernel, tuple(state), written)]

    return find


TANH_OR_NOT = {"none": "gelu", "tanh": "gelu_tanh"}

KERNELS: dict[str, Callable[[Arguments, Any], list[OperatorKernel]]] = {
    "mm": _mm,
    "addmm": _addmm,
    "linear": _linear,
    "bmm": _bmm,
    "baddbmm": _baddbmm,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "max_pool2d_with_indices": _pooling("max", "forward"),
    "max_pool2d_with_indices_backward": _pooling("max", "backward"),
    "max_pool3d_with_indices": _pooling("max", "forward"),
    "max_pool3d_with_indices_backward": _pooling("max", "backward"),
    "avg_pool2d": _pooling("average", "forward"),
    "avg_pool2d_backward": _pooling("average", "backward"),
    "avg_pool3d": _pooling("average", "forward"),
    "avg_pool3d_backward": _pooling("average", "backward"),
    "upsample_nearest2d": _upsample_nearest2d,
    "native_layer_norm": _by_rows("layer_norm", "forward", ("input", "weight", "bias")),
    "native_layer_norm_backward": _by_rows("layer_norm", "backward", ("grad_out", "input")),
    "_fused_rms_norm": _by_rows("rms_norm", "forward", ("input", "weight")),
    "native_batch_norm": _native_batch_norm,
    "_native_batch_norm_legit": _native_batch_norm,
    "native_batch_norm_backward": _native_batch_norm_backward,
    "native_group_norm": _native_group_norm,
    "native_group_norm_backward": _native_group_norm_backward,
    "_softmax": _softmax("forward", ("self",)),
    "_log_softmax": _softmax("forward", ("self",)),
    "_softmax_backward_data": _softmax("backward", ("grad_output", "output")),
    "_log_softmax_backward_data": _softmax("backward", ("grad_output", "output")),
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


def kernels_of(name: str, overload: str, arguments: Arguments, result: Any) -> list[OperatorKernel]:
    """The kernels of an operator; none of one that is no operation of ours with these sizes and types."""
    find = KERNELS.get(f"{name}.{overload}") or KERNELS.get(name)
    if find is None:
        return []
    try:
        return find(arguments, result)
    except (BadInput, ZeroDivisionError, IndexError):  # also of a tensor without axes
        return []
