"""What a fleet file says, for people: the verdict in sentences, then hosts, kernels and links."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from deepbench.core import units
from deepbench.core.stats import lower_quartile
from deepbench.judge.outliers import Deviation
from deepbench.measure import fleet
from deepbench.report.views import Cell, View

# Slow kernels and bad cases that are told of one host; the tables have all.
MOST_TOLD = 3

# Links in their table, the slowest first.
MOST_LINKS = 20


def sentences(found: fleet.FleetFile, judged: fleet.Judgement) -> list[str]:
    """What is wrong with the fleet, the worst first; one sentence where nothing is."""
    told: list[str] = []
    silent = [v for v in judged.hosts if not v.runs]
    told += [f"{v.host} gave no result: {v.failed[-1] if v.failed else 'it was never asked'}" for v in silent]
    told += [f"{v.host} failed in part: {'; '.join(v.failed)}" for v in judged.hosts if v.runs and v.failed]
    for v in judged.hosts:
        told += [f"{v.host} goes wrong where others do not: {case}" for case in v.bad[:MOST_TOLD]]
        if len(v.bad) > MOST_TOLD:
            told.append(f"{v.host} goes wrong in {len(v.bad) - MOST_TOLD} more cases")
    for v in judged.hosts:
        if v.slower:
            told.append(f"{v.host} is slow: {_evidence(v)}")
    for (a, b), reason in judged.failed_pairs.items():
        told.append(f"the link between {a} and {b} failed: {reason}")
    for (a, b), s in judged.slow_pairs.items():
        told.append(f"the link between {a} and {b} is slow: {_times(s)} of the other links'")
    strangers = [h for h in found.hosts if h not in found.header["expected"]]
    if strangers:
        told.append(f"not expected, but there: {', '.join(strangers)}")
    undecided = [v.host for v in judged.hosts if v.undecided]
    if undecided:
        told.append(f"not sure about {', '.join(undecided)}: more runs would tell (--runs)")
    if not told:
        count = len(judged.hosts)
        unseen = f" (less than {units.percent(judged.unseen)} would not have been seen)" if judged.unseen else ""
        told.append(f"all {count} hosts gave their results, and none of them is slow{unseen}")
    return told + _differences(found)


def _evidence(v: fleet.Verdict) -> str:
    parts = []
    if v.whole is not None and v.whole.slower:
        parts.append(f"{_times(v.whole)} of the others' over all kernels")
    slow = list(v.slow_kernels.items())
    parts += [f"{_times(s)} in {case}" for case, s in slow[:MOST_TOLD]]
    if len(slow) > MOST_TOLD:
        parts.append(f"and {len(slow) - MOST_TOLD} more kernels")
    if v.links is not None and v.links.slower:
        parts.append(f"{_times(v.links)} in messages from and to it")
    return "; ".join(parts)


def _times(s: Deviation) -> str:
    chance = "p < 0.0001" if s.p < 1e-4 else f"p = {s.p:.2g}"
    return f"{s.ratio:.2f} times the time ({chance})"


def _differences(found: fleet.FleetFile) -> list[str]:
    """Sentences on what hosts are, where they differ: the larger part first."""
    told = []
    for name, values in fleet.unlike(found.results).items():
        by_size = sorted(values.items(), key=lambda item: -len(item[1]))
        parts = [f"{value[:80]} on {_names(hosts)}" for value, hosts in by_size]
        told.append(f"hosts differ in {name.replace('_', ' ')}: {'; '.join(parts)}")
    return told


def _names(hosts: list[str], most: int = 4) -> str:
    more = f" and {len(hosts) - most} more" if len(hosts) > most else ""
    return ", ".join(hosts[:most]) + more


def by_host(found: fleet.FleetFile, judged: fleet.Judgement) -> View:
    """A row a host."""
    runs = max((r.run for r in found.results), default=0)
    rows: list[dict[str, Cell]] = []
    for v in judged.hosts:
        worst = max(v.kernels.items(), key=lambda item: item[1].ratio, default=None)
        rows.append(
            {
                "host": v.host,
                "runs": f"{v.runs} of {runs}",
                "× others": v.whole.ratio if v.whole else None,
                "p": v.whole.p if v.whole else None,
                "worst kernel": worst[0] if worst else None,
                "× there": worst[1].ratio if worst else None,
                "× links": v.links.ratio if v.links else None,
                "verdict": _verdict(v),
            }
        )
    columns: dict[str, Callable[[Any], str]] = {
        **dict.fromkeys(("host", "runs"), str),
        **dict.fromkeys(("× others", "p"), units.significant),
        "worst kernel": str,
        **dict.fromkeys(("× there", "× links"), units.significant),
        "verdict": str,
    }
    notes = [
        "× others: its time over the median of the others', by the geometric mean over kernels; p: how often chance "
        "would do that, over all hosts.",
    ]
    return View(columns, rows, notes)


def _verdict(v: fleet.Verdict) -> str:
    if not v.runs:
        return "no result"
    words = ["failed in part"] * bool(v.failed) + ["wrong"] * bool(v.bad) + ["slow"] * v.slower
    return ", ".join(words) or ("not sure" if v.undecided else "fine")


def by_kernel(found: fleet.FleetFile) -> View:
    """A row a kernel: the middle of all hosts, and the two ends."""
    rows: list[dict[str, Cell]] = []
    for case, of_host in fleet.times(found.results).items():
        typical = {host: lower_quartile(values) for host, values in of_host.items()}
        middle = median(typical.values())
        slowest, fastest = max(typical, key=lambda h: typical[h]), min(typical, key=lambda h: typical[h])
        rows.append(
            {
                "kernel": case,
                "hosts": len(typical),
                "time": middle,
                "fastest": fastest,
                "× middle": typical[fastest] / middle,
                "slowest": slowest,
                "× the middle": typical[slowest] / middle,
            }
        )
    columns: dict[str, Callable[[Any], str]] = {
        "kernel": str,
        "hosts": str,
        "time": units.seconds,
        "fastest": str,
        "× middle": units.significant,
        "slowest": str,
        "× the middle": units.significant,
    }
    return View(columns, rows, ["time: the median over hosts of each one's lower quartile over runs."])


def by_link(judged: fleet.Judgement) -> View:
    """A row a pair of hosts, the slowest first."""
    middle = median(judged.pair_times.values()) if judged.pair_times else None
    slowest = sorted(judged.pair_times.items(), key=lambda item: -item[1])
    rows: list[dict[str, Cell]] = []
    for (a, b), time_s in slowest[:MOST_LINKS]:
        deviation = judged.pairs.get((a, b))
        rows.append(
            {
                "link": f"{a} – {b}",
                "time": time_s,
                "× middle": time_s / middle if middle else None,
                "verdict": "slow" if deviation and deviation.slower else None,
            }
        )
    columns: dict[str, Callable[[Any], str]] = {
        "link": str,
        "time": units.seconds,
        "× middle": units.significant,
        "verdict": str,
    }
    more = len(slowest) - len(rows)
    notes = [f"{more} faster links are not shown."] if more > 0 else []
    return View(columns, rows, notes)


def to_json(found: fleet.FleetFile, judged: fleet.Judgement) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "header": found.header,
        "verdict": sentences(found, judged),
        "hosts": by_host(found, judged).rows,
        "kernels": by_kernel(found).rows,
        "links": by_link(judged).rows,
    }
