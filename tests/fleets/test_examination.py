"""The examination of one host: looks, repetitions, shares of time, and what disturbs. Nothing is measured here."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from deepbench.core.case import parse_case
from deepbench.core.files import NotWritten
from deepbench.fleets import examination as examinations
from deepbench.fleets.examination import Examination, HistoryFile, HostCheck, Overrun, limited
from deepbench.fleets.reference import MachineType
from deepbench.results.file import read_results
from deepbench.results.record import make_record
from tests.help import samples
from tests.help.references import ONE, TWO, reference, write


class Host:
    """A host whose processes take so long; what it is asked is kept."""

    def __init__(self, answers=lambda text, number: 1e-3, process_s=1.0, limit_s=54.0, made=None):
        self.answers, self.process_s, self.left_s = answers, process_s, limit_s
        self.asked, self.shares, self.told = [], [], []
        self.examination = Examination(made or reference(hosts=12), self.measure, lambda: self.left_s, self.told.append)
        self.rng = random.Random(1)

    def measure(self, cases, number, share_s):
        records = []
        for case in cases:
            self.asked.append((case.text, number))
            answer = self.answers(case.text, number)
            if isinstance(answer, float):
                seconds = answer * self.rng.gauss(1, 0.005)
                answer = samples.measured(text=case.text, seconds=seconds, round_number=number)
            elif callable(answer):
                answer = answer(text=case.text, seconds=2e-3, round_number=number)
            elif isinstance(answer, str):
                answer = make_record(case, number, answer, "a reason")
            records.append(answer)
            self.left_s -= share_s if answer["status"] == "timeout" else self.process_s
        self.shares.append(share_s)
        return records

    def run(self):
        return self.examination.run()

    def count(self, text):
        return sum(asked == text for asked, _ in self.asked)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Other programs of this machine do not matter."""

    class Watch:
        busy = None

        def load(self, least_s=0.0):
            return type("Load", (), {"sentence": Watch.busy})

    monkeypatch.setattr(examinations, "LoadWatch", Watch)
    monkeypatch.setattr(examinations, "allowed_cpus", lambda: {0, 1})
    return Watch


def test_a_healthy_host_gets_one_look():
    host = Host()
    status, reason = host.run()

    assert "fine" == status
    assert "2 kernels take 0.99 to 1." in reason or "2 kernels take 1.0" in reason
    assert "times as long as on 12 healthy hosts of this type" in reason
    assert (3, 3) == (host.count(ONE), host.count(TWO))
    assert [1, 1, 2, 2, 3, 3] == [number for _, number in host.asked]
    assert {ONE, TWO} == host.examination.kernels.keys()
    assert 1.0 == pytest.approx(host.examination.overall, abs=0.05)


def test_a_slow_host_is_named_after_a_second_look_at_what_was_slow():
    host = Host(lambda text, number: 1.4e-3 if text == ONE else 1e-3, made=reference(hosts=40))
    status, reason = host.run()

    assert "slow" == status
    assert f"{ONE} takes 1.4" in reason or f"{ONE} takes 1.3" in reason
    assert "times as long as on 40 healthy hosts of this type (limit 1.0" in reason
    assert 6 == host.count(ONE)


def test_a_host_that_is_slow_once_is_fine():
    host = Host(lambda text, number: 1.4e-3 if text == ONE and number <= 3 else 1e-3)
    status, reason = host.run()

    assert "fine" == status
    assert "at a first look, and not at a second one" in reason


def test_a_host_that_is_slow_in_everything_has_a_second_look_at_everything():
    host = Host(lambda text, number: 2e-3)
    status, reason = host.run()

    assert "slow" == status
    assert (6, 6) == (host.count(ONE), host.count(TWO))
    assert "all kernels together" in reason


@pytest.mark.parametrize(
    "make",
    [
        samples.disturbed,
        lambda **options: with_others(samples.measured(**options), 0.5),
    ],
)
def test_a_host_that_is_busy_is_undecided(make):
    host = Host(lambda text, number: make)
    status, reason = host.run()

    assert "undecided" == status
    assert "times as long" in reason
    assert "other programs" in reason or "hypervisor" in reason


def with_others(record, cpus):
    record["measurement"]["other_cpus"] = cpus
    return record


def test_a_busy_host_that_is_fast_is_fine():
    assert "fine" == Host(lambda text, number: samples.disturbed(text=text, seconds=1e-3)).run()[0]


def test_one_disturbed_process_of_three_accuses_nobody():
    slow_once = Host(lambda text, number: samples.disturbed if number in (2, 5) else 1e-3)
    slow_always = Host(lambda text, number: samples.disturbed if number in (2, 5) else 2e-3)

    assert "fine" == slow_once.run()[0]
    assert "slow" == slow_always.run()[0]


