"""What a row of each family computes, by hand and by our operation of the same work."""

import itertools
import math

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.gpus.families import families, family_of
from deepbench.gpus.families.family import PRECISIONS
from deepbench.gpus.published import kernel_of
from deepbench.results.summary import summarize
from tests.help import samples


def work_of(family, **kernel):
    """FLOP, bytes and the precision of one kernel."""
    found = families()[family].work({name: np.array([value], np.int64) for name, value in kernel.items()})
    return float(found.flop[0]), float(found.bytes[0]), PRECISIONS[int(found.precision[0])]


def test_every_family_says_all_about_itself():
    assert 10 == len(families())
    stems = [stem for family in families().values() for stem in family.stems]
    assert len(stems) == len(set(stems))
    for family in families().values():
        assert family is family_of(family.stems[0])
        assert family.sweep in family.keys
        assert {*family.groups, *family.categories} <= set(family.keys)
        assert family.sweep not in family.categories
    assert family_of("mhc_module") is None


# ---- by hand

TOKENS, OUTPUTS, INPUTS = 3, 128, 256


@pytest.mark.parametrize(
    ("kind", "weight", "data", "multiplied"),
    [
        (0, 2, 2, "bf16"),
        (1, 1, 1, "f8e4m3"),
        (2, 1, 1, "f8e4m3"),
        (3, 0.5 + 1 / 16, 0.5 + 1 / 16, "nvfp4"),
        (4, 1, 1, "i8"),
        (5, 1, 2, "bf16"),
        (6, 0.5, 2, "bf16"),
    ],
)
def test_products(kind, weight, data, multiplied):
    flop = 2 * TOKENS * OUTPUTS * INPUTS
    size = weight * OUTPUTS * INPUTS + data * TOKENS * INPUTS + 2 * TOKENS * OUTPUTS
    assert (flop, size, multiplied) == work_of("linear", m=TOKENS, n=OUTPUTS, k=INPUTS, type=kind)


def visible(queries, keys, window=0):
    """Pairs of a query and a key that it sees, counted one by one: itself, and `window - 1` keys before it."""
    count = 0
    for query, key in itertools.product(range(queries), range(keys)):
        place = query + keys - queries
        count += key <= place and (not window or key > place - window)
    return count


@pytest.mark.parametrize("window", [0, 1, 3, 7, 16, 18])
@pytest.mark.parametrize(("queries", "keys"), [(16, 16), (5, 20), (1, 20)])
def test_causal_pairs(queries, keys, window):
    batch, heads, kv_heads, head = 2, 6, 3, 8
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "head_size": head, "queries": queries, "keys": keys}
    flop, size, precision = work_of("attention", **sizes, window=window, type=0, cache=0)

    assert 4 * batch * heads * head * visible(queries, keys, window) == flop
    assert "bf16" == precision
    seen = min(keys, window + queries if window else keys)  # at most one key more than some query sees
    assert 2 * 2 * batch * heads * head * queries + 2 * 2 * batch * kv_heads * head * seen == size


def test_a_cache_of_8_bits_halves_its_bytes_and_raises_the_peak_of_prompts():
    sizes = {"batch": 1, "heads": 4, "kv_heads": 4, "head_size": 64, "queries": 1, "keys": 1000, "window": 0, "type": 0}
    _, large, _ = work_of("attention_decode", **sizes, cache=0)
    _, small, decoding = work_of("attention_decode", **sizes, cache=1)
    _, _, prompts = work_of("attention", **sizes, cache=1)

    assert 2 * 4 * 64 * 1000 == large - small
    assert ("bf16", "f8e4m3") == (decoding, prompts)


def test_encoders_compute_all_pairs():
    sizes = {"batch": 2, "heads": 4, "kv_heads": 4, "head_size": 64, "queries": 16, "keys": 16, "window": 0}
    flop, size, _ = work_of("attention_encoder", **sizes, type=0, cache=0)
    assert (4 * 2 * 4 * 64 * 16 * 16, 4 * 2 * 2 * 4 * 64 * 16) == (flop, size)


