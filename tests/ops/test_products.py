"""Products: evaluations in other orders and roundings pass with room; gradients, weights and what is counted."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.errors import Unsupported
from deepbench.core.op import all_ops, find_op
from deepbench.core.precision import find_precision
from deepbench.core.tolerance import TOLERANCE_UNITS
from deepbench.measuring.check import check
from deepbench.ops.linear import activate
from deepbench.ops.weight_only_gemm import Dequantized
from deepbench.ops.weight_only_gemm.formats import FORMATS
from tests.ops.wrong_kernels import weight_formats
from tests.ops.wrong_kernels.products import BATCHED, GROUPED, KINDS, LINEAR, WEIGHT_ONLY, dequantized, in_f32


def make(text, kind, settings="", direction="forward"):
    case = parse_case(f"{text} {direction} {kind} reference threads=1 {settings}")
    op = find_op(case.op)
    return case, op, op.operands(case)


def verdict(case, op, arrays, c):
    arrays["c"][...] = c
    return check(op, case, arrays)


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


BLOCKS = ["linear m=130 n=5 k=300", "linear m=48 n=33 k=65", "linear m=1536 n=64 k=896"]


def with_scales(arrays):
    """A and B in f32, each element times the scale of its block, by repeating the scales."""
    a, b = in_f32(arrays["a"], arrays["b"])
    of_a = np.kron(arrays["a_scales"], np.ones((128, 128), np.float32))[: a.shape[0], : a.shape[1]]
    of_b = np.repeat(arrays["b_scales"], 128, axis=1)[:, : b.shape[1]]
    return a * of_a, b * of_b


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("text", BLOCKS)
def test_eight_bit_floats_are_multiplied_with_the_scales_of_their_blocks(text, activation):
    case, op, arrays = make(text, "f8e4m3", f"scales=block activation={activation}")
    a, b = with_scales(arrays)
    bias = arrays["bias"].astype(np.float32)
    c = activate(activation, b @ a.T + bias)

    assert verdict(case, op, arrays, c).passed
    np.testing.assert_allclose(op.reference(case, arrays)["c"], c, rtol=1e-4, atol=1e-4)
    for wrong in (a * 1.1, in_f32(arrays["a"])[0], np.roll(a, 1, axis=1)):
        assert not verdict(case, op, arrays, activate(activation, b @ wrong.T + bias)).passed
    assert not verdict(case, op, arrays, activate(activation, in_f32(arrays["b"])[0] @ a.T + bias)).passed


def in_nvfp4(arrays, k):
    """A and B in f32, from the 4-bit type of ml_dtypes."""
    ml_dtypes = pytest.importorskip("ml_dtypes", "0.5")
    found = []
    for name in "ab":
        halves = np.stack([arrays[name] & 15, arrays[name] >> 4], axis=-1).reshape(len(arrays[name]), -1)[:, :k]
        values = halves.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
        scales = np.repeat(arrays[f"{name}_scales"].astype(np.float32), 16, axis=1)[:, :k]
        found.append(values * scales * arrays[f"{name}_scale"])
    return found


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("text", BLOCKS)
def test_four_bit_floats_are_multiplied_with_their_scales(text, activation):
    case, op, arrays = make(text, "nvfp4", f"activation={activation}")
    a, b = in_nvfp4(arrays, case.problem.k)
    bias = arrays["bias"].astype(np.float32)
    c = activate(activation, b @ a.T + bias)

    assert a.all()
    assert b.all()
    assert verdict(case, op, arrays, c).passed
    # In f32, sums of 896 products of up to some hundreds; how they are rounded depends on the processor.
    np.testing.assert_allclose(op.reference(case, arrays)["c"], c, rtol=1e-4, atol=1e-3)
    for wrong in (a * 1.1, a / arrays["a_scale"], np.roll(a, 1, axis=1), np.abs(a)):
        assert not verdict(case, op, arrays, activate(activation, b @ wrong.T + bias)).passed


def test_bytes_of_four_bit_floats():
    case, op, arrays = make("linear m=130 n=5 k=320", "nvfp4", "bias=no")

    assert (130 + 5) * (160 + 20) + 2 * 4 + 2 * 5 * 130 == op.traffic_bytes(case) == op.operand_bytes(case)
    assert op.operand_bytes(case) == sum(array.nbytes for array in arrays.values())
    assert {"linear"} == {
        o.name for o in all_ops().values() for d in o.directions if o.allows(d, find_precision("nvfp4"))
    }


def test_sums_of_eight_bit_floats_in_14_bits_pass_and_of_half_the_products_do_not():
    case, op, arrays = make(BLOCKS[0], "f8e4m3", "scales=block bias=no")
    a, b = with_scales(arrays)
    blocks = [b[:, i : i + 32] @ a[:, i : i + 32].T for i in range(0, 300, 32)]
    total = np.zeros_like(blocks[0])
    for block in blocks:
        total = np.float32(np.trunc((total + block) * 2**9) / 2**9)  # sums below 16: 4 bits and 9 more

    assert verdict(case, op, arrays, total).passed
    assert not verdict(case, op, arrays, sum(blocks[::2])).passed


def test_bytes_of_eight_bit_floats_with_and_without_scales():
    plain, block = (
        parse_case(f"linear m=130 n=5 k=300 forward f8e4m3 reference threads=1 bias=no{more}")
        for more in ("", " scales=block")
    )
    op = find_op("linear")

    assert 130 * 300 + 5 * 300 + 2 * 5 * 130 == op.traffic_bytes(plain) == op.operand_bytes(plain)
    assert 4 * (2 * 3 + 5 * 3) == op.traffic_bytes(block) - op.traffic_bytes(plain)
    assert op.flop(plain) == op.flop(block) == 2 * 130 * 300 * 5
    assert {} == op.components(block)
    assert "bf16" == op.result_type(block)
    assert ("scales",) == op.unused_settings(plain.problem, "forward", find_precision("bf16"))


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


def test_the_gradient_of_weights_is_that_of_the_product():
    """⟨dC, A·B⟩ = ⟨dA, A⟩, because the product is linear in A."""
    forward, op, arrays = make(GROUPED[0], "f32")
    backward, _, gradients = make(GROUPED[0], "f32", direction="backward_weights")
    gradients["b"][...] = arrays["b"]

    c, da = op.reference(forward, arrays)["c"], op.reference(backward, gradients)["da"]

    assert (c * gradients["dc"]).sum() == pytest.approx((da * arrays["a"]).sum())
    assert op.flop(forward) == op.flop(backward)


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


@pytest.mark.parametrize("order", ["row", "column"])
def test_a_sparse_product_may_be_added_to_c_term_by_term(order):
    """As AOCL-Sparse does for `order=row`: C is rounded after each term, and is larger than the terms here."""
    case, op, arrays = make("sparse_gemm m=224 n=284 k=4 sparsity=13", "f32", f"order={order}")
    b, c = ((arrays[name] if order == "row" else arrays[name].T) for name in "bc")
    for i, (start, end) in enumerate(pairwise(arrays["row_starts"])):
        for value, column in zip(arrays["values"][start:end], arrays["columns"][start:end], strict=True):
            c[i] += value * b[column]

    assert check(op, case, arrays).passed
    c[100, 100] += 2e-5
    assert not check(op, case, arrays).passed


@pytest.mark.parametrize("name", FORMATS)
def test_weights_in_a_format_are_decoded_as_its_definition_says(name):
    case, op, arrays = make(
        weight_formats.text(name, weight_formats.SMALL).split(" forward")[0], "f32", f"format={name}"
    )
    (product,) = op.products(case, arrays)
    wanted, (m, n, k) = weight_formats.weights(name, arrays["a"], None).T, weight_formats.SMALL

    assert (k, m) == product.left.shape
    np.testing.assert_allclose(product.left[:], wanted, rtol=1e-6, atol=1e-6)
    assert np.array_equal(product.left[:][5:290, 3:9], product.left[5:290, 3:9])
    assert 0.2 < np.sqrt(np.mean(wanted**2)) < 0.6
    assert op.operands(replace(case, problem=op.smallest(case)))
    assert (2 * m * n * k, 0.0) == (op.flop(case), op.least_flop(case))
    row_bytes = k // FORMATS[name].block * FORMATS[name].block_bytes
    assert m * row_bytes + 4 * n * (k + m) == op.operand_bytes(case) == op.traffic_bytes(case)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("k=512 group=64 bits=4 format=q4_k", "format=q4_k has bits=4 group=32, found bits=4 group=64"),
        ("k=512 group=32 bits=8 format=q4_k", "format=q4_k has bits=4 group=32, found bits=8 group=32"),
        ("k=128 group=32 bits=4 format=q4_k", "blocks of 256 weights"),
        ("k=96 group=16 bits=6", "choose format=q6_k"),
        ("k=512 group=64 bits=2 format=tq2_0", "format=tq2_0 has bits=2 group=256, found bits=2 group=64"),
        ("k=64 group=64 bits=1 format=q1_0", "format=q1_0 has bits=1 group=128, found bits=1 group=64"),
        ("k=192 group=64 bits=4 format=q2_0", "format=q2_0 has bits=2 group=64, found bits=4 group=64"),
    ],
)
def test_sizes_that_a_format_does_not_have_are_refused(text, reason):
    with pytest.raises(Unsupported, match=reason):
        make(f"weight_only_gemm m=8 n=2 {text.split(' format')[0]}", "f32", "".join(text.partition("format")[1:]))