def wrong(text, seconds, round_number):
    return {**samples.measured(text=text, round_number=round_number, status="wrong"), "reason": "element 3 is 7"}


def test_a_wrong_result_ends_the_check_at_once():
    host = Host(lambda text, number: wrong if text == TWO and number == 2 else 1e-3)

    assert ("wrong", f"{TWO}: element 3 is 7") == host.run()
    assert 2 == host.count(TWO)


def test_a_clock_that_cannot_be_trusted_is_no_wrong_result():
    host = Host(lambda text, number: "wrong" if text == TWO and number == 1 else 1e-3)
    status, _ = host.run()

    assert "fine" == status
    assert [f"a process of {TWO} failed once: wrong, a reason"] == host.examination.notes


@pytest.mark.parametrize("failure", ["crashed", "timeout"])
def test_a_process_that_fails_is_repeated_at_once_and_a_host_that_fails_twice_has_failed(failure):
    once = Host(lambda text, number: failure if (text, number) == (ONE, 2) else 1e-3)
    always = Host(lambda text, number: failure if text == ONE else 1e-3)

    assert "fine" == once.run()[0]
    assert [f"a process of {ONE} failed once: {failure}, a reason"] == once.examination.notes
    assert ("failed", f"{ONE} failed twice: {failure}, a reason") == always.run()
    assert 2 == always.count(ONE)


def test_a_process_that_does_not_end_on_a_busy_host_is_undecided(quiet):
    quiet.busy = "other programs use 2.0 of 2 CPUs"
    status, reason = Host(lambda text, number: "timeout").run()

    assert "undecided" == status
    assert "did not end within 8 s, but other programs use 2.0 of 2 CPUs" in reason


@pytest.mark.parametrize(
    ("status", "found"),
    [("out_of_memory", "undecided"), ("unavailable", "not judged"), ("unsupported", "not judged")],
)
def test_what_is_no_fault_of_the_host_is_no_failure(status, found):
    host = Host(lambda text, number: status)

    assert found == host.run()[0]
    assert 1 == len(host.asked)


def test_a_kernel_that_hangs_leaves_time_for_a_second_process():
    made = reference(duration_s=6.0)
    host = Host(lambda text, number: "timeout", process_s=6.0, made=made)
    status, _ = host.run()

    assert "failed" == status
    assert 2 == len(host.shares)
    assert host.left_s > 0
    assert all(share >= 1.5 * 6 for share in host.shares)


def test_a_kernel_that_hangs_without_time_to_repeat_it_is_undecided():
    made = reference(texts=[ONE], duration_s=20.0)
    status, reason = Host(lambda text, number: "timeout", made=made).run()

    assert "undecided" == status
    assert f"{ONE} failed once, and there was no time to repeat it: timeout, a reason" == reason


def test_kernels_for_which_there_is_no_time_are_named():
    slow_start = Host(process_s=20.0)
    status, _ = slow_start.run()

    assert "fine" == status
    assert slow_start.left_s > -20.0
    assert ("undecided", "there was no time to measure any kernel") == Host(limit_s=1.0).run()


def test_no_time_for_a_second_look_is_undecided():
    host = Host(lambda text, number: 2e-3, process_s=8.8)
    status, reason = host.run()

    assert "undecided" == status
    assert "there was no time for a second look" in reason


def test_each_heat_is_announced_with_its_share():
    host = Host()
    host.run()

    assert all(message["kernel"] in (ONE, TWO) and message["share_s"] == 8.0 for message in host.told)
    assert 6 == len(host.told)


def test_rivals_are_measured_in_one_heat_as_in_a_fleet():
    rival = ONE.replace(" mkl ", " onednn ")
    host = Host(made=reference(texts=[ONE, rival, TWO], libraries={"mkl": "MKL 1.0", "onednn": "oneDNN 1"}))

    assert "fine" == host.run()[0]
    assert 6 == len(host.told)
    places = [i for i, (text, _) in enumerate(host.asked) if text in (ONE, rival)]
    heats = list(zip(places[::2], places[1::2], strict=True))
    assert 3 == len(heats)
    assert all(second == first + 1 and host.asked[first][0] != host.asked[second][0] for first, second in heats)


def test_verdicts_have_exit_codes_and_one_line():
    codes = {status: HostCheck(status, "why").exit_code for status in examinations.EXIT_CODES}

    assert {"fine": 0, "undecided": 0, "slow": 1, "wrong": 1, "failed": 1, "not judged": 2} == codes
    assert "slow: why" == HostCheck("slow", "why").line


