"""Published results: all are present, their errors are marked, and ours are matched with them."""

import csv
import io
from collections import Counter
from importlib import resources

import pytest
from rich.console import Console

from deepbench.api.published import published as results_of
from deepbench.core.errors import BadInput
from deepbench.judge.published import best_matches, differences, match, sheet_rate
from deepbench.judge.totals import of_summaries
from deepbench.plan.cases import Choices, expand
from deepbench.plan.suites import read_suite, read_words
from deepbench.reporting import published as report
from deepbench.results import published
from deepbench.results.file import lines_of, read_results
from deepbench.results.summary import summarize
from tests.conftest import ROOT
from tests.help import samples


def every_summary():
    return [s for machine in published.machines() for s in published.summaries(machine)]


def of_sheets():
    """All published times but sums that were not published: the case and the notes of each."""
    for s in every_summary():
        notes = s.record["notes"]
        for row in (notes, *notes.get("also_published", ())) if notes.get("remark") != published.SUM else ():
            yield s.record, row


def test_every_row_of_every_workbook_is_present():
    assert 10729 == sum(map(published.numbers_of, published.machines()))
    assert 18 == sum(len(published.workbooks(machine)) for machine in published.machines())
    assert {
        "gemm": 2579,
        "conv": 5630,
        "recurrent": 2221,
        "sparse_gemm": 96,
        "all_reduce": 203,
    } == Counter(r["op"] for r, row in of_sheets() for _ in range(1 + ("their_total" in row)))


@pytest.mark.parametrize("machine", published.machines())
def test_the_file_of_a_machine_passes_all_checks_of_a_file_from_elsewhere(machine):
    file = read_results(published.path_of(machine))

    assert {"unchecked"} == {r["status"] for r in file.records}
    assert list(lines_of(file)) == list(lines_of(published.load(machine)))


def test_every_problem_is_that_of_its_row_in_the_suite():
    listed = {}
    for record, row in of_sheets():
        op, suite = record["op"], row["suite"]
        if op == "all_reduce":
            continue
        if (op, suite) not in listed:
            path = resources.files("deepbench").joinpath("suites", suite, f"{op}.csv")
            rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
            listed[op, suite] = {r["row"]: r for r in rows}
        wanted = listed[op, suite][str(row["row"])]
        values = {n: str(v) for n, v in record["problem"].items() if n in wanted}
        assert {n: wanted[n] for n in values} == values, (op, suite, row["row"])


def test_the_time_is_the_shortest_of_those_that_were_published_for_the_problem():
    for s in every_summary():
        notes = s.record["notes"]
        times = [row["their_time_s"] for row in (notes, *notes.get("also_published", ()))]
        assert s.time_s == min(times), s.record["case"]


def test_rates_that_contradict_their_times_are_marked():
    """All sparse rates are wrong, and one convolution in six sheets."""
    marked = Counter(r["op"] for r, row in of_sheets() if row.get("their_rate_is_wrong"))
    wrong = Counter(s.record["op"] for s in every_summary() if sheet_rate(s))

    # Three products have another n in their sheet than was run.
    assert {"sparse_gemm": 96, "conv": 36, "gemm": 3} == marked
    assert {"sparse_gemm": 96, "conv": 36, "gemm": 3} == wrong
    (headline,) = results_of("V100").select("gemm m=5124 n=9124 k=2560 a_t=1 b_t=0 f16")
    assert 2.598e-3 == pytest.approx(headline.time_s)
    assert 92.1e12 == pytest.approx(headline.flop_per_s, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("V100", "NVIDIA Tesla V100"),
        ("xeon phi", "Intel Xeon Phi 7250"),
        ("1080ti", "NVIDIA GTX 1080 Ti"),
        ("TitanXp", "NVIDIA TitanXp"),
        ("titan x pascal", "NVIDIA TitanX Pascal"),
        ("T4", "NVIDIA T4"),
        ("MI25", "AMD MI25"),
    ],
)
def test_a_part_of_its_name_identifies_a_machine(text, name):
    assert name == published.find(text)


@pytest.mark.parametrize("text", ["titan", "H100", "", "nvidia"])
def test_a_text_that_matches_no_machine_or_several_is_refused(text):
    with pytest.raises(BadInput, match="deepbench published list"):
        published.find(text)


