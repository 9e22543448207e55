"""For `deepbench` started as many ranks by mpirun, srun or torchrun: rank 0 measures, the others give it their hosts.

Every measurement starts its own ranks, with the variables of its case in their environment, so the ranks that already
run cannot take part. Instead, the first one on each host runs the commands that rank 0 would send there by ssh. Neither
ssh nor a scheduler is needed.

Ranks find rank 0 through a file in the current folder, which their hosts must share. Where they do not,
DEEPBENCH_RENDEZVOUS=host:port gives its address and DEEPBENCH_SECRET a secret. Both ends of every connection prove that
they know the secret of the job, before anything else is read. What they send is not encrypted.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import select
import selectors
import shlex
import socket
import stat
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepbench.core.errors import BadInput, Unavailable
from deepbench.core.files import SAFELY
from deepbench.machine import describe
from deepbench.measuring import process
from deepbench.measuring.group.link import RANK_VARIABLES, RankInfo
from deepbench.measuring.launch import SECRET
from deepbench.measuring.wire import AuthenticationError, Connection, Listener, Message, connect

RENDEZVOUS = "DEEPBENCH_RENDEZVOUS"

# A shorter secret can be guessed.
SECRET_LENGTH = 16

# How much later than others a process of the job may start: imports from a busy file system take time.
RENDEZVOUS_S = 60.0

# How long to wait for the first message of a connection, and its greatest length.
HELLO_S, HELLO_BYTES = 10.0, 2**20

# How long to try one of the addresses of rank 0.
CONNECT_S = 3.0

# How many ports are tried until one is free at every address.
PORTS = 20

# Variables that launchers set for their processes. A launcher below another one would take them as its own.
PREFIXES = (
    *("PMI_", "PMI2_", "PMIX_", "OMPI_", "PRTE_", "HYDI_", "HYDRA_", "MPI_LOCAL", "I_MPI_HYDRA_", "I_MPI_INFO_"),
    *("SLURM_", "SLURMD_", "SRUN_", "TORCHELASTIC_", "LOCAL_", "GROUP_", "ROLE_", "MASTER_"),
)

# Variables that identify a job.
JOBS = ("DEEPBENCH_JOB", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "I_MPI_HYDRA_UUID", "SLURM_JOB_ID", "SLURM_STEP_ID")

# The variables that tell how many ranks the host of a rank has. Slurm tells the number of hosts instead.
LOCAL_RANKS = {
    "openmpi": "OMPI_COMM_WORLD_LOCAL_SIZE",
    "torchrun": "LOCAL_WORLD_SIZE",
    "hydra": "MPI_LOCALNRANKS",
}

# What precedes the output of a command. After it, the connection carries the standard input of the command.
READY = b"\0"

# How long a command may take to end when the process that asked for it is gone.
GRACE_S = 1.0

# What follows the output of a command: a mark and its exit code.
TRAILER = struct.Struct(">4sB")
MARK = b"\0end"


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables of launchers and without the secret of the job."""
    inherited = {k: v for k, v in environment.items() if k not in RANK_VARIABLES and not k.startswith(PREFIXES)}
    inherited.pop(SECRET, None)
    return inherited


# ---- rank 0


