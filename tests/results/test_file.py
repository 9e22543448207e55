"""Result files: writing, reading, damage, and summaries of their records."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.judge.limits import Limits
from deepbench.results import summary
from deepbench.results.file import ARRAYS, ResultFile, Store, default_path, read_results
from deepbench.results.record import STATUSES, make_record
from deepbench.results.schema import schema_error
from tests.help import samples


@pytest.fixture
def path(tmp_path):
    return tmp_path / "result.jsonl"


def written(path, *lines):
    store = Store.create(path, samples.header())
    for line in lines:
        store.append(line)
    store.close()
    return path


def test_a_file_reads_back_as_it_was_written(path):
    one = samples.measured()
    content = read_results(written(path, one, {"limit": samples.peak()}))

    (read,) = content.records
    for name in ARRAYS:
        read["measurement"][name] = list(read["measurement"][name])
    assert one == read
    assert [samples.peak()] == content.limits
    assert {**samples.header(), "checksums": "crc32"} == content.header
    assert not content.truncated


def test_an_incomplete_last_line_is_reported_and_ignored(path):
    written(path, samples.measured())
    complete = path.read_bytes()
    path.write_bytes(complete + b'{"case":"gemm m=1')

    content = read_results(path)

    assert content.truncated
    assert 1 == len(content.records)
    assert len(complete) == content.complete_bytes


def test_resuming_removes_an_incomplete_last_line(path):
    written(path, samples.measured())
    path.write_bytes(path.read_bytes() + b'{"case":"gemm m=1')

    again = Store.reopen(path)
    again.append_after(read_results(path))
    again.append(samples.measured(round_number=2))
    again.close()

    assert [1, 2] == [r["round"] for r in read_results(path).records]


def test_an_existing_file_is_not_overwritten(path):
    written(path)
    before = path.read_bytes()

    with pytest.raises(BadInput, match="already exists"):
        Store.create(path, samples.header())

    assert before == path.read_bytes()


def test_two_runs_cannot_write_to_one_file(path):
    first = Store.create(path, samples.header())

    with pytest.raises(BadInput, match="written by another run"):
        Store.reopen(path)
    first.close()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b'{"schema":"deepbench/1"', "no complete line"),
        (b"\x7fELF\x00\x01\n", "line 1: not JSON"),
        (b"m,n,k\n1,2,3\n", "line 1: not JSON"),
        (b"[]\n", "no schema"),
        (b'{"schema":"deepbench/2"}\n', "deepbench/2, but this version reads deepbench/1"),
        (b'{"schema":"other/1"}\n', "no schema"),
        (b'{"schema":"deepbench/1"}\n', "must contain"),
        (b'{"schema":NaN}\n', "line 1: not JSON"),
        (b"[" * 100_000 + b"\n", "line 1: not JSON"),
    ],
)
def test_other_files_are_refused_in_one_sentence(path, content, expected):
    path.write_bytes(content)

    with pytest.raises(BadInput) as error:
        read_results(path)

    assert expected in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"status": "splendid"}, "status"),
        ({"round": 0}, "round"),
        ({"flop": "many"}, "flop"),
        ({"threads": -1}, "threads"),
        ({"measurement": {"samples_s": []}}, "measurement"),
    ],
)
def test_a_record_that_does_not_match_the_schema_is_refused_with_its_line(path, change, expected):
    samples.write(path, [samples.measured(), {**samples.measured(), **change}])

    with pytest.raises(BadInput, match=f"line 3: .*{expected}"):
        read_results(path)


def test_a_very_large_file_is_refused_without_reading_it(path):
    with path.open("wb") as file:
        file.truncate(10**9)  # a sparse file occupies no disk space

    with pytest.raises(BadInput, match="has 1000000000 bytes"):
        read_results(path)


def test_folders_and_missing_files_are_refused(tmp_path):
    with pytest.raises(BadInput, match="is a folder"):
        read_results(tmp_path)
    with pytest.raises(BadInput, match="does not exist"):
        read_results(tmp_path / "none.jsonl")


@settings(max_examples=150)
@given(damage=st.binary(max_size=300), cut=st.integers(0, 5000))
def test_a_damaged_file_is_read_or_refused_in_one_sentence(tmp_path_factory, damage, cut):
    path = written(tmp_path_factory.mktemp("damage") / "r.jsonl", samples.measured())
    path.write_bytes(path.read_bytes()[:cut] + damage)
    try:
        content = read_results(path)
        assert len(content.records) <= 2
    except BadInput as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 600


def test_a_new_record_of_any_status_matches_the_schema():
    for status in STATUSES:
        text = "gemm m=1 n=2 k=3 forward f32 mkl threads=1"
        assert schema_error(make_record(parse_case(text), 1, status, "why")) is None


def test_the_default_name_is_unused(tmp_path):
    first = default_path(tmp_path, "20261121-113000")
    first.touch()

    assert "deepbench-20261121-113000.jsonl" == first.name
    assert "deepbench-20261121-113000-2.jsonl" == default_path(tmp_path, "20261121-113000").name


def test_a_summary_takes_its_status_from_the_first_round_that_failed():
    rounds = [samples.measured(), samples.failed("crashed", "killed by SIGSEGV", round_number=2)]

    (case,) = summary.summarize(rounds)

    assert ("crashed", None, None) == (case.status, case.estimate, case.flop_per_s)


def test_a_rate_counts_the_unpadded_work():
    (case,) = summary.summarize([samples.measured(seconds=1e-3)])

    assert 2 * 2 * 3 * 4 / case.estimate.time_s == case.flop_per_s


def test_the_interval_of_one_process_comes_from_its_samples():
    (case,) = summary.summarize([samples.measured()])

    assert case.single_process
    assert case.estimate.low_s <= case.estimate.time_s <= case.estimate.high_s


def test_interrupted_records_have_no_summary():
    assert [] == summary.summarize([samples.failed("interrupted", "stopped")])


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[1] / "data").glob("*.jsonl")), ids=lambda p: p.name)
def test_files_of_real_machines_can_be_read(path):
    content = read_results(path)
    summaries = summary.summarize(content.records, content.order)

    assert len(content.order) == len(summaries)
    assert all(s.estimate.low_s < s.estimate.time_s < s.estimate.high_s for s in summaries if s.status == "ok")
    peaks = Limits(content.limits)
    assert all(
        s.flop_per_s < 1.1 * peaks.peak(s.record["precision"], "cpu", s.record["threads"])
        for s in summaries
        if s.flop_per_s
    )


def planned_file(records, least=3, **plan):
    texts = [parse_case(samples.TEXT.format(backend=name)).text for name in ("mkl", "onednn", "openblas")]
    header = samples.header(texts)
    header["plan"] |= {"rounds": {"least": least, "most": 5, "target": 0.03, "most_s": 3.0}, **plan}
    return ResultFile(Path("mine.jsonl"), header, records)


def test_a_file_says_what_it_lacks_of_its_plan():
    three = [samples.measured(name, round_number=n) for name in ("mkl", "onednn") for n in (1, 2, 3)]
    failed = samples.failed("crashed", "killed", "openblas")

    assert planned_file([*three, failed]).incomplete is None  # what failed needs no further round
    assert "INCOMPLETE: 1 of 3 planned cases not measured" == planned_file(three).incomplete
    found = planned_file([*three[:4], failed]).incomplete
    assert "INCOMPLETE: cases with fewer than 3 rounds: 1" == found


def test_a_budget_or_another_program_decides_how_many_rounds_there_are():
    once = [samples.measured(name) for name in ("mkl", "onednn", "openblas")]

    assert planned_file(once, budget_s=60.0).incomplete is None
    assert planned_file(once[:1], mode="imported").incomplete is None
    assert "not measured" in planned_file(once[:1], budget_s=60.0).incomplete


def test_an_interrupted_case_counts_as_not_measured():
    once = [samples.measured("mkl"), samples.failed("interrupted", "stopped", "onednn")]

    assert "2 of 3 planned cases not measured" in planned_file(once, least=1).incomplete
