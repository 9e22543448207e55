"""Shared by all tests: opt-in markers, the command in a subprocess, and the lines of result files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest

from deepbench.measuring import process as measuring_process
from tests.help import fork_server

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
    """Run `deepbench` in `folder`; returns the finished process with text output.

    The fork server runs it, except in tests with the marker `process`.
    """
    env = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "DEEPBENCH_PLUGINS")}
    env |= {"PYTHONPATH": str(ROOT), **environment}
    early = {"PYTHONPATH", *fork_server.EARLY_VARIABLES} & set(environment)
    if server.path is None or server.is_off or early:
        return subprocess.run(
            [sys.executable, "-m", "deepbench", *words],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as nothing:
        descriptors = [nothing.fileno(), out.fileno(), err.fileno()]
        command = fork_server.Forked(
            server.path,
            "deepbench.__main__",
            list(map(str, words)),
            folder=folder,
            environment=env,
            descriptors=descriptors,
        )
        try:
            code = command.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(command.pid, signal.SIGKILL)
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
    return subprocess.CompletedProcess(["deepbench", *words], code, *texts)


class Server:
    """The fork server of these tests."""

    path = None
    is_off = False
    """Whether the present test needs real processes."""


server = Server()


@pytest.fixture(scope="session", autouse=True)
def _fork_server(_private_state, tmp_path_factory):
    """A process that has imported the package, and forks commands and workers."""
    path = str(tmp_path_factory.mktemp("fork") / "server")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.help.fork_server", path, str(os.getpid())]
    process = subprocess.Popen(command, cwd=ROOT, env=env)
    deadline = time.monotonic() + 60
    while not os.path.exists(path):
        assert process.poll() is None, "the fork server has ended"
        assert time.monotonic() < deadline, "the fork server does not start"
        time.sleep(0.01)
    server.path = path
    yield
    server.path = None
    process.kill()
    process.wait()


@pytest.fixture(autouse=True)
def _forked_workers(request, monkeypatch):
    """Workers that the test itself starts come from the fork server, except with the marker `process`."""
    server.is_off = request.node.get_closest_marker("process") is not None
    if not server.is_off:
        popen = fork_server.forking(server.path)
        monkeypatch.setattr(measuring_process, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen}))


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
