"""From the records of a case to its numbers. Estimates, intervals and rates are computed here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from deepbench.core import stats, units
from deepbench.core.devices import SIMULATED
from deepbench.results.record import MEASURED, GroupFacts, Measurement, Record, RecordWarning, SustainedLoad
from deepbench.results.work import Work, by_case

# Clocks of a device that time its work between two events.
EVENT_CLOCKS = ("graph", "stalled events", "events")


@dataclass(frozen=True, repr=False)
class Summary:
    """A case over all its rounds."""

    record: Record
    """The record that decides the status: the first without a time, else the first that is not ok, else the first."""
    rounds: list[Record]
    estimate: stats.Estimate | None
    """None unless every round was measured."""
    single_process: bool
    """Whether the interval comes from the samples of one process, because there is only one."""

    def __repr__(self) -> str:
        time = f", {units.seconds(self.estimate.time_s)}" if self.estimate else ""
        return f"<Summary of {self.record['case']}: {self.status}{time}>"

    @property
    def status(self) -> str:
        """The status of the deciding record."""
        return self.record["status"]

    @property
    def time_s(self) -> float:
        """Seconds per call, of a case that has a time: every ranked one has."""
        assert self.estimate is not None, "the case has a time"
        return self.estimate.time_s

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs disturbed it so much that its time is an upper bound."""
        return self.estimate is not None and self.estimate.disturbed

    @property
    def slow_processes(self) -> int:
        """How many processes took much longer than the others, and no other program was the reason."""
        return self.estimate.slow_processes if self.estimate is not None else 0

    @property
    def problem_title(self) -> str:
        """The problem, its direction unless forward, and the settings that are not at their default."""
        extra = [] if self.record["direction"] == "forward" else [self.record["direction"]]
        return " ".join([self.record["problem_title"], *extra, *self.settings_words(variants=False)])

    @property
    def library_title(self) -> str:
        """The library and the variants that were asked for: `MPICH ring`."""
        name_and_value = (word.partition("=") for word in self.settings_words())
        chosen = [value for name, _, value in name_and_value if name in self.record["variants"]]
        return " ".join([self.record["library_title"], *chosen])

    @property
    def title_with_version(self) -> str:
        """The library with the part of its version that people know: `oneDNN 3.2`, `OpenBLAS 0.3.34`."""
        library = self.record["library"]
        version = (library["version"] if library else None) or ""
        numbers = re.match(r"0\.\d+\.\d+|\d+\.\d+", version)
        return f"{self.library_title} {numbers[0]}" if numbers and not self.imported else self.library_title

    @property
    def is_group(self) -> bool:
        """Whether several ranks solve the problem together."""
        return self.record["is_group"]

    @property
    def used_rounds(self) -> Sequence[Record]:
        """The rounds that its time comes from: those that other programs did not disturb, if most are."""
        return self.rounds if self.is_disturbed else undisturbed_rounds(self.rounds)

    @cached_property
    def work(self) -> Work:
        """Cases with equal work compete."""
        return Work.of(self.record)

    def settings_words(self, variants: bool = True) -> list[str]:
        """Words such as `beta=0` for settings that are not at their default, with or without variants."""
        words = self.record["case"].split()
        left_out = () if variants else self.record["variants"]
        settings = (f"{name}={value}" for name, value in self.record["settings"].items() if name not in left_out)
        return [word for word in settings if word in words]

    @property
    def imported(self) -> str | None:
        """The program that measured it, if that was not DeepBench."""
        program = self.record["notes"].get("imported_from")
        return program if isinstance(program, str) else None

    @property
    def is_simulated(self) -> bool:
        """Whether a simulator or a model says its time, and nothing was measured."""
        return self.record["backend"] == SIMULATED

    @property
    def is_ranked(self) -> bool:
        """Whether its time is ranked and its rate is shown: it was checked, or another program measured it."""
        counts = self.status == "ok" or (self.status == "unchecked" and bool(self.imported))
        return counts and self.estimate is not None

    @property
    def flop_per_s(self) -> float | None:
        """FLOP of the unpadded problem per second; None for groups, which exist to move data."""
        if not self.is_ranked or not self.record["flop"] or self.is_group:
            return None
        return self.record["flop"] / self.time_s

    @property
    def bytes_per_s(self) -> float | None:
        """Least traffic per second; None where other work ran during the same time."""
        return None if not self.is_ranked or self._overlaps else self.record["traffic_bytes"] / self.time_s

    @property
    def group(self) -> GroupFacts | None:
        """What the record states about the ranks; None where one process worked alone."""
        return self.record["group"]

    @property
    def bus_bytes_per_s(self) -> float | None:
        """Bus bandwidth of a group as nccl-tests defines it; `bytes_per_s` is the algorithm bandwidth."""
        factor = self.record["notes"].get("bus_factor")
        if self.bytes_per_s is None or not isinstance(factor, float | int) or not 0 <= factor <= 2:
            return None
        return self.bytes_per_s * factor

    @property
    def _overlaps(self) -> bool:
        return self.record["settings"].get("overlap", "none") != "none"

    @property
    def hidden(self) -> float | None:
        """Share of an all-reduce that overlaps with a product, from 0 to 1 apart from noise.

        The median over rounds of (all-reduce alone + product alone - both together) / all-reduce alone.
        """
        if not self.is_ranked:
            return None
        shares = []
        for r in self.rounds:
            reduce_s, gemm_s = (r["notes"].get(f"{part}_alone_s") for part in ("all_reduce", "gemm"))
            if not r["measurement"] or not isinstance(reduce_s, float) or not isinstance(gemm_s, float):
                return None
            if reduce_s <= 0:
                return None
            shares.append((reduce_s + gemm_s - process_number(r["measurement"]).time_s) / reduce_s)
        return median(shares) if shares else None

    @property
    def original_bytes_per_s(self) -> float | None:
        """Bandwidth of a group as the original DeepBench published it: ranks × bytes over the time."""
        count = self.record["notes"].get("original_bytes")
        if not self.is_ranked or self._overlaps or not isinstance(count, float | int):
            return None
        return count / self.time_s

    @property
    def quantization_error(self) -> float | None:
        """How far the result is from that of the weights before quantization, as a share: the largest of all checks.

        None where no weights are quantized, where the file does not say it, and without a right result.
        """
        checks = [check for r in self.rounds for check in (r["check"]["before"], r["check"]["after"]) if check]
        errors = [error for check in checks if (error := check.get("quantization_error")) is not None]
        return max(errors) if errors and self.is_ranked else None

    @property
    def joules_per_call(self) -> float | None:
        """The lowest energy per call of all rounds with a valid window."""
        if self.estimate is None:
            return None
        measured = [m for r in self.rounds if (m := r["measurement"])]
        windows = [m["energy"] for m in measured if "energy" in m]
        joules = [window["joules_per_call"] for window in windows if window["valid"] is True]
        devices = [d for m in measured if (d := m.get("device"))]
        joules += [energy["joules_per_call"] for d in devices if (energy := d.get("energy"))]
        return min((j for j in joules if j is not None), default=None)

    @property
    def sustained_s(self) -> float | None:
        """Seconds per call under a load of seconds, of a device (`--sustained`): the median over rounds."""
        return median([load["call_s"] for load in self._sustained]) if self._sustained and self.is_ranked else None

    @property
    def sustained_clock_mhz(self) -> float | None:
        """The clock then."""
        clocks = [load["clock_mhz"] for load in self._sustained if load["clock_mhz"] is not None]
        return median(clocks) if clocks else None

    @cached_property
    def _sustained(self) -> list[SustainedLoad]:
        devices = [d for r in self.rounds if (m := r["measurement"]) and (d := m.get("device"))]
        return [load for d in devices if (load := d.get("sustained"))]

    @property
    def warnings(self) -> list[RecordWarning]:
        """The warnings of all rounds, one for each code."""
        return list({w["code"]: w for r in self.rounds for w in r["warnings"]}.values())


