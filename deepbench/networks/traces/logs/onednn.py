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

from deepbench.core.errors import BadInput, shorten
from deepbench.core.onednn_text import CHANNELS_FIRST, CHANNELS_LAST, numbers, precision_of, shapes
from deepbench.networks.traces import kernel_rules as rules
from deepbench.networks.traces.kernel_rules import Window
from deepbench.networks.traces.kernels import kernel_text
from deepbench.networks.traces.logs import FUSED, Logged, kernel_call

BYTES = {
    **{"f64": 8, "f32": 4, "s32": 4, "s64": 8, "bf16": 2, "f16": 2, "s8": 1, "u8": 1, "boolean": 1},
    **{"f8_e5m2": 1, "f8_e4m3": 1, "e8m0": 1, "s4": 0.5, "u4": 0.5, "f4_e2m1": 0.5, "f4_e3m0": 0.5},
}

# An array: its name, its type, flags, its format, and the order of its axes, such as `src_f32::blocked:acdb:f0` or
# `src:f32:a:blocked:ab`.
ARRAY = re.compile(rf"([a-z][a-z_0-9]*?)[_:](undef|{'|'.join(BYTES)})(?=:|$)(?::[^:]*)?:?([^:]*):?(.*)")
# Formats in which an array has all of its elements; those of sparse ones depend on their values.
DENSE = ("blocked", "opaque", "wino", "rnn_packed")
# The arrays whose type is that of the data.
DATA = re.compile(r"(diff_)?(src|dst|data)(_?\d+)?|diff")

# An attribute, such as `attr-post-ops:sum+eltwise_relu`; version 1 writes `post_ops:'sum;eltwise_relu;'`.
ATTRIBUTE = re.compile(r"[ ;]*(?:attr-)?([a-z][a-z_-]*)(?::('[^']*'|[^ ;']*))?(?=[ ;]|$)[ ;]*")
# Attributes that do not change the work.
NEUTRAL = ("scratchpad", "deterministic")
SCALES = ("scales", "zero-points", "zero_points", "oscale")

ELTWISE = {
    "relu": "relu",
    "gelu_erf": "gelu",
    "gelu_tanh": "gelu_tanh",
    "tanh": "tanh",
    "logistic": "sigmoid",
    "swish": "silu",
    "elu": "elu",
}
# Activations of our layers, and the values of their parameter alpha; version 1 does not write those of swish.
ACTIVATIONS = {
    "eltwise_relu": ("relu", ("", "0")),
    "eltwise_gelu_erf": ("gelu", ("", "0")),
    "eltwise_swish": ("silu", ("", "1")),
}
# After `exec`: engine, primitive, implementation, propagation, arrays, attributes, other words, problem and time.
FIELDS = 9

# Primitives whose result, which the problem does not list, is as large as their largest operand.
SAME_RESULT = ("binary", "sum")

NORMALIZATIONS = ("batch_normalization", "layer_normalization", "layer_normalization_v2", "group_normalization")

CELLS = {"vanilla_rnn": "vanilla", "vanilla_lstm": "lstm", "vanilla_gru": "gru", "lbr_gru": "gru"}


@dataclass(frozen=True)
class _LoggedArray:
    kind: str
    format: str
    """Such as `blocked` or `sparse`."""
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
    attributes: Mapping[str, str]
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
    def kind(self) -> str:
        """The type of all arrays of data; `BadInput` if they differ."""
        kinds = {array.kind for name, array in self.arrays.items() if DATA.fullmatch(name)}
        if len(kinds) != 1:
            raise BadInput(f"{self.name} has data of the types {' and '.join(sorted(kinds)) or 'none'}")
        return kinds.pop()

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
        """What is computed with the result before it is stored, such as `eltwise_relu`, with its parameters."""
        text = next((self.attributes[n] for n in ("post-ops", "post_ops") if n in self.attributes), "")
        return [part for part in re.split(r"[+;]", text.strip("'")) if part]

    @property
    def sums(self) -> bool:
        """Whether the result is added to what is in memory."""
        return any(o.partition(":")[0] == "sum" for o in self.post_operations)

    @property
    def activations(self) -> list[str]:
        """Those of the operations after it that are an activation of our layers."""
        found = []
        for operation in self.post_operations:
            name, alpha, beta, scale, *_ = [*operation.split(":"), *[""] * 3]
            kind, alphas = ACTIVATIONS.get(name, ("", ()))
            if alpha in alphas and beta in ("", "0") and scale in ("", "1"):
                found.append(kind)
        return found


