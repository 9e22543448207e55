"""What processes leave behind is removed, and nothing else."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deepbench.core.case import parse_case
from deepbench.measuring import leftovers
from deepbench.measuring.heat import measure_case
from deepbench.plan.modes import QUICK
from tests.conftest import NO_LIBRARIES, ROOT, records_of

pytestmark = pytest.mark.programs

MAPS = """
import mmap, sys, time
kept = []
for path in sys.argv[1:]:
    with open(path, "r+b") as file:
        kept.append(mmap.mmap(file.fileno(), 4096))
print("mapped", flush=True)
time.sleep(1000)
"""

LITTER = """
import os, sys, time
from deepbench.core.backend import Backend, kernel
from deepbench.core.kernel import Kernel
class Litter(Backend):
    name = title = "litter"
    default = computes = False
    def open(self):
        return {"name": "litter", "version": "1", "path": None}
    @kernel("gemm", precisions=("f32",))
    def gemm(self, case, arrays):
        open(f"/dev/shm/__KMP_REGISTERED_LIB_{os.getpid()}_{os.getuid()}", "x").close()
        with open(os.environ["MARK"], "a") as file:
            print(os.getpid(), file=file)
        time.sleep(1000)
BACKEND = Litter()
"""

GROUP_LITTER = """
import mmap, os, time
from deepbench.core.backend import GroupBackend, kernel
class GroupLitter(GroupBackend):
    name = title = "grouplitter"
    default = False
    def open(self):
        return {"name": "grouplitter", "version": "1", "path": None}
    def join(self, group, case):
        file = open("/dev/shm/" + os.environ["SHARED"], "a+b")
        file.truncate(4096)
        self.map = mmap.mmap(file.fileno(), 4096)
        open(os.path.join(os.environ["TMPDIR"], f"session-{group.rank}"), "x").close()
        group.gather(None)
    @kernel("all_reduce", precisions=("f32",))
    def all_reduce(self, case, arrays):
        with open(os.environ["MARK"], "a") as file:
            print(os.getpid(), file=file)
        time.sleep(1000)
