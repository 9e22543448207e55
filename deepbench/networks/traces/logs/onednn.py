"""oneDNN's log with ONEDNN_VERBOSE=1 (DNNL_VERBOSE=1): a line for each primitive that ran.

    onednn_verbose,v1,primitive,exec,cpu,PRIMITIVE,IMPLEMENTATION,PROPAGATION,ARRAYS,ATTRIBUTES,OTHER,PROBLEM,TIME

Older versions begin with `onednn_verbose,exec`, `onednn_verbose,primitive,exec` or `dnnl_verbose,exec`. There may be a
time stamp before `primitive` or `exec`.

The matrices are stored by rows and ours by columns, so A and B change places (as in `formats/benchdnn.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deepbench.core.errors import BadInput
from deepbench.core.onednn_text import CHANNELS_FIRST, CHANNELS_LAST, numbers, precision_of, shapes
from deepbench.networks.traces import kernel_rules as rules
from deepbench.networks.traces.kernel_rules import Window
from deepbench.networks.traces.kernels import kernel_text
from deepbench.networks.traces.logs import FUSED, Logged, kernel_call

BYTES = {
    **{"f64": 8, "f32": 4, "s32": 4, "s64": 8, "bf16": 2, "f16": 2, "s8": 1, "u8": 1, "boolean": 1},
    **{"f8_e5m2": 1, "f8_e4m3": 1},
}

# An array: its name, its type, and the order of its axes, such as `src_f32::blocked:acdb:f0` or `src:f32::blocked:ab`.
ARRAY = re.compile(r"([a-z][a-z_0-9]*?)[_:](undef|f64|f32|s32|s64|bf16|f16|s8|u8|boolean|f8_e5m2|f8_e4m3)(?=:|$)(.*)")

ELTWISE = {
    "relu": "relu",
    "gelu_erf": "gelu",
    "gelu_tanh": "gelu_tanh",
    "tanh": "tanh",
    "logistic": "sigmoid",
    "swish": "silu",
    "elu": "elu",
}
ACTIVATIONS = {"eltwise_relu": "relu", "eltwise_gelu_erf": "gelu", "eltwise_swish": "silu"}
# After `exec`: engine, primitive, implementation, propagation, arrays, attributes, other words, problem and time.
FIELDS = 9

# Primitives whose result, which the problem does not list, is as large as their largest operand.
SAME_RESULT = ("binary", "sum")

CELLS = {"vanilla_rnn": "vanilla", "vanilla_lstm": "lstm", "vanilla_gru": "gru", "lbr_gru": "gru"}


@dataclass(frozen=True)
class _LoggedArray:
    kind: str
    tag: str
    """The order of its axes; empty if the library chose its layout."""
    mask: int | None
    """Of a bias: which axes of the result it has, a bit each."""


@dataclass(frozen=True)
class _Primitive:
    """A line."""

    name: str
    propagation: str
    arrays: dict[str, _LoggedArray]
    attributes: str
    words: dict[str, str]
    """`alg` and other words about the algorithm."""
    problem: str

    def array(self, *names: str) -> _LoggedArray:
        """The first of the arrays that there is, or its gradient; `BadInput` if there is none."""
        for name in names:
            for full in (name, f"diff_{name}"):
                if full in self.arrays:
                    return self.arrays[full]
        raise BadInput(f"{self.name} has no array {names[0]}")

    @property
    def has_bias(self) -> bool:
        return any(name in self.arrays for name in ("bia", "diff_bia"))

    @property
    def algorithm(self) -> str:
        return self.words.get("alg", "")

    @property
    def direction(self) -> str:
        """In our words."""
        if self.propagation.startswith("forward") or self.propagation == "undef":
            return "forward"
        return self.propagation if self.propagation in ("backward_data", "backward_weights") else "backward"

    @property
    def post_operations(self) -> list[str]:
        """What is computed with the result before it is stored, such as `eltwise_relu`."""
        found = re.search(r"(?:attr-post-ops|post_ops):'?([^ ']*)", self.attributes)
        return [part.partition(":")[0] for part in re.split(r"[+;]", found[1]) if part] if found else []


def is_execution(line: str) -> bool:
    """Whether a line is about a primitive that ran; others are about the library, or about what was created."""
    return bool(re.match(r"\w+_verbose,([^,]*,){0,3}?exec,", line))


def read(line: str) -> Logged:
    """The call of a line; `BadInput` says why it is not understood."""
    if line.startswith("mkldnn_verbose"):
        raise BadInput("this is MKL-DNN 0.x, which does not log the types of all arrays; oneDNN 1.0 and later are read")
    words = line.strip().split(",")
    fields = words[words.index("exec") + 1 :]
    if len(fields) < FIELDS:
        raise BadInput("the line is cut off")
    _, name, _, propagation, arrays = fields[:5]
    other, problem, time = fields[-3:]
    time, _, _ = time.strip().partition(" ")  # a frame may follow
    if not re.fullmatch(r"[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?", time):
        raise BadInput("the line does not end with a time")
    # Only attributes may contain commas.
    if len(fields) > FIELDS and (problem.isdecimal() or not fields[5]):
        raise BadInput("the line has more commas than fields; one may be a decimal comma")
    found: dict[str, _LoggedArray] = {}
    for text in arrays.split():
        if match := ARRAY.match(text):
            tag = re.search(r"blocked:([A-Za-z0-9]*)", match[3])
            mask = re.search(r"mask(\d{1,4})", match[3])
            if match[2] != "undef":
                own = match[1] if match[1] not in found else f"{match[1]}_{len(found)}"  # both of a sum are `src`
                found[own] = _LoggedArray(match[2], tag[1] if tag else "", int(mask[1]) if mask else None)
    pairs = (word.partition(":") for word in other.split())
    values = {key: value for key, _, value in pairs}
    primitive = _Primitive(name, propagation, found, ",".join(fields[5:-3]), values, problem)
    operator = f"onednn.{name}"
    if name in KERNELS:
        try:
            kernel = KERNELS[name](primitive)
        except (BadInput, ValueError, LookupError, ZeroDivisionError):
            kernel = None
        if kernel is not None:
            return kernel_call(operator, kernel, *_notes(primitive, kernel))
    known, left_out = _bytes(primitive)
    notes = [f"the bytes leave out {' and '.join(left_out)}, whose sizes are not in the log"] if left_out else []
    return Logged(operator, None, known, tuple(notes))


def _notes(p: _Primitive, kernel: str) -> list[str]:
    """How a call differs from its kernel."""
    is_activated = "activation=" in kernel
    fused = [o for o in p.post_operations if o != "sum" and not (o in ACTIVATIONS and is_activated)]
    notes = [FUSED] if fused else []
    if p.name in ("convolution", "deconvolution", "pooling", "pooling_v2"):
        found = numbers(p.problem)
        image, result = _shape(found, "i", "ic"), _shape(found, "o", "ic")
        if p.name == "deconvolution":
            image, result = result, image
        if not _window(found).is_even(image, result):
            notes.append(rules.ONE_SIDED)
    return notes


def _bytes(primitive: _Primitive) -> tuple[int, list[str]]:
    """Bytes of a primitive without a kernel, and the arrays whose sizes the log does not say."""
    arrays = {name: array for name, array in primitive.arrays.items() if name != "scratchpad"}
    found = _elements_by_name(primitive)
    if found is None:
        stated = shapes(primitive.problem)
        if stated is None:
            raise BadInput(f"{primitive.name}: the problem {primitive.problem!r} is not understood")
        elements = [math.prod(shape) for shape in stated]
        # One shape is that of all arrays; of several, each array has its own, and a result as large as the largest.
        rest = len(arrays) - len(elements)
        result = [max(elements)] if len(elements) == 1 or primitive.name in SAME_RESULT else [None]
        found = dict(zip(arrays, [*elements[: len(arrays)], *result * rest], strict=True))
    known = {name: n for name in arrays if (n := found.get(name.removeprefix("diff_"), found.get(name))) is not None}
    moved = sum(BYTES[arrays[name].kind] * n for name, n in known.items())
    return moved, sorted(set(arrays) - set(known))


def _elements_by_name(p: _Primitive) -> Mapping[str, int | None] | None:
    """Elements of the arrays of a product or of an operation on images; None: the problem lists shapes in order."""
    if p.name == "matmul":
        operands = _product_shapes(p.problem)
        if operands is None:
            return None
        left, right = operands
        result = [*(max(a, b) for a, b in zip(left[:-2], right[:-2], strict=True)), left[-2], right[-1]]
        bias = p.arrays.get("bia")
        mask = bias.mask if bias and bias.mask is not None else 1 << (len(result) - 1)
        biases = math.prod(n for i, n in enumerate(result) if mask >> i & 1)
        return {"src": math.prod(left), "wei": math.prod(right), "bia": biases, "dst": math.prod(result)}
    found = numbers(p.problem)
    if "mb" not in found:
        return None
    inputs, outputs = found.get("ic", found.get("oc", 1)), found.get("oc", found.get("ic", 1))
    image = math.prod(found.get(f"i{axis}", 1) for axis in "dhw")
    result_image = math.prod(found.get(f"o{axis}", found.get(f"i{axis}", 1)) for axis in "dhw")
    is_filter = any(f"k{axis}" in found for axis in "dhw")
    window = math.prod(found.get(f"k{axis}", 1) for axis in "dhw") if is_filter else image
    source, target = found["mb"] * inputs * image, found["mb"] * outputs * result_image
    return {
        **{"src": source, "data": source, "dst": target, "src_0": source, "src_1": source},
        **{"wei": inputs * outputs * window // found.get("g", 1), "bia": outputs},
        **dict.fromkeys(("mean", "variance", "stats", "scale", "shift", "ss"), inputs),
    }


# ---- kernels


def _sides(found: dict[str, int], letter: str, default: int | None = None) -> list[int]:
    """The numbers of an axis for depth, height and width, as far as the problem has them."""
    axes = [axis for axis in "dhw" if f"i{axis}" in found]
    return [found[f"{letter}{axis}"] if default is None else found.get(f"{letter}{axis}", default) for axis in axes]


def _window(found: dict[str, int]) -> Window:
    dilation = [n + 1 for n in _sides(found, "d", 0)]
    return Window(_sides(found, "k"), _sides(found, "s", 1), _sides(found, "p", 0), dilation)


def _shape(found: dict[str, int], letter: str, channels: str) -> list[int]:
    """Of the input (`i`) or the output (`o`), with so many channels."""
    return [found["mb"], found[channels], *_sides(found, letter)]


def _layout(*arrays: _LoggedArray) -> str:
    tags = {array.tag for array in arrays}
    if tags <= set(CHANNELS_LAST):
        return "nhwc"
    return "nchw" if tags <= set(CHANNELS_FIRST) else "any"


def _convolution(p: _Primitive) -> str:
    found, direction = numbers(p.problem), p.direction
    src, dst, weights = p.array("src"), p.array("dst"), p.array("wei")
    operands = {
        "forward": (src.kind, weights.kind, dst.kind),
        "backward_data": (dst.kind, weights.kind, src.kind),
        "backward_weights": (src.kind, dst.kind, weights.kind),
    }[direction]
    image, result = _shape(found, "i", "ic"), _shape(found, "o", "oc")
    settings = {"layout": _layout(src, dst), "bias": "yes" if p.has_bias else "no"}
    precision = precision_of(*operands[:2])
    settings["result"] = "wide" if BYTES[operands[2]] > BYTES[operands[0]] else "narrow"
    return rules.convolution(_window(found), image, result, precision, direction, found.get("g", 1), **settings)


def _deconvolution(p: _Primitive) -> str:
    """The data gradient of the convolution from its result to its input; its gradients change places, too."""
    found = numbers(p.problem)
    direction = {"forward": "backward_data", "backward_data": "forward"}.get(p.direction, p.direction)
    src, dst = p.array("src"), p.array("dst")
    image, result = _shape(found, "o", "oc"), _shape(found, "i", "ic")
    precision, layout = precision_of(src.kind, p.array("wei").kind), _layout(src, dst)
    return rules.convolution(_window(found), image, result, precision, direction, found.get("g", 1), layout=layout)


def _transposed(array: _LoggedArray, axes: int) -> int | None:
    """Whether the last two of so many axes are stored in the opposite order; None in a layout of the library."""
    letters = "abcdefghijkl"[:axes]
    if sorted(array.tag) != sorted(letters) or axes < 2:
        return None
    return {letters[-1]: 0, letters[-2]: 1}.get(array.tag[-1])


def _product_shapes(problem: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Of both operands, by rows; version 1 writes `b4m2n8k16`. None if they do not fit."""
    if match := re.fullmatch(r"(?:b(\d{1,18}))?m(\d{1,18})n(\d{1,18})k(\d{1,18})", problem):
        batch = (int(match[1]),) if match[1] else ()
        m, n, k = map(int, match.groups()[1:])
        return (*batch, m, k), (*batch, k, n)
    sizes = shapes(problem)
    if sizes is None or len(sizes) < 2:
        return None
    left, right = sizes[:2]
    fits = len(left) == len(right) > 1 and left[-1] == right[-2]
    return (left, right) if fits else None


