"""Which hosts and links of a fleet are slower than the others, and which failed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepbench.core import stats
from deepbench.fleets.file import FleetFile, HostRun, Pair
from deepbench.judge import outliers
from deepbench.judge.outliers import Deviation
from deepbench.results.record import Record
from deepbench.results.summary import summarize

# Facts of a machine that may explain why two hosts differ in speed.
FACTS = (
    *("cpu", "cpu_ids", "instructions", "cores_allowed", "cpu_quota", "memory_bytes", "caches", "numa_nodes"),
    *("governor", "turbo_off", "huge_pages", "kernel", "system"),
)


@dataclass(frozen=True)
class HostVerdict:
    """What all runs show about one host."""

    host: str
    runs: int
    """Runs in which it returned a complete file."""
    overall: Deviation | None
    """Over all kernels together; None where there is nothing to compare."""
    kernels: dict[str, Deviation]
    """By case."""
    links: Deviation | None
    """Over the links to all other hosts."""
    failed_runs: list[str]
    """Each with its reason."""
    failed_cases: list[str]
    """Cases that failed here and not on every host."""

    @property
    def slow_kernels(self) -> dict[str, Deviation]:
        """The kernels in which it is slower than the others, the slowest first."""
        slow = {name: s for name, s in self.kernels.items() if s.slower}
        return dict(sorted(slow.items(), key=lambda item: -item[1].ratio))

    @property
    def is_slow(self) -> bool:
        """Whether it is slower than the others at anything."""
        return any(part.slower for part in (self.overall, self.links, *self.kernels.values()) if part is not None)

    @property
    def is_undecided(self) -> bool:
        """Whether more runs might show that it is slow."""
        return not self.is_slow and self.overall is not None and self.overall.undecided

    @property
    def is_fine(self) -> bool:
        """Whether it returned results, nothing failed, and nothing is slow."""
        return not (self.is_slow or self.failed_runs or self.failed_cases) and self.runs > 0


@dataclass(frozen=True)
class Judgement:
    """What a fleet file shows."""

    hosts: list[HostVerdict]
    pairs: dict[Pair, Deviation]
    """Single links, except those of hosts whose links are slow as a whole."""
    pair_times: dict[Pair, float]
    """Lower quartile over runs, in seconds."""
    failed_pairs: dict[Pair, str]
    """Links over which a message failed, with the reason."""

    @property
    def slow_pairs(self) -> dict[Pair, Deviation]:
        """Links that are slower than the others, although other links of both hosts are not."""
        return {pair: s for pair, s in self.pairs.items() if s.slower}

    @property
    def stands_out(self) -> bool:
        """Whether any host or link is slow, wrong or missing."""
        return bool(self.slow_pairs or self.failed_pairs) or not all(host.is_fine for host in self.hosts)

    @property
    def needs_runs(self) -> bool:
        """Whether more runs might find another slow host."""
        return any(v.overall is not None and v.overall.open and not v.is_slow for v in self.hosts)

    @property
    def detectable(self) -> float | None:
        """A host could be slower by up to this share without being found; None where unknown."""
        overall = [v.overall for v in self.hosts if v.overall is not None and not v.is_slow]
        highs = [s.high for s in overall if s.high is not None]
        return max(0.0, max(highs) - 1) if highs and len(highs) == len(overall) else None


def judge(file: FleetFile) -> Judgement:
    """The verdict on every host and link."""
    by_case = times(file.runs)
    overall = outliers.deviations(outliers.combined_times(by_case), outliers.KERNEL_RATIO)
    # One correction over hosts and kernels together: more questions must not accuse more hosts.
    kernels = {case: outliers.deviations(t, outliers.KERNEL_RATIO, False) for case, t in by_case.items()}
    p_values = stats.holm({(case, h): s.p for case, of_case in kernels.items() for h, s in of_case.items()})
    by_link, by_host = link_times(file.links), dict[str, list[float]]()
    for pair, values in by_link.items():
        for host in pair:
            by_host.setdefault(host, []).extend(values)
    links = outliers.deviations(by_host, outliers.LINK_RATIO)
    others = {pair: v for pair, v in by_link.items() if not any(links[h].slower for h in pair if h in links)}
    pairs = outliers.deviations(others, outliers.LINK_RATIO)
    failures, verdicts = failed_cases(file.runs), []
    for host in file.hosts:
        of_host = {case: t[host].corrected(p_values[case, host]) for case, t in kernels.items() if host in t}
        runs = [r for r in file.runs if r.host == host]
        failed = [f"run {r.run}: {r.reason}" for r in runs if r.status != "ok"]
        parts = overall.get(host), of_host, links.get(host), failed, failures.get(host, [])
        verdicts.append(HostVerdict(host, len(runs) - len(failed), *parts))
    failed_pairs = {pair: f"{r['status']}, {r['reason']}" for pair, r in file.links if r["status"] != "ok"}
    return Judgement(verdicts, pairs, {p: stats.lower_quartile(v) for p, v in by_link.items()}, failed_pairs)


def times(runs: Sequence[HostRun]) -> dict[str, dict[str, list[float]]]:
    """Seconds by case and host, one per run, of the cases that were measured correctly."""
    by_case: dict[str, dict[str, list[float]]] = {}
    for run in sorted(runs, key=lambda r: r.run):
        for s in summarize(run.records):
            if s.estimate is not None and s.status == "ok":
                by_case.setdefault(s.record["case"], {}).setdefault(run.host, []).append(s.estimate.time_s)
    return by_case


def failed_cases(runs: Sequence[HostRun]) -> dict[str, list[str]]:
    """By host, the cases that failed there and not on every host, with status and reason."""
    statuses: dict[str, dict[str, tuple[str, str]]] = {}
    for run in runs:
        for record in run.records:
            of_case = statuses.setdefault(record["case"], {})
            if run.host not in of_case or record["status"] != "ok":
                of_case[run.host] = (record["status"], str(record["reason"]))
    failures: dict[str, list[str]] = {}
    for case, of_case in statuses.items():
        if any(status == "ok" for status, _ in of_case.values()):
            for host, (status, reason) in of_case.items():
                if status not in ("ok", "unchecked"):
                    failures.setdefault(host, []).append(f"{case}: {status}, {reason}")
    return failures


def link_times(links: Sequence[tuple[Pair, Record]]) -> dict[Pair, list[float]]:
    """Seconds of a message between each pair of hosts, one per run."""
    by_link: dict[Pair, list[float]] = {}
    for pair, record in links:
        if record["status"] == "ok" and record["measurement"]:
            by_link.setdefault(pair, []).append(stats.lower_quartile(record["measurement"]["samples_s"]))
    return by_link


def differences(runs: Sequence[HostRun]) -> dict[str, dict[str, list[str]]]:
    """Facts in which hosts differ, of the machine or the version of a library: the hosts of each value."""
    by_host: dict[str, dict[str, Any]] = {}
    for run in runs:
        header = run.lines[0] if run.lines else {}
        if "machine" in header:
            by_host[run.host] = {name: header["machine"].get(name) for name in FACTS}
            for name, answer in header["libraries"].items():
                by_host[run.host][name] = (answer.get("library") or {"version": "missing"}).get("version")
    different: dict[str, dict[str, list[str]]] = {}
    for name in dict.fromkeys(n for facts in by_host.values() for n in facts):
        values: dict[str, list[str]] = {}
        for host, facts in by_host.items():
            values.setdefault(json.dumps(facts.get(name), sort_keys=True), []).append(host)
        if len(values) > 1:
            different[name] = values
    return different
