"""Repeatability: the suite `quick` twice in a row, by our rule and by two others, measured in the same run.

The others are the original's (mean of 10 calls after one warm-up) and best of 10, each in a fresh process for each
case. Printed for each rule: median and 95th percentile over cases of |log ratio| of the two passes.

Run: python benchmarks/repeatability.py [FOLDER]     the two result files are kept in FOLDER
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean, median

from deepbench.core.backend import find_backend
from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.machine import describe
from deepbench.measuring import launch
from deepbench.native import callloop
from deepbench.plan.cases import Choices, expand
from deepbench.plan.suites import read_words
from deepbench.results import summary
from deepbench.results.file import read_results


def original_rule(text: str) -> tuple[float, float]:
    """Mean and minimum of 10 calls after one warm-up, in seconds."""
    c = parse_case(text)
    arrays = find_op(c.op).operands(c)
    library = find_backend(c.backend)
    library.open()
    kernel = library.prepare(c, arrays)
    kernel.load()
    timer, _ = callloop.timer(kernel)
    timer(1)
    times = [timer(1) / 1e9 for _ in range(10)]
    return mean(times), min(times)


def one_pass(path: Path, texts: list[str]) -> dict[str, dict[str, float]]:
    """Times of each rule by case."""
    subprocess.run([sys.executable, "-m", "deepbench", "run", "-o", str(path)], check=True, stdout=subprocess.DEVNULL)
    found = {
        s.record["case"]: {"ours": s.estimate.time_s}
        for s in summary.summarize(read_results(path).records)
        if s.status == "ok" and s.estimate
    }
    environment = launch.worker_environment(describe.default_threads(), "none", [], os.environ)
    for text in texts:
        if text in found:
            words = [sys.executable, __file__, "one", text]
            done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
            found[text]["mean of 10"], found[text]["best of 10"] = json.loads(done.stdout)
    return found


def main() -> None:
    """Two passes, three rules."""
    if len(sys.argv) == 3:
        print(json.dumps(original_rule(sys.argv[2])))
        return
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    planned = expand(read_words(["quick"]), Choices(), describe.default_threads())
    texts = [p.case.text for p in planned]
    first, second = (one_pass(folder / f"repeatability-{i}.jsonl", texts) for i in (1, 2))
    print(f"{len(first)} cases")
    for rule in ("ours", "mean of 10", "best of 10"):
        apart = sorted(abs(math.log(first[t][rule] / second[t][rule])) for t in first if t in second)
        p95 = apart[math.ceil(0.95 * len(apart)) - 1]
        print(f"{rule:12} median {100 * median(apart):5.2f} %   95th percentile {100 * p95:5.2f} %")


if __name__ == "__main__":
    main()
