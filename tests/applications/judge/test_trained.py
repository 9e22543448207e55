"""What the events of runs say together: nothing from runs that failed, that contradict themselves, or lack lines."""

import json

import pytest

from deepbench.applications.judge.trained import runs_of, trained
from deepbench.applications.reporting import training
from deepbench.results.file import read_results
from tests.help.trained import GOOD, START, seeds, write


def one(path, runs):
    (found,) = trained(runs_of(write(path / "a.jsonl", runs)))
    return found


def changed(path, change):
    """A file with one good run whose events were changed."""
    write(path / "a.jsonl", [({}, {})])
    lines = [json.loads(line) for line in (path / "a.jsonl").read_text().splitlines()]
    events = change(lines[1:])
    (path / "b.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [lines[0], *events]))
    return runs_of(read_results(path / "b.jsonl"))[0]


def test_a_quality_of_survivors_is_withheld(tmp_path):
    failed = ({"seed": 9}, {"qualities": (0.1,), "end": "diverged", "reason": "nan"})
    found = one(tmp_path, [*seeds(3), failed])

    assert (None, None, []) == (found.quality, found.is_certain, found.curve)
    assert found.olympic_s is None
    (row,) = training.table([found]).rows
    assert (None, None) == (row["quality"], row["mean reaches target"])


def test_runs_that_are_not_over_yet_do_not_hide_the_others(tmp_path):
    found = one(tmp_path, [*seeds(3), ({"seed": 9}, {"qualities": (0.1,), "end": None})])

    assert found.quality.runs == 3
    assert found.train_s is None
    assert "not every run ended as ok (interrupted)" == training.withheld(found)


def test_a_quality_that_is_no_number_is_missing(tmp_path):
    found = one(tmp_path, [*seeds(1), ({"seed": 9}, {"qualities": [*GOOD[:3], None]})])

    assert (3, None) == (len(found.curve), found.quality)
    assert found.runs[1].quality is None
    assert "nan" not in str(training.table([found]))


def test_a_line_that_is_missing_changes_no_rate(tmp_path):
    run = changed(tmp_path, lambda events: [events[0], *events[2:]])

    assert run.samples_per_second == pytest.approx(100)
    short = changed(tmp_path, lambda events: [*events[:4], events[5]])
    assert (None, "ok") == (short.quality, short.status)


def point(number, **values):
    def change(events):
        events[number]["training"]["point"].update(values)
        return events

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (point(2, samples=1000), "an evaluation after 1,000 samples follows one after 1,000"),
        (point(2, first_step_s=99.0), "takes longer than all of them"),
        (lambda events: [*events[:1], events[-1]], "without an evaluation"),
        (lambda events: events[1:], "before the run began"),
        (
            lambda events: [{"training": {**events[0]["training"], "at": "2026-99-99T99:99:99+00:00"}}, *events[1:]],
            "no time",
        ),
    ],
)
def test_lines_that_contradict_each_other_make_a_run_inconsistent(tmp_path, change, words):
    run = changed(tmp_path, change)

    assert ("inconsistent", True, []) == (run.status, words in run.reason, run.points), run.reason


def test_only_the_first_step_of_a_process_may_compile(tmp_path):
    def interrupted(events):
        again = {"training": {**events[0]["training"], "start": {**START, "samples": 2000}}}
        for event in events[1:5]:
            event["training"]["point"].update(first_step_s=5.5, train_s=10.0, steps=10)
        return [*events[:3], again, *events[3:]]

    run = changed(tmp_path, interrupted)
    assert run.compile_s == pytest.approx(2 * (5.5 - 4.5 / 9))


def test_compiling_is_found_where_an_interval_has_one_step(tmp_path):
    def single(events):
        for i, event in enumerate(events[1:5]):
            seconds = 9.0 if i == 0 else 1.0
            event["training"]["point"].update(first_step_s=seconds, train_s=seconds, steps=1)
        return events

    assert changed(tmp_path, single).compile_s == pytest.approx(8.0)


def test_other_programs_are_named(tmp_path):
    def busy(events):
        for event in events[1:5]:
            event["training"]["point"]["other_cpus"] = 1.5
        return events

    run = changed(tmp_path, busy)
    assert run.other_cpus == pytest.approx(1.5)
    assert any("took CPUs from a run in 100 % of its training" in note for note in training.table(trained([run])).notes)


def test_a_disturbed_part_of_a_run_is_named(tmp_path):
    def busy(events):
        for event, cpus in zip(events[1:5], (0.0, 0.0, 1.0, 0.0), strict=True):
            event["training"]["point"]["other_cpus"] = cpus
        return events

    run = changed(tmp_path, busy)
    assert (0.25, 0.25) == (run.other_cpus, run.disturbed_share)
    assert any("took CPUs from a run in 25 % of its training" in note for note in training.table(trained([run])).notes)


def test_rates_beyond_reason_have_no_interval(tmp_path):
    runs = [({"seed": s}, {"chunk_s": chunk}) for s, chunk in enumerate((1e-9, 1e6))]

    assert one(tmp_path, runs).samples_per_second.low is None


def test_cpus_that_a_run_does_not_need_are_no_disturbance(tmp_path):
    def busy(cpus):
        def change(events):
            for event in events[1:5]:
                event["training"]["point"].update(other_cpus=1.5, cpus=cpus)
            return events

        return change

    assert [1.5, 0.5, 0.0] == [changed(tmp_path, busy(cpus)).other_cpus for cpus in (2, 3, 64)]


def test_a_target_that_the_first_evaluation_reaches_gives_a_bound(tmp_path):
    found = one(tmp_path, [*seeds(2), ({"seed": 9}, {"qualities": (0.95, 0.96, 0.97, 0.98)})])

    assert found.is_bound
    assert (None, None) == (found.samples_to_target.low, found.train_s.low)
    assert any("upper bounds without an interval" in note for note in training.table([found]).notes)
    late = changed(tmp_path, point(2, quality=None))
    assert (3000.0, True) == (late.samples_to_target, late.is_bound)
    assert not one(tmp_path, seeds(2)).is_bound


def test_the_score_of_2018_ends_with_the_evaluation_that_reached_the_target(tmp_path):
    found = one(tmp_path, [({"seed": s}, {"qualities": (0.5, 0.8, 0.95, 0.96)}) for s in range(3)])

    assert 2000 < found.runs[0].samples_to_target < 3000
    assert found.olympic_s == pytest.approx(3 * (10.0 + 1.0))
    assert found.runs[0].evaluate_s_to_target == pytest.approx(3.0)


def test_what_every_process_repeats_counts_once(tmp_path):
    def interrupted(events):
        again = {"training": {**events[0]["training"], "start": {**START, "samples": 2000}}}
        for event in events[1:5]:
            event["training"]["point"].update(first_step_s=5.5, checkpoint_s=0.25)
        return [*events[:3], again, *events[3:]]

    (found,) = trained([changed(tmp_path, interrupted)])

    assert found.parts_s["compile"] == pytest.approx(5.5 - 4.5 / 9)
    assert (1.0, 2.0) == (found.parts_s["load"], found.parts_s["initialise"])
    assert found.parts_s["checkpoint"] == pytest.approx(1.0)
