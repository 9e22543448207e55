"""A fleet file for people: the verdict in sentences, then hosts, kernels and links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from deepbench.core import units
from deepbench.core.errors import shorten
from deepbench.core.stats import lower_quartile
from deepbench.core.words import count, join
from deepbench.fleets.file import FleetFile
from deepbench.fleets.judge import HostVerdict, Judgement, recorded
from deepbench.judge.outliers import ALPHA, KERNEL_RATIO, Deviation
from deepbench.judge.reasons import Hosts
from deepbench.reporting.table import LEAST_PROBLEM, Cell, Column, Part, Table, number
from deepbench.results.file import damage_text

# Slow kernels and failed cases named for one host; the tables have all of them.
MOST_NAMED = 3

# A smaller p-value is shown as less than this.
LEAST_P = 1e-4

# Rows of the table of links.
MOST_LINKS = 20

# Characters of a value in which hosts differ, of the values of one fact, and of the facts.
MOST_CHARACTERS, MOST_VALUES, MOST_FACTS = 80, 5, 40

# What sets a host apart: so many facts of one host.
MOST_APART = 8

# Rows of the table of hosts for people: those that are not fine, then others.
MOST_HOSTS = 40


def parts(file: FleetFile, judged: Judgement) -> list[Part]:
    """The verdict, then hosts, kernels and links."""
    verdict = [f"• {sentence}" for sentence in sentences(file, judged)]
    return [verdict, _for_people(by_host(file, judged)), by_kernel(judged), by_link(judged)]


def _for_people(table: Table) -> Table:
    """The table of hosts with so many rows as a person reads: of a large fleet those first that are not fine."""
    if len(table.rows) <= MOST_HOSTS:
        return table
    rows = sorted(table.rows, key=lambda row: row["verdict"] == "fine")[:MOST_HOSTS]
    more = f"{len(table.rows) - len(rows)} more hosts are not shown; `deepbench show FILE --csv` has all."
    return replace(table, rows=rows, notes=[*table.notes, more])


def sentences(file: FleetFile, judged: Judgement) -> list[str]:
    """What is wrong with the fleet, the worst first; one sentence if nothing is."""
    known, told = recorded(file.runs), set[str]()
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
    for v in (v for v in judged.hosts if v.is_slow):
        lines += [f"{v.host} is slow: {_evidence(v)}", _apart(v.host, known, told)]
    lines += [f"the link between {a} and {b} failed: {reason}" for (a, b), reason in judged.failed_pairs.items()]
    lines += [f"the link between {a} and {b} is slow: {_slower(s)} {_p(s)}" for (a, b), s in judged.slow_pairs.items()]
    for v in (v for v in judged.hosts if v.is_undecided):
        lines += [f"undecided: {looks_slow(v)}", _apart(v.host, known, told)]
    for (a, b), s in judged.undecided_pairs.items():
        lines.append(f"undecided: the link between {a} and {b} looks {_in_runs(s)}; {_more_runs(s)}")
    if file.damaged:
        lines.append(f"left out: {damage_text(file.damaged)} of the file")
    expected = set(file.header["expected"])
    if unexpected := [v.host for v in judged.hosts if v.host not in expected]:
        lines.append(f"unexpected hosts: {_names(unexpected)}")
    if alone := [v.host for v in judged.hosts if v.runs and not v.is_compared]:
        every = len(alone) == len(judged.hosts)
        who = f"none of the {len(alone)} hosts" if every else _names(alone)
        why = "no other host has a correct time of the same kernels"
        lines.append(f"undecided: {who} {'can' if every else 'cannot'} be compared: {why}")
    return [*(lines or [_all_well(judged)]), *_differences(known, told)]


def _all_well(judged: Judgement) -> str:
    """What a fleet without any fault is told: which slow host these runs would have found."""
    returned = f"all {len(judged.hosts)} hosts returned results"
    if judged.detectable is not None:
        least = units.percent(judged.detectable - 1, 1)
        return f"{returned}, and none is slow (one that is less than {least} slower might not be found)"
    needed = f"; it takes at least {judged.least_runs} (--runs {judged.least_runs})" if judged.least_runs else ""
    return f"undecided: {returned}, and none looks slow, but these runs can detect no slow host{needed}"


def _apart(host: str, known: Hosts, told: set[str]) -> str:
    """What sets a host apart from all others; `told` gets the names of these facts."""
    found = known.apart(host)
    told.update(found)
    named = [f"{shorten(name, MOST_CHARACTERS)} {words}" for name, words in found.items()]
    if len(named) > MOST_APART:
        named = [*named[:MOST_APART], f"{len(named) - MOST_APART} more facts"]
    return f"what sets {host} apart: {'; '.join(named) or 'nothing that was recorded'}"


def _evidence(v: HostVerdict) -> str:
    parts = [f"{_slower(v.overall)} {_p(v.overall)} over all kernels"] if v.overall and v.overall.slower else []
    texts = (f"{_slower(s, short=bool(parts))} {_p(s)} in {case}" for case, s in v.slow_kernels.items())
    parts += _of_kernels(texts, len(v.slow_kernels))
    if v.links is not None and v.links.slower:
        parts.append(f"{_slower(v.links, short=bool(parts))} {_p(v.links)} in messages to and from it")
    return "; ".join(parts)


def _of_kernels(texts: Iterable[str], found: int) -> list[str]:
    named = [text for _, text in zip(range(MOST_NAMED), texts, strict=False)]
    return [*named, *([f"{found - MOST_NAMED} more slow kernels"] if found > MOST_NAMED else [])]


def looks_slow(v: HostVerdict) -> str:
    """What an undecided host looks like, and how many more runs decide."""
    if v.overall is not None and v.overall.undecided:
        return f"{v.host} looks {_in_runs(v.overall)}; {_more_runs(v.overall)}"
    if kernels := v.undecided_kernels:
        texts = (f"{_in_runs(s)} in {case}" for case, s in kernels.items())
        more = min(kernels.values(), key=lambda s: s.more_runs)
        return f"{v.host} looks {'; '.join(_of_kernels(texts, len(kernels)))}; {_more_runs(more)}"
    assert v.links is not None, "otherwise it is not undecided"
    words = units.speed_sentence("", v.links.ratio, "those of the others").removeprefix(" is ")
    return f"the links of {v.host} look {words}; measure more runs (--runs)"


def _in_runs(s: Deviation) -> str:
    return f"{_slower(s)}, in {s.slow_runs} of {count(s.runs, 'run')}"


def _more_runs(s: Deviation) -> str:
    more = s.more_runs
    return f"at least {count(more, 'more run')} {'decides' if more == 1 else 'decide'} (--runs {s.runs + more})"


def _slower(s: Deviation, short: bool = False) -> str:
    """`1.40× slower than the median of the others`, or without what it is compared with."""
    words = units.faster_or_slower(s.ratio)
    return words if short else f"{words} than the median of the others"


def _p(s: Deviation) -> str:
    return f"(p {'' if s.p < LEAST_P else '= '}{_p_value(s.p)})"


def _p_value(p: float) -> str:
    return f"< {LEAST_P:.4f}" if p < LEAST_P else f"{p:.2g}"


def _differences(known: Hosts, told: set[str]) -> list[str]:
    """How hosts differ in hardware and software, the largest set of equal hosts first; without what was told."""
    lines = []
    different = {name: values for name, values in known.differences().items() if name not in told}
    for name, values in list(different.items())[:MOST_FACTS]:
        by_size = sorted(values.items(), key=lambda item: -len(item[1]))
        parts = [f"{shorten(value, MOST_CHARACTERS)} on {_names(hosts)}" for value, hosts in by_size[:MOST_VALUES]]
        if len(by_size) > MOST_VALUES:
            parts.append(f"{len(by_size) - MOST_VALUES} more values")
        lines.append(f"hosts differ in {shorten(name, MOST_CHARACTERS)}: {'; '.join(parts)}")
    if len(different) > MOST_FACTS:
        lines.append(f"hosts differ in {len(different) - MOST_FACTS} more facts")
    return lines


def _names(hosts: list[str], most: int = 4) -> str:
    return f"{', '.join(hosts[:most])} and {len(hosts) - most} more" if len(hosts) > most else join(hosts)


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
                "low": v.overall.low if v.overall else None,
                "high": v.overall.high if v.overall else None,
                "p": v.overall.p if v.overall else None,
                "time_over_other_links": v.links.ratio if v.links else None,
                "verdict": _verdict(v),
                "worst_kernel": worst[0] if worst else None,
                "worst_kernel_time_over_others": worst[1].ratio if worst else None,
            }
        )
    words = units.faster_or_slower
    columns = [
        *(Column("host"), Column("runs", whole=True), number("time_over_others", words, "all kernels")),
        *(number("p", _p_value, "p-value", narrow=1), number("time_over_other_links", words, "links")),
        *(Column("verdict"), Column("worst_kernel", title="slowest kernel", narrow=2, of=_worst_kernel)),
    ]
    notes = [
        "all kernels: time compared with the median of the other hosts, geometric mean over kernels.",
        "links: the same of messages to and from the host.",
        "slowest kernel: if it is more than 5 % slower.",
        f"p-value: of the slowdown over all kernels, corrected for the number of hosts (Holm). Slow is below {ALPHA}.",
    ]
    table = Table(columns, rows, notes, more_for_programs=("low", "high", "worst_kernel_time_over_others"))
    return table.without_empty_columns("time_over_others", "p")


def _worst_kernel(row: Mapping[str, Cell]) -> Cell:
    """The slowest kernel, if it is slow enough to matter."""
    ratio = row["worst_kernel_time_over_others"]
    if not isinstance(ratio, float) or ratio <= KERNEL_RATIO:
        return None
    return f"{units.faster_or_slower(ratio)}: {row['worst_kernel']}"


def _verdict(v: HostVerdict) -> str:
    if not v.runs:
        return "no result"
    words = ["failed in some runs"] * bool(v.failed_runs) + ["wrong"] * bool(v.failed_cases) + ["slow"] * v.is_slow
    other = "undecided" if v.is_undecided else "fine" if v.is_compared else "not compared"
    return ", ".join(words) or other


def by_kernel(judged: Judgement) -> Table:
    """One row per kernel: the median, fastest and slowest host."""
    rows: list[dict[str, Cell]] = []
    for case, of_host in judged.times.items():
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
    columns = [
        *(
            Column("kernel", least=LEAST_PROBLEM),
            number("hosts", narrow=1),
            number("time", units.seconds, "median time"),
        ),
        Column("fastest", title="fastest host", narrow=2, of=lambda row: _compared(row, "fastest")),
        Column("slowest", title="slowest host", of=lambda row: _compared(row, "slowest")),
    ]
    notes = [
        "median time: over hosts, of the lower quartile over runs.",
        "slowest host: compared with the median time, like the fastest.",
    ]
    return Table(columns, rows, notes if rows else [])


def _compared(row: Mapping[str, Cell], which: str) -> Cell:
    ratio = row[f"{which}_over_median"]
    return f"{row[which]}, {units.faster_or_slower(ratio)}" if isinstance(ratio, float) else row[which]


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
                "verdict": _link_verdict(deviation) if deviation else None,
            }
        )
    middle = number("time_over_median", units.faster_or_slower, "vs median")
    columns = [Column("link"), number("time", units.seconds), middle, Column("verdict")]
    more = len(slowest) - len(rows)
    notes = ["vs median: the time of a message compared with the median over all links."] if rows else []
    notes += [f"{more} faster links are not shown."] if more > 0 else []
    return Table(columns, rows, notes)


def _link_verdict(s: Deviation) -> str:
    return "slow" if s.slower else "undecided" if s.undecided else "fine"


def to_json(file: FleetFile, judged: Judgement) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "header": file.header,
        "verdict": sentences(file, judged),
        "hosts": by_host(file, judged).rows,
        "kernels": by_kernel(judged).rows,
        "links": by_link(judged).rows,
    }
