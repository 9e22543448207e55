"""All-reduce of large messages between simulated hosts against a plain socket on the same link.

python benchmarks/link.py [ROUNDS]      as root: hosts are network namespaces of this machine

Prints one line per round and number of hosts: the bus bandwidth of MPICH, the rate of the socket, and their ratio.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.hosts.lab import Lab

ELEMENTS = {2: 16_777_217, 4: 6_553_600}  # of f32, by the number of hosts

RECEIVE = """
import socket, time
s = socket.create_server(("0.0.0.0", 7001)); c, _ = s.accept(); c.recv(1 << 22, socket.MSG_WAITALL)
start, got = time.monotonic(), 0
while chunk := c.recv(1 << 20): got += len(chunk)
print(got / (time.monotonic() - start))
"""
SEND = """
import socket, sys, time
for _ in range(100):
    try: c = socket.create_connection((sys.argv[1], 7001)); break
    except OSError: time.sleep(0.05)
c.sendall(bytes(1 << 27)); c.close()
"""


def socket_rate(lab: Lab) -> float:
    """Bytes per second that a plain socket carries from the second host to the first."""
    receiver = lab.start([sys.executable, "-c", RECEIVE])
    lab.start([sys.executable, "-c", SEND, lab.address("h0")], on="h1").communicate(timeout=60)
    return float(receiver.communicate(timeout=60)[0])


def bus_rate(lab: Lab, count: int) -> float:
    """Bytes per second that the best all-reduce of `count` ranks carries over each link."""
    words = ["--rounds", "2", "--backend", "mpich", f"all_reduce n={ELEMENTS[count]} ranks={count}"]
    command = [sys.executable, "-m", "deepbench", "run", *words, "--hostfile", "hosts", "-o", "out.jsonl"]
    said, _ = lab.start(command, PYTHONPATH=str(Path(__file__).parent.parent)).communicate(timeout=240)
    lines = [json.loads(line) for line in (lab.folder / "out.jsonl").read_text().splitlines()[1:]]
    times_s = [min(r["measurement"]["samples_s"]) for r in lines if r.get("status") == "ok"]
    if not times_s:
        raise SystemExit(f"no all-reduce was measured:\n{said}")
    best = min(times_s)
    return 2 * (count - 1) / count * 4 * ELEMENTS[count] / best


def main(rounds: int) -> None:
    """Measure both in turn on each of the new hosts."""
    for _ in range(rounds):
        for count in ELEMENTS:
            with Lab(count, "1gbit") as lab:
                plain, bus = socket_rate(lab), bus_rate(lab, count)
            rates = f"MPICH {bus / 1e6:5.1f} MB/s  socket {plain / 1e6:5.1f} MB/s"
            print(f"{count} hosts  {rates}  {bus / plain:.2f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
