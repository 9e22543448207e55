"""`benchmarks/rules.py`: the rules that others use, on files that are made by hand."""

import gzip

import pytest

from tests.help import samples
from tests.help.scripts import benchmark

PERCENTS = {0: 1.0, 10: 1.1, 200: 3.0}
TEXTS = [f"gemm m={m} n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=2" for m in (2, 5, 7)]
NOISE = (0.0, 0.004, -0.003, 0.002, -0.005, 0.001, 0.003, -0.002)


def side(path, factor, shift, day):
    """Eight processes of each case with 40 samples each."""
    lines = []
    for text in TEXTS:
        for number in range(8):
            record = samples.measured(text=text, round_number=number + 1)
            level = 1e-3 * factor * (1 + NOISE[(number + shift) % 8])
            measurement = record["measurement"]
            count = len(measurement["samples_s"])
            measurement["samples_s"] = [level * (1 + 0.001 * NOISE[i % 8]) for i in range(count)]
            lines.append(record)
    head = samples.header(TEXTS)
    head["started"] = f"2026-11-{day}T00:00:00+00:00"
    path.write_bytes(gzip.compress(samples.write(path.with_suffix(""), lines, head).read_bytes()))


@pytest.fixture
def folder(tmp_path):
    for day in (21, 22):
        for percent, factor in PERCENTS.items():
            side(tmp_path / f"202611{day}-0600-{percent}.a.jsonl.gz", 1.0, 0, day)
            side(tmp_path / f"202611{day}-0600-{percent}.b.jsonl.gz", factor, 3, day)
    return tmp_path


def pairs(found):
    return [(p, a, b) for o in found for p, (a, b) in o.pairs.items()]


def test_files_are_put_together(folder):
    found = benchmark("rules").occasions(folder)
    assert ["20261121-0600", "20261122-0600"] == [o.name for o in found]
    assert list(PERCENTS) == list(found[0].pairs)


def test_all_rules_find_three_times_the_time_and_call_nothing_else(folder):
    rules = benchmark("rules")
    rows = rules.apply(pairs(rules.occasions(folder)))
    assert {"5", "1", "all", "all and 2", "all and 1"} >= {r.processes for r in rows}
    for row in rows:
        if row.title != "Mann–Whitney on samples":
            assert 0 == row.counts[0].alarms, row.title
        assert row.counts[200].share == 1.0, row.title
    assert {0, 1} == {row.counts[10].share for row in rows}, "some rules find 10 %, and some do not"


def test_samples_of_one_process_mislead_mann_and_whitney(folder):
    """Both sides are the same program, and every process has a level of its own."""
    rules = benchmark("rules")
    (row,) = [r for r in rules.apply(pairs(rules.occasions(folder))) if "Whitney" in r.title]
    assert row.counts[0].share > 0.3


def test_the_table_and_the_picture_have_all_rules(folder):
    rules = benchmark("rules")
    rows = rules.apply(pairs(rules.occasions(folder)))
    text, picture = rules.table(rows), rules.picture(rows)
    for row in rows:
        assert row.title in text
        assert row.title in picture
    assert "+200 %" in text
    assert "100 %" in picture
    assert "undecided" in text.splitlines()[0]


def test_a_folder_without_files_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["rules.py", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"rules_data\.py makes them"):
        benchmark("rules").main()


def test_sides_that_did_not_take_turns_are_put_together(folder):
    rules = benchmark("rules")
    found = rules.occasions(folder)
    apart = rules.apart(found)
    count = len(found) * len(PERCENTS)
    assert count * (count - 1) == len(apart)
    assert all(a.file is not b.file for _, a, b in apart)


def test_busy_occasions_are_a_table_of_their_own(folder):
    rules = benchmark("rules")
    for side in "ab":
        path = folder / f"20261121-0600-0.{side}.jsonl.gz"
        path.rename(folder / f"20261121-0900busy-0.{side}.jsonl.gz")
    found = rules.occasions(folder)
    assert [0] == [p for p, _, _ in rules.pairs_of(found, "busy")]
    assert 5 == len(rules.pairs_of(found))
    assert [] == rules.pairs_of(found, "long")
    assert "2026-11-21 and 2026-11-22" in rules.machine_of(found)
