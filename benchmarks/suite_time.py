"""How long a suite takes, against the original's fixed rule: 11 calls of each problem, from the times just measured.

Run: python benchmarks/suite_time.py [WORDS OF deepbench run …]     default: deepbench/train --op gemm --precision f32
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from deepbench.core import units
from deepbench.results import summary
from deepbench.results.file import read_results

CALLS = 11  # one warm-up and ten


def main() -> None:
    """Default settings and --quick, one after the other."""
    words = sys.argv[1:] or ["deepbench/train", "--op", "gemm", "--precision", "f32"]
    for mode in ([], ["--quick"]):
        with TemporaryDirectory() as folder:
            path = Path(folder, "out.jsonl")
            start = time.monotonic()
            command = [sys.executable, "-m", "deepbench", "run", *words, *mode, "-o", str(path)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            took = time.monotonic() - start
            found = [s for s in summary.summarize(read_results(path).records) if s.estimate]
            rule = CALLS * sum(s.estimate.time_s for s in found if s.estimate)
            name = " ".join(mode) or "default"
            print(
                f"{name:8} {len(found)} cases: took {units.duration(took)}, the fixed rule {units.duration(rule)},"
                f" ratio {took / rule:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
