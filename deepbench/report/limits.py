"""The roofs of a machine as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deepbench.core import units
from deepbench.judge.limits import FINE, Limits, best
from deepbench.report.table import library_title
from deepbench.report.views import Cell, View
from deepbench.results.record import Limit


def peaks(limits: Iterable[Limit], threads: Sequence[int]) -> View:
    """One row per precision: the peak rate of the CPU with each number of threads."""
    found = {
        (limit["precision"], limit["threads"]): limit
        for limit in best(limits).values()
        if limit["what"] == "compute" and limit["device"] == "cpu"
    }
    columns: dict[str, Any] = {"precision": str}
    rows: list[dict[str, Cell]] = []
    for precision in dict.fromkeys(p for p, _ in found):
        row: dict[str, Cell] = {"precision": precision}
        for count in threads:
            line = found.get((precision, count))
            row[_threads(count)] = line["flop_per_s"] if line else None
            row[f"by, {_threads(count)}"] = line["library"] if line else None
        rows.append(row)
    for count in threads:
        columns |= {_threads(count): units.flop_per_s, f"by, {_threads(count)}": str}
    note = "TFLOP/s of the fastest sample of any library (8-bit: operations): what can be done here, not a data sheet."
    return View(columns, rows, [note])


def memory(known: Limits, threads: Sequence[int], machine: Mapping[str, Any]) -> View:
    """A row a working set: bytes a second, and where it lies."""
    rows: list[dict[str, Cell]] = []
    for size in FINE:
        rates = {count: known.memory(size, count) for count in threads}
        if any(rates.values()):
            row: dict[str, Cell] = {"working set": size}
            for count, rate in rates.items():
                row[_threads(count)] = rate
                row[f"from, {_threads(count)}"] = known.level(size, count)
            rows.append(row)
    columns: dict[str, Any] = {"working set": units.data_bytes}
    for count in threads:
        columns |= {_threads(count): _gigabytes, f"from, {_threads(count)}": str}
    dram = [f"{_gigabytes(rate)} GB/s by {_threads(n)}" for n in threads if (rate := known.dram(n))]
    notes = [f"GB/s of reading; of memory itself {', '.join(dram)}."] if dram else []
    return View(columns, rows, notes)


def calls(lines: Iterable[Limit], threads: Sequence[int]) -> View:
    """A row a library: the least a call takes."""
    least: dict[tuple[str, int], float] = {}
    for line in lines:
        if line["what"] == "call":
            key = line["backend"], line["threads"]
            least[key] = min(line["seconds"], least.get(key, line["seconds"]))
    rows: list[dict[str, Cell]] = [
        {"library": library_title(name), **{_threads(n): least.get((name, n)) for n in threads}}
        for name in dict.fromkeys(name for name, _ in least)
    ]
    columns: dict[str, Any] = {"library": str, **{_threads(n): units.seconds for n in threads}}
    return View(columns, rows, ["The least a call takes: a product of one number by one number."])


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"


def _gigabytes(rate: float | None) -> str:
    return units.significant(rate / 1e9) if rate else "–"