def _matmul(p: _Primitive) -> str | None:
    sizes = _product_shapes(p.problem)
    if sizes is None:
        return None
    left, right = sizes
    src, weights, dst = p.array("src"), p.array("wei"), p.array("dst")
    n, k, m = left[-2], left[-1], right[-1]
    batch = math.prod(max(a, b) for a, b in zip(left[:-2], right[:-2], strict=True))
    precision = precision_of(src.kind, weights.kind)
    if precision in ("i8", "i8u8") and BYTES[dst.kind] != 4:
        return None
    result = "wide" if BYTES[dst.kind] == 4 else "narrow"
    a_t, b_t = _transposed(weights, len(right)), _transposed(src, len(left))
    if math.prod(right[:-2]) == 1:  # the rows of all matrices are one matrix
        return _single(p, m, batch * n, k, a_t, b_t or 0, precision, result)
    stored = {"a_t": a_t or 0, "b_t": b_t or 0}
    return kernel_text("batched_gemm", {"batch": batch, "m": m, "n": n, "k": k, **stored}, precision, result=result)


def _single(
    p: _Primitive, m: int, n: int, k: int, a_t: int | None, b_t: int, precision: str | None, result: str
) -> str:
    """One product: a fully connected layer if something is done with its result."""
    weights = "packed" if a_t is None else "plain"
    after = [ACTIVATIONS[o] for o in p.post_operations if o in ACTIVATIONS]
    is_layer = (p.has_bias or after) and precision in ("f32", "bf16", "f16") and not b_t
    if is_layer and "sum" not in p.post_operations:
        own = {"activation": after[0] if after else "none", "bias": "yes" if p.has_bias else "no"}
        return kernel_text("linear", {"m": m, "n": n, "k": k}, precision, **own, weights=weights)
    sizes = {"m": m, "n": n, "k": k, "a_t": a_t or 0, "b_t": b_t}
    beta = "1" if "sum" in p.post_operations else "0"
    return kernel_text("gemm", sizes, precision, beta=beta, result=result, weights=weights)


