"""The table of models that answer queries."""

import io

import pytest
from rich.console import Console

from deepbench.applications.judge.serving import Served
from deepbench.applications.reporting import serving

SETUP = {"application": "recommendation", "rung": "mini", "framework": "torch", "metric": "hit rate at 10"}
START = {"tests": 943, "metric": "hit rate at 10", "is_share": True, "grade": 0.58}
ANSWERS = {"answers": 1000, "equal": 990, "grade": 0.581, "plain_grade": 0.58}


def line(scenario, status="ok", reason=None, **values):
    about = {"run": 0, "device": "cpu", "precision": "f32", "threads": 1, "batch": 8, "start": START}
    return Served(
        SETUP, {**about, "scenario": scenario, "status": status, "reason": reason, "answers": ANSWERS, **values}
    )


def queries(count, seconds=0.002):
    return {"samples": 1, "latency_s": [seconds * (1 + i / count) for i in range(count)], "seconds": count * seconds}


SEARCH = {
    "bound_s": 0.015,
    "is_chosen": False,
    "probes": [
        {"rate": 800.0, "queries": 50, "late": 20, "is_kept": False},
        {"rate": 400.0, "queries": 900, "late": 1, "is_kept": True},
        {"rate": 440.0, "queries": 100, "late": 20, "is_kept": False},
    ],
}
BATCHES = [{"batch": b, "latency_s": [s] * 3} for b, s in ((1, 0.001), (2, 0.0012), (4, 0.0018), (8, 0.0035))]

ALL = [
    line("batches", batches=BATCHES),
    line("single", queries=queries(100), cpus=2, other_cpus=1.6),
    line("multi", queries=queries(100)),
    line("offline", passes_s=[0.5, 0.52, 0.51]),
    line("server", queries=queries(900), search=SEARCH),
]


def printed(found, width):
    text = io.StringIO()
    serving.table(found).print(Console(file=text, width=width, force_terminal=True, color_system=None))
    return text.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits(width):
    assert [] == [text for text in printed(ALL, width).splitlines() if len(text) > width]


def test_numbers_and_why_there_are_none():
    rows = {row["scenario"]: row for row in serving.table(ALL).rows}
    text = printed(ALL, 400)

    assert ALL[1].line["queries"]["latency_s"][90] < rows["single"]["latency_s"] < 0.004
    assert None is rows["multi"]["latency_s"]
    assert (
        "multi: no number: 100 queries are too few to bound the 99th percentile; it takes 459: use --seconds 2" in text
    )
    assert 943 / 0.51 == pytest.approx(rows["offline"]["samples_per_s"], rel=0.01)
    assert (400.0, 440.0) == (rows["server"]["samples_per_s"], rows["server"]["rate_high"])
    assert "400 to 440" in text
    assert "the latency bound is 15.0 ms, 10 times" in text
    assert "58.1 %" in text
    assert "single: other programs used 1.6 of 2 CPUs" in text
    assert 1 == text.count("other programs")


def test_the_rate_of_a_server_is_the_one_that_was_confirmed():
    """A short probe kept 58 queries per second by luck; the longer ones missed 60, and then kept 57."""
    kept = {50.0: True, 70.0: False, 58.0: True, 60.0: False, 57.0: True}
    probes = [{"rate": rate, "queries": 900, "late": 0, "is_kept": ok} for rate, ok in kept.items()]
    found = line("server", queries=queries(900), search={**SEARCH, "probes": probes})

    assert 57.0 == found.kept_rate


def test_numbers_of_wrong_answers_are_withheld():
    wrong = line("single", "wrong", "the timed answers have the grade 0.3", queries=queries(100))
    (row,) = serving.table([wrong]).rows

    assert {None} == {row[name] for name in ("latency_s", "samples_per_s", "grade", "equal")}
    assert "recommendation, single: wrong: the timed answers have the grade 0.3." in printed([wrong], 400)
    assert [] == serving.batch_lines([line("batches", "wrong", "no", batches=BATCHES)])


def test_batches_are_bars_of_their_rate():
    lines = serving.batch_lines(ALL)
    bars = [text.count("█") for text in lines if "█" in text]

    assert sorted(bars) == bars
    assert 20 == bars[-1] == serving.BAR_WIDTH
    assert "Batches of 4 reach 90 % of the highest rate" in lines[-1]


def test_what_loadgen_says_is_below():
    found = line("single", queries=queries(100), loadgen={"* Early stopping 90.0th percentile estimate": "3800000"})

    assert "LoadGen says 3.80 ms, nothing" in printed([found], 400)
    for value in ("", "nan", "1e999", "seven"):
        found = line("single", loadgen={"Result is": "INVALID", "* Early stopping 90.0th percentile estimate": value})
        assert "LoadGen says INVALID, without a number" in printed([found], 400)
