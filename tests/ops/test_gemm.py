"""GEMM: inputs, reference, counts, and a check that finds wrong results."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.core.operands import ALIGNMENT_BYTES, LEAST_FLOAT, TILE, random
from deepbench.measuring.check import check, fingerprint

OP = find_op("gemm")

SMALL = "gemm m=33 n=17 k=9 a_t={a_t} b_t={b_t} forward {precision} reference threads=1 beta={beta}"
# Beyond the size up to which every element is compared.
LARGE = "gemm m=1100 n=1200 k=64 a_t={a_t} b_t={b_t} forward {precision} reference threads=1 beta={beta}"
VARIANTS = [
    (size, a_t, b_t, precision, beta)
    for size in (SMALL, LARGE)
    for a_t, b_t in ((0, 0), (1, 0), (0, 1), (1, 1))
    for precision in ("f32", "i8u8")
    for beta in (0, 1)
]


def make(text=SMALL, a_t=0, b_t=0, precision="f32", beta=1):
    c = parse_case(text.format(a_t=a_t, b_t=b_t, precision=precision, beta=beta))
    return c, OP.operands(c)


def solved(*variant, **words):
    """A case with the correct result in its output."""
    c, operands = make(*variant, **words)
    answer = OP.reference(c, operands)["c"]
    operands["c"][...] = answer.astype(operands["c"].dtype)
    return c, operands


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_correct_result_passes(variant):
    c, operands = solved(*variant)

    verdict = check(OP, c, operands)

    assert verdict.passed, verdict
    assert operands["c"].size == verdict.covers == verdict.of


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_wrong_element_anywhere_is_found(variant):
    c, operands = solved(*variant)
    position = (operands["c"].shape[0] // 3, operands["c"].shape[1] // 5)
    operands["c"][position] += 1

    assert not check(OP, c, operands).passed


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_output_that_was_not_written_is_found(variant):
    c, operands = make(*variant)

    assert not check(OP, c, operands).passed


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_product_added_twice_is_found(variant):
    c, operands = solved(*variant)
    fresh = make(*variant)[1]["c"].astype(np.float64)
    if c.settings["beta"] == "0":
        fresh[...] = 0
    operands["c"][...] = (2.0 * operands["c"] - fresh).astype(operands["c"].dtype)

    assert not check(OP, c, operands).passed


@pytest.mark.parametrize("text", [SMALL, LARGE])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_element_that_is_not_a_number_is_found(text, value):
    c, operands = solved(text)
    operands["c"][5, 7] = value

    verdict = check(OP, c, operands)

    assert not verdict.passed
    assert "not a number" in verdict.sentence or verdict.error > 1e6


def test_a_transposed_operand_is_found():
    c, operands = solved("gemm m=24 n=8 k=24 a_t={a_t} b_t={b_t} forward {precision} reference threads=1 beta={beta}")
    operands["a"][...] = operands["a"].T.copy()

    assert not check(OP, c, operands).passed


def test_a_product_in_half_precision_is_found():
    c, operands = make(LARGE)
    half = (operands["b"].astype(np.float16) @ operands["a"].astype(np.float16)).astype(np.float32)
    operands["c"][...] = half + operands["c"]

    assert not check(OP, c, operands).passed


@pytest.mark.parametrize("precision", ["f32", "bf16", "f16", "i8", "i8u8"])
@pytest.mark.parametrize(("a_t", "b_t"), [(0, 0), (1, 1)])
def test_operands_are_column_major(precision, a_t, b_t):
    c, operands = make(precision=precision, a_t=a_t, b_t=b_t)
    p = c.problem

    assert ((p.m, p.k) if a_t else (p.k, p.m)) == operands["a"].shape
    assert ((p.k, p.n) if b_t else (p.n, p.k)) == operands["b"].shape
    assert (p.n, p.m) == operands["c"].shape
    assert all(x.ctypes.data % ALIGNMENT_BYTES == 0 for x in operands.values())
    assert OP.operand_bytes(c) == sum(x.nbytes for x in operands.values())


def test_the_reference_is_the_definition():
    c, operands = make(a_t=1, b_t=0)
    p = c.problem
    a = np.array([[operands["a"][i, t] for t in range(p.k)] for i in range(p.m)], float)
    b = np.array([[operands["b"][j, t] for j in range(p.n)] for t in range(p.k)], float)
    expected = [
        [sum(a[i, t] * b[t, j] for t in range(p.k)) + operands["c"][j, i] for i in range(p.m)] for j in range(p.n)
    ]

    np.testing.assert_allclose(OP.reference(c, operands)["c"], expected, rtol=1e-12)


@pytest.mark.parametrize("type_name", ["f32", "bf16", "f16", "s8", "u8", "s32"])
def test_contents_are_random_reproducible_and_never_zero_or_denormal(type_name):
    one = random((300, 7), type_name, 1)
    again = random((300, 7), type_name, 1)
    other = random((300, 7), type_name, 2)
    values = np.abs(one.astype(np.float64))

    assert one.tobytes() == again.tobytes()
    assert one.tobytes() != other.tobytes()
    assert values.min() >= (LEAST_FLOAT / 2 if one.dtype.kind not in "iu" else 1)
    assert values.max() <= (1 if one.dtype.kind not in "iu" else 30)
    assert len(np.unique(one.astype(np.float64))) > 15


def test_the_tile_repeats_but_rows_differ():
    big = random((3, 1_000_000), "u8", 1).reshape(-1)

    assert (big[: big.size - TILE] == big[TILE:]).all()
    assert (big[:1_000_000] != big[1_000_000:2_000_000]).any()


def test_flop_and_traffic_bytes():
    c, _ = make()
    p = c.problem

    assert 2 * p.m * p.n * p.k == OP.flop(c)
    assert 4 * (p.m * p.k + p.k * p.n + 2 * p.m * p.n) == OP.traffic_bytes(c)
    without, _ = make(beta=0)
    assert 4 * (p.m * p.k + p.k * p.n + p.m * p.n) == OP.traffic_bytes(without)


def test_a_changed_input_changes_its_fingerprint():
    _, operands = make()
    before = fingerprint(OP, operands)
    operands["b"][-1, -1] = -operands["b"][-1, -1]
    after = fingerprint(OP, operands)

    assert {"a", "b"} == set(before)
    assert before["a"] == after["a"]
    assert before["b"] != after["b"]
