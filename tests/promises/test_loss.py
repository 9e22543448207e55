"""After kill -9 of a run or of a worker, no record is lost and no process is left."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT, records_of
from tests.help.processes import processes_in

pytestmark = pytest.mark.programs

CASES = [f"gemm m={m} n=4 k=4" for m in range(1, 8)]
WORDS = ["run", *CASES, "--backend", "null", "--quick", "-o", "out.jsonl"]


def start(folder):
    return subprocess.Popen(
        [sys.executable, "-m", "deepbench", *WORDS],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.process  # a copy would measure everything before it is killed
@pytest.mark.parametrize("attempt", [1, *(pytest.param(i, marks=pytest.mark.long) for i in range(2, 11))])
def test_killing_the_run_loses_at_most_the_case_being_measured(deepbench, tmp_path, attempt):
    """It is killed at a random moment."""
    path = tmp_path / "out.jsonl"
    process = start(tmp_path)
    while not path.exists():
        assert process.poll() is None, "the run ended before it wrote a file"
        time.sleep(0.01)
    time.sleep(random.uniform(0.1, 1.5))
    process.kill()
    process.wait()
    time.sleep(0.3)

    assert [] == processes_in(tmp_path)
    complete = [r["case"] for r in complete_records_of(path)]
    done = deepbench("run", "--resume", "-o", "out.jsonl")
    assert 0 == done.returncode, done.stderr
    cases = [r["case"] for r in records_of(path)]
    assert complete == cases[: len(complete)]
    assert len(CASES) == len(set(cases)) == len(cases)


def test_killing_a_worker_is_recorded_and_the_run_continues(tmp_path):
    process = start(tmp_path)
    killed = False
    while process.poll() is None:
        has_begun = not killed and (tmp_path / "out.jsonl").exists()
        workers = [pid for pid in processes_in(tmp_path) if pid != process.pid] if has_begun else []
        if workers:
            os.kill(workers[0], signal.SIGKILL)
            killed = True
        time.sleep(0.01)

    records = records_of(tmp_path / "out.jsonl")
    assert len(CASES) == len(records)
    (reason,) = [r["reason"] for r in records if r["status"] == "crashed"]
    assert "SIGKILL" in reason


def complete_records_of(path):
    """The records of a file whose last line may be incomplete."""
    complete = path.with_suffix(".complete")
    complete.write_bytes(path.read_bytes().rpartition(b"\n")[0] + b"\n")
    return records_of(complete)