@contextlib.contextmanager
def gather_hosts(info: RankInfo) -> Iterator[list[str]]:
    """The addresses of the hosts of all ranks, that of rank 0 first. Waits for all ranks of the job.

    Until the context ends, launchers reach the hosts through these ranks.

    For the command only: it changes the affinity and the environment of this process, and does not restore them.
    """
    with contextlib.ExitStack() as stack:
        connections, hellos = _meet(info)
        for connection in connections.values():
            stack.callback(connection.close)
        here = socket.gethostname()
        cpus: dict[str, set[int]] = {here: os.sched_getaffinity(0)}
        addresses = {here: next((c.stream.getsockname()[0] for c in connections.values()), "127.0.0.1")}
        servers: dict[str, list[Any]] = {}
        for rank in sorted(connections):
            host = hellos[rank]["host"]
            addresses.setdefault(host, connections[rank].stream.getpeername()[0])
            cpus.setdefault(host, set()).update(hellos[rank]["cpus"])
            if host != here:
                servers.setdefault(addresses[host], [hellos[rank]["port"], connections[rank].session_key])
        for rank, connection in connections.items():  # launchers that pin give each rank some CPUs of its host
            with contextlib.suppress(OSError):
                connection.send({"cpus": sorted(cpus[hellos[rank]["host"]])})
        _set_affinity(sorted(cpus[here]))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="deepbench-")))
        for name in set(os.environ) - set(without_launcher(os.environ)):
            del os.environ[name]
        os.environ |= remote_shell(str(_write_shell(folder, {"here": addresses[here], "servers": servers})))
        yield list(addresses.values())


def remote_shell(path: str) -> dict[str, str]:
    """The variables that make launchers call `path HOST COMMAND` instead of ssh."""
    return {
        "DEEPBENCH_REMOTE_SHELL": path,
        **{"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": path},
        **{"I_MPI_HYDRA_BOOTSTRAP": "ssh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": path},
        **{"PRTE_MCA_plm_ssh_agent": path, "OMPI_MCA_plm_rsh_agent": path},
        # Open MPI would start hosts from other hosts, which do not have this program.
        **{"PRTE_MCA_plm_ssh_no_tree_spawn": "1", "OMPI_MCA_plm_rsh_no_tree_spawn": "1"},
    }


def _write_shell(folder: Path, hosts: dict[str, Any]) -> Path:
    """Write a program that launchers call as they would call ssh: it runs `main` of this module."""
    facts, program = folder / "hosts.json", folder / "shell"
    facts.write_text(json.dumps(hosts))
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH"))))
    words = ["env", f"PYTHONPATH={path}", sys.executable, "-P", "-m", __name__, str(facts)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o700)
    return program


def _meet(info: RankInfo) -> tuple[dict[int, Connection], dict[int, Message]]:
    """The connections of all other ranks, and the first message of each. Tells them where this rank listens."""
    given = _given_place()
    secret = given["secret"] if given else secrets.token_hex(32)
    with contextlib.ExitStack() as stack:
        try:
            addresses = _own_addresses(given["addresses"][0]) if given else _interfaces(info)
            sockets = _listen(addresses, given["port"] if given else 0)
        except OSError as error:
            where = os.environ[RENDEZVOUS] if given else "its addresses"
            reason = f"rank 0 cannot listen at {where}: {error.strerror}"
            raise BadInput(f"{reason}; set {RENDEZVOUS} to the name of its host and a free port") from None
        listener = stack.enter_context(Listener(sockets, secret, info.ranks, HELLO_BYTES))
        if given is None:
            path = _address_file(info)
            stack.callback(path.unlink, missing_ok=True)
            names = [] if _is_loopback(addresses[0]) else [socket.gethostname()]
            _publish(path, {"addresses": names + addresses, "port": sockets[0].getsockname()[1], "secret": secret})
        return _accept_all(listener, info)


def _listen(addresses: Sequence[str], port: int = 0) -> list[socket.socket]:
    """Sockets that listen at these addresses, all at the same port: this one, or any one that is free everywhere."""
    for attempt in range(PORTS):
        with contextlib.ExitStack() as stack:
            sockets: list[socket.socket] = []
            try:
                for address in addresses:
                    common = sockets[0].getsockname()[1] if sockets else port
                    sockets.append(stack.enter_context(socket.create_server((address, common), backlog=1024)))
            except OSError as error:
                if port or error.errno != errno.EADDRINUSE or attempt == PORTS - 1:
                    raise
            else:
                stack.pop_all()
                return sockets
    raise AssertionError("the last attempt returns or raises")