def is_disturbed(record: Record) -> bool:
    """Whether other programs disturbed the process of a record so much that its time is not trusted."""
    measurement = record["measurement"]
    return measurement is not None and (process_number(measurement).disturbed or _lacked_cpus(record))


def process_time_s(record: Record) -> float:
    """Seconds per call in the process of a record that has a measurement."""
    assert record["measurement"] is not None, "the caller has checked the status"
    return process_number(record["measurement"]).time_s


def process_number(measurement: Measurement) -> stats.ProcessMedian:
    """The time of one process from its samples.

    It is also disturbed if other programs ran and interrupted nearly all samples: to `stats.undisturbed` that is usual.
    """
    samples_s, others = measurement["samples_s"], measurement.get("other_cpus")
    number = stats.process_median(samples_s, _undisturbed(measurement))
    if others is None or others < stats.OTHER_LOAD:
        return number
    cut = stats.interrupted(samples_s, measurement["involuntary_switches"], measurement["calls_per_sample"])
    few = len(samples_s) - sum(cut) < min(stats.MIN_UNDISTURBED, len(samples_s))
    return number._replace(disturbed=number.disturbed or few)


def _undisturbed(measurement: Measurement) -> list[bool]:
    return stats.undisturbed(
        measurement["samples_s"],
        measurement["cpu_s"],
        measurement["involuntary_switches"],
        measurement["steal_s"],
        measurement["calls_per_sample"],
        measurement.get("queued_s"),
    )


