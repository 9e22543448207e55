"""Ctrl-C ends the command soon and once, whenever and however often it comes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import NO_LIBRARIES, ROOT

pytestmark = [pytest.mark.process, pytest.mark.alone]

STUCK = """
import os, time
from deepbench.core.backend import Backend, kernel
from deepbench.core.kernel import Kernel
class Stuck(Backend):
    name = title = "stuck{where}"
    default = computes = False
    def open(self):
        self.wait("open")
        return {{"name": self.name, "version": "1", "path": None}}
    def wait(self, where):
        if where == "{where}":
            with open(os.environ["MARK"], "a") as file:
                print(os.getpid(), file=file)
            time.sleep(1000)
    @kernel("gemm", precisions=("f32",))
    def gemm(self, case, arrays):
        self.wait("prepare")
BACKEND = Stuck()
"""

# Soon, even where other programs use all CPUs.
SOON_S = 5.0


@pytest.fixture
def start(tmp_path):
    """Start a run of libraries that hang here or there; returns it when one does, and the number of its worker."""
    (tmp_path / "backends").mkdir()
    for where in ("open", "prepare"):
        (tmp_path / "backends" / f"stuck{where}.py").write_text(STUCK.format(where=where))
    mark, processes = tmp_path / "mark", []

    def run(backend, wait=True):
        process = subprocess.Popen(
            [sys.executable, "-m", "deepbench", "run", "gemm m=3 n=4 k=5 f32", "--backend", backend, "--quick"],
            cwd=tmp_path,
            env={**os.environ, **NO_LIBRARIES, "PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": ".", "MARK": str(mark)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        processes.append(process)
        end = time.monotonic() + 60
        while wait and not (mark.exists() and mark.read_text().endswith("\n")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.02)
        return process, mark

    yield run
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("backend", "count"), [("stuckopen,null", 10), ("null,stuckprepare", 1)])
def test_ctrl_c_is_answered_soon_without_noise_while_a_library_hangs(start, backend, count):
    process, mark = start(backend)
    begin = time.monotonic()
    for _ in range(count):
        process.send_signal(signal.SIGINT)
        time.sleep(0.005)
    _, errors = process.communicate(timeout=60)

    assert time.monotonic() - begin < SOON_S
    assert 130 == process.returncode, errors
    assert errors.strip() in ("", "deepbench: interrupted")
    while any(runs(int(pid)) for pid in mark.read_text().split()):
        assert time.monotonic() - begin < 2 * SOON_S
        time.sleep(0.02)


@pytest.mark.parametrize("wait_s", [0.4, 0.8, 1.3])
def test_many_ctrl_c_at_any_moment_print_no_traceback(start, wait_s):
    """Before the command has loaded its modules it just dies of the signal."""
    process, _ = start("null", wait=False)
    time.sleep(wait_s)
    for _ in range(10):
        process.send_signal(signal.SIGINT)
        time.sleep(0.003)
    _, errors = process.communicate(timeout=60)

    assert process.returncode in (130, -signal.SIGINT, 0), errors
    assert errors.strip() in ("", "deepbench: interrupted")


def test_an_interrupt_that_python_drops_is_raised_again():
    """Python prints and drops what is raised in a destructor."""
    code = (
        "import os, signal, time\n"
        "from deepbench.cli.interrupts import handled\n"
        "class Interrupted:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT); time.sleep(0.1)\n"
        "with handled():\n"
        "    try:\n"
        "        Interrupted()\n"
        "        time.sleep(10)\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )

    assert ("interrupted\n", "") == (done.stdout, done.stderr)


def test_a_command_that_is_interrupted_again_later_ends_at_once():
    code = (
        "import time\n"
        "from deepbench.cli import interrupts\n"
        "interrupts.PATIENCE_S = 0.2\n"
        "with interrupts.handled():\n"
        "    try:\n"
        "        print('ready', flush=True); time.sleep(60)\n"
        "    finally:\n"
        "        print('ending', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        for word in (b"ready\n", b"ending\n"):
            assert word == process.stdout.readline()
            if word == b"ending\n":
                time.sleep(0.3)
            process.send_signal(signal.SIGINT)
        assert 130 == process.wait(SOON_S)


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False