def test_a_name_with_a_typing_error_is_corrected():
    with pytest.raises(BadInput, match=r"did you mean V100\?"):
        published.find("V101")


def test_equal_work_is_matched():
    text = "gemm m=5124 n=700 k=2048 a_t=0 b_t=0 forward f32 {} threads=2"
    records = [
        samples.measured("mkl", 0.2, text=text.format("mkl")),
        samples.measured("openblas", 0.1, text=text.format("openblas")),
    ]
    eight = samples.measured("mkl", 0.3, text="gemm m=5124 n=700 k=2048 a_t=0 b_t=0 forward i8 mkl threads=2")
    cold = samples.measured("mkl", 0.01, text=text.format("mkl") + " cache=cold")
    summaries = summarize([*records, eight, cold])

    (found,) = match(summaries, "NVIDIA T4")  # int8 in the server suite, nothing of this in training
    assert ("i8", "int8") == (found.ours.record["precision"], found.theirs.record["notes"]["their_precision"])
    assert found.ratio == pytest.approx(0.999e-3 / 0.3, rel=0.01)
    found_texts = differences([found], "NVIDIA T4")
    assert any("zeros" in text for text in found_texts)
    # People read one vocabulary: i8 on both sides is no difference of the precision.
    assert not any(text.startswith("precision:") for text in found_texts)
    assert ["i8"] == [row["precision"] for row in report.matched([found]).rows]


def test_people_read_our_words_for_precisions():
    words = {word for row in report.machines().rows for word in row["precisions"].split(", ")}
    assert {"f32", "f16", "i8"} == words


def test_80_columns_have_room_for_products_and_convolutions():
    texts = [
        f"{e.pattern.op} {e.pattern.problem.text} forward f32 onednn threads=2" for e in read_suite("deepbench/server")
    ]
    known = [text for text in texts if not text.startswith("all_reduce")]
    file = io.StringIO()
    report.among_all(summarize(samples.measured(text=text) for text in known)).print(
        Console(file=file, width=80, force_terminal=True, color_system=None)
    )

    assert {"gemm", "conv"} <= set(file.getvalue().splitlines()[0].split())
    assert "Not shown at this width: " in file.getvalue()


def test_a_layer_in_training_matches_one_in_training():
    text = "recurrent cell={} hidden={} batch=16 timesteps={} forward f32 onednn threads=2{}"
    trains = samples.measured("onednn", 0.2, text=text.format("vanilla", 1760, 50, " mode=training"))
    infers = samples.measured("onednn", 0.1, text=text.format("lstm", 512, 25, ""))
    lstm = samples.measured("onednn", 0.1, text=text.format("lstm", 512, 25, " mode=training"))

    (found,) = match(summarize([trains, infers]), "NVIDIA Tesla V100")
    (other,) = match(summarize([lstm]), "NVIDIA Tesla V100")

    theirs = found.theirs.record
    assert ("forward", "deepbench/train", "vanilla") == (
        theirs["direction"], theirs["notes"]["suite"], theirs["problem"]["cell"],
    )  # fmt: skip
    assert "mode=training" in found.theirs.problem_title
    assert any("overflow" in text for text in differences([found], "NVIDIA Tesla V100"))
    assert not any("overflow" in text for text in differences([other], "NVIDIA Tesla V100"))


def test_an_all_reduce_has_the_bandwidth_of_its_sheet_but_no_rate_of_flop():
    times = [s for of_machine in published.all_reduces().values() for s in of_machine]

    assert 203 == len(times)
    for s in times:
        n, ranks = s.record["problem"]["n"], s.record["problem"]["ranks"]
        assert s.flop_per_s is None
        assert s.bus_bytes_per_s == pytest.approx(4 * n / s.time_s * 2 * (ranks - 1) / ranks)
    assert {16777217} == {s.record["problem"]["n"] for s in times if "16777216" in s.record["notes"].get("remark", "")}


def test_names_of_rates_state_the_unit_of_their_values():
    text = "gemm m=35 n=700 k=2048 a_t=0 b_t=0 forward i8 mkl threads=1"
    found = match(summarize([samples.measured(text=text)]), "Raspberry Pi 3")
    (row,) = report.matched(found).rows

    assert not [name for name in row if "FLOP/s" in name or "GB/s" in name]
    assert row["flop_per_s"] == pytest.approx(2 * 35 * 700 * 2048 / row["ours"])
    noisy = match(summarize([samples.disturbed(text=text)]), "Raspberry Pi 3")
    assert None is report.matched(noisy).rows[0]["flop_per_s"]


