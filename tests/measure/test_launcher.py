"""Ranks of a launcher that give rank 0 their hosts: the commands they run there, and how these end."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from deepbench.core import errors
from deepbench.measure.group import launcher
from deepbench.measure.group.link import RankInfo


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """The program that stands for ssh and reaches another rank, which serves this one as rank 0."""
    monkeypatch.chdir(tmp_path)
    found = {}

    def serve():
        (listener, path), token = launcher._listen(RankInfo("slurm", 0, 2)), "word"
        found["listener"] = listener
        launcher._publish(path, {"addresses": ["127.0.0.1"], "port": listener.getsockname()[1], "token": token})
        connections, hellos = launcher._accept_all(listener, RankInfo("slurm", 0, 2), token)
        found["connection"], found["hello"] = connections[1], hellos[1]
        connections[1].send({"cpus": sorted(os.sched_getaffinity(0))})

    server = threading.Thread(target=serve)
    server.start()
    other = threading.Thread(target=lambda: launcher.serve_rank_zero(RankInfo("slurm", 1, 2)))
    other.start()
    server.join(20)
    facts = tmp_path / "facts.json"
    servers = {"127.0.0.1": [found["hello"]["port"], found["hello"]["key"]]}
    facts.write_text(json.dumps({"here": "10.9.9.9", "servers": servers}))
    yield [sys.executable, "-m", "deepbench.measure.group.launcher", str(facts)]
    found["connection"].close()
    other.join(20)
    found["listener"].close()
    assert not other.is_alive()  # it ends with rank 0


def test_a_command_runs_on_the_host_and_returns_its_output_and_exit_code(shell):
    command = ["-x", "-l", "me", "127.0.0.1", "echo one; echo two >&2;", "exit 7"]
    done = subprocess.run([*shell, *command], capture_output=True, text=True, timeout=60)

    assert (7, "one\ntwo\n") == (done.returncode, done.stdout)


def test_a_command_ends_with_the_process_that_asked_for_it(shell, tmp_path):
    mark = tmp_path / "pid"
    asker = subprocess.Popen([*shell, "127.0.0.1", f"echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 100"])
    while not mark.exists():
        time.sleep(0.02)
    asker.kill()
    asker.wait()
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{int(mark.read_text())}"):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_standard_input_reaches_the_command_and_its_end_does_not_end_the_command(shell):
    done = subprocess.run(
        [*shell, "127.0.0.1", "read one; sleep 0.5; echo got $one"], input=b"first\nsecond\n", capture_output=True
    )

    assert (0, b"got first\n") == (done.returncode, done.stdout)


def test_a_command_ends_with_the_process_that_asked_for_it_although_input_is_unread(shell, tmp_path):
    mark = tmp_path / "pid"
    words = [*shell, "127.0.0.1", f"echo $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 100"]
    asker = subprocess.Popen(words, stdin=subprocess.PIPE)
    asker.stdin.write(b"nobody reads this\n")
    asker.stdin.close()
    while not mark.exists():
        time.sleep(0.02)
    time.sleep(0.2)
    assert os.path.exists(f"/proc/{int(mark.read_text())}")
    asker.kill()
    asker.wait()
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{int(mark.read_text())}"):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_process_without_the_key_starts_nothing(shell, tmp_path):
    facts = json.loads((tmp_path / "facts.json").read_text())
    facts["servers"]["127.0.0.1"][1] = "another key"
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    done = subprocess.run([*shell, "127.0.0.1", f"touch {tmp_path}/made"], capture_output=True, timeout=60)

    assert 255 == done.returncode
    assert not (tmp_path / "made").exists()


def test_a_host_without_a_rank_is_an_error(shell):
    done = subprocess.run([*shell, "elsewhere", "true"], capture_output=True, text=True, timeout=60)

    assert (255, "no process of this job runs on elsewhere\n") == (done.returncode, done.stderr)


def test_the_error_of_a_failed_rendezvous_names_the_rank(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launcher, "RENDEZVOUS_S", 0.3)
    missing = r"rank 1 of 3 did not connect within 0\.3 s; if the hosts do not share this folder"
    with pytest.raises(errors.BadInput, match=missing), launcher.gather_hosts(RankInfo("hydra", 0, 3)):
        pass
    with pytest.raises(errors.BadInput, match="does not find rank 0: it has not published its address"):
        launcher.serve_rank_zero(RankInfo("hydra", 2, 3))
    assert [] == list(tmp_path.iterdir())


def test_a_launcher_does_not_inherit_the_variables_of_another():
    outer = {"PMI_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "SLURM_JOB_ID": "3", "RANK": "1", "PMIX_NAMESPACE": "x"}

    assert {"PATH": "/bin", "OMP_NUM_THREADS": "2"} == launcher.without_launcher(
        {**outer, "PATH": "/bin", "OMP_NUM_THREADS": "2"}
    )