def summarize(records: Iterable[Record], order: Iterable[str] = ()) -> list[Summary]:
    """One Summary per case: those of `order` (texts of cases) first, then the others as they appear."""
    groups = by_case(records)
    return [_summary(groups[text]) for text in dict.fromkeys([*order, *groups]) if text in groups]


def estimate(rounds: Sequence[Record]) -> tuple[stats.Estimate | None, bool]:
    """The time of a case from its measured rounds, and whether its interval comes from one process.

    Processes that other programs disturbed do not count where at least as many were not. Where most were disturbed,
    the time is an upper bound from the fastest samples, because other programs only add time. The interval includes
    processes that were slow by themselves.
    """
    measured = [r for r in rounds if r["status"] in MEASURED and r["measurement"]]
    if not measured:
        return None, False
    numbers = [process_number(r["measurement"]) for r in measured if r["measurement"]]
    fraction = sum(n.undisturbed_fraction for n in numbers) / len(numbers)
    clean = undisturbed_rounds(measured)
    if are_disturbed(measured):
        # Half of the samples of an undisturbed process are below its time, so its fastest ones are no bound.
        disturbed = [r["measurement"] for r in measured if r["measurement"] and is_disturbed(r)]
        bound_s = min([*(stats.lower_quartile(m["samples_s"]) for m in disturbed), *(n.time_s for n in numbers)])
        return stats.Estimate(bound_s, None, None, len(measured), fraction, disturbed=True), False
    used = [process_number(r["measurement"]) for r in clean if r["measurement"]]
    of_processes = stats.estimate_device_time if all(map(has_device_clock, clean)) else stats.estimate_time
    time = of_processes([n.time_s for n in used], [n.undisturbed_fraction for n in used])
    time = replace(time, undisturbed_fraction=fraction)
    only = clean[0]["measurement"]
    if len(clean) > 1:
        pairs = [(n, r["measurement"]) for n, r in zip(used, clean, strict=True) if r["measurement"]]
        slow = [n.time_s for n, m in pairs if _is_slow_by_itself(n, m, time.time_s)]
        if slow and time.high_s is not None:
            high_s = max(time.high_s, *slow)
            time = replace(time, high_s=high_s, slow_processes=len(slow), slowest_s=max(slow))
    if len(clean) > 1 or only is None:
        return time, False
    interval = stats.median_interval(stats.samples_used(only["samples_s"], _undisturbed(only)))
    if interval is None:
        return time, False
    return replace(time, low_s=interval[0], high_s=interval[1]), True


def has_device_clock(record: Record) -> bool:
    """Whether its times are from the clock of a device without what the host does: other programs add nothing."""
    measurement = record["measurement"]
    device = measurement.get("device") if measurement else None
    return device is not None and device["clock"] in EVENT_CLOCKS and device["fallback"] is None


def are_disturbed(rounds: Sequence[Record]) -> bool:
    """Whether other programs disturbed most of the measured rounds of a case, so that its time is an upper bound."""
    measured = sum(r["status"] in MEASURED and r["measurement"] is not None for r in rounds)
    return 2 * len(undisturbed_rounds(rounds)) < measured


def undisturbed_rounds(rounds: Sequence[Record]) -> list[Record]:
    """The measured rounds of a case that other programs did not disturb."""
    return [r for r in rounds if r["status"] in MEASURED and r["measurement"] and not is_disturbed(r)]


# Interference without a trace, such as a hypervisor that runs two virtual CPUs on one core, makes a process take up to
# twice as long.
SLOW = 2.0


def _is_slow_by_itself(number: stats.ProcessMedian, measurement: Measurement, usual_s: float) -> bool:
    """Whether a process took much longer than usual, and others did not have its CPUs in that time."""
    if number.disturbed or number.time_s <= SLOW * usual_s or any(measurement["steal_s"]):
        return False
    queued_s = [s for s in measurement.get("queued_s", ()) if s is not None]
    if len(queued_s) < len(measurement["samples_s"]):
        return False
    total_s = sum(measurement["samples_s"]) * measurement["calls_per_sample"]
    return number.time_s * (1 - sum(queued_s) / total_s) > SLOW * usual_s


def _lacked_cpus(record: Record) -> bool:
    """Whether other programs left too few CPUs for the threads of a case all the time.

    Then no sample shows what is usual. Threads that wait for each other take up to a thousand times as long. Threads
    that sleep lack no CPU.
    """
    measurement, process = record["measurement"], record["process"]
    cpus = process.get("cpus") if process else None
    if measurement is None or not isinstance(cpus, list):
        return False
    others, calls = measurement.get("other_cpus"), measurement["calls_per_sample"]
    if others is None or others - max(0, len(cpus) - record["threads"]) < stats.OTHER_LOAD:
        return False
    lists = measurement["samples_s"], measurement["cpu_s"], measurement["steal_s"]
    if sum(stats.slept(*lists, calls, measurement.get("queued_s"))) > len(lists[0]) / 2:
        return False
    pairs = zip(measurement["cpu_s"], measurement["samples_s"], strict=True)
    shares = [cpu_s / (s * calls) for cpu_s, s in pairs if cpu_s is not None]
    return bool(shares) and stats.quantile(shares, 0.75) < stats.CPU_SHARE * record["threads"]


