"""A fleet file for people: the verdict in sentences, then hosts, kernels and links."""

from __future__ import annotations

from statistics import median
from typing import Any

from deepbench.core import units
from deepbench.core.stats import lower_quartile
from deepbench.fleets.file import FleetFile
from deepbench.fleets.judge import HostVerdict, Judgement, differences, times
from deepbench.judge.outliers import Deviation
from deepbench.reporting.table import Cell, Column, Part, Table, number
from deepbench.results.file import damage_text

# Slow kernels and failed cases named for one host; the tables have all of them.
MOST_NAMED = 3

# Rows of the table of links.
MOST_LINKS = 20

# Characters of a value in which hosts differ.
MOST_CHARACTERS = 80


def parts(file: FleetFile, judged: Judgement) -> list[Part]:
    """The verdict, then hosts, kernels and links."""
    verdict = [f"• {sentence}" for sentence in sentences(file, judged)]
    return [verdict, by_host(file, judged), by_kernel(file), by_link(judged)]


def sentences(file: FleetFile, judged: Judgement) -> list[str]:
    """What is wrong with the fleet, the worst first; one sentence if nothing is."""
    lines = [
        f"{v.host} returned no result: {v.failed_runs[-1] if v.failed_runs else 'it took part in no run'}"
        for v in judged.hosts
        if not v.runs
    ]
    failed = [v for v in judged.hosts if v.runs and v.failed_runs]
    lines += [f"{v.host} failed in some runs: {'; '.join(v.failed_runs)}" for v in failed]
    for v in judged.hosts:
        lines += [f"{v.host} fails where other hosts do not: {case}" for case in v.failed_cases[:MOST_NAMED]]
        if len(v.failed_cases) > MOST_NAMED:
            lines.append(f"{v.host} fails in {len(v.failed_cases) - MOST_NAMED} more cases")
    lines += [f"{v.host} is slow: {_evidence(v)}" for v in judged.hosts if v.is_slow]
    lines += [f"the link between {a} and {b} failed: {reason}" for (a, b), reason in judged.failed_pairs.items()]
    lines += [f"the link between {a} and {b} is slow: {_times(s)}" for (a, b), s in judged.slow_pairs.items()]
    if file.damaged:
        lines.append(f"left out: {damage_text(file.damaged)} of the file")
    if unexpected := [host for host in file.hosts if host not in file.header["expected"]]:
        lines.append(f"unexpected hosts: {', '.join(unexpected)}")
    if undecided := [v.host for v in judged.hosts if v.is_undecided]:
        lines.append(f"undecided: {', '.join(undecided)}; measure more runs (--runs)")
    if not lines:
        least = units.percent(judged.detectable)
        limit = f" (a slowdown below {least} would not be detected)" if judged.detectable else ""
        lines.append(f"all {len(judged.hosts)} hosts returned results, and none is slow{limit}")
    return lines + _differences(file)


def _evidence(v: HostVerdict) -> str:
    parts = [f"{_times(v.overall)} over all kernels"] if v.overall is not None and v.overall.slower else []
    slow = list(v.slow_kernels.items())
    parts += [f"{_times(s)} in {case}" for case, s in slow[:MOST_NAMED]]
    if len(slow) > MOST_NAMED:
        parts.append(f"{len(slow) - MOST_NAMED} more slow kernels")
    if v.links is not None and v.links.slower:
        parts.append(f"{_times(v.links)} in messages to and from it")
    return "; ".join(parts)


def _times(s: Deviation) -> str:
    p_value = "p < 0.0001" if s.p < 1e-4 else f"p = {s.p:.2g}"
    return units.speed_sentence("", s.ratio, "the median of the others").removeprefix(" is ") + f" ({p_value})"


def _differences(file: FleetFile) -> list[str]:
    """How hosts differ in hardware and software, the largest set of equal hosts first."""
    lines = []
    for name, values in differences(file.runs).items():
        by_size = sorted(values.items(), key=lambda item: -len(item[1]))
        parts = [f"{value[:MOST_CHARACTERS]} on {_names(hosts)}" for value, hosts in by_size]
        lines.append(f"hosts differ in {name.replace('_', ' ')}: {'; '.join(parts)}")
    return lines


