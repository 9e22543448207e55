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
from collections.abc import Callable, Mapping

from deepbench.core.errors import BadInput
from deepbench.networks.traces import kernel_rules as rules
from deepbench.networks.traces.kernel_rules import Window
from deepbench.networks.traces.kernels import kernel_text
from deepbench.networks.traces.logs import Logged, kernel_call, options

PRODUCT = re.compile(r"\b(rocblas|hipblaslt)-bench\s(.*)")
DRIVER = re.compile(r"\bMIOpenDriver\s+([a-z_]+?)(fp16|bfp16|bf16|int8|fp64)?\s(.*)")

TYPES = {
    **{"f32_r": "f32", "s": "f32", "f16_r": "f16", "h": "f16", "bf16_r": "bf16", "i8_r": "s8", "i32_r": "s32"},
    **{"f64_r": "f64", "d": "f64", "xf32_r": "tf32"},
}
PRODUCTS = ("gemm", "gemm_ex", "gemm_batched", "gemm_batched_ex", "gemm_strided_batched", "gemm_strided_batched_ex")

DRIVER_TYPES = {None: "f32", "fp16": "f16", "bfp16": "bf16", "bf16": "bf16", "int8": "i8"}

# Short names of MIOpenDriver's options for images, and for recurrent layers.
IMAGES = {
    **{"n": "batchsize", "c": "in_channels", "H": "in_h", "W": "in_w", "k": "out_channels", "g": "group_count"},
    **{"y": "fil_h", "x": "fil_w", "p": "pad_h", "q": "pad_w", "u": "conv_stride_h", "v": "conv_stride_w"},
    **{"l": "dilation_h", "j": "dilation_w", "F": "forw", "m": "mode", "_": "spatial_dim", "!": "in_d", "@": "fil_d"},
    **{"#": "conv_stride_d", "$": "pad_d", "^": "dilation_d", "I": "in_layout", "b": "back", "L": "layout"},
    **{"pool_stride_h": "conv_stride_h", "pool_stride_w": "conv_stride_w", "win_h": "fil_h", "win_w": "fil_w"},
}

LAYERS = {
    "n": "batches",
    "k": "steps",
    "H": "hidden",
    "W": "width",
    "l": "layers",
    "m": "mode",
    "r": "ways",
    "F": "forw",
}

# Of one call there is one; 0 stands for all.
DIRECTIONS = {1: "forward", 2: "backward_data", 4: "backward_weights"}

ACTIVATIONS = {"1": "sigmoid", "2": "tanh", "3": "relu", "7": "relu6", "9": "elu"}


def is_line(line: str) -> bool:
    """Whether this is a line of one of these logs."""
    return bool(PRODUCT.search(line) or DRIVER.search(line))


def read(line: str) -> list[Logged]:
    """The calls of a line; `BadInput` says why it is not understood."""
    if match := PRODUCT.search(line):
        return [_product(match[1], options(match[2].split()))]
    match = DRIVER.search(line)
    if match is None or match[1] not in KERNELS:
        raise BadInput("no operation of MIOpen that is read")
    find, names = KERNELS[match[1]]
    found = {names.get(name, name): value for name, value in options(match[3].split()).items()}
    try:
        kernels = find(found, DRIVER_TYPES.get(match[2]))
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise BadInput(f"MIOpenDriver {match[1]}: {error} is missing or wrong") from None
    return [kernel_call(f"miopen.{match[1]}", kernel) for kernel in kernels]


# ---- products: by columns, like ours


def _product(library: str, found: Mapping[str, str]) -> Logged:
    function = found.get("f", "gemm_ex") if library == "rocblas" else "matmul"
    if library == "rocblas" and function not in PRODUCTS:
        raise BadInput(f"{function} is no product of matrices")
    try:
        m, n, k = (int(found[name]) for name in "mnk")
    except (KeyError, ValueError):
        raise BadInput("m, n or k is missing") from None
    a_t, b_t = (int(found.get(f"transpose{x}", found.get(f"trans{x}", "N")).upper() != "N") for x in "AB")
    whole = TYPES.get(found.get("r", found.get("precision", "f32_r")))
    kinds = [TYPES.get(found[name]) if name in found else whole for name in ("a_type", "b_type", "d_type")]
    computed = TYPES.get(found.get("compute_type", ""), "")
    precision = {("s8", "s8"): "i8"}.get((str(kinds[0]), str(kinds[1])), kinds[0] if kinds[0] == kinds[1] else None)
    if kinds[0] == "f32" and computed == "tf32":
        precision = "tf32"
    if kinds[0] == "f16" and computed == "f16":
        precision = "f16f16"
    result = "narrow" if kinds[2] in ("f16", "bf16") else "wide"
    batch = int(found.get("batch_count", "1"))
    is_fused = "bias_vector" in found or found.get("activation_type", "none") != "none"
    beta = "0" if batch > 1 or float(found.get("beta", "0")) == 0 else "1"
    kernel = rules.product(batch, m, n, k, precision, a_t=a_t, b_t=b_t, beta=beta, result=result)
    return kernel_call(f"{library}.{function}", kernel, is_fused)


# ---- MIOpen


