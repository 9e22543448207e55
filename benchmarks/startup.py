"""Start-up: wall seconds of `deepbench --help` and `list`, median of 15, beside a bare Python.

Run: python benchmarks/startup.py
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median


def seconds(words: list[str]) -> float:
    """One run of the interpreter with these words."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Interleaved, so that all meet the same machine."""
    commands = {
        "python -c pass": ["-c", "pass"],
        "deepbench --help": ["-m", "deepbench", "--help"],
        "deepbench list": ["-m", "deepbench", "list"],
        "deepbench list deepbench/train": ["-m", "deepbench", "list", "deepbench/train"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(15):
        for name, words in commands.items():
            times[name].append(seconds(words))
    for name, found in times.items():
        print(f"{name:32} {median(found):.3f} s")


if __name__ == "__main__":
    main()
