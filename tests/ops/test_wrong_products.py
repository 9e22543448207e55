"""Products: a correct evaluation passes with room, and the likeliest mistakes of a kernel are found."""

from itertools import pairwise

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.core.tolerance import TOLERANCE_UNITS
from deepbench.measuring.check import check
from deepbench.ops.linear import activate
from deepbench.ops.weight_only_gemm import Dequantized, unpack

# Small ones, whose elements are all compared, and a large one, of which a sample and a projection are.
BATCHED = ["batched_gemm batch=4 m=13 n=33 k=5 b_t=1", "batched_gemm batch=40 m=256 n=256 k=64 a_t=1"]
GROUPED = ["grouped_gemm groups=6 tokens=50 m=33 k=17 skew=10", "grouped_gemm groups=8 tokens=300 m=768 k=1024 skew=5"]
# Some groups have no rows.
GROUPED_WITH_IDLE = ["grouped_gemm groups=9 tokens=5 m=33 k=17", "grouped_gemm groups=16 tokens=12 m=768 k=1024 skew=5"]
LINEAR = ["linear m=48 n=33 k=65", "linear m=3072 n=64 k=768"]
WEIGHT_ONLY = [
    "weight_only_gemm m=7 n=3 k=18 group=6 bits=4",
    "weight_only_gemm m=35 n=1 k=96 group=32 bits=8",
    "weight_only_gemm m=2048 n=33 k=2048 group=128 bits=4",
]
KINDS = ["f32", "bf16"]


def make(text, kind, settings="", direction="forward"):
    case = parse_case(f"{text} {direction} {kind} reference threads=1 {settings}")
    op = find_op(case.op)
    return case, op, op.operands(case)


def verdict(case, op, arrays, c):
    arrays["c"][...] = c
    return check(op, case, arrays)


def in_f32(*matrices):
    return [matrix.astype(np.float32) for matrix in matrices]


def assert_passes_with_room(case, op, arrays, evaluate):
    """Half of the tolerance is enough before the result is stored."""
    every, unit = slice(None), TOLERANCE_UNITS * op.roundoff(case)
    for product in op.products(case, arrays):
        want, tolerance = product.wanted(every, every, unit)
        assert np.all(np.abs(evaluate(product) - want) < 0.5 * tolerance)
    c = np.concatenate([evaluate(product).reshape(-1) for product in op.products(case, arrays)])
    assert verdict(case, op, arrays, c.reshape(arrays["c"].shape)).passed


def product_in_f32(product):
    right, left = in_f32(product.right, product.left[:, :])
    return right @ left


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*BATCHED, *GROUPED, *WEIGHT_ONLY])
def test_a_correct_evaluation_in_f32_passes_with_room(text, kind):
    assert_passes_with_room(*make(text, kind), product_in_f32)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", LINEAR)
def test_a_correct_layer_in_f32_passes_with_room(text, kind, activation):
    case, op, arrays = make(text, kind, f"activation={activation}")

    def evaluate(product):
        z = product_in_f32(product) + arrays["bias"].astype(np.float32)
        return activate(activation, z).astype(np.float32)

    assert_passes_with_room(case, op, arrays, evaluate)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_weights_may_be_rounded_to_the_type_of_the_data(kind):
    for text in WEIGHT_ONLY:
        case, op, arrays = make(text, kind)

        def evaluate(product, stored=arrays["b"].dtype):
            return product.right.astype(np.float32) @ product.left[:, :].astype(stored).astype(np.float32)

        assert_passes_with_room(case, op, arrays, evaluate)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_a_layer_may_store_its_sums_before_the_activation(kind):
    case, op, arrays = make(LINEAR[1], kind, "activation=gelu")
    (product,) = op.products(case, arrays)
    z = (product_in_f32(product) + arrays["bias"].astype(np.float32)).astype(arrays["c"].dtype)

    assert verdict(case, op, arrays, activate("gelu", z.astype(float))).passed


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", BATCHED)
@pytest.mark.parametrize(
    "wrong", [first_weights_for_all, last_batch_missing, last_product_missing, last_row_of_a_batch_missing]
)
def test_a_wrong_batched_product_is_found(text, kind, wrong):
    case, op, arrays = make(text, kind)

    assert not verdict(case, op, arrays, wrong(case, arrays)).passed


@pytest.mark.parametrize("text", BATCHED)
def test_sums_in_16_bits_are_found(text):
    case, op, arrays = make(text, "f16", "result=wide")

    assert not verdict(case, op, arrays, sums_in_16_bits(case, arrays)).passed


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", GROUPED)
@pytest.mark.parametrize(
    "wrong", [weights_of_the_next_group, one_row_in_the_wrong_group, equal_shares, last_row_missing]
)
def test_a_wrong_grouped_product_is_found(text, kind, wrong):
    case, op, arrays = make(text, kind)
    assert verdict(case, op, arrays, grouped(case, arrays)).passed

    assert not verdict(case, op, arrays, wrong(case, arrays)).passed


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", GROUPED)
@pytest.mark.parametrize(
    "wrong",
    [
        *(gradient_of_the_next_group, one_row_more_in_a_group, sums_of_equal_shares, last_token_not_added),
        means_over_rows,
    ],
)
def test_a_wrong_gradient_of_the_weights_of_experts_is_found(text, kind, wrong):
    case, op, arrays = make(text, kind, direction="backward_weights")
    arrays["da"][...] = weights_gradient(case, arrays)
    assert check(op, case, arrays).passed
    arrays["da"][...] = wrong(case, arrays)

    assert not check(op, case, arrays).passed


