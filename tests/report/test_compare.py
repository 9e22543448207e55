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
