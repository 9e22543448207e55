"""Tables, sentences and the data of the page about each case over time."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deepbench.judge.history import CaseHistory, CaseIdentity, ChangePoint, History, MachineHistory, TimedRun, TimeOfRun
from deepbench.judge.reasons import Reason
from deepbench.reporting import history as tables
from deepbench.reporting.page import history as pages

START = datetime(2026, 1, 1, tzinfo=UTC)


def runs(count):
    return [TimedRun(Path(f"{i}.jsonl"), None, START + timedelta(days=i)) for i in range(count)]


def case(m, seconds, of_runs, changes=(), threads=2, **identity):
    text = f"gemm m={m} forward f32 mkl threads={threads}"
    named = CaseIdentity(text, identity.get("card"), identity.get("imported"))
    times = [TimeOfRun(run, s, None, None, False) for run, s in zip(of_runs, seconds, strict=True)]
    return CaseHistory(named, "gemm", "forward", "f32", f"{m} × 1", "MKL", "MKL", threads, times, 0, list(changes))


def change(of_runs, at, ratio, *reasons):
    return ChangePoint(of_runs[at - 1], of_runs[at], 1e-3, ratio * 1e-3, 1e-5, reasons)


def machine(*cases, of_runs=(), host="h1"):
    return MachineHistory(host, "A CPU, 2 CPUs", list(of_runs), list(cases))


def test_labels_differ():
    few = runs(1)
    cases = [
        case(1, [1.0], few),
        case(2, [1.0], few),
        case(2, [1.0], few, threads=1),
        case(3, [1.0], few, card="GPU A"),
        case(3, [1.0], few, card="GPU B"),
        case(4, [1.0], few, imported="pyperf"),
    ]
    found = tables.labels(machine(*cases))

    assert len(set(found)) == len(found)
    assert "gemm 1 × 1 f32, MKL" == found[0]
    assert "gemm 2 × 1 f32, MKL, 1 thread" == found[2]
    assert found[3].endswith("GPU A")
    assert "gemm 4 × 1 f32, MKL (times of pyperf)" == found[5]


@pytest.mark.parametrize(
    ("seconds", "picture"),
    [
        ([1.0], None),
        ([1.0, 2.0], "▁█"),
        ([1.0] * 20, "▁▁▁▁▁▁▁▁"),
        ([1.0, 1.001] * 10, "▁▁▁▁▁▁▁▁"),
        ([1.0] * 10 + [1.5] * 10, None),
    ],
)
def test_the_small_picture(seconds, picture):
    found = tables.trend(case(1, seconds, runs(len(seconds))))
    if len(seconds) == 20 and picture is None:
        assert "▁" == found[0]
        assert "█" == found[-1]
        assert 8 == len(found)
    else:
        assert picture == found


def test_changes_at_one_point_with_the_same_reasons_are_one_sentence():
    days, version = runs(30), Reason("version", "3.1", "3.2", "oneDNN")
    cases = [
        case(1, [1.0] * 30, days, [change(days, 18, 1.102, version)]),
        case(2, [1.0] * 30, days, [change(days, 18, 1.2, version)]),
        case(3, [1.0] * 30, days, [change(days, 18, 0.9, version)]),
        case(4, [1.0] * 30, days, [change(days, 25, 1.5)]),
        case(5, [1.0] * 30, days),
    ]
    assert [
        "From 2026-01-26 00:00: gemm 4 × 1 f32, MKL is 1.50× slower; nothing recorded differs.",
        "From 2026-01-19 00:00: 2 of 5 cases are slower, most 20.0 % (gemm 2 × 1 f32, MKL); gemm 3 × 1 f32, MKL is "
        "11.1 % faster; with it: oneDNN 3.1 → 3.2.",
    ] == tables.change_sentences(machine(*cases, of_runs=days))


def test_the_answer_counts_cases_by_where_they_end():
    days = runs(40)
    cases = [
        case(1, [1.0] * 40, days, [change(days, 10, 1.1)]),
        case(2, [1.0] * 40, days, [change(days, 10, 0.9)]),
        case(3, [1.0] * 40, days, [change(days, 10, 1.1), ChangePoint(days[19], days[20], 1.1e-3, 1e-3, 1e-5)]),
        case(4, [1.0] * 40, days),
    ]
    found = History([machine(*cases, of_runs=days)], 0.02)

    assert [
        "Slower than at first: 1 of 4 cases. Faster: 1.",
        "Changed, and back within 2.0 %: 1.",
        "Without a change point: 1. A change below 2.0 % does not count.",
    ] == tables.answer(found)
    assert [1, 2] == [int(c.problem[0]) for c in found.machines[0].changed[:2]]


def test_of_many_machines_those_with_changes_are_listed():
    days = runs(10)
    quiet = [machine(case(1, [1.0] * 10, days), of_runs=days, host=f"n{i}") for i in range(40)]
    loud = machine(case(1, [1.0] * 10, days, [change(days, 5, 1.1)]), of_runs=days, host="loud")
    shown = tables.parts(History([*quiet, loud], 0.02))

    assert ["loud: A CPU, 2 CPUs: 10 files, 2026-01-01 to 2026-01-10"] == shown[0]
    assert ["40 machines more: --full lists them, and --host NAME lists one."] in shown
    assert sum(part == shown[0] or "n1:" in str(part) for part in shown) == 1


def test_a_page_of_many_cases_has_charts_of_those_that_changed(monkeypatch):
    monkeypatch.setattr(pages, "MOST_CHARTS", 5)
    days = runs(4)
    cases = [case(i, [1.0] * 4, days) for i in range(10_000)]
    for at, ratio in ((9_000, 1.1), (77, 1.3), (500, 0.9)):
        cases[at].changes = [change(days, 2, ratio)]
    data = pages.content(History([machine(*cases, of_runs=days)], 0.02))

    assert 10_000 == len(data["rows"])
    assert 5 == len(data["charts"])
    assert ["77 × 1", "9000 × 1", "500 × 1"] == [row["title"].split(" f32")[0][5:] for row in data["rows"][:3]]
    assert [0, 1, 2, 3, 4, None] == [row["chart"] for row in data["rows"][:6]]


def test_a_page_has_a_limit_of_points(monkeypatch):
    monkeypatch.setattr(pages, "MOST_POINTS", 10)
    days = runs(4)
    data = pages.content(History([machine(*(case(i, [1.0] * 4, days) for i in range(5)), of_runs=days)], 0.02))

    assert (5, 2) == (len(data["rows"]), len(data["charts"]))


def recorded(*texts, changes=()):
    """A case with a run per text, which is what the machine recorded as its kernel."""
    of_runs = [
        TimedRun(Path(f"{i}.jsonl"), None, START + timedelta(days=i), (("kernel", text),))
        for i, text in enumerate(texts)
    ]
    return case(1, [1.0] * len(texts), of_runs, [change(of_runs, at, 1.1, reason) for at, reason in changes]), of_runs


def test_a_sentence_says_what_marks_stand_for_and_repeats_no_change_point():
    reason = Reason("kernel", "6.1", "6.2")
    assert tables.recorded_sentence(recorded("6.1", "6.1")[0]) is None
    assert "◆ The machine or the library changed (2026-01-02: kernel: 6.1 → 6.2)." == (
        tables.recorded_sentence(recorded("6.1", "6.2")[0])
    )
    assert "◆ The machine or the library changed." == (
        tables.recorded_sentence(recorded("6.1", "6.2", changes=[(1, reason)])[0])
    )
    many = tables.recorded_sentence(recorded(*map(str, range(8)))[0])
    assert "(3 earlier; 2026-01-05: kernel: 3 → 4; " in many
    assert many.endswith("2026-01-08: kernel: 6 → 7).")


def test_a_chart_has_marks_and_versions(monkeypatch):
    monkeypatch.setattr(pages, "MOST_MARKS", 2)
    found, of_runs = recorded("1", "2", "2", "3", "4")
    versions = ["3.1", "3.1", "3.2", None, "3.2"]
    found.times = [
        TimeOfRun(run, 1.0, None, None, False, () if version is None else (("version", version),))
        for run, version in zip(of_runs, versions, strict=True)
    ]
    (chart,) = pages.content(History([machine(found, of_runs=of_runs)], 0.02))["charts"]

    assert [[3, "kernel: 2 → 3"], [4, "kernel: 3 → 4"]] == chart["marks"]
    assert [(0, "3.1"), (2, "3.2"), (3, None), (4, "3.2")] == chart["versions"]
    assert "2026-01-03: MKL 3.1 → 3.2" in chart["recorded"]


def test_a_machine_in_a_few_words():
    days = runs(30)
    changed, steady = case(1, [1.0] * 30, days, [change(days, 18, 1.1)]), case(2, [1.0] * 30, days)
    assert "2 cases over 30 days, 1 changed" == tables.summary(machine(changed, steady, of_runs=days), True)
    assert "1 case over 1 day; change points were not searched" == (
        tables.summary(machine(steady, of_runs=days[:1]), False)
    )
