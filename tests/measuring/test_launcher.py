"""Ranks of a launcher that give rank 0 their hosts: the commands they run there, and how these end."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from deepbench.core import errors
from deepbench.measuring import launch, wire
from deepbench.measuring.group import launcher
from deepbench.measuring.group.link import RankInfo
from deepbench.measuring.wire import Listener

pytestmark = pytest.mark.process

SECRET = "sixteen or more characters"


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """The program that stands for ssh and reaches another rank, which serves this one as rank 0."""
    monkeypatch.chdir(tmp_path)
    found = {}

    def serve():
        connections, hellos = launcher._meet(RankInfo("slurm", 0, 2))
        found["connection"], found["hello"] = connections[1], hellos[1]
        connections[1].send({"cpus": sorted(os.sched_getaffinity(0))})

    monkeypatch.setenv("SLURM_STEP_NUM_NODES", "1")
    server = threading.Thread(target=serve)
    server.start()
    other = threading.Thread(target=lambda: launcher.serve_rank_zero(RankInfo("slurm", 1, 2)))
    other.start()
    server.join(20)
    facts = tmp_path / "facts.json"
    servers = {"127.0.0.1": [found["hello"]["port"], found["connection"].session_key]}
    facts.write_text(json.dumps({"here": "10.9.9.9", "servers": servers}))
    yield [sys.executable, "-m", "deepbench.measuring.group.launcher", str(facts)]
    found["connection"].close()
    other.join(20)
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
    done = subprocess.run([*shell, "127.0.0.1", f"touch {tmp_path}/made"], capture_output=True, text=True, timeout=60)

    assert 255 == done.returncode
    assert "the process of this job on 127.0.0.1 does not answer: the other end does not know the secret" in done.stderr
    assert "Traceback" not in done.stderr
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


# ---- strangers


def test_commands_are_not_delayed_by_strangers(shell, tmp_path):
    """Neither by silent ones, nor by those that send the command of their choice without the key."""
    port = json.loads((tmp_path / "facts.json").read_text())["servers"]["127.0.0.1"][0]
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            stranger.sendall(b"x")
        command = json.dumps({"key": "", "command": f"touch {tmp_path}/made"}).encode() + b"\n"
        stack.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(command + bytes(64))
        start = time.monotonic()
        done = subprocess.run([*shell, "127.0.0.1", "echo one"], capture_output=True, text=True, timeout=60)

    assert (0, "one\n") == (done.returncode, done.stdout)
    assert time.monotonic() - start < 8
    assert not (tmp_path / "made").exists()


def test_ranks_on_one_host_listen_on_the_loopback_only(shell, tmp_path):
    """At 127.0.0.1 alone: any other address of the host refuses."""
    port = json.loads((tmp_path / "facts.json").read_text())["servers"]["127.0.0.1"][0]
    for address in {"127.0.0.2", *launcher._addresses()} - {"127.0.0.1"}:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, port), timeout=5.0)


@pytest.fixture
def given(tmp_path, monkeypatch):
    """The user gives the address and the secret of rank 0; returns the port."""
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    monkeypatch.setenv("DEEPBENCH_RENDEZVOUS", f"127.0.0.1:{port}")
    monkeypatch.setenv("DEEPBENCH_SECRET", SECRET)
    return port


def test_a_stranger_at_the_address_of_rank_0_learns_nothing_and_runs_nothing(given, tmp_path, monkeypatch):
    """It was faster than rank 0. It answers as rank 0 would, and then asks for a command."""
    monkeypatch.setattr(launcher, "RENDEZVOUS_S", 1.0)
    heard, stop = [], threading.Event()
    command = (
        json.dumps({"cpus": sorted(os.sched_getaffinity(0)), "command": f"touch {tmp_path}/made"}).encode() + b"\n"
    )
    with socket.create_server(("127.0.0.1", given)) as taken:
        taken.settimeout(0.1)

        def answer():
            while not stop.is_set():
                with contextlib.suppress(OSError), taken.accept()[0] as stream:
                    stream.settimeout(0.5)
                    stream.sendall(bytes(64) + command)
                    heard.append(b"")
                    while chunk := stream.recv(4096):
                        heard[-1] += chunk

        stranger = threading.Thread(target=answer)
        stranger.start()
        wanted = (
            rf"does not find rank 0: what answers at 127.0.0.1:{given} has another secret; check that rank 0 runs on"
        )
        with pytest.raises(errors.BadInput, match=wanted):
            launcher.serve_rank_zero(RankInfo("slurm", 1, 2))
        taken_already = (
            rf"rank 0 cannot listen at 127.0.0.1:{given}: Address already in use.*; set DEEPBENCH_RENDEZVOUS"
        )
        with pytest.raises(errors.BadInput, match=taken_already), launcher.gather_hosts(RankInfo("slurm", 0, 2)):
            pass
        stop.set()
        stranger.join()

    assert heard
    assert all(len(one) <= 64 and SECRET.encode() not in one for one in heard)  # a random number and a proof
    assert not (tmp_path / "made").exists()


def serve_in_thread(info):
    """A rank that serves rank 0; what it raises is no matter here."""

    def serve():
        with contextlib.suppress(errors.BadInput):
            launcher.serve_rank_zero(info)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_rank_with_another_secret_is_refused(given, monkeypatch):
    monkeypatch.setattr(launcher, "RENDEZVOUS_S", 1.0)
    listener = Listener(launcher._listen(["127.0.0.1"], given), "another secret of the job", 2)
    rank = serve_in_thread(RankInfo("slurm", 1, 2))
    wanted = r"rank 1 of 2 did not connect within 1 s \([0-9]+ connections did not know the secret\); check that rank 0"
    with listener, pytest.raises(errors.BadInput, match=wanted):
        launcher._accept_all(listener, RankInfo("slurm", 0, 2))
    rank.join(20)
    assert not rank.is_alive()


def test_strangers_that_are_slow_or_never_stop_do_not_delay_ranks(given, monkeypatch):
    monkeypatch.setattr(launcher, "RENDEZVOUS_S", 10.0)
    monkeypatch.setattr(wire, "PROOF_S", 1.0)
    stop = threading.Event()

    def bother(data, pause_s):
        while not stop.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", given), timeout=1.0) as stream:
                while not stop.wait(pause_s):
                    stream.sendall(data)
            stop.wait(0.01)  # rank 0 does not listen yet, or any more

    strangers = [threading.Thread(target=bother, args=one) for one in [(b"x", 0.2)] * 4 + [(bytes(2**16), 0.0)] * 2]
    for stranger in strangers:
        stranger.start()
    connections = {}

    def meet():
        connections.update(launcher._meet(RankInfo("slurm", 0, 3))[0])

    start = time.monotonic()
    rank_zero = threading.Thread(target=meet)
    rank_zero.start()
    time.sleep(0.5)  # strangers come first
    others = [serve_in_thread(RankInfo("slurm", rank, 3)) for rank in (1, 2)]
    rank_zero.join(20)
    took = time.monotonic() - start
    stop.set()
    for connection in connections.values():
        connection.close()
    for thread in strangers + others:
        thread.join(20)

    assert {1, 2} == set(connections)
    assert took < 5


def test_a_given_address_needs_a_secret(given, monkeypatch):
    for secret, found in (("", "it is not set"), ("short", "found 5")):
        monkeypatch.setenv("DEEPBENCH_SECRET", secret)
        wanted = rf"needs DEEPBENCH_SECRET with 16 or more characters, {found}; before the launcher say: export"
        with pytest.raises(errors.BadInput, match=wanted):
            launcher.serve_rank_zero(RankInfo("slurm", 1, 2))
        with pytest.raises(errors.BadInput, match=wanted), launcher.gather_hosts(RankInfo("slurm", 0, 2)):
            pass


def test_the_secret_is_no_part_of_commands_and_reaches_no_other_process():
    environment = {"DEEPBENCH_SECRET": SECRET, "DEEPBENCH_PLUGINS": "mine"}

    assert SECRET not in str(launch.on_host("other", environment, ["true"]))
    assert {"DEEPBENCH_PLUGINS": "mine"} == launcher.without_launcher(environment)


def test_rank_0_listens_where_others_reach_it(monkeypatch):
    own = ["10.1.2.3", "127.0.0.1"]
    monkeypatch.setattr(launcher, "_addresses", lambda: own)
    monkeypatch.setattr(launcher, "_is_own", lambda address: address in [*own, "127.0.1.1"])
    names = {"node": "10.1.2.3", "debian": "127.0.1.1", "behind-a-router": "203.0.113.5", "localhost": "127.0.0.1"}
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_: [(0, 0, 0, "", (names.get(host, host), 0))])

    assert ["10.1.2.3"] == launcher._own_addresses("node") == launcher._own_addresses("10.1.2.3")
    assert ["127.0.0.1"] == launcher._own_addresses("localhost") == launcher._own_addresses("127.0.0.1")
    assert own == launcher._own_addresses("debian") == launcher._own_addresses("behind-a-router")


@pytest.mark.parametrize(
    ("name", "variable", "local", "elsewhere"),
    [
        ("openmpi", "OMPI_COMM_WORLD_LOCAL_SIZE", "4", "2"),
        ("torchrun", "LOCAL_WORLD_SIZE", "4", "2"),
        ("hydra", "MPI_LOCALNRANKS", "4", "2"),
        ("slurm", "SLURM_STEP_NUM_NODES", "1", "2"),
    ],
)
def test_a_launcher_says_whether_all_ranks_are_on_one_host(monkeypatch, name, variable, local, elsewhere):
    monkeypatch.setattr(launcher, "_addresses", lambda: ["10.1.2.3", "127.0.0.1"])
    found = []
    for value in (local, elsewhere):
        monkeypatch.setenv(variable, value)
        found.append(launcher._interfaces(RankInfo(name, 0, 4)))
    monkeypatch.delenv(variable)

    assert [["127.0.0.1"], ["10.1.2.3", "127.0.0.1"]] == found
    assert ["10.1.2.3", "127.0.0.1"] == launcher._interfaces(RankInfo(name, 0, 4))


def test_sockets_share_a_port_at_every_address():
    sockets = launcher._listen(["127.0.0.1", "127.0.0.2", "127.0.0.3"])
    places = [one.getsockname() for one in sockets]
    for one in sockets:
        one.close()

    assert ["127.0.0.1", "127.0.0.2", "127.0.0.3"] == [host for host, _ in places]
    assert 1 == len({port for _, port in places})


def test_a_pipe_in_place_of_the_file_of_rank_0_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "file", 0o600)

    with pytest.raises(OSError, match="may have been written by another user"):
        launcher._read_private(tmp_path / "file")
