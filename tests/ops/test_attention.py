"""Attention: what is counted and refused, lengths, and texts."""

import pytest

from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from tests.ops.wrong_kernels.attention import PAGED, PREFILL


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
