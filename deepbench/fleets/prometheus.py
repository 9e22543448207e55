"""The verdict on each host for Prometheus: gauges in a file for the textfile collector of its node exporter."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from deepbench.core import exposition
from deepbench.core.exposition import Gauge
from deepbench.fleets.file import FleetFile
from deepbench.fleets.judge import HostVerdict, Judgement

Value = float | int | None

# Name and meaning of each gauge; `_samples` has the values in the same order. A meaning has nothing to escape.
GAUGES = {
    "deepbench_fleet_time_ratio": "Time of the kernels of a host over the median of the other hosts.",
    "deepbench_fleet_time_ratio_low": "Lower end of the 95 % confidence interval of this ratio.",
    "deepbench_fleet_time_ratio_high": "Upper end of the 95 % confidence interval of this ratio.",
    "deepbench_fleet_slow": "Whether a host is slower than the others, with certainty: 1 or 0.",
    "deepbench_fleet_undecided": "Whether these runs cannot tell if a host is slow: 1 or 0.",
    "deepbench_fleet_runs": "Runs in which a host returned a complete result.",
    "deepbench_fleet_failed_runs": "Runs in which a host returned no complete result.",
    "deepbench_fleet_last_run_timestamp_seconds": "When the last complete run of a host started, by its clock.",
}


def write(path: Path, file: FleetFile, judged: Judgement) -> None:
    """Write the file for the textfile collector as a whole or not at all. `BadInput` where it cannot."""
    exposition.write(path, gauges_of(file, judged))


def gauges_of(file: FleetFile, judged: Judgement) -> list[Gauge]:
    """One value per gauge and host. One that is unknown has no series."""
    last_s = last_runs_s(file)
    samples = [({"host": v.host}, list(_samples(v, last_s.get(v.host)))) for v in judged.hosts]
    return [
        Gauge(name, meaning, [(labels, values[i]) for labels, values in samples])
        for i, (name, meaning) in enumerate(GAUGES.items())
    ]


def _samples(v: HostVerdict, last_s: float | None) -> Iterator[Value]:
    overall = v.overall
    yield from (overall.ratio, overall.low, overall.high) if overall is not None else (None, None, None)
    yield int(v.is_slow)
    yield int(v.is_undecided or not v.is_compared)
    yield v.runs
    yield len(v.failed_runs)
    yield last_s


def last_runs_s(file: FleetFile) -> dict[str, float]:
    """By host: when its last complete run started, in seconds since 1970; only of hosts that say so."""
    last_s: dict[str, float] = {}
    for run in file.runs:
        if run.status == "ok" and run.lines and (started_s := _seconds(run.lines[0].get("started"))) is not None:
            last_s[run.host] = max(started_s, last_s.get(run.host, started_s))
    return last_s


def _seconds(moment: object) -> float | None:
    try:
        time = datetime.fromisoformat(moment) if isinstance(moment, str) else None
        return time.timestamp() if time is not None and time.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
