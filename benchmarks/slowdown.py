"""A slowdown of known size put into a real library: is it found, by two sides that take turns, and by two runs?

python benchmarks/slowdown.py [ROUNDS]      about a quarter of an hour with 12 rounds; wants OpenBLAS and a C compiler

A library of its own multiplies with OpenBLAS and then adds numbers one after another for 2, 5 or 10 % of the time that
the product takes. What `selftest` promises for this machine, from the processes without the delay alone, stands beside
what is found. The last row is a real loss: one thread instead of two.
"""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from deepbench.judge import compare, selftest  # noqa: E402
from deepbench.results import summary  # noqa: E402
from deepbench.results.file import ResultFile, read_results  # noqa: E402

CASES = [
    "gemm m=512 n=256 k=512 a_t=0 b_t=0 forward f32 slowed threads=1 pin=cores",
    "gemm m=256 n=256 k=256 a_t=0 b_t=0 forward f32 slowed threads=1 pin=cores",
    "gemm m=1024 n=64 k=1024 a_t=0 b_t=0 forward f32 slowed threads=1 pin=cores",
    "gemm m=1760 n=16 k=1760 a_t=0 b_t=0 forward f32 slowed threads=1 pin=cores",
    "gemm m=2048 n=1 k=2048 a_t=0 b_t=0 forward f32 slowed threads=1 pin=cores",
    "gemm m=128 n=96 k=128 a_t=0 b_t=0 forward f32 slowed threads=1 pin=cores",
]
CHANGES, SIDE, DEALS = (0.0, 0.02, 0.05, 0.10), 5, 400

PLUGIN = """
import os, time
from statistics import median

from deepbench.core.backend import kernel
from deepbench.core.kernel import Call, Kernel
from deepbench.backends.openblas import OpenBLAS
from deepbench.native import callloop

TRIAL = 1_000_000  # so many that calling them from Python costs nothing beside them


class Slowed(OpenBLAS):
    name, title = "slowed", "OpenBLAS with a delay"

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case, arrays):
        made, additions = super().gemm(case, arrays), callloop.native_library().deepbench_additions
        both = made.calls[0], Call(additions, TRIAL)
        # In every process anew: neighbours of this virtual CPU slow a product down more than additions.
        times, end = ([], []), time.perf_counter() + 0.4
        while time.perf_counter() < end:
            for own, call in zip(times, both):
                start = time.perf_counter()
                call.function(*callloop.python_arguments(call))
                own.append(time.perf_counter() - start)
        product_s, trial_s = map(median, times)
        count = round(float(os.environ["SLOWED_BY"]) * product_s / trial_s * TRIAL)
        return Kernel(calls=(made.calls[0], Call(additions, count)))


BACKEND = Slowed()
"""


def main(rounds: int) -> None:
    """A row a change."""
    with tempfile.TemporaryDirectory() as folder:
        plugins = Path(folder) / "backends"
        plugins.mkdir()
        (plugins / "slowed.py").write_text(PLUGIN)
        list_file = Path(folder) / "cases.txt"
        list_file.write_text("\n".join(CASES) + "\n")
        environment = {**os.environ, "DEEPBENCH_PLUGINS": folder, "PYTHONPATH": str(ROOT)}
        environment["DEEPBENCH_STATE"] = folder

        def run(*words: str, **variables: str) -> None:
            command = [sys.executable, "-m", "deepbench", "run", *words, "--rounds", str(rounds)]
            done = subprocess.run(command, env=environment | variables, cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr

        for change in CHANGES:
            run(str(list_file), "--ab", f"SLOWED_BY=0.0,{change}0", "-o", f"turns-{change}")
        for change in ("before", *CHANGES):
            share = "0" if change == "before" else str(change)
            run(str(list_file), "-o", f"lone-{change}.jsonl", SLOWED_BY=share)
        run("gemm", "m=512", "n=256", "k=512", "f32", "openblas", "--ab", "threads=2,1", "-o", "turns-threads")
        read = lambda name: read_results(Path(folder) / f"{name}.jsonl")  # noqa: E731
        equal = times_of(read("turns-0.0.a"), read("turns-0.0.b"))
        print(f"{len(CASES)} products, {rounds} processes a side, one thread; found: `slower` at margin 0")
        print(f"{'':8}{'in turn':^42}{'two runs':^31}{'five processes a side':^24}")
        print(f"{'delay':8}found  interval has it  median half width  found  interval has it  promised  found")
        for change in CHANGES:
            turns = compare.compare_files(read(f"turns-{change}.a"), read(f"turns-{change}.b"), 0.0)
            apart = compare.compare_files(read("lone-before"), read(f"lone-{change}"), 0.0)
            promised = [selftest.verdict_rates(t, change, True, 0.0, 1).slower for t in equal.values()]
            found = dealt_found(turns)
            print(
                f"{100 * change:4.0f} %  {slower(turns)}/{len(CASES)}    {has(turns, change)}/{len(CASES)}"
                f"{'±' + format(100 * half_width(turns), '.2f') + ' %':>24}"
                f"{slower(apart):>10}/{len(CASES)}    {has(apart, change)}/{len(CASES)}"
                f"{100 * sum(promised) / len(promised):18.0f} %{100 * found:6.0f} %"
            )
            for c in turns.cases:
                low, high = c.interval or (float("nan"),) * 2
                print(f"    {c.case[:44]:44} in turn {c.ratio:.4f} ({low:.4f} to {high:.4f}) {c.verdict}", end="")
                other = next(o for o in apart.cases if o.case == c.case)
                low, high = other.interval or (float("nan"),) * 2
                print(f"; two runs {other.ratio:.4f} ({low:.4f} to {high:.4f}) {other.verdict}")
        threads = compare.compare_files(read("turns-threads.a"), read("turns-threads.b")).cases[0]
        print(f"one thread instead of two: {threads.ratio:.3f} times the time, {threads.verdict}")


def slower(found: compare.Comparison) -> int:
    return sum(c.verdict == "slower" for c in found.cases)


def has(found: compare.Comparison, change: float) -> int:
    """Intervals that contain the true change."""
    return sum(c.interval is not None and c.interval[0] <= 1 + change <= c.interval[1] for c in found.cases)


def half_width(found: compare.Comparison) -> float:
    widths = sorted((c.interval[1] - c.interval[0]) / 2 for c in found.cases if c.interval)
    return widths[len(widths) // 2]


def times_of(*files: ResultFile) -> dict[str, list[float]]:
    """Times of the processes of both sides, in turn as they were measured."""
    found: dict[str, list[float]] = {}
    rows = [r for f in files for r in f.records]
    for r in sorted(rows, key=lambda r: r["round"]):
        found.setdefault(r["case"], []).append(summary.process_number(r["measurement"]).time_s)
    return found


def dealt_found(found: compare.Comparison) -> float:
    """How often five rounds of each side, drawn at random, show the second one slower, by what was measured."""
    rng, hits, tried = random.Random(1), 0, 0
    for c in found.cases:
        a, b = ({r["round"]: r for r in s.rounds} for s in (c.a, c.b))
        common = sorted(set(a) & set(b))
        for _ in range(DEALS):
            chosen = rng.sample(common, SIDE)
            sides = [compare.process_times_s([side[n] for n in chosen]) for side in (a, b)]
            difference, _ = compare.difference_of(*sides, True)
            if difference is not None:
                tried += 1
                hits += compare.verdict_of(difference, difference.p, 0.0) == "slower"
    return hits / tried


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
