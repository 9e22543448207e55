"""Another user of the same machine reads no secret and runs nothing. Only root can act as another user."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, records_of

pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user"),
    pytest.mark.process,
]

NOBODY = 65534
SECRET = "nvapi-hunter2-of-this-test"
LISTENING = "0A"  # the state in /proc/net/tcp


def listeners_of(pids):
    """The TCP ports at which these processes listen, with their addresses."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(link)):
                    inodes.add(match[1])
            except OSError:
                continue
    found = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTENING and fields[9] in inodes:
            address, port = fields[1].split(":")
            found[int(port, 16)] = socket.inet_ntoa(bytes.fromhex(address)[::-1])
    return found


def attack(ports, trap):
    """As another user, send requests of every kind to these ports; the answers."""
    requests = (
        {"hello": {"rank": 0, "ranks": 2, "pid": 1, "host": "x", "token": ""}},
        {"command": f"touch {trap}", "key": ""},
        {"rank": 1, "host": "x", "port": 1, "key": "", "token": "", "cpus": [0]},
        {"environment": {}, "command": ["touch", trap]},
        {"record": {}},
    )
    "localhost".encode("idna")  # the other user may not be able to load the codec from our Python
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        heard = []
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            for port in ports:
                for request in requests:
                    try:
                        with socket.create_connection(("127.0.0.1", port), timeout=1) as stream:
                            stream.sendall(json.dumps(request).encode() + b"\n")
                            stream.settimeout(0.1)
                            heard.append(stream.recv(65536).hex())
                    except OSError:
                        heard.append("")
        finally:
            os.write(writer, json.dumps(heard).encode())
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader, "rb") as answers:
        return [bytes.fromhex(text) for text in json.load(answers)]


@pytest.fixture
def group_run(tmp_path):
    """A group of two ranks in two rounds."""
    words = ["run", "all_reduce n=100000 ranks=2 forward f32 mpich threads=1", "--rounds", "2", "-o", "out.jsonl"]
    run = subprocess.Popen(
        [sys.executable, "-m", "deepbench", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NVIDIA_API_KEY": SECRET},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield run
    run.kill()
    run.wait()


def test_another_user_learns_nothing_and_starts_nothing(group_run, tmp_path):
    trap, ports, heard = tmp_path / "owned", {}, []
    tmp_path.chmod(0o777)
    while group_run.poll() is None:
        if found := listeners_of([group_run.pid]):
            ports |= found
            heard += attack(list(found), str(trap))
        time.sleep(0.02)
    _, errors = group_run.communicate()

    if "not found" in errors or "mpi4py" in errors:
        pytest.skip(errors.strip())
    assert 0 == group_run.returncode, errors
    assert heard, "no listener was found"
    assert {"127.0.0.1"} == set(ports.values())
    assert not trap.exists()
    assert max(map(len, heard)) <= 64, "a stranger hears at most a random number"
    records = records_of(tmp_path / "out.jsonl")
    assert ["ok"] * 2 == [r["status"] for r in records], [r["reason"] for r in records]
    assert SECRET not in (tmp_path / "out.jsonl").read_text()
