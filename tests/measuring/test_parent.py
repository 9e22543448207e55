"""Measuring from any thread of any program: nothing of the caller's process changes."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from deepbench.core.case import parse_case
from deepbench.measuring.heat import measure_case
from deepbench.measuring.parent import open_backend
from deepbench.plan.modes import QUICK
from tests.conftest import ROOT

pytestmark = pytest.mark.process

CASE = "gemm m=3 n=4 k=5 forward i8 null threads=1"


def state():
    signals = {s: signal.getsignal(s) for s in signal.valid_signals()}
    return dict(os.environ), os.sched_getaffinity(0), signals, os.getcwd(), len(os.listdir("/proc/self/fd"))


def test_measuring_in_a_thread_leaves_the_process_as_it_was():
    before, results = state(), []

    def measure():
        results.append(measure_case(parse_case(CASE), 1, QUICK.rules, 30.0))
        results.append(measure_case(parse_case(CASE.replace("threads", "pin=cores threads")), 1, QUICK.rules, 30.0))
        results.append(open_backend("null", 30.0))

    thread = threading.Thread(target=measure)
    thread.start()
    thread.join(60)

    assert ["unchecked", "unchecked"] == [record["status"] for record in results[:2]], results
    assert "library" in results[2]
    assert before == state()


def test_a_script_needs_no_main_guard_and_no_terminal(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from deepbench.core.case import parse_case\n"
        "from deepbench.measuring.heat import measure_case\n"
        "from deepbench.plan.modes import QUICK\n"
        f"print(measure_case(parse_case({CASE!r}), 1, QUICK.rules, 30.0)['status'])\n"
    )
    (tmp_path / "random.py").write_text("raise SystemExit('a file of the user was imported')\n")
    done = subprocess.run(
        [sys.executable, "-P", str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert "unchecked\n" == done.stdout, done.stderr
