"""Started as one of many, by mpirun, srun or torchrun: rank 0 measures, the others lend it their hosts.

A measurement starts its ranks afresh for each case and round, with the switches of that case in their environment;
processes that a launcher has started once cannot be that. So they do what sshd does elsewhere: the first one on each
host starts what rank 0's launchers ask for there, and ends it with them. Neither ssh nor a scheduler has a part in it.

Rank 0 says where it is in a file in the current folder, which hosts are expected to share; DEEPBENCH_MEET=host:port
names a place instead where they do not (whoever reaches that place first is believed: use it in networks you trust).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import selectors
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.measure.group.link import LAUNCHED, Place

MEET = "DEEPBENCH_MEET"

# How long processes of one job may be apart: imports from a busy file system take their time.
MEET_S = 60.0

# What a launcher tells its processes. Another one started below it would believe that it is meant.
PREFIXES = (
    *("PMI_", "PMI2_", "PMIX_", "OMPI_", "PRTE_", "HYDI_", "HYDRA_", "MPI_LOCAL", "I_MPI_HYDRA_", "I_MPI_INFO_"),
    *("SLURM_", "SLURMD_", "SRUN_", "TORCHELASTIC_", "LOCAL_", "GROUP_", "ROLE_", "MASTER_"),
)

# What tells two jobs apart, where a launcher has it.
JOBS = ("DEEPBENCH_JOB", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "I_MPI_HYDRA_UUID", "SLURM_JOB_ID", "SLURM_STEP_ID")

# A shell's last words: the exit code of what it ran, behind everything that was printed.
LAST_WORDS = struct.Struct(">4sB")
MARK = b"\0end"


@dataclass(frozen=True)
class Allocation:
    """What a launcher has given: its processes by host, rank 0's first."""

    ranks: int
    hosts: dict[str, str]
    """Address of each host by its name."""


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which no launcher has a say."""
    return {k: v for k, v in environment.items() if k not in LAUNCHED and not k.startswith(PREFIXES)}


# ---- rank 0


@contextlib.contextmanager
def gather_hosts(where: Place) -> Iterator[Allocation]:
    """Wait for all processes of the job, and let launchers reach their hosts through them; they end with it."""
    token = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        listener, path = _listener(where)
        stack.callback(listener.close)
        if path is not None:
            stack.callback(path.unlink, missing_ok=True)
            _publish(path, {"addresses": _addresses(), "port": listener.getsockname()[1], "token": token})
        lines, hellos = _welcome(listener, where, "" if path is None else token)
        for line in lines.values():
            stack.callback(line.close)
        here = socket.gethostname()
        cpus: dict[str, set[int]] = {here: os.sched_getaffinity(0)}
        address = {here: next((line.getsockname()[0] for line in lines.values()), "127.0.0.1")}
        shells: dict[str, list[Any]] = {}
        for rank in sorted(lines):
            host = hellos[rank]["host"]
            address.setdefault(host, lines[rank].getpeername()[0])
            cpus.setdefault(host, set()).update(hellos[rank]["cpus"])
            if host != here:
                shells.setdefault(address[host], [hellos[rank]["port"], hellos[rank]["key"]])
        for rank, line in lines.items():  # a launcher that binds gives each process a part of its host
            _send(line, {"cpus": sorted(cpus[hellos[rank]["host"]])})
        _use(sorted(cpus[here]))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="deepbench-")))
        kept = without_launcher(os.environ)
        for name in set(os.environ) - set(kept):
            del os.environ[name]
        os.environ |= remote_shell(str(_stand_in(folder, {"here": address[here], "shells": shells})))
        yield Allocation(where.ranks, address)


def remote_shell(path: str) -> dict[str, str]:
    """The variables by which launchers start `path HOST COMMAND` where they would start ssh."""
    return {
        "DEEPBENCH_REMOTE_SHELL": path,
        **{"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": path},
        **{"I_MPI_HYDRA_BOOTSTRAP": "ssh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": path},
        **{"PRTE_MCA_plm_ssh_agent": path, "OMPI_MCA_plm_rsh_agent": path},
        # Open MPI would let hosts start others; only this one has the stand-in.
        **{"PRTE_MCA_plm_ssh_no_tree_spawn": "1", "OMPI_MCA_plm_rsh_no_tree_spawn": "1"},
    }


def _stand_in(folder: Path, known: dict[str, Any]) -> Path:
    """A program that launchers call as they would call ssh."""
    facts, program = folder / "shells.json", folder / "shell"
    facts.write_text(json.dumps(known))
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH"))))
    words = ["env", f"PYTHONPATH={path}", sys.executable, "-P", "-m", __name__, str(facts)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o700)
    return program


def _listener(where: Place) -> tuple[socket.socket, Path | None]:
    """Where rank 0 waits, and the file that tells it."""
    fixed = _fixed()
    try:
        return socket.create_server(("", fixed[1] if fixed else 0), backlog=1024), None if fixed else _file(where)
    except OSError as error:
        raise BadInput(f"rank 0 cannot listen at {os.environ.get(MEET)}: {error.strerror}; name a free port") from None


def _publish(path: Path, content: dict[str, Any]) -> None:
    """Write a file that others see whole or not at all, and nobody else may read."""
    draft = path.with_suffix(f".{secrets.token_hex(4)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(content, file)
        draft.replace(path)
    except OSError as error:
        raise BadInput(
            f"cannot write {path} for the other ranks: {error.strerror}; name rank 0's address in {MEET}=host:port"
        ) from None


def _welcome(
    listener: socket.socket, where: Place, token: str
) -> tuple[dict[int, socket.socket], dict[int, dict[str, Any]]]:
    """The lines of all other ranks, and what they said."""
    lines: dict[int, socket.socket] = {}
    hellos: dict[int, dict[str, Any]] = {}
    end = time.monotonic() + MEET_S
    while len(lines) < where.ranks - 1:
        listener.settimeout(max(0.01, end - time.monotonic()))
        try:
            line, _ = listener.accept()
        except TimeoutError:
            missing = next(r for r in range(1, where.ranks) if r not in lines)
            raise BadInput(
                f"rank {missing} of {where.ranks} has not come within {MEET_S:g} s; do all hosts share this folder? "
                f"If not, set {MEET}=host:port of rank 0 for all"
            ) from None
        hello = _line(line, 10.0)
        rank = (hello or {}).get("rank")
        if hello is None or hello.get("token") != token or not isinstance(rank, int) or rank in lines:
            line.close()  # a stranger
            continue
        lines[hello["rank"]], hellos[hello["rank"]] = line, hello
    return lines, hellos


# ---- the others


def serve_rank_zero(where: Place) -> None:
    """Serve rank 0 until it ends; `BadInput` when it cannot be found."""
    with socket.create_server(("", 0), backlog=64) as shells:
        key = secrets.token_hex(16)
        hello = {"rank": where.rank, "host": socket.gethostname(), "port": shells.getsockname()[1], "key": key}
        with _find(where, {**hello, "cpus": sorted(os.sched_getaffinity(0))}) as line:
            told = _line(line, MEET_S)
            if told is not None:
                _use(told["cpus"])
                _serve(line, shells, key)
                _file(where).unlink(missing_ok=True)  # of a rank 0 that was killed


def _find(where: Place, hello: dict[str, Any]) -> socket.socket:
    """A line to rank 0, which has been told who this is."""
    end, last, fixed = time.monotonic() + MEET_S, "nobody said where it is", _fixed()
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError, KeyError):  # a file of an earlier job, or not written yet
            said: dict[str, Any] = {"addresses": [fixed[0]], "port": fixed[1], "token": ""} if fixed else {}
            said = said or json.loads(_own(_file(where)))
            for host in said["addresses"]:
                with contextlib.suppress(OSError):
                    last = f"it does not answer at {host}:{said['port']}"
                    line = socket.create_connection((host, said["port"]), timeout=3.0)
                    _send(line, {**hello, "token": said["token"]})
                    return line
        time.sleep(0.1)
    raise BadInput(
        f"rank {where.rank} on {socket.gethostname()} does not find rank 0: {last}; "
        f"if hosts do not share this folder, set {MEET}=host:port of rank 0 for all"
    )


def _own(path: Path) -> str:
    """The text of a file of ours that nobody else may read or write: who plants one would command this process."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
        facts = os.fstat(file.fileno())
        if facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            raise OSError(f"{path} belongs to somebody else")
        return file.read()


