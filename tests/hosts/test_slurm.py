"""Fleets on a Slurm cluster of simulated hosts: nodes that fail in every way, and near ends that end in every way."""

import hashlib
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import NO_LIBRARIES, ROOT, lines_of
from tests.hosts.slurm import SlurmLab, command_line, missing, until

pytestmark = pytest.mark.slurm

CASE = "gemm m=33 n=17 k=9 i8 own threads=1"

# A library that waits in every call, as long as a variable says, and longer on one host. Its version names its host.
LIBRARY = f"""
import hashlib, os, socket, sys, time
sys.path.insert(0, {str(ROOT)!r})
from tests.help.liars import Honest

class Own(Honest):
    name = title = "own"

    def open(self):
        large = "".join(v for n, v in sorted(os.environ.items()) if n.startswith("DEEPBENCH_TEST_LARGE"))
        line = "x" * int(os.environ.get("DEEPBENCH_TEST_LINE", 0))
        text = hashlib.sha256(large.encode()).hexdigest() if large else line
        return {{"name": self.name, "version": f"{{socket.gethostname()}} {{text}}", "path": None}}

    def execute(self, case, arrays):
        super().execute(case, arrays)
        slowed = socket.gethostname() == os.environ.get("DEEPBENCH_TEST_SLOWED")
        time.sleep(float(os.environ.get("DEEPBENCH_TEST_SLEEP_S", 0)) * (2 if slowed else 1))

BACKEND = Own()
"""

# However a command ends, what it has started on any node is gone after this time.
GONE_S = 20


@pytest.fixture(scope="module")
def _cluster():
    if reason := missing():
        pytest.skip(reason)
    with SlurmLab() as cluster:
        (cluster.folder / "plugins" / "backends").mkdir(parents=True)
        (cluster.folder / "plugins" / "backends" / "own.py").write_text(LIBRARY)
        yield cluster


@pytest.fixture
def cluster(_cluster):
    """Four idle nodes, and no file of an earlier test."""
    _cluster.reset()
    for path in _cluster.folder.glob("fleet*"):
        path.unlink()
    return _cluster


@pytest.fixture
def fleet(cluster):
    """Start `deepbench fleet` on the first node, on the nodes of an allocation."""
    started = []

    def start(*words, before=(), **environment):
        command = [*before, sys.executable, "-m", "deepbench", "fleet", *words]
        known = {"PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": str(cluster.folder / "plugins"), "COLUMNS": "400"}
        started.append(cluster.start(command, **NO_LIBRARIES, **known, **environment))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:  # the test has failed; salloc would leave its command behind
            for pid in [pid for pid, line in cluster.started().items() if " deepbench fleet " in line]:
                os.kill(pid, signal.SIGKILL)
            process.kill()
        process.communicate()
    until(lambda: not cluster.started(), GONE_S + 20, "nothing is left", lambda: str(cluster.started()))


WORDS = (CASE, "--quick", "--links", "none", "-o", "fleet.jsonl")
SALLOC = ("salloc", "--quiet", "--exclusive", "--no-kill", "-N4")


def finish(process, most_s=180):
    """The output of a command that has to end by itself."""
    text = process.communicate(timeout=most_s)[0]
    assert "Traceback" not in text, text
    return text


def statuses(cluster, name="fleet.jsonl"):
    """The statuses of each host over the runs, in their order."""
    found = {}
    for line in sorted(lines_of(cluster.folder / name)[1:], key=lambda line: line["run"]):
        found.setdefault(line["host"], []).append(line["status"])
    return found


def reasons(cluster, host):
    return [line["reason"] for line in lines_of(cluster.folder / "fleet.jsonl")[1:] if line["host"] == host]


def versions(cluster, name="fleet.jsonl"):
    """What the library has told, by host."""
    lines = [line for line in lines_of(cluster.folder / name)[1:] if line["status"] == "ok"]
    return {line["host"]: line["lines"][0]["libraries"]["own"]["library"]["version"] for line in lines}


def measuring(cluster):
    """The process numbers of the commands that measure, on all nodes together."""
    return [pid for pid, line in cluster.started().items() if " run gemm " in line and "multiprocessing" not in line]


def wait_until_measuring(cluster, count=4):
    until(lambda: len(measuring(cluster)) >= count, 60, "all nodes measure", lambda: str(cluster.started()))


def test_four_healthy_nodes(cluster, fleet):
    process = fleet(*WORDS, "--runs", "2", before=SALLOC)
    text = finish(process)

    assert {name: ["ok", "ok"] for name in cluster.names} == statuses(cluster), text
    # Each node has measured, and not the first one four times.
    assert {name: f"{name} " for name in cluster.names} == versions(cluster)
    assert 1 != process.returncode, text