def _names(hosts: list[str], most: int = 4) -> str:
    more = f" and {len(hosts) - most} more" if len(hosts) > most else ""
    return ", ".join(hosts[:most]) + more


def by_host(file: FleetFile, judged: Judgement) -> Table:
    """One row per host."""
    runs = max((r.run for r in file.runs), default=0)
    rows: list[dict[str, Cell]] = []
    for v in judged.hosts:
        worst = max(v.kernels.items(), key=lambda item: item[1].ratio, default=None)
        rows.append(
            {
                "host": v.host,
                "runs": f"{v.runs} of {runs}",
                "time_over_others": v.overall.ratio if v.overall else None,
                "p": v.overall.p if v.overall else None,
                "worst kernel": worst[0] if worst else None,
                "time_over_others_there": worst[1].ratio if worst else None,
                "time_over_other_links": v.links.ratio if v.links else None,
                "verdict": _verdict(v),
            }
        )
    words = units.faster_or_slower
    columns = [
        *(Column("host"), Column("runs"), number("time_over_others", words, "vs others")),
        number("p", units.significant),
        *(Column("worst kernel"), number("time_over_others_there", words, "its ratio")),
        *(number("time_over_other_links", words, "its links"), Column("verdict")),
    ]
    notes = [
        "vs others: compared with the median of the other hosts, geometric mean over kernels; p: p-value of the "
        "slowdown, corrected for the number of hosts (Holm)."
    ]
    return Table(columns, rows, notes)


def _verdict(v: HostVerdict) -> str:
    if not v.runs:
        return "no result"
    words = ["failed in some runs"] * bool(v.failed_runs) + ["wrong"] * bool(v.failed_cases) + ["slow"] * v.is_slow
    return ", ".join(words) or ("undecided" if v.is_undecided else "fine")


def by_kernel(file: FleetFile) -> Table:
    """One row per kernel: the median, fastest and slowest host."""
    rows: list[dict[str, Cell]] = []
    for case, of_host in times(file.runs).items():
        by_host = {host: lower_quartile(values) for host, values in of_host.items()}
        typical_s = median(by_host.values())
        slowest, fastest = max(by_host, key=lambda h: by_host[h]), min(by_host, key=lambda h: by_host[h])
        rows.append(
            {
                "kernel": case,
                "hosts": len(by_host),
                "time": typical_s,
                "fastest": fastest,
                "fastest_over_median": by_host[fastest] / typical_s,
                "slowest": slowest,
                "slowest_over_median": by_host[slowest] / typical_s,
            }
        )
    words = units.faster_or_slower
    columns = [
        *(Column("kernel"), number("hosts"), number("time", units.seconds)),
        *(Column("fastest"), number("fastest_over_median", words, "than the median")),
        *(Column("slowest"), number("slowest_over_median", words, "than the median")),
    ]
    return Table(columns, rows, ["time: median over hosts of the lower quartile over runs."])


def by_link(judged: Judgement) -> Table:
    """One row per pair of hosts, the slowest first."""
    typical_s = median(judged.pair_times.values()) if judged.pair_times else None
    slowest = sorted(judged.pair_times.items(), key=lambda item: -item[1])
    rows: list[dict[str, Cell]] = []
    for (a, b), time_s in slowest[:MOST_LINKS]:
        deviation = judged.pairs.get((a, b))
        rows.append(
            {
                "link": f"{a} – {b}",
                "time": time_s,
                "time_over_median": time_s / typical_s if typical_s else None,
                "verdict": "slow" if deviation and deviation.slower else None,
            }
        )
    middle = number("time_over_median", units.faster_or_slower, "than the median")
    columns = [Column("link"), number("time", units.seconds), middle, Column("verdict")]
    more = len(slowest) - len(rows)
    notes = [f"{more} faster links are not shown."] if more > 0 else []
    return Table(columns, rows, notes)


def to_json(file: FleetFile, judged: Judgement) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "header": file.header,
        "verdict": sentences(file, judged),
        "hosts": by_host(file, judged).rows,
        "kernels": by_kernel(file).rows,
        "links": by_link(judged).rows,
    }