def _publish(path: Path, content: dict[str, Any]) -> None:
    """Write a file that appears complete and that no other user can read."""
    draft = path.with_suffix(f".{secrets.token_hex(4)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(content, file)
        draft.replace(path)
    except OSError as error:
        reason = f"cannot write {path} for the other ranks: {error.strerror}"
        raise BadInput(f"{reason}; {_advice(None)}") from None


def _accept_all(listener: Listener, info: RankInfo) -> tuple[dict[int, Connection], dict[int, Message]]:
    """The connections of all other ranks, and the first message of each."""
    connections: dict[int, Connection] = {}
    hellos: dict[int, Message] = {}
    deadline = time.monotonic() + RENDEZVOUS_S
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        selector.register(listener, selectors.EVENT_READ)
        while len(connections) < info.ranks - 1:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise BadInput(_missing_rank(info, connections, listener.refused))
            waits_s = [left_s, *([] if listener.timeout_s is None else [listener.timeout_s])]
            for event, _ in selector.select(min(waits_s)):
                if event.fileobj is listener:
                    continue
                connection: Connection = event.data
                messages = connection.receive_available()
                if messages == []:
                    continue
                selector.unregister(connection.stream)
                rank: Any = messages[0].get("rank") if messages else None
                if messages is None or rank not in range(1, info.ranks) or rank in connections:
                    connection.close()  # it has ended, or is a rank of another job
                else:
                    connections[rank], hellos[rank] = connection, messages[0]
                    stack.callback(connection.close)
            if (connected := listener.accept()) is not None:
                selector.register(connected.stream, selectors.EVENT_READ, connected)
        stack.pop_all()
    return connections, hellos


def _missing_rank(info: RankInfo, connections: Mapping[int, Connection], refused: int) -> str:
    missing = next(r for r in range(1, info.ranks) if r not in connections)
    others = f" ({refused} connections did not know the secret)" if refused else ""
    reason = f"rank {missing} of {info.ranks} did not connect within {RENDEZVOUS_S:g} s{others}"
    return f"{reason}; {_advice(_given_place())}"


# ---- the other ranks


def serve_rank_zero(info: RankInfo) -> None:
    """Run commands for rank 0 until it ends. `BadInput` when it cannot be found."""
    with contextlib.closing(_connect(info)) as connection:
        here = socket.create_server((connection.stream.getsockname()[0], 0), backlog=64)
        hello = {"rank": info.rank, "host": socket.gethostname(), "port": here.getsockname()[1]}
        with Listener([here], connection.session_key, info.ranks, HELLO_BYTES) as listener:
            with contextlib.suppress(OSError):  # rank 0 is gone, and there will be no reply
                connection.send({**hello, "cpus": sorted(os.sched_getaffinity(0))})
            reply = _first_message(connection, RENDEZVOUS_S)
            if reply is not None:
                _set_affinity(reply["cpus"])
                _run_commands(connection, listener)
                _address_file(info).unlink(missing_ok=True)  # left by a rank 0 that was killed


def _connect(info: RankInfo) -> Connection:
    """A connection to rank 0."""
    deadline, problem, given = time.monotonic() + RENDEZVOUS_S, "it has not published its address", _given_place()
    while (left_s := deadline - time.monotonic()) > 0:
        # The file may be missing, or be that of an earlier job.
        with contextlib.suppress(OSError, ValueError, KeyError):
            place = given or json.loads(_read_private(_address_file(info)))
            for host in place["addresses"]:
                try:
                    return connect((host, place["port"]), place["secret"], min(CONNECT_S, left_s))
                except AuthenticationError:
                    problem = f"what answers at {host}:{place['port']} has another secret"
                except OSError:
                    problem = f"it does not answer at {host}:{place['port']}"
        time.sleep(0.1)
    raise BadInput(f"rank {info.rank} on {socket.gethostname()} does not find rank 0: {problem}; {_advice(given)}")


def _read_private(path: Path) -> str:
    """The text of a file that no other user can read or write: its author could run commands in this process."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | SAFELY)) as file:
        facts = os.fstat(file.fileno())
        if facts.st_uid != os.getuid() or facts.st_mode & 0o077 or not stat.S_ISREG(facts.st_mode):
            raise OSError(f"{path} may have been written by another user")
        return file.read()


@dataclass(frozen=True)
class _Command:
    """A command that runs, for the process that asked for it."""

    connection: Connection
    child: process.Child
    pidfd: int
    hangup: select.epoll
    """Readable when the other end of the connection is gone. What it sends is the standard input of the command."""

    @classmethod
    def start(cls, connection: Connection, words: str) -> _Command:
        """Start a command. The connection carries its standard input and its output."""
        connection.stream.sendall(READY)
        environment, descriptor = without_launcher(os.environ), connection.stream.fileno()
        child = process.start(["sh", "-c", words], environment, descriptor, standard_input=descriptor)
        hangup = select.epoll()
        hangup.register(descriptor, select.EPOLLRDHUP)
        return cls(connection, child, os.pidfd_open(child.pid), hangup)

    def finish(self) -> None:
        """End the command, and send its exit code."""
        with contextlib.suppress(OSError):
            self.connection.stream.shutdown(socket.SHUT_RD)  # `remote.py` ends with its standard input
        process.end([self.child], GRACE_S)
        with contextlib.suppress(OSError):
            self.connection.stream.sendall(TRAILER.pack(MARK, self.child.returncode & 0xFF))
            self.connection.stream.shutdown(socket.SHUT_RDWR)
        self.hangup.close()
        self.connection.close()
        os.close(self.pidfd)


def _finish_all(commands: set[_Command]) -> None:
    for command in commands:
        command.finish()


def _run_commands(rank_zero: Connection, listener: Listener) -> None:
    """Run commands, each until it or the process that asked for it ends; return when rank 0 is gone."""
    running: set[_Command] = set()
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        stack.callback(_finish_all, running)
        selector.register(rank_zero.stream, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for event, _ in selector.select(listener.timeout_s):
                if event.fileobj is rank_zero.stream:
                    return
                if event.data in running:  # else both events came at once, or `listener` has something to do
                    running.remove(event.data)
                    selector.unregister(event.data.hangup)
                    selector.unregister(event.data.pidfd)
                    event.data.finish()
            connection = listener.accept()
            if connection is None:
                continue
            message = _first_message(connection)
            if message is None:
                connection.close()
                continue
            try:
                command = _Command.start(connection, message["command"])
            except (OSError, Unavailable):  # the process that asked is gone, or there are too many processes
                connection.close()
                continue
            running.add(command)
            selector.register(command.hangup, selectors.EVENT_READ, command)
            selector.register(command.pidfd, selectors.EVENT_READ, command)


# ---- the program that launchers call instead of ssh


def main(arguments: Sequence[str]) -> int:
    """`FACTS [options of ssh] HOST COMMAND…`: run a command on a host; print its output, return its exit code."""
    facts, *words = arguments
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in ("-l", "-p", "-o", "-i") else words[1:]
    hosts = json.loads(Path(facts).read_text())
    host, command = words[0], " ".join(words[1:])
    if host == hosts["here"] or host in ("localhost", socket.gethostname()):
        os.execvp("sh", ["sh", "-c", command])
    if host not in hosts["servers"]:
        print(f"no process of this job runs on {host}", file=sys.stderr)
        return 255
    port, key = hosts["servers"][host]
    try:
        connection = connect((host, port), key, HELLO_S)
    except OSError as error:
        print(f"the process of this job on {host} does not answer: {error}", file=sys.stderr)
        return 255
    with connection.stream as stream:
        connection.send({"command": command})
        stream.settimeout(None)
        stream.recv(len(READY))
        threading.Thread(target=_forward_input, args=(stream,), daemon=True).start()
        tail = b""
        while chunk := stream.recv(65536):
            tail += chunk
            sys.stdout.buffer.write(tail[: -TRAILER.size])
            sys.stdout.flush()
            tail = tail[-TRAILER.size :]
    if len(tail) == TRAILER.size and tail.startswith(MARK):
        return int(TRAILER.unpack(tail)[1])
    sys.stdout.buffer.write(tail)
    return 255


def _forward_input(stream: socket.socket) -> None:
    """Send the standard input to the command. Its end is not sent: the launchers of MPI start this without any."""
    with contextlib.suppress(OSError):
        while chunk := os.read(sys.stdin.fileno(), 65536):
            stream.sendall(chunk)


# ---- messages, CPUs and addresses


def _first_message(connection: Connection, timeout_s: float = HELLO_S) -> Message | None:
    """The first message of a connection; None if none comes in time."""
    try:
        return connection.receive(timeout_s)
    except TimeoutError:
        return None
    finally:
        connection.stream.settimeout(None)


def _set_affinity(cpus: list[int]) -> None:
    """Use all CPUs that the launcher gave to the job on this host, where the system allows it."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cpus)


def _given_place() -> dict[str, Any] | None:
    """Where rank 0 is, as the user has given it; in the form of the file that rank 0 writes otherwise."""
    text = os.environ.get(RENDEZVOUS)
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 65536):
        raise BadInput(f"{RENDEZVOUS} is {text[:60]!r}, wanted host:port of rank 0")
    secret = os.environ.get(SECRET, "")
    if len(secret) < SECRET_LENGTH:
        found = f"found {len(secret)}" if secret else "it is not set"
        raise BadInput(
            f"{RENDEZVOUS} needs {SECRET} with {SECRET_LENGTH} or more characters, {found}; before the launcher say: "
            f"export {SECRET}=$(openssl rand -hex 16) (srun and MPICH pass it on; Open MPI with mpirun -x {SECRET}; "
            "for torchrun set the same value on every host)"
        )
    return {"addresses": [host], "port": int(port), "secret": secret}


