"""Starts `python -m deepbench…` in 20 ms instead of 0.5 s, for tests.

A server has imported the package. For each process it copies itself: the copy gets the descriptors, the environment,
the folder, the limits and the signals of its parent, and is a child of its parent, as if started in the usual way.
A process that the server cannot imitate (see `_Call.of`) is started in the usual way.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import io
import os
import pickle
import pkgutil
import resource
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Variables that Python, the loader, or the C library read when a program starts.
AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_TUNABLES")

# The copy imitates the first two; the others change where memory comes from, which only benchmarks notice.
IMITATED = ("PYTHONPATH", "PYTHONUNBUFFERED", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]

# Programs whose processes start none, or none through `subprocess`.
LEAVES = ("deepbench.measuring.worker",)

CLONE_PARENT, CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID = 0x8000, 0x1000000, 0x200000
SYS_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)

_usual_start = subprocess.Popen._execute_child
_signature = inspect.signature(_usual_start)
_server: socket.socket | None = None
_owner = 0
_process: subprocess.Popen[bytes] | None = None
_others: dict[tuple[str, ...], tuple[socket.socket, subprocess.Popen[bytes]]] = {}
"""By the modules that they have imported, too."""
_lock = threading.Lock()
is_on = True
"""Whether processes are copies. Tests of what happens when a program starts switch it off."""


@dataclass
class _Call:
    """What a copy becomes."""

    command: list[str]
    module: str
    arguments: list[str]
    safe_path: bool
    folder: str
    environment: dict[str, str]
    targets: list[int]
    """The numbers of the descriptors that travel with this message."""
    new_session: bool
    process_group: int
    ignored: list[int]
    blocked: list[int]
    limits: list[tuple[int, int]]
    cpus: set[int]
    ready: int = -1
    """The end of a pipe that the copy closes when it may get signals."""

    @classmethod
    def of(cls, wanted):
        """What the arguments of `subprocess.Popen` ask for, and the descriptors; None if a copy does not imitate it."""
        command = wanted["args"]
        if isinstance(command, (str, bytes, os.PathLike)):
            return None
        command = [os.fspath(word) for word in command]
        if not all(isinstance(word, str) for word in command) or command[:1] != [sys.executable]:
            return None
        words = command[1:]
        if safe_path := words[:1] == ["-P"]:
            words = words[1:]
        unusual = ("executable", "preexec_fn", "shell", "startupinfo")
        if len(words) < 2 or words[0] != "-m" or words[1].split(".")[0] != "deepbench" or any(map(wanted.get, unusual)):
            return None
        if wanted["gid"] is not None or wanted["uid"] is not None or wanted["gids"] or wanted["umask"] >= 0:
            return None
        folder = os.fspath(wanted["cwd"] or os.getcwd())
        given = os.environ if wanted["env"] is None else wanted["env"]
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in given.items()}
        if not os.access(folder, os.X_OK) or not wanted["close_fds"] or not can_imitate(environment):
            return None
        descriptors = [
            own if own != -1 else inherited
            for own, inherited in ((wanted["p2cread"], 0), (wanted["c2pwrite"], 1), (wanted["errwrite"], 2))
        ] + list(wanted["pass_fds"])
        try:
            for descriptor in descriptors:
                os.fstat(descriptor)
        except OSError:
            return None
        call = cls(
            command=command,
            module=words[1],
            arguments=words[2:],
            safe_path=safe_path,
            folder=os.path.abspath(folder),
            environment=environment,
            targets=[0, 1, 2, *wanted["pass_fds"]],
            new_session=wanted["start_new_session"],
            process_group=wanted.get("process_group", -1),
            ignored=[number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN],
            blocked=list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
            limits=[resource.getrlimit(limit) for limit in LIMITS],
            cpus=os.sched_getaffinity(0),
        )
        return call, descriptors


def can_imitate(environment):
    """Whether a program with these variables starts as the server did."""

    return _read_at_start(environment) == _at_start_of_server


def _read_at_start(environment):
    return {k: v for k, v in environment.items() if k.startswith(AT_START) and k not in IMITATED}


_at_start_of_server = _read_at_start(os.environ)


def start(popen, *arguments):
    """In the place of `subprocess.Popen._execute_child`."""
    bound = _signature.bind(popen, *arguments).arguments
    found = _Call.of(bound) if is_on and _server is not None and _owner == os.getpid() else None
    pid = None if found is None else _ask(*found)
    if pid is None:
        return _usual_start(popen, *arguments)
    popen.pid, popen._child_created = pid, True
    pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
    popen._close_pipe_fds(*(bound[name] for name in pipes))
    return None


def _ask(call, descriptors):
    body = pickle.dumps(call)
    with _lock:
        try:
            socket.send_fds(_server, [struct.pack("I", len(body))], descriptors)
            _server.sendall(body)
            pid = struct.unpack("i", _server.recv(4, socket.MSG_WAITALL))[0]
            return pid if pid > 0 else None  # where the system starts no process, the usual way says why
        except (OSError, struct.error):  # a test has ended the server
            return None


def begin(*modules):
    """Start a server for this process, which has also imported these modules."""
    ours, theirs = socket.socketpair()
    words = f"from tests.help import fork_server; fork_server.main({theirs.fileno()}, *{modules})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    global _process, _at_start_of_server
    _at_start_of_server = _read_at_start(os.environ)
    _process = subprocess.Popen(
        [sys.executable, "-c", words], env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd="/"
    )
    theirs.close()
    _connect(ours)


def _connect(server):
    global _server, _owner
    _server, _owner = server, os.getpid()
    subprocess.Popen._execute_child = start


def end():
    """The servers end with their connections."""
    for server, process in ((_server, _process), *_others.values()):
        if server is not None and process is not None:
            server.close()
            process.wait()


@contextlib.contextmanager
def having(*modules):
    """Meanwhile, processes are copies of one that has also imported these modules: that takes seconds once."""
    global _server, _process
    before = _server, _process
    if modules in _others:
        _server, _process = _others[modules]
    else:
        begin(*modules)
        _others[modules] = _server, _process
    try:
        yield
    finally:
        _server, _process = before


def main(descriptor, *modules):
    """Serve until the connection ends."""
    _import_everything()
    for name in modules:
        importlib.import_module(name)
    os.environ.pop("OPENBLAS_NUM_THREADS", None)
    _close_others({descriptor})
    gc.collect()
    gc.freeze()  # so that collections do not copy the pages of what is imported
    _become(*_serve(socket.socket(fileno=descriptor)))


def _import_everything():
    import deepbench

    folders = (
        *("api", "cli", "core", "plan", "results", "judge", "reporting", "machine", "measuring", "networks", "formats"),
        *("fleets", "workloads"),
    )
    for module in pkgutil.walk_packages(deepbench.__path__, "deepbench."):
        if module.name.split(".")[1] in folders:
            with contextlib.suppress(Exception):  # needs a package that is not installed
                importlib.import_module(module.name)
    for name in (
        "numpy.random",
        "rich.progress",
        "rich.live",
        "rich.table",
        "rich.markup",
        "jinja2",
        "hmac",
        "secrets",
    ):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from deepbench.core.registry import registered

    for kind in ("ops", "backends", "formats"):
        registered(kind)
    from deepbench.results.schema import validators

    for validator in validators().values():
        assert validator.check_without_lists  # to compile one takes as long as half of a small command
    _shorten_waits()


def _shorten_waits():
    """No test depends on how long a command watches other programs."""
    from deepbench.machine import doctor

    doctor.LoadWatch.load.__defaults__ = (0.05,)


def _serve(connection):
    """Copies return what they become; the server never returns."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    while True:
        try:
            head, descriptors, _, _ = socket.recv_fds(connection, 4, 250)
            if not head:
                os._exit(0)
            length = struct.unpack("I", head)[0]
            call = pickle.loads(connection.recv(length, socket.MSG_WAITALL))
        except ConnectionError:
            os._exit(0)
        ready, call.ready = os.pipe()
        pid = _copy()
        if pid == 0:
            connection.close()
            os.close(ready)
            return call, descriptors
        for descriptor in (*descriptors, call.ready):
            os.close(descriptor)
        os.read(ready, 1)  # until the copy has its own group and its own signals: others may now send some to it
        os.close(ready)
        connection.sendall(struct.pack("i", pid))


