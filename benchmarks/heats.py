"""How well do heats decide? Equal sides, sides with a known delay, and what each comparison costs.

python benchmarks/heats.py [HEATS] [-o FILE]     about an hour for 60 heats; wants OpenBLAS and a C compiler
python benchmarks/heats.py -i FILE               judge what an earlier call measured

Part 1 measures heats of equal sides, for the products and convolutions of the suite `quick` on all libraries. Part 2
measures heats with three rivals: OpenBLAS, and OpenBLAS that adds numbers one after another for 2 % and for 5 % of the
time that its product takes. The heats of a case are then read one after the other as `run --ab` would have met them: a
comparison ends as soon as it is decided, at least `least` and at most `most` heats long, and the next one begins with
the next heat. All these comparisons are independent.

A delay is never exact: additions between two products also slow down the next product. So the ratio over all heats of a
case counts as the true one, and all its ratios are moved by the same factor until it is 2 or 5 %.
"""

import argparse
import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from deepbench.core import registry, stats  # noqa: E402
from deepbench.core.case import Case, parse_case  # noqa: E402
from deepbench.judge import compare, heats  # noqa: E402
from deepbench.machine.describe import default_threads  # noqa: E402
from deepbench.measuring import sides  # noqa: E402
from deepbench.measuring.heat import Rival, measure_heat  # noqa: E402
from deepbench.plan.cases import Choices, expand  # noqa: E402
from deepbench.plan.modes import MODES, Mode  # noqa: E402
from deepbench.plan.suites import read_words  # noqa: E402

MARGIN, DELAYS, TIMEOUT_S = 0.05, (0.02, 0.05), 60.0
SLOWED = [
    "gemm m=512 n=256 k=512 a_t=0 b_t=0 forward f32 slowed threads=1",
    "gemm m=256 n=256 k=256 a_t=0 b_t=0 forward f32 slowed threads=1",
    "gemm m=1024 n=64 k=1024 a_t=0 b_t=0 forward f32 slowed threads=1",
    "gemm m=1760 n=16 k=1760 a_t=0 b_t=0 forward f32 slowed threads=1",
    "gemm m=2048 n=1 k=2048 a_t=0 b_t=0 forward f32 slowed threads=1",
    "gemm m=128 n=96 k=128 a_t=0 b_t=0 forward f32 slowed threads=1",
]

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

Measured = dict[str, list[list[float]]]
"""By case: a list per heat, with the seconds it took and then the log ratio of each rival to the first one."""


def measure(works: dict[str, list[Rival]], count: int, mode: Mode, keep: Callable[[str, list[float]], None]) -> None:
    """Measure so many heats of each work, in random order."""
    for number in range(1, count + 1):
        for name in random.sample(list(works), len(works)):
            begin = time.monotonic()
            first, *others = measure_heat(works[name], number, mode.rules_of_sides, TIMEOUT_S)
            seconds = time.monotonic() - begin
            ratios = [heats.log_ratios([first], [other]) for other in others]
            if all(ratios):
                keep(name, [seconds, *(r[0] for r in ratios)])
            else:
                print(f"left out: {name}: {first['status']} {first['reason']}", file=sys.stderr)
                works = {other: rivals for other, rivals in works.items() if other != name}


@dataclass(frozen=True)
class Decision:
    """One comparison that `run --ab` would have made."""

    difference: stats.Difference
    heats: int
    seconds: float
    verdict: str


def comparisons(rows: list[list[float]], column: int, mode: Mode) -> Iterator[Decision]:
    """The comparisons in a sequence of heats; those that the end could cut short are left out."""
    least, most = mode.rounds_of_sides
    begin = 0
    for end in range(1, len(rows) + 1):
        if len(rows) - begin < most:
            return  # one that would need more heats than are left must not be missing
        taken = rows[begin:end]
        difference = stats.trimmed_difference([row[column] for row in taken])
        if len(taken) < least or difference is None:
            continue
        if len(taken) == most or sides.is_decided(difference, MARGIN):
            verdict = compare.verdict_of(difference, difference.p, MARGIN)
            yield Decision(difference, len(taken), sum(row[0] for row in taken), verdict)
            begin = end


def interval_of_share(hits: int, of: int) -> str:
    """`3/200 (0.5 to 4.3 %)`: a share with Wilson's 95 % interval."""
    if not of:
        return "0/0"
    z, share = 1.96, hits / of
    centre = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return f"{hits}/{of} = {100 * share:.1f} % ({100 * max(0, centre - half):.1f} to {100 * min(1, centre + half):.1f})"


def half_width(decision: Decision) -> float:
    low, high = decision.difference.interval()
    return (high - low) / 2


def contains(decision: Decision, change: float) -> bool:
    low, high = decision.difference.interval()
    return low <= math.log(1 + change) <= high


