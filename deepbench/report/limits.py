"""The limits of a machine as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deepbench.core import units
from deepbench.core.backend import all_backends
from deepbench.judge.limits import FINE, Limits, best
from deepbench.report.table import Cell, Column, Table, number
from deepbench.results.record import Limit


def tables(limits: Iterable[Limit], threads: Sequence[int], machine: Mapping[str, Any]) -> dict[str, Table]:
    """The tables of compute, memory and call limits."""
    limits = list(best(limits).values())
    return {
        "compute": compute(limits, threads),
        "memory": memory(Limits(limits, machine), threads),
        "calls": calls(limits, threads),
    }


def compute(limits: Iterable[Limit], threads: Sequence[int]) -> Table:
    """One row per precision: the peak rate of the CPU with each number of threads."""
    peaks = {
        (limit["precision"], limit["threads"]): limit
        for limit in limits
        if limit["what"] == "compute" and limit["device"] == "cpu"
    }
    rows: list[dict[str, Cell]] = []
    for precision in dict.fromkeys(p for p, _ in peaks):
        row: dict[str, Cell] = {"precision": precision}
        for count in threads:
            limit = peaks.get((precision, count))
            row[_threads(count)] = limit["flop_per_s"] if limit else None
            row[f"by, {_threads(count)}"] = limit["library"] if limit else None
        rows.append(row)
    columns = [Column("precision")]
    for count in threads:
        columns += [number(_threads(count), units.flop_per_s), Column(f"by, {_threads(count)}", title="library")]
    note = "TFLOP/s (8 bits: operations) of the fastest sample of any library; measured, not from a data sheet."
    return Table(columns, rows, [note])


def memory(limits: Limits, threads: Sequence[int]) -> Table:
    """One row per working set: read bandwidth, and the memory level that holds it."""
    rows: list[dict[str, Cell]] = []
    for size in FINE:
        rates = {count: limits.memory(size, count) for count in threads}
        if any(rates.values()):
            row: dict[str, Cell] = {"working set": size}
            for count, rate in rates.items():
                row[_threads(count)] = rate
                row[f"from, {_threads(count)}"] = limits.level(size, count)
            rows.append(row)
    columns = [number("working set", units.data_bytes)]
    for count in threads:
        columns += [number(_threads(count), units.bytes_per_s), Column(f"from, {_threads(count)}", title="level")]
    dram = [f"{units.bytes_per_s(rate)} GB/s with {_threads(n)}" for n in threads if (rate := limits.dram(n))]
    return Table(columns, rows, [f"GB/s of reading; main memory: {', '.join(dram)}."] if dram else [])


def calls(limits: Iterable[Limit], threads: Sequence[int]) -> Table:
    """One row per library and smallest problem of an operation: the fixed cost of a call."""
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    for limit in limits:
        if limit["what"] == "call":
            case = limit["case"].replace(f" {limit['backend']} threads={limit['threads']}", "")
            new: dict[str, Cell] = {"library": library_name(limit["backend"]), "call": case}
            row = rows.setdefault((limit["backend"], case), new)
            row[_threads(limit["threads"])] = limit["seconds"]
    complete = [{**{_threads(n): None for n in threads}, **row} for row in rows.values()]
    columns = [Column("library"), Column("call"), *(number(_threads(n), units.seconds) for n in threads)]
    return Table(columns, complete, ["The fixed cost of a call: the time of the smallest problem of each operation."])


def library_name(backend: str) -> str:
    """The library as its makers spell it; the word itself where this machine has no such backend."""
    known = all_backends()
    return known[backend].title if backend in known else backend


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"
