"""A process that has imported the package, and starts commands and workers by forking: 20 ms instead of half a second.

`python -m tests.help.fork_server PATH` listens on the Unix socket PATH. Each connection asks for one process: a line of
JSON with the module, its arguments, the folder and the environment, and the descriptors that the process gets. The
answer is the number of the process, and, when it has ended, its exit status. A process ends with its connection.

What a real process has and a forked one does not: an environment that counts before Python starts (`LD_PRELOAD`,
`PYTHONPATH`), a command line of its own in /proc, and memory of its own. Tests of these have the marker `process`.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

MODULES = (
    "deepbench.__main__",
    "deepbench.measuring.worker",
    "deepbench.networks.predictions.runner",
    "deepbench.applications.training.worker",
    "deepbench.applications.training.serving_worker",
)
"""What may be forked: modules with a function `main`."""

IMPORTED = (
    *("numpy", "ml_dtypes", "orjson", "click", "rich.console", "rich.table", "rich.progress", "json", "gzip"),
    *("deepbench.cli", "deepbench.api.results", "deepbench.api.comparing", "deepbench.api.pages"),
    *("deepbench.api.measuring", "deepbench.api.machine", "deepbench.api.foreign", "deepbench.api.groups"),
    *("deepbench.measuring.worker", "deepbench.measuring.steps", "deepbench.results.file", "deepbench.results.summary"),
    *("deepbench.reporting.sections", "deepbench.reporting.compare", "deepbench.reporting.export"),
    *("deepbench.judge.limits", "deepbench.judge.compare", "deepbench.native.callloop"),
)
"""Imported once, in the server. Nothing here may read the environment or open a library while it is imported."""

PARENT = "DEEPBENCH_PARENT"

DEFAULT_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE", "SIGQUIT", "SIGCHLD")

# The status before the exit status: the number of the process.
ANSWER = struct.Struct("!q")


# ---- in tests


class Forked:
    """A process that the server forked, with the methods of `subprocess.Popen` that the package and the tests use."""

    def __init__(self, path, module, arguments, *, folder, environment, descriptors, new_session=True):
        """`descriptors` are standard input, output and error, then those that keep their number."""
        self.args = [module, *arguments]
        self.returncode = None
        self.stdin = self.stdout = self.stderr = None
        self._lock = threading.Lock()
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(path)
        request = {
            "module": module,
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(environment),
            "numbers": [0, 1, 2, *descriptors[3:]],
            "new_session": new_session,
        }
        text = json.dumps(request).encode()
        fds = array.array("i", descriptors)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
        self._connection.sendmsg([struct.pack("!I", len(text))], ancillary)
        self._connection.sendall(text)
        (self.pid,) = ANSWER.unpack(self._received(None))

    def _received(self, timeout):
        self._connection.settimeout(timeout)
        got = b""
        while len(got) < ANSWER.size:
            part = self._connection.recv(ANSWER.size - len(got))
            if not part:
                raise ConnectionError("the fork server has ended")
            got += part
        return got

    def poll(self):
        """The exit status, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout=None):
        """Wait for the exit status; negative: the signal that ended it."""
        with self._lock:
            if self.returncode is None:
                ready = select.select([self._connection], [], [], timeout)[0]
                if not ready:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
                (status,) = ANSWER.unpack(self._received(None))
                self.returncode = os.waitstatus_to_exitcode(status)
                self._connection.close()
        return self.returncode

    def send_signal(self, number):
        """Send a signal to the process while it runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self):
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """End it."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.wait()


# Variables that count before Python, or the C library, starts.
EARLY_VARIABLES = ("LD_PRELOAD", "LD_LIBRARY_PATH", "GLIBC_TUNABLES", "MALLOC_MMAP_MAX_", "PYTHONHOME", "PYTHONSTARTUP")
ROOT = Path(__file__).parents[2]


def can_be_forked(command, environment):
    """Whether a command is one of the modules, with an environment that may come late."""
    if [*command[:3]] != [sys.executable, "-P", "-m"] or command[3] not in MODULES:
        return False
    if any(environment.get(name) != os.environ.get(name) for name in EARLY_VARIABLES):
        return False
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    return all(not folder or Path(folder) == ROOT for folder in folders)


def forking(path, real=subprocess.Popen):
    """In the place of `subprocess.Popen`: workers come from the server at `path`, everything else is started."""

    def popen(command, **options):
        environment = options.get("env") or os.environ
        simple = options.get("stdin") == subprocess.DEVNULL and options.get("stdout") not in (subprocess.PIPE, None)
        if not simple or not can_be_forked(command, environment):
            return real(command, **options)
        output = options["stdout"]
        number = output if isinstance(output, int) else output.fileno()
        with open(os.devnull) as nothing:
            descriptors = [nothing.fileno(), number, number, *options.get("pass_fds", ())]
            return Forked(
                path, command[3], command[4:], folder=os.getcwd(), environment=environment, descriptors=descriptors
            )

    return popen