def _serve(line: socket.socket, shells: socket.socket, key: str) -> None:
    """Start what is asked for, end it when who asked has gone, and leave when rank 0 has."""
    running: dict[socket.socket, subprocess.Popen[bytes]] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: _kill_all(running.values()))
        selector = stack.enter_context(selectors.DefaultSelector())
        selector.register(line, selectors.EVENT_READ)
        selector.register(shells, selectors.EVENT_READ)
        while True:
            for event, _ in selector.select():
                if event.fileobj is line:
                    return
                if event.fileobj is shells:
                    asker, _ = shells.accept()
                    wanted = _line(asker, 10.0)
                    if wanted is None or wanted.get("key") != key:
                        asker.close()
                        continue
                    process = _start(asker, wanted["command"])
                    running[asker] = process
                    ended = os.pidfd_open(process.pid)
                    selector.register(asker, selectors.EVENT_READ, (asker, ended))
                    selector.register(ended, selectors.EVENT_READ, (asker, ended))
                    continue
                asker, ended = event.data  # who asked has gone, or what it asked for has ended
                if asker not in running:
                    continue  # both, in one turn
                process = running.pop(asker)
                _kill(process)
                with contextlib.suppress(OSError):
                    asker.sendall(LAST_WORDS.pack(MARK, process.returncode & 0xFF))
                    asker.shutdown(socket.SHUT_RDWR)
                selector.unregister(asker)
                selector.unregister(ended)
                asker.close()
                os.close(ended)


