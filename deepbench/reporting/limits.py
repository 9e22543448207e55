"""The limits of a machine as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deepbench.core import units
from deepbench.core.backend import known_backend
from deepbench.core.precision import MINIMUM, PRECISIONS
from deepbench.judge.limits import FINE, Limits, best
from deepbench.reporting.table import Cell, Column, Table, flop_rates, number
from deepbench.results.record import Limit

OF_FEWER = "with fewer threads: fewer threads reached a higher rate, which is the limit of more threads too."
RULE = f"DeepBench's rule: {MINIMUM}."


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
    of_fewer, disturbed = False, list[str]()
    for precision in dict.fromkeys(p for p, _ in peaks):
        row: dict[str, Cell] = {"precision": precision}
        for count in threads:
            # A rate that fewer threads exceed is no roof.
            upto = [peaks[precision, n] for n in range(1, count + 1) if (precision, n) in peaks]
            limit = max(upto, key=lambda n: n["flop_per_s"]) if (precision, count) in peaks else None
            is_of_fewer = limit is not None and limit["threads"] < count
            row[_threads(count)] = limit["flop_per_s"] if limit else None
            fewer = f" (with {_threads(limit['threads'])})" if limit and is_of_fewer else ""
            row[f"by, {_threads(count)}"] = f"{limit['library']}{fewer}" if limit else None
            of_fewer |= is_of_fewer
            if limit and limit.get("disturbed"):
                disturbed.append(f"{precision} with {_threads(count)}")
        rows.append(row)
    unit = units.flop_unit(limit["flop_per_s"] for limit in peaks.values())
    columns = [Column("precision", title="type")]
    for count in threads:
        columns += [
            flop_rates(_threads(count), unit, _threads(count)),
            Column(f"by, {_threads(count)}", title="library", narrow=1),
        ]
    note = f"{unit[0]} (8 bits: operations) of the fastest sample of any library; measured, not from a data sheet."
    notes = [note, *[OF_FEWER] * of_fewer, *_disturbed(disturbed, "low")]
    if below := _below_minimum(rows):
        notes.append(f"below minimum precision: {', '.join(below)}. {RULE}")
    return Table(columns, rows, notes)


def memory(limits: Limits, threads: Sequence[int]) -> Table:
    """One row per working set: read bandwidth, and the memory level that holds it."""
    rows: list[dict[str, Cell]] = []
    of_fewer = False
    for size in FINE:
        rates = {count: limits.cpu.memory(size, count) for count in threads}
        if any(rates.values()):
            row: dict[str, Cell] = {"working set": size}
            for count in rates:
                known = {n: rate for n, rate in rates.items() if n <= count and rate is not None}
                best = max(known, key=lambda n: known[n]) if count in known else None
                level = limits.cpu.holding(size, count)
                row[_threads(count)] = known[best] if best is not None else None
                row[f"from, {_threads(count)}"] = (
                    f"{level} (with {_threads(best)})" if best not in (None, count) else level
                )
                of_fewer |= best not in (None, count)
            rows.append(row)
    columns = [number("working set", units.data_bytes)]
    for count in threads:
        columns += [number(_threads(count), units.bytes_per_s), Column(f"from, {_threads(count)}", title="level")]
    dram = [f"{units.bytes_per_s(rate)} GB/s with {_threads(n)}" for n in threads if (rate := limits.dram(n))]
    notes = [f"GB/s of reading; main memory: {', '.join(dram)}."] if dram else []
    disturbed = _disturbed([_threads(n) for n in threads if limits.cpu.is_disturbed(n)], "low")
    return Table(columns, rows, [*notes, *[OF_FEWER] * of_fewer, *disturbed])


def calls(limits: Iterable[Limit], threads: Sequence[int]) -> Table:
    """One row per library and smallest problem of an operation: the fixed cost of a call."""
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    disturbed: list[str] = []
    for limit in limits:
        if limit["what"] == "call":
            case = limit["case"].replace(f" {limit['backend']} threads={limit['threads']}", "")
            new: dict[str, Cell] = {"library": library_name(limit["backend"]), "call": case}
            row = rows.setdefault((limit["backend"], case), new)
            row[_threads(limit["threads"])] = limit["seconds"]
            if limit.get("disturbed"):
                disturbed.append(f"{row['library']}, {case}")
    complete = [{**{_threads(n): None for n in threads}, **row} for row in rows.values()]
    columns = [Column("library"), Column("call"), *(number(_threads(n), units.seconds) for n in threads)]
    note = "The fixed cost of a call: the time of the smallest problem of each operation."
    return Table(columns, complete, [note, *_disturbed(disturbed, "high")])


def _disturbed(names: Sequence[str], how: str) -> list[str]:
    """A note on values that are too low or too high."""
    return [f"Other programs disturbed the probe, so this is too {how}: {'; '.join(names)}."] if names else []


def _below_minimum(rows: Iterable[Mapping[str, Cell]]) -> list[str]:
    """The precisions of these rows that no training and no inference may use."""
    names = (str(row["precision"]) for row in rows)
    return [n for n in names if n in PRECISIONS and PRECISIONS[n].below_minimum(is_training=False)]


def library_name(backend: str) -> str:
    """The library as its makers spell it; the word itself where this machine has no such backend."""
    known = known_backend(backend)
    return known.title if known is not None else backend


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"