def _advice(given: dict[str, Any] | None) -> str:
    """What to do when ranks do not meet."""
    if given is None:
        both = f"set {RENDEZVOUS}=host:port of rank 0 and {SECRET}"
        return f"if the hosts do not share this folder, {both} for all ranks"
    return f"check that rank 0 runs on {given['addresses'][0]}, and that all ranks have the same {SECRET}"


def _address_file(info: RankInfo) -> Path:
    """The file with the address of rank 0: the same for all ranks of a job, and different for every job."""
    job = [info.launcher, str(info.ranks), *(os.environ.get(name, "") for name in JOBS), *sys.argv[1:]]
    return Path(f".deepbench-rendezvous-{hashlib.sha256(chr(0).join(job).encode()).hexdigest()[:16]}")


def _interfaces(info: RankInfo) -> list[str]:
    """Where other ranks may reach this host: the loopback if all are here, else the address of each interface."""
    local = os.environ.get(LOCAL_RANKS.get(info.launcher, ""))
    is_alone = os.environ.get("SLURM_STEP_NUM_NODES") == "1" if info.launcher == "slurm" else local == str(info.ranks)
    return ["127.0.0.1"] if is_alone else _addresses()


def _addresses() -> list[str]:
    """The address of each interface of this host, the loopback last."""
    return sorted(dict.fromkeys(describe.network_addresses().values()), key=_is_loopback) or ["127.0.0.1"]


def _own_addresses(host: str) -> list[str]:
    """The addresses of this host that others reach by this name."""
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)}
    own = sorted(filter(_is_own, found))
    # A host may know its own name as a loopback address, or by the address of a router. Others then use another one.
    is_reached_otherwise = host not in ("localhost", *own) and all(map(_is_loopback, own))
    return _addresses() if is_reached_otherwise else own


def _is_loopback(address: str) -> bool:
    return address.startswith("127.")


def _is_own(address: str) -> bool:
    """Whether it is an address of this host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
