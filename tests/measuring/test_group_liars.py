"""A rank that dies, hangs, lies or cannot: the case ends in its status, says which rank it was, and nothing is left."""

import contextlib
import os
import resource
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from deepbench.core.case import parse_case
from deepbench.judge.heats import log_ratios
from deepbench.measuring import process, wire
from deepbench.measuring.group import link, parent
from deepbench.measuring.heat import Rival, measure_case, measure_heat
from deepbench.plan.modes import Rules

pytestmark = pytest.mark.programs

CASE = "all_reduce n=40 ranks={ranks} forward f32 {name} threads=1"
QUICK = Rules(least_samples=5, least_s=0.0, most_s=0.02, warm_up_s=0.005)


@pytest.fixture
def group_liar(plugins, monkeypatch):
    """Measure a small all-reduce on a liar."""
    from deepbench.core import registry

    monkeypatch.setenv(registry.PLUGINS, str(plugins))
    registry.registered.cache_clear()
    yield lambda name, ranks=3, timeout_s=20.0, **settings: measure_case(
        parse_case(" ".join([CASE.format(ranks=ranks, name=name), *(f"{n}={v}" for n, v in settings.items())])),
        1,
        QUICK,
        timeout_s,
    )
    registry.registered.cache_clear()


# In the environment of every rank of these tests: others may measure on the same machine.
MARK = f"DEEPBENCH_TEST_MARK={os.getpid()}"


@pytest.fixture(autouse=True)
def _marked(monkeypatch):
    monkeypatch.setenv(*MARK.split("="))


