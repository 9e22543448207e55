"""A comparison shows the times that the table of each file shows."""

import pytest

from deepbench.judge import gate
from deepbench.judge.compare import compare_files
from deepbench.reporting import compare, export
from deepbench.results.file import Store, read_results
from deepbench.results.summary import summarize
from tests.help import samples


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


@pytest.mark.parametrize(("program", "processes"), [("benchdnn", 1), ("pyperf", 3)])
def test_no_command_that_measures_again_is_named_for_imported_files(tmp_path, program, processes):
    """Not even with several processes, whose times vary too much for a verdict."""
    files = []
    for name, first_s in (("a", 1e-3), ("b", 1.05e-3)):
        header = samples.header()
        header["plan"]["mode"] = "imported"
        store = Store.create(tmp_path / f"{name}.jsonl", header)
        for number, times in enumerate((1.0, 1.5, 0.7)[:processes], 1):
            record = samples.measured(seconds=first_s * times, round_number=number)
            record |= {"status": "unchecked", "reason": "imported", "process": {"duration_s": 0.0}}
            record["notes"]["imported_from"] = program
            store.append(record)
        store.close()
        files.append(read_results(tmp_path / f"{name}.jsonl"))
    comparison = compare_files(*files, unchecked=True)
    (judged,) = gate.judge(comparison).cases
    lines = [*compare.heading(comparison, ("A", "B")), *compare.sentences(comparison), *compare.answer(comparison)]
    said = " ".join([*lines, judged.reason])

    assert ["imported"] == [row["to decide"] for row in compare.cases(comparison).rows]
    assert "--" not in said
    assert f"imported: 1 case came from {program}, and an imported file has one process per case" in said
    assert "To decide: 1 need a measurement by DeepBench on both sides" in said
    assert f"{program} measured a side: measure both sides with DeepBench" in judged.reason


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
    assert "Not listed: 2 undecided, 12 same; --full lists all cases." == below[0][0]
    assert 18 == len(tables[1].rows) == len(compare.cases(comparison).rows)
    assert not [line for line in below[1] if "--full" in line]


def test_a_terminal_lists_every_one_of_few_cases(tmp_path):
    files = [many(tmp_path / name, [1.0] * 10) for name in ("a.jsonl", "b.jsonl")]

    assert ["same"] * 10 == [row["verdict"] for row in compare.listed(compare_files(*files), full=False).rows]


def together(tmp_path, factor):
    """Ten cases that are slower or faster by so little that none is decided."""
    noisy = (1.0, 1.03, 0.97, 1.015, 0.985)
    files = []
    for name, by in (("a.jsonl", 1.0), ("b.jsonl", factor)):
        store = Store.create(tmp_path / name, samples.header())
        for m in range(2, 12):
            for number, value in enumerate(noisy, 1):
                store.append(samples.measured(seconds=1e-3 * by * value, round_number=number, text=TEXT.format(m)))
        store.close()
        files.append(read_results(tmp_path / name))
    return compare_files(*files)


@pytest.mark.parametrize(("factor", "verdict"), [(1.036, "slower"), (1 / 1.036, "faster")])
def test_cases_that_moved_together_are_named_above_the_table_and_in_the_answer(tmp_path, factor, verdict):
    comparison = together(tmp_path, factor)
    head, *_, below, answer = compare.parts(comparison, ("a", "b"), compare.listed(comparison, full=False))
    line = f"Probably {verdict} together: 10 cases of gemm forward f32 MKL, 1.04× (1.03 to 1.05×), none of which are "

    assert [f"{line}decided alone."] == [text for text in head if text.startswith("Probably")]
    assert [f"{line}decided alone."] == [text for text in answer if text.startswith("Probably")]
    assert any("deepbench selftest measures it" in text for text in below)
    (group,) = compare.to_json(comparison)["moved_together"]
    assert (10, 0, verdict) == (group["cases"], group["decided"], group["verdict"])
    assert group["low"] < group["second_over_first"] < group["high"]


def test_an_interval_in_words_begins_with_the_smaller_factor_and_csv_with_the_lower_ratio(tmp_path):
    files = [many(tmp_path / name, [f]) for name, f in (("a.jsonl", 1.0), ("b.jsonl", 0.5))]
    table = compare.means(compare_files(*files))
    factors = [float(word.split("×")[0]) for word in table.markdown().splitlines()[2].split("|")[6:8]]
    low, high = (float(value) for value in table.csv().splitlines()[1].split(",")[-2:])

    assert factors[0] < 2.0 < factors[1]
    assert low < 0.5 < high


def test_undecided_is_the_word_for_people_and_programs_keep_theirs(tmp_path):
    files = [many(tmp_path / name, [], loud=1) for name in ("a.jsonl", "b.jsonl")]
    table = compare.cases(compare_files(*files))

    assert "undecided" in str(table)
    assert "undecided" in table.markdown()
    assert "cannot tell" not in str(table) + table.markdown()
    assert "cannot tell" in table.csv()
    assert '"cannot tell"' in table.json()


def machines(tmp_path, count):
    """Two machines with so many cases: half of them slower on the second, half of them faster."""
    factors = [1.5 + i / 100 if i % 2 else 0.5 - i / 1000 for i in range(count)]
    files = [many(tmp_path / name, f) for name, f in (("a.jsonl", [1.0] * count), ("b.jsonl", factors))]
    files[1].header["machine"]["cpu"] = "Another CPU"
    return compare_files(*files)


def test_of_many_changes_between_machines_the_largest_are_listed_and_the_machine_is_named_once(tmp_path):
    comparison = machines(tmp_path, 104)
    short, full = (compare.listed(comparison, full) for full in (False, True))
    below = compare.parts(comparison, ("a", "b"), short)[3]

    assert ["slower"] * 20 + ["faster"] * 20 == [row["verdict"] for row in short.rows]
    assert 104 == len(full.rows) == len(compare.cases(comparison).rows)
    assert "Not listed: 32 slower, 32 faster; --full lists all cases." == below[0]
    assert "CPU: A CPU → Another CPU" in comparison.differences
    assert "Another CPU" not in str(short)


def test_a_hundred_changes_between_machines_are_all_listed(tmp_path):
    assert 100 == len(compare.listed(machines(tmp_path, 100), full=False).rows)


def test_more_rounds_come_with_their_command(tmp_path):
    files = [many(tmp_path / name, [f], loud=0) for name, f in (("a.jsonl", 1.0), ("b.jsonl", 1.0185))]
    for file in files:
        for record in file.records:
            record["process"]["duration_s"] = 20.0
    comparison = compare_files(*files)
    (case,) = comparison.cases

    assert f"; run --rounds {case.rounds_to_decide})" in compare.answer(comparison)[-1]


def test_the_table_says_why_a_ratio_is_not_the_quotient_of_the_times(tmp_path):
    assert any("so their quotient may differ" in note for note in compare.cases(changed(tmp_path)).notes)
