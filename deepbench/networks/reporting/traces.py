"""What a traced step consists of: its kernels by FLOP, and other operators by bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from deepbench.core import units
from deepbench.core.case import parse_pattern
from deepbench.core.op import find_op
from deepbench.networks.traces.kernels import flop_of
from deepbench.networks.traces.memory import Memory
from deepbench.networks.traces.trace import Trace
from deepbench.reporting.table import Cell, Column, Table, number

MOST_ROWS = 12


def kernel_title(kernel: str) -> str:
    """A kernel as tables show it: its operation, problem, direction, and precision unless f32."""
    p = parse_pattern(kernel)
    extra = [word for word in (p.direction, p.precision) if word not in (None, "forward", "f32")]
    return " ".join([p.op, find_op(p.op).title(p.problem), *map(str, extra)])


def values(trace: Trace) -> dict[str, Any]:
    """The sums of a trace as plain values."""
    memory = trace.memory
    return {
        "title": trace.title,
        "source": trace.source,
        "notes": list(trace.notes),
        "training": trace.is_training,
        "parameters": trace.parameters,
        "operators": len(trace.calls),
        "views": trace.views,
        "kernels": len(trace.counts),
        "kernel_calls": sum(trace.counts.values()),
        "flop": sum(flop_of(kernel) * count for kernel, count in trace.counts.items()),
        "bytes": sum(call.bytes for call in trace.calls),
        "other_bytes": sum(call.bytes for call in trace.others),
        "kept_bytes": memory.kept if memory else None,
        "temporary_bytes": memory.temporary if memory else None,
    }


def network_text(trace: Trace) -> str:
    """`resnet18: a training step, 11,689,512 parameters`."""
    parameters = f", {trace.parameters:,} parameters" if trace.parameters is not None else ""
    return f"{trace.title}: a {trace.phase}{parameters}"


def memory_text(memory: Memory | None) -> str:
    """What a step needs."""
    if memory is None:
        return "unknown: which arrays the operators share is not in this trace"
    kept, temporary = units.data_bytes(memory.kept), units.data_bytes(memory.temporary)
    return f"{kept} kept from step to step, at most {temporary} temporary"


def kernel_rows(trace: Trace) -> list[dict[str, Cell]]:
    """One row per kernel, and one per other operator: the most FLOP first, then the most bytes."""
    moved: Counter[str] = Counter()
    places: dict[str, dict[str, None]] = {}
    for call in trace.calls:
        name = call.kernel or call.operator
        moved[name] += call.bytes
        places.setdefault(name, {})[call.where] = None
    others = Counter(call.operator for call in trace.others)
    rows: list[dict[str, Cell]] = []
    for kernel, count in trace.counts.items():
        rows.append(_row(kernel, count, flop_of(kernel) * count, moved[kernel], places[kernel]))
    rows.sort(key=lambda row: -int(row["flop"] or 0))
    rest = [_row(name, count, None, moved[name], places[name]) for name, count in others.items()]
    return rows + sorted(rest, key=lambda row: -int(row["bytes"] or 0))


def _row(name: str, count: int, flop: int | None, moved: int, places: Mapping[str, None]) -> dict[str, Cell]:
    named = [place for place in places if place]
    more = f", {len(named) - 1} more" if len(named) > 1 else ""
    return {
        "kernel": name,
        "title": name if flop is None else kernel_title(name),
        "calls": count,
        "flop": flop,
        "bytes": moved,
        "places": f"{named[0]}{more}" if named else None,
    }


def problem_rows(trace: Trace) -> list[dict[str, Cell]]:
    """One row per problem with all of its directions: the most FLOP first, then other operators by bytes."""
    found: dict[str, dict[str, Any]] = {}
    rest = []
    for row in kernel_rows(trace):
        if row["flop"] is None:
            rest.append(row)
            continue
        p = parse_pattern(str(row["kernel"]))
        title = " ".join(
            filter(None, [p.op, find_op(p.op).title(p.problem), p.precision if p.precision != "f32" else ""])
        )
        known = found.setdefault(title, {"kernel": title, "title": title, "calls": 0, "flop": 0, "bytes": 0})
        for name in ("calls", "flop", "bytes"):
            known[name] += row[name]
        known.setdefault("places", row["places"])
        known.setdefault("directions", []).append(SHORT[p.direction or "forward"])
    ordered = sorted(found.values(), key=lambda row: -row["flop"])
    return [*({**row, "directions": " ".join(dict.fromkeys(row["directions"]))} for row in ordered), *rest]


# Directions in a narrow column.
SHORT = {"forward": "f", "backward": "b", "backward_data": "d", "backward_weights": "w"}


def table(trace: Trace, most: int | None = MOST_ROWS) -> Table:
    """The problems with the most FLOP, and the other operators with the most bytes."""
    rows = problem_rows(trace)
    kernels = [row for row in rows if row["flop"] is not None]
    others = [row for row in rows if row["flop"] is None]
    shown = rows if most is None else [*kernels[:most], *others[: max(3, most // 3)]]
    notes = []
    if trace.is_training:
        notes.append("in: the directions: forward, backward, gradient of the data, gradient of the weights.")
    if len(shown) < len(rows):
        notes.append(f"{len(shown)} of {len(rows)} rows are shown; --all shows the others.")
    if others:
        notes.append("Without FLOP: operators that are no kernel of DeepBench; only their bytes count.")
    columns = [
        Column("kernel", title="kernel of one step", least=30),
        Column("directions", title="in", whole=True),
        number("calls"),
        number("flop", lambda n: units.significant(n / 1e9), "GFLOP"),
        number("bytes", lambda n: units.significant(n / 1e6), "MB"),
        Column("places", title="where", narrow=1),
    ]
    return Table(columns, shown, notes).without_empty_columns()


def summary(trace: Trace) -> list[tuple[str, str]]:
    """Labels and sentences above the table."""
    v = values(trace)
    shares = f"{v['kernel_calls']} calls of {v['kernels']} kernels, {len(trace.others)} other operators"
    return [
        ("network", network_text(trace)),
        ("operators", f"{shares}, {trace.views} views"),
        ("work", f"{units.significant(v['flop'] / 1e9)} GFLOP; {units.significant(v['bytes'] / 1e9)} GB moved, "
                 f"{units.percent(v['other_bytes'] / v['bytes'] if v['bytes'] else 0)} of it by other operators"),
        ("memory", memory_text(trace.memory)),
        *note_lines(trace),
    ]  # fmt: skip


def note_lines(trace: Trace) -> list[tuple[str, str]]:
    """What a trace leaves out, and how its kernels differ from what ran."""
    return [("note" if i == 0 else "", text) for i, text in enumerate(trace.notes)]