def test_a_node_whose_slurmd_is_killed(cluster, fleet):
    """Its step goes on, and the next run does not reach it."""
    process = fleet(*WORDS, "--runs", "3", "--wait", "20", before=SALLOC, DEEPBENCH_TEST_SLEEP_S="0.2")
    wait_until_measuring(cluster)
    cluster.kill_slurmd("h2")
    text = finish(process)

    found = statuses(cluster)
    assert {name: ["ok"] * 3 for name in ("h0", "h1", "h3")} == {n: s for n, s in found.items() if n != "h2"}, text
    assert "missing" == found["h2"][-1], text
    assert 1 == process.returncode
    assert "h2 " in text


def test_a_node_whose_link_is_cut(cluster, fleet):
    process = fleet(*WORDS, "--runs", "2", "--wait", "10", before=SALLOC, DEEPBENCH_TEST_SLEEP_S="0.2")
    wait_until_measuring(cluster)
    start = time.monotonic()
    cluster.cut("h3")
    text = finish(process)

    found = statuses(cluster)
    assert {name: ["ok", "ok"] for name in ("h0", "h1", "h2")} == {n: s for n, s in found.items() if n != "h3"}, text
    assert "failed" == found["h3"][0], text
    assert time.monotonic() - start < 75
    assert 1 == process.returncode
    # What measured there has heard nothing, and has ended. Slurm's own process waits until it can tell that.
    left = set(cluster.started().values())
    assert [] == [line for line in left if not line.startswith("slurmstepd")]
    cluster.cut("h3", back=True)


def ends_by_kill(cluster, process, job):
    process.kill()


def ends_by_signal(cluster, process, job):
    process.terminate()


def ends_with_its_job(cluster, process, job):
    cluster.run("scancel", job)


@pytest.mark.parametrize("end", [ends_by_kill, ends_by_signal, ends_with_its_job])
def test_everything_ends_with_the_near_end(cluster, fleet, end):
    """The allocation stays where it is not cancelled: nothing but the near end can end its steps."""
    job = cluster.allocate("h[0-3]")
    process = fleet(*WORDS, "--runs", "1", DEEPBENCH_TEST_SLEEP_S="5", **job)
    wait_until_measuring(cluster)
    end(cluster, process, job["SLURM_JOB_ID"])
    took_s = until(lambda: not cluster.started(), GONE_S, "nothing is left", lambda: str(cluster.started()))

    print(f"{end.__name__}: gone after {took_s:.1f} s")
    text = finish(process)
    expected = {ends_by_kill: -signal.SIGKILL, ends_by_signal: 130, ends_with_its_job: 1}[end]
    assert expected == process.returncode, text
    if end is not ends_with_its_job:
        assert [job["SLURM_JOB_ID"]] == cluster.jobs()


def test_a_step_that_ignores_sigterm(cluster, fleet):
    """What runs there instead of Python never answers, and takes no notice of the end of its input."""
    stubborn = cluster.folder / "fleet-python"
    stubborn.write_text(
        f'#!/bin/sh\n[ "$(hostname)" = h1 ] && {{ trap "" TERM INT HUP; while :; do sleep 1; done; }}\n'
        f'exec {sys.executable} "$@"\n'
    )
    stubborn.chmod(0o755)
    words = ("--runs", "1", "--wait", "8", "--python", str(stubborn))
    process = fleet(*WORDS, *words, **cluster.allocate("h[0-3]"))
    text = finish(process)
    until(lambda: not cluster.started(), GONE_S, "nothing is left", lambda: str(cluster.started()))

    assert {"h0": ["ok"], "h1": ["missing"], "h2": ["ok"], "h3": ["ok"]} == statuses(cluster), text
    assert ["no sign of life for 8 s"] == [reason.partition(",")[0] for reason in reasons(cluster, "h1")]


def test_a_large_environment_and_a_long_line(cluster, fleet):
    """200 kB of variables reach the library; each node returns a line of 5 MB."""
    large = {"DEEPBENCH_TEST_LARGE1": "a" * 100_000, "DEEPBENCH_TEST_LARGE2": "b" * 100_000}
    process = fleet(*WORDS, "--runs", "1", before=SALLOC, **large)
    text = finish(process)

    assert {name: ["ok"] for name in cluster.names} == statuses(cluster), text
    digest = hashlib.sha256("".join(large.values()).encode()).hexdigest()
    assert {name: f"{name} {digest}" for name in cluster.names} == versions(cluster)

    words = (*WORDS[:-1], "fleet-long.jsonl", "--runs", "1")
    process = fleet(*words, before=SALLOC, DEEPBENCH_TEST_LINE=str(5 * 10**6))
    text = finish(process)

    assert {name: ["ok"] for name in cluster.names} == statuses(cluster, "fleet-long.jsonl"), text[-2000:]
    found = versions(cluster, "fleet-long.jsonl")
    assert {name: f"{name} {'x' * 5 * 10**6}" for name in cluster.names} == found  # nothing is lost or mixed


