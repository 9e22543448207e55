"""Attention: what is counted and refused, lengths, and texts."""

import numpy as np
import pytest

from deepbench.core.backend import Backend, find_backend, kernel
from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput, Unsupported
from deepbench.core.op import find_op
from deepbench.measuring.check import check
from tests.ops.wrong_kernels.attention import DECODE, PAGED, PREFILL


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("batch=2 heads=3 kv_heads=1 queries=4 keys=4 head_size=8 mask=causal", 2 * 10),
        ("batch=1 heads=3 kv_heads=1 queries=1 keys=9 head_size=8 mask=causal", 9),
        ("batch=1 heads=3 kv_heads=1 queries=5 keys=5 head_size=8 mask=causal window=2", 1 + 4 * 2),
        ("batch=1 heads=3 kv_heads=1 queries=5 keys=7 head_size=8 mask=causal window=4", 3 + 4 * 4),
        ("batch=2 heads=3 kv_heads=1 queries=5 keys=7 head_size=8", 2 * 35),
    ],
)
def test_only_visible_pairs_count(text, pairs):
    case = parse_case(f"attention {text} forward f32 reference threads=1")
    op, p = find_op("attention"), case.problem

    assert pairs == p.pairs()
    assert pairs == sum(
        end - first for keys in p.key_counts for i in range(p.queries) for first, end in [p.visible(i, keys)]
    )
    assert 2 * pairs * 3 * 16 == op.flop(case)
    assert 2 * p.batch * 3 * p.queries * p.keys * 16 == op.other_flop(case)["unmasked"]


def test_a_cache_is_read_once_and_only_as_far_as_the_window_reaches():
    text = "attention batch=2 heads=4 kv_heads=2 queries=1 keys=100 head_size=8 mask=causal"
    op = find_op("attention")
    whole, window = (parse_case(f"{text}{more} forward bf16 reference threads=1") for more in ("", " window=10"))

    assert 2 * (2 * 2 * 100 * 8 + 2 * 4 * 8) * 2 == op.traffic_bytes(whole)
    assert 2 * (2 * 2 * 10 * 8 + 2 * 4 * 8) * 2 == op.traffic_bytes(window)
    assert 0 == op.traffic_bytes(whole, 10**6)


