"""A predicted step: its time with an interval, what it consists of, and how far it is from the measured step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from deepbench.core import units
from deepbench.core.times import Time
from deepbench.core.words import count
from deepbench.networks.predictions.breakdown import OTHERS, OVERHEAD, REST, gains, groups, knee_of, layers
from deepbench.networks.predictions.forecast import Forecast
from deepbench.networks.predictions.predict import SAME_SPEED, KernelShare, Prediction
from deepbench.networks.reporting.traces import kernel_title, memory_text, network_text, note_lines
from deepbench.networks.traces.trace import Trace
from deepbench.reporting.bars import StackedBar, svg
from deepbench.reporting.output import Report, json_text
from deepbench.reporting.table import AtMost, Cell, Column, Table, number, time_text

MOST_ROWS = 12

WITHHELD = (
    "withheld, because other programs disturbed more than a tenth of the time, or the machine was not equally fast; "
    "measure again on a quiet machine"
)

NOT_MODELLED = (
    "Not modelled: operators that run at the same time, memory that the system clears first, input, and clocks that "
    "differ between the kernels and the step."
)

# Of a step, by a faster kernel: smaller ones are not worth a sentence.
LEAST_CHANGE = 0.01


def interval(time: Time) -> str:
    """`98.2 ms, from 93.1 ms to 104 ms`; `≤ 110 ms` where it is an upper bound."""
    if time.is_bound:
        return units.at_most(time.seconds if time.high_s is None else time.high_s)
    if time.low_s is None or time.high_s is None:
        return units.seconds(time.seconds)
    return f"{units.seconds(time.seconds)}, from {units.seconds(time.low_s)} to {units.seconds(time.high_s)}"


def summary(
    prediction: Prediction,
    measured: Time | None,
    alternatives: Sequence[Prediction] = (),
    capacity: tuple[str, int] | None = None,
) -> list[tuple[str, str]]:
    """Labels and sentences above the table.

    `alternatives` have the kernels of other libraries; `capacity` is the memory of a device, in words and in bytes.
    """
    p, trace = prediction, prediction.trace
    lines = [("network", network_text(trace))]
    if p.time is not None:
        lines.append(
            ("predicted", f"{interval(p.time)} per step, {count(p.threads, 'thread')}, kernels of {p.library}")
        )
    else:
        calls = count(sum(part.need.count for part in p.missing), "call")
        reasons = ", ".join(dict.fromkeys(part.how for part in p.missing))
        text = f"withheld: {without_time(len(p.missing))} in {calls} ({reasons})"
        known_s = p.known.seconds
        lines.append(("predicted", f"{text}; the others take {units.seconds(known_s)}" if known_s else text))
    known = p.known.seconds
    if known:
        shares = [f"{name} {units.percent(s / known)}" for name, s in groups(p).items() if s / known >= 0.005]
        lines.append(("consists of", ", ".join(shares)))
        lines.append(("coverage", f"{units.percent(p.measured_share)} of the time is measured kernels"))
    if p.known.is_bound:
        what = [count(len(p.disturbed), "kernel")] if p.disturbed else []
        what += [OTHERS] if p.others is not None and p.others.is_bound else []
        text = f"{' and '.join(what)}, {units.percent(p.disturbed_share)} of the time"
        lines.append(("disturbed", f"{text}: other programs interfered, so the time is an upper bound; measure again"))
    if p.known.is_uneven:
        lines.append(("uneven", uneven_text(p)))
    if p.others is None:
        lines.append(("others", "unknown: no addition has a time, so other operators are not in the sum"))
    if p.overhead is None:
        lines.append(("overhead", "unknown: what the framework needs for each operator is not in the sum"))
    if measured is not None:
        noisy = ": other programs disturbed most of its steps, so the time is an upper bound" * measured.is_bound
        lines.append(("measured", f"{interval(measured)}{noisy}"))
        if p.time is not None:
            error = p.error(measured)
            lines.append(("error", error_text(error) if error is not None else WITHHELD))
    if (gain := gain_text(p, alternatives)) is not None:
        lines.append(("libraries", gain))
    lines.append(("memory", _memory(trace, capacity)))
    return [*lines, *note_lines(trace)]


def uneven_text(prediction: Prediction) -> str:
    """Which share of the time the machine measured at another speed."""
    what = [count(len(prediction.uneven), "kernel")] if prediction.uneven else []
    what += [OTHERS] if prediction.others is not None and prediction.others.is_uneven else []
    return (
        f"{' and '.join(what)}, {units.percent(prediction.uneven_share)} of the time: the real step took more than "
        f"{units.percent(SAME_SPEED)} longer or shorter next to them than usual, so the interval is wider; "
        "measure again"
    )


def _memory(trace: Trace, capacity: tuple[str, int] | None) -> str:
    memory = trace.memory
    text = memory_text(memory)
    if memory is None or capacity is None:
        return text
    words, size = capacity
    devices = memory.devices(size)
    holds = (
        f"one device of {words} holds it" if devices == 1 else f"{devices} devices of {words} that divide it hold it"
    )
    return f"{text}; {holds}"


# ---- other libraries


def gain_text(prediction: Prediction, alternatives: Sequence[Prediction]) -> str | None:
    """`81.2 ms with the fastest library of each kernel, 1.21× as fast: onednn for 31 kernels saves 12 ms`."""
    found, time = gains(prediction, alternatives), prediction.time
    if not found or time is None:
        return None
    best = time.seconds - sum(gain.saved_s for gain in found)
    each = ", ".join(f"{g.library} for {count(g.kernels, 'kernel')} saves {units.seconds(g.saved_s)}" for g in found)
    ratio = units.significant(time.seconds / best)
    return f"{units.seconds(best)} with the fastest library of each kernel, {ratio} times as fast: {each}"


# ---- layers


def layer_rows(prediction: Prediction) -> list[dict[str, Cell]]:
    """One row per layer of the network, the longest first, and below it one row per part. Equal layers are one row."""
    rows: list[dict[str, Cell]] = []
    known = prediction.known.seconds or 1.0
    for layer in layers(prediction):
        for part in (None, *layer.parts):
            calls, seconds = (layer.calls, layer.seconds) if part is None else (part.calls, part.seconds)
            name = part.name if part else None
            rows.append({"layer": layer.name, "part": name, "calls": calls, "time": seconds, "share": seconds / known})
    return rows


# Parts of a layer in a short table, and their least share of the step.
MOST_PARTS, LEAST_SHARE = 6, 0.005


def layer_table(prediction: Prediction, is_full: bool = False) -> Table:
    """Layers next to the sum of their parts."""
    shown: list[dict[str, Cell]] = []
    every = layer_rows(prediction)
    parts = 0
    for row in every:
        parts = 0 if row["part"] is None else parts + 1
        share = row["share"]
        assert isinstance(share, float), "every row has one"
        if is_full or (parts <= MOST_PARTS and share >= LEAST_SHARE):
            name = row["layer"] if row["part"] is None else f"  {row['part']}"
            shown.append({**row, "name": name})
    notes = [
        "*: all layers of a list together; a number is the position in a list. A layer is the sum of its parts; its "
        "other operators count by their bytes, and each operator with the overhead of the framework.",
    ]
    if len(shown) < len(every):
        notes.append(f"{len(shown)} of {len(every)} rows are shown; --all shows the others.")
    if prediction.missing:
        notes.append(f"{without_time(len(prediction.missing))}, so these sums lack them.")
    columns = [
        Column("name", title="layer and its parts", least=30),
        *(number("calls"), number("time", units.seconds), number("share", units.percent, "of step")),
    ]
    return Table(columns, shown, notes, more_for_programs=("layer", "part"))


def without_time(kernels: int) -> str:
    """`2 kernels have no time`."""
    return f"{count(kernels, 'kernel')} {'has' if kernels == 1 else 'have'} no time"


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
    for name, time, calls in rest:
        if time is not None and calls:
            share = time.seconds / known if known else None
            found.append({"kernel": name, "calls": calls, "time": _seconds(time), "share": share, "memory": None})
    return found


def _seconds(time: Time) -> float:
    return AtMost(time.seconds) if time.is_bound else time.seconds


def _row(part: KernelShare, known: float) -> dict[str, Cell]:
    time = part.time
    return {
        "kernel": kernel_title(part.need.kernel),
        "case": part.need.kernel,
        "calls": part.need.count,
        "time": _seconds(time) if time else None,
        "low": time.low_s if time else None,
        "high": time.high_s if time else None,
        "share": time.seconds / known if time and known else None,
        "memory": part.need.cold_share,
        "flop": part.flop,
        "how": ", ".join([part.how, *(["disturbed"] * part.disturbed), *(["uneven"] * part.uneven)]),
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
    if any(part.uneven for part in prediction.parts):
        notes.append("uneven: the machine had another speed during the measurement of this kernel; measure it again.")
    columns = [
        Column("kernel", title="kernel of one step", least=24),
        number("calls"),
        number("time", time_text),
        number("share", units.percent, "of step"),
        number("memory", units.percent, narrow=2),
        Column("how", narrow=1),
    ]
    return Table(columns, shown, notes)


def faster_kernels(prediction: Prediction, most: int = 3, times: float = 2.0) -> list[str]:
    """What the step gains where each of its longest groups of kernels, and its longest kernel, gets faster."""
    time = prediction.time
    if time is None:
        return []
    if not prediction.is_trusted:
        return [f"What a faster kernel would change is {WITHHELD}."]
    seconds = {
        f"all {name}" if name == REST else f"all of {name}": s
        for name, s in groups(prediction).items()
        if name not in (OTHERS, OVERHEAD)
    }
    longest = prediction.parts[:1]
    seconds |= {kernel_title(p.need.kernel): p.time.seconds for p in longest if p.time is not None}
    lines = []
    for name, s in sorted(seconds.items(), key=lambda item: -item[1])[:most]:
        after = time.seconds - s * (1 - 1 / times)
        change = after / time.seconds - 1
        if change < -LEAST_CHANGE:
            text = f"{units.seconds(after)} instead of {units.seconds(time.seconds)} ({units.percent(change)})"
            lines.append(f"With {name} {times:g} times as fast, the step takes {text}.")
    return lines or [
        f"Even {times:g} times as fast, no kernel changes the step by more than {units.percent(LEAST_CHANGE)}."
    ]


def values(
    prediction: Prediction, measured: Time | None = None, alternatives: Sequence[Prediction] = ()
) -> dict[str, Any]:
    """All of it as plain values, for programs."""
    time, memory = prediction.time, prediction.trace.memory
    return {
        "title": prediction.trace.title,
        "source": prediction.trace.source,
        "notes": list(prediction.trace.notes),
        "training": prediction.trace.is_training,
        "library": prediction.library,
        "threads": prediction.threads,
        "predicted": asdict(time) if time else None,
        "known": asdict(prediction.known),
        "measured": asdict(measured) if measured else None,
        "error": prediction.error(measured),
        "measured_share": prediction.measured_share,
        "groups": groups(prediction),
        "missing": [part.need.kernel for part in prediction.missing],
        "rows": rows(prediction),
        "layers": layer_rows(prediction),
        "libraries": [asdict(gain) for gain in gains(prediction, alternatives)],
        "memory": asdict(memory) if memory else None,
    }


# ---- pictures


def picture(found: Sequence[tuple[str, Prediction]], measured: Time | None = None) -> str:
    """Predicted steps as bars of their groups of kernels, and the measured step below, as SVG."""
    shown = []
    for label, prediction in found:
        time = prediction.time
        text = interval(time) if time else f"at least {units.seconds(prediction.known.seconds)}: kernels are missing"
        text += " (disturbed)" if prediction.known.is_bound else " (uneven)" if prediction.known.is_uneven else ""
        shown.append(StackedBar(label, groups(prediction), text, _ends(time)))
    if measured is not None:
        shown.append(StackedBar("measured", {"measured": measured.seconds}, interval(measured), _ends(measured)))
    title = found[0][1].trace.title if found else ""
    return svg(f"{title}: one step, predicted from its kernels", shown)


def _ends(time: Time | None) -> tuple[float, float] | None:
    return None if time is None or time.low_s is None or time.high_s is None else (time.low_s, time.high_s)


@dataclass(frozen=True, repr=False)
class Predicted:
    """One predicted step, as Python users see it: in a notebook and in a terminal it is a table."""

    forecast: Forecast
    capacity: tuple[str, int] | None = None
    """The memory of a device, in words and in bytes."""

    @property
    def prediction(self) -> Prediction:
        """The step with all of its parts."""
        return self.forecast.predictions[0]

    @property
    def time(self) -> Time | None:
        """Seconds with the ends of an interval; None where a kernel is missing."""
        return self.prediction.time

    @property
    def measured(self) -> Time | None:
        """The real step, where the results have it."""
        return self.forecast.measured

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1; None where one is missing, disturbed, or the machine was uneven."""
        return self.prediction.error(self.measured)

    def table(self) -> Table:
        """One row per kernel, the longest first."""
        return table(self.prediction, None)

    def layers(self) -> Table:
        """Layers next to the sum of their parts."""
        return layer_table(self.prediction, True)

    def picture(self) -> str:
        """Predicted and measured step as bars, as SVG."""
        return picture(list(zip(self.labels, self.forecast.predictions, strict=True)), self.measured)

    @property
    def labels(self) -> list[str]:
        """The name of each step that was predicted."""
        return ["predicted"]

    def report(self, by: str = "kernel", full: bool = False) -> Report:
        """What `deepbench predict` prints below the summary: kernels, or layers; `full`: people see all of them."""
        if by == "layer":
            shown, every = layer_table(self.prediction, full), self.layers()
        else:
            shown, every = table(self.prediction, None if full else MOST_ROWS), self.table()
        return self._report(every, shown)

    def _report(self, every: Table, shown: Table | None = None) -> Report:
        forms = Report.of_table(every).forms
        found = [values(p, self.measured, self.forecast.alternatives) for p in self.forecast.predictions]
        return Report((shown or every).print, {**forms, "json": lambda: json_text(found)})

    def values(self) -> dict[str, Any]:
        """All of it as plain values."""
        return values(self.prediction, self.measured, self.forecast.alternatives)

    def __str__(self) -> str:
        lines = [f"{label:<11}{text}" for label, text in self.summary()]
        return "\n".join([*lines, "", str(self._short)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(label)}: {escape(text)}</li>" for label, text in self.summary())
        return f"<ul>{lines}</ul>{self._short._repr_html_()}"

    @property
    def _short(self) -> Table:
        """What a terminal and a notebook show."""
        return table(self.prediction)

    def summary(self) -> list[tuple[str, str]]:
        """Labels and sentences above the table."""
        return summary(self.prediction, self.measured, self.forecast.alternatives, self.capacity)


# ---- several steps: batches, devices


def sweep_table(name: str, found: Sequence[tuple[int, Prediction]]) -> Table:
    """Time, throughput and latency by batch size. The knee is where twice the batch no longer pays."""
    rows: list[dict[str, Cell]] = []
    for value, prediction in found:
        time = prediction.time
        rows.append(
            {
                name: value,
                "step": _seconds(time) if time else None,
                "low": time.low_s if time else None,
                "high": time.high_s if time else None,
                "per_s": value / time.seconds if time else None,
                "each": time.seconds / value if time else None,
                "missing": len(prediction.missing) or None,
                "notes": "disturbed" if prediction.known.is_bound else "uneven" if prediction.known.is_uneven else None,
            }
        )
    knee = knee_of([(value, p.time.seconds) for value, p in found if p.time and p.is_trusted])
    notes = [f"{name} is what one step processes; per s: {name} / step."]
    if knee is not None:
        notes.append(
            f"Knee: {name} {knee}. The throughput is at least 90 % of the highest here; larger ones add latency."
        )
    if any(p.missing for _, p in found):
        notes.append("Steps without a time lack kernels; measure them with --measure.")
    columns = [
        number(name),
        number("step", time_text, "step"),
        number("low", units.seconds, "from", narrow=1),
        number("high", units.seconds, "to", narrow=1),
        number("per_s", units.significant, "per s"),
        number("each", units.seconds, f"per {name}"),
        number("missing"),
        Column("notes", style="yellow"),
    ]
    return Table(columns, rows, notes).without_empty_columns()