def _start(asker: socket.socket, command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=asker.fileno(),
        stderr=asker.fileno(),
        env=without_launcher(os.environ),
        start_new_session=True,
    )


def _kill_all(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # also when its leader has ended: what it started may go on
    process.wait()


# ---- what launchers start in the place of ssh


def main(arguments: Sequence[str]) -> int:
    """`FACTS [options of ssh] HOST COMMAND…`: run the command there, print what it prints, end as it ends."""
    facts, *words = arguments
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in ("-l", "-p", "-o", "-i") else words[1:]
    known = json.loads(Path(facts).read_text())
    host, command = words[0], " ".join(words[1:])
    if host == known["here"] or host in ("localhost", socket.gethostname()):
        os.execvp("sh", ["sh", "-c", command])
    if host not in known["shells"]:
        print(f"no process of this job runs on {host}", file=sys.stderr)
        return 255
    port, key = known["shells"][host]
    with socket.create_connection((host, port), timeout=10.0) as line:
        _send(line, {"key": key, "command": command})
        line.settimeout(None)
        kept = b""
        while chunk := line.recv(65536):
            kept += chunk
            sys.stdout.buffer.write(kept[: -LAST_WORDS.size])
            sys.stdout.flush()
            kept = kept[-LAST_WORDS.size :]
    if len(kept) == LAST_WORDS.size and kept.startswith(MARK):
        return int(LAST_WORDS.unpack(kept)[1])
    sys.stdout.buffer.write(kept)
    return 255


# ---- lines of JSON, and addresses


def _send(line: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        line.sendall((json.dumps(message) + "\n").encode())


def _line(line: socket.socket, seconds: float) -> dict[str, Any] | None:
    """The next message, None when there is none in time or it is nonsense."""
    line.settimeout(seconds)
    content = b""
    try:
        while not content.endswith(b"\n") and len(content) < 1 << 20:
            chunk = line.recv(4096)
            if not chunk:
                return None
            content += chunk
        message = json.loads(content)
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        line.settimeout(None)
    return message if isinstance(message, dict) else None


def _use(cpus: list[int]) -> None:
    """All CPUs that the launcher gave to this host, where the system allows it."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cpus)


def _fixed() -> tuple[str, int] | None:
    """The address that the user has named."""
    text = os.environ.get(MEET)
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 65536):
        raise BadInput(f"{MEET} is {text[:60]!r}, wanted host:port of rank 0")
    return host, int(port)


def _file(where: Place) -> Path:
    """The same for all processes of a job, and for no other."""
    job = [where.launcher, str(where.ranks), *(os.environ.get(name, "") for name in JOBS), *sys.argv[1:]]
    return Path(f".deepbench-meet-{hashlib.sha256(chr(0).join(job).encode()).hexdigest()[:16]}")


def _addresses() -> list[str]:
    """Where this host may be reached: its name, and the address of each interface."""
    import fcntl

    found = [socket.gethostname()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name[:15].encode()))  # SIOCGIFADDR
                found.append(socket.inet_ntoa(answer[20:24]))
    # The loopback last: it is right on one machine only, where any other would be as well.
    return sorted(dict.fromkeys(found), key=lambda a: a.startswith("127."))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
