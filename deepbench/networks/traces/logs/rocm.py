"""Logs of AMD's libraries, which are command lines of their benchmark programs:

    ./rocblas-bench -f gemm_ex --transposeA N …          rocBLAS with ROCBLAS_LAYER=2
    hipblaslt-bench --api_method c -m 1024 …             hipBLASLt with HIPBLASLT_LOG_MASK=32
    MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 128 …
                                                         MIOpen with MIOPEN_ENABLE_LOGGING_CMD=1

They were written from the public descriptions of these programs, and have not been tried on the logs of a real device.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deepbench.core.errors import BadInput, shorten
from deepbench.networks.traces import kernel_rules as rules
from deepbench.networks.traces.kernel_rules import Window
from deepbench.networks.traces.kernels import kernel_text
from deepbench.networks.traces.logs import FUSED, Logged, kernel_call, options

PRODUCT = re.compile(r"(rocblas|hipblaslt)-bench(?:\.exe)?\s(.*)", re.S)
DRIVER = re.compile(r"MIOpenDriver(?:\.exe)?\s+([A-Za-z_]+?)((?:b?fp|bf|int)[0-9]\w*)?\s(.*)", re.S)

TYPES = {
    **{"f32_r": "f32", "s": "f32", "f16_r": "f16", "h": "f16", "bf16_r": "bf16", "i8_r": "s8", "i8": "s8"},
    **{"i32_r": "s32", "i": "s32", "f64_r": "f64", "d": "f64", "xf32_r": "tf32", "x": "tf32"},
}
PRODUCTS = ("gemm", "gemm_ex", "gemm_batched", "gemm_batched_ex", "gemm_strided_batched", "gemm_strided_batched_ex")

# The precision of a product by the types of its operands and of its sums, and the types that its result may have.
PRODUCT_PRECISIONS = {
    ("f32", "f32"): ("f32", {"f32": "wide"}),
    ("f32", "tf32"): ("tf32", {"f32": "wide"}),
    ("f16", "f32"): ("f16", {"f16": "narrow", "f32": "wide"}),
    ("f16", "f16"): ("f16f16", {"f16": "narrow"}),
    ("bf16", "f32"): ("bf16", {"bf16": "narrow", "f32": "wide"}),
    ("s8", "s32"): ("i8", {"s32": "wide"}),
}

# What the libraries always write, in this order. A command that is the beginning of it may be cut off; one with other
# options, or in another order, was typed, and has the defaults of its program.
WRITTEN = {
    "rocblas": (*("f", "r", "transposeA", "transposeB", "m", "n", "k", "alpha", "lda", "ldb", "beta", "ldc"),),
    "rocblas ex": (
        *("f", "transposeA", "transposeB", "m", "n", "k", "alpha", "a_type", "lda", "b_type", "ldb", "beta", "c_type"),
        *("ldc", "d_type", "ldd", "compute_type"),
    ),
    "hipblaslt": (
        *("m", "n", "k", "lda", "ldb", "ldc", "ldd", "alpha", "beta", "transA", "transB", "batch_count", "a_type"),
        *("b_type", "c_type", "d_type", "compute_type"),
    ),
}

LONG_NAMES = {"sizem": "m", "sizen": "n", "sizek": "k"}

# Options of products that are read.
READ = (
    *("f", "function", "r", "precision", "m", "n", "k", "transposeA", "transposeB", "transA", "transB", "batch_count"),
    *("batch", "alpha", "beta", "a_type", "b_type", "c_type", "d_type", "compute_type", "stride_a", "stride_b"),
    *("lda", "ldb"),
)

# Options that do not change the work: places in memory, the choice of a kernel, values, repetitions and output.
NEUTRAL = (
    *("ldc", "ldd", "lde", "stride_c", "stride_d", "stride_e", "any_stride", "outofplace"),
    *("c_noalias_d", "c_equal_d", "algo", "algo_method", "solution_index", "kernel_index", "requested_solution"),
    *("splitk", "wgm", "workspace", "workspace_size", "use_hipblaslt", "use_user_args", "api_method", "api", "fortran"),
    *("atomics_allowed", "atomics_not_allowed", "scale_type", "device", "HMM", "initialization", "init", "verify", "v"),
    *("test", "t", "iters", "i", "cold_iters", "j", "rotating", "flush", "flush_batch_count", "flush_memory_size"),
    *("use_gpu_timer", "skip_slow_solution_ratio", "print_kernel_info", "log_function_name", "log_datatype", "z"),
)

# Options that add work to a product, unless their value is one of these; and their types.
ADDED = {
    **dict.fromkeys(("scaleA", "scaleB", "scaleC", "scaleD", "activation_type"), ("0", "none")),
    **dict.fromkeys(("bias_vector", "scaleAlpha_vector", "scaleD_vector", "amaxD", "amaxScaleA", "amaxScaleB"), ("0",)),
    **dict.fromkeys(("use_e", "gradient"), ("0",)),
}
OF_ADDED = ("bias_type", "bias_source", "aux_type", "activation_arg1", "activation_arg2")

# Options that are understood only where they have no effect.
WITHOUT_EFFECT = {
    **{"alphai": ("0",), "betai": ("0",), "flags": ("0", "2", "8"), "math_mode": ("0",), "batch_mode": ("0",)},
    "grouped_gemm": ("0",),
    **dict.fromkeys(("compute_input_typeA", "compute_input_typeB"), ("none",)),
}

DRIVER_TYPES = {None: "f32", "fp32": "f32", "fp16": "f16", "bfp16": "bf16", "bf16": "bf16", "int8": "i8"}

# Of one call there is one; 0 stands for all.
DIRECTIONS = {1: "forward", 2: "backward_data", 4: "backward_weights"}

ACTIVATIONS = {"1": "sigmoid", "2": "tanh", "3": "relu", "7": "relu6", "9": "elu"}


def read(command: str) -> list[Logged]:
    """The calls of a command, with the blank after it; `BadInput` says why it is not understood."""
    is_whole = command[-1:].isspace()
    if re.search(r"--grouped_gemm\s+(?!0\s)", command):
        raise BadInput("it is a group of products of several sizes, which is not read")
    if match := PRODUCT.match(command):
        return [_product(match[1], options(match[2]), is_whole)]
    match = DRIVER.match(f"{command} ")
    if match is None:
        raise BadInput("it names no operation of MIOpen")
    if match[1] not in KERNELS:
        raise BadInput(f"MIOpenDriver {shorten(match[1])} is not read; {', '.join(KERNELS)} are")
    find, driver = KERNELS[match[1]]
    if match[2] not in DRIVER_TYPES:
        raise BadInput(f"MIOpenDriver {match[1]}: {match[2]} is no precision of ours")
    found = driver.named(match[1], options(match[3]), is_whole)
    if "forw" not in found or (found["forw"] == "0" and driver is BNORM and "back" not in found):
        missing = "-b" if "forw" in found else "-F"
        raise BadInput(f"MIOpenDriver {match[1]}: {missing} is missing, so it may be cut off before its direction")
    try:
        kernels = find(found, DRIVER_TYPES[match[2]])
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise BadInput(f"MIOpenDriver {match[1]}: {error} is missing or wrong") from None
    if not kernels:
        raise BadInput(f"MIOpenDriver {match[1]}: it says no direction")
    notes = [FUSED] if any(found.get(name, "0") not in ("", "0") for name in driver.added) else []
    notes += [rules.LOGARITHM] if driver is SOFTMAX and found.get("algorithm") == "2" else []
    return [kernel_call(f"miopen.{match[1]}", kernel, *notes) for kernel in kernels]


# ---- products: by columns, like ours


def _product(library: str, stated: Mapping[str, str], is_whole: bool) -> Logged:
    found = {LONG_NAMES.get(name, name): value for name, value in stated.items()}
    function = found.get("f", found.get("function", "gemm_ex" if library == "rocblas" else "matmul"))
    if library == "rocblas" and function not in PRODUCTS:
        raise BadInput(f"{shorten(function)} is no product of matrices")
    for name, value in found.items():
        if name in WITHOUT_EFFECT:
            if value not in WITHOUT_EFFECT[name]:
                raise BadInput(f"--{name} {shorten(value)} is no product of ours")
        elif name not in (*READ, *NEUTRAL, *ADDED, *OF_ADDED):
            raise BadInput(f"--{shorten(name)} is not known, so it may change the work")
    m, n, k = (_size(found, name) for name in "mnk")
    written = WRITTEN[f"{library} ex" if library == "rocblas" and function.endswith("_ex") else library]
    if missing := _missing(found, written):
        raise BadInput(f"it is cut off: it ends before --{missing}, which {library} writes")
    if not is_whole and list(found)[-1] in ("m", "n", "k", "batch_count", "batch"):
        raise BadInput("it ends with a size, which may be cut off")
    stored = []
    for side in "AB":
        word = found.get(f"transpose{side}", found.get(f"trans{side}", "N")).upper()
        if word not in ("N", "T", "C"):
            raise BadInput(f"it does not say whether {side} is transposed, but {shorten(word) or 'nothing'}")
        stored.append(int(word != "N"))
    precision, result = _types(library, function, found)
    batch = _size(found, "batch_count", found.get("batch", "" if "batched" in function else "1"))
    if batch > 1 and library == "rocblas" and "batched" not in function:
        raise BadInput(f"{function} is one product, and --batch_count is {batch}")
    alpha, beta = (_real(found, name, default) for name, default in (("alpha", "1"), ("beta", "0")))
    if alpha == 0:
        raise BadInput("alpha is 0, so nothing is multiplied")
    notes = [FUSED] if any(found[name] not in none for name, none in ADDED.items() if name in found) else []
    notes += [rules.ADDED] if batch > 1 and beta != 0 else []
    shapes = {"a": (k, m) if stored[0] else (m, k), "b": (n, k) if stored[1] else (k, n)}
    notes += [rules.SHARED] if any(_overlap(found, side, *shape, batch) for side, shape in shapes.items()) else []
    own = "0" if batch > 1 or beta == 0 else "1"
    kernel = rules.product(batch, m, n, k, precision, a_t=stored[0], b_t=stored[1], beta=own, result=result)
    return kernel_call(f"{library}.{function}", kernel, *notes)


def _missing(found: Mapping[str, str], written: Sequence[str]) -> str | None:
    """The option before which a command of the library is cut off; None if it is whole, or was typed."""
    own = tuple(name for name in found if name in {name for names in WRITTEN.values() for name in names})
    is_beginning = own == tuple(written[: len(own)]) and len(own) < len(written)
    return written[len(own)] if is_beginning else None


def _overlap(found: Mapping[str, str], side: str, rows: int, columns: int, batch: int) -> bool:
    """Whether the matrices of an operand of a batch share memory; they are stored by columns."""
    text = found.get(f"stride_{side}")
    if batch == 1 or text is None:
        return False
    stride = abs(int(text))
    leading = int(found.get(f"ld{side}") or rows)
    is_apart = stride >= leading * (columns - 1) + rows
    is_side_by_side = rows <= stride and stride * (batch - 1) + rows <= leading
    return not (is_apart or is_side_by_side)


def _size(found: Mapping[str, str], name: str, default: str = "") -> int:
    text = found.get(name, default)
    if not re.fullmatch(r"[1-9][0-9]{0,17}", text):
        raise BadInput(f"{name} is missing" if not text else f"{name} is {shorten(text)!r}, no size")
    return int(text)


def _real(found: Mapping[str, str], name: str, default: str) -> float:
    try:
        value = float(found.get(name, default))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput(f"{name} is {shorten(found[name])!r}, no number")
    return value


def _types(library: str, function: str, found: Mapping[str, str]) -> tuple[str, str]:
    """The precision of a product, and whether its result is wide. All types are f32 unless a command says otherwise."""
    whole = found.get("r", found.get("precision", "f32_r"))
    stated = [found.get(f"{x}_type", whole) for x in "abcd"]
    if function in PRODUCTS and not function.endswith("_ex"):
        stated, compute = [found.get("a_type", whole)] * 4, found.get("a_type", whole)
        if compute == "bf16_r":
            raise BadInput(f"{function} has no bf16")
    else:
        compute = found.get("compute_type", whole if library == "rocblas" else "f32_r")
    a, b, c, d = (TYPES.get(str(text), str(text)) for text in stated)
    sums = TYPES.get(compute, compute)
    known = PRODUCT_PRECISIONS.get((a, sums)) if a == b else None
    if known is None or d not in known[1] or c != d:
        types = " and ".join(dict.fromkeys((a, b)))
        raise BadInput(f"there is no product of {types} that adds in {sums} and has results in {d}")
    return known[0], known[1][d]


# ---- MIOpen


@dataclass(frozen=True)
class Driver:
    """The options of one of MIOpenDriver's operations."""

    short: Mapping[str, str]
    """Long names by their letters. Letters mean other things in other operations."""
    neutral: Sequence[str]
    """Options that do not change the work."""
    without_effect: Mapping[str, Sequence[str]]
    """Options that are understood only where they have no effect: with one of these values."""
    sizes: Sequence[str]
    """Options that may be cut off at the end of a line."""
    added: Sequence[str] = ()
    """Options that add work unless they are 0."""

    def named(self, operation: str, found: Mapping[str, str], is_whole: bool) -> dict[str, str]:
        """The options by their long names; `BadInput` for one that is not known."""
        values: dict[str, str] = {}
        for given, value in found.items():
            name = self.short.get(given, given)
            if name in values:
                raise BadInput(f"MIOpenDriver {operation}: {name} stands there twice")
            if value not in self.without_effect.get(name, (value,)):
                raise BadInput(f"MIOpenDriver {operation}: --{name} {shorten(value)} is no operation of ours")
            known = {*self.short.values(), *self.neutral, *self.without_effect, *self.added}
            if name not in known:
                raise BadInput(f"MIOpenDriver {operation}: {shorten(given)!r} is not known, so it may be a size")
            values[name] = value
        if not is_whole and values and next(reversed(values)) in self.sizes:
            raise BadInput(f"MIOpenDriver {operation}: it ends with a size, which may be cut off")
        return values


