"""Products: batched, grouped, of layers, and of quantized weights, computed rightly and with mistakes."""

from itertools import pairwise

import numpy as np

from deepbench.ops.linear import activate
from deepbench.ops.weight_only_gemm.drawn import unpack
from tests.ops.wrong_kernels import Kernel

# Small ones, whose elements are all compared, and a large one, of which a sample and a projection are.
BATCHED = ["batched_gemm batch=4 m=13 n=33 k=5 b_t=1", "batched_gemm batch=5 m=256 n=256 k=64 a_t=1"]

GROUPED = ["grouped_gemm groups=6 tokens=50 m=33 k=17 skew=10", "grouped_gemm groups=8 tokens=300 m=200 k=512 skew=5"]

# Some groups have no rows.
GROUPED_WITH_IDLE = ["grouped_gemm groups=9 tokens=5 m=33 k=17", "grouped_gemm groups=16 tokens=12 m=64 k=1024 skew=5"]

LINEAR = ["linear m=48 n=33 k=65", "linear m=100 n=64 k=768"]

WEIGHT_ONLY = [
    "weight_only_gemm m=7 n=3 k=18 group=6 bits=4",
    "weight_only_gemm m=35 n=1 k=96 group=32 bits=8",
    "weight_only_gemm m=48 n=33 k=1024 group=128 bits=4",
    *(f"weight_only_gemm m=9 n=3 k=40 group=20 bits={bits}" for bits in (1, 2)),
    *(f"weight_only_gemm m=48 n=33 k=1024 group=128 bits={bits}" for bits in (1, 2)),
]

KINDS = ["f32", "bf16"]


def in_f32(*matrices):
    return [matrix.astype(np.float32) for matrix in matrices]


def batched_matrices(case, arrays):
    p, (a, b) = case.problem, in_f32(arrays["a"], arrays["b"])
    return a.swapaxes(1, 2) if p.a_t else a, b.swapaxes(1, 2) if p.b_t else b


def first_weights_for_all(case, arrays):
    left, right = batched_matrices(case, arrays)
    return right @ left[:1]


def last_batch_missing(case, arrays):
    left, right = batched_matrices(case, arrays)
    c = right @ left
    c[-1] = 0
    return c


def last_product_missing(case, arrays):
    left, right = batched_matrices(case, arrays)
    return right[..., :-1] @ left[:, :-1]


def last_row_of_a_batch_missing(case, arrays):
    left, right = batched_matrices(case, arrays)
    c = right @ left
    c[1, :, -1] = 0
    return c


def sums_in_16_bits(case, arrays):
    left, right = batched_matrices(case, arrays)
    total, kind = np.zeros(arrays["c"].shape, np.float16), np.float16
    for i in range(case.problem.k):
        total += (right[..., i, None] * left[:, i, None, :]).astype(kind)
    return total


def grouped(case, arrays, offsets=None, shift=0):
    a, b = in_f32(arrays["a"], arrays["b"])
    c = np.zeros(arrays["c"].shape, np.float32)
    for group, (start, end) in enumerate(pairwise(offsets or case.problem.offsets)):
        c[start:end] = b[start:end] @ a[(group + shift) % len(a)].T
    return c


def weights_of_the_next_group(case, arrays):
    return grouped(case, arrays, shift=1)


def one_row_in_the_wrong_group(case, arrays):
    offsets = list(case.problem.offsets)
    boundary = next(i for i in range(1, len(offsets) - 1) if 0 < offsets[i] < offsets[-1])
    offsets[boundary] += 1
    return grouped(case, arrays, np.maximum.accumulate(offsets).tolist())