def _inner_product(p: _Primitive) -> str:
    """Weights are (outputs, inputs). Their gradients are products, too."""
    found = numbers(p.problem)
    src, weights, dst = p.array("src"), p.array("wei"), p.array("dst")
    n, m = found["mb"], found["oc"]
    k = found["ic"] * math.prod(_sides(found, "i"))
    if p.direction == "forward":
        precision = precision_of(src.kind, weights.kind)
        packed = "plain" if weights.tag in ("ab", *CHANNELS_FIRST) else "packed"
        after = [ACTIVATIONS[o] for o in p.post_operations if o in ACTIVATIONS]
        own = {"activation": after[0] if after else "none", "bias": "yes" if p.has_bias else "no"}
        if precision in ("f32", "bf16", "f16"):
            return kernel_text("linear", {"m": m, "n": n, "k": k}, precision, **own, weights=packed)
        if BYTES[dst.kind] != 4:
            raise BadInput("there is no product of integers with results in 8 bits")
        return kernel_text("gemm", {"m": m, "n": n, "k": k, "a_t": 1}, precision, beta="0", weights=packed)
    if p.direction == "backward_data":
        precision, result = precision_of(dst.kind, weights.kind), src
        sizes = {"m": k, "n": n, "k": m}
    else:
        precision, result = precision_of(src.kind, dst.kind), weights
        sizes = {"m": k, "n": m, "k": n, "b_t": 1}
    narrow = "wide" if BYTES[result.kind] == 4 else "narrow"
    return kernel_text("gemm", sizes, precision, beta="0", result=narrow)


