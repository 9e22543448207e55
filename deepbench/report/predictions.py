"""A predicted step: its time with an interval, what it consists of, and how far it is from the measured step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from deepbench.core import units
from deepbench.networks.predict import Part, Prediction, Time
from deepbench.report.table import Cell, Column, Table, number
from deepbench.report.traces import kernel_title

MOST_ROWS = 12

NOT_MODELLED = (
    "Not modelled: operators that run at the same time, memory that the system clears first, input, and clocks that "
    "differ between the kernels and the step."
)

# The groups of a bar, by operation.
GROUPS = {
    **dict.fromkeys(("gemm", "linear", "batched_gemm", "grouped_gemm", "weight_only_gemm"), "products"),
    **dict.fromkeys(("conv",), "convolution"),
    **dict.fromkeys(("recurrent",), "recurrent layers"),
    **dict.fromkeys(("attention",), "attention"),
    **dict.fromkeys(("batch_norm", "layer_norm", "rms_norm", "group_norm", "softmax"), "normalization"),
    **dict.fromkeys(("embedding_bag",), "embeddings"),
    **dict.fromkeys(("optimizer",), "optimizer"),
}
REST, OTHERS, OVERHEAD = "other kernels", "other operators", "overhead"


def groups(prediction: Prediction) -> dict[str, float]:
    """Seconds by group of kernels, the longest first; other operators and overhead come last."""
    found: dict[str, float] = {}
    for part in prediction.parts:
        if part.time is not None:
            name = GROUPS.get(part.need.kernel.split()[0], REST)
            found[name] = found.get(name, 0.0) + part.time.seconds
    ordered = dict(sorted(found.items(), key=lambda item: -item[1]))
    ordered[OTHERS] = prediction.others.seconds
    if prediction.overhead is not None:
        ordered[OVERHEAD] = prediction.overhead.seconds
    return ordered


def interval(time: Time) -> str:
    """`98.2 ms, from 93.1 ms to 104 ms`."""
    if time.low_s is None or time.high_s is None:
        return units.seconds(time.seconds)
    return f"{units.seconds(time.seconds)}, from {units.seconds(time.low_s)} to {units.seconds(time.high_s)}"


def summary(prediction: Prediction, measured: Time | None) -> list[tuple[str, str]]:
    """Labels and sentences above the table."""
    p, trace = prediction, prediction.trace
    phase = "training step" if trace.is_training else "forward pass"
    parameters = f", {trace.parameters:,} parameters" if trace.parameters is not None else ""
    lines = [("network", f"{trace.title}: a {phase}{parameters}")]
    threads = f"{p.threads} thread{'s' * (p.threads != 1)}"
    if p.time is not None:
        lines.append(("predicted", f"{interval(p.time)} per step, {threads}, kernels of {p.library}"))
    else:
        count = sum(part.need.count for part in p.missing)
        reasons = ", ".join(dict.fromkeys(part.how for part in p.missing))
        text = f"withheld: {len(p.missing)} kernels ({count} calls) have no time ({reasons})"
        lines.append(("predicted", f"{text}; the others take {units.seconds(p.known.seconds)}"))
    known = p.known.seconds
    if known:
        shares = [f"{name} {units.percent(s / known)}" for name, s in groups(p).items() if s / known >= 0.005]
        lines.append(("consists of", ", ".join(shares)))
        lines.append(("coverage", f"{units.percent(p.measured_share)} of the time is measured kernels"))
    if p.overhead is None:
        lines.append(("overhead", "unknown: what the framework needs for each operator is not in the sum"))
    if measured is not None:
        lines.append(("measured", interval(measured)))
        if p.time is not None:
            lines.append(("error", error_text(p.time.seconds / measured.seconds - 1)))
    return lines


def error_text(error: float) -> str:
    """`+2.8 %`: the prediction is longer than the step."""
    return f"{100 * error:+.1f} % (predicted over measured, less 1)"


def rows(prediction: Prediction) -> list[dict[str, Cell]]:
    """One row per kernel, the longest first, then other operators and overhead."""
    known = prediction.known.seconds
    found = [_row(part, known) for part in prediction.parts]
    rest: list[tuple[str, Time | None, int]] = [
        (OTHERS, prediction.others, sum(call.operators for call in prediction.trace.others)),
        (f"{OVERHEAD} per operator", prediction.overhead, prediction.trace.operators),
    ]
    for name, time, count in rest:
        if time is not None:
            share = time.seconds / known if known else None
            found.append({"kernel": name, "calls": count, "time": time.seconds, "share": share, "memory": None})
    return found


def _row(part: Part, known: float) -> dict[str, Cell]:
    time = part.time
    return {
        "kernel": kernel_title(part.need.kernel),
        "case": part.need.kernel,
        "calls": part.need.count,
        "time": time.seconds if time else None,
        "low": time.low_s if time else None,
        "high": time.high_s if time else None,
        "share": time.seconds / known if time and known else None,
        "memory": part.need.cold_share,
        "flop": part.flop,
        "how": part.how if not part.disturbed else f"{part.how}, disturbed",
    }


def table(prediction: Prediction, most: int | None = MOST_ROWS) -> Table:
    """What the step consists of."""
    every = rows(prediction)
    kernels, rest = every[: len(prediction.parts)], every[len(prediction.parts) :]
    shown = [*(kernels if most is None else kernels[:most]), *rest]
    notes = [
        "memory: the share of its bytes that a kernel finds in memory, not in caches, because other data were used "
        "since.",
        "how: kernels that were not measured alone are estimated from their bytes.",
        NOT_MODELLED,
    ]
    if len(shown) < len(every):
        notes.insert(0, f"{len(shown)} of {len(every)} rows are shown; --all shows the others.")
    if any(part.disturbed for part in prediction.parts):
        notes.append("disturbed: other programs disturbed the measurement of this kernel; measure it again.")
    columns = [
        Column("kernel", title="kernel of one step", least=24),
        number("calls"),
        number("time", units.seconds),
        number("share", units.percent, "of step"),
        number("memory", units.percent, narrow=2),
        Column("how", narrow=1),
    ]
    return Table(columns, shown, notes)


def values(prediction: Prediction, measured: Time | None) -> dict[str, Any]:
    """All of it as plain values, for programs."""
    time = prediction.time
    return {
        "title": prediction.trace.title,
        "source": prediction.trace.source,
        "training": prediction.trace.is_training,
        "library": prediction.library,
        "threads": prediction.threads,
        "predicted": asdict(time) if time else None,
        "known": asdict(prediction.known),
        "measured": asdict(measured) if measured else None,
        "error": time.seconds / measured.seconds - 1 if time and measured else None,
        "measured_share": prediction.measured_share,
        "groups": groups(prediction),
        "missing": [part.need.kernel for part in prediction.missing],
        "rows": rows(prediction),
    }


# ---- several steps: batches, devices


def sweep_table(name: str, found: Sequence[tuple[int, Prediction]]) -> Table:
    """Time, throughput and latency by batch size. The knee is where twice the batch no longer pays."""
    rows: list[dict[str, Cell]] = []
    for value, prediction in found:
        time = prediction.time
        rows.append(
            {
                name: value,
                "step": time.seconds if time else None,
                "low": time.low_s if time else None,
                "high": time.high_s if time else None,
                "per_s": value / time.seconds if time else None,
                "each": time.seconds / value if time else None,
                "missing": len(prediction.missing) or None,
            }
        )
    knee = knee_of([(value, p.time.seconds) for value, p in found if p.time])
    notes = [f"{name} is what one step processes; per s: {name} / step."]
    if knee is not None:
        notes.append(
            f"Knee: {name} {knee}. The throughput is at least 90 % of the highest here; larger ones add latency."
        )
    if any(p.missing for _, p in found):
        notes.append("Steps without a time lack kernels; measure them with --measure.")
    columns = [
        number(name),
        number("step", units.seconds, "step"),
        number("low", units.seconds, "from", narrow=1),
        number("high", units.seconds, "to", narrow=1),
        number("per_s", units.significant, "per s"),
        number("each", units.seconds, f"per {name}"),
        number("missing"),
    ]
    return Table(columns, rows, notes).without_empty_columns()


# A batch is large enough where its throughput is this share of the highest.
KNEE = 0.9


def knee_of(points: Sequence[tuple[int, float]]) -> int | None:
    """The smallest batch with 90 % of the highest throughput; None for fewer than three."""
    if len(points) < 3:
        return None
    highest = max(value / seconds for value, seconds in points)
    return next(value for value, seconds in sorted(points) if value / seconds >= KNEE * highest)