TIMING = (
    *("iter", "i", "verify", "V", "time", "t", "wall", "w", "printconv", "P", "use_hip_graph", "J", "~", "&"),
    *("gpubuffer_check", "tuning_policy"),
)
IMAGE = {"n": "batchsize", "c": "in_channels", "H": "in_h", "W": "in_w", "F": "forw", "m": "mode"}
IMAGE_SIZES = ("batchsize", "in_channels", "in_d", "in_h", "in_w")
WINDOW = {"y": "fil_h", "x": "fil_w", "p": "pad_h", "q": "pad_w"}
CONV = Driver(
    {
        **IMAGE,
        **WINDOW,
        **{"k": "out_channels", "g": "group_count", "u": "conv_stride_h", "v": "conv_stride_w"},
        **{"l": "dilation_h", "j": "dilation_w", "_": "spatial_dim", "!": "in_d", "@": "fil_d"},
        **{"#": "conv_stride_d", "$": "pad_d", "^": "dilation_d", "I": "in_layout", "f": "fil_layout"},
        **{"O": "out_layout", "b": "bias", "z": "pad_mode", "Z": "tensor_vect", "L": "vector_length"},
        **{"U": "in_cast_type", "R": "wei_cast_type", "T": "out_cast_type", "M": "math_type"},
        **{"%": "trans_output_pad_d", "Y": "trans_output_pad_h", "X": "trans_output_pad_w"},
    },
    (
        *(*TIMING, "search", "s", "solution", "S", "in_data", "d", "weights", "e", "in_bias", "a", "dout_data", "D"),
        *("verification_cache", "C", "dump_output", "o", "gpualloc", "G", "pad_val", "r", "init_output_nan", "N"),
    ),
    {
        **{"pad_mode": ("default",), "tensor_vect": ("0",), "vector_length": ("1",), "math_type": ("1",)},
        **dict.fromkeys(("in_cast_type", "wei_cast_type", "out_cast_type"), ("-1",)),
        **dict.fromkeys(("trans_output_pad_d", "trans_output_pad_h", "trans_output_pad_w"), ("0",)),
    },
    (*IMAGE_SIZES, "out_channels", "fil_d", "fil_h", "fil_w"),
)
POOL = Driver(
    {
        **IMAGE,
        **WINDOW,
        **{"u": "pool_stride_u", "v": "pool_stride_v", "s": "pool_stride_d", "Z": "fil_d", "o": "pad_d", "D": "in_d"},
        **{"d": "spatial_dim", "_": "spatial_dim", "z": "pad_mode", "win_d": "fil_d", "win_h": "fil_h"},
        **{"win_w": "fil_w", "pool_stride_h": "conv_stride_h", "pool_stride_w": "conv_stride_w", "input": "in_w"},
    },
    (*TIMING, "print", "mt", "U", "pad_val", "r", "index_type", "I", "index_position", "M", "dump_root", "l"),
    {"pad_mode": ("default",)},
    IMAGE_SIZES,
)
BNORM = Driver(
    {**IMAGE, "D": "in_d", "L": "layout", "b": "back", "f": "activ_mode"},
    (
        *(*TIMING, "save", "s", "run", "r", "alpha", "A", "beta", "B", "inverse_variance", "I", "ping_pong_buffers"),
        *("Q", "activ_alpha", "x", "activ_beta", "y", "z"),
    ),
    {},
    IMAGE_SIZES,
    ("activ_mode",),
)
ACTIV = Driver(IMAGE, (*TIMING, "alpha", "A", "beta", "B", "gamma", "G"), {}, IMAGE_SIZES)
SOFTMAX = Driver(
    {**IMAGE, "L": "layout", "B": "beta", "a": "algorithm"},
    (*TIMING, "alpha", "A"),
    {"beta": ("0", "0.0", "0.000000")},
    IMAGE_SIZES,
)
RNN = Driver(
    {
        **{"n": "batches", "batchsize": "batches", "k": "steps", "seq_len": "steps", "H": "hidden", "hid_h": "hidden"},
        **{"W": "width", "in_h": "width", "l": "layers", "num_layer": "layers", "m": "mode", "r": "ways"},
        **{"bidirection": "ways", "F": "forw", "p": "inputmode", "c": "fwdtype", "U": "use_dropout"},
    },
    (
        *(*TIMING, "bias", "b", "use_padding", "q", "rnnalgo", "a", "datatype", "f", "dropout", "seed_low", "L"),
        *("seed_high", "M", "dump_output", "o"),
    ),
    {"inputmode": ("0",)},
    ("batches", "steps", "hidden", "width", "layers"),
    ("use_dropout",),
)