def _axes(found: Mapping[str, str]) -> str:
    return "dhw" if found.get("spatial_dim") == "3" else "hw"


def _numbers(found: Mapping[str, str], name: str, axes: str, default: str | None = None) -> list[int]:
    return [int(found[f"{name}_{axis}"] if default is None else found.get(f"{name}_{axis}", default)) for axis in axes]


def _layout(found: Mapping[str, str]) -> str:
    stated = found.get("in_layout") or found.get("layout") or "NCHW"
    return "nhwc" if stated in ("NHWC", "NDHWC") else "nchw"


def _outputs(found: Mapping[str, str], axes: str) -> tuple[list[list[int]], list[int]]:
    """Image, filter, stride, padding and dilation, and the number of results on each axis."""
    values = [
        _numbers(found, "in", axes),
        _numbers(found, "fil", axes),
        _numbers(found, "conv_stride", axes, "1"),
        _numbers(found, "pad", axes, "0"),
        _numbers(found, "dilation", axes, "1"),
    ]
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
    return [
        rules.convolution(window, image, result, precision, direction, groups, layout=_layout(found))
        for direction in directions
    ]


def _image(found: Mapping[str, str]) -> dict[str, str]:
    """Sizes of an array, which may be one text such as 64x3x32x32."""
    stated = next((v for v in (found.get("input"), found.get("in_w")) if v and re.search("[x,]", v)), None)
    if stated is None:
        return dict(found)
    sizes = re.split("[x,]", stated)
    names = ("batchsize", "in_channels", *(("in_d",) if len(sizes) == 5 else ()), "in_h", "in_w")
    return {**found, **dict(zip(names, sizes, strict=True)), "spatial_dim": str(len(sizes) - 2)}


def _shape(found: Mapping[str, str]) -> list[int]:
    """Images, channels and sides."""
    found = _image(found)
    return [int(found["batchsize"]), int(found["in_channels"]), *_numbers(found, "in", _axes(found))]


def _once(found: Mapping[str, str]) -> list[str]:
    """Forward and backward; MIOpen's 2 is backward here."""
    return list(dict.fromkeys("forward" if d == "forward" else "backward" for d in _directions(found)))


def _pool(found: Mapping[str, str], precision: str | None) -> list[str]:
    found = _image(found)
    axes = _axes(found)
    (image, filters, stride, pad, dilation), outputs = _outputs(found, axes)
    kind = "max" if found.get("mode", "max") == "max" else "average"
    window = Window(filters, stride, pad, dilation)
    counts = [int(found["batchsize"]), int(found["in_channels"])]
    image, result = [*counts, *image], [*counts, *outputs]
    return [rules.pooling(kind, window, image, result, precision, way, layout=_layout(found)) for way in _once(found)]


def _bnorm(found: Mapping[str, str], precision: str | None) -> list[str]:
    """Forward 1 is training and 2 inference; the gradient has an option of its own."""
    if found.get("mode", "1") != "1":
        raise BadInput("MIOpenDriver bnorm: statistics of each pixel are no operation of ours")
    image, layout, kernels = _shape(found), _layout(_image(found)), []
    modes = {"1": "training", "2": "inference"}
    if mode := modes.get(found.get("forw", "0")):
        kernels.append(rules.batch_norm(image, precision, layout=layout, mode=mode))
    if found.get("back", "0") == "1":
        kernels.append(rules.batch_norm(image, precision, "backward", layout=layout))
    return kernels


def _activ(found: Mapping[str, str], precision: str | None) -> list[str]:
    if found.get("mode") not in ACTIVATIONS:
        raise BadInput(f"MIOpenDriver activ: the function {found.get('mode')} is none of ours")
    n, kind = math.prod(_shape(found)), ACTIVATIONS[found["mode"]]
    return [rules.elementwise(kind, n, precision, way) for way in _once(found)]


def _softmax(found: Mapping[str, str], precision: str | None) -> list[str]:
    """Over the channels of each pixel (mode 1), or over all of an image (mode 0)."""
    shape = _shape(found)
    if found.get("mode", "1") == "1" and math.prod(shape[2:]) != 1:
        raise BadInput("MIOpenDriver softmax: the channels of a pixel are not next to each other")
    return [rules.by_rows("softmax", shape, math.prod(shape[1:]), precision, way) for way in _once(found)]


def _rnn(found: Mapping[str, str], precision: str | None) -> list[str]:
    """`-n` lists the batch of every step; with `-p 1` the input is not multiplied."""
    batches = [int(n) for n in found["batches"].split(",")]
    if len(set(batches)) != 1 or found.get("p", "0") != "0":
        raise BadInput("MIOpenDriver rnn: steps with different batches, or without weights for the input, are not read")
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
    return [kernel_text("recurrent", sizes, precision, way, mode="training") for way in _directions(found)]


KERNELS: dict[str, tuple[Callable[[Mapping[str, str], str | None], list[str]], Mapping[str, str]]] = {
    "conv": (_conv, IMAGES),
    "pool": (_pool, IMAGES),
    "bnorm": (_bnorm, IMAGES),
    "activ": (_activ, IMAGES),
    "softmax": (_softmax, IMAGES),
    "rnn": (_rnn, LAYERS),
}