def ranks_left():
    """Processes of our ranks that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            ours = MARK.encode() in path.with_name("environ").read_bytes()
            if ours and b"deepbench.measuring.group.rank" in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


ENDINGS = {
    "grouphonest": ("ok", None),
    "groupprinter": ("ok", None),
    "groupdier": ("crashed", "rank 1 on {host} ended during: measure, killed by SIGKILL"),
    "groupleaver": ("crashed", "rank 1 on {host} ended during: measure, exit code 7"),
    "grouphungry": ("out_of_memory", "rank 1 on {host}: unable to allocate 9 TiB"),
    "grouprefuser": ("unsupported", "rank 1 on {host}: no network here"),
    "groupabsent": ("crashed", "rank 1 on {host} ended during: start, killed by SIGSEGV"),
    "groupwrong": ("wrong", "rank 1 received every element of integer data: found"),
    "groupstale": ("wrong", "after timing, rank 0 received every element: found NaN or infinity"),
    "grouparrival": ("wrong", "not deterministic: call 2: rank 0 has other bits than after call 1"),
    "groupselfish": ("wrong", "not deterministic: call 1: rank 1 has other bits than rank 0"),
}


@pytest.mark.parametrize(("liar", "status", "reason"), [(k, *v) for k, v in ENDINGS.items()])
def test_a_group_ends_in_its_status(group_liar, liar, status, reason):
    host = os.uname().nodename
    if liar == "grouparrival":  # whether two calls meet the same order is chance
        record = next(r for r in (group_liar(liar, 4) for _ in range(5)) if r["status"] != "ok")
        reason = "has other bits than after call 1"
    else:
        record = group_liar(liar)

    assert status == record["status"], record["reason"]
    assert record["reason"] == reason or reason.format(host=host) in record["reason"], record["reason"]
    assert [] == ranks_left()


def test_a_group_that_leaves_out_one_call_in_six_is_found(group_liar, monkeypatch):
    monkeypatch.setattr(f"{__name__}.QUICK", replace(QUICK, least_s=0.2, most_s=0.4))
    record = group_liar("groupeverysixth")

    assert "wrong" == record["status"]
    assert "not deterministic: call" in record["reason"] or "after timing" in record["reason"]


@pytest.mark.parametrize("liar", ["groupstopper", "grouphanger"])
def test_a_rank_that_hangs_is_named_and_ended(group_liar, liar):
    start = time.monotonic()
    record = group_liar(liar, timeout_s=2.0)

    assert "timeout" == record["status"]
    wanted = f"no sign of life for 2 s, waiting for rank 1 on {os.uname().nodename}, during: measure"
    assert wanted in record["reason"]
    assert time.monotonic() - start < 20
    assert [] == ranks_left()


def test_what_an_honest_group_says(group_liar):
    record = group_liar("grouphonest")
    group = record["group"]

    assert "yes" == group["deterministic"]
    assert {os.uname().nodename: 3} == group["hosts"]
    assert 32 == len(group["hash"])
    (seen,) = group["interconnect"].values()
    assert {"numa_nodes", "networks_mbit_per_s", "infiniband"} == set(seen)
    assert record["check"]["after"]["covers"] == record["check"]["after"]["of"] == 40
    assert 4 / 3 == pytest.approx(record["notes"]["bus_factor"])
    assert 3 * 160 == record["notes"]["original_bytes"]
    assert record["measurement"]["samples_s"]


def test_equal_work_has_equal_bits(group_liar):
    assert group_liar("grouphonest")["group"]["hash"] == group_liar("grouphonest")["group"]["hash"]


def test_a_group_of_another_size_is_refused(group_liar, monkeypatch, tmp_path):
    """A launcher of another MPI starts so many groups of one rank each."""
    from tests.help.group_liars import GroupLiar

    words = ["env", "PMI_RANK=0", "PMI_SIZE=1"]
    monkeypatch.setattr("tests.help.group_liars.GroupLiar.launcher", lambda self, ranks, hosts: words)
    assert GroupLiar.launcher(None, 3, []) == words
    record = group_liar("grouphonest")

    assert "unavailable" == record["status"]
    assert "the launcher started groups of 1 ranks, wanted 3; does it belong to another MPI?" == record["reason"]


def test_a_launcher_that_fails_is_told(group_liar, monkeypatch):
    words = ["sh", "-c", "echo no such host >&2; exit 9"]
    monkeypatch.setattr("tests.help.group_liars.GroupLiar.launcher", lambda self, ranks, hosts: words)
    record = group_liar("grouphonest")

    assert "crashed" == record["status"]
    assert "the launcher ended, exit code 9, last output: no such host" == record["reason"]


@pytest.mark.process
def test_ranks_end_when_the_parent_is_killed(plugins, deepbench, tmp_path):
    import signal
    import subprocess
    import sys

    from tests.conftest import ROOT

    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": str(plugins)}
    words = ["run", "--timeout", "60", "--backend", "grouphanger", "-o", "out.jsonl"]
    parent = subprocess.Popen(
        [sys.executable, "-m", "deepbench", *words, "all_reduce n=40 ranks=3"],
        cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    _until(lambda: len(ranks_left()) == 3)
    time.sleep(1.0)
    parent.send_signal(signal.SIGKILL)
    parent.wait()

    _until(lambda: ranks_left() == [])


def _until(condition, most_s=20.0):
    end = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.fixture
def bothered(monkeypatch):
    """Strangers that connect to every coordinator as soon as it listens; each is called with its address again."""
    stop, strangers = threading.Event(), []

    def bother_with(*callers):
        real = parent.Coordinator._start

        def start(self, shared):
            host, port, _ = shared[link.COORDINATOR].split(":")
            address = host, int(port)

            def bother(caller):
                while not stop.is_set():
                    with contextlib.suppress(OSError):  # the coordinator closes the connection
                        caller(address, stop)
                    stop.wait(0.01)

            strangers.extend(threading.Thread(target=bother, args=[caller]) for caller in callers)
            for stranger in strangers:
                stranger.start()
            stop.wait(0.2)  # they come first
            real(self, shared)

        monkeypatch.setattr(parent.Coordinator, "_start", start)

    yield bother_with
    stop.set()
    for stranger in strangers:
        stranger.join()


def talker(address, stop):
    """Says nonsense."""
    for text in (b"{}\n", b'{"hello": 1}\n', b'{"hello": {"token": "x", "rank": 0}}\n', b"\xff\xfe\n", b""):
        with socket.create_connection(address, timeout=1.0) as line:
            line.sendall(text)
            stop.wait(0.02)


def dripper(address, stop):
    """Sends one byte at a time."""
    with socket.create_connection(address, timeout=1.0) as line:
        while not stop.wait(0.05):
            line.sendall(b"x")


def flooder(address, stop):
    """Sends without end and without a newline."""
    with socket.create_connection(address, timeout=1.0) as line:
        while not stop.is_set():
            line.sendall(bytes(2**20))


def crowd(address, stop):
    """Opens a hundred connections at a time, and stays."""
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(address, timeout=1.0))
        stop.wait(0.5)


def test_strangers_do_no_harm(group_liar, bothered):
    """Whatever connects is sent away, and the group goes on."""
    bothered(talker, dripper, flooder, crowd)
    record = group_liar("grouphonest")

    assert ("ok", None) == (record["status"], record["reason"])


def test_strangers_do_not_extend_the_time_out(group_liar, bothered):
    bothered(talker, dripper, flooder, crowd)
    start = time.monotonic()
    record = group_liar("grouphanger", timeout_s=3.0)

    assert "timeout" == record["status"]
    assert f"no sign of life for 3 s, waiting for rank 1 on {os.uname().nodename}" in record["reason"]
    assert time.monotonic() - start < 20
    assert [] == ranks_left()


def test_strangers_do_not_hide_that_a_launcher_has_failed(group_liar, bothered, monkeypatch):
    bothered(talker, crowd)
    words = ["sh", "-c", "echo no such host >&2; exit 9"]
    monkeypatch.setattr("tests.help.group_liars.GroupLiar.launcher", lambda self, ranks, hosts: words)
    start = time.monotonic()
    record = group_liar("grouphonest", timeout_s=60.0)

    assert "the launcher ended, exit code 9, last output: no such host" == record["reason"]
    assert time.monotonic() - start < 20


def test_the_memory_that_strangers_take_is_bounded(group_liar, bothered, monkeypatch):
    """What they send is not even read."""
    most_open, accept = [0], wire.Listener.accept

    def counted(self):
        connection = accept(self)
        most_open.append(len(self._deadlines))
        return connection

    monkeypatch.setattr(wire.Listener, "accept", counted)
    bothered(flooder, flooder, crowd)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    record = group_liar("grouphonest")

    assert "ok" == record["status"], record["reason"]
    assert wire.MOST_STRANGERS / 2 < max(most_open) <= 3 + wire.MOST_STRANGERS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 20_000


def test_a_launchers_variables_around_us_are_not_those_of_our_ranks(group_liar, monkeypatch):
    """As in a pod that a scheduler of PyTorch jobs has started."""
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "OMPI_COMM_WORLD_RANK": "0",
        "OMPI_COMM_WORLD_SIZE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    words = ["sh", "-c", 'for r in 0 1 2; do PMI_RANK=$r PMI_SIZE=3 "$@" & done; wait', "sh"]
    monkeypatch.setattr("tests.help.group_liars.GroupLiar.launcher", lambda self, ranks, hosts: words)
    record = group_liar("grouphonest")

    assert ("ok", None) == (record["status"], record["reason"])
    assert "hydra" == record["group"]["launcher"]


def test_a_rank_that_never_connects_is_not_waited_for_so_long(group_liar, monkeypatch):
    monkeypatch.setattr(link, "CONNECT_S", 1.0)
    words = ["sh", "-c", 'echo no module here >&2; PMI_RANK=0 PMI_SIZE=3 "$@"', "sh"]
    monkeypatch.setattr("tests.help.group_liars.GroupLiar.launcher", lambda self, ranks, hosts: words)
    start = time.monotonic()
    record = group_liar("grouphonest", timeout_s=60.0)

    assert "timeout" == record["status"]
    assert "waiting for rank 1, which has not connected, last output: no module here" in record["reason"]
    assert time.monotonic() - start < 20


def test_a_group_that_cannot_listen_is_a_record(group_liar, monkeypatch):
    monkeypatch.setattr(parent, "reachable_address", lambda hosts: "192.0.2.1")
    record = group_liar("grouphonest")

    assert "crashed" == record["status"]
    assert "cannot start a group from 192.0.2.1" in record["reason"]


def test_ranks_that_print_for_ever_are_ended(group_liar, monkeypatch):
    monkeypatch.setattr(process, "LARGEST_OUTPUT_BYTES", 2**20)
    record = group_liar("groupprinter")

    assert ("crashed", "the ranks printed more than 1048576 bytes") == (record["status"], record["reason"])
    assert [] == ranks_left()


@pytest.mark.alone  # on a busy machine a heat ends before its last slice
def test_groups_take_turns_in_a_heat_and_one_that_fails_leaves_it(group_liar):
    names = ("grouphonest", "grouphonest", "groupwrong", "grouprefuser")
    rivals = [Rival(parse_case(CASE.format(ranks=2, name=name))) for name in names]
    one, other, wrong, refuser = measure_heat(rivals, 1, QUICK, 20.0)

    assert ["ok", "ok"] == [one["status"], other["status"]], (one["reason"], other["reason"])
    assert ["wrong", "unsupported"] == [wrong["status"], refuser["status"]]
    assert one["heat"]["id"] == other["heat"]["id"]
    assert len(set(one["measurement"]["slices"])) >= QUICK.least_slices
    assert 1 == len(log_ratios([one], [other]))
    assert [] == ranks_left()


@pytest.mark.process
def test_ranks_that_wait_for_their_turn_sleep(group_liar, monkeypatch):
    """They wait for longer than the time-out of the case, and use no CPU meanwhile."""
    used_s, real = [], parent.Coordinator.ask

    def ask(self, message, answers, timeout_s):
        if message.get("slice") == 0:
            before = [cpu_s(pid) for pid in ranks_left()]
            time.sleep(3.0)
            used_s.extend(now - then for now, then in zip([cpu_s(p) for p in ranks_left()], before, strict=True))
        return real(self, message, answers, timeout_s)

    monkeypatch.setattr(parent.Coordinator, "ask", ask)
    record = group_liar("grouphonest", 2, timeout_s=2.0)

    assert "ok" == record["status"], record["reason"]
    assert 2 == len(used_s)
    assert max(used_s) < 0.5


def cpu_s(pid):
    """CPU seconds that a process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
