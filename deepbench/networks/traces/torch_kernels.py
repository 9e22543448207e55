"""Which of our kernels an operator of PyTorch is: `KERNELS` has a function for each operator.

A function has the arguments of the operator by their names in PyTorch's schema, and its results. It returns the texts
of the kernels that the operator consists of, each with the tensors that it reads and writes. `BadInput` where the
operator is no operation of ours in this form, such as an addition with broadcasting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.networks.traces import kernel_rules as rules
from deepbench.networks.traces.kernel_rules import Window
from deepbench.networks.traces.kernels import kernel_text

PRECISIONS = {"torch.float32": "f32", "torch.bfloat16": "bf16", "torch.float16": "f16"}

Arguments = Mapping[str, Any]
Finder = Callable[[Arguments, Any], "list[TorchKernel]"]


@dataclass(frozen=True)
class TorchKernel:
    """A kernel of an operator with its tensors."""

    kernel: str
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]


def _one(text: Callable[[Arguments, Any], str], *names: str, writes: int | None = None) -> Finder:
    """An operator that is one kernel with this text. It reads arguments with these names and writes its results, or so
    many of them."""

    def find(a: Arguments, result: Any) -> list[TorchKernel]:
        results = result if isinstance(result, tuple) else (result,)
        return [TorchKernel(text(a, result), _present(a[name] for name in names), _present(results[:writes]))]

    return find


def _present(tensors: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(t for t in tensors if t is not None)


def precision_of(tensor: Any) -> str | None:
    """The precision with the type of a tensor; None if there is none."""
    return PRECISIONS.get(str(tensor.dtype))


# ---- products


def _matrix(tensor: Any) -> int | None:
    """Whether a matrix is stored transposed (1 or 0); None if its rows and columns are both strided."""
    rows, columns = tensor.stride()[-2:]
    if columns == 1 and rows >= tensor.shape[-1]:
        return 0
    return 1 if rows == 1 and columns >= tensor.shape[-2] else None


def _product(left: Any, right: Any, written: Any, add: Any = None) -> list[TorchKernel]:
    """left (n × k) · right (k × m): row-major matrices are our column-major ones, so A is `right`."""
    stored = _matrix(left), _matrix(right)
    b_t, a_t = (1 if s is None else s for s in stored)
    (n, k), m = left.shape, right.shape[1]
    sizes = {"m": m, "n": n, "k": k, "a_t": a_t, "b_t": b_t}
    result = "wide" if left.dtype.itemsize == 4 else "narrow"
    beta = "0" if add is None else "1"
    kernel = kernel_text("gemm", sizes, precision_of(left), beta=beta, result=result)
    return [TorchKernel(kernel, _present((left, right, add)), (written,))]


def _addmm(a: Arguments, result: Any) -> list[TorchKernel]:
    bias, left, right = a["self"], a["mat1"], a["mat2"]
    if bias.dim() == 2 and bias.shape[0] > 1:
        return _product(left, right, result, bias)
    return _layer(left, right.mT, bias, result)


def _layer(x: Any, weight: Any, bias: Any, result: Any) -> list[TorchKernel]:
    sizes = {"m": weight.shape[0], "n": math.prod(x.shape[:-1]), "k": x.shape[-1]}
    kernel = kernel_text("linear", sizes, precision_of(x), bias=_yes(bias))
    return [TorchKernel(kernel, _present((x, weight, bias)), (result,))]


def _yes(tensor: Any) -> str:
    return "no" if tensor is None else "yes"


def _products(left: str, right: str) -> Finder:
    """Of matrices in arguments with these names."""

    def text(a: Arguments, _: Any) -> str:
        stored = _matrix(a[left]), _matrix(a[right])
        b_t, a_t = (1 if s is None else s for s in stored)
        (batch, n, k), m = a[left].shape, a[right].shape[2]
        sizes = {"batch": batch, "m": m, "n": n, "k": k, "a_t": a_t, "b_t": b_t}
        return kernel_text("batched_gemm", sizes, precision_of(a[left]))

    return _one(text, left, right)


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


def _convolution(a: Arguments, result: Any) -> list[TorchKernel]:
    """A transposed convolution is the data gradient of the convolution from its result to its input."""
    x, w, bias = a["input"], a["weight"], a["bias"]
    layout = _layout(x, w)
    if a["transposed"]:
        return [TorchKernel(_conv(a, result, x, x, "backward_data", layout=layout), (x, w), (result,))]
    kernel = _conv(a, x, result, x, "forward", layout=layout, bias=_yes(bias))
    return [TorchKernel(kernel, _present((x, w, bias)), (result,))]


def _convolution_backward(a: Arguments, result: Any) -> list[TorchKernel]:
    dy, x, w = a["grad_output"], a["input"], a["weight"]
    dx, dw, db = result
    layout = _layout(dy, x, w)
    image, of_image, of_data = (dy, x, "forward") if a["transposed"] else (x, dy, "backward_data")
    found = []
    if dx is not None:
        found.append(TorchKernel(_conv(a, image, of_image, x, of_data, layout=layout), (dy, w), (dx,)))
    if dw is not None:
        kernel = _conv(a, image, of_image, x, "backward_weights", layout=layout, bias=_yes(db))
        found.append(TorchKernel(kernel, (dy, x), _present((dw, db))))
    return found


def _pooling(kind: str, *names: str) -> Finder:
    """Forward, or backward with the gradient of the result as the first argument."""

    def text(a: Arguments, result: Any) -> str:
        if a["ceil_mode"] or a.get("divisor_override"):
            raise BadInput("windows are cut off, or divided by another number")
        x, direction = a["self"], "forward" if names[0] == "self" else "backward"
        outputs = a[names[0]] if direction == "backward" else result[0] if kind == "max" else result
        window = _window(a, a["kernel_size"], a["stride"] or a["kernel_size"])
        return rules.pooling(kind, window, x.shape, outputs.shape, precision_of(x), direction, layout=_layout(x))

    return _one(text, *names)


def _upsample_nearest2d(a: Arguments, result: Any) -> list[TorchKernel]:
    x = a["input"] if "input" in a else a["self"]
    return [TorchKernel(rules.upsample(x.shape, result.shape, precision_of(x), layout=_layout(x)), (x,), (result,))]


# ---- normalization and softmax


def _by_rows(op: str, direction: str = "forward") -> Callable[[Arguments, Any], str]:
    def text(a: Arguments, _: Any) -> str:
        x = a["input"]
        return rules.by_rows(op, x.shape, math.prod(a["normalized_shape"]), precision_of(x), direction)

    return text


def _batch_norm(a: Arguments, _: Any) -> str:
    x, mode = a["input"], "training" if a["training"] else "inference"
    return rules.batch_norm(x.shape, precision_of(x), mode=mode, layout=_layout(x))


def _batch_norm_backward(a: Arguments, _: Any) -> str:
    x, mode = a["input"], "training" if a["train"] else "inference"
    return rules.batch_norm(x.shape, precision_of(x), "backward", mode=mode, layout=_layout(x, a["grad_out"]))


def _group_norm(direction: str = "forward") -> Callable[[Arguments, Any], str]:
    return lambda a, _: rules.group_norm(a["input"].shape, a["group"], precision_of(a["input"]), direction)


def _softmax(*names: str) -> Finder:
    """Also its logarithm, which has as many exponentials."""

    def text(a: Arguments, _: Any) -> str:
        x, direction = a[names[0]], "forward" if names[0] == "self" else "backward"
        if a["dim"] % x.dim() != x.dim() - 1:
            raise BadInput("it is not over rows")
        return rules.by_rows("softmax", x.shape, x.shape[-1], precision_of(x), direction)

    return _one(text, *names)


# ---- attention


def attention(q: Any, k: Any, v: Any, is_causal: bool, direction: str) -> str:
    """The kernel of attention of these tensors."""
    return rules.attention(q.shape, k.shape, v.shape, is_causal, precision_of(q), direction)


def _flash_attention(direction: str) -> Callable[[Arguments, Any], str]:
    """A mask in an array takes part as data; which pairs it hides is not known, so all count."""
    return lambda a, _: attention(a["query"], a["key"], a["value"], a["is_causal"], direction)


# ---- operations that memory limits


def _bernoulli_(a: Arguments, result: Any) -> str:
    """Drawing a mask of ones and zeros takes about as long as dropout. Attention draws one and multiplies by it."""
    if not isinstance(a["p"], float):
        raise BadInput("the probabilities are an array")
    return dropout(result, 1 - a["p"])


def dropout(tensor: Any, probability: float) -> str:
    """The kernel that drops elements of a tensor with a probability, to a percent."""
    percent = min(99, max(1, round(100 * probability)))
    return kernel_text("dropout", {"n": tensor.numel(), "percent": percent}, precision_of(tensor))


def _elementwise(kind: str, direction: str, names: tuple[str, ...]) -> Finder:
    """Of tensors of one shape, type and order, without gaps: a function of vectors."""

    def text(a: Arguments, _: Any) -> str:
        first, *others = (a[name] for name in names)
        if not all(_is_alike(first, other) for other in others) or not rules.is_dense(first.shape, first.stride()):
            raise BadInput("the operands differ in shape or order, or have gaps")
        return rules.elementwise(kind, first.numel(), precision_of(first), direction)

    return _one(text, *names)


def _is_alike(one: Any, other: Any) -> bool:
    if not hasattr(other, "shape"):  # a number
        return False
    return bool(one.shape == other.shape and one.dtype == other.dtype and one.stride() == other.stride())


def _gelu(direction: str, names: tuple[str, ...]) -> Finder:
    def find(a: Arguments, result: Any) -> list[TorchKernel]:
        kind = {"none": "gelu", "tanh": "gelu_tanh"}[a["approximate"]]
        return _elementwise(kind, direction, names)(a, result)

    return find


def _hardtanh(direction: str, names: tuple[str, ...]) -> Finder:
    def find(a: Arguments, result: Any) -> list[TorchKernel]:
        kind = "relu6" if (a["min_val"], a["max_val"]) == (0, 6) else "hardtanh"
        return _elementwise(kind, direction, names)(a, result)

    return find


def _addcmul(a: Arguments, result: Any) -> list[TorchKernel]:
    if a["value"] != 1:
        return []
    return _elementwise("multiply_add", "forward", ("self", "tensor1", "tensor2"))(a, result)


def _reduction(kind: str) -> Finder:
    def text(a: Arguments, _: Any) -> str:
        x = a["self"]
        if not x.is_contiguous():
            raise BadInput("the rows have gaps")
        return rules.reduction(kind, x.shape, a.get("dim") or range(x.dim()), precision_of(x))

    return _one(text, "self")


def _embedding(a: Arguments, _: Any) -> str:
    rows, dim = a["weight"].shape
    return rules.embedding(rows, dim, a["indices"].numel(), precision_of(a["weight"]))


def _embedding_dense_backward(a: Arguments, _: Any) -> str:
    dy = a["grad_output"]
    return rules.embedding(a["num_weights"], dy.shape[-1], a["indices"].numel(), precision_of(dy), "backward")


def _embedding_bag(a: Arguments, _: Any) -> str:
    bags = a["offsets"].numel() - bool(a.get("include_last_offset"))
    if a["per_sample_weights"] is not None:
        raise BadInput("the rows have weights")
    rows, dim = a["weight"].shape
    return rules.embedding(rows, dim, bags, precision_of(a["weight"]), bag=_bag(a, bags))


def _embedding_bag_backward(a: Arguments, _: Any) -> str:
    dy = a["grad"]
    if a["sparse"]:
        raise BadInput("the gradient is sparse")
    bags, dim = dy.shape
    return rules.embedding(a["num_weights"], dim, bags, precision_of(dy), "backward", _bag(a, bags))


def _bag(a: Arguments, bags: int) -> int:
    """Rows of each bag."""
    rows = a["indices"].numel()
    if a["mode"] != 0 or not bags or rows % bags:
        raise BadInput("it is no sum, or the bags differ in size")
    return int(rows // bags)


def _topk(a: Arguments, _: Any) -> str:
    x = a["self"]
    if a["dim"] % x.dim() != x.dim() - 1 or not a["largest"]:
        raise BadInput("it is not of the largest of each row")
    return rules.top_k(x.shape, a["k"], precision_of(x), sorted="yes" if a["sorted"] else "no")


def _fused(kind: str) -> Finder:
    def find(a: Arguments, result: Any) -> list[TorchKernel]:
        parameters = a["self"]
        state = [t for name, values in a.items() if isinstance(values, list) and name != "state_steps" for t in values]
        n = sum(t.numel() for t in parameters)
        written = tuple(t for t in state if t is not None)
        kernel = kernel_text("optimizer", {"kind": kind, "n": n}, precision_of(parameters[0]))
        return [TorchKernel(kernel, tuple(state), written)]

    return find


KERNELS: dict[str, Finder] = {
    "mm": lambda a, result: _product(a["self"], a["mat2"], result),
    "addmm": _addmm,
    "linear": lambda a, result: _layer(a["input"], a["weight"], a["bias"], result),
    "bmm": _products("self", "mat2"),
    "baddbmm": _products("batch1", "batch2"),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "max_pool2d_with_indices": _pooling("max", "self"),
    "max_pool2d_with_indices_backward": _pooling("max", "grad_output", "indices"),
    "max_pool3d_with_indices": _pooling("max", "self"),
    "max_pool3d_with_indices_backward": _pooling("max", "grad_output", "indices"),
    "avg_pool2d": _pooling("average", "self"),
    "avg_pool2d_backward": _pooling("average", "grad_output"),
    "avg_pool3d": _pooling("average", "self"),
    "avg_pool3d_backward": _pooling("average", "grad_output"),
    "upsample_nearest2d": _upsample_nearest2d,
    "native_layer_norm": _one(_by_rows("layer_norm"), "input", "weight", "bias"),
    "native_layer_norm_backward": _one(_by_rows("layer_norm", "backward"), "grad_out", "input"),
    "_fused_rms_norm": _one(_by_rows("rms_norm"), "input", "weight", writes=1),
    "native_batch_norm": _one(_batch_norm, "input", writes=1),
    "_native_batch_norm_legit": _one(_batch_norm, "input", writes=1),
    "native_batch_norm_backward": _one(_batch_norm_backward, "grad_out", "input"),
    "native_group_norm": _one(_group_norm(), "input", writes=1),
    "native_group_norm_backward": _one(_group_norm("backward"), "grad_out", "input"),
    "_softmax": _softmax("self"),
    "_log_softmax": _softmax("self"),
    "_softmax_backward_data": _softmax("grad_output", "output"),
    "_log_softmax_backward_data": _softmax("grad_output", "output"),
    "_scaled_dot_product_flash_attention_for_cpu": _one(
        _flash_attention("forward"), "query", "key", "value", "attn_mask"
    ),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _one(
        _flash_attention("backward"), "grad_out", "query", "key", "value", "out"
    ),
    "bernoulli_": _one(_bernoulli_),
    "relu": _elementwise("relu", "forward", ("self",)),
    "relu_": _elementwise("relu", "forward", ("self",)),
    "threshold_backward": _elementwise("relu", "backward", ("grad_output", "self")),
    "gelu": _gelu("forward", ("self",)),
    "gelu_backward": _gelu("backward", ("grad_output", "self")),
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
    "embedding": _one(_embedding, "indices"),
    "embedding_dense_backward": _one(_embedding_dense_backward, "grad_output", "indices"),
    "_embedding_bag": _one(_embedding_bag, "indices", "offsets", writes=1),
    "_embedding_bag_backward": _one(_embedding_bag_backward, "grad", "indices"),
    "_embedding_bag_dense_backward": _one(_embedding_bag_backward, "grad", "indices"),
    "topk": _one(_topk, "self"),
    "_fused_sgd_": _fused("sgd"),
    "_fused_adam_": _fused("adam"),
    "_fused_adamw_": _fused("adamw"),
    "_fused_adagrad_": _fused("adagrad"),
}
"""By the name of an operator, or of an operator and its overload."""


def kernels_of(name: str, overload: str, arguments: Arguments, result: Any) -> list[TorchKernel]:
    """The kernels of an operator; none of one that is no operation of ours with these sizes and types."""
    find = KERNELS.get(f"{name}.{overload}") or KERNELS.get(name)
    if find is None:
        return []
    try:
        return find(arguments, result)
    except (BadInput, ZeroDivisionError, IndexError):  # also of a tensor without axes
        return []
