"""The main table: a section per operation, readable from 60 to 200 columns."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from deepbench.api.results import load
from deepbench.core.case import parse_case
from deepbench.judge import limits
from deepbench.judge.limits import Limits
from deepbench.reporting import export
from deepbench.reporting import limits as limit_tables
from deepbench.reporting.cases import library_table
from deepbench.reporting.page import content
from deepbench.reporting.plot import roofline
from deepbench.reporting.sections import NO_LIMIT, sections
from deepbench.results.file import ResultFile
from deepbench.results.record import make_record
from deepbench.results.summary import summarize
from tests.conftest import ROOT
from tests.help import samples

STORED = ROOT / "tests" / "data" / "quick-epyc-2cores.jsonl"
PUBLISHED = ROOT / "results" / "xeon-amx-2vcpu.jsonl.gz"
GEMM = "gemm m=1760 n=128 k=1760 a_t=0 b_t=0 forward f32 {} threads={}"


def printed(found, width):
    text = io.StringIO()
    found.print(Console(file=text, width=width, force_terminal=True, color_system=None, highlight=False))
    return text.getvalue()


def of(*records):
    return sections(summarize(list(records)), Limits())


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_every_row_shows_library_time_interval_and_rate(width):
    results = load(STORED)
    found = sections(results.summaries, results.limits)
    text = printed(found, width)

    for row in found.rows:
        if row.get("time") is not None:
            wanted = [str(row["best"]), f"{row['time']:.2g}"[:1], str(row["±"])]
            assert any(all(word in line for word in wanted) for line in text.splitlines()), row
    assert max(map(len, text.splitlines())) <= width
    for table in found.tables:
        assert table.columns[0].heading in ("gemm", "conv", "recurrent", "sparse_gemm", "all_reduce")


def test_a_narrow_terminal_leaves_columns_out_in_order_and_says_so():
    results = load(STORED)
    found = sections(results.summaries, results.limits)

    assert "Not shown" not in printed(found, 200)
    shown = {width: printed(found, width).splitlines() for width in (200, 108, 80, 60)}
    assert ["limited by", "next best"] == [name for name in ("limited by", "next best") if f" {name}" in shown[200][0]]
    assert "Not shown at this width: limited by. A wider terminal or --csv has them." in shown[108]
    assert any(line.startswith("Not shown at this width: limited by, next best") for line in shown[80])
    assert "% of" not in shown[60][0]


ONE_BIT = "weight_only_gemm m=8 n=1 k=64 group=16 bits=1 forward f32 {backend} threads=1"


def quantized(error, backend="loops", **options):
    record = samples.measured(backend, text=ONE_BIT, **options)
    if error != "none":
        record["check"]["after"]["quantization_error"] = error
    return record


def test_the_error_of_the_answer_is_next_to_the_time():
    records = [quantized(0.611), quantized(0.0064, "openvino", seconds=2e-3)]
    found, summaries = of(*records), summarize(records)

    assert 0.611 == found.rows[0]["quantization_error"]
    line = next(line for line in printed(found, 120).splitlines() if "8 × 1 × 64" in line)
    assert re.search(r"1\.00 ms +±.* +61 % ", line)
    assert "answer error: how far the result is from that of the weights before quantization" in printed(found, 120)
    assert ["61 %", "0.64 %"] == re.findall(r"[\d.]+ %(?= +\d)", printed(library_table(summaries, Limits()), 160))[:2]
    assert [0.611, 0.0064] == [row["quantization_error"] for row in export.rows(summaries)]


@pytest.mark.parametrize("error", ["none", None])
def test_an_unknown_error_of_the_answer_is_no_number(error):
    records = [quantized(error)]
    found, summaries = of(*records), summarize(records)

    assert found.rows[0].get("quantization_error") is None
    assert "answer error" not in printed(found, 200)
    assert "answer error" not in printed(library_table(summaries, Limits()), 200)
    assert export.rows(summaries)[0]["quantization_error"] is None


def test_a_wrong_result_has_no_error_of_the_answer():
    (summary,) = summarize([quantized(0.5, status="wrong")])

    assert summary.quantization_error is None


def test_the_largest_error_of_all_rounds_counts():
    (summary,) = summarize([quantized(0.5), quantized(0.6, round_number=2), quantized("none", round_number=3)])

    assert 0.6 == summary.quantization_error


SQUARE = "gemm m=1024 n=1024 k=1024 forward f32 mkl threads=1"


@pytest.mark.parametrize(
    ("peak", "why"),
    [
        ({**samples.peak(0.5e12), "disturbed": True}, "other programs disturbed the probes of the limits"),
        (samples.peak(0.5e12), "the probes of the limits were slower than the problems"),
    ],
)
def test_a_limit_that_was_measured_too_low_gives_no_share_in_any_output(peak, why):
    """A product at twice the rate that the probe of the peak reached, as next to other programs."""
    file = ResultFile(
        Path("x.jsonl"), samples.header([SQUARE]), [samples.measured(seconds=2.15e-3, text=SQUARE)], [peak]
    )
    summaries = summarize(file.records)
    known = limits.of_file(file, summaries)
    found = sections(summaries, known)
    (row,) = found.rows
    (exported,) = export.rows(summaries, known)
    page = content.of_file(file, "x")

    assert ("unknown", None) == (row["limited_by"], row["share_of_limit"])
    assert NO_LIMIT in found.legend
    assert ("unknown", None) == (exported["limited_by"], exported["share_of_limit"])
    assert "compute unknown" in exported["limit_evidence"]
    assert [None] == page["columns"]["share_of_limit"]
    assert [] == page["first"]["furthest"]
    wanted = f"What limits the fastest library, by number of problems: unknown 1, because {why}; measure again"
    full = str(library_table(summaries, known))
    everything = [*found.summary, *page["sentences"]]
    assert 2 == sum(text.startswith(wanted) for text in everything)
    for text in (*everything, printed(found, 200), full, json.dumps(page)):
        assert not re.search(r"compute \d|\d % of the|20\d %", text)
    is_disturbed = bool(peak.get("disturbed"))
    sentence = "Measured while other programs ran, so too low: the limits of f32 with 1 thread."
    assert 2 * is_disturbed == everything.count(sentence)
    assert is_disturbed == (sentence in roofline(summaries, known, 80))
    assert [["f32"] * is_disturbed] == [place["disturbed"] for place in page["limits"]]
    notes = limit_tables.compute(file.limits, [1]).notes
    assert is_disturbed == ("Other programs disturbed the probe, so this is too low: f32 with 1 thread." in notes)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_problem_with_several_types_is_printed_once_where_it_would_wrap(width):
    results = load(PUBLISHED)
    found = sections([s for s in results.summaries if s.record["op"] == "conv"], results.limits)
    lines = printed(found, width).splitlines()
    (table,) = found.tables
    problems = dict.fromkeys(str(row["conv"]) for row in table.rows)
    start = [line.rstrip() for line in lines].index(next(iter(problems)))
    shown = lines[start : start + len(problems) + len(table.rows)]

    assert len(table.rows) > 3 * len(problems)
    assert [*problems] == [line.rstrip() for line in shown if not line.startswith("  ")]
    types = [line.split()[0] for line in shown if line.startswith("  ")]
    assert sorted(str(row["type"]) for row in table.rows) == sorted(types)
    assert max(map(len, lines)) <= width


def test_every_row_has_its_problem_on_a_wide_terminal_and_where_none_is():
    results = load(PUBLISHED)
    found = sections([s for s in results.summaries if s.record["op"] == "conv"], results.limits)
    count = sum(row["conv"] == found.rows[0]["conv"] for row in found.rows)

    assert count > 1
    assert count == printed(found, 150).count(f"{found.rows[0]['conv']}  ")
    assert count == str(found).count(f"{found.rows[0]['conv']}  ")


def test_numbers_of_threads_are_shown_where_they_differ():
    one, two = (samples.measured("mkl", t, text=GEMM.format("mkl", n)) for n, t in ((1, 2e-3), (2, 1e-3)))

    assert [1, 2] == [row["threads"] for row in of(one, two).rows]
    assert "threads" not in of(one).rows[0]


@pytest.mark.parametrize(
    ("text", "seconds", "heading", "rate"),
    [
        (GEMM.format("mkl", 1), 1e-2, "GFLOP/s", 79.3),
        (GEMM.format("mkl", 1), 1e-5, "TFLOP/s", 79.3),
        ("memory kind=triad n=1000000 forward f32 loops threads=1", 1e-3, "GB/s", 12.0),
        ("sparse_gemm m=512 n=1 k=512 sparsity=90 forward f32 mkl threads=1", 1e-5, "GB/s", None),
        ("layer_norm rows=512 columns=1024 forward bf16 onednn threads=1", 1e-4, "GB/s", 21.05),
    ],
)
def test_the_unit_of_the_rate_suits_the_operation(text, seconds, heading, rate):
    found = of(samples.measured(text.split()[-2], seconds, text=text))

    (row,) = found.rows
    assert heading in [column.heading for column in found.tables[0].columns]
    if rate is not None:
        assert pytest.approx(rate, rel=1e-3) == row[heading]


def test_failed_libraries_have_a_flag_and_their_reason_below():
    crashed = make_record(parse_case(GEMM.format("onednn", 1)), 1, "crashed", "signal 11")
    found = of(samples.measured("mkl", 1e-3, text=GEMM.format("mkl", 1)), crashed)

    assert ("MKL 1.0", "X") == (found.rows[0]["best"], found.rows[0]["flags"])
    assert ["oneDNN crashed: signal 11"] == found.reasons
    assert "X  a library gave no result: the reason is below." in found.legend
    assert ("crashed", "oneDNN crashed") == tuple(of(crashed).rows[0][name] for name in ("best", "next best"))


def test_an_uncertain_order_is_marked():
    records = [samples.measured(name, t, text=GEMM.format(name, 1)) for name, t in (("mkl", 1e-3), ("onednn", 1.02e-3))]
    found = of(*records)

    assert "≈ oneDNN +2 %" == found.rows[0]["next best"]
    assert any(line.startswith("≈ ") for line in found.legend)
    assert "undecided 1" in " ".join(found.summary)


def test_the_summary_comes_last_and_is_short():
    results = load(STORED)
    found = sections(results.summaries, results.limits)

    assert len(found.summary) <= 8
    assert printed(found, 200).rstrip().endswith(found.summary[-1])
    assert any("cases were measured and checked" in sentence for sentence in found.summary)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_summary_has_at_most_eight_lines(width):
    results = load(PUBLISHED)
    found = sections(results.summaries, results.limits)
    summary = printed(found, width).rstrip().rpartition("\n\n")[2].splitlines()

    assert len(summary) <= 8
    assert summary[0].startswith("Highest rate of matrix products: ")
    if width >= 80:
        text = " ".join(" ".join(summary).split())
        for words in ("Fastest library, by number of problems: ", "38 unsupported. Most frequent reason (16 cases): "):
            assert words in text


def test_the_legend_explains_only_what_is_shown():
    records = [samples.measured(name, t, text=GEMM.format(name, 1)) for name, t in (("mkl", 1e-3), ("onednn", 1.02e-3))]
    found = of(*records)

    assert ("≈  the difference" in printed(found, 100), "≈ MKL" in printed(found, 60)) == (True, True)
    assert "Not shown at this width: next best." in printed(found, 60)


def test_the_time_stays_where_all_times_are_disturbed():
    record = samples.disturbed("mkl", 1e-3, text=GEMM.format("mkl", 1))
    lines = printed(of(record), 80).splitlines()

    assert "time" in lines[0].split()
    assert lines[1].split()[-4:] == ["≤", "1.0", "ms", "D"]


def test_the_note_on_disturbed_times_is_true_of_rows_whose_order_is_decided():
    quiet, slow = GEMM.format("mkl", 1), GEMM.format("openblas", 1)
    decided = [*of(samples.measured("mkl", 1e-3, text=quiet), samples.disturbed("openblas", 2e-3, text=slow)).legend]
    (note,) = [line for line in decided if line.startswith("D ")]

    assert "Only where a library is bold is it the fastest for certain." in note
    assert "order of the libraries is open" not in note


def test_a_notebook_shows_the_sections_and_what_is_below():
    html = of(samples.measured("mkl", 1e-3, text=GEMM.format("mkl", 1)))._repr_html_()

    assert "<table>" in html
    assert "1 of 1 case was measured" in html


def test_nothing_to_show_is_no_error():
    assert [] == of().rows
    assert "0 of 0 cases" in printed(of(), 80)
