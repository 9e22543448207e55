"""Notes on cases: slower with more threads, and below the minimum precision; in tables, exports, pages and roofs."""

import io
import json

import pytest
from rich.console import Console

from deepbench.core.precision import MINIMUM, PRECISIONS
from deepbench.judge import limits
from deepbench.judge.compare import compare_files
from deepbench.reporting import cases, compare, export
from deepbench.reporting import limits as roofs
from deepbench.reporting.notes import notes_of
from deepbench.reporting.page import content
from deepbench.reporting.sections import sections
from deepbench.results.file import ResultFile, read_results
from deepbench.results.peaks import Peaks
from deepbench.results.summary import faster_with_fewer_threads, summarize
from tests.conftest import run_command
from tests.help import samples

GEMM = "gemm m=64 n=64 k=64 a_t=0 b_t=0 forward f32 mkl threads={}"
SLOWER = "slower than with 1 thread (17.0×)"


def records(one_s=1e-3, two_s=17e-3, rounds=3, text=GEMM):
    """The same case with one thread and with two."""
    times = {1: one_s, 2: two_s}
    return [
        samples.measured(seconds=s * (1 + i / 1000), round_number=i, text=text.format(n))
        for n, s in times.items()
        for i in range(1, rounds + 1)
    ]


@pytest.mark.parametrize(
    ("suite", "note", "notes"),
    [
        ("llm/gpt2:phase=decode,fit=1GiB", "smaller than in the model, to fit: m 50257 → 25128", ["fitted"]),
        ("llm/gpt2:phase=decode,fit=1GiB", None, []),
        ("llm/gpt2:phase=decode", "a remark", []),
    ],
)
def test_a_case_that_fit_made_smaller_says_so(suite, note, notes):
    source = {"suite": suite, "row": 1, "application": "GPT-2, decode", "label": None, "note": note}
    (s,) = summarize([{**r, "sources": [source]} for r in records() if r["threads"] == 1])

    assert notes == [n.code for n in notes_of(s) if n.code == "fitted"]
    console = Console(file=io.StringIO(), width=100)
    sections([s], limits.Limits()).print(console)
    assert bool(notes) == ("Z  smaller than listed" in console.file.getvalue())


def file_of(tmp_path, lines, name="mine.jsonl"):
    texts = dict.fromkeys(line["case"] for line in lines if "round" in line)
    return read_results(samples.write(tmp_path / name, lines, samples.header(texts)))


def printed(table, width=80):
    text = io.StringIO()
    table.print(Console(file=text, width=width, force_terminal=True, color_system=None, highlight=False))
    return text.getvalue()


def test_every_table_says_that_a_case_is_slower_with_more_threads(tmp_path):
    file = file_of(tmp_path, records())
    summaries = summarize(file.records)
    known = limits.of_file(file, summaries)

    table = cases.library_table(summaries, known)
    of_one, of_two = [row["notes"] for row in table.rows]
    assert (SLOWER, False) == (of_two, "slower" in of_one)
    assert any(note.startswith("slower than with fewer threads: ") for note in table.notes)
    found = sections(summaries, known)
    assert [(1, ""), (2, "T")] == [(row["threads"], row["flags"]) for row in found.rows]
    assert any(line.startswith("T  slower than with fewer threads: ") for line in found.legend)
    for shown in map(printed, (table, found)):
        assert "slower" in shown
        assert max(map(len, shown.splitlines())) <= 80
    one, two = export.rows(summaries)
    assert (None, 1) == (one["threads_of_a_faster_case"], two["threads_of_a_faster_case"])
    assert two["slowdown_with_more_threads"] == pytest.approx(17)
    assert SLOWER == two["notes"]
    assert SLOWER in export.to_markdown(file, summaries).replace("\\", "")


def test_the_page_says_that_cases_are_slower_with_more_threads(tmp_path):
    page = content.of_file(file_of(tmp_path, records()), "mine")

    assert [None, SLOWER] == page["columns"]["notes"]
    assert any("1 case is slower than with fewer threads" in line for line in page["sentences"])


