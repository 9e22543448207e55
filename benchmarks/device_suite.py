"""The device suite through libraries side by side: a table of times, one row per problem and precision.

    pip install -e '.[onnxruntime]' openvino && pip install --no-deps executorch==1.5.1
    deepbench run deepbench/device --precision f32,i8,i8u8 --backend xnnpack,onnxruntime,openvino,onednn \\
        --set weights=packed --set beta=0 --budget 14min -o device.jsonl
    python benchmarks/device_suite.py device.jsonl

The fastest library of a row is bold if it is certain: its interval lies below that of every other one. A time that
other programs disturbed is an upper bound (≤). The second table counts what was not measured, with its reasons.
"""

from __future__ import annotations

import sys
from collections import Counter

import deepbench
from deepbench.core import units
from deepbench.results.summary import Summary

ORDER = ("xnnpack", "onnxruntime", "openvino", "onednn")


def main(path: str) -> None:
    results = deepbench.load(path)
    rows: dict[tuple[str, str, str], dict[str, Summary]] = {}
    titles: dict[str, str] = {}
    for s in results.summaries:
        if s.record["op"] == "gemm" and s.record["settings"].get("weights") != "packed":
            continue  # the dense counterpart of a sparse product
        title = s.problem_title.replace(" weights=packed", "").replace(" beta=0", "")
        rows.setdefault((s.record["op"], title, s.record["precision"]), {})[s.record["backend"]] = s
        titles.setdefault(s.record["backend"], s.title_with_version)
    names = [name for name in ORDER if name in titles]
    print(f"| operation | problem | type | {' | '.join(titles[name] for name in names)} |")
    print(f"|---|---|---|{'---:|' * len(names)}")
    reasons: Counter[tuple[str, str]] = Counter()
    for (op, problem, precision), row in rows.items():
        fastest = certain(row)
        cells = [cell(row.get(name), name == fastest) for name in names]
        print(f"| `{op}` | {problem} | {precision} | {' | '.join(cells)} |")
        for name, s in row.items():
            if s.estimate is None:
                reasons[(name, f"{s.status}: {s.record['reason']}")] += 1
    for (name, reason), count in reasons.most_common():
        print(f"- {count} × `{name}`: {reason}")


def cell(s: Summary | None, is_fastest: bool) -> str:
    """A time with its interval, or how the case ended."""
    if s is None:
        return "–"
    if s.estimate is None:
        return s.status
    text = units.seconds(s.estimate.time_s)
    if s.is_disturbed:
        return f"≤ {text}"
    return f"**{text}**" if is_fastest else text


def certain(row: dict[str, Summary]) -> str | None:
    """The library whose interval lies below all others; None if there is none."""
    timed = {n: s for n, s in row.items() if s.estimate is not None}
    if len(timed) < 2 or any(s.estimate.high_s is None or s.is_disturbed for s in timed.values()):
        return None
    best = min(timed, key=lambda n: timed[n].estimate.time_s)
    others = [s.estimate.low_s for n, s in timed.items() if n != best]
    return best if timed[best].estimate.high_s < min(others) else None


if __name__ == "__main__":
    main(sys.argv[1])