class NoKernel(BadInput):
    """A call that is none of our kernels, for a reason that its operator and sizes do not show."""


def is_execution(line: str) -> bool:
    """Whether a line is about a primitive that ran; others are about the library, or about what was created."""
    return bool(re.match(r"\w+_verbose,([^,]*,){0,3}?exec,", line))


def without_time(line: str) -> str:
    """What equal calls have in common. A line that does not end with a time is none of them."""
    call, _, time = line.rpartition(",")
    return call if _is_time(time) else line


def _is_time(text: str) -> bool:
    """A frame may follow."""
    return bool(re.fullmatch(r"[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?", text.strip().partition(" ")[0]))


def read(line: str) -> Logged:
    """The call of a line; `BadInput` says why it is not understood."""
    if line.startswith("mkldnn_verbose"):
        raise BadInput("this is MKL-DNN 0.x, which does not log the types of all arrays; oneDNN 1.0 and later are read")
    words = line.strip().split(",")
    start = words.index("exec") + 1
    if "graph" in words[:start]:
        raise BadInput("this is a partition of a graph, whose operators are not logged one by one")
    fields = words[start:]
    if len(fields) < FIELDS:
        raise BadInput("the line is cut off")
    _, name, _, propagation, arrays = fields[:5]
    other, problem, time = fields[-3:]
    if not _is_time(time):
        raise BadInput("the line does not end with a time")
    # Only attributes may contain commas.
    if len(fields) > FIELDS and (problem.isdecimal() or not fields[5]):
        raise BadInput("the line has more commas than fields; one may be a decimal comma")
    pairs = (word.partition(":") for word in other.split())
    values = {key: value for key, _, value in pairs}
    attributes = _attributes(",".join(fields[5:-3]))
    primitive = _Primitive(name, propagation, _arrays(arrays), attributes, values, problem)
    operator = f"onednn.{name}"
    notes = []
    if name in KERNELS:
        try:
            _check(primitive)
            kernel = KERNELS[name](primitive)
        except NoKernel as error:
            kernel, notes = None, [f"it is no kernel: {error}"]
        except (BadInput, ValueError, LookupError, ZeroDivisionError):
            kernel = None
        if kernel is not None:
            call = kernel_call(operator, kernel, *_notes(primitive, kernel))
            shared = rules.SHARED in call.notes
            return Logged(operator, kernel, _bytes(primitive)[0] if shared else call.bytes, call.notes)
    known, left_out = _bytes(primitive)
    if left_out:
        notes.append(f"the bytes leave out {' and '.join(left_out)}, whose sizes are not in the log")
    return Logged(operator, None, known, tuple(notes))


def _arrays(text: str) -> dict[str, _LoggedArray]:
    """The arrays of a line by their names, without those that are left out."""
    found: dict[str, _LoggedArray] = {}
    for word in text.split():
        match = ARRAY.fullmatch(word)
        if not match:
            raise BadInput(f"{shorten(word)!r} is no array whose type is known")
        name, kind, layout, rest = match.groups()
        if kind != "undef":
            tag = re.match(r"[A-Za-z0-9]*", rest) if layout == "blocked" else None
            mask = re.search(r"mask(\d{1,4})", rest)
            own = name if name not in found else f"{name}_{len(found)}"  # both of a sum are `src`
            found[own] = _LoggedArray(kind, layout, tag[0] if tag else "", int(mask[1]) if mask else None)
    return found


def _attributes(text: str) -> dict[str, str]:
    """The attributes of a line by their names."""
    found: dict[str, str] = {}
    end = 0
    while end < len(text):
        match = ATTRIBUTE.match(text, end)
        if not match or match[1] in found:
            raise BadInput(f"{shorten(text[end:])!r} is no attribute")
        found[match[1]], end = match[2] or "", match.end()
    return found


def _check(p: _Primitive) -> None:
    """`NoKernel` if an attribute changes the mathematics, or is not known, or an array is not dense."""
    for name, array in p.arrays.items():
        if array.format not in DENSE:
            raise NoKernel(f"the array {name} is {array.format or 'of no format'}, and arrays of kernels are dense")
    floats = {array.kind for name, array in p.arrays.items() if name != "scratchpad"} - {"s32", "s8", "u8"}
    for name, value in p.attributes.items():
        word, _, is_for_integers = value.partition(":")
        if name in NEUTRAL or name in SCALES or (name, word) == ("dropout", "undef"):
            continue
        if name == "fpmath" and (word == "strict" or ("f32" not in floats and not is_for_integers)):
            continue
        if name == "acc-mode" and word in ("strict", "f32" if floats else "s32"):
            continue
        if name in ("post-ops", "post_ops"):
            for operation in p.post_operations:
                if not re.match(r"sum(:|$)|(eltwise|binary)_|prelu(:|$)", operation):
                    raise NoKernel(f"{shorten(operation)} after it is not known")
            continue
        raise NoKernel(f"the attribute {shorten(f'{name}:{value}')} may change its arithmetic")


