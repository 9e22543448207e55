"""`deepbench fleet --check`: one line and one exit code in time, whatever libraries, disks and references do."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deepbench.core.exposition import exposition
from deepbench.core.json_lines import to_line
from deepbench.fleets import check as checks
from deepbench.fleets.check import check_host, gauges_of, history_path
from deepbench.fleets.examination import HostCheck
from deepbench.fleets.reference import SCHEMA
from deepbench.machine import describe
from deepbench.results.file import read_results
from tests.conftest import NO_LIBRARIES, ROOT
from tests.help.liars import LIARS
from tests.help.references import reference, write

pytestmark = pytest.mark.programs

CASE = "gemm m=33 n=17 k=9 a_t=0 b_t=0 forward i8 {} threads=1"


# In processes that load a liar, other programs of this machine do not matter.
QUIET = "from deepbench.machine import doctor; doctor.Load.sentence = None"


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    """A folder of plug-ins with all liars."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "backends").mkdir()
    for name, cls in LIARS.items():
        text = (
            f"{QUIET}\nimport sys; sys.path.insert(0, {str(ROOT)!r})\nfrom tests.help.liars import {cls.__name__}\n"
            f"class Backend({cls.__name__}):\n    name = title = {name!r}\nBACKEND = Backend()\n"
        )
        (folder / "backends" / f"{name}.py").write_text(text)
    return folder


def of_this_machine(*names, seconds=1.0, duration_s=1.0):
    """The file of a reference for this machine, in which a call takes so long: by default every host is faster.

    Made of texts: this process does not know the liars.
    """
    machine = describe.describe_machine()
    times = [[seconds * (1 + host / 1000)] * 3 for host in range(6)]
    kernels = [{"case": CASE.format(name), "duration_s": duration_s, "times_s": times} for name in names]
    known = {name: machine[name] for name in ("cpu", "cores_allowed", "cpu_quota", "memory_bytes")}
    facts = {"microcode": ["another"]}
    made = {"schema": SCHEMA, "tool": "deepbench test", "made": "2026-11-27T00:00:00+00:00", "facts": facts}
    libraries = {name: f"{name} 1.0" for name in names}
    more = {"machine": {**known, "devices": {}}, "libraries": libraries, "mode": "quick", "kernels": kernels}
    return to_line(made | more)


@pytest.fixture
def check(plugins, tmp_path):
    """Run the command on liars; returns the process, whose standard error is one line."""

    def run(*names, words=(), limits=(), seconds=1.0, duration_s=1.0, **options):
        (tmp_path / "r.json").write_text(of_this_machine(*names, seconds=seconds, duration_s=duration_s))
        command = [sys.executable, "-m", "deepbench", "fleet", "--check", "--reference", "r.json", *words]
        environment = {"PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": str(plugins), "TMPDIR": str(tmp_path)}
        done = subprocess.run(
            command,
            cwd=options.pop("cwd", tmp_path),
            env={**environment, **NO_LIBRARIES},
            capture_output=True,
            text=True,
            timeout=90,
            **options,
        )
        assert "" == done.stdout
        assert done.stderr.startswith("deepbench: "), done.stderr
        assert 1 == done.stderr.count("\n"), done.stderr
        return done

    return run


def test_a_healthy_host_is_fine_and_the_history_has_its_records(check, tmp_path):
    done = check("honest", words=["--history", "checks", "--prometheus", "check.prom"])
    (path,) = (tmp_path / "checks").iterdir()
    file = read_results(path)

    assert (0, True) == (done.returncode, done.stderr.startswith("deepbench: fine: one kernel takes 0.00 times"))
    assert [1, 2, 3] == [r["round"] for r in file.records]
    assert ["ok"] * 3 == [r["status"] for r in file.records]
    assert None is file.incomplete
    assert ["fleet", "--check"] == file.header["command"][:2]
    text = (tmp_path / "check.prom").read_text()
    assert 'deepbench_check_status{status="fine"} 1' in text
    assert 'deepbench_check_status{status="slow"} 0' in text


# `make test` has one of each verdict.
@pytest.mark.parametrize(
    ("liar", "code", "words"),
    [
        ("lazy", 1, "wrong: gemm m=33 n=17 k=9"),
        pytest.param("stale", 1, "wrong: gemm m=33 n=17 k=9", marks=pytest.mark.long),
        ("crasher", 1, "failed twice: crashed, killed by SIGSEGV"),
        pytest.param("crashatload", 1, "failed twice: crashed, killed by SIGSEGV", marks=pytest.mark.long),
        pytest.param("leaver", 1, "failed twice: crashed, it ended without an answer", marks=pytest.mark.long),
        ("hungry", 0, "undecided: gemm m=33"),
        pytest.param("refuser", 2, "not judged: gemm m=33", marks=pytest.mark.long),
        ("absent", 2, "not judged: gemm m=33"),
        ("printer", 0, "fine: "),
        pytest.param("scribbler", 0, "fine: ", marks=pytest.mark.long),
    ],
)
def test_a_library_that_lies_or_crashes_ends_in_its_verdict(check, liar, code, words):
    done = check(liar)

    assert code == done.returncode, done.stderr
    assert words in done.stderr