@pytest.mark.parametrize("kind", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("text", [PAGED, DECODE, PREFILL])
def test_keys_and_values_of_a_cache_may_have_8_bits(text, kind):
    case = parse_case(f"{text} forward {kind} reference threads=1 cache_type=f8e4m3")
    op, same = find_op("attention"), parse_case(f"{text} forward {kind} reference threads=1")
    arrays = op.operands(case)
    wide = {name: array.astype(arrays["q"].dtype) if name in "kv" else array for name, array in arrays.items()}

    assert {"float8_e4m3fn"} == {arrays[name].dtype.name for name in "kv"}
    np.testing.assert_array_equal(op.reference(same, wide)["y"], op.reference(case, arrays)["y"])
    bits = {"bf16": 8, "f16": 8, "f32": 24}[kind]  # fewer of each key and value
    saved = (arrays["k"].size + arrays["v"].size) * bits // 8
    assert saved == op.operand_bytes(same) - op.operand_bytes(case)
    seen = sum(keys * case.problem.kv_heads for keys in case.problem.key_counts)
    widths = case.problem.head_size + case.problem.width
    assert seen * widths * bits // 8 == op.traffic_bytes(same) - op.traffic_bytes(case)


def test_a_wrong_result_from_an_8_bit_cache_is_found():
    case = parse_case(f"{DECODE} forward bf16 reference threads=1 cache_type=f8e4m3")
    op = find_op("attention")
    arrays = op.operands(case)
    right = op.reference(case, arrays)["y"]
    arrays["y"][...] = right
    assert check(op, case, arrays).passed

    arrays["y"][...] = op.reference(case, {**arrays, "v": np.roll(arrays["v"], 1, axis=2)})["y"]
    assert not check(op, case, arrays).passed


@pytest.mark.parametrize("name", ["loops", "mkl", "onednn", "torch", "torch_compiled"])
def test_a_library_that_does_not_name_a_rare_setting_is_not_called_with_it(name):
    case = parse_case(f"{DECODE} forward f32 {name} threads=1 cache_type=f8e4m3")

    with pytest.raises(Unsupported, match="has no attention forward cache_type=f8e4m3 in f32"):
        find_backend(name).prepare(case, {})


def test_a_library_that_names_a_rare_setting_is_called_with_it():
    class Caching(Backend):
        name = title = "caching"

        def open(self):
            return {}

        @kernel("attention", precisions=("f32",))
        def plain(self, case, arrays):
            return "plain"

        @kernel("attention", precisions=("f32",), rare_settings=("cache_type",))
        def with_cache(self, case, arrays):
            return "with a cache"

    def prepared(words):
        return Caching().prepare(parse_case(f"{DECODE} forward f32 loops threads=1{words}"), {})

    assert ["plain", "with a cache"] == [prepared(words) for words in ("", " cache_type=f8e4m3")]


def test_gradients_have_no_cache():
    case = parse_case(f"{PREFILL} backward bf16 reference threads=1 cache_type=f8e4m3")

    assert ("cache_type",) == find_op("attention").unused_settings(case.problem, "backward", case.precision)
    assert {"bfloat16"} == {a.dtype.name for n, a in find_op("attention").operands(case).items() if n in ("k", "dk")}


def test_gradients_of_keys_that_no_query_sees_are_written():
    text = "attention batch=1 heads=2 kv_heads=1 queries=1 keys=77 head_size=16 mask=causal window=7 backward {}"
    f32, bf16 = (parse_case(f"{text.format(kind)} reference threads=1") for kind in ("f32", "bf16"))
    queries, seen, keys = 2 * 2 * 32, 7 * 32, 77 * 32  # rows with their gradients; rows that are read; gradients
    numbers = queries + seen + keys
    op = find_op("attention")
    arrays = op.operands(f32)

    assert [4 * numbers + 8, 2 * numbers + 8] == [op.traffic_bytes(f32), op.traffic_bytes(bf16)]
    assert not op.reference(f32, arrays)["dk"][0, 0, :70].any()  # zeros that a kernel must write
    assert any(not c.tolerance.all() for c in op.compare(f32, arrays) if c.output == "dk")


def test_lengths_are_the_same_every_time_and_one_sequence_is_the_longest():
    p = parse_case(f"{PAGED} forward f32 reference threads=1").problem

    assert p.key_counts == type(p)(**p.values).key_counts
    assert 70 == max(p.key_counts)
    assert len(set(p.key_counts)) > 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("heads=3", "multiple of kv_heads"),
        ("mask=none window=4", "window needs mask=causal"),
        ("queries=80", "at most keys"),
        ("lengths=spread batch=2147483647", "with lengths=spread, batch must be at most 1048576"),
    ],
)
def test_impossible_problems_are_refused(change, message):
    words = {**dict(w.split("=") for w in PREFILL.split()[1:]), **dict(w.split("=") for w in change.split())}
    text = " ".join(f"{name}={value}" for name, value in words.items())

    with pytest.raises(BadInput, match=message):
        parse_case(f"attention {text} forward f32 reference threads=1")


def test_any_number_of_equal_sequences_is_counted_at_once():
    text = "batch=2147483647 heads=1 kv_heads=1 queries=1 keys=3 head_size=1 page=2 forward f32 reference threads=1"
    case = parse_case(f"attention {text}")

    assert 2147483647 * 3 * 4 == case.operation.flop(case)
    assert 4 * 2147483647 * (2 + 2 * 3 + 2) == case.operation.traffic_bytes(case)


def test_equal_problems_have_one_text():
    text = "attention batch=1 heads=1 kv_heads=1 queries=4 keys=4 head_size=8 mask=causal"
    case = parse_case(f"{text} value_size=8 window=4 forward f32 reference threads=1")

    assert "value_size" not in case.text
    assert "window" not in case.text