def report(equal: Measured, delayed: Measured, mode: Mode) -> None:
    """Print what the heats show."""
    if equal:
        report_equal(equal, mode)
    for column, change in enumerate(DELAYS, 1):
        if delayed:
            report_delay(delayed, column, change, mode)


def report_delay(delayed: Measured, column: int, change: float, mode: Mode) -> None:
    """Print how many delays are found, and how often the interval contains the delay."""
    found, actual = [], []
    for rows in delayed.values():
        over_all = stats.trimmed_difference([row[column] for row in rows])
        if over_all is None:
            continue
        actual.append(math.exp(over_all.mean) - 1)
        moved = [[row[0], row[column] - over_all.mean + math.log(1 + change)] for row in rows]
        found += comparisons(moved, 1, mode)
    # At a margin of 0: `slower` means that the delay was found.
    hits = sum(compare.verdict_of(d.difference, d.difference.p, 0.0) == "slower" for d in found)
    inside = sum(contains(d, change) for d in found)
    print(f"delay of {100 * change:.0f} %: found {interval_of_share(hits, len(found))}")
    print(f"    interval contains it {interval_of_share(inside, len(found))}")
    print(f"    measured delays, before they were moved: {', '.join(f'{100 * d:.1f} %' for d in actual)}")


def report_equal(equal: Measured, mode: Mode) -> None:
    """Print what comparisons of equal sides decide."""
    print(f"{'equal sides':62} heats  s/comparison  spread  ±median  decided")
    all_of, seconds = [], 0.0
    for name, rows in equal.items():
        found = list(comparisons(rows, 1, mode))
        if not found:
            continue
        all_of += found
        seconds += median(d.seconds for d in found)
        widths = median(map(half_width, found))
        same = sum(d.verdict == "same" for d in found)
        spread = median(abs(row[1]) for row in rows) / 0.6745
        print(
            f"{name:62} {median(d.heats for d in found):5.0f} {median(d.seconds for d in found):9.1f} "
            f"{100 * spread:9.2f} % {100 * widths:6.2f} % {same:5}/{len(found)}"
        )
    widths = sorted(map(half_width, all_of))
    alarms = sum(d.verdict in ("faster", "slower") for d in all_of)
    print(f"one comparison of every case: {seconds / 60:.1f} min")
    print(
        f"half width: median {100 * median(widths):.2f} %, 90th percentile {100 * widths[9 * len(widths) // 10]:.2f} %"
    )
    same = sum(d.verdict == "same" for d in all_of)
    print(f"decided as equal at a margin of 5 %: {interval_of_share(same, len(all_of))}")
    print(f"false alarms at a margin of 5 %: {interval_of_share(alarms, len(all_of))}")
    beyond = sum(not contains(d, 0.0) for d in all_of)
    print(f"intervals without 1: {interval_of_share(beyond, len(all_of))}")


def main() -> None:
    """Measure or read, then report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("heats", type=int, nargs="?", default=60)
    parser.add_argument("-o", "--output", type=Path, default=Path("heats.jsonl"))
    parser.add_argument("-i", "--input", type=Path)
    parser.add_argument("--part", choices=("equal", "delayed"), help="one part only")
    parser.add_argument("--mode", choices=MODES, default="default")
    options = parser.parse_args()
    mode = MODES[options.mode]
    equal: Measured = {}
    delayed: Measured = {}
    if options.input is None:
        # Before the plug-in below is a library, too.
        cases: list[Case] = [
            p.case
            for p in expand(read_words(["quick"]), Choices(backends=("mkl", "onednn", "openblas")), default_threads())
            if p.case.op in ("gemm", "conv") and p.sources  # without baselines of other operations
        ]
        with tempfile.TemporaryDirectory() as folder, options.output.open("w") as out:
            (Path(folder) / "backends").mkdir()
            (Path(folder) / "backends" / "slowed.py").write_text(PLUGIN)
            os.environ |= {"DEEPBENCH_PLUGINS": folder, "DEEPBENCH_STATE": folder}
            registry.registered.cache_clear()

            def keep(part: str) -> Callable[[str, list[float]], None]:
                def write(name: str, row: list[float]) -> None:
                    out.write(json.dumps([part, name, row]) + "\n")
                    out.flush()

                return write

            if options.part != "delayed":
                measure({c.text: [Rival(c), Rival(c)] for c in cases}, options.heats, mode, keep("equal"))
            rivals = {
                text: [Rival(parse_case(text), {"SLOWED_BY": str(delay)}) for delay in (0.0, *DELAYS)]
                for text in SLOWED
            }
            if options.part != "equal":
                measure(rivals, options.heats, mode, keep("delayed"))
    for line in (options.input or options.output).read_text().splitlines():
        part, name, row = json.loads(line)
        (equal if part == "equal" else delayed).setdefault(name, []).append(row)
    report(equal, delayed, mode)


if __name__ == "__main__":
    main()