BACKEND = GroupLitter()
"""


@pytest.fixture
def shared_memory(tmp_path, monkeypatch):
    """A folder that stands for /dev/shm, and one for temporary files in which no run has left anything."""
    for name in ("shm", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(leftovers, "SHARED_MEMORY", tmp_path / "shm")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    leftovers._remove_abandoned.cache_clear()
    yield tmp_path / "shm"
    leftovers._remove_abandoned.cache_clear()


@contextlib.contextmanager
def process_that_maps(*paths):
    command = [sys.executable, "-c", MAPS, *map(str, paths)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert b"mapped\n" == process.stdout.readline()
            yield process
        finally:
            process.kill()


def make(folder, name, size=4096):
    (folder / name).write_bytes(bytes(size))
    return folder / name


def test_only_new_files_that_the_process_has_mapped_are_removed(shared_memory):
    old = make(shared_memory, "old")
    with leftovers.scratch() as scratch:
        new, of_others = make(shared_memory, "new"), make(shared_memory, "of_others")
        with process_that_maps(old, new) as process:
            scratch.look(process.pid)
        assert new.exists()

    assert {old, of_others} == set(shared_memory.iterdir())
    assert [] == list(Path(leftovers.tempfile.gettempdir()).iterdir())


def test_the_registration_of_a_process_is_removed_and_that_of_another_stays(shared_memory):
    with leftovers.scratch() as scratch, process_that_maps() as process:
        own = make(shared_memory, f"__KMP_REGISTERED_LIB_{process.pid}_{os.getuid()}")
        other = make(shared_memory, f"__KMP_REGISTERED_LIB_{process.pid + 1}_{os.getuid()}")
        scratch.add(process.pid)

    assert not own.exists()
    assert other.exists()


def test_a_file_that_took_the_name_of_ours_and_a_link_stay(shared_memory, tmp_path):
    new = make(shared_memory, "new")
    found = {"new": os.lstat(new).st_ino, "link": 1, "a\0b": 1, "..": 1}
    kept = make(shared_memory, "kept")
    new.unlink()
    kept.rename(new)
    (shared_memory / "link").symlink_to(tmp_path)
    leftovers.remove(found)

    assert {"new", "link"} == set(os.listdir(shared_memory))


def test_the_next_run_removes_what_a_run_that_was_killed_has_left(shared_memory):
    """And nothing of a run that lives, of a folder without a journal, or of one that others may have written."""
    code = (
        "import sys, time; from pathlib import Path; from deepbench.measuring import leftovers\n"
        "leftovers.SHARED_MEMORY = Path(sys.argv[1])\n"
        "with leftovers.scratch() as scratch:\n"
        "    (scratch.folder / 'inner').mkdir(); (scratch.folder / 'inner' / 'file').touch()\n"
        "    (leftovers.SHARED_MEMORY / sys.argv[2]).touch()\n"
        "    scratch.add(2**22 + 1); scratch._write({'files': leftovers._ours({sys.argv[2]})})\n"
        "    print(scratch.folder, flush=True); time.sleep(1000)\n"
    )
    temporary = leftovers.tempfile.gettempdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": temporary}
    runs, folders = [], []
    for name in ("dead", "open", "alive"):
        command = [sys.executable, "-c", code, str(shared_memory), name]
        runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        folders.append(Path(runs[-1].stdout.readline().strip()))
    try:
        registration = make(shared_memory, f"__KMP_REGISTERED_LIB_{2**22 + 1}_{os.getuid()}")
        for run in runs[:2]:
            run.kill()
            run.wait()
        folders[1].chmod(0o777)
        plain = Path(temporary) / "deepbench-plain"
        plain.mkdir(mode=0o700)
        with leftovers.scratch():
            pass

        assert {plain, *folders[1:]} == set(Path(temporary).iterdir())
        assert {"open", "alive"} == set(os.listdir(shared_memory))
        assert not registration.exists()
    finally:
        for run in runs:
            run.kill()
            run.communicate()


def test_a_damaged_journal_does_no_harm(shared_memory):
    kept = make(shared_memory, "kept")
    for i, text in enumerate(["", "[1]\nx\n{}\n" + "[" * 100000, '{"pid": "x", "files": [1]}\n{"pid": -1}\n']):
        folder = Path(leftovers.tempfile.gettempdir()) / f"deepbench-{i}"
        folder.mkdir(mode=0o700)
        place = json.dumps({"place": leftovers._place()})
        (folder / leftovers.JOURNAL).write_text(f"{place}\n{text}")
    with leftovers.scratch() as scratch:
        assert [scratch.folder.name] == os.listdir(leftovers.tempfile.gettempdir())
    assert kept.exists()


# ---- whole runs

SINGLE = ("gemm m=3 n=4 k=5 f32", "--backend", "litter")
GROUP = ("all_reduce n=10 ranks=2 f32", "--backend", "grouplitter")


@pytest.fixture
def start(tmp_path):
    """Start a run of a library that leaves files and hangs; returns it when all processes have made theirs."""
    (tmp_path / "plugins" / "backends").mkdir(parents=True)
    (tmp_path / "plugins" / "backends" / "litter.py").write_text(LITTER)
    (tmp_path / "plugins" / "backends" / "grouplitter.py").write_text(GROUP_LITTER)
    (tmp_path / "tmp").mkdir()
    mark, shared = tmp_path / "mark", f"deepbench-test-{os.getpid()}-{time.monotonic_ns()}"
    environment = {
        **os.environ,
        **NO_LIBRARIES,
        "PYTHONPATH": str(ROOT),
        "DEEPBENCH_PLUGINS": str(tmp_path / "plugins"),
        "TMPDIR": str(tmp_path / "tmp"),
        "MARK": str(mark),
        "SHARED": shared,
    }

    def run(words, count, timeout="60"):
        command = [sys.executable, "-m", "deepbench", "run", *words, "--quick", "--timeout", timeout, "-o", "out.jsonl"]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        end = time.monotonic() + 60
        while not mark.exists() or len(mark.read_text().split()) < count:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.02)
        names = [f"__KMP_REGISTERED_LIB_{pid}_{os.getuid()}" for pid in mark.read_text().split()]
        return process, [Path("/dev/shm", name) for name in (names if count == 1 else [shared])]

    yield run
    Path("/dev/shm", shared).unlink(missing_ok=True)


@pytest.mark.parametrize(("words", "count"), [(SINGLE, 1), (GROUP, 2)])
def test_processes_that_are_killed_leave_nothing(start, tmp_path, words, count):
    process, made = start(words, count, timeout="3")
    assert all(path.exists() for path in made)
    process.communicate(timeout=60)

    assert ["timeout"] == [r["status"] for r in records_of(tmp_path / "out.jsonl")]
    assert not any(path.exists() for path in made)
    assert [] == sorted((tmp_path / "tmp").rglob("*"))


@pytest.mark.parametrize(("words", "count"), [(SINGLE, 1), (GROUP, 2)])
def test_the_next_run_cleans_up_after_one_that_was_killed(start, tmp_path, monkeypatch, words, count):
    process, made = start(words, count)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    end = time.monotonic() + 10
    while count == 2 and any(path.exists() for path in made):  # ranks remove theirs when the coordinator is gone
        assert time.monotonic() < end
        time.sleep(0.02)
    while count == 1 and leftovers._runs(int((tmp_path / "mark").read_text())):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert [] != os.listdir(tmp_path / "tmp")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    leftovers._remove_abandoned.cache_clear()
    record = measure_case(parse_case("gemm m=3 n=4 k=5 forward i8 null threads=1"), 1, QUICK.rules, 30.0)
    leftovers._remove_abandoned.cache_clear()

    assert "unchecked" == record["status"], record["reason"]
    assert not any(path.exists() for path in made)
    assert [] == sorted((tmp_path / "tmp").rglob("*"))
