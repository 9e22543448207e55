"""How often are equal programs called different, by our rule and by two usual ones? And what does ours find?

python benchmarks/false_alarms.py FILE [FILE]...    files of runs of one code with many rounds, such as
    deepbench run quick --ab DEEPBENCH_AA=1,2 --rounds 12 -o aa    (aa.a.jsonl aa.b.jsonl)

For each case, the processes of all files are dealt out into two sides of five, 200 comparisons over all cases and as
many again with one side slower. Match ours, on the very same processes: Student's t on all samples of both sides, as
pyperf does, and a ratio of means of ten calls beyond 5 %, as the original DeepBench would have been compared.
"""

import math
import random
import sys
from pathlib import Path
from statistics import mean, variance

sys.path.insert(0, str(Path(__file__).parent.parent))

from deepbench.core import stats
from deepbench.judge import compare
from deepbench.results import summary
from deepbench.results.file import read_results

SIDE, COMPARISONS, CHANGES = 5, 200, (0.0, 0.02, 0.05, 0.10, 0.30)


def ours(a: list[dict], b: list[dict], slower: float) -> str:
    """The verdict of `compare`, for a case alone."""
    times = [[summary.process_number(m).time_s for m in side] for side in (a, b)]
    difference, _ = compare.difference_of(times[0], [t * (1 + slower) for t in times[1]], False)
    assert difference is not None, "five processes are enough"
    return compare.verdict_of(difference, difference.p, compare.MARGIN)


def welch(a: list[dict], b: list[dict], slower: float) -> str:
    """Welch's test on logarithms of the same processes, all of them."""
    logs = [[math.log(summary.process_number(m).time_s) for m in side] for side in (a, b)]
    va, vb = (variance(side) / len(side) for side in logs)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    difference = stats.Difference(mean(logs[1]) - mean(logs[0]) + math.log1p(slower), math.sqrt(va + vb), freedom)
    return compare.verdict_of(difference, difference.p, compare.MARGIN)


def all_samples(a: list[dict], b: list[dict], slower: float) -> str:
    """Student's t on all samples of all processes together, p < 0.05."""
    x = [s for m in a for s in m["samples_s"]]
    y = [s * (1 + slower) for m in b for s in m["samples_s"]]
    pooled = ((len(x) - 1) * variance(x) + (len(y) - 1) * variance(y)) / (len(x) + len(y) - 2)
    t = (mean(y) - mean(x)) / math.sqrt(pooled * (1 / len(x) + 1 / len(y)))
    if stats.t_p_value(t, len(x) + len(y) - 2) >= 0.05:
        return "cannot tell"
    return "slower" if t > 0 else "faster"


def means_of_ten(a: list[dict], b: list[dict], slower: float) -> str:
    """The mean of the first ten samples of one process each, more than 5 % apart."""
    ratio = mean(b[0]["samples_s"][:10]) * (1 + slower) / mean(a[0]["samples_s"][:10])
    return "slower" if ratio > 1.05 else "faster" if ratio < 1 / 1.05 else "same"


def main(paths: list[str]) -> None:
    """A row a rule."""
    by_case: dict[str, list[dict]] = {}
    for path in paths:
        for r in read_results(Path(path)).records:
            if r["status"] == "ok" and len(r["measurement"]["samples_s"]) > 1:
                by_case.setdefault(r["case"], []).append(r["measurement"])
    cases = [c for c, found in by_case.items() if len(found) >= 2 * SIDE]
    rng = random.Random(1)
    deals = []
    for i in range(COMPARISONS):
        drawn = rng.sample(by_case[cases[i % len(cases)]], 2 * SIDE)
        deals.append((drawn[:SIDE], drawn[SIDE:]))
    print(f"{COMPARISONS} comparisons of {SIDE} with {SIDE} processes over {len(cases)} cases")
    print(f"{'':32}false alarms  same" + "".join(f"  finds +{100 * c:.0f} %" for c in CHANGES[1:]))
    rules = (
        ("ours", ours),
        ("Welch on all processes", welch),
        ("t-test on all samples", all_samples),
        ("ratio of means of 10", means_of_ten),
    )
    for name, rule in rules:
        verdicts = {c: [rule(a, b, c) for a, b in deals] for c in CHANGES}
        equal = verdicts[0.0]
        alarms = sum(v in ("faster", "slower") for v in equal) / COMPARISONS
        same = equal.count("same") / COMPARISONS
        finds = "".join(f"{100 * verdicts[c].count('slower') / COMPARISONS:10.0f} %" for c in CHANGES[1:])
        print(f"{name:32}{100 * alarms:10.1f} % {100 * same:3.0f} %{finds}")


if __name__ == "__main__":
    main(sys.argv[1:])
