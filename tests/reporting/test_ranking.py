"""Machines ranked by application, by time or cost, and how certain the order is."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from deepbench.core.errors import BadInput
from deepbench.judge.ranking import Machine, apart, competing, rankings
from deepbench.judge.totals import Total
from deepbench.reporting import ranking as tables
from deepbench.reporting.ranking import answer


def total(time_s, half=None, precision="f32", suite="deepbench/server", threads=1, **more):
    values = {"kernels": 4, "measured": 4, "disturbed": 0, "single_process": 0, "joules": None, "by_op_s": {}}
    ends = (None, None) if half is None else (time_s * (1 - half), time_s * (1 + half))
    values |= {"low_s": ends[0], "high_s": ends[1], "sum_s": time_s, "time_s": time_s}
    return Total(application="OCR", suite=suite, precision=precision, threads=threads, **{**values, **more})


def machine(name, *totals, price=None, kind="measured"):
    return Machine(name, kind, totals, price)


def ranked(*machines, words=()):
    (ranking,) = rankings(machines, competing(words))
    return ranking


def names(ranking):
    return [p.machine.name for p in ranking.ranked]


def test_machines_are_ranked_by_time_and_intervals_apart_are_certain():
    ranking = ranked(machine("slow", total(1.2, 0.02)), machine("fast", total(1.0, 0.02)))

    assert ["fast", "slow"] == names(ranking)
    expected = "OCR (server): fast is 20.0 % faster than slow; the intervals do not overlap: certain at 95 %."
    assert expected == answer(ranking)
    rows = tables.rows_of(ranking)
    assert (1, None) == (rows[0]["rank"], rows[0]["over_best"])
    assert (2, pytest.approx(1.2)) == (rows[1]["rank"], rows[1]["over_best"])
    assert (1.2 * 0.98 / 1.02, 1.2 * 1.02 / 0.98) == pytest.approx(
        (rows[1]["over_best_low"], rows[1]["over_best_high"])
    )


def test_prices_turn_the_order_round_and_intervals_that_overlap_are_uncertain():
    ranking = ranked(machine("slow", total(1.2, 0.1), price=1.0), machine("fast", total(1.0, 0.1), price=1.3))

    assert ["slow", "fast"] == names(ranking)
    assert "fast costs 8 % more than slow; the intervals of slow and fast overlap: the order is uncertain" in (
        answer(ranking)
    )
    assert 1e6 * 1.2 / 3600 == pytest.approx(ranking.ranked[0].cost)


def test_without_the_price_of_every_ranked_machine_times_decide():
    part = machine("part", total(None, measured=3, sum_s=1.0))
    cheap, dear = machine("cheap", total(2.0), price=0.1), machine("dear", total(1.0))

    assert ("time", ["dear", "cheap"]) == (ranked(cheap, dear, part).by, names(ranked(cheap, dear, part)))
    # A machine that is not ranked needs no price.
    priced = machine("dear", total(1.0), price=9.0)
    assert ("cost", ["cheap", "dear"]) == (ranked(cheap, priced, part).by, names(ranked(cheap, priced, part)))


def test_a_machine_without_an_interval_leaves_certainty_unknown():
    ranking = ranked(machine("ours", total(1.0, 0.02)), machine("V100", total(3.0), kind="imported"))

    assert "V100 has no interval: certainty unknown" in answer(ranking)
    assert "no interval" == ranking.certainty
    assert tables.rows_of(ranking)[1]["over_best_low"] is None


def test_only_the_best_two_decide_how_certain_the_order_is():
    best, second = machine("a", total(1.0, 0.01)), machine("b", total(1.1, 0.01))
    far = machine("far", total(29.0), kind="imported")
    ranking = ranked(best, second, far)

    assert ("certain", []) == (ranking.certainty, ranking.could_be_best)
    assert answer(ranked(best, second)) == answer(ranking)
    assert "| OCR (server) | a |" in tables.matrix([best, second, far], [ranking]).markdown()


def test_others_that_could_be_the_best_are_a_remark():
    best, second = machine("a", total(1.0, 0.01)), machine("b", total(1.1, 0.01))
    ranking = ranked(best, second, machine("c", total(1.2, 0.5)))

    assert "the intervals do not overlap: certain at 95 %. Could also be the best: c (intervals overlap)." in (
        answer(ranking)
    )
    assert "certain" == ranking.certainty
    assert "≈ a" in tables.matrix([p.machine for p in ranking.places], [ranking]).markdown()
    (listed,) = tables.to_json([ranking])
    assert ["c"] == listed["could_be_best"]
    near = ranked(machine("a", total(1.0, 0.05)), machine("b", total(1.11, 0.001)), machine("V", total(1.14)))
    assert "Could also be the best: V (no interval, near)." in answer(near)


def test_more_rounds_are_proposed_only_where_they_could_decide():
    ours, near = machine("a", total(1.0, 0.1)), machine("b", total(1.1, 0.1))

    assert answer(ranked(ours, near)).endswith(tables.MORE_ROUNDS)
    assert tables.MORE_ROUNDS not in answer(ranked(ours, machine("b", total(1.5, 0.1))))
    assert tables.MORE_ROUNDS not in answer(ranked(ours, machine("V", total(1.1), kind="imported")))
    assert answer(ranked(ours, machine("once", total(1.1)))).endswith(tables.MORE_ROUNDS)


@pytest.mark.parametrize(
    ("price", "sentence", "cell"),
    [
        (1.0, "b costs as much as a", "0 % more"),
        (1.052, "b costs 5 % more than a", "5 % more"),
        (2.5, "b costs 2.50× as much as a", "2.50× the cost"),
    ],
)
def test_the_sentence_has_the_figure_of_the_table(price, sentence, cell):
    ranking = ranked(machine("a", total(1.0, 0.01), price=1.0), machine("b", total(1.0, 0.01), price=price))

    assert f"OCR (server): {sentence};" in answer(ranking)
    _, table, _ = tables.parts([ranking])
    assert f"| {cell} |" in table.markdown()


def test_below_a_ranking_stands_what_the_best_total_consists_of():
    best = machine("a", total(1.0, by_op_s={"gemm": 0.058, "sparse_gemm": 0.94, "conv": 0.002}))
    (_, _, (composition, answer)) = tables.parts([ranked(best, machine("b", total(2.0)))])

    assert "a: sparse_gemm 94 %, gemm 6 % of the time." == composition
    assert answer.startswith("OCR (server): a is 2.00× faster")


def matrix_of(*machines, words=()):
    return tables.matrix(machines, rankings(machines, competing(words))).markdown()


def test_the_matrix_says_what_its_cells_are():
    a, b = machine("a", total(1.0, 0.01), price=3.6), machine("b", total(2.0, 0.01), price=7.2)
    noisy = machine("noisy", total(1.0, disturbed=1))
    by_cost = matrix_of(a, b, noisy)

    assert "| **1000 f32** | 4000 f32 | no price |" in by_cost
    assert "Cells: cost of a million passes, and the precision" in by_cost
    assert "Prices: 3.6/h (a), 7.2/h (b)." in by_cost
    without = matrix_of(a, machine("b", total(2.0, 0.01)))
    assert "Cells: time of one pass, and" in without
    assert "Ranked by time: no price of b (--price NAME=2.5/h)." in without
    # A row is by cost where each of its machines has a price.
    mixed = matrix_of(a, b, machine("V", total(1.0, suite="deepbench/train")))
    assert "Cells: cost of a million passes, or (with a unit) time of one pass where a machine has no price" in mixed
    assert "**1000 f32**" in mixed
    assert "1.00 s f32" in mixed


def test_a_narrow_terminal_leaves_out_published_machines_and_no_file():
    files = [machine(f"file-{i}", total(9.0 + i)) for i in range(2)]
    published = [Machine(f"Published machine {i}", "imported", [total(1.0 + i)], is_published=True) for i in range(6)]
    table = tables.matrix([*published, *files], rankings([*published, *files], competing(())))
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    table.print(console)
    head, _, notes = console.file.getvalue().partition("Cells:")

    assert all(f.name in head for f in files)
    assert "Not shown at this width: " in notes
    assert not [f for f in files if f.name in notes.partition("Not shown at this width: ")[2]]


def test_an_empty_matrix_says_why():
    machines = machine("a", total(1.0, 0.01), price=1.0), machine("b", total(2.0, precision="bf16"))
    text = matrix_of(*machines, words=["i8"])

    assert "No machine has a time in a precision that competes; --precision can be bf16, f32." in text
    assert "Cells:" not in text
    assert "–: no kernel of the application, or none in a precision that competes." in matrix_of(
        *machines, words=["f32"]
    )


def test_times_from_one_process_decide_only_from_ten_percent_on():
    def certainty(ratio):
        single = total(1.0, 0.001, single_process=4)
        return ranked(machine("a", single), machine("b", total(ratio, 0.001))).certainty

    assert ["one process", "certain"] == [certainty(1.09), certainty(1.2)]


def test_disturbed_and_partial_totals_are_shown_and_never_ranked():
    noisy = machine("noisy", total(0.99, disturbed=2))
    part = machine("part", total(None, measured=3, sum_s=0.01))
    ranking = ranked(part, noisy, machine("only", total(1.0, 0.02)))

    assert ["only", "noisy", "part"] == [p.machine.name for p in ranking.places]
    assert [1, None, None] == [row["rank"] for row in tables.rows_of(ranking)]
    expected = "only only can be ranked, so there is no order. Not ranked: noisy (2 times disturbed) and part (3 of 4"
    assert expected in answer(ranking)
    assert [0.99, None] == [row["time"] for row in tables.rows_of(ranking)[1:]]


def test_each_machine_counts_with_its_best_precision_and_threads_that_compete():
    of_machine = machine(
        "m", total(4.0), total(3.0, threads=2), total(2.0, precision="bf16"), total(1.0, precision="f16f16"),
        total(0.5, precision="i8", disturbed=1),
    )  # fmt: skip

    def best(*words):
        (place,) = ranked(of_machine, words=words).places
        return place.total.precision, place.total.threads

    assert ("bf16", 1) == best()
    assert ("f32", 2) == best("32") == best("f32")
    assert ("bf16", 1) == best("16")  # f16f16 adds in 16 bits, below the minimum
    assert ("f16f16", 1) == best("f16f16") == best("all")
    assert ("f16", 1) == (
        ranked(machine("V", total(1.0, precision="f16")), words=("f16",)).places[0].total.precision, 1,
    )  # fmt: skip
    with pytest.raises(BadInput, match=r"unknown precision 'fp32'.*did you mean f32"):
        competing(["fp32"])


def test_eight_bits_do_not_compete_in_training():
    trained = machine("m", total(2.0, suite="deepbench/train"), total(1.0, precision="i8", suite="deepbench/train"))

    assert "f32" == ranked(trained).places[0].total.precision
    assert "i8" == ranked(trained, words=("i8",)).places[0].total.precision


def test_the_matrix_marks_the_best_with_a_word_and_says_what_is_missing():
    machines = [machine("a", total(1.0, 0.01)), machine("b", total(1.005, 0.01)), machine("c", total(None, measured=3))]
    text = tables.matrix(machines, rankings(machines, competing(()))).markdown()

    assert "| OCR (server) | ≈ a | **1.00 s f32** | 1.00 s f32 | – 3 of 4 |" in text.replace("1.01 s", "1.00 s")
    assert "≈: another machine could be the best, too" in text
    assert "only so many of the kernels have a time" in text


def test_a_sentence_names_few_machines():
    ranking = ranked(*(machine(f"m{i}", total(1.0 + 0.01 * i)) for i in range(9)))
    near = ", ".join(f"m{i} (no interval, near)" for i in (2, 3, 4))

    assert f"Could also be the best: {near} and 4 others." in answer(ranking)
    assert "m0 and m1 have no interval: certainty unknown" in answer(ranking)


@pytest.mark.parametrize("noisy_s", [0.1, 0.97])
def test_an_upper_bound_below_all_others_is_beyond_doubt(noisy_s):
    noisy = machine("noisy", total(noisy_s, disturbed=2))
    ranking = ranked(machine("slow", total(2.0)), noisy, machine("quiet", total(1.0, 0.02)))

    assert ["noisy", "quiet", "slow"] == names(ranking)
    assert "certain" == ranking.certainty
    assert [] == ranking.could_be_best
    assert "the time of noisy is an upper bound, so this is certain, and the ratio the least" in answer(ranking)
    assert "≤" in str(tables.parts([ranking])[1])


def test_two_upper_bounds_have_no_order():
    noisy = [machine(name, total(seconds, disturbed=1)) for name, seconds in (("a", 0.1), ("b", 0.2))]

    assert ["quiet"] == names(ranked(*noisy, machine("quiet", total(1.0, 0.02))))


def test_a_machine_without_any_kernel_is_not_said_to_lack_a_precision():
    machines = [machine("a", total(1.0)), machine("without", total(1.0, suite="deepbench/train"))]
    machines.append(machine("other", total(1.0, precision="f16f16")))
    (ranking,) = [r for r in rankings(machines, competing(["f32"])) if "server" in r.suite]
    text = str(tables.parts([ranking])[1])

    assert "No kernel of the application: without." in text
    assert "No kernel of the application in a precision that competes: other." in text


def test_a_result_file_that_shares_no_application_is_named_with_what_to_measure():
    device = machine("mine", total(1.0, suite="deepbench/device"))
    server = machine("theirs", total(2.0))
    published = replace(machine("V100", total(3.0, suite="deepbench/train")), is_published=True)
    found = rankings([device, server, published], competing(()))

    assert ["mine", "theirs"] == sorted(apart(found))
    assert "mine and theirs have no application in common" in (tables.apart_sentence(found) or "")
    assert [] == apart(rankings([machine("mine", total(1.0)), server], competing(())))
    assert tables.apart_sentence(rankings([server], competing(()))) is None
