"""One CPU reached in several ways: the same problems through native libraries and through interfaces, in turn.

    deepbench run deepbench/server --quick --fit 4GiB+20GFLOP \\
        --backend onednn,mkl,openblas,aocl,pjrt,onnxruntime -o ways.jsonl
    python benchmarks/ways.py ways.jsonl

For each operation: how every case ended, and the time next to the fastest native library, as the geometric mean of
ratios. For each case of an interface that has a time: what explains the difference from the fastest native library.
Times that other programs disturbed are in no ratio.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from statistics import median

import deepbench
from deepbench.results.summary import Summary

INTERFACES = ("pjrt", "onnxruntime", "openvino", "iree")
# Within this share, two times are the same.
SAME = 0.05
# Words in what ran that say that arrays were rearranged in the timed call.
REARRANGED = ("transpose", "reorder", "convert", "copy", "cast")


def main(path: str) -> None:
    results = deepbench.load(path)
    by_work: dict[str, dict[str, Summary]] = {}
    for s in results.summaries:
        by_work.setdefault(s.work.text, {})[s.record["backend"]] = s
    names = list(dict.fromkeys(name for group in by_work.values() for name in group))
    operations = list(dict.fromkeys(next(iter(group.values())).record["op"] for group in by_work.values()))
    print("| operation | library | ended | time / fastest native |")
    print("|---|---|---|---:|")
    why: dict[tuple[str, str], Counter[str]] = {}
    for op in operations:
        groups = [g for g in by_work.values() if next(iter(g.values())).record["op"] == op]
        for name in names:
            mine = [g[name] for g in groups if name in g]
            ended = Counter(s.status for s in mine)
            ratios = []
            for group in groups:
                best = native(group)
                own = group.get(name)
                if best is None or own is None or own.estimate is None:
                    continue
                if own.is_disturbed or best.is_disturbed:
                    if name in INTERFACES:
                        why.setdefault((op, name), Counter())["disturbed"] += 1
                    continue
                ratio = own.estimate.time_s / best.estimate.time_s
                ratios.append(ratio)
                if name in INTERFACES:
                    reason = explain(own, ratio, own.estimate.time_s - best.estimate.time_s)
                    why.setdefault((op, name), Counter())[reason] += 1
            missing = len(groups) - len(mine)
            disturbed = sum(s.estimate is not None and s.is_disturbed for s in mine)
            words = [f"{n} {status}" for status, n in ended.items()] + ([f"{missing} not served"] if missing else [])
            words += [f"{disturbed} of them disturbed"] if disturbed else []
            mean = f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}" if ratios else "–"
            print(f"| `{op}` | `{name}` | {', '.join(words)} | {mean} |")
    print()
    print("| operation | interface | what explains the difference from the fastest native library |")
    print("|---|---|---|")
    for (op, name), reasons in why.items():
        print(f"| `{op}` | `{name}` | {', '.join(f'{reason}: {n}' for reason, n in reasons.most_common())} |")


def native(group: dict[str, Summary]) -> Summary | None:
    """The fastest library that is no interface."""
    timed = [s for name, s in group.items() if name not in INTERFACES and s.estimate is not None]
    return min(timed, key=lambda s: s.estimate.time_s, default=None)


def explain(own: Summary, ratio: float, more_s: float) -> str:
    """Why an interface takes longer or shorter."""
    if abs(ratio - 1) <= SAME:
        return "the same time"
    if ratio < 1:
        return "its code is faster"
    found = own.record["measurement"]["device"] if own.record["measurement"] else None
    queue = (found or {}).get("queue") or {}
    calls = [queue.get("empty_s") or 0.0] if queue and found["clock"] == "slope" else []
    if calls and more_s <= 1.5 * median(calls):
        return "dispatch"
    words = str(own.record["notes"].get("implementation", "")).lower()
    if any(word in words for word in REARRANGED):
        return "other code, arrays rearranged"
    return "other code"


if __name__ == "__main__":
    main(*sys.argv[1:])