@pytest.mark.parametrize("text", GROUPED_WITH_IDLE)
def test_a_gradient_of_an_expert_without_rows_that_is_not_zero_is_found(text):
    case, op, arrays = make(text, "f32", direction="backward_weights")
    idle = [i for i, (start, end) in enumerate(pairwise(case.problem.offsets)) if start == end]
    arrays["da"][...] = weights_gradient(case, arrays)
    assert check(op, case, arrays).passed
    arrays["da"][idle[0], -1, -1] = 1e-3

    assert not check(op, case, arrays).passed


def test_the_gradient_of_weights_is_that_of_the_product():
    """⟨dC, A·B⟩ = ⟨dA, A⟩, because the product is linear in A."""
    forward, op, arrays = make(GROUPED[0], "f32")
    backward, _, gradients = make(GROUPED[0], "f32", direction="backward_weights")
    gradients["b"][...] = arrays["b"]

    c, da = op.reference(forward, arrays)["c"], op.reference(backward, gradients)["da"]

    assert (c * gradients["dc"]).sum() == pytest.approx((da * arrays["a"]).sum())
    assert op.flop(forward) == op.flop(backward)


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", LINEAR)
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
@pytest.mark.parametrize(
    "wrong",
    [
        *(bias_missing, bias_after_activation, bias_along_tokens, activation_missing, last_output_not_activated),
        last_token_missing,
    ],
)
def test_a_wrong_layer_is_found(text, kind, activation, wrong):
    case, op, arrays = make(text, kind, f"activation={activation}")

    assert not verdict(case, op, arrays, wrong(arrays, activation)).passed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", LINEAR)
def test_a_missing_bias_is_found_without_an_activation(text, kind):
    case, op, arrays = make(text, kind)

    assert not verdict(case, op, arrays, sums(arrays)).passed


@pytest.mark.parametrize("text", LINEAR)
def test_the_approximation_of_gelu_by_tanh_is_found(text):
    case, op, arrays = make(text, "f32", "activation=gelu")
    z = activation_missing(arrays, "gelu")
    approximation = 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))

    assert not verdict(case, op, arrays, approximation).passed


def dequantized(case, arrays):
    """Integers and the scale of each, as (m, k)."""
    p = case.problem
    integers = arrays["a"] if p.bits == 8 else unpack(arrays["a"])
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
    return np.where(integers < 0, integers + 2**case.problem.bits, integers) * scales


def neighbours_swapped(case, arrays):
    integers, scales = dequantized(case, arrays)
    return integers.reshape(-1, 2)[:, ::-1].reshape(integers.shape) * scales


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", WEIGHT_ONLY)
@pytest.mark.parametrize(
    "wrong",
    [
        *(scales_missing, scales_of_the_next_group, scales_of_the_next_output, last_group_missing, unsigned_integers),
        neighbours_swapped,
    ],
)
def test_wrong_weights_are_found(text, kind, wrong):
    case, op, arrays = make(text, kind)
    c = arrays["b"].astype(np.float32) @ wrong(case, arrays).T

    assert not verdict(case, op, arrays, c).passed


@pytest.mark.parametrize("text", WEIGHT_ONLY)
def test_weights_are_dequantized_block_by_block(text):
    case, _, arrays = make(text, "f32")
    p = case.problem
    integers, scales = dequantized(case, arrays)
    whole, left = (integers.astype(float) * scales).T, Dequantized(arrays["a"], arrays["scales"], p)

    assert np.array_equal(whole, left[:, :])
    assert np.array_equal(whole[3:8], left[3:8])
    assert np.array_equal(whole[5:6, 1:4], left[5:6, 1:4])


def test_shares_of_experts_follow_the_skew():
    def busiest(skew):
        offsets = make(f"grouped_gemm groups=16 tokens=16000 m=1 k=1 skew={skew}", "f32")[0].problem.offsets
        assert (0, 16000, 17) == (offsets[0], offsets[-1], len(offsets))
        return max(end - start for start, end in pairwise(offsets)) / 16000

    assert busiest(0) == pytest.approx(1 / 16, rel=0.1)
    assert busiest(5) == pytest.approx(1 / sum(1 / i for i in range(1, 17)), rel=0.05)
    assert busiest(10) == pytest.approx(1 / sum(1 / i**2 for i in range(1, 17)), rel=0.05)


def test_weights_of_experts_without_rows_are_not_read():
    case, op, _ = make("grouped_gemm groups=64 tokens=4 m=256 k=256", "f32")
    busy = op.facts(case)["busy_groups"]

    assert 1 <= busy <= 4
    read = busy * 256 * 256 * 4
    assert read < op.traffic_bytes(case) < read + 4 * (2 * 4 * 256 + 65) + 1
    assert 0 == op.traffic_bytes(case, 2 * read)
    assert 64 * 256 * 256 * 4 < op.operand_bytes(case)
