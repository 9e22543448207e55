"""Which hosts and links of a fleet are slower than the others, which failed, and what cannot be told yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deepbench.core import stats
from deepbench.fleets.file import FleetFile, HostRun, Pair
from deepbench.judge import outliers, reasons
from deepbench.judge.outliers import Deviation
from deepbench.results.record import Record
from deepbench.results.summary import summarize

FINE, STANDS_OUT, CANNOT_TELL = 0, 1, 2  # exit codes

Times = Mapping[str, Mapping[str, Sequence[float]]]
"""Seconds by case and host, one per run."""


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
        return _slowest_first((case, s) for case, s in self.kernels.items() if s.slower)

    @property
    def undecided_kernels(self) -> dict[str, Deviation]:
        """The kernels in which it looks slower, and more runs would decide, the slowest first."""
        return _slowest_first((case, s) for case, s in self.kernels.items() if s.undecided)

    @property
    def _parts(self) -> list[Deviation]:
        return [part for part in (self.overall, self.links, *self.kernels.values()) if part is not None]

    @property
    def is_slow(self) -> bool:
        """Whether it is slower than the others at anything."""
        return any(part.slower for part in self._parts)

    @property
    def is_undecided(self) -> bool:
        """Whether it looks slow at something, and more runs would decide."""
        return not self.is_slow and any(part.undecided for part in self._parts)

    @property
    def is_compared(self) -> bool:
        """Whether another host has a time of a kernel that this one has a time of."""
        return self.overall is not None or bool(self.kernels)

    @property
    def is_fine(self) -> bool:
        """Whether it returned results, nothing failed, and nothing is slow."""
        return not (self.is_slow or self.failed_runs or self.failed_cases) and self.runs > 0

    @property
    def needs_runs(self) -> bool:
        """Whether more runs might show that it is slow. One that fails has been found already."""
        return self.is_fine and (self.is_undecided or (self.overall is not None and self.overall.open))


@dataclass(frozen=True)
class Judgement:
    """What a fleet file shows."""

    hosts: list[HostVerdict]
    times: Times
    """Of the cases that were measured correctly."""
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
    def undecided_pairs(self) -> dict[Pair, Deviation]:
        """Links that look slower, and more runs would decide."""
        return {pair: s for pair, s in self.pairs.items() if s.undecided}

    @property
    def stands_out(self) -> bool:
        """Whether any host or link is slow, wrong or missing."""
        return bool(self.slow_pairs or self.failed_pairs) or not all(host.is_fine for host in self.hosts)

    @property
    def is_undecided(self) -> bool:
        """Whether a host or a link may be slow: it looks so, it was not compared, or there were too few runs."""
        unclear = any(v.is_undecided or not v.is_compared for v in self.hosts)
        return unclear or bool(self.undecided_pairs) or self.detectable is None

    @property
    def exit_code(self) -> int:
        """0: nothing stands out; 1: a host or a link is slow, wrong or missing; 2: undecided, as for `gate`."""
        return STANDS_OUT if self.stands_out else CANNOT_TELL if self.is_undecided else FINE

    @property
    def needs_runs(self) -> bool:
        """Whether more runs might find another slow host or link."""
        return bool(self.undecided_pairs) or any(v.needs_runs for v in self.hosts)

    @property
    def detectable(self) -> float | None:
        """From which ratio on these runs would have found any host that is slow; None where they cannot find any."""
        found = [v.overall.detectable for v in self.hosts if v.overall is not None]
        known = [ratio for ratio in found if ratio is not None]
        return max(known) if known and len(known) == len(found) else None

    @property
    def least_runs(self) -> int | None:
        """How many runs it takes until a slow host can be found; None where none can be compared."""
        compared = [v.overall for v in self.hosts if v.overall is not None]
        return max((outliers.least_runs(s.things, s.tests) for s in compared), default=None)


def judge(file: FleetFile) -> Judgement:
    """The verdict on every host and link."""
    by_case = times(file.runs)
    overall = outliers.deviations(outliers.combined_times(by_case), outliers.KERNEL_RATIO)
    # One correction over hosts and kernels together: more questions must not accuse more hosts.
    tests = sum(len(of_case) for of_case in by_case.values() if len(of_case) > 1)
    kernels = {case: outliers.deviations(t, outliers.KERNEL_RATIO, tests) for case, t in by_case.items()}
    p_values = stats.holm({(case, h): s.p for case, of_case in kernels.items() for h, s in of_case.items()})
    of_hosts: dict[str, dict[str, Deviation]] = {}
    for (case, host), p in p_values.items():
        of_hosts.setdefault(host, {})[case] = kernels[case][host].corrected(p)
    by_link, by_host = link_times(file.links), dict[str, list[float]]()
    for pair, values in by_link.items():
        for host in pair:
            by_host.setdefault(host, []).extend(values)
    links = outliers.deviations(by_host, outliers.LINK_RATIO)
    others = {pair: v for pair, v in by_link.items() if not any(links[h].slower for h in pair if h in links)}
    pairs = outliers.deviations(others, outliers.LINK_RATIO)
    runs: dict[str, list[HostRun]] = {host: [] for host in file.hosts}
    for run in file.runs:
        runs[run.host].append(run)
    failures, verdicts = failed_cases(file.runs), []
    for host, own in runs.items():
        failed = [f"run {r.run}: {r.reason}" for r in own if r.status != "ok"]
        parts = overall.get(host), of_hosts.get(host, {}), links.get(host), failed, failures.get(host, [])
        verdicts.append(HostVerdict(host, len(own) - len(failed), *parts))
    failed_pairs = {pair: f"{r['status']}, {r['reason']}" for pair, r in file.links if r["status"] != "ok"}
    pair_times = {pair: stats.lower_quartile(values) for pair, values in by_link.items()}
    return Judgement(verdicts, by_case, pairs, pair_times, failed_pairs)


def _slowest_first(kernels: Iterable[tuple[str, Deviation]]) -> dict[str, Deviation]:
    return dict(sorted(kernels, key=lambda item: -item[1].ratio))


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


def recorded(runs: Sequence[HostRun]) -> reasons.Hosts:
    """What every host recorded of its machine, its libraries, variables and sensors."""
    by_host: dict[str, reasons.HostFacts] = {}
    for run in runs:
        if run.lines and "machine" in run.lines[0]:
            by_host.setdefault(run.host, reasons.HostFacts()).add(run.lines[0], run.records)
    return reasons.Hosts(by_host)