def test_a_published_result_counts_once():
    text = "gemm m=1760 n=16 k=1760 a_t=0 b_t=0 forward {} mkl threads=2"
    summaries = summarize(
        [samples.measured(seconds=s, text=text.format(p)) for p, s in (("f16", 2e-3), ("bf16", 1e-3))]
    )
    found = match(summaries, "NVIDIA Tesla V100")

    assert 2 == len(found)
    (best,) = best_matches(found)
    assert "bf16" == best.ours.record["precision"]
    assert any("over 2 %: 1" in text for text in differences(found, "NVIDIA Tesla V100"))


def test_the_gradients_of_a_layer_are_added_if_the_sheet_has_both():
    layers = [s for s in published.summaries("NVIDIA Tesla V100") if s.record["op"] == "recurrent"]
    backward = [s for s in layers if s.record["direction"] == "backward"]
    parts = {(s.record["problem_title"], s.record["precision"], s.record["direction"]): s.time_s for s in layers}

    assert 106 == len(backward)
    for s in backward:
        key = s.record["problem_title"], s.record["precision"]
        assert s.time_s == pytest.approx(sum(parts[*key, d] for d in ("backward_data", "backward_weights")))
    assert not [s for s in published.summaries("AMD MI25") if s.record["direction"] == "backward"]


def test_the_table_of_machines_lists_every_machine():
    names = [row["machine"] for row in report.machines().rows]

    assert 14 == len(names) == len(set(names))


def test_the_results_of_a_machine_are_those_of_an_imported_file():
    results = results_of("Raspberry Pi", op="gemm")

    assert {"gemm"} == {s.record["op"] for s in results.summaries}
    assert len(results.cases) == len(results.summaries)
    assert all(s.imported == "Baidu's DeepBench" and s.library_title == "gemmlowp" for s in results.summaries)
    assert (
        results_of("V100", precision="float16_mixed").file.records == results_of("V100", precision="f16").file.records
    )
    assert "TFLOP/s in the sheet" in results_of("1080", op="sparse_gemm").report(True).text("markdown")


def test_what_a_machine_does_not_have_is_refused_with_what_it_has():
    with pytest.raises(BadInput, match=r"it has all_reduce f32, .* did you mean all_reduce\?"):
        results_of("1080", op="all_reduc")


def test_every_case_of_the_short_list_was_published_and_every_application_has_a_published_total():
    totals = {
        (t.suite, t.application)
        for machine in published.machines()
        for t in of_summaries(published.summaries(machine))
        if t.time_s is not None
    }
    cases = [p.case for p in expand(read_words(["rank"]), Choices(backends=("onednn",)), 2)]
    summaries = summarize(samples.measured("onednn", text=case.text) for case in cases)
    found = {m.ours.record["case"] for machine in published.machines() for m in match(summaries, machine)}
    mine = read_results(ROOT / "results" / "xeon-amx-2vcpu.jsonl.gz")
    found |= {r["case"] for r in mine.records}

    assert 60 < len(cases) == len(summaries)
    assert set() == {case.text for case in cases} - found
    entries: dict[tuple[str, str], set[tuple[int, str | None]]] = {}
    for e in read_suite("rank"):
        place = e.source["row"], e.pattern.direction
        entries.setdefault((e.source["suite"], e.source["application"]), set()).add(place)
    assert set(entries) <= totals
    for (suite, application), listed in entries.items():
        whole = [e for e in read_suite(suite) if e.source["application"] == application]
        assert {(e.source["row"], e.pattern.direction) for e in whole} == listed
    # Also next to the machine of ours that has been published.
    of_ours = {(t.suite, t.application) for t in of_summaries(summarize(mine.records)) if t.time_s is not None}
    assert of_ours & set(entries)


def test_the_list_of_machines_says_what_their_files_have():
    from importlib import resources

    from deepbench.results.published import counting

    kept = resources.files("deepbench").joinpath("results", "published", "overview.json").read_text()
    assert counting.text() == kept