def _summary(rounds: list[Record]) -> Summary:
    failed = [r for r in rounds if r["status"] not in MEASURED]
    time, single_process = estimate(rounds) if not failed else (None, False)
    doubtful = failed or [r for r in rounds if r["status"] != "ok"]
    return Summary(doubtful[0] if doubtful else rounds[0], rounds, time, single_process)


# Times without an interval differ only if one is so many times the other.
CLEARLY = 1.5


@dataclass(frozen=True)
class FewerThreads:
    """The same case with fewer threads, where it is faster by more than both intervals."""

    threads: int
    slowdown: float
    """Time of the case over that with fewer threads; above 1."""


def faster_with_fewer_threads(summaries: Sequence[Summary]) -> dict[str, FewerThreads]:
    """By the text of each case that takes longer than with fewer threads: the number of threads that is fastest."""
    # Other programs slow several threads more than one.
    ranked = [s for s in summaries if s.is_ranked and not s.is_group and not s.is_disturbed]
    if len({s.record["threads"] for s in ranked}) < 2:
        return {}
    same: dict[Work, list[Summary]] = {}
    for s in ranked:
        same.setdefault(Work.on_library(s.record).without("threads"), []).append(s)
    found = {}
    for group in same.values():
        for s in group:
            fewer = [o for o in group if o.record["threads"] < s.record["threads"] and _is_certainly_faster(o, s)]
            if fewer:
                best = min(fewer, key=lambda o: o.time_s)
                found[s.record["case"]] = FewerThreads(best.record["threads"], s.time_s / best.time_s)
    return found


def _is_certainly_faster(a: Summary, b: Summary) -> bool:
    """Whether the times of `a` end below those of `b`; without an interval, whether they are far apart."""
    high_s, low_s = (a.estimate.high_s if a.estimate else None), (b.estimate.low_s if b.estimate else None)
    return b.time_s > CLEARLY * a.time_s if high_s is None or low_s is None else high_s < low_s


def cold_times(summaries: Sequence[Summary]) -> dict[str, Summary]:
    """By the text of each ranked case with hot caches: the same case with cold caches, where it was measured too."""
    ranked = [s for s in summaries if s.is_ranked and not s.is_disturbed]
    cold = {
        Work.on_library(s.record).without("cache"): s for s in ranked if s.record["settings"].get("cache") == "cold"
    }
    hot = [s for s in ranked if s.record["settings"].get("cache") == "hot"] if cold else []
    return {s.record["case"]: cold[work] for s in hot if (work := Work.on_library(s.record)) in cold}


@dataclass(frozen=True)
class Baseline:
    """What a case is compared with in the same file: for a sparse product, the fastest dense one of its shape."""

    summary: Summary
    time_over_baseline: float | None
    """Time of the case over time of the baseline; None if it is withheld."""
    break_even_density: float | None
    """Share of non-zeros at which both would take the same time, if time grew with the non-zeros."""
    withheld: str | None = None
    """Why there is no ratio."""


def baselines(summaries: Sequence[Summary]) -> dict[str, Baseline]:
    """The fastest baseline of every measured case that has one, by the text of the case."""
    ranked = [s for s in summaries if s.is_ranked]
    with_baselines = [s for s in ranked if s.record["baselines"]]
    if not with_baselines:
        return {}
    by_work: dict[tuple[str, str], list[Summary]] = {}
    for s in ranked:
        by_work.setdefault((s.work.text, s.record["device"]), []).append(s)
    fastest: dict[str, Baseline] = {}
    for s in with_baselines:
        candidates = [c for text in s.record["baselines"] for c in by_work.get((text, s.record["device"]), [])]
        if candidates:
            dense = min(candidates, key=lambda c: c.time_s)
            disturbed = [name for name, c in (("baseline", dense), ("this time", s)) if c.is_disturbed]
            if disturbed:
                fastest[s.record["case"]] = Baseline(dense, None, None, f"{' and '.join(disturbed)} disturbed")
                continue
            ratio, flop = s.time_s / dense.time_s, dense.record["flop"]
            break_even = s.record["flop"] / flop / ratio if flop else None
            fastest[s.record["case"]] = Baseline(dense, ratio, break_even)
    return fastest