def _notes(p: _Primitive, kernel: str) -> list[str]:
    """How a call differs from its kernel."""
    op = kernel.partition(" ")[0]
    is_summed, has_bias = op == "gemm" and "beta=0" not in kernel, " bias=yes" in kernel
    if op in ("linear", "recurrent"):
        has_bias = "bias=no" not in kernel
    inside = int("activation=" in kernel) + int(p.sums)
    notes = [FUSED] if len(p.post_operations) > inside or _is_joined(p) else []
    notes += [rules.ADDED] if p.sums and not is_summed else []
    notes += [rules.BIASED] if p.has_bias and not has_bias else []
    notes += [rules.RESCALED] if _is_rescaled(p, op) else []
    notes += [rules.LOGARITHM] if op == "softmax" and (p.algorithm == "softmax_log" or p.name == "logsoftmax") else []
    if p.name == "matmul" and op == "batched_gemm":
        left, right = _product_shapes(p.problem) or ((), ())
        notes += [rules.SHARED] if left[:-2] != right[:-2] else []
    if p.name in ("convolution", "deconvolution", "pooling", "pooling_v2"):
        found = numbers(p.problem)
        image, result = _shape(found, "i", "ic"), _shape(found, "o", "ic")
        if p.name == "deconvolution":
            image, result = result, image
        if not _window(found).is_even(image, result):
            notes.append(rules.ONE_SIDED)
    return notes


def _is_joined(p: _Primitive) -> bool:
    """Whether a normalization has an activation or a sum, by its flags."""
    return p.name in NORMALIZATIONS and bool(set("RA") & set(p.words.get("flags", "")))


def _is_rescaled(p: _Primitive, op: str) -> bool:
    """Whether numbers are rescaled or converted. Convolutions of integers with results in 8 bits are, in ours, too."""
    given = [part for name in SCALES for part in p.attributes.get(name, "").split("+") if part]
    result = p.array("dst") if op in ("gemm", "batched_gemm", "conv") else None
    if op == "conv" and result and BYTES[result.kind] == 1:
        given = [part for part in given if not part.startswith("dst:0")]
    is_integer = any(p.arrays[name].kind in ("s8", "u8") for name in ("src", "wei") if name in p.arrays)
    return bool(given) or (is_integer and result is not None and result.kind == "f32")


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
    known: dict[str, int] = {}
    for name, array in arrays.items():
        own = "data" if name == "diff" and "data" in found else name.removeprefix("diff_")
        count = found.get(own, found.get(name))
        if count is not None and array.format in DENSE:
            # Older versions list one array for an operand and the result that is like it, and one for their gradients.
            is_both = name == "diff" or (name == "data" and primitive.direction == "forward")
            known[name] = 2 * count if is_both and "dst" not in arrays else count
    moved = sum(math.ceil(BYTES[arrays[name].kind] * n) for name, n in known.items())
    scales = [name for name in SCALES if name in primitive.attributes]
    return moved, [*sorted(set(arrays) - set(known)), *(name.replace("_", "-") for name in scales)]


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
    settings["result"] = rules.result_setting(precision, operands[2])
    return rules.convolution(_window(found), image, result, precision, direction, found.get("g", 1), **settings)


def _deconvolution(p: _Primitive) -> str:
    """The data gradient of the convolution from its result to its input; its gradients change places, too."""
    found = numbers(p.problem)
    direction = {"forward": "backward_data", "backward_data": "forward"}.get(p.direction, p.direction)
    src, dst, weights = p.array("src"), p.array("dst"), p.array("wei")
    operands = {
        "forward": (src.kind, weights.kind, dst.kind),
        "backward_data": (dst.kind, weights.kind, src.kind),
        "backward_weights": (src.kind, dst.kind, weights.kind),
    }[p.direction]
    image, result = _shape(found, "o", "oc"), _shape(found, "i", "ic")
    precision = precision_of(*operands[:2])
    settings = {"layout": _layout(src, dst), "result": rules.result_setting(precision, operands[2])}
    return rules.convolution(_window(found), image, result, precision, direction, found.get("g", 1), **settings)


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
    a_t, b_t = _transposed(weights, len(right)), _transposed(src, len(left))
    if math.prod(right[:-2]) == 1:  # the rows of all matrices are one matrix
        return _single(p, {"m": m, "n": batch * n, "k": k}, a_t, b_t or 0, precision, dst.kind)
    stored = {"a_t": a_t or 0, "b_t": b_t or 0}
    result = _product_result(precision, dst.kind)
    return kernel_text("batched_gemm", {"batch": batch, "m": m, "n": n, "k": k, **stored}, precision, result=result)