def test_a_library_that_hangs_fails_in_time_and_leaves_nothing_behind(check, tmp_path):
    begin = time.monotonic()
    done = check("hanger", duration_s=0.1)

    assert time.monotonic() - begin < 60
    assert 1 == done.returncode, done.stderr
    assert "failed twice: timeout, it did not end within" in done.stderr
    assert [] == left_over(str(tmp_path))


def left_over(folder):
    """Processes whose environment names this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
        except OSError:
            continue
        if f"TMPDIR={folder}".encode() in environment and str(os.getpid()) != path.parent.name:
            found.append((path.parent / "cmdline").read_bytes())
    return found


def test_a_slow_host_is_found_and_the_cause_is_named(check):
    done = check("honest", seconds=1e-9)

    assert done.returncode == (1 if "slow: " in done.stderr else 0), done.stderr
    assert "times as long as on 6 healthy hosts of this type" in done.stderr
    assert ("microcode is " in done.stderr) == ("slow: " in done.stderr), done.stderr


@pytest.mark.parametrize("closed", [*(pytest.param((n,), marks=pytest.mark.long) for n in (0, 1)), (0, 1)])
def test_closed_streams_change_nothing(check, closed):
    def close():
        for number in closed:
            os.close(number)

    done = check("honest", preexec_fn=close)

    assert 0 == done.returncode
    assert "deepbench: fine: " in done.stderr


@pytest.mark.process
def test_it_runs_as_a_prolog_does_without_variables_and_in_a_folder_that_cannot_be_written(plugins, tmp_path):
    (tmp_path / "r.json").write_text(of_this_machine("honest"))
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}]; import os; os.environ['DEEPBENCH_PLUGINS'] = {str(plugins)!r}; "
        "from deepbench.__main__ import main; main()"
    )
    command = [sys.executable, "-c", code, "fleet", "--check", "--reference", str(tmp_path / "r.json")]
    done = subprocess.run(command, cwd="/proc", env={}, capture_output=True, text=True, timeout=90, check=False)

    assert (0, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n")), done.stderr
    assert done.stderr.startswith("deepbench: fine: ")


@pytest.mark.parametrize("size", [2000, pytest.param(8000, marks=pytest.mark.long)])
def test_a_full_disk_is_named_and_changes_no_verdict(check, tmp_path, size):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    done = check("honest", words=["--history", "checks"], preexec_fn=limit)

    assert 0 == done.returncode, done.stderr
    assert "deepbench: fine: " in done.stderr
    assert "; the history is incomplete: " in done.stderr
    for path in (tmp_path / "checks").glob("*"):
        assert read_results(path).records == [] or path.stat().st_size > 2000


def test_without_any_folder_for_temporary_files_nothing_is_judged(check):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = check("honest", preexec_fn=limit)

    assert 2 == done.returncode
    assert "not judged: the check could not be made: " in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_check_that_is_killed_keeps_what_was_complete(plugins, tmp_path, number):
    (tmp_path / "r.json").write_text(of_this_machine("honest", "hanger", duration_s=0.1))
    command = [sys.executable, "-m", "deepbench", "fleet", "--check", "--reference", "r.json", "--history", "checks"]
    environment = {"PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": str(plugins), "TMPDIR": str(tmp_path), **NO_LIBRARIES}
    child = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and child.poll() is None:
        files = list((tmp_path / "checks").glob("*.jsonl"))
        if files and files[0].stat().st_size > 0:
            break
        time.sleep(0.05)
    child.send_signal(number)
    said = child.communicate()[1].decode()
    wanted = (-9, "") if number == signal.SIGKILL else (130, "deepbench: interrupted")
    assert wanted == (child.returncode, said.strip())
    (path,) = (tmp_path / "checks").iterdir()
    assert read_results(path).header["plan"]["cases"]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and left_over(str(tmp_path)):
        time.sleep(0.1)
    assert [] == [line for line in left_over(str(tmp_path)) if b"deepbench" in line]


# ---- refused


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--check", "--reference", "missing.json"], 2, "not judged: missing.json does not exist"),
        (["--check", "--reference", "empty"], 2, "the folder empty has no reference"),
        (["--check", "--reference", "bad.json"], 2, "not judged: bad.json is no reference"),
        (["--check", "--reference", "other.json"], 2, "is for another type of machine: CPU: wanted A CPU, found"),
        (["--check"], 64, "a check has the form: deepbench fleet --check --reference FILE"),
        (["--check", "--reference", "r", "quick"], 64, "a check has the form"),
        (["--check", "--reference", "r", "--runs", "3"], 64, "leave out --runs"),
        (["--check", "--reference", "r", "--backend", "mkl"], 64, "leave out --backend"),
        (["--reference", "r"], 64, "--reference belongs to --check"),
        (["--history", "r"], 64, "--history belongs to --check"),
        (["--write-references", "r"], 64, "references are made by: deepbench fleet FILE --write-references FOLDER"),
        (["missing", "--write-references", "r"], 64, "missing does not exist"),
        (["bad.json", "--write-references", "r"], 64, "bad.json, line 1"),
        (["--check", "--reference", "r", "--prometheus", "results.jsonl"], 64, "is a result file"),
    ],
)
def test_what_cannot_be_judged_is_one_sentence_and_no_fault_of_the_host(deepbench, tmp_path, words, code, sentence):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.json").write_text('{"schema": 7}\n')
    (tmp_path / "results.jsonl").write_text('{"schema": "deepbench/1"}\n')
    write(tmp_path / "other.json", reference())
    done = deepbench("fleet", *words)

    assert code == done.returncode, done.stderr
    assert sentence in done.stderr
    assert 1 == done.stderr.count("\n"), done.stderr


# ---- the supervisor


EXAMINATION = """
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
say = lambda message: os.write(1, json.dumps(message).encode() + b"\\n")
{}
"""


@pytest.fixture
def supervised(monkeypatch, tmp_path):
    """The verdict on an examination that runs this program, within some seconds."""

    def run(program, limit_s=3.0, kill_s=1.0):
        command = [sys.executable, "-c", EXAMINATION.format(program)]
        monkeypatch.setattr(checks.launch, "module_command", lambda *words: command)
        monkeypatch.setattr(checks, "KILL_S", kill_s)
        monkeypatch.setattr(checks, "STUCK_S", 0.5)
        begin = time.monotonic()
        found = check_host(tmp_path / "r.json", limit_s=limit_s)
        assert time.monotonic() - begin < limit_s + 1
        assert "\n" not in found.line
        return found

    return run


@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        ("say({'found': {'status': 'slow', 'reason': 'why'}})", "slow", "why"),
        ("say({'found': {'status': 'fine', 'reason': 'a\\n\\x1b[31mb'}}); time.sleep(100)", "fine", "a"),
        ("sys.exit('no such\\nmodule')", "not judged", "exit code 1, during: start, last output: module"),
        ("os.kill(os.getpid(), 9)", "not judged", "killed by SIGKILL, during: start"),
        (
            "say({'kernel': 'gemm', 'share_s': 9}); os.write(1, b'x' * 10**7)",
            "not judged",
            "sent more than 1048576 bytes",
        ),
        ("say({'found': [1]}); say({'found': {'nonsense': 1}})", "not judged", "ended without a verdict"),
        ("say([1]); os.write(1, b'\\xff\\n{' + b'[' * 100000 + b'\\n')", "not judged", "ended without a verdict"),
    ],
)
def test_whatever_an_examination_does_there_is_a_verdict(supervised, program, status, reason):
    found = supervised(program)

    assert status == found.status, found.line
    assert reason in found.reason


def test_an_examination_that_is_not_done_in_time_is_killed(supervised, monkeypatch):
    class Quiet:
        def load(self, least_s=0.0):
            return type("Load", (), {"sentence": None})

    monkeypatch.setattr(checks, "LoadWatch", Quiet)
    waiting = supervised("say({'kernel': 'gemm', 'share_s': 100}); time.sleep(100)")
    stuck = supervised("say({'kernel': 'gemm', 'share_s': 0.1}); time.sleep(100)")
    monkeypatch.setattr(Quiet, "load", lambda self, least_s=0.0: type("Load", (), {"sentence": "others run"}))
    busy = supervised("say({'kernel': 'gemm', 'share_s': 0.1}); time.sleep(100)")

    assert ["undecided", "failed", "undecided"] == [found.status for found in (waiting, stuck, busy)]
    assert "its process could not be ended" in stuck.reason
    assert "others run" in busy.reason
    assert 2 <= stuck.duration_s <= 4


# ---- names and Prometheus


def test_names_in_a_history_are_unique_and_plain():
    now = datetime(2026, 11, 27, 21, 0, tzinfo=UTC)
    names = {history_path(Path("h"), "node 07/../x", now).name for _ in range(100)}

    assert 100 == len(names)
    assert all(name.startswith("node-07-..-x-20261127T210000Z-") for name in names)
    assert "host-" == history_path(Path(), "///", now).name[:5]


def test_the_text_for_prometheus_escapes_labels():
    text = exposition([("a", "An a.", [({"case": 'say "x"\\ \n'}, 1.5)]), ("b", "A b.", [({}, 2)])])

    assert text.splitlines() == [
        *("# HELP a An a.", "# TYPE a gauge", 'a{case="say \\"x\\"\\\\ \\n"} 1.5'),
        *("# HELP b A b.", "# TYPE b gauge", "b 2", "# EOF"),
    ]


def test_prometheus_gets_the_verdict_and_the_ratios():
    found = HostCheck("slow", "why", {"gemm": 1.2}, 1.1, duration_s=3.0)
    text = exposition(gauges_of(found, datetime(2026, 11, 27, tzinfo=UTC)))

    assert 'deepbench_check_status{status="slow"} 1\n' in text
    assert 'deepbench_check_kernel_time_ratio{case="gemm"} 1.2\n' in text
    assert "deepbench_check_time_ratio 1.1\n" in text
    assert json.loads(text.rpartition("deepbench_check_timestamp_seconds ")[2].split()[0]) > 1.7e9