@pytest.mark.parametrize(
    ("one_s", "two_s", "rounds"),
    [(1e-3, 0.6e-3, 3), (1e-3, 1e-3, 3), (1e-3, 1.0005e-3, 3)],  # faster; equal; within the intervals
)
def test_a_case_that_is_not_certainly_slower_has_no_note(one_s, two_s, rounds):
    assert {} == faster_with_fewer_threads(summarize(records(one_s, two_s, rounds)))


def test_other_libraries_with_fewer_threads_do_not_count():
    lines = [
        samples.measured("mkl", 1e-3, text=GEMM.format(1)),
        samples.measured("openblas", 9e-3, text=GEMM.format(2).replace("mkl", "openblas")),
    ]

    assert {} == faster_with_fewer_threads(summarize(lines))


def test_a_comparison_of_threads_says_that_more_of_them_are_slower(tmp_path):
    texts = {"a": 1e-3, "b": 17e-3}
    sides = []
    for n, (side, seconds) in enumerate(texts.items(), 1):
        lines = [
            samples.measured(seconds=seconds * (1 + i / 1000), round_number=i, text=GEMM.format(n)) for i in range(1, 6)
        ]
        sides.append(file_of(tmp_path, lines, f"{side}.jsonl"))

    (case,) = (comparison := compare_files(*sides)).cases

    assert "slower" == case.verdict
    assert any(
        line.startswith("slower with more threads: 1 case is slower with 2 threads than with 1; ")
        for line in compare.sentences(comparison)
    )


# ---- roofs

PEAKS = [samples.peak(2e11, threads=1), samples.peak(1e11, threads=2), samples.peak(3e11, "bf16", threads=2)]


def test_a_roof_is_at_least_what_fewer_threads_reach():
    peaks = Peaks(PEAKS)

    assert (2e11, 1) == (peaks.of("f32", "cpu", 2), peaks.threads_of("f32", "cpu", 2))
    assert (3e11, 2) == (peaks.of("bf16", "cpu", 2), peaks.threads_of("bf16", "cpu", 2))
    assert 2e11 == peaks.of("f32", "cpu", 1)
    assert None is peaks.of("f32", "cpu", 4)  # not measured
    assert None is peaks.of("f32", "cuda", 2)


def test_the_table_of_roofs_says_whose_rate_it_shows():
    table = roofs.compute(PEAKS, [1, 2])

    f32, bf16 = table.rows
    assert (2e11, 2e11, "MKL 1 (with 1 thread)") == (f32["1 thread"], f32["2 threads"], f32["by, 2 threads"])
    assert (None, 3e11, "MKL 1") == (bf16["1 thread"], bf16["2 threads"], bf16["by, 2 threads"])
    assert roofs.OF_FEWER in table.notes
    assert roofs.OF_FEWER not in roofs.compute(PEAKS[:1], [1, 2]).notes


def test_the_table_of_bandwidths_shows_the_higher_one():
    size = roofs.FINE[-1]
    lines = [
        {
            **{"what": "memory", "device": "cpu", "kind": "read", "bytes": size, "bytes_per_s": rate, "threads": n},
            **{"seconds": size / rate, "case": f"memory kind=read n={size // 4} forward f32 loops threads={n}"},
        }
        for n, rate in ((1, 2e10), (2, 1e10))
    ]
    table = roofs.memory(limits.Limits(lines), [1, 2])

    assert 2e10 == table.rows[-1]["2 threads"]
    assert "memory (with 1 thread)" == table.rows[-1]["from, 2 threads"]
    assert roofs.OF_FEWER in table.notes


def test_the_page_says_whose_roof_it_shows(tmp_path):
    page = content.of_file(file_of(tmp_path, [*({"limit": line} for line in PEAKS[:2]), *records()]), "mine")

    assert "Roof in f32 with 2 threads: the rate of 1 thread, because 2 threads reached less." in page["sentences"]
    (of_two,) = [row for row in page["limits"] if row["threads"] == 2]
    assert {"f32": 2e11} == of_two["peaks"]


