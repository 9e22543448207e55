"""Which limit explains the time of each problem of the suites of the original, at the fastest library.

python benchmarks/bounds.py [FILE] [--budget 10min] [--list]

With a FILE that exists, its results are judged. Otherwise `deepbench/train` and `deepbench/server` are measured in f32
with one process per case, as far as the budget allows, and stored there. `--list` names every problem that no limit
explains, with its shares.

A limit explains a problem if the time at this limit is at least half of the measured time. Results are left out if
other programs kept so many CPUs busy that the threads could not all run: the time is then that of waiting.
Target: 85 % of the problems are explained.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from deepbench.core.units import percent  # noqa: E402
from deepbench.judge import limits  # noqa: E402
from deepbench.results.file import ResultFile, read_results  # noqa: E402
from deepbench.results.summary import Summary, summarize  # noqa: E402
from deepbench.results.work import Work  # noqa: E402

SUITES, OPERATIONS = ("deepbench/train", "deepbench/server"), ("gemm", "conv", "recurrent", "sparse_gemm")
NAMES = ("compute", "memory", "L3", "L2", "L1", "latency", "parallelism", limits.CONVERSION)


def measure(path: Path, budget: str) -> None:
    """Measure both suites in f32, as far as the budget allows."""
    words = [sys.executable, "-m", "deepbench", "run", *SUITES, "--op", ",".join(OPERATIONS), "--precision", "f32"]
    command = [*words, "--quick", "--budget", budget, "-o", str(path)]
    subprocess.run(command, check=True, cwd=ROOT)


def fastest(file: ResultFile) -> list[Summary]:
    """The fastest checked result of each problem in f32. Frameworks do not count, because they call libraries."""
    found: dict[Work, Summary] = {}
    for s in summarize(file.records):
        r = s.record
        is_asked = r["op"] in OPERATIONS and r["precision"] == "f32" and not r["framework"] and not s.is_group
        if is_asked and s.status == "ok" and s.estimate and {source["suite"] for source in r["sources"]} & set(SUITES):
            found[s.work] = min(found.get(s.work, s), s, key=lambda known: known.time_s)
    return list(found.values())


def undisturbed(file: ResultFile) -> list[Summary]:
    """The same without those that other programs disturbed."""
    return [s for s in fastest(file) if not any(map(limits.is_crowded, s.rounds))]


def table(file: ResultFile) -> list[str]:
    """Lines of Markdown: the share of the problems of each operation that each limit explains."""
    chosen = undisturbed(file)
    known = limits.of_file(file, summarize(file.records))
    counts: dict[str, Counter[str]] = {op: Counter() for op in (*OPERATIONS, "all")}
    for s in chosen:
        nearest = known.nearest(s)
        for op in (s.record["op"], "all"):
            is_known = nearest is not None and nearest.name != limits.UNKNOWN
            counts[op][nearest.name if nearest is not None and is_known else limits.UNEXPLAINED] += 1
    lines = [
        f"| operation | problems | explained | {' | '.join(NAMES)} |",
        f"|---|---:|---:|{'---:|' * len(NAMES)}",
    ]
    for op, found in counts.items():
        total = sum(found.values())
        if total:
            explained = percent(1 - found[limits.UNEXPLAINED] / total)
            shares = " | ".join(percent(found[name] / total) if found[name] else "–" for name in NAMES)
            lines.append(f"| {op} | {total} | {explained} | {shares} |")
    return lines


def unexplained(file: ResultFile) -> list[str]:
    """A line for each problem that no limit explains: the nearest share, the time, the case, and all shares."""
    known = limits.of_file(file, summarize(file.records))
    lines = []
    for s in undisturbed(file):
        nearest = known.nearest(s)
        if nearest is not None and nearest.name in (limits.UNEXPLAINED, limits.UNKNOWN):
            share = nearest.share or 0.0
            line = f"{percent(share):>5}  {s.time_s * 1e6:10.1f} µs  {s.record['case']}: {nearest.evidence}"
            lines.append((s.record["op"], share, line))
    return [line for _, _, line in sorted(lines)]


def main() -> None:
    """Measure if necessary, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--budget", default="10min")
    parser.add_argument("--list", action="store_true")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = words.file or Path(folder) / "bounds.jsonl"
        if not path.exists():
            measure(path, words.budget)
        file = read_results(path)
    machine = file.header["machine"]
    print(f"{date.today()}, {machine.get('cpu')}, file of {file.header['started']}\n")
    print("\n".join(table(file)))
    left_out = len(fastest(file)) - len(undisturbed(file))
    print(f"\nleft out because other programs kept CPUs busy: {left_out} problems")
    if words.list:
        print("\n" + "\n".join(unexplained(file)))


if __name__ == "__main__":
    main()
