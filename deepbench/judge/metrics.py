"""Other times of a process than that of its usual call: the first call, creation, packing. Files of them are compared.

    first_call     the very first call, with what the library loads, allocates or compiles in it
    creation       preparing the kernel: creating a primitive, compiling a program
    pack, convert, optimize, compile      what a library says that it spent on these, in its notes

Each process has one such time, so a process is one sample. `with_metric` puts it in the place of the samples; all that
compares files then works as for the usual call. These times vary more from process to process, so their margins are
larger: `MARGINS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput, shorten
from deepbench.results.file import ResultFile
from deepbench.results.record import MEASURED, Measurement, Record

STEADY = "steady"
"""The usual call."""

NOTES = {
    "creation": "creation_s",
    "pack": "pack_s",
    "convert": "convert_s",
    "optimize": "optimize_s",
    "compile": "compile_s",
}
"""Metrics that are notes of records."""

METRICS = (STEADY, "first_call", *NOTES)

# Differences below this share do not count; of `compare`, and of a gate.
MARGINS: Mapping[str, tuple[float, float]] = dict.fromkeys(METRICS, (0.10, 0.15)) | {STEADY: (0.02, 0.05)}


def find_metric(name: str) -> str:
    """The metric with this name; `BadInput` for any other word."""
    if name not in METRICS:
        raise BadInput(f"--metric is {', '.join(METRICS)}, found {shorten(name)}{did_you_mean(name, METRICS)}")
    return name


def with_metric(file: ResultFile, metric: str) -> ResultFile:
    """The file with this time of each process in the place of its samples; `BadInput` where no record has one."""
    if metric == STEADY:
        return file
    records = [found for record in file.records if (found := _of_metric(record, metric)) is not None]
    if not records:
        raise BadInput(f"{file.path} has no time of {metric.replace('_', ' ')}; it is in no record")
    return replace(file, records=records)


def _of_metric(record: Record, metric: str) -> Record | None:
    """The record with one sample; as it is where it has no time at all, and None where only this one is missing."""
    measurement = record["measurement"]
    if record["status"] not in MEASURED or measurement is None:
        return record
    time_s = measurement["first_call_s"] if metric == "first_call" else record["notes"].get(NOTES[metric])
    if not isinstance(time_s, float | int) or not time_s > 0:
        return None
    one: Measurement = {
        "samples_s": [float(time_s)],
        "calls_per_sample": 1,
        # What is known about interference is about the samples of the usual call.
        "cpu_s": [None],
        "involuntary_switches": [None],
        "steal_s": [None],
        "first_call_s": measurement["first_call_s"],
        "warm_up_calls": None,
        "warm_up_s": None,
        "stopped": None,
        "loop": None,
    }
    if (others := measurement.get("other_cpus")) is not None:
        one["other_cpus"] = others
    return cast(Record, {**record, "measurement": one, "heat": None})  # rivals did not take turns in this