def test_a_share_of_time_ends_what_hangs():
    begin = time.monotonic()
    with pytest.raises(Overrun), limited(0.1):
        time.sleep(30)
    with limited(30):
        pass

    assert time.monotonic() - begin < 10
    assert (0.0, 0.0) == signal.getitimer(signal.ITIMER_REAL)


# ---- the type of the machine and its libraries

MACHINE = {"cpu": "A CPU", "cores_allowed": 2, "cpu_quota": None, "memory_bytes": 2**34}
LIBRARIES = {"mkl": {"library": {"name": "MKL", "version": "1.0", "path": None}}}


def end_of(call, *arguments):
    with pytest.raises(examinations._Ends) as end:
        call(*arguments)
    return end.value.status, end.value.reason


def test_the_reference_of_this_type_is_chosen(tmp_path):
    other = write(tmp_path / "a.json", reference(machine=MachineType("B CPU", 2, None, 2**34)))
    (tmp_path / "b.json").write_text("rubbish")
    own = write(tmp_path / "c.json")

    assert [own] == [r.path for r in examinations._of_this_machine([other, tmp_path / "b.json", own], MACHINE)]
    assert (
        "not judged",
        f"{other} is for another type of machine: CPU: wanted B CPU, found A CPU",
    ) == end_of(examinations._of_this_machine, [other], MACHINE)
    _, reason = end_of(examinations._of_this_machine, [tmp_path / "b.json", other], MACHINE)
    assert "b.json is no reference: " in reason
    assert reason.endswith("(2 references)")
    assert "not judged" == end_of(examinations._of_this_machine, [], MACHINE)[0]


def test_a_folder_of_references_is_searched(tmp_path):
    for name in ("b.json", "a.json", "notes.txt"):
        (tmp_path / name).write_text("{}")

    assert ["a.json", "b.json"] == [p.name for p in examinations.references_in(tmp_path)]


def test_a_reference_for_another_version_of_a_library_is_refused(tmp_path):
    made = reference()
    newer = {"mkl": {"library": {"name": "MKL", "version": "2.0", "path": None}}}

    assert made is examinations._with_these_libraries([made], MACHINE, LIBRARIES)
    status, reason = end_of(examinations._with_these_libraries, [made], MACHINE, newer)
    assert "not judged" == status
    assert "is for another library: mkl MKL 1.0, and here is MKL 2.0; make a new reference" in reason


def test_a_library_that_is_missing_is_measured_all_the_same():
    """Its process tells whether it is not installed, or crashes."""
    made = reference()
    missing = {"mkl": {"unavailable": {"reason": "no", "remedy": "yes"}}}

    assert made is examinations._with_these_libraries([made], MACHINE, missing)


# ---- the history


def test_a_history_is_a_normal_result_file(tmp_path):
    path = tmp_path / "a" / "b.jsonl"
    store = HistoryFile(path, samples.header([ONE]))
    store.append(samples.measured(text=ONE))
    store.close()

    assert store.is_written
    assert [ONE] == [r["case"] for r in read_results(path).records]


@pytest.mark.parametrize("path", ["/proc/none/x.jsonl", "/dev/null/x.jsonl", None])
def test_a_history_that_cannot_be_written_ends_nothing(path):
    store = HistoryFile(path and Path(path), samples.header())
    store.append(samples.measured())
    store.close()

    assert not store.is_written
    assert (store.error is None) == (path is None)


def test_a_full_disk_ends_nothing(tmp_path, monkeypatch):
    store = HistoryFile(tmp_path / "h.jsonl", samples.header([ONE]))
    full = NotWritten(tmp_path / "h.jsonl", OSError(28, os.strerror(28)))

    def refuse(line):
        raise full

    monkeypatch.setattr(store._store, "append", refuse)
    store.append(samples.measured(text=ONE))
    store.close()

    assert "No space left on device" in store.error
    assert [] == read_results(tmp_path / "h.jsonl").records


def test_a_process_is_busy_if_others_took_its_time():
    quiet = samples.measured(text=ONE)
    gpu = {**samples.measured(text=ONE), "warnings": [{"code": "shared_card", "text": "other processes used the GPU"}]}
    stolen = samples.measured(text=ONE)
    stolen["measurement"]["steal_s"] = [1e-4] * 10

    records = [quiet, samples.disturbed(text=ONE), gpu, stolen, with_others(samples.measured(text=ONE), 0.4)]
    assert [False, True, True, True, True] == [examinations.is_busy(r) for r in records]
    assert not examinations.is_busy(with_others(samples.measured(), 0.2))
    assert examinations.is_busy(make_record(parse_case(ONE), 1, "crashed", "a reason"))
