"""A comparison shows the times that the table of each file shows."""

import pytest

from deepbench.judge.compare import compare_files
from deepbench.report import compare, export
from deepbench.results.file import Store, read_results
from deepbench.results.summary import summarize
from tests import samples


def written(path, *seconds):
    store = Store.create(path, samples.header())
    for number, value in enumerate(seconds, 1):
        store.append(samples.measured(seconds=value, round_number=number))
    store.close()
    return read_results(path)


@pytest.mark.parametrize("seconds", [(13e-3,), (13e-3, 21e-3), (10e-3, 13e-3, 18e-3, 40e-3, 17e-3)])
def test_compare_and_show_give_a_case_the_same_time(tmp_path, seconds):
    files = [written(tmp_path / "a.jsonl", *seconds), written(tmp_path / "b.jsonl", *(2 * s for s in seconds))]

    (compared,) = compare.cases(compare_files(*files)).rows

    shown = [export.rows(summarize(f.records, f.order))[0]["time_s"] for f in files]
    assert shown == [compared["first"], compared["second"]]


def test_a_comparison_of_undecided_cases_has_no_overall_ratio(tmp_path):
    files = [written(tmp_path / "a.jsonl", 3e-3), written(tmp_path / "b.jsonl", 10e-3)]
    comparison = compare_files(*files)

    assert "1 of 1 cases are undecided; no overall ratio" == compare.headline(comparison, ("A", "B"))
    assert {None} == {row["second_over_first"] for row in compare.means(comparison).rows}
    assert "3.33" not in compare.means(comparison).markdown()


def test_a_comparison_of_decided_cases_is_a_sentence(tmp_path):
    files = [written(tmp_path / f"{s}.jsonl", *(s * 1e-3 * x for x in (1, 1.001, 0.999, 1.002, 0.998))) for s in (1, 2)]

    sentence = compare.headline(compare_files(*files), ("A", "B"))

    assert "B is 2.00× slower than A (geometric mean over 1 common cases)" == sentence
    assert "2.00× slower" in compare.cases(compare_files(*files)).markdown()


def test_an_undecided_case_with_a_disturbed_time_has_no_ratio(tmp_path):
    store = Store.create(tmp_path / "b.jsonl", samples.header())
    store.append(samples.disturbed(seconds=69.5e-3))
    store.close()
    comparison = compare_files(written(tmp_path / "a.jsonl", 0.9e-3), read_results(tmp_path / "b.jsonl"))

    (row,) = compare.cases(comparison).rows

    assert (None, "second disturbed") == (row["second_over_first"], row["notes"])
    assert any("1 of 1 cases have a disturbed time" in line for line in compare.sentences(comparison))