def test_latent_attention():
    flop, size, _ = work_of("latent_attention", batch=2, heads=16, queries=10, keys=10, type=0, cache=0)
    # Keys and queries of 192 numbers, values and results of 128.
    assert 2 * 2 * 16 * visible(10, 10) * (192 + 128) == flop
    assert 2 * 2 * 16 * 10 * (192 + 192 + 128 + 128) == size

    for cache, bytes_of_number in ((0, 2), (1, 1)):
        flop, size, _ = work_of("latent_attention_decode", batch=3, heads=16, queries=1, keys=100, type=0, cache=cache)
        assert 2 * 3 * 16 * 100 * (576 + 512) == flop
        # The keys of 576 numbers once; queries of 576 and results of 512 for each head.
        assert bytes_of_number * 3 * 100 * 576 + 2 * 3 * 16 * (576 + 512) == size


@pytest.mark.parametrize("after", [0, 1])
def test_products_of_compressed_heads(after):
    flop, size, _ = work_of("latent_products", tokens=5, heads=16, after=after, type=0)
    assert (2 * 5 * 16 * 128 * 512, 2 * 16 * 128 * 512 + 2 * 5 * 16 * (128 + 512)) == (flop, size)


EXPERTS = {"hidden": 2048, "inner": 768, "active": 8, "experts": 128, "type": 0, "routing": 1}


@pytest.mark.parametrize(("tensor", "parallel"), [(1, 1), (8, 1), (1, 8), (2, 4)])
@pytest.mark.parametrize("tokens", [1, 64, 10_000])
def test_experts(tokens, tensor, parallel):
    flop, size, precision = work_of("experts", tokens=tokens, tensor=tensor, expert_parallel=parallel, **EXPERTS)
    rows, local = tokens * 8 / parallel, 128 / parallel
    matrices = 3 * 2048 * 768 / tensor

    assert math.isclose(2 * matrices * rows, flop)
    assert "bf16" == precision
    hit = (size - 4 * rows * 2048) / (2 * matrices)
    # Experts that random tokens hit, by simulation of the law of the family: rows independent of each other.
    assert math.isclose(local * (1 - math.exp(-rows / local)), hit, rel_tol=1e-9)
    assert 0 < hit <= min(local, rows) * (1 + 1e-9)


def test_experts_without_a_gate_have_two_matrices():
    kernel = {**EXPERTS, "hidden": 2688, "inner": 1856, "tokens": 64, "tensor": 1, "expert_parallel": 1}
    assert math.isclose(2 * 2 * 2688 * 1856 * 64 * 8, work_of("experts", **kernel)[0])


@pytest.mark.parametrize(("op", "times"), [(0, 2), (1, 1), (2, 1), (3, 1)])
def test_exchanges(op, times):
    assert (0, times * 4096 * 7 / 8, "bf16") == work_of("collectives", op=op, ranks=8, bytes=4096)


def test_gated_delta_nets():
    kernel = {"batch": 2, "length": 10, "key_heads": 4, "value_heads": 8, "decoding": 0}
    channels, state = (4 + 4 + 8) * 128, 8 * 128 * 128
    assert (2 * 4 * 20 * channels, 4 * 20 * channels) == work_of("delta", **kernel, part=0)[:2]
    assert (6 * 20 * state, 4 * 20 * channels + 4 * 2 * state) == work_of("delta", **kernel, part=1)[:2]


# ---- by our operations


ATTENTION = {"batch": 2, "heads": 8, "kv_heads": 2, "head_size": 64, "type": 0}
KERNELS = [
    *(("linear", {"m": TOKENS, "n": OUTPUTS, "k": INPUTS, "type": kind}) for kind in (0, 1, 2, 3, 5, 6)),
    *(("attention", {**ATTENTION, "queries": 40, "keys": 40, "window": w, "cache": 0}) for w in (0, 1, 16)),
    ("attention", {**ATTENTION, "queries": 40, "keys": 100, "window": 0, "cache": 0}),
    ("attention", {**ATTENTION, "queries": 40, "keys": 40, "window": 0, "cache": 1}),
    *(("attention_decode", {**ATTENTION, "queries": 1, "keys": 99, "window": w, "cache": 0}) for w in (0, 16)),
    ("attention_encoder", {**ATTENTION, "kv_heads": 8, "queries": 40, "keys": 40, "window": 0, "cache": 0}),
    ("latent_attention", {"batch": 2, "heads": 8, "queries": 40, "keys": 40, "type": 0, "cache": 0}),
    *(("latent_products", {"tokens": 5, "heads": 8, "after": after, "type": 0}) for after in (0, 1)),
]


def case_of(family, kernel):
    return parse_case(f"{families()[family].case(kernel)} forward reference threads=1")