def _axes(found: Mapping[str, str]) -> str:
    return "dhw" if found.get("spatial_dim") == "3" else "hw"


def _numbers(found: Mapping[str, str], name: str, axes: str, default: str | None = None) -> list[int]:
    return [int(found[f"{name}_{axis}"] if default is None else found.get(f"{name}_{axis}", default)) for axis in axes]


LAYOUTS = {"NCHW": "nchw", "NCDHW": "nchw", "NHWC": "nhwc", "NDHWC": "nhwc"}


def _layout(found: Mapping[str, str]) -> str:
    stated = {found[name] for name in ("in_layout", "fil_layout", "out_layout", "layout") if name in found}
    if len(stated) > 1 or not stated <= set(LAYOUTS):
        raise BadInput(f"the layout {' and '.join(sorted(stated))} is none of ours")
    return LAYOUTS[stated.pop()] if stated else "nchw"


def _outputs(found: Mapping[str, str], axes: str) -> tuple[list[list[int]], list[int]]:
    """Image, filter, stride, padding and dilation, and the number of results on each axis."""
    values = [
        _numbers(found, "in", axes),
        _numbers(found, "fil", axes),
        _numbers(found, "conv_stride", axes, "1"),
        _numbers(found, "pad", axes, "0"),
        _numbers(found, "dilation", axes, "1"),
    ]
    image, filters, stride, pad, dilation = values
    if min(*image, *filters, *stride, *dilation) < 1 or min(pad) < 0:
        raise BadInput("a size, a stride or a dilation is less than 1, or a padding less than 0")
    sides = zip(*values, strict=True)
    return values, [(i + 2 * pad - d * (f - 1) - 1) // s + 1 for i, f, s, pad, d in sides]


def _directions(found: Mapping[str, str]) -> list[str]:
    chosen = int(found.get("forw", "0"))
    return [name for bit, name in DIRECTIONS.items() if not chosen or chosen & bit]


def _conv(found: Mapping[str, str], precision: str | None) -> list[str]:
    """A transposed convolution is the data gradient of the convolution from its result to its input."""
    axes = _axes(found)
    (image, filters, stride, pad, dilation), outputs = _outputs(found, axes)
    n, c, k = (int(found[name]) for name in ("batchsize", "in_channels", "out_channels"))
    directions = _directions(found)
    if found.get("mode") == "trans":
        sides = zip(image, filters, stride, pad, dilation, strict=True)
        image, outputs = [(i - 1) * s - 2 * p + d * (f - 1) + 1 for i, f, s, p, d in sides], image
        c, k = k, c
        changed = {"forward": "backward_data", "backward_data": "forward"}
        directions = [changed.get(direction, direction) for direction in directions]
    window, groups = Window(filters, stride, pad, dilation), int(found.get("group_count", "1"))
    image, result = [n, c, *image], [n, k, *outputs]
    bias = "yes" if found.get("bias", "0") not in ("", "0") else "no"
    return [
        rules.convolution(window, image, result, precision, direction, groups, layout=_layout(found), bias=bias)
        for direction in directions
    ]


def _image(found: Mapping[str, str]) -> dict[str, str]:
    """Sizes of an array, which newer versions write as one text: `64x3x32x32,NHWC`, or with its strides at the end."""
    stated = found.get("in_w", "")
    if "x" not in stated:
        return dict(found)
    text, _, layout = stated.partition(",")
    sizes = text.split("x")
    names = ("batchsize", "in_channels", *(("in_d",) if len(sizes) == 5 else ()), "in_h", "in_w")
    if any(name in found for name in names[:-1]):
        raise BadInput(f"{shorten(stated)} and other sizes contradict each other")
    if "x" in layout:
        strides = layout.split("x")
        is_last = strides[1] == "1" and sizes[1] != "1"
        layout = "NHWC" if is_last else "NCHW" if strides[-1] == "1" else "of other strides"
    own = {"layout": layout} if layout else {}
    return {**found, **dict(zip(names, sizes, strict=True)), **own, "spatial_dim": str(len(sizes) - 2), "one": "1"}


def _shape(found: Mapping[str, str]) -> list[int]:
    """Images, channels and sides."""
    axes = "dhw" if int(found.get("in_d", "0")) > 0 else "hw"
    return [int(found["batchsize"]), int(found["in_channels"]), *_numbers(found, "in", axes)]


def _once(found: Mapping[str, str]) -> list[str]:
    """Forward and backward; MIOpen's 2 is backward here."""
    return list(dict.fromkeys("forward" if d == "forward" else "backward" for d in _directions(found)))


def _pool(found: Mapping[str, str], precision: str | None) -> list[str]:
    found = _image(found)
    for axis, letter in (("h", "v"), ("w", "u")):
        # Which of both is vertical has changed from one version to another.
        if found.get("pool_stride_u", "1") != found.get("pool_stride_v", "1"):
            raise BadInput("MIOpenDriver pool: -u and -v differ, and which of them is vertical depends on the version")
        found.setdefault(f"conv_stride_{axis}", found.get(f"pool_stride_{letter}", "1"))
    found.setdefault("conv_stride_d", found.get("pool_stride_d", "1"))
    axes = _axes(found)
    (image, filters, stride, pad, dilation), outputs = _outputs(found, axes)
    kind = "max" if found.get("mode", "max") == "max" else "average"
    # Newer versions log the gradient with 0, which means both to the driver.
    ways = ["backward"] if "one" in found and found.get("forw") == "0" else _once(found)
    window = Window(filters, stride, pad, dilation)
    counts = [int(found["batchsize"]), int(found["in_channels"])]
    image, result = [*counts, *image], [*counts, *outputs]
    return [rules.pooling(kind, window, image, result, precision, way, layout=_layout(found)) for way in ways]


def _bnorm(found: Mapping[str, str], precision: str | None) -> list[str]:
    """Forward 1 is training and 2 inference; the gradient has an option of its own."""
    if found.get("mode", "0") != "1":
        raise BadInput("MIOpenDriver bnorm: statistics of each pixel are no operation of ours")
    image, layout, is_backward = _shape(found), _layout(found), found.get("back", "0") == "1"
    forward = found.get("forw", "0")
    if is_backward and forward == "0":
        return [rules.batch_norm(image, precision, "backward", layout=layout)]
    mode = {"0": "training", "1": "training", "2": "inference"}[forward]
    return [rules.batch_norm(image, precision, layout=layout, mode=mode)]


def _activ(found: Mapping[str, str], precision: str | None) -> list[str]:
    if found.get("mode") not in ACTIVATIONS:
        raise BadInput(f"MIOpenDriver activ: the function {found.get('mode')} is none of ours")
    n, kind = math.prod(_shape(found)), ACTIVATIONS[found["mode"]]
    return [rules.elementwise(kind, n, precision, way) for way in _once(found)]


def _softmax(found: Mapping[str, str], precision: str | None) -> list[str]:
    """Over the channels of each pixel (mode 1), or over all of an image (mode 0)."""
    shape = _shape(found)
    _layout(found)
    if found.get("mode", "1") == "1" and math.prod(shape[2:]) != 1:
        raise BadInput("MIOpenDriver softmax: the channels of a pixel are not next to each other")
    return [rules.by_rows("softmax", shape, math.prod(shape[1:]), precision, way) for way in _once(found)]


def _rnn(found: Mapping[str, str], precision: str | None) -> list[str]:
    """`-n` lists the batch of every step; with `-p 1` the input is not multiplied."""
    batches = [int(n) for n in found["batches"].split(",")]
    if len(set(batches)) != 1:
        raise BadInput("MIOpenDriver rnn: steps with different batches are not read")
    cells = {"lstm": "lstm", "gru": "gru", "relu": "vanilla", "tanh": "vanilla"}
    sizes: dict[str, int | str] = {
        "cell": cells[found["mode"]],
        "hidden": int(found["hidden"]),
        "batch": batches[0],
        "timesteps": int(found.get("steps", len(batches))),
        "input_size": int(found["width"]),
        "layers": int(found.get("layers", "1")),
        "bidirectional": int(found.get("ways", "0")),
    }
    mode = "inference" if found.get("fwdtype") == "1" else "training"
    return [kernel_text("recurrent", sizes, precision, way, mode=mode) for way in _directions(found)]


KERNELS: dict[str, tuple[Callable[[Mapping[str, str], str | None], list[str]], Driver]] = {
    "conv": (_conv, CONV),
    "pool": (_pool, POOL),
    "bnorm": (_bnorm, BNORM),
    "activ": (_activ, ACTIV),
    "softmax": (_softmax, SOFTMAX),
    "rnn": (_rnn, RNN),
}
