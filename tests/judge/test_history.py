"""Which times form a series, in which order, and what decides."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deepbench.core.errors import BadInput
from deepbench.judge import change_points, history
from deepbench.judge.history import CollectedRuns, explain, find_changes, moment
from deepbench.results.file import read_results
from tests.help import over_time, samples

NOW = datetime(2026, 11, 27, tzinfo=UTC)


def collected(folder, chosen=lambda record: True, **options):
    runs = CollectedRuns(chosen, NOW, **options)
    for path in sorted(folder.glob("*.jsonl")):
        runs.add(read_results(path))
    return runs.machines()


@pytest.fixture
def proposed(monkeypatch):
    """Change points are proposed where this says, without ruptures."""
    at = [18]
    monkeypatch.setattr(change_points, "require_proposals", lambda: None)
    monkeypatch.setattr(change_points, "propose", lambda logs: [i for i in at if i < len(logs)])
    return at


def test_runs_are_in_the_order_of_their_dates_whatever_their_names(tmp_path):
    for name, day in (("a", 5), ("b", 1), ("c", 3)):
        over_time.write(tmp_path, f"{name}.jsonl", {2: 1e-3 * (1 + day)}, day)
    (machine,) = collected(tmp_path)
    (case,) = machine.cases

    assert ["b", "c", "a"] == [run.path.stem for run in machine.runs]
    assert sorted(t.time_s for t in case.times) == [t.time_s for t in case.times]


@pytest.mark.parametrize(
    ("change", "machines"),
    [
        ({}, 1),
        ({"cpu": "Another CPU"}, 2),
        ({"cores": 4}, 2),
        ({"host": "there"}, 2),
        ({"cpu_quota": 1.5}, 2),
        ({"cpu_ids": {"model": "7", "microcode": "0x1"}}, 2),
        ({"kernel": "6.2"}, 1),
        ({"memory_bytes": 2**30}, 1),
    ],
)
def test_a_machine_is_a_host_of_one_kind(tmp_path, change, machines):
    over_time.write(tmp_path, "a.jsonl", {2: 1e-3}, 0, kernel="6.1")
    over_time.write(tmp_path, "b.jsonl", {2: 1e-3}, 1, **{"kernel": "6.1", **change})

    assert machines == len(collected(tmp_path))


def test_microcode_does_not_make_another_machine(tmp_path):
    for day, microcode in enumerate(("0x1", "0x2")):
        over_time.write(tmp_path, f"{day}.jsonl", {2: 1e-3}, day, cpu_ids={"model": "7", "microcode": microcode})

    assert 1 == len(collected(tmp_path))


def test_hosts_of_one_kind_can_be_one_machine(tmp_path):
    for day, host in enumerate(("runner-1", "runner-2", "runner-3")):
        over_time.write(tmp_path, f"{host}.jsonl", {2: 1e-3}, day, host=host)
    (machine,) = collected(tmp_path, ignore_host=True)

    assert 3 == len(collected(tmp_path))
    assert (None, 3) == (machine.host, len(machine.cases[0].times))


def test_imported_results_and_gpus_are_series_of_their_own(tmp_path):
    imported = samples.measured(text=over_time.TEXT.format(2), status="unchecked")
    imported["notes"] = {"imported_from": "pyperf"}
    gpu = samples.measured(text=over_time.TEXT.format(2))
    gpu["library"]["card"] = {"vendor": "NVIDIA", "name": "NVIDIA H100"}
    for day, record in enumerate((samples.measured(text=over_time.TEXT.format(2)), imported, gpu)):
        samples.write(tmp_path / f"{day}.jsonl", [record], over_time.header(day))
    (machine,) = collected(tmp_path)

    assert [(None, None), (None, "pyperf"), ("NVIDIA H100", None)] == [c.identity[1:] for c in machine.cases]


def test_a_result_that_was_not_checked_or_failed_has_no_time(tmp_path):
    text = over_time.TEXT.format(2)
    for day, status in enumerate(("ok", "unchecked", "wrong")):
        samples.write(tmp_path / f"{day}.jsonl", [samples.measured(text=text, status=status)], over_time.header(day))
    (case,) = collected(tmp_path)[0].cases

    assert (1, 2) == (len(case.times), case.without_time)


def test_the_same_results_under_another_name_count_once(tmp_path):
    over_time.write(tmp_path, "a.jsonl", {2: 1e-3, 5: 2e-3})
    runs = CollectedRuns(lambda record: True, NOW)
    runs.add(read_results(tmp_path / "a.jsonl"))
    (tmp_path / "b.jsonl").write_bytes((tmp_path / "a.jsonl").read_bytes())

    with pytest.raises(BadInput, match=r"the same results as .*a\.jsonl"):
        runs.add(read_results(tmp_path / "b.jsonl"))
    assert 1 == len(runs.machines()[0].runs)


def test_one_side_of_two_is_not_part_of_a_history(tmp_path):
    header = over_time.header()
    header["plan"]["interleaved"] = {"run": "1", "side": "a", "choices": {}, "environment": {}}
    path = samples.write(tmp_path / "a.jsonl", over_time.records({2: 1e-3}), header)

    with pytest.raises(BadInput, match="measured in turn"):
        CollectedRuns(lambda record: True, NOW).add(read_results(path))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("yesterday", "no date and time, found 'yesterday'"),
        ("\x1b[31m2026", "no date and time"),
        ("0001-01-01T00:00:00+14:00", "no date and time"),
        ("9999-12-31T23:59:59-14:00", "no date and time"),
        ("2099-01-01T00:00:00+00:00", "is in the future, so that the clock of its machine was wrong"),
        ("1970-01-01T00:00:00+00:00", "is before 2000"),
        ("2026-11-30T00:00:00+00:00", "is in the future"),
        ("9" * 5000, "no date and time"),
    ],
)
def test_a_date_that_cannot_be_right_is_refused(text, sentence):
    with pytest.raises(BadInput, match=sentence) as raised:
        moment(text, NOW)

    assert len(str(raised.value)) < 200
    assert "\x1b" not in str(raised.value)


def test_dates_are_compared_in_utc():
    assert moment("2026-03-01T01:00:00+02:00", NOW) == datetime(2026, 2, 28, 23, tzinfo=UTC)
    assert moment("2026-03-01", NOW) == datetime(2026, 3, 1, tzinfo=UTC)


# ---- change points


def test_a_change_has_its_runs_and_what_changed_with_it(tmp_path, proposed):
    machines = collected(over_time.write_step(tmp_path, microcode="0x1"))
    find_changes(machines)
    left = explain(machines, lambda run: read_results(run.path))
    changed, steady = machines[0].cases

    (change,) = changed.changes
    assert [] == steady.changes
    assert ("day017.jsonl", "day018.jsonl") == (change.before.path.name, change.after.path.name)
    assert 1.1 == pytest.approx(change.ratio, rel=0.01)
    assert 1.1 == pytest.approx(changed.change, rel=0.01)
    assert ["MKL 3.1 → 3.2"] == [reason.text for reason in change.reasons]
    assert 0 == left
    assert [changed] == machines[0].changed


def test_facts_of_the_machine_are_named(tmp_path, proposed):
    for day in range(30):
        is_new = day >= 18
        over_time.write(
            tmp_path,
            f"{day:02}.jsonl",
            {2: over_time.noisy(1.1e-3 if is_new else 1e-3, day)},
            day,
            kernel="6.2" if is_new else "6.1",
            cpu_ids={"microcode": "0x2" if is_new else "0x1"},
        )
    machines = collected(tmp_path)
    find_changes(machines)
    explain(machines, lambda run: read_results(run.path))

    (change,) = machines[0].cases[0].changes
    assert ["kernel: 6.1 → 6.2", "microcode: 0x1 → 0x2"] == [reason.text for reason in change.reasons]


def test_disturbed_times_decide_nothing(tmp_path, proposed):
    for day in range(30):
        make = samples.disturbed if day >= 18 else samples.measured
        over_time.write(
            tmp_path, f"{day:02}.jsonl", {2: over_time.noisy(2e-3 if day >= 18 else 1e-3, day)}, day, make=make
        )
    machines = collected(tmp_path)
    find_changes(machines)
    (case,) = machines[0].cases

    assert (30, 18) == (len(case.times), len(case.deciding))
    assert [] == case.changes
    assert 1.0 == pytest.approx(case.ratio, rel=0.02)


def test_runs_that_began_at_once_have_no_order(tmp_path, proposed):
    for number in range(30):
        day = number if number < 17 else 17 if number < 19 else number
        times = {2: over_time.noisy(1.1e-3 if number >= 18 else 1e-3, number)}
        over_time.write(tmp_path, f"{number:02}.jsonl", times, day)
    machines = collected(tmp_path)
    find_changes(machines)

    assert [] == machines[0].cases[0].changes


def test_a_file_that_is_gone_leaves_a_change_without_reasons(tmp_path, proposed):
    machines = collected(over_time.write_step(tmp_path))
    find_changes(machines)

    def read(run):
        raise BadInput("gone")

    assert 1 == explain(machines, read)
    assert [None] == [change.reasons for change in machines[0].cases[0].changes]


def test_only_so_many_files_are_read_again(tmp_path, proposed, monkeypatch):
    monkeypatch.setattr(history, "MOST_EXPLAINED", 0)
    machines = collected(over_time.write_step(tmp_path))
    find_changes(machines)

    assert 1 == explain(machines, lambda run: pytest.fail("was read"))


def test_the_ends_are_medians_of_few_times():
    run = history.TimedRun(Path("a"), None, NOW)

    def case(*seconds):
        made = history.CaseHistory(history.CaseIdentity("gemm", None, None), *["x"] * 6, 1)
        for i, time_s in enumerate(seconds):
            at = history.TimedRun(run.path, None, NOW + timedelta(days=i))
            made.times.append(history.TimeOfRun(at, time_s, None, None, False))
        return made

    assert (None, None, None) == (case(1.0).first_s, case(1.0).last_s, case().ratio)
    assert 2.0 == case(1.0, 2.0).ratio
    assert (2.5, 7.5) == (case(*map(float, range(1, 10))).first_s, case(*map(float, range(1, 10))).last_s)
    ten = case(*[1.0, 1.0, 9.0, 1.0, 1.0, 2.0, 2.0, 9.0, 2.0, 2.0])
    assert (1.0, 2.0, 2.0) == (ten.first_s, ten.last_s, ten.ratio)


# ---- what was recorded


def test_what_was_recorded_to_change_needs_no_change_of_times(tmp_path):
    kernels = ["6.1", "6.1", None, "6.2", "6.2", "6.1"]
    for day, kernel in enumerate(kernels):
        facts = {} if kernel is None else {"kernel": kernel}
        over_time.write(tmp_path, f"{day}.jsonl", {2: 1e-3}, day, version="3.1" if day < 4 else "3.2", **facts)
    (case,) = collected(tmp_path)[0].cases

    assert [
        ("3.jsonl", ["kernel: 6.1 → 6.2"]),  # a file that does not say is no difference
        ("4.jsonl", ["MKL 3.1 → 3.2"]),
        ("5.jsonl", ["kernel: 6.2 → 6.1"]),
    ] == [(change.run.path.name, [r.text for r in change.reasons]) for change in case.recorded_changes]


def test_another_host_of_one_kind_is_no_recorded_change(tmp_path):
    for day, host in enumerate(("runner-1", "runner-2")):
        over_time.write(tmp_path, f"{host}.jsonl", {2: 1e-3}, day, host=host)
    (machine,) = collected(tmp_path, ignore_host=True)

    assert [] == machine.cases[0].recorded_changes


def test_runs_with_equal_facts_share_them(tmp_path):
    over_time.write_step(tmp_path, count=3, microcode="0x1")
    (machine,) = collected(tmp_path)

    assert 1 == len({id(run.facts) for run in machine.runs})
    assert 1 == len({id(time.library) for case in machine.cases for time in case.times})
    assert ("CPU", "A CPU") in machine.runs[0].facts


def test_the_identity_of_a_machine_is_that_of_its_files(tmp_path):
    over_time.write(tmp_path, "a.jsonl", {2: 1e-3}, cpu_ids={"model": "7", "microcode": "0x1"})
    over_time.write(tmp_path, "b.jsonl", {2: 1e-3}, 1, cpu_ids={"model": "7", "microcode": "0x2"})
    over_time.write(tmp_path, "c.jsonl", {2: 1e-3}, 2, cores=4)
    first, second = collected(tmp_path)
    of_files = [history.identity_of(read_results(tmp_path / f"{name}.jsonl").header["machine"]) for name in "abc"]

    assert {first.identity, second.identity} == set(of_files)
    assert of_files[0] == of_files[1] != of_files[2]
    assert all(identity.isalnum() for identity in of_files)