@pytest.mark.parametrize(("family", "kernel"), KERNELS, ids=str)
def test_our_case_of_a_row_has_the_same_work(family, kernel):
    case = case_of(family, kernel)
    flop, size, _ = work_of(family, **kernel)

    assert case.operation.flop(case) == flop
    assert 0.5 < size / case.operation.traffic_bytes(case) < 2


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("op", range(4))
def test_our_exchange_moves_the_same_bytes(op, ranks):
    kernel = {"op": op, "ranks": ranks, "bytes": 4096}
    case = case_of("collectives", kernel)

    assert (2048, ranks) == (case.problem.n, case.problem.ranks)
    sent = work_of("collectives", **kernel)[1]
    assert sent == case.operation.traffic_bytes(case) * case.operation.bus_factor(case.problem)


def test_some_rows_are_no_case_of_ours():
    sizes = {"batch": 1, "heads": 8, "queries": 1, "keys": 99, "type": 0, "cache": 0}
    for family, kernel in (
        ("linear", {"m": 1, "n": 2, "k": 3, "type": 4}),
        ("linear", {"m": 1, "n": 2, "k": 130, "type": 6}),  # not whole groups
        ("attention", {**ATTENTION, "queries": 4, "keys": 4, "window": 0, "type": 1, "cache": 1}),
        ("latent_attention_decode", sizes),
        ("latent_products", {"tokens": 5, "heads": 8, "after": 0, "type": 1}),
        ("collectives", {"op": 1, "ranks": 8, "bytes": 8}),  # not the same for each rank
        ("collectives", {"op": 0, "ranks": 8, "bytes": 1}),
        ("experts", {**EXPERTS, "tokens": 1, "tensor": 1, "expert_parallel": 1}),
        ("delta", {"batch": 2, "length": 1, "key_heads": 4, "value_heads": 8, "part": 1, "decoding": 1}),
    ):
        assert families()[family].case(kernel) is None, family


def summary_of(text):
    (found,) = summarize([samples.measured("reference", text=text)])
    return found


BACK = [
    ("linear", {"m": 3, "n": 128, "k": 256, "type": 0}),
    ("linear", {"m": 3, "n": 128, "k": 256, "type": 1}),
    *(("linear", {"m": 3, "n": 128, "k": 256, "type": kind}) for kind in (2, 3)),
    ("attention", {**ATTENTION, "queries": 40, "keys": 40, "window": 16, "cache": 0}),
    ("attention_decode", {**ATTENTION, "queries": 1, "keys": 99, "window": 0, "cache": 1}),
    *(("collectives", {"op": op, "ranks": 4, "bytes": 4096}) for op in range(4)),
]


@pytest.mark.parametrize(("family", "kernel"), BACK, ids=str)
def test_a_result_of_our_case_finds_its_row(family, kernel):
    text = f"{families()[family].case(kernel)} forward {{backend}} threads=1"
    assert (family, kernel) == kernel_of(summary_of(text))[:2]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("gemm m=128 n=3 k=256 a_t=0 b_t=0 forward bf16", {"m": 3, "n": 128, "k": 256, "type": 0}),
        ("gemm m=128 n=3 k=256 a_t=1 b_t=0 forward bf16", None),
        ("gemm m=128 n=3 k=256 a_t=0 b_t=0 forward f32", None),
        ("attention batch=1 heads=2 kv_heads=2 head_size=64 queries=4 keys=4 mask=causal backward bf16", None),
        ("attention batch=1 heads=2 kv_heads=2 head_size=64 queries=4 keys=4 mask=none forward bf16", None),
        ("attention batch=1 heads=2 kv_heads=2 head_size=64 queries=4 keys=9 mask=causal forward bf16", None),
        ("softmax rows=4 columns=4 forward bf16", None),
    ],
)
def test_which_results_have_a_published_row(text, same):
    found = kernel_of(summary_of(f"{text} {{backend}} threads=1"))
    assert same == (found and found[1])


def test_with_a_power_law_fewer_experts_are_certain_to_be_read():
    family = families()["experts"]
    sizes = {"tokens": 64, "hidden": 7168, "inner": 2048, "active": 8, "experts": 256, "tensor": 1}
    kernels = {
        **{name: np.array([value, value]) for name, value in sizes.items()},
        "expert_parallel": np.array([1, 1]),
        "type": np.array([2, 2]),
        "routing": np.array([0, 1]),
    }
    balanced, power_law = family.least_bytes(kernels)
    assert family.work(kernels).bytes[0] == balanced
    assert 0.6 < power_law / balanced < 0.7