def _copy():
    """As `os.fork`, but the copy is a child of the parent of this process."""
    python, libc = ctypes.pythonapi, ctypes.CDLL(None)
    python.PyOS_BeforeFork()
    pid = libc.syscall(SYS_CLONE, ctypes.c_ulong(CLONE_PARENT | signal.SIGCHLD), None, None, None, None)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def _close_others(kept):
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _become(call, descriptors):
    """Be the process that was asked for; never returns."""
    code = 1
    try:
        _dress(call, descriptors)
        if call.module not in LEAVES:
            _begin_below()
        code = _run(call)
    finally:
        os._exit(code)


def _dress(call, descriptors):
    for number in SIGNALS:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in call.ignored else usual)
    signal.pthread_sigmask(signal.SIG_SETMASK, call.blocked)
    if call.new_session:
        os.setsid()
    elif call.process_group != -1:
        os.setpgid(0, call.process_group)
    os.close(call.ready)
    # First out of the way of the targets, then to them.
    above = max(*call.targets, *descriptors, 100) + 1
    moved = [_duplicate(descriptor, above + i) for i, descriptor in enumerate(descriptors)]
    for source, target in zip(moved, call.targets, strict=True):
        os.dup2(source, target, inheritable=True)
    _close_others(set(call.targets))
    os.sched_setaffinity(0, call.cpus)
    os.chdir(call.folder)
    environment = call.environment
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    time.tzset()
    if environment.get("DEEPBENCH_PLUGINS"):
        from deepbench.core.registry import registered

        registered.cache_clear()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules and environment.get("OMP_NUM_THREADS"):  # which it has read when it was imported
        sys.modules["torch"].set_num_threads(int(environment["OMP_NUM_THREADS"]))
    first = [] if call.safe_path else [call.folder]
    named = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*first, *named, *(path for path in sys.path if path not in ("", str(ROOT)))]
    sys.argv, sys.orig_argv = ["-m", *call.arguments], call.command
    unbuffered = bool(environment.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "rb", closefd=False)), encoding="utf-8")
    for name, descriptor, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        raw = io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False))
        is_terminal = os.isatty(descriptor) or descriptor == 2
        stream = io.TextIOWrapper(
            raw, encoding="utf-8", errors=errors, line_buffering=is_terminal, write_through=unbuffered
        )
        stream.mode = "w"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    for limit, values in zip(LIMITS, call.limits, strict=True):
        if resource.getrlimit(limit) != values:
            resource.setrlimit(limit, values)


def _duplicate(descriptor, least):
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD, least)


def _begin_below():
    """A server for the processes that this one starts."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        silent = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silent, descriptor)
        _close_others({theirs.fileno()})
        os.chdir("/")
        _become(*_serve(theirs))
    theirs.close()
    _connect(ours)


def _run(call):
    """Run the module as Python does; its exit code."""
    code = 0
    if not hasattr(sys.modules.get(call.module), "__path__"):
        sys.modules.pop(call.module, None)  # `runpy` warns of modules that are imported already
    try:
        runpy.run_module(call.module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        code = 0 if end.code is None else end.code & 0xFF if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        traceback.print_exc()
        code = -signal.SIGINT
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(BaseException):
        threading._shutdown()
    atexit._run_exitfuncs()
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except OSError as error:
        print(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}", file=sys.stderr)
        code = 120
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code