def test_a_drained_node_is_named(cluster, fleet):
    """It is in the list of hosts, and not in the allocation."""
    cluster.run("scontrol", "update", "nodename=h3", "state=drain", "reason=test")
    job = cluster.allocate("h[0-2]")
    process = fleet(*WORDS, "--runs", "1", "--hosts", ",".join(cluster.names), **job)
    text = finish(process)

    assert {"h0": ["ok"], "h1": ["ok"], "h2": ["ok"], "h3": ["missing"]} == statuses(cluster), text
    assert "h3 returned no result" in text
    assert 1 == process.returncode


def test_a_slowed_node_is_named_and_can_be_drained(cluster, fleet):
    """It takes twice as long, to be found on a busy machine. benchmarks/fleet_slurm.py finds a node at 90 %."""
    slowed = {"DEEPBENCH_TEST_SLEEP_S": "0.1", "DEEPBENCH_TEST_SLOWED": "h2"}
    process = fleet(*WORDS, "--runs", "6", before=SALLOC, **slowed)
    text = finish(process, 240)

    assert 1 == process.returncode, text
    assert ["h2"] == re.findall(r"(h\d) is slow", text), text
    process = fleet("fleet.jsonl", "--drain")  # the file says that Slurm has these hosts
    lines = [line for line in finish(process).splitlines() if line.startswith("scontrol ")]
    assert 1 == len(lines), lines
    assert "idle" == cluster.states()["h2"]  # lines are printed, and not executed
    cluster.run("sh", "-c", lines[0])
    until(lambda: cluster.states()["h2"].startswith("drain"), 10, "h2 is drained", lambda: str(cluster.states()))
    reason = cluster.run("sinfo", "--noheader", "--Node", "--nodes=h2", "--format=%E")
    assert "deepbench" in reason, reason


def test_a_batch_job(cluster, fleet):
    """The script is written, shown and submitted; the file is there when the job has ended."""
    words = (*WORDS, "--runs", "1", "--submit", "--through", "slurm", "--nodes", "4")
    process = fleet(*words)
    text = finish(process)

    assert 0 == process.returncode, text
    script = cluster.folder / "fleet.sbatch"
    assert script.read_text().strip() in text
    until(lambda: not cluster.jobs(), 90, "the job ends", cluster.log)
    printed = (cluster.folder / "fleet.log").read_text()
    assert {name: ["ok"] for name in cluster.names} == statuses(cluster), printed
    assert re.search("^ *h3 .* 1 of 1", finish(fleet("fleet.jsonl")), re.MULTILINE)
    # A script of this name is not replaced.
    (cluster.folder / "fleet.jsonl").unlink()
    process = fleet(*words)
    assert "fleet.sbatch" in finish(process)
    assert 64 == process.returncode
    assert [] == cluster.jobs()


def test_tasks_of_srun_are_told_what_to_do(cluster, fleet):
    process = fleet(*WORDS, before=("srun", "--quiet", "-N4", "--ntasks-per-node=1"))
    text = finish(process)

    assert 0 != process.returncode
    assert "without srun: salloc -N 16 deepbench fleet" in text, text
    assert not (cluster.folder / "fleet.jsonl").exists()


def test_no_variable_of_the_near_end_is_kept_anywhere(cluster, fleet):
    """Not in Slurm's files, and not in the environment of its daemons and tasks, which administrators see."""
    secret, tuning = "oneverysecretword", "anotherlongword"
    variables = {"TOKEN_OF_A_SITE": secret, "DEEPBENCH_TEST_WORD": tuning, "DEEPBENCH_TEST_SLEEP_S": "1"}
    process = fleet(*WORDS, "--runs", "1", **cluster.allocate("h[0-3]"), **variables)
    wait_until_measuring(cluster)
    on_h0 = {pid for pid in cluster.started() if "srun" in command_line(pid)}  # near ends of steps are ours
    seen = {}
    for pid in {*cluster.processes()} - {process.pid} - on_h0:
        try:
            facts = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        seen[command_line(pid)] = [word for word in (secret, tuning) if word.encode() in facts]
    daemons = {line: words for line, words in seen.items() if "slurm" in line}
    assert len([line for line in daemons if "slurmstepd" in line]) >= 4, seen
    assert {line: [] for line in daemons} == daemons
    tasks = {line: words for line, words in seen.items() if "measuring.remote" in line and "slurm" not in line}
    assert len(tasks) >= 1, seen
    assert {line: [] for line in tasks} == tasks
    assert [] == [line for line, words in seen.items() if secret in words]
    assert [tuning] in seen.values()  # the command has it
    for folder, _, names in os.walk(cluster.slurm):
        for path in (Path(folder, name) for name in names):
            if path.is_file():
                content = path.read_bytes()
                assert secret.encode() not in content, path
                assert tuning.encode() not in content, path
    text = finish(process)
    assert {name: ["ok"] for name in cluster.names} == statuses(cluster), text
