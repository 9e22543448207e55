"""Weights that are quantized: how they are drawn, the rules for scales, and the error of the answer."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.measuring.check import check
from deepbench.ops.weight_only_gemm import FORMATS, WeightOnlyGemm, drawn

FORMAT = {name: f"group={form.group} bits={form.bits} format={name}" for name, form in FORMATS.items()}

# A normal distribution with two values, and with three at -1.224, 0 and 1.224 deviations; J. Max, "Quantizing for
# minimum distortion", IRE Transactions on Information Theory 6(1), 1960.
TWO_VALUES, THREE_VALUES = np.sqrt(1 - 2 / np.pi), 0.436


def made(sizes, kind="f32"):
    words, _, setting = sizes.partition(" format")
    case = parse_case(
        f"weight_only_gemm {words} forward {kind} reference threads=1{' format' * bool(setting)}{setting}"
    )
    return case, case.operation, case.operation.operands(case)


def answered(sizes, kind="f32"):
    """The verdict on the right result."""
    case, op, arrays = made(sizes, kind)
    arrays["c"][...] = op.reference(case, arrays)["c"]
    return check(op, case, arrays)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_integers_are_packed_from_the_lowest_bits(bits):
    values = [-1, 1] if bits == 1 else range(-(2 ** (bits - 1)), 2 ** (bits - 1))
    integers = np.resize(np.array(values, np.int8), 48)
    stored = drawn.packed(integers, bits)

    assert np.array_equal(integers, drawn.unpack(stored[None], bits)[0])
    assert {1: 0b10101010, 2: 0b01001110, 4: 0x98}[bits] == stored[0]


@pytest.mark.parametrize(("size", "low", "high"), [(32, -2, 1), (16, -8, 7), (64, -127, 127), (256, -1, 1)])
def test_no_other_scale_of_the_rule_has_a_smaller_error(size, low, high):
    weights = drawn.normal_weights(40, size)
    integers, scales = drawn.fitted(weights, low, high, "f32")
    found = ((integers * scales[:, None].astype(float) - weights) ** 2).sum(axis=1)
    largest = np.abs(weights).max(axis=1) / max(-low, high)

    assert integers.min() >= low
    assert integers.max() <= high
    for share in np.arange(0.3, 1.16, 0.05):
        scale = (share * largest)[:, None]
        other = np.clip(np.rint(weights / scale), low, high) * scale
        assert np.all(found <= ((other - weights) ** 2).sum(axis=1) * (1 + 1e-5))


def test_two_values_have_the_mean_magnitude():
    weights = drawn.normal_weights(8, 64)
    integers, scales = drawn.integers_and_scales(8, 64, 1, "f32")

    assert np.array_equal(np.sign(weights), integers)
    np.testing.assert_allclose(np.abs(weights).mean(axis=1), scales, rtol=1e-6)


def test_scales_are_normal_numbers_even_of_single_weights_in_f16():
    for bits in (1, 2, 4, 8):
        _, scales = drawn.integers_and_scales(100_000, 1, bits, "f16")
        assert scales.min() >= 2.0**-14


@pytest.mark.parametrize(("total", "size", "per_row"), [(2**25, 128, 32), (10**6, 10**6, 1), (30030, 150_000, 210)])
def test_rows_of_large_matrices_differ(total, size, per_row):
    count = drawn.groups_to_draw(total, size, per_row)

    assert count >= drawn.LEAST_GROUPS
    assert count * size < 2**20 + 8 * size + 2000
    assert drawn.is_prime(count)
    assert per_row % count


def test_small_matrices_repeat_nothing():
    assert 3 * 8 == drawn.groups_to_draw(3 * 8, 16, 8)
    assert 5 == drawn.groups_to_draw(5, 10**6, 1)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "sizes", ["m=9 n=1 k=48 group=6", "m=400 n=1 k=4096 group=4096", "m=70 n=1 k=32768 group=32768"]
)
def test_full_weights_are_those_that_were_quantized(sizes, bits):
    case, op, arrays = made(f"{sizes} bits={bits}")
    (product,) = op.products(case, arrays)
    full, stored = op.full_weights(case), product.left
    largest = {1: 0.62, 2: 0.42, 4: 0.13, 8: 0.02}[bits]

    assert full.shape == stored.shape == (case.problem.k, case.problem.m)
    for rows, columns in ((slice(0, 40), slice(None)), (slice(None), slice(3, 5)), (slice(7, 29), slice(8, 9))):
        some = full[rows, columns]
        assert np.linalg.norm(stored[rows, columns] - some) < largest * np.linalg.norm(some) * 1.3


@pytest.mark.parametrize("name", FORMATS)
def test_quantizers_of_formats_are_near_the_weights(name):
    case, op, arrays = made(f"m=40 n=1 k=1024 {FORMAT[name]}")
    (product,) = op.products(case, arrays)
    full = op.full_weights(case)[:, :]
    error = np.linalg.norm(product.left[:, :] - full) / np.linalg.norm(full)
    wanted = {"q8_0": 0.0054, "q6_k": 0.019, "q4_k": 0.077, "mxfp4": 0.117, "q2_k": 0.286, "q2_0": 0.377}
    wanted |= {"tq2_0": THREE_VALUES, "tq1_0": THREE_VALUES, "q1_0": TWO_VALUES}

    assert wanted[name] == pytest.approx(error, rel=0.05)


def test_both_ternary_formats_have_the_same_weights():
    (case, op, first), (_, _, second) = (made(f"m=8 n=1 k=512 {FORMAT[name]}") for name in ("tq1_0", "tq2_0"))
    other = made(f"m=8 n=1 k=512 {FORMAT['tq2_0']}")[0]

    assert np.array_equal(op.products(case, first)[0].left[:, :], op.products(other, second)[0].left[:, :])


@pytest.mark.parametrize(
    ("bits", "wanted"), [(1, TWO_VALUES), (2, 0.38), (4, 0.1), (8, 0.0064)], ids=["1 bit", "2 bits", "4 bits", "8 bits"]
)
def test_the_error_of_the_answer_is_that_of_the_weights(bits, wanted):
    verdict = answered(f"m=512 n=8 k=512 group=128 bits={bits}")

    assert verdict.passed
    assert wanted == pytest.approx(verdict.quantization_error, rel=0.06)


def test_smaller_groups_have_a_smaller_error():
    errors = [answered(f"m=256 n=8 k=512 group={g} bits=4").quantization_error for g in (16, 64, 512)]

    assert sorted(errors) == errors


def test_the_error_is_that_of_what_the_library_wrote():
    case, op, arrays = made("m=128 n=4 k=512 group=128 bits=2")
    full = arrays["b"].astype(float) @ op.full_weights(case)[:, :]
    for factor, wanted in ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0)):
        arrays["c"][...] = factor * full
        assert wanted == pytest.approx(check(op, case, arrays).quantization_error, abs=1e-6)


def test_the_error_of_a_large_answer_is_that_of_the_elements_that_are_compared():
    sizes = "m=2048 n=1 k=1024 group=128 bits=1"
    verdict, (case, op, arrays) = answered(sizes), made(sizes)
    arrays["c"][...] = op.reference(case, arrays)["c"]
    full = arrays["b"].astype(float) @ op.full_weights(case)[:, :]

    assert verdict.how.startswith("516 elements")
    assert np.linalg.norm(arrays["c"] - full) / np.linalg.norm(full) == pytest.approx(
        verdict.quantization_error, rel=0.15
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_an_answer_without_numbers_has_no_error(value):
    case, op, arrays = made("m=16 n=1 k=64 group=16 bits=1")
    arrays["c"][...] = op.reference(case, arrays)["c"]
    arrays["c"][0, 3] = value
    verdict = check(op, case, arrays)

    assert not verdict.passed
    assert verdict.quantization_error is None
    assert "quantization_error" not in verdict.fields


def test_operations_without_quantized_weights_have_no_error():
    case = parse_case("gemm m=4 n=4 k=4 a_t=0 b_t=0 forward f32 reference threads=1")
    op = case.operation
    arrays = op.operands(case)
    arrays["c"][...] = op.reference(case, arrays)["c"]

    assert "quantization_error" not in check(op, case, arrays).fields


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"k": 12, "group": 4, "bits": 1}, "with bits=1, k must be a multiple of 8, because 8 weights share a byte"),
        ({"k": 6, "group": 2, "bits": 2}, "with bits=2, k must be a multiple of 4, because 4 weights share a byte"),
        ({"k": 3, "group": 1, "bits": 4}, "with bits=4, k must be a multiple of 2"),
        ({"k": 8, "group": 8, "bits": 3}, "bits must be 1, 2, 4, 6 or 8, found 3"),
        ({"k": 8, "group": 8, "bits": 16}, "bits"),
    ],
)
def test_sizes_that_bytes_do_not_hold_are_refused(sizes, reason):
    with pytest.raises(BadInput, match=reason):
        WeightOnlyGemm(m=4, n=1, **sizes)


@pytest.mark.parametrize(("bits", "size"), [(1, 4 * 64 // 8), (2, 4 * 64 // 4), (4, 4 * 64 // 2), (8, 4 * 64)])
def test_bytes_are_those_of_the_bits(bits, size):
    case, op, arrays = made(f"m=4 n=2 k=64 group=16 bits={bits}")

    assert size == arrays["a"].nbytes
    assert size + 4 * (4 * 4 + 2 * 64 + 2 * 4) == op.operand_bytes(case) == op.traffic_bytes(case)
    assert bits / 8 == op.narrowest_bytes(case)


def test_one_bit_is_not_plural():
    case, op, _ = made("m=4 n=2 k=64 group=16 bits=1")

    assert "4 × 2 × 64, 1 bit, groups of 16" == op.title(case.problem)
