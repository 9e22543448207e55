"""What two OpenMP runtimes in one process do to each other: oneDNN (libgomp) and MKL (libiomp5) on the same product.

Each library alone in a process, then both in one process, called in turn. Printed: median time of a call of each, alone
and together. Run: python benchmarks/two_runtimes.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import median

from deepbench.core import units
from deepbench.core.backend import find_backend
from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.machine import describe
from deepbench.measuring import launch
from deepbench.native import callloop

TURNS = 300
TEXT = "gemm m=256 n=128 k=256 a_t=0 b_t=0 forward f32 {name} threads={threads}"


def measure(names: list[str], threads: int) -> dict[str, float]:
    """Median seconds of one call of each library, called in turn in this process."""
    timers = {}
    for name in names:
        c = parse_case(TEXT.format(name=name, threads=threads))
        library = find_backend(name)
        library.open()
        timers[name] = callloop.timer(library.prepare(c, find_op(c.op).operands(c)))[0]
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(TURNS):
        for name, timer in timers.items():
            times[name].append(timer(1) / 1e9)
    return {name: median(found[TURNS // 3 :]) for name, found in times.items()}


def main() -> None:
    """Three processes; the third has both."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[2:], int(sys.argv[1]))))
        return
    threads = describe.default_threads()
    environment = launch.worker_environment(threads, "none", [], os.environ)
    found = []
    for names in (["onednn"], ["mkl"], ["onednn", "mkl"]):
        words = [sys.executable, __file__, str(threads), *names]
        done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
    for name, alone in (("onednn", found[0]), ("mkl", found[1])):
        together = found[2][name]
        times = f"alone {units.seconds(alone[name])}, in turn with the other {units.seconds(together)}"
        print(f"{name:7} {times}: {together / alone[name]:.1f} times")


if __name__ == "__main__":
    main()
