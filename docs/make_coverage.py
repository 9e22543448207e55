"""Write docs/coverage.md: how every (problem, direction, precision) of DeepBench's suites ended on a machine.

Run: python docs/make_coverage.py FILE …     result files of `deepbench run deepbench/…`, several are read together

A problem counts once in a direction and precision, with the best that any library and setting made of it: `ok` if one
is `ok`, else the status of the libraries. What no library is marked for is counted too, from the suites themselves.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from deepbench.core.backend import all_backends, find_backend
from deepbench.core.op import find_op
from deepbench.core.precision import PRECISIONS
from deepbench.core.problem import make_problem
from deepbench.plan.suites import read_suite
from deepbench.results import summary
from deepbench.results.file import read_results
from deepbench.results.record import STATUSES

SUITES = ("deepbench/train", "deepbench/server", "deepbench/device")
NO_LIBRARY, NOT_RUN = "no library", "not run"


def listed() -> dict[tuple[str, str, str], set[tuple[str, object]]]:
    """(suite, op, direction) → the distinct problems with their settings."""
    found: dict[tuple[str, str, str], set[tuple[str, object]]] = {}
    for suite in SUITES:
        for entry in read_suite(suite):
            pattern = entry.pattern
            direction = pattern.direction or find_op(pattern.op).directions[0]
            found.setdefault((suite, pattern.op, direction), set()).add((pattern.problem.text, pattern.settings))
    return found


def ended(paths: list[Path]) -> tuple[dict[tuple[str, str, str, str, str], dict[str, str]], Counter[str], list[str]]:
    """(suite, op, direction, precision, problem) → status by backend; reasons; the machines and libraries."""
    found: dict[tuple[str, str, str, str, str], dict[str, str]] = {}
    reasons: Counter[str] = Counter()
    machines: dict[str, None] = {}
    for path in paths:
        file = read_results(path)
        machine = file.header["machine"]
        libraries = [
            f"{answer['library']['name']} {answer['library']['version']}"
            for answer in file.header["libraries"].values()
            if "library" in answer
        ]
        date = file.header["started"][:10]
        machines[f"{machine['cpu']}, {machine.get('cores_allowed')} cores; {', '.join(libraries)}; {date}"] = None
        for s in summary.summarize(file.records):
            record = s.record
            if not find_backend(record["backend"]).computes:
                continue
            for source in record["sources"]:
                text = make_problem(find_op(record["op"]), record["problem"]).text
                key = (source["suite"], record["op"], record["direction"], record["precision"], text)
                by_backend = found.setdefault(key, {})
                if by_backend.get(record["backend"]) != "ok":  # with some setting
                    by_backend[record["backend"]] = s.status
            if s.status != "ok":
                reasons[f"{record['backend']}: {s.status}: {record['reason']}"] += 1
    return found, reasons, list(machines)


def main() -> None:
    """Write the page beside this file."""
    found, reasons, machines = ended([Path(p) for p in sys.argv[1:]])
    used_backends = {name for by_backend in found.values() for name in by_backend}
    devices = {find_backend(name).device for name in used_backends}
    here = [b for b in all_backends().values() if b.device in devices and b.computes and b.name != "reference"]
    known = {p for b in here for mark in b.marks() for p in mark.precisions}
    columns = [*STATUSES, NO_LIBRARY, NOT_RUN]
    rows, used = [], set()
    totals: Counter[str] = Counter()
    for (suite, op_name, direction), problems in sorted(listed().items()):
        op = find_op(op_name)
        for kind in PRECISIONS.values():
            if not op.allows(direction, kind) or kind.name not in known:
                continue
            counts: Counter[str] = Counter()
            fine: Counter[str] = Counter()
            for text, _ in problems:
                by_backend = found.get((suite, op_name, direction, kind.name, text), {})
                served = [b for b in here if b.supports(op_name, kind.name, direction)]
                status = next((s for s in STATUSES if s in by_backend.values()), NOT_RUN if served else NO_LIBRARY)
                waiting = [b for b in served if b.default and b.name not in by_backend]
                if status != "ok" and waiting:  # another library may still serve it
                    status = NOT_RUN
                counts[status] += 1
                fine.update(name for name, s in by_backend.items() if s == "ok")
            totals.update(counts)
            used.update(counts)
            by = ", ".join(f"{name} {n}" for name, n in sorted(fine.items()))
            rows.append((suite, op_name, direction, kind.name, len(problems), counts, by))
    shown = [c for c in columns if c in used]
    lines = [
        "# Coverage",
        "",
        "How every problem of DeepBench's suites ended, in every direction and precision, on one machine. Made by",
        "`python docs/make_coverage.py` from result files; not written by hand.",
        "",
        *[f"- {m}" for m in machines],
        "",
        "A problem counts once, with the best that any library made of it; the last column has the libraries that are",
        "`ok`, by number of problems. *no library*: none is marked for it. *not run*: beyond the time that was given.",
        "",
        f"| suite | op | direction | precision | problems | {' | '.join(shown)} | ok by library |",
        f"|---|---|---|---|---:|{'---:|' * len(shown)}---|",
    ]
    for suite, op_name, direction, kind_name, count, counts, by in rows:
        cells = " | ".join(str(counts[c]) if counts[c] else "" for c in shown)
        lines.append(f"| {suite} | {op_name} | {direction} | {kind_name} | {count} | {cells} | {by} |")
    cells = " | ".join(str(totals[c]) if totals[c] else "" for c in shown)
    lines.append(f"| all | | | | {sum(totals.values())} | {cells} | |")
    lines += ["", "## Reasons", "", "Why a library has no time for a case, and for how many cases:", ""]
    lines += [f"- {n} × {text}" for text, n in reasons.most_common()]
    Path(__file__).with_name("coverage.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
