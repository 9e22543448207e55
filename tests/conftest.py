"""Shared by all tests: lanes and their rules, opt-in markers, the command, and the lines of result files."""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

# NumPy's library starts its threads when it is loaded. Small products are faster without, and tests run side by side.
_threads = os.environ.get("OPENBLAS_NUM_THREADS")
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy  # noqa: E402, F401

if _threads is None:
    del os.environ["OPENBLAS_NUM_THREADS"]
else:
    os.environ["OPENBLAS_NUM_THREADS"] = _threads

import hypothesis  # noqa: E402
import pytest  # noqa: E402

from deepbench.machine.system import emulator  # noqa: E402
from tests.help import fork_server  # noqa: E402

ROOT = Path(__file__).parent.parent

# Tests with these markers run only if the expression after pytest's -m names the marker.
OPT_IN = {
    name: f"make test-{name}" for name in ("long", "hosts", "slurm", "browser", "wheel", "simulators", "applications")
}

# With these variables the four default libraries are missing. A run then has no peak to probe, which saves seconds.
NO_LIBRARIES = {f"DEEPBENCH_{name}_PATH": "/no/such/library.so" for name in ("AOCL", "MKL", "ONEDNN", "OPENBLAS")}

# The first example may import modules or wait for another program: how long an example takes is not tested.
# Emulated, everything takes about thirty times as long, and what depends on the processor are the libraries.
EMULATED = emulator() is not None
hypothesis.settings.register_profile("deepbench", deadline=None, max_examples=5 if EMULATED else 100)
hypothesis.settings.load_profile("deepbench")

# What a test may use without the marker `costly`, of this process and its children, or twice what is kept of it. CPU
# seconds, because on a busy machine every test takes long.
MOST_CPU_S = 5.0 if not EMULATED else 1000.0

# How long tests took, written by `pytest --keep-durations`. Files that take long start first. Reviews see its growth.
DURATIONS = Path(__file__).parent / "durations.json"
LEAST_KEPT_S = 0.2
_kept: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}

# A shell may ignore signals, and whatever it starts then does too. Tests send them.
for _number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.pthread_sigmask(signal.SIG_SETMASK, [])

# Without byte code, every process compiles the program anew, for 0.2 s, and every worker all tests, for 10 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser):
    parser.addoption("--keep-durations", action="store_true", help=f"write CPU seconds to {DURATIONS.name}")


def pytest_ignore_collect(collection_path, config):
    """A lane of few files imports only those: the others name its marker nowhere."""
    of_few = config.option.markexpr in ("alone", *OPT_IN) and collection_path.name.startswith("test_")
    return True if of_few and f"mark.{config.option.markexpr}" not in collection_path.read_text() else None


def pytest_collection_modifyitems(config, items):
    """Skip opt-in tests that were not requested, and say how to request them. Files that take long come first."""
    if EMULATED:
        # NumPy warns of it after right products, because BLAS kernels that use SME leave the flags behind.
        config.addinivalue_line("filterwarnings", "ignore:.* encountered in matmul:RuntimeWarning")
    requested = set(re.findall(r"\w+", config.option.markexpr))
    for item in items:
        for marker in OPT_IN.keys() - requested:
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"opt-in: {OPT_IN[marker]}, or pytest -m {marker}"))
        if item.path.parent.name == "backends" and re.search("torch|gloo", item.name):
            item.add_marker("torch")
    of_file = Counter()
    for name, cpu_s in _kept.items():
        of_file[name.partition("::")[0]] += cpu_s
    items.sort(key=lambda item: -of_file[item.nodeid.partition("::")[0]])


_started: list[str] = []
"""Programs that the current test has started in the usual way, without the fork server."""


def _watch(event, arguments):
    # (`ctypes.util.find_library` of Python starts ldconfig, and Matplotlib starts fc-list once on a new machine.)
    is_usual = any(name in str(arguments[:1]) for name in ("ldconfig", "fc-list"))
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec") and not is_usual:
        _started.append(f"{event} {arguments[:2]!r:.200}")


sys.addaudithook(_watch)


