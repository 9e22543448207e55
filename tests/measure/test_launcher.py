"""Processes of a launcher that lend their hosts: what they start there, and how it ends."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from deepbench.core import errors
from deepbench.measure.group import launcher
from deepbench.measure.group.link import Place


@pytest.fixture
def lender(tmp_path, monkeypatch):
    """Rank 0's line to a lender of another name, and the facts of the stand-in for ssh that reaches it."""
    monkeypatch.chdir(tmp_path)
    where = Place("slurm", 1, 2)
    told = {}

    def serve():
        told["line"], token = launcher._listener(Place("slurm", 0, 2)), "word"
        listener, path = told["line"]
        launcher._publish(path, {"addresses": ["127.0.0.1"], "port": listener.getsockname()[1], "token": token})
        lines, hellos = launcher._welcome(listener, Place("slurm", 0, 2), token)
        told["rank"], told["hello"] = lines[1], hellos[1]
        launcher._send(lines[1], {"cpus": sorted(os.sched_getaffinity(0))})

    server = threading.Thread(target=serve)
    server.start()
    other = threading.Thread(target=lambda: launcher.serve_rank_zero(where))
    other.start()
    server.join(20)
    facts = tmp_path / "facts.json"
    shells = {"127.0.0.1": [told["hello"]["port"], told["hello"]["key"]]}
    facts.write_text(json.dumps({"here": "10.9.9.9", "shells": shells}))
    yield [sys.executable, "-m", "deepbench.measure.group.launcher", str(facts)]
    told["rank"].close()
    other.join(20)
    told["line"][0].close()
    assert not other.is_alive()  # it leaves with rank 0


def test_a_command_runs_there_and_its_words_and_code_come_back(lender):
    command = ["-x", "-l", "me", "127.0.0.1", "echo one; echo two >&2;", "exit 7"]
    done = subprocess.run([*lender, *command], capture_output=True, text=True, timeout=60)

    assert (7, "one\ntwo\n") == (done.returncode, done.stdout)


def test_what_it_started_ends_with_who_asked(lender, tmp_path):
    mark = tmp_path / "pid"
    asker = subprocess.Popen([*lender, "127.0.0.1", f"echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 100"])
    while not mark.exists():
        time.sleep(0.02)
    asker.kill()
    asker.wait()
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{int(mark.read_text())}"):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_stranger_starts_nothing(lender, tmp_path):
    facts = json.loads((tmp_path / "facts.json").read_text())
    facts["shells"]["127.0.0.1"][1] = "another key"
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    done = subprocess.run([*lender, "127.0.0.1", f"touch {tmp_path}/made"], capture_output=True, timeout=60)

    assert 255 == done.returncode
    assert not (tmp_path / "made").exists()


def test_a_host_of_nobody_is_said(lender):
    done = subprocess.run([*lender, "elsewhere", "true"], capture_output=True, text=True, timeout=60)

    assert (255, "no process of this job runs on elsewhere\n") == (done.returncode, done.stderr)


def test_who_waits_in_vain_says_for_whom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launcher, "MEET_S", 0.3)
    vain = r"rank 1 of 3 has not come within 0\.3 s; do all hosts share"
    with pytest.raises(errors.BadInput, match=vain), launcher.gather_hosts(Place("hydra", 0, 3)):
        pass
    with pytest.raises(errors.BadInput, match="does not find rank 0: nobody said where it is"):
        launcher.serve_rank_zero(Place("hydra", 2, 3))
    assert [] == list(tmp_path.iterdir())


def test_a_launcher_below_another_sees_nothing_of_it():
    outer = {"PMI_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "SLURM_JOB_ID": "3", "RANK": "1", "PMIX_NAMESPACE": "x"}

    assert {"PATH": "/bin", "OMP_NUM_THREADS": "2"} == launcher.without_launcher(
        {**outer, "PATH": "/bin", "OMP_NUM_THREADS": "2"}
    )