def _recurrent(p: _Primitive) -> str | None:
    found = numbers(p.problem)
    if found["dic"] != found["dhc"]:  # a projection of the state
        return None
    sizes: dict[str, int | str] = {
        "cell": CELLS[p.algorithm],
        "hidden": found["dhc"],
        "batch": found["mb"],
        "timesteps": found["t"],
        "input_size": found["slc"],
        "layers": found["l"],
        "bidirectional": int(p.words.get("direction", "").startswith("bidirectional")),
    }
    mode = "training" if p.propagation == "forward_training" else "inference"
    reset = "before" if p.algorithm == "vanilla_gru" else "after"
    precision = precision_of(p.array("src_layer").kind, p.array("wei_layer").kind)
    return kernel_text("recurrent", sizes, precision, p.direction, mode=mode, gru_reset=reset)


def _gradient(p: _Primitive) -> str:
    return "forward" if p.direction == "forward" else "backward"


def _pooling(p: _Primitive) -> str:
    found = numbers(p.problem)
    kind = "max" if p.algorithm == "pooling_max" else "average"
    src, dst = p.array("src"), p.array("dst")
    image, result = _shape(found, "i", "ic"), _shape(found, "o", "ic")
    return rules.pooling(kind, _window(found), image, result, src.kind, _gradient(p), layout=_layout(src, dst))