# ---- precision


@pytest.mark.parametrize(
    ("name", "is_training", "reason"),
    [
        ("f16f16", True, "accumulates 16 bits"),
        ("f16f16", False, "accumulates 16 bits"),
        ("i8", True, "multiplies 8 bits"),
        ("f8e4m3", True, "multiplies 8 bits"),
        ("i8", False, None),
        ("f8e4m3", False, None),
        ("bf16", True, None),
        ("f16", True, None),
        ("tf32", True, None),
        ("f32", True, None),
    ],
)
def test_the_minimum_precision(name, is_training, reason):
    assert reason == PRECISIONS[name].below_minimum(is_training)


def with_precision(name, **source):
    record = samples.measured(text=GEMM.format(1).replace("f32", name))
    record["sources"] = [{"suite": "deepbench/server", "row": 1, "application": "", "label": "", **source}]
    return record


@pytest.mark.parametrize(
    ("precision", "suite", "is_marked"),
    [
        ("f16f16", "deepbench/server", True),
        ("i8", "deepbench/train", True),
        ("i8", "deepbench/server", False),
        ("bf16", "deepbench/train", False),
    ],
)
def test_results_below_the_minimum_precision_are_marked(tmp_path, precision, suite, is_marked):
    file = ResultFile(tmp_path / "a.jsonl", samples.header(), [with_precision(precision, suite=suite)])
    (summary,) = summaries = summarize(file.records)

    assert is_marked == ("below minimum precision" in [n.text for n in notes_of(summary)])
    found = sections(summaries, limits.of_file(file, summaries))
    assert is_marked == any(MINIMUM in line for line in found.legend)
    assert is_marked == ("M" in found.rows[0]["flags"])
    page = content.of_file(file, "mine")
    assert is_marked == any(MINIMUM in line for line in page["sentences"])
    assert is_marked == (page["columns"]["notes"] == ["below minimum precision"])
    assert is_marked == bool(export.rows(summaries)[0]["below_minimum_precision"])


def test_a_backward_pass_belongs_to_training():
    text = "recurrent cell=gru hidden=8 batch=2 timesteps=3 backward bf16 mkl threads=1"
    record = samples.measured(text=text)
    record["precision"] = "f8e4m3"  # no library has it; the rule must hold where one does

    assert "below minimum precision" in [n.text for n in notes_of(summarize([record])[0])]


def test_sums_in_16_bits_are_marked():
    record = samples.measured(text="recurrent cell=gru hidden=8 batch=2 timesteps=3 backward bf16 torch threads=1")
    record["notes"]["sums"] = "16 bits over steps"

    (note,) = [n for n in notes_of(summarize([record])[0]) if n.code == "sums_of_16_bits"]
    assert "32 bits" in note.footnote


def test_info_prints_the_rule(tmp_path):
    matrix = " ".join(run_command(tmp_path, "info", "--matrix").stdout.split())
    assert MINIMUM in matrix
    assert "f16f16 (accumulates 16 bits)" in matrix
    content = json.loads(run_command(tmp_path, "info", "--json").stdout)
    precisions = {p["name"]: p for p in content["precisions"]}
    assert "accumulates 16 bits" == precisions["f16f16"]["below_minimum_for_inference"]
    assert None is precisions["i8"]["below_minimum_for_inference"]
    assert "multiplies 8 bits" == precisions["i8"]["below_minimum_for_training"]


def test_programs_get_no_rate_of_a_disturbed_time():
    (noisy,), (quiet,) = (
        export.rows(summarize([make("mkl", 1e-3, text=GEMM.format(1))]))
        for make in (samples.disturbed, samples.measured)
    )

    assert {None} == {noisy[name] for name in export.RATES}
    assert noisy["disturbed"]
    assert noisy["time_s"]
    assert quiet["flop_per_s"]
    assert quiet["bytes_per_s"]
