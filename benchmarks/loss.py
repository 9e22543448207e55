"""Loss: kill -9 of the run, kill -9 of a worker, and a full disk, each at 20 random moments, then --resume.

Counted over all: cases measured twice, cases missing, lines that do not parse. Run: python benchmarks/loss.py [MOMENTS]
A full disk is a limit on the file's size, which fails the same write().
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

SUITE = ["deepbench/device", "--backend", "null", "--quick"]
CASES = 13


def run(folder: str, words: list[str], **options: object) -> subprocess.Popen[bytes]:
    """Start the command quietly."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    null = subprocess.DEVNULL
    command = [sys.executable, "-m", "deepbench", "run", *words, "-o", "out.jsonl"]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=null, stderr=null, **options)  # type: ignore[call-overload,no-any-return]


def workers_of(pid: int) -> list[int]:
    """Worker processes of this run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"DEEPBENCH_PARENT={pid}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def kill_run(folder: str) -> None:
    """kill -9 of the parent after a random time."""
    process = run(folder, SUITE)
    path = Path(folder, "out.jsonl")
    while not path.exists() and process.poll() is None:
        time.sleep(0.005)
    time.sleep(random.uniform(0, 4))
    process.kill()
    process.wait()


def kill_worker(folder: str) -> None:
    """kill -9 of whatever worker runs after a random time."""
    process = run(folder, SUITE)
    time.sleep(random.uniform(0.5, 4))
    for pid in workers_of(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()


def full_disk(folder: str) -> None:
    """The file may grow to a random size."""
    size = random.randrange(4_000, 60_000)
    run(folder, SUITE, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))).wait()


def main() -> None:
    """Print the counts."""
    moments = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for harm in (kill_run, kill_worker, full_disk):
        twice = missing = broken = 0
        for _ in range(moments):
            with tempfile.TemporaryDirectory() as folder:
                harm(folder)
                path = Path(folder, "out.jsonl")
                if path.exists():
                    run(folder, ["--resume"]).wait()
                else:  # it died before it had begun, so there is nothing to go on with
                    run(folder, SUITE).wait()
                cases: Counter[str] = Counter()
                for line in path.read_bytes().splitlines():
                    try:
                        cases[json.loads(line).get("case", "")] += 1
                    except ValueError:
                        broken += 1
                del cases[""]
                twice += sum(n - 1 for n in cases.values())
                missing += CASES - len(cases)
        name = harm.__name__.replace("_", " ")
        print(
            f"{name:12} {moments} moments: measured twice {twice}, missing {missing}, broken lines {broken}", flush=True
        )


if __name__ == "__main__":
    main()
