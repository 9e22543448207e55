"""What all tests share: the command in a subprocess, and result files made by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# What keeps the default run under six minutes on two cores.
long = pytest.mark.skipif(not os.environ.get("DEEPBENCH_TEST_HOSTS"), reason="long tests are opt-in: make test-hosts")


@pytest.fixture(scope="session", autouse=True)
def _own_memory(tmp_path_factory):
    """Tests neither use nor change what is remembered of this machine."""
    os.environ["DEEPBENCH_STATE"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture
def deepbench(tmp_path):
    """Run the command in an empty folder; returns the finished process with text output."""

    def run(*words, timeout=120, **environment):
        env = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "DEEPBENCH_PLUGINS")}
        env |= {"PYTHONPATH": str(ROOT), **environment}
        return subprocess.run(
            [sys.executable, "-m", "deepbench", *words],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


def lines_of(path):
    """The JSON values of a result file; fails on a line that does not parse."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def records_of(path):
    """Only the records of a result file."""
    return [line for line in lines_of(path) if "case" in line]