def _batch_norm(p: _Primitive) -> str:
    found, src = numbers(p.problem), p.array("src", "data", "dst")
    mode = "inference" if "G" in p.words.get("flags", "") else "training"
    layout = "nhwc" if _layout(src) == "nhwc" else "nchw"
    return rules.batch_norm(_shape(found, "i", "ic"), src.kind, _gradient(p), mode=mode, layout=layout)


def _rows(op: str) -> Callable[[_Primitive], str | None]:
    def find(p: _Primitive) -> str | None:
        sizes, src = shapes(p.problem), p.array("src", "dst")
        if not sizes:
            return None
        shape = sizes[0]
        axis = int(p.words.get("axis", len(shape) - 1))
        columns = math.prod(shape[axis:])
        if columns != shape[axis]:
            return None
        return rules.by_rows(op, shape, columns, src.kind, _gradient(p))

    return find


def _eltwise(p: _Primitive) -> str | None:
    sizes, data = shapes(p.problem), p.array("data", "src", "dst")
    if not sizes:
        return None
    name = p.algorithm.removeprefix("eltwise_").removesuffix("_use_dst_for_bwd").removesuffix("_dst")
    alpha, beta = (float(p.words.get(word, "0")) for word in ("alpha", "beta"))
    kind = ELTWISE.get(name)
    if name in ("clip", "clip_v2"):
        kind = "relu6" if (alpha, beta) == (0, 6) else "hardtanh"
    if kind is None or (kind == "relu" and alpha):
        return None
    return rules.elementwise(kind, math.prod(sizes[0]), data.kind, _gradient(p))


def _binary(p: _Primitive) -> str | None:
    sizes = shapes(p.problem)
    kind = {"binary_add": "add", "binary_mul": "multiply"}.get(p.algorithm)
    inputs = [p.array("src_0", "src0", "src"), p.array("src_1", "src1", "src")]
    if kind is None or not sizes or len(sizes) < 2 or sizes[0] != sizes[1] or inputs[0].kind != inputs[1].kind:
        return None
    return rules.elementwise(kind, math.prod(sizes[0]), inputs[0].kind)


def _reduction(p: _Primitive) -> str | None:
    sizes = shapes(p.problem)
    if not sizes or len(sizes) < 2 or len(sizes[0]) != len(sizes[1]):
        return None
    kind = {"reduction_sum": "sum", "reduction_mean": "mean", "reduction_max": "max"}[p.algorithm]
    axes = [i for i, (a, b) in enumerate(zip(*sizes[:2], strict=True)) if a != b]
    return rules.reduction(kind, sizes[0], axes, p.array("src").kind)


def _resampling(p: _Primitive) -> str | None:
    found, src, dst = numbers(p.problem), p.array("src"), p.array("dst")
    if p.algorithm != "resampling_nearest":
        return None
    image, result = _shape(found, "i", "ic"), _shape(found, "o", "ic")
    return rules.upsample(image, result, src.kind, _gradient(p), layout=_layout(src, dst))


KERNELS: dict[str, Callable[[_Primitive], str | None]] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "matmul": _matmul,
    "inner_product": _inner_product,
    "rnn": _recurrent,
    "pooling": _pooling,
    "pooling_v2": _pooling,
    "batch_normalization": _batch_norm,
    "layer_normalization": _rows("layer_norm"),
    "layer_normalization_v2": _rows("layer_norm"),
    "softmax": _rows("softmax"),
    "softmax_v2": _rows("softmax"),
    "logsoftmax": _rows("softmax"),
    "eltwise": _eltwise,
    "binary": _binary,
    "reduction": _reduction,
    "resampling": _resampling,
}