def _product_result(precision: str | None, kind: str) -> str:
    """See `kernel_rules.result_setting`; products of integers have wide results only."""
    if kind in ("s8", "u8"):
        raise BadInput("there is no product of integers with results in 8 bits")
    return rules.result_setting(precision, kind)


def _single(p: _Primitive, sizes: dict[str, int], a_t: int | None, b_t: int, precision: str | None, result: str) -> str:
    """One product with results of this type: a fully connected layer if something is done with its result."""
    weights, setting = "packed" if a_t is None else "plain", _product_result(precision, result)
    is_layer = p.has_bias or p.activations or (p.name == "inner_product" and not p.sums)
    if is_layer and precision in ("f32", "bf16", "f16") and not b_t and not p.sums and result == precision:
        activation = p.activations[0] if p.activations else "none"
        own = {"activation": activation, "bias": "yes" if p.has_bias else "no"}
        return kernel_text("linear", sizes, precision, **own, weights=weights)
    stored = {"a_t": a_t or 0, "b_t": b_t}
    beta = "1" if p.sums else "0"
    return kernel_text("gemm", {**sizes, **stored}, precision, beta=beta, result=setting, weights=weights)


def _inner_product(p: _Primitive) -> str:
    """Weights are (outputs, inputs). Their gradients are products, too."""
    found = numbers(p.problem)
    src, weights, dst = p.array("src"), p.array("wei"), p.array("dst")
    n, m = found["mb"], found["oc"]
    k = found["ic"] * math.prod(_sides(found, "i"))
    if p.direction == "forward":
        is_plain = weights.tag in ("ab", *CHANNELS_FIRST)
        precision = precision_of(src.kind, weights.kind)
        return _single(p, {"m": m, "n": n, "k": k}, 1 if is_plain else None, 0, precision, dst.kind)
    if p.direction == "backward_data":
        precision, result = precision_of(dst.kind, weights.kind), src
        sizes = {"m": k, "n": n, "k": m}
    else:
        precision, result = precision_of(src.kind, dst.kind), weights
        sizes = {"m": k, "n": m, "k": n, "b_t": 1}
    return kernel_text("gemm", sizes, precision, beta="0", result=_product_result(precision, result.kind))


def _recurrent(p: _Primitive) -> str | None:
    found = numbers(p.problem)
    if found["dic"] != found["dhc"]:
        raise NoKernel("its states are projected")
    if p.algorithm not in CELLS:
        raise NoKernel(f"its cell is {shorten(p.algorithm) or 'not stated'}")
    way = p.words.get("direction", "")
    if way not in ("", "unidirectional_left2right", "unidirectional_right2left", "bidirectional_concat"):
        raise NoKernel(f"its direction is {shorten(way)}")
    if special := [name for name in p.arrays if "peephole" in name or "projection" in name]:
        raise NoKernel(f"it has {' and '.join(special)}")
    kinds = [p.array(name).kind for name in ("src_layer", "wei_layer", "dst_layer")]
    sizes: dict[str, int | str] = {
        "cell": CELLS[p.algorithm],
        "hidden": found["dhc"],
        "batch": found["mb"],
        "timesteps": found["t"],
        "input_size": found["slc"],
        "layers": found["l"],
        "bidirectional": int(way.startswith("bidirectional")),
    }
    mode = "training" if p.propagation == "forward_training" else "inference"
    reset = "before" if p.algorithm == "vanilla_gru" else "after"
    if kinds[0] != kinds[2]:
        raise BadInput("its results have another type than its inputs")
    precision = precision_of(*kinds[:2])
    return kernel_text("recurrent", sizes, precision, p.direction, mode=mode, gru_reset=reset)


def _gradient(p: _Primitive) -> str:
    return "forward" if p.direction == "forward" else "backward"


def _pooling(p: _Primitive) -> str:
    found = numbers(p.problem)
    kind = "max" if p.algorithm == "pooling_max" else "average"
    src, dst = p.array("src"), p.array("dst")
    image, result = _shape(found, "i", "ic"), _shape(found, "o", "ic")
    return rules.pooling(kind, _window(found), image, result, p.kind, _gradient(p), layout=_layout(src, dst))


