"""Commands under limits of the system end in a sentence: no traceback, no lost record, no hang."""

import itertools
import os
import resource
import subprocess
import sys

import pytest

from tests.conftest import NO_LIBRARIES, ROOT, records_of

pytestmark = pytest.mark.programs

STORED = ROOT / "tests" / "data" / "quick-epyc-2cores.jsonl"
RUN = ("run", "gemm m=3 n=4 k=5", "gemm m=6 n=7 k=8", "--backend", "null", "--quick", "-o", "out.jsonl")
READING = (("list", "quick"), ("show", str(STORED)), ("compare", str(STORED), str(STORED)))

LIMITS = {
    "5 open files": (resource.RLIMIT_NOFILE, 5),
    "12 open files": (resource.RLIMIT_NOFILE, 12),
    "files of 0 bytes": (resource.RLIMIT_FSIZE, 0),
    "files of 3,000 bytes": (resource.RLIMIT_FSIZE, 3000),
    "150 MiB of memory": (resource.RLIMIT_AS, 150 * 2**20),
    "1 s of CPU time": (resource.RLIMIT_CPU, 1),
}


def run_limited(folder, words, limit=None, **environment):
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | NO_LIBRARIES
    return subprocess.run(
        [sys.executable, "-m", "deepbench", *words],
        cwd=folder,
        env=env | {"PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=None if limit is None else lambda: resource.setrlimit(limit[0], (limit[1], limit[1])),
    )


def ended_well(done):
    """With a documented exit code and without a traceback, or killed by the system."""
    texts = done.stdout + done.stderr
    # Python itself may not start with so little; its own report is not ours.
    started = "deepbench" in texts or not texts.startswith(("Fatal Python error", "Could not find platform"))
    return not started or ("Traceback" not in texts and (done.returncode in (0, 1, 2, 64) or done.returncode < 0))


# Every limit with one of them, every one of them with two limits.
@pytest.mark.parametrize(
    ("name", "words"),
    [*zip(LIMITS, itertools.cycle(READING), strict=False)],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_reading_under_a_limit_ends_in_a_sentence(tmp_path, words, name):
    done = run_limited(tmp_path, words, LIMITS[name])

    assert ended_well(done), done.stderr[-2000:]


@pytest.mark.parametrize("name", LIMITS)
def test_measuring_under_a_limit_ends_in_a_sentence_and_can_go_on(tmp_path, name):
    done = run_limited(tmp_path, RUN, LIMITS[name])

    assert ended_well(done), done.stderr[-2000:]
    path = tmp_path / "out.jsonl"
    if not path.exists():
        return
    before = [r["case"] for r in records_of(path)]
    resumed = run_limited(tmp_path, ("run", "--resume", "-o", "out.jsonl"))
    has_time = any(r["measurement"] for r in records_of(path))
    assert int(not has_time) == resumed.returncode, resumed.stderr
    assert before == [r["case"] for r in records_of(path)][: len(before)]


ODD = [
    {"TMPDIR": "/no/such/folder"},
    {"HOME": "/no/such/folder", "DEEPBENCH_STATE": "/proc/no/such"},
    {"DEEPBENCH_STATE": "/dev/null"},
    {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    {"COLUMNS": "0"},
    {"COLUMNS": "-3", "LINES": "x", "TERM": "no such terminal"},
    {"PYTHONOPTIMIZE": "2"},
]


# Each with a run. `make test-long` also has each with one of the commands that read.
@pytest.mark.parametrize(
    ("environment", "words"),
    [
        *zip(ODD, itertools.repeat(RUN), strict=False),
        *(pytest.param(*pair, marks=pytest.mark.long) for pair in zip(ODD, itertools.cycle(READING), strict=False)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else value[0],
)
def test_an_odd_environment_changes_no_outcome(tmp_path, words, environment):
    done = run_limited(tmp_path, words, **environment)

    assert "Traceback" not in done.stderr
    assert 0 == done.returncode, done.stderr[-2000:]
