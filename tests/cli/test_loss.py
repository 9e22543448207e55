"""kill -9 of the run or of a worker: nothing measured is lost, nothing is left running."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, long, records_of

WORDS = ["run", "deepbench/device", "--op", "gemm", "--backend", "null", "--quick", "-o", "out.jsonl"]


def start(folder):
    return subprocess.Popen(
        [sys.executable, "-m", "deepbench", *WORDS],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def workers_of(pid):
    """Worker processes whose parent is, or was, this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes()
        except OSError:
            continue
        if f"DEEPBENCH_PARENT={pid}".encode() in environment.split(b"\0"):
            found.append(int(path.name))
    return found


@long
@pytest.mark.parametrize("moment", range(1))
def test_kill_of_the_run_loses_at_most_the_case_in_flight(deepbench, tmp_path, moment):
    path = tmp_path / "out.jsonl"
    process = start(tmp_path)
    while not path.exists():
        assert process.poll() is None, "it ended before it began"
        time.sleep(0.01)
    time.sleep(random.uniform(0.1, 3))
    process.kill()
    process.wait()
    time.sleep(0.3)

    assert [] == workers_of(process.pid)
    whole = [r["case"] for r in records_of_possibly_torn(path)]
    done = deepbench("run", "--resume", "-o", "out.jsonl")
    assert 0 == done.returncode, done.stderr
    cases = [r["case"] for r in records_of(path)]
    assert whole == cases[: len(whole)]
    assert 13 == len(set(cases)) == len(cases)


@long
def test_kill_of_a_worker_is_a_record_and_the_run_goes_on(deepbench, tmp_path):
    process = start(tmp_path)
    killed = False
    while process.poll() is None:
        workers = workers_of(process.pid) if (tmp_path / "out.jsonl").exists() else []
        if workers and not killed:
            time.sleep(0.1)
            try:
                os.kill(workers[0], signal.SIGKILL)
                killed = True
            except ProcessLookupError:
                pass  # it had just ended
        time.sleep(0.01)

    records = records_of(tmp_path / "out.jsonl")
    assert 13 == len(records)
    assert killed
    reasons = [r["reason"] for r in records if r["status"] == "crashed"]
    assert len(reasons) <= 1
    assert all("SIGKILL" in reason for reason in reasons)


def records_of_possibly_torn(path):
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    path_of_whole = path.with_suffix(".whole")
    path_of_whole.write_bytes(whole + b"\n")
    return records_of(path_of_whole)