def _flags(p: _Primitive, known: str) -> str:
    """The flags of a normalization: given statistics (G), scale and shift (S, C, H), a ReLU (R), a sum and it (A)."""
    flags = p.words.get("flags", "")
    if not set(flags) <= set(known):
        raise NoKernel(f"its flags are {shorten(flags)}")
    return flags


def _batch_norm(p: _Primitive) -> str:
    found, src = numbers(p.problem), p.array("src", "data", "dst")
    mode = "inference" if "G" in _flags(p, "GSCHRA") else "training"
    layout = "nhwc" if _layout(src) == "nhwc" else "nchw"
    return rules.batch_norm(_shape(found, "i", "ic"), p.kind, _gradient(p), mode=mode, layout=layout)


def _layer_norm(p: _Primitive) -> str | None:
    """M: it divides by the root mean square, without subtracting the mean."""
    flags = _flags(p, "SCHM")
    return _rows("rms_norm" if "M" in flags else "layer_norm")(p)


def _softmax(p: _Primitive) -> str | None:
    if p.algorithm not in ("", "softmax_accurate", "softmax_accurate_inf_as_zero", "softmax_log"):
        raise NoKernel(f"its algorithm is {shorten(p.algorithm)}")
    return _rows("softmax")(p)


def _rows(op: str) -> Callable[[_Primitive], str | None]:
    def find(p: _Primitive) -> str | None:
        sizes = shapes(p.problem)
        if not sizes:
            return None
        shape = sizes[0]
        axis = int(p.words.get("axis", len(shape) - 1))
        columns = math.prod(shape[axis:])
        if columns != shape[axis]:
            return None
        return rules.by_rows(op, shape, columns, p.kind, _gradient(p))

    return find


def _eltwise(p: _Primitive) -> str | None:
    sizes = shapes(p.problem)
    if not sizes:
        return None
    name = p.algorithm.removeprefix("eltwise_").removesuffix("_use_dst_for_bwd").removesuffix("_dst")
    alpha, beta = (float(p.words.get(word, "0")) for word in ("alpha", "beta"))
    kind = ELTWISE.get(name)
    if name in ("clip", "clip_v2"):
        kind = "relu6" if (alpha, beta) == (0, 6) else "hardtanh"
    if kind is None:
        return None
    if (kind == "relu" and alpha) or (kind == "silu" and alpha != 1):
        raise NoKernel(f"its alpha is {alpha:g}")
    return rules.elementwise(kind, math.prod(sizes[0]), p.kind, _gradient(p))


def _binary(p: _Primitive) -> str | None:
    sizes = shapes(p.problem)
    kind = {"binary_add": "add", "binary_mul": "multiply"}.get(p.algorithm)
    if kind is None or not sizes or len(sizes) < 2 or sizes[0] != sizes[1]:
        return None
    return rules.elementwise(kind, math.prod(sizes[0]), p.kind)


def _reduction(p: _Primitive) -> str | None:
    sizes = shapes(p.problem)
    if not sizes or len(sizes) < 2 or len(sizes[0]) != len(sizes[1]):
        return None
    kind = {"reduction_sum": "sum", "reduction_mean": "mean", "reduction_max": "max"}[p.algorithm]
    axes = [i for i, (a, b) in enumerate(zip(*sizes[:2], strict=True)) if a != b]
    return rules.reduction(kind, sizes[0], axes, p.kind)


def _resampling(p: _Primitive) -> str | None:
    found, src, dst = numbers(p.problem), p.array("src"), p.array("dst")
    if p.algorithm != "resampling_nearest":
        return None
    image, result = _shape(found, "i", "ic"), _shape(found, "o", "ic")
    return rules.upsample(image, result, p.kind, _gradient(p), layout=_layout(src, dst))


KERNELS: dict[str, Callable[[_Primitive], str | None]] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "matmul": _matmul,
    "inner_product": _inner_product,
    "rnn": _recurrent,
    "pooling": _pooling,
    "pooling_v2": _pooling,
    "batch_normalization": _batch_norm,
    "layer_normalization": _layer_norm,
    "layer_normalization_v2": _layer_norm,
    "softmax": _softmax,
    "softmax_v2": _softmax,
    "logsoftmax": _softmax,
    "eltwise": _eltwise,
    "binary": _binary,
    "reduction": _reduction,
    "resampling": _resampling,
}