def _cpu_s():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Keep what a test uses together with its fixtures."""
    before = _cpu_s()
    yield
    _durations[item.nodeid] = _cpu_s() - before
    return True


_durations: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """A test that starts programs or uses much CPU time says so with a marker, or fails."""
    is_free = any(map(item.get_closest_marker, ("process", "programs", "alone", *OPT_IN)))
    # It asks the kernel for what emulators refuse.
    fork_server.is_on = not EMULATED and not item.get_closest_marker("process")
    _started.clear()
    before = _cpu_s()
    try:
        result = yield
    finally:
        fork_server.is_on = not EMULATED
    used_s = _cpu_s() - before
    if _started and not is_free and not EMULATED:
        pytest.fail(f"starts a program without @pytest.mark.programs: {_started[0]}", pytrace=False)
    most_s = max(MOST_CPU_S, 2 * _kept.get(item.nodeid, 0.0))
    if _kept and used_s > most_s and not is_free and not item.get_closest_marker("costly"):
        pytest.fail(f"uses {used_s:.1f} CPU seconds without @pytest.mark.costly", pytrace=False)
    return result


def pytest_sessionfinish(session):
    """Hand the durations to the process that writes them."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["durations"] = _durations
    elif config.option.keep_durations:
        # Of files that ran, what is not there any more goes. With -m, tests of the same files did not run.
        ran = {name.partition("::")[0] for name in _durations} if not config.option.markexpr else set()
        kept = {name: s for name, s in _kept.items() if name.partition("::")[0] not in ran}
        kept |= {name: round(s, 1) for name, s in _durations.items()}
        kept = {name: s for name, s in sorted(kept.items()) if s >= LEAST_KEPT_S}
        DURATIONS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Gather the durations of the workers of pytest-xdist."""
    _durations.update(getattr(node, "workeroutput", {}).get("durations", {}))


@pytest.fixture(scope="session", autouse=True)
def _private_state(tmp_path_factory):
    """Tests neither read nor change what DeepBench remembers about this machine."""
    os.environ["DEEPBENCH_STATE"] = str(tmp_path_factory.mktemp("state"))
    _remember_limits()


def _remember_limits():
    """As if an earlier run had measured the bandwidth of the memory: probing it takes seconds.

    It is above that of any machine and of its caches, so that no right answer looks impossible.
    """
    from deepbench.machine import describe
    from deepbench.measuring import probes

    machine, now = describe.describe_machine(), datetime.now(UTC).isoformat(timespec="seconds")
    for probe in probes.all_probes({1, 2, os.cpu_count() or 1}, ["loops"], probes.COARSE):
        if probe.what == "memory":
            (case,) = probe.cases
            size, rate = case.operation.traffic_bytes(case), 1e13
            probes.remember(
                machine,
                {
                    "what": "memory",
                    "device": "cpu",
                    "kind": case.problem.kind,
                    "bytes": size // case.problem.passes,
                    "bytes_per_s": rate,
                    "case": case.text,
                    "threads": case.threads,
                    "seconds": size / rate,
                    "at": now,
                    "disturbed": False,
                },
            )


@pytest.fixture(scope="session", autouse=True)
def _fork_server(_private_state):
    """Commands and workers are copies of a process that has imported the package."""
    fork_server.begin()
    yield
    fork_server.end()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """A folder that all processes of these tests share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def made_once(path, make):
    """What `make` returns, as JSON in a file: one of the processes of these tests makes it, and the others read it."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if found := file.read():
            return json.loads(found)
        made = make()
        json.dump(made, file)
        return made


def run_command(folder, *words, timeout=120, **environment):
    """Run `deepbench` in `folder`; returns the finished process with text output."""
    env = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "DEEPBENCH_PLUGINS")}
    return subprocess.run(
        [sys.executable, "-m", "deepbench", *words],
        cwd=folder,
        env=env | {"PYTHONPATH": str(ROOT), "COLUMNS": "400", **environment},
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


@pytest.fixture(scope="session")
def _null_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("null")
    words = ("run", "gemm m=3 n=4 k=5", "gemm m=6 n=7 k=8", "--backend", "null", "--quick", "-o", "out.jsonl")
    done = run_command(folder, *words)
    assert 0 == done.returncode, done.stderr
    return folder / "out.jsonl"


@pytest.fixture
def null_file(_null_file, tmp_path):
    """`out.jsonl`: two matrix products on `null`, one round. Complete, so that resuming it measures nothing."""
    return shutil.copy(_null_file, tmp_path / "out.jsonl")
