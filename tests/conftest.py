"""Shared by all tests: opt-in markers, the command in a subprocess, and the lines of result files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).parent.parent

# Tests with these markers run only if the expression after pytest's -m names the marker.
OPT_IN = {name: f"make test-{name}" for name in ("long", "hosts", "browser", "wheel", "applications")}

# With these variables the three default libraries are missing. A run then has no peak to probe, which saves seconds.
NO_LIBRARIES = {f"DEEPBENCH_{name}_PATH": "/no/such/library.so" for name in ("MKL", "ONEDNN", "OPENBLAS")}

# The first example may import modules or wait for another program: how long an example takes is not tested.
hypothesis.settings.register_profile("deepbench", deadline=None)
hypothesis.settings.load_profile("deepbench")

# Tests start hundreds of processes. Without byte code each of them would compile the program anew, for 0.2 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_modifyitems(config, items):
    """Skip opt-in tests that were not requested, and say how to request them."""
    requested = set(re.findall(r"\w+", config.option.markexpr))
    for item in items:
        for marker in OPT_IN.keys() - requested:
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"opt-in: {OPT_IN[marker]}, or pytest -m {marker}"))


@pytest.fixture(scope="session", autouse=True)
def _private_state(tmp_path_factory):
    """Tests neither read nor change what DeepBench remembers about this machine."""
    os.environ["DEEPBENCH_STATE"] = str(tmp_path_factory.mktemp("state"))


def run_command(folder, *words, timeout=120, **environment):
    """Run `deepbench` in `folder`; returns the finished process with text output."""
    env = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "DEEPBENCH_PLUGINS")}
    return subprocess.run(
        [sys.executable, "-m", "deepbench", *words],
        cwd=folder,
        env=env | {"PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.fixture
def deepbench(tmp_path):
    """`run_command` in an empty folder."""
    return lambda *words, **options: run_command(tmp_path, *words, **options)


def lines_of(path):
    """The JSON values of a result file without checksums; fails on a line that does not parse."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in ("crc32", "checksums")} for line in lines]


def records_of(path):
    """Only the records of a result file."""
    return [line for line in lines_of(path) if "case" in line]
