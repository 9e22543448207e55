"""Hardware as a file: what a time model needs to know about a machine, measured, from a data sheet, or made up.

    schema = "deepbench-hardware/1"
    name = "my accelerator"
    origin = "hypothetical"             # or "measured", "datasheet"

    [peak]                              # FLOP/s by precision
    f32 = 15.7e12
    bf16 = 125e12

    [[memory]]                          # levels, the innermost first; the last one is the main memory
    name = "L2"
    bytes = 6_291_456
    bytes_per_s = 2.2e12

    [[memory]]
    name = "HBM"
    bytes_per_s = 900e9

    [overhead]
    call_s = 5e-6                       # the fixed cost of a call or a launch
    operator_s = 3e-6                   # what a framework adds to each operator

    [array]                             # instead of units: products are computed by a systolic array
    rows = 128
    columns = 128
    dataflow = "ws"                     # what stays in place: weights ("ws"), inputs ("is") or outputs ("os")
    clock_hz = 940e6                    # optional; without [peak], it gives the peak of every precision
    count = 1                           # optional: equal arrays

All values are in SI units without prefixes. What is unknown is absent. `units` and `tiles` add the occupancy: work is
dealt out to units in tiles, such as [128, 64] elements of a product. With `array`, the time of computing a product is
that of a systolic array (`systolic.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Literal, cast, get_args

from deepbench.core.aliases import did_you_mean, refuse_unknown
from deepbench.core.errors import BadInput, shorten
from deepbench.core.files import read_regular
from deepbench.core.json_lines import printable
from deepbench.core.precision import PRECISIONS
from deepbench.core.toml import parse_toml
from deepbench.judge.limits import Limits
from deepbench.networks.traces.trace import quoted
from deepbench.networks.what_if.knobs import Knob
from deepbench.networks.what_if.systolic import Dataflow, SystolicArray
from deepbench.results.peaks import F32

SCHEMA = "deepbench-hardware/1"

Origin = Literal["measured", "datasheet", "hypothetical"]

# A file of hardware has some dozens of lines.
MOST_BYTES = 2**18
MOST_LEVELS, MOST_TILES = 16, 64
MOST_SIDE = 2**16
"""Rows, columns and number of arrays."""
MOST_TEXT = 2000

# Larger and smaller values are no machine.
LARGEST, SMALLEST = 1e24, 1e-15

# The values of a level of memory, in the order of the class.
LEVEL_VALUES = ("bytes", "bytes_per_s", "gather_bytes")

# The values of an array, those that may be absent last. The peak rates are proportional to each.
ARRAY_VALUES = ("rows", "columns", "count", "clock_hz")

# The word of a knob that means every level or precision, and what the main memory of a measured machine is called.
ALL, MAIN = "all", "main"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")


@dataclass(frozen=True)
class MemoryLevel:
    """One level of memory."""

    name: str
    bytes: float | None
    """What it holds together with all levels inside of it; None: unknown, or more than anything needs."""
    bytes_per_s: float | None
    """The rate at which it is read; None: unknown."""
    gather_bytes: float | None = None
    """Of the innermost level: how many bytes are read in the time in which one number is read at a position that other
    data decide, as in sparse products; None: unknown, so that only its bytes count."""


@dataclass(frozen=True)
class Overhead:
    """Fixed costs."""

    call_s: float | None = None
    """Of a call or a launch."""
    operator_s: float | None = None
    """What a framework adds to each operator."""


@dataclass(frozen=True)
class Hardware:
    """A machine, or a part of one. What is unknown is None or absent."""

    name: str
    origin: Origin
    peak: Mapping[str, float]
    """FLOP/s by precision."""
    memory: tuple[MemoryLevel, ...]
    """The innermost level first. The last one is the main memory, whose rate is known."""
    overhead: Overhead = Overhead()
    units: int | None = None
    """How many tiles are computed at the same time."""
    tiles: tuple[tuple[int, int], ...] = ()
    """Shapes of tiles that a library may choose from: rows and columns of a product."""
    array: SystolicArray | None = None
    """What computes products, at the peak rates when it is full. None: something else."""
    source: str = ""
    """Where the values come from."""
    threads: int | None = None
    """Of a measured one: with how many threads."""
    device: str | None = None
    """Of a measured one: `cpu`, `cuda` or `hip`."""
    remarks: tuple[str, ...] = field(default=(), compare=False)
    """Sentences about the values, such as that other programs disturbed their measurement."""

    # ---- what a model asks

    def peak_of(self, precision: str) -> float | None:
        """FLOP/s in a precision, at least that of f32, to which any library can convert; None if unknown."""
        known = [self.peak[name] for name in dict.fromkeys((precision, F32)) if name in self.peak]
        return max(known, default=None)

    @property
    def main(self) -> MemoryLevel:
        """The main memory."""
        return self.memory[-1]

    @cached_property
    def capacities(self) -> tuple[float, ...]:
        """For each level: bytes that the levels inside of it hold. What fits into these does not come from it.

        A level whose rate is unknown holds nothing: what it saves is unknown.
        """
        held = [0.0, *((level.bytes or 0.0) if level.bytes_per_s else 0.0 for level in self.memory[:-1])]
        return tuple(max(held[: i + 1]) for i in range(len(self.memory)))

    # ---- measured

    @classmethod
    def measured(cls, limits: Limits, name: str, threads: int, device: str = "cpu") -> Hardware:
        """The hardware that the limits of a result file describe, with so many threads.

        `BadInput` where the file has no peak rate or no bandwidth of main memory.
        """
        peak = {p: rate for p in PRECISIONS if (rate := _own_peak(limits, p, device, threads))}
        dram = limits.dram(threads, device)
        what = "peak rate" if not peak else "bandwidth of main memory" if dram is None else None
        if what is not None or dram is None:
            with_threads = f"{threads} thread{'s' * (threads != 1)}"
            raise BadInput(
                f"{name} has no {what} of {device} with {with_threads}, without which nothing can be predicted; "
                "measure the limits: deepbench run, or pass a file with --hardware"
            )
        inner, remarks = list[MemoryLevel](), list[str]()
        for level in limits.cpu.of(threads) if device == "cpu" else ():
            rate = level.rate(level.below)
            if level.capacity is not None and rate is not None:
                gathers = limits.gathers(threads) if not inner else None
                inner.append(MemoryLevel(level.name, level.capacity, rate, rate / gathers if gathers else None))
            elif level.capacity is not None:
                remarks.append(
                    f"{level.name} was not measured: what it holds counts as read from the next level. "
                    "deepbench roofline measures all levels, for later runs."
                )
        if device == "cpu" and limits.cpu.is_disturbed(threads):
            remarks.append("Other programs disturbed the measurement of the memory.")
        if disturbed := [p for p in peak if limits.peaks.is_disturbed(p, device, threads)]:
            remarks.append(f"Other programs disturbed the measurement of the peak rate of {', '.join(disturbed)}.")
        calls = limits.call_times(threads, device)
        return cls(
            name,
            "measured",
            peak,
            (*inner, MemoryLevel(MAIN, None, dram)),
            Overhead(call_s=median(calls) if calls else None),
            source="limits of a result file of DeepBench",
            threads=threads,
            device=device,
            remarks=tuple(remarks),
        )

    # ---- files

    @classmethod
    def load(cls, path: str | Path) -> Hardware:
        """Read a file of hardware; `BadInput` says in a sentence what is wrong with it."""
        named = printable(str(path))
        content = read_regular(Path(path), MOST_BYTES, "a file of hardware (docs/what-if.md)")
        try:
            return cls.parse(content.decode("utf-8-sig"), named)
        except UnicodeDecodeError as error:
            raise BadInput(f"{named} is not text in UTF-8 (byte {error.start}); save it as UTF-8") from None

    @classmethod
    def parse(cls, text: str, named: str = "the hardware") -> Hardware:
        """The hardware that a text in TOML describes."""
        return _Reader(named).hardware(parse_toml(text, named))

    def toml(self) -> str:
        """The text of a file with these values."""
        lines = [f"schema = {quoted(SCHEMA)}", f"name = {quoted(self.name)}", f"origin = {quoted(self.origin)}"]
        lines += [f"source = {quoted(self.source)}"] * bool(self.source)
        lines += [f"threads = {self.threads}"] * (self.threads is not None)
        lines += [f"device = {quoted(self.device or '')}"] * (self.device is not None)
        lines += [f"units = {self.units}"] * (self.units is not None)
        lines += [f"tiles = {[list(tile) for tile in self.tiles]}"] * bool(self.tiles)
        lines += [f"# {remark}" for remark in self.remarks]
        lines += ["", "[peak]  # FLOP/s", *(f"{name} = {_number(rate)}" for name, rate in self.peak.items())]
        for level in self.memory:
            lines += ["", "[[memory]]", f"name = {quoted(level.name)}", *_values(level, *LEVEL_VALUES)]
        overhead = _values(self.overhead, *(f.name for f in fields(Overhead)))
        lines += ["", "[overhead]", *overhead] if overhead else []
        if self.array is not None:
            dataflow = f"dataflow = {quoted(self.array.dataflow)}"
            lines += ["", "[array]", dataflow, *_values(self.array, *ARRAY_VALUES)]
        return "\n".join([*lines, ""])

    def values(self) -> dict[str, Any]:
        """All of it as plain values, for programs."""
        return {"schema": SCHEMA, **asdict(self)}

    # ---- knobs

    def replace(self, *knobs: str | Knob) -> Hardware:
        """This hardware with some values changed: `replace("memory.bytes_per_s*2", "peak.bf16*1.5")`.

        `BadInput` for a knob that this hardware does not have.
        """
        parsed = [Knob.parse(word) if isinstance(word, str) else word for word in knobs]
        if not parsed:
            return self
        changed = self._with_own_peaks(parsed)
        for knob in parsed:
            changed = changed._with(knob)
        return replace(changed, name=f"{self.name} with changes", origin="hypothetical")

    @property
    def knobs(self) -> tuple[str, ...]:
        """The names of all values that are known, as knobs have them."""
        names = [f"peak.{name}" for name in self.peak]
        for level in self.memory:
            names += [f"memory.{level.name}.{value}" for value in ("bytes_per_s", "bytes") if getattr(level, value)]
        names += [f"overhead.{f.name}" for f in fields(Overhead) if getattr(self.overhead, f.name) is not None]
        names += ["units"] * (self.units is not None)
        found = ARRAY_VALUES if self.array is not None else ()
        return (*names, *(f"array.{value}" for value in found if getattr(self.array, value) is not None))

    def changed(self, *knobs: Knob) -> Hardware:
        """This hardware after a change; `BadInput` where a knob sets a value that is unknown before it.

        What a model says with a value and without it cannot be compared.
        """
        after = self.replace(*knobs)
        for name in after.knobs:
            is_peak = name.startswith("peak.") and self.peak_of(name.removeprefix("peak.")) is not None
            if name not in self.knobs and not is_peak:
                raise _unknown(self.name, name)
        return after

    def _with_own_peaks(self, knobs: Sequence[Knob]) -> Hardware:
        """With what `peak_of` gives before any change for each precision that a knob names.

        Otherwise the order of knobs would count: `peak.f16*2` after `peak.f32*2` would start from a rate that is
        doubled already.
        """
        named = [knob.path[1] for knob in knobs if knob.path[0] == "peak" and len(knob.path) == 2]
        own = {name: rate for name in named if name in PRECISIONS and (rate := self.peak_of(name)) is not None}
        return replace(self, peak={**self.peak, **own})

    def _with(self, knob: Knob) -> Hardware:
        match knob.path:
            case ("peak",) | ("peak", "all"):
                return replace(self, peak={name: _bounded(knob, rate) for name, rate in self.peak.items()})
            case ("peak", precision) if precision in PRECISIONS:
                rate = self.peak.get(precision) if knob.how != "=" else 1.0
                if rate is None:
                    raise _unknown(self.name, f"peak of {precision}")
                return replace(self, peak={**self.peak, precision: _bounded(knob, rate)})
            case ("memory", "bytes" | "bytes_per_s" as value):
                return self._with_level(knob, (self.main.name,), value)
            case ("memory", "all", "bytes" | "bytes_per_s" as value):
                names = [level.name for level in self.memory if getattr(level, value) is not None]
                return self._with_level(knob, names, value)
            case ("memory", name, "bytes" | "bytes_per_s" as value) if name in {level.name for level in self.memory}:
                return self._with_level(knob, (name,), value)
            case ("overhead", "call_s" | "operator_s" as value):
                if getattr(self.overhead, value) is None and knob.how != "=":
                    raise _unknown(self.name, ".".join(knob.path))
                return self._with_overhead(knob, value)
            case ("overhead",) | ("overhead", "all"):
                return self._with_overhead(knob, *(f.name for f in fields(Overhead) if getattr(self.overhead, f.name)))
            case ("units",):
                if self.units is None and knob.how != "=":
                    raise _unknown(self.name, "units")
                return replace(self, units=max(1, round(_bounded(knob, self.units or 1))))
            case ("array", "rows" | "columns" | "count" | "clock_hz" as value):
                return self._with_array(knob, value)
        known = [*self.knobs, "memory.bytes_per_s", "memory.all.bytes_per_s", "peak"]
        hint = did_you_mean(".".join(knob.path), known)
        raise BadInput(
            f"{self.name} has no value {shorten('.'.join(knob.path))!r}; it has {', '.join(self.knobs)}{hint}"
        )

    def _with_level(self, knob: Knob, names: Sequence[str], value: str) -> Hardware:
        levels = []
        for level in self.memory:
            if level.name in names:
                old = getattr(level, value)
                if old is None and knob.how != "=":
                    raise _unknown(self.name, f"memory.{level.name}.{value}")
                new = _bounded(knob, old or 1.0)
                level = replace(level, bytes=new) if value == "bytes" else replace(level, bytes_per_s=new)
            levels.append(level)
        return replace(self, memory=tuple(levels))

    def _with_array(self, knob: Knob, value: str) -> Hardware:
        """A larger or faster array has higher peaks. Only whole rows, columns and arrays exist."""
        old = getattr(self.array, value, None)
        if self.array is None or old is None:
            raise _unknown(self.name, f"array.{value}")
        new = _bounded(knob, float(old))
        if value != "clock_hz":
            new = float(max(1, round(new)))
            if new > MOST_SIDE:
                raise BadInput(f"{knob.text} gives array.{value} = {new:g}; at most {MOST_SIDE} are possible")
        peak = {name: rate * new / old for name, rate in self.peak.items()}
        return replace(self, peak=peak, array=replace(self.array, **{value: type(old)(new)}))

    def _with_overhead(self, knob: Knob, *values: str) -> Hardware:
        changed = {value: _bounded(knob, getattr(self.overhead, value) or 1.0) for value in values}
        return replace(self, overhead=replace(self.overhead, **changed))


def _own_peak(limits: Limits, precision: str, device: str, threads: int) -> float | None:
    """The measured peak of a precision; None for one that was not probed, which then has that of f32."""
    probed = {limit["precision"] for limit in limits.lines if limit["what"] == "compute" and limit["device"] == device}
    return limits.peak(precision, device, threads) if precision in probed else None


def _unknown(name: str, value: str) -> BadInput:
    return BadInput(
        f"{name} has no {value}, so there is nothing to compare a change with; add what it has now to a file of "
        "hardware (--write-hardware mine.toml, then --hardware mine.toml)"
    )


def _bounded(knob: Knob, old: float) -> float:
    new = knob.applied(old)
    if not SMALLEST <= new <= LARGEST:
        raise BadInput(f"{knob.text} gives {new:g}; wanted a value from {SMALLEST:g} to {LARGEST:g}")
    return new


# ---- reading and writing


def _number(value: float) -> str:
    """A number of TOML, without losing digits: `6291456` for whole ones."""
    return str(int(value)) if float(value).is_integer() and value < 2**53 else repr(float(value))


def _values(part: Any, *names: str) -> list[str]:
    return [f"{name} = {_number(value)}" for name in names if (value := getattr(part, name)) is not None]


class _Reader:
    """Reads the table of a file; every method says in a sentence what is wrong."""

    def __init__(self, named: str) -> None:
        self.named = named

    def hardware(self, table: Mapping[str, Any]) -> Hardware:
        if table.get("schema") != SCHEMA:
            found = shorten(repr(table.get("schema")))
            raise BadInput(f'{self.named}: wanted schema = "{SCHEMA}" in a file of hardware, found {found}')
        # Remarks are about measured values only, and not in a file.
        known = ("schema", *(f.name for f in fields(Hardware) if f.name != "remarks"))
        refuse_unknown(map(printable, table), known, f"{self.named}: the file has no")
        array = self.array(table["array"]) if "array" in table else None
        has_clock = array is not None and array.clock_hz is not None
        needed = ("name", "origin", *["peak"] * (not has_clock), "memory")
        missing = [name for name in needed if name not in table]
        if missing:
            clock = "; with array.clock_hz it needs no peak" if missing[0] == "peak" else ""
            raise BadInput(
                f"{self.named} has no {missing[0]}; a file of hardware has name, origin, peak and memory{clock}"
            )
        origin = table["origin"]
        if origin not in get_args(Origin):
            choices = ", ".join(get_args(Origin))
            raise BadInput(f"{self.named}: origin is one of {choices}, found {shorten(repr(origin))}")
        return Hardware(
            name=self.text(table, "name"),
            origin=cast(Origin, origin),
            peak=self.peak(table["peak"]) if "peak" in table else _peak_of_array(array),
            memory=self.memory(table["memory"]),
            overhead=self.overhead(table.get("overhead", {})),
            units=self.whole(table, "units"),
            tiles=self.tiles(table.get("tiles", [])),
            array=array,
            source=self.text(table, "source") if "source" in table else "",
            threads=self.whole(table, "threads"),
            device=self.text(table, "device") if "device" in table else None,
        )

    def text(self, table: Mapping[str, Any], name: str) -> str:
        value = table[name]
        if not isinstance(value, str) or not value.strip() or len(value) > MOST_TEXT:
            raise BadInput(f"{self.named}: {name} must be a text, found {shorten(repr(value))}")
        return printable(value)

    def number(self, value: object, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not SMALLEST <= value <= LARGEST:
            raise BadInput(
                f"{self.named}: {where} must be a number above 0 in SI units, such as 9e11; "
                f"found {shorten(repr(value))}"
            )
        return float(value)

    def whole(self, table: Mapping[str, Any], name: str) -> int | None:
        value = table.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**7):
            raise BadInput(f"{self.named}: {name} must be a whole number from 1 on, found {shorten(repr(value))}")
        return value

    def table(self, value: object, where: str) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise BadInput(f"{self.named}: {where} must be a table, found {shorten(repr(value))}")
        return value

    def peak(self, value: object) -> dict[str, float]:
        table = self.table(value, "peak")
        refuse_unknown(map(printable, table), PRECISIONS, f"{self.named}: peak has no")
        if not table:
            raise BadInput(f"{self.named}: peak is empty; wanted FLOP/s by precision, such as f32 = 1.5e13")
        return {name: self.number(rate, f"peak.{name}") for name, rate in table.items()}

    def memory(self, value: object) -> tuple[MemoryLevel, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= MOST_LEVELS:
            raise BadInput(
                f"{self.named}: memory must be a list of 1 to {MOST_LEVELS} levels ([[memory]]), "
                f"found {shorten(repr(value))}"
            )
        levels = []
        for i, entry in enumerate(value, 1):
            table = self.table(entry, f"level {i} of memory")
            wrong = f"{self.named}: level {i} of memory has no"
            refuse_unknown(map(printable, table), ("name", *LEVEL_VALUES), wrong)
            name = table.get("name")
            if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (ALL, "bytes", "bytes_per_s"):
                raise BadInput(
                    f"{self.named}: level {i} of memory needs a name of letters and digits, such as L2, "
                    f"found {shorten(repr(name))}"
                )
            known = {key: self.number(table[key], f"memory.{name}.{key}") for key in LEVEL_VALUES if key in table}
            levels.append(MemoryLevel(name, *map(known.get, LEVEL_VALUES)))
        names = [level.name for level in levels]
        if len(set(names)) < len(names):
            raise BadInput(f"{self.named}: two levels of memory have the same name; wanted different names")
        if levels[-1].bytes_per_s is None:
            raise BadInput(f"{self.named}: the last level of memory is the main one; wanted its bytes_per_s")
        for inner, outer in pairwise(levels):
            if outer.gather_bytes is not None:
                raise BadInput(
                    f"{self.named}: memory.{outer.name} has gather_bytes, which only the innermost level has"
                )
            if inner.bytes is None:
                raise BadInput(f"{self.named}: memory.{inner.name} needs bytes; only the last level may lack them")
            if outer.bytes is not None and outer.bytes <= inner.bytes:
                raise BadInput(
                    f"{self.named}: levels of memory begin with the innermost, so memory.{outer.name}.bytes must be "
                    f"larger than those of {inner.name}, found {outer.bytes:g}"
                )
        return tuple(levels)

    def overhead(self, value: object) -> Overhead:
        table = self.table(value, "overhead")
        refuse_unknown(map(printable, table), [f.name for f in fields(Overhead)], f"{self.named}: overhead has no")
        return Overhead(**{name: self.number(cost, f"overhead.{name}") for name, cost in table.items()})

    def array(self, value: object) -> SystolicArray:
        table = self.table(value, "array")
        refuse_unknown(map(printable, table), ("dataflow", *ARRAY_VALUES), f"{self.named}: array has no")
        found = {name: self.side(table.get(name, 1 if name == "count" else None), name) for name in ARRAY_VALUES[:3]}
        dataflow = table.get("dataflow")
        if dataflow not in get_args(Dataflow):
            choices = "ws (weights stay in place), is (inputs) or os (outputs)"
            raise BadInput(f"{self.named}: array.dataflow is {choices}, found {shorten(repr(dataflow))}")
        clock_hz = self.number(table["clock_hz"], "array.clock_hz") if "clock_hz" in table else None
        return SystolicArray(**found, dataflow=cast(Dataflow, dataflow), clock_hz=clock_hz)

    def side(self, value: object, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_SIDE:
            raise BadInput(
                f"{self.named}: array.{name} must be a whole number from 1 to {MOST_SIDE}, found {shorten(repr(value))}"
            )
        return value

    def tiles(self, value: object) -> tuple[tuple[int, int], ...]:
        if not isinstance(value, list) or len(value) > MOST_TILES or not all(map(_is_tile, value)):
            raise BadInput(
                f"{self.named}: tiles must be a list of pairs such as [[128, 64], [64, 64]], "
                f"found {shorten(repr(value))}"
            )
        return tuple((int(rows), int(columns)) for rows, columns in value)


def _peak_of_array(array: SystolicArray | None) -> dict[str, float]:
    """Two operations per multiplier and cycle, in every precision."""
    assert array is not None, "only an array has a clock"
    assert array.clock_hz is not None, "only a clock gives a peak"
    return dict.fromkeys(PRECISIONS, array.flop_per_cycle * array.clock_hz)


def _is_tile(value: object) -> bool:
    """Whether it is a pair of whole numbers of a size that tiles have."""
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and all(type(n) is int and 1 <= n <= 2**16 for n in cast("list[object]", value))
