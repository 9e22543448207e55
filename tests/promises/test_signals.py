"""Every signal at every moment of a run: it ends soon, no process stays, nothing measured is lost, and it can go on."""

import itertools
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import NO_LIBRARIES, ROOT, records_of, run_command
from tests.help.processes import processes_in

pytestmark = pytest.mark.programs

# A library that stops at the moment that MOMENT names: it creates the file MARK and then sleeps.
STOPPING = """
import os, time
from pathlib import Path
from deepbench.core.backend import Backend, kernel
from deepbench.core.kernel import Kernel

def stop(moment, number):
    mark = Path(os.environ["DEEPBENCH_TEST_MARK"])
    if os.environ["DEEPBENCH_TEST_MOMENT"] == moment and not mark.exists() and number > 1:
        mark.touch()
        time.sleep(60)

class Stopping(Backend):
    name = "stopping"
    title = "Stopping"
    default = computes = False  # so that no limit is probed, and no other library opened

    def open(self):
        stop("open", 2)
        return {"name": "Stopping", "version": "1", "path": None}

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case, arrays):
        stop("prepare", case.problem.m)
        want = case.problem
        def run():
            stop("call", want.m)
            a = arrays["a"].T if want.a_t else arrays["a"]
            b = arrays["b"].T if want.b_t else arrays["b"]
            arrays["c"][...] += b @ a
        return Kernel(run=run)

BACKEND = Stopping()
"""
CASES = [f"gemm m={m} n=4 k=4 beta=1" for m in (1, 2, 3)]
WORDS = ["run", *CASES, "--backend", "stopping", "--quick", "-o", "out.jsonl"]

SIGNALS = {"SIGINT": 130, "SIGTERM": 130, "SIGHUP": -signal.SIGHUP, "SIGKILL": -signal.SIGKILL}
MOMENTS = ("open", "prepare", "call")

# A run must have ended this long after a signal.
ENDS_WITHIN_S = 5.0


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "backends").mkdir()
    (folder / "backends" / "stopping.py").write_text(STOPPING)
    return folder


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


# `make test` has every moment and the signals that people send, one of them with a Python that is started anew: what it
# prints when it ends is no copy's. `make test-long` has the other combinations, all of them anew.
USUAL = [("SIGINT", "open"), ("SIGTERM", "call"), ("SIGKILL", "call")]
ANEW = [("SIGINT", "prepare")]


def of_lane(pair):
    return [] if pair in USUAL else [pytest.mark.process, *([] if pair in ANEW else [pytest.mark.long])]


@pytest.mark.parametrize(
    ("name", "moment"), [pytest.param(*pair, marks=of_lane(pair)) for pair in itertools.product(SIGNALS, MOMENTS)]
)
def test_a_signal_ends_a_run_and_loses_nothing(tmp_path, plugins, name, moment):
    mark = tmp_path / "mark"
    environment = {
        **{k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"},
        **NO_LIBRARIES,
        "PYTHONPATH": str(ROOT),
        "DEEPBENCH_PLUGINS": str(plugins),
        "DEEPBENCH_TEST_MARK": str(mark),
        "DEEPBENCH_TEST_MOMENT": moment,
    }
    run = subprocess.Popen(
        [sys.executable, "-m", "deepbench", *WORDS],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(mark.exists, 30, f"the library did not reach {moment!r}")
    assert len(processes_in(tmp_path)) > 1  # it and a worker
    os.kill(run.pid, getattr(signal, name))
    begin = time.monotonic()
    _, errors = run.communicate(timeout=30)

    assert time.monotonic() - begin < ENDS_WITHIN_S
    assert run.returncode == SIGNALS[name], errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    wait_until(lambda: not processes_in(tmp_path), 5, "a process is left")
    if moment == "open":  # nothing was measured, so there is no file
        assert not (tmp_path / "out.jsonl").exists()
        return
    settings = {n: environment[n] for n in environment if n.startswith("DEEPBENCH_")}
    done = run_command(tmp_path, "run", "--resume", "-o", "out.jsonl", **settings)
    assert 0 == done.returncode, done.stderr
    measured = [r for r in records_of(tmp_path / "out.jsonl") if r["status"] == "unchecked"]
    assert len(CASES) == len({r["case"] for r in measured}) == len(measured)


def test_sigterm_leaves_no_draft_of_a_data_set(tmp_path):
    """While a package is downloaded, by a program that sleeps."""
    folder, program, mark = tmp_path / "data", tmp_path / "bin" / "apt-get", tmp_path / "mark"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {mark}\nexec sleep 60\n")
    program.chmod(0o755)
    places = {"DEEPBENCH_DATA": str(folder), "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    command = subprocess.Popen(
        [sys.executable, "-m", "deepbench", "data", "gnugo"],
        env={**os.environ, **places},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(mark.exists, 30, "nothing is downloaded")
    assert 1 == len(list(folder.iterdir()))
    command.terminate()
    _, errors = command.communicate(timeout=30)

    assert (130, "deepbench: interrupted") == (command.returncode, errors.splitlines()[-1])
    assert [] == list(folder.iterdir())
