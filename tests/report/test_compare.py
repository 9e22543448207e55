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


TEXT = "gemm m={} n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=1"
STEADY = (1.0, 1.001, 0.999, 1.002, 0.998)
LOUD = (1.0, 1.5, 0.8, 1.3, 0.9)


def many(path, factors, version="1.0", loud=0, implementation=None):
    """A file of one case per factor, and then of cases whose times vary so much that nothing is decided."""
    store = Store.create(path, samples.header())
    for m, (factor, times) in enumerate([*((f, STEADY) for f in factors), *[(1.0, LOUD)] * loud], 2):
        for number, value in enumerate(times, 1):
            record = samples.measured(seconds=1e-3 * factor * value, round_number=number, text=TEXT.format(m))
            record["library"]["version"] = version
            if implementation and factor > 2:
                record["notes"]["implementation"] = implementation
            store.append(record)
    store.close()
    return read_results(path)


def changed(tmp_path):
    """Of 18 cases three are slower, one is faster, two are undecided, and the others are the same."""
    factors = [1.3, 2.5, 1.1, 0.5, *[1.0] * 12]
    first = many(tmp_path / "a.jsonl", [1.0, 2.5 / 1.31, 1.0, 1.0, *[1.0] * 12], loud=2)
    for record in first.records:
        if record["problem"]["m"] == 3:
            record["notes"]["implementation"] = "brg:avx512_core"
    return compare_files(first, many(tmp_path / "b.jsonl", factors, "1.1", 2, "brg:avx512_core_amx"))


def test_the_answer_names_the_slowest_case_with_its_reason_and_counts_the_others(tmp_path):
    slower, faster, rest = compare.answer(changed(tmp_path))

    assert (
        "Slower: 3 of 18 cases, most 1.31× (gemm 3 × 3 × 4 NN f32, MKL; implementation: brg:avx512_core → "
        "brg:avx512_core_amx)." == slower
    )
    assert "Faster: 1 case, most 2.00×." == faster
    assert rest.startswith("Same: 12. Undecided: 2. To decide: 2 need ")


def test_without_a_recorded_difference_the_answer_says_so(tmp_path):
    files = [many(tmp_path / name, factors) for name, factors in (("a.jsonl", [1.0]), ("b.jsonl", [1.5]))]
    comparison = compare_files(*files)

    assert [None] == [row["reason"] for row in compare.cases(comparison).rows]
    assert [
        "Slower: 1 of 1 case, most 1.50× (gemm 2 × 3 × 4 NN f32, MKL).",
        "Faster: none.",
        "No recorded difference explains it.",
        "Same: 0. Undecided: 0.",
    ] == compare.answer(comparison)


def test_the_answer_counts_cases_that_were_not_compared(tmp_path):
    files = [many(tmp_path / name, factors) for name, factors in (("a.jsonl", [1.0] * 3), ("b.jsonl", [1.0]))]

    *_, last = compare.answer(compare_files(*files))

    assert "Not compared: 2 cases; for 2 of them only the first side has a time." == last


def test_a_terminal_lists_only_decided_cases_where_there_are_many(tmp_path):
    comparison = changed(tmp_path)
    tables = [compare.listed(comparison, full) for full in (False, True)]
    below = [compare.parts(comparison, ("a", "b"), table)[3] for table in tables]

    assert ["slower"] * 3 + ["faster"] == [row["verdict"] for row in tables[0].rows]
    assert "Not listed: 14 cases that are the same or undecided; --full lists them." == below[0][0]
    assert 18 == len(tables[1].rows) == len(compare.cases(comparison).rows)
    assert not [line for line in below[1] if "--full" in line]


def test_a_terminal_lists_every_one_of_few_cases(tmp_path):
    files = [many(tmp_path / name, [1.0] * 10) for name in ("a.jsonl", "b.jsonl")]

    assert ["same"] * 10 == [row["verdict"] for row in compare.listed(compare_files(*files), full=False).rows]
