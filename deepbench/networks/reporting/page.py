"""Steps of traced networks for a page: predicted from the kernels of a file, next to the step as it was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from deepbench.core import units
from deepbench.core.times import Time
from deepbench.core.words import count
from deepbench.networks.predictions import breakdown
from deepbench.networks.predictions.forecast import Forecast, forecast
from deepbench.networks.reporting import predictions
from deepbench.networks.traces.trace import Trace
from deepbench.results.file import ResultFile

# Bars of a step.
PREDICTED, FASTEST, MEASURED = "predicted", "fastest library of each kernel", "measured"

# The library of the kernels of a step is this one, where a file has it: most traces are of its networks.
PREFERRED = "torch"


def of_file(file: ResultFile, traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """The steps of networks of which a file has kernels, by network and number of threads.

    Each step has bars whose parts are seconds by group of kernels, and sentences. A step without all of its kernels has
    no predicted bar.
    """
    counts: dict[int, Counter[str]] = {}
    for record in file.records:
        if record["threads"] is not None:
            counts.setdefault(record["threads"], Counter())[record["backend"]] += 1
    found = []
    for trace in traces:
        for threads, libraries in sorted(counts.items()):
            library = PREFERRED if PREFERRED in libraries else libraries.most_common(1)[0][0]
            made = forecast([trace], [file], library=library, threads=threads)
            if made.predictions[0].measured_share or made.measured:
                found.append(_step(made))
    return found


def _step(made: Forecast) -> dict[str, Any]:
    (p,) = made.predictions
    bars = []
    best = breakdown.fastest(p, made.alternatives)
    if p.time is not None:
        bars.append(_bar(PREDICTED, breakdown.groups(p), p.time, p.time.is_bound))
        if best.parts != p.parts and best.time is not None:
            bars.append(_bar(FASTEST, breakdown.groups(best), best.time, best.time.is_bound))
    if made.measured is not None:
        bars.append(_bar(MEASURED, {MEASURED: made.measured.seconds}, made.measured, made.measured.is_bound))
    title = f"{p.trace.title}, {p.trace.phase}, {count(p.threads, 'thread')}"
    return {"title": title, "bars": bars, "remarks": [f"{title}.", *_remarks(made)]}


def _bar(name: str, parts: dict[str, float], time: Time, is_disturbed: bool) -> dict[str, Any]:
    ends = {"seconds": time.seconds, "low_s": time.low_s, "high_s": time.high_s}
    return {"name": name, "parts": parts, **ends, "disturbed": is_disturbed}


def _remarks(made: Forecast) -> list[str]:
    (p,) = made.predictions
    remarks = []
    if p.missing:
        remarks.append(f"No predicted time: {predictions.without_time(len(p.missing))}.")
    elif p.time is not None and made.measured is not None:
        error = p.error(made.measured)
        remarks.append(f"Error: {predictions.WITHHELD if error is None else predictions.error_text(error)}.")
    if gain := predictions.gain_text(p, made.alternatives):
        remarks.append(f"{gain}.")
    if p.time is not None:
        remarks.append(f"{units.percent(p.measured_share)} of the predicted time is measured kernels of {p.library}.")
        if p.others is None:
            remarks.append("The time of other operators is unknown, and not in the sum.")
        if p.overhead is None:
            remarks.append("The overhead of the framework is unknown, and not in the sum.")
        if p.time.is_bound:
            remarks.append("Other programs disturbed a time of the sum.")
        if p.time.is_uneven:
            remarks.append(f"Uneven: {predictions.uneven_text(p)}.")
    return remarks