class Child:
    """A process that this one forked, with the methods of `subprocess.Popen` that the package uses."""

    stdin = stdout = stderr = None

    def __init__(self, module, arguments, environment, numbers, output):
        sys.stdout.flush()
        sys.stderr.flush()
        self.args, self.returncode = [module, *arguments], None
        self.pid = os.fork()
        if self.pid == 0:
            request = {"module": module, "arguments": arguments, "folder": os.getcwd(), "new_session": True}
            with open(os.devnull) as nothing:
                fds = [nothing.fileno(), output, output, *numbers]
                _finish(request | {"environment": dict(environment), "numbers": [0, 1, 2, *numbers]}, fds)

    def poll(self):
        """The exit status, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=None):
        """Wait for the exit status; negative: the signal that ended it."""
        if timeout is None and self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        elif self.poll() is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                select.select([descriptor], [], [], timeout)
            finally:
                os.close(descriptor)
            if self.poll() is None:
                raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def send_signal(self, number):
        """Send a signal to the process while it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        """End it."""
        self.send_signal(signal.SIGKILL)


def _forking_here(command, real=subprocess.Popen, **options):
    """In a forked command, in the place of `subprocess.Popen`: its workers are its own children, as they always are."""
    environment = options.get("env") or os.environ
    simple = options.get("stdin") == subprocess.DEVNULL and options.get("stdout") not in (subprocess.PIPE, None)
    if not simple or not can_be_forked(command, environment) or threading.active_count() > 1:
        return real(command, **options)
    output = options["stdout"]
    number = output if isinstance(output, int) else output.fileno()
    return Child(command[3], command[4:], environment, list(options.get("pass_fds", ())), number)


# ---- in the server


def main():
    """Serve until the process that started this one ends."""
    path, parent = sys.argv[1], int(sys.argv[2])
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        return
    for name in DEFAULT_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the tests
    for module in IMPORTED:
        __import__(module)
    import gc

    gc.freeze()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(128)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are not waited for
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            try:
                _keep(connection)
            finally:
                os._exit(1)
        connection.close()


def _keep(connection):
    """Fork the process that is asked for, wait for it, and say how it ended. Ends it if the connection ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(64 * 4))
    fds = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    (length,) = struct.unpack("!I", head)
    text = b""
    while len(text) < length:
        text += connection.recv(length - len(text))
    request = json.loads(text)
    pid = os.fork()
    if pid == 0:
        connection.close()
        if PARENT in request["environment"]:
            request["environment"][PARENT] = str(os.getppid())
        _finish(request, list(fds))
    for fd in fds:
        os.close(fd)
    connection.sendall(ANSWER.pack(pid))
    descriptor = os.pidfd_open(pid)
    while True:
        ready = select.select([descriptor, connection], [], [])[0]
        if descriptor in ready:
            _, status = os.waitpid(pid, 0)
            with contextlib.suppress(OSError):
                connection.sendall(ANSWER.pack(status))
            os._exit(0)
        if connection in ready and not connection.recv(1):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os._exit(0)


def _finish(request, fds):
    """Become the process that is asked for, and end as it does."""
    code = 1
    try:
        code = _run(request, fds)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(code & 0xFF)


def _run(request, fds):
    """Become the process that is asked for."""
    if request["new_session"]:
        os.setsid()
    for name in DEFAULT_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # First out of the way, then to where they belong.
    high = [os.dup2(fd, 200 + i) for i, fd in enumerate(fds)]
    numbers = request["numbers"]
    for fd, number in zip(high, numbers, strict=True):
        os.dup2(fd, number, inheritable=True)
    wanted = {*numbers}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in wanted:
            with contextlib.suppress(OSError):
                os.close(int(name))
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    import io

    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    out, err = (io.FileIO(n, "w", closefd=False) for n in (1, 2))
    is_terminal = os.isatty(1)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(out), encoding="utf-8", line_buffering=is_terminal)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(err), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    if request["module"] == "deepbench.__main__":
        from deepbench.measuring import process

        process.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": _forking_here})
    module = request["module"]
    sys.argv = [module, *request["arguments"]]
    assert module in MODULES, module
    __import__(module)
    sys.modules[module].main()
    return 0


if __name__ == "__main__":
    main()