def equal_shares(case, arrays):
    p = case.problem
    return grouped(case, arrays, [p.tokens * i // p.groups for i in range(p.groups + 1)])


def last_row_missing(case, arrays):
    c = grouped(case, arrays)
    c[-1] = 0
    return c


def weights_gradient(case, arrays, offsets=None, shift=0):
    dc, b = in_f32(arrays["dc"], arrays["b"])
    da = np.zeros(arrays["da"].shape, np.float32)
    for group, (start, end) in enumerate(pairwise(offsets or case.problem.offsets)):
        da[(group + shift) % len(da)] = dc[start:end].T @ b[start:end]
    return da


def gradient_of_the_next_group(case, arrays):
    return weights_gradient(case, arrays, shift=1)


def one_row_more_in_a_group(case, arrays):
    offsets = list(case.problem.offsets)
    boundary = next(i for i in range(1, len(offsets) - 1) if 0 < offsets[i] < offsets[-1])
    offsets[boundary] += 1
    return weights_gradient(case, arrays, np.maximum.accumulate(offsets).tolist())


def sums_of_equal_shares(case, arrays):
    p = case.problem
    return weights_gradient(case, arrays, [p.tokens * i // p.groups for i in range(p.groups + 1)])


def last_token_not_added(case, arrays):
    offsets = [min(end, case.problem.tokens - 1) for end in case.problem.offsets]
    return weights_gradient(case, arrays, offsets)


def means_over_rows(case, arrays):
    rows = np.maximum(1, np.diff(case.problem.offsets)).astype(np.float32)
    return weights_gradient(case, arrays) / rows[:, None, None]


def sums(arrays):
    a, b = in_f32(arrays["a"], arrays["b"])
    return b @ a.T


def bias_missing(arrays, name):
    return activate(name, sums(arrays))


def bias_after_activation(arrays, name):
    return activate(name, sums(arrays)) + arrays["bias"].astype(np.float32)


def bias_along_tokens(arrays, name):
    z = sums(arrays)
    return activate(name, z + np.resize(arrays["bias"].astype(np.float32), z.shape[0])[:, None])


def activation_missing(arrays, name):
    return sums(arrays) + arrays["bias"].astype(np.float32)


def last_output_not_activated(arrays, name):
    z = activation_missing(arrays, name)
    y = activate(name, z)
    y[:, -1] = z[:, -1]
    return y


def last_token_missing(arrays, name):
    y = activate(name, activation_missing(arrays, name))
    y[-1] = 0
    return y


def dequantized(case, arrays):
    """Integers and the scale of each, as (m, k)."""
    p = case.problem
    integers = arrays["a"] if p.bits == 8 else unpack(arrays["a"], p.bits)
    return integers.astype(np.float32), np.repeat(arrays["scales"].astype(np.float32), p.group, axis=0).T


def scales_missing(case, arrays):
    return dequantized(case, arrays)[0]


def scales_of_the_next_group(case, arrays):
    integers, scales = dequantized(case, arrays)
    return integers * np.roll(scales, case.problem.group, axis=1)


def scales_of_the_next_output(case, arrays):
    integers, scales = dequantized(case, arrays)
    return integers * np.roll(scales, 1, axis=0)


def last_group_missing(case, arrays):
    integers, scales = dequantized(case, arrays)
    integers[:, -case.problem.group :] = 0
    return integers * scales


def unsigned_integers(case, arrays):
    integers, scales = dequantized(case, arrays)
    if case.problem.bits == 1:
        return np.maximum(integers, 0) * scales
    return np.where(integers < 0, integers + 2**case.problem.bits, integers) * scales


def integers_one_too_large(case, arrays):
    integers, scales = dequantized(case, arrays)
    return (integers + 1) * scales


def signs_flipped(case, arrays):
    integers, scales = dequantized(case, arrays)
    return -integers * scales


def highest_bits_first(case, arrays):
    integers, scales = dequantized(case, arrays)
    per_byte = 8 // case.problem.bits
    return integers.reshape(-1, per_byte)[:, ::-1].reshape(integers.shape) * scales


def bits_of_each_integer_reversed(case, arrays):
    _, scales = dequantized(case, arrays)
    a, bits = arrays["a"], case.problem.bits
    places = np.unpackbits(a, axis=1, bitorder="little").reshape(-1, bits)[:, ::-1]
    return unpack(np.packbits(places, bitorder="little").reshape(a.shape), bits).astype(np.float32) * scales


def neighbours_swapped(case, arrays):
    integers, scales = dequantized(case, arrays)
    return integers.reshape(-1, 2)[:, ::-1].reshape(integers.shape) * scales


def idle_expert_not_zero(case, arrays):
    da = weights_gradient(case, arrays)
    idle = [i for i, (start, end) in enumerate(pairwise(case.problem.offsets)) if start == end]
    da[idle[0], -1, -1] = 1e-3
    return da


def gelu_by_tanh(arrays, name):
    z = activation_missing(arrays, name)
    return 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))


def wrong(output, function, text):
    name = function.__name__.replace("_", " ")
    return Kernel(text, name, lambda case, arrays, _: {output: function(case, arrays)})


def right(output, function, text):
    return Kernel(text, None, lambda case, arrays, _: {output: function(case, arrays)})


def wrong_layer(function, text):
    name = function.__name__.replace("_", " ")
    return Kernel(text, name, lambda case, a, _: {"c": function(a, case.settings["activation"])})


def wrong_weights(function, text):
    name = function.__name__.replace("_", " ")
    return Kernel(text, name, lambda case, a, _: {"c": a["b"] @ function(case, a).T})


BATCHED_MISTAKES = (first_weights_for_all, last_batch_missing, last_product_missing, last_row_of_a_batch_missing)
GROUPED_MISTAKES = (weights_of_the_next_group, one_row_in_the_wrong_group, equal_shares, last_row_missing)
GROUPED_GRADIENTS = (
    *(gradient_of_the_next_group, one_row_more_in_a_group, sums_of_equal_shares, last_token_not_added),
    means_over_rows,
)
LAYER_MISTAKES = (
    *(bias_missing, bias_after_activation, bias_along_tokens, activation_missing, last_output_not_activated),
    last_token_missing,
)
WEIGHT_MISTAKES = (
    *(scales_missing, scales_of_the_next_group, scales_of_the_next_output, last_group_missing, unsigned_integers),
    *(neighbours_swapped, signs_flipped),
)
# Of integers that share a byte, by their bits.
BIT_MISTAKES = {
    1: (highest_bits_first, integers_one_too_large),
    2: (highest_bits_first, integers_one_too_large, bits_of_each_integer_reversed),
    4: (integers_one_too_large,),
}
GRADIENT = "backward_weights"

KERNELS = [
    *(wrong("c", f, f"{text} forward {kind}") for f in BATCHED_MISTAKES for text in BATCHED for kind in KINDS),
    *(wrong("c", sums_in_16_bits, f"{text} forward f16 result=wide") for text in BATCHED),
    *(right("c", grouped, f"{text} forward {kind}") for text in GROUPED for kind in KINDS),
    *(wrong("c", f, f"{text} forward {kind}") for f in GROUPED_MISTAKES for text in GROUPED for kind in KINDS),
    *(right("da", weights_gradient, f"{text} {GRADIENT} {kind}") for text in GROUPED for kind in KINDS),
    *(wrong("da", f, f"{text} {GRADIENT} {kind}") for f in GROUPED_GRADIENTS for text in GROUPED for kind in KINDS),
    *(right("da", weights_gradient, f"{text} {GRADIENT} f32") for text in GROUPED_WITH_IDLE),
    *(wrong("da", idle_expert_not_zero, f"{text} {GRADIENT} f32") for text in GROUPED_WITH_IDLE),
    *(
        wrong_layer(f, f"{text} forward {kind} activation={activation}")
        for f in LAYER_MISTAKES
        for activation in ("relu", "gelu", "silu")
        for text in LINEAR
        for kind in KINDS
    ),
    *(wrong_layer(bias_missing, f"{text} forward {kind}") for text in LINEAR for kind in KINDS),
    *(wrong_layer(gelu_by_tanh, f"{text} forward f32 activation=gelu") for text in LINEAR),
    *(wrong_weights(f, f"{text} forward {kind}") for f in WEIGHT_MISTAKES for text in WEIGHT_ONLY for kind in KINDS),
    *(
        wrong_weights(f, f"{text} forward {kind}")
        for bits, mistakes in BIT_MISTAKES.items()
        for f in mistakes
        for text in WEIGHT_ONLY
        for kind in KINDS
        if text.endswith(f"bits={bits}")
    ),
]
