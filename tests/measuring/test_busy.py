"""A machine on which other programs run: every case has a time with its mark, and no time is spent in vain."""

import pytest

from deepbench.core import units
from deepbench.measuring import session as sessions
from deepbench.measuring.session import Session
from deepbench.plan.modes import Rounds
from deepbench.plan.rounds import next_round
from deepbench.reporting.cases import rankings
from deepbench.results import summary
from deepbench.results.file import read_results
from deepbench.results.summary import summarize
from tests.help import samples

CASES = [f"gemm m={m} n=2 k=2 a_t=0 b_t=0 forward f32 mkl threads=1" for m in range(1, 16)]
ROUNDS = Rounds(3, 5, 0.03, 3.0)


def numbered(make, times):
    return [make("mkl", seconds, number) for number, seconds in enumerate(times, 1)]


def test_a_disturbed_process_does_not_count_where_others_were_not_disturbed():
    records = [*numbered(samples.measured, (1e-3, 1.01e-3)), samples.disturbed("mkl", 9e-3, 3)]
    (only,) = summarize(records)

    assert not only.is_disturbed
    assert 2 == only.estimate.processes
    assert 1e-3 == pytest.approx(only.time_s, rel=0.01)
    assert records[:2] == only.used_rounds


def test_where_most_processes_were_disturbed_the_time_is_an_upper_bound_from_the_fastest_samples():
    records = [samples.measured("mkl", 5e-3), *numbered(samples.disturbed, (4e-3, 3e-3))]
    (only,) = summarize(records)

    assert only.is_disturbed
    assert None is only.estimate.low_s is only.estimate.high_s
    fastest = sorted(records[2]["measurement"]["samples_s"])
    assert fastest[0] <= only.time_s <= fastest[4]


def test_the_upper_bound_is_no_fast_sample_of_an_undisturbed_process():
    records = [samples.measured("mkl", 3e-3), *numbered(samples.disturbed, (5e-3, 4e-3))]
    (only,) = summarize(records)

    assert only.is_disturbed
    assert summary.process_time_s(records[0]) == only.time_s


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(7.42e-3, "≤ 7.5 ms"), (1e-3, "≤ 1.0 ms"), (1.01e-3, "≤ 1.1 ms"), (2.9, "≤ 2.9 s"), (0.999, "≤ 1.0 s")],
)
def test_an_upper_bound_is_rounded_up(seconds, text):
    assert text == units.at_most(seconds)


@pytest.mark.parametrize(
    ("first", "second", "decided"),
    [
        (samples.measured, samples.measured, True),
        (samples.measured, samples.disturbed, False),  # the second may be faster when nothing disturbs it
        (samples.disturbed, samples.measured, True),  # an upper bound below the time of the other
        (samples.disturbed, samples.disturbed, False),
    ],
)
def test_the_order_of_libraries_is_open_unless_an_upper_bound_decides_it(first, second, decided):
    text = "gemm m=2 n=3 k=4 forward f32 {backend} threads=1"
    (ranking,) = rankings(summarize([first("mkl", 1e-3, text=text), second("onednn", 2e-3, text=text)]))

    assert decided == ranking.is_decided


def test_a_case_gets_no_further_rounds_where_all_were_disturbed():
    assert 3 == next_round(numbered(samples.measured, (1e-3, 1e-3)), ROUNDS)
    assert None is next_round(numbered(samples.disturbed, (1e-3, 2e-3, 3e-3)), ROUNDS)
    one_clean = [samples.measured("mkl", 1e-3), *numbered(samples.disturbed, (2e-3, 3e-3))]
    assert 4 == next_round(one_clean, ROUNDS)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a session whose records are made by a function of the case and the number of the round."""

    def start(make, earlier=()):
        first = samples.header(CASES)
        first["plan"]["rounds"] = {"least": 3, "most": 5, "target": 0.03, "most_s": 3.0}
        path = samples.write(tmp_path / "busy.jsonl", list(earlier), first)
        seen, notices, rules = [], [], []

        def measure(entries):
            found = []
            for session, case, number in entries:
                seen.append((case.text, number))
                rules.append(session.rules)
                found.append(make(case, number))
                session.file.records.append(found[-1])
            return found

        monkeypatch.setattr(sessions, "measure_together", measure)
        monkeypatch.setattr(Session, "probe", lambda *_: None)
        monkeypatch.setattr(Session, "_ask_for_fewer_threads", lambda *_: None)
        with Session(read_results(path), sessions.Store.reopen(path)) as session:
            session.run(lambda at: notices.append(at.notice) if at.notice else None)
        return seen, notices, rules

    return start


def test_a_machine_that_is_disturbed_all_the_time_measures_each_case_once_and_says_why(run):
    seen, notices, rules = run(lambda case, number: samples.disturbed(text=case.text, round_number=number))

    assert {1} == {number for _, number in seen}
    assert sorted(CASES) == sorted(text for text, _ in seen)
    (notice,) = notices
    assert "each case is measured once" in notice
    assert "deepbench run --resume" in notice
    assert rules[0].patience > rules[-1].patience


def test_a_quiet_machine_measures_all_rounds(run):
    seen, notices, _ = run(lambda case, number: samples.measured(text=case.text, round_number=number))

    assert {1, 2, 3} == {number for _, number in seen}
    assert [] == notices


def test_a_machine_that_was_busy_and_is_quiet_goes_on(run):
    earlier = [samples.disturbed(text=text) for text in CASES]
    seen, notices, _ = run(lambda case, number: samples.measured(text=case.text, round_number=number), earlier)

    assert {2, 3} == {number for _, number in seen}
    assert [] == notices
