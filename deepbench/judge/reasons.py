"""Why may a case be faster or slower? What was recorded about both sides of a comparison, and differs.

A value that one side did not record is no difference. A recorded difference may explain a ratio, but does not prove
that it does. What differs for all cases, or for all cases of a library, is separated from what is particular to a case.

The same is asked about one host among many: what sets it apart is what it has and no other host has (`Hosts`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from statistics import median
from typing import Any

from deepbench.core import units
from deepbench.core.errors import shorten
from deepbench.core.stats import OTHER_LOAD
from deepbench.core.variables import is_tuning, thread_variables
from deepbench.results.file import ResultFile
from deepbench.results.record import Header, Record
from deepbench.results.summary import Summary

# Facts about a machine that may explain any ratio, and their names for people. Others have texts of their own.
MACHINE = {
    **{"cpu": "CPU", "host": "host", "kernel": "kernel", "cpu_quota": "CPU quota", "governor": "governor"},
    **{"turbo_off": "turbo off", "huge_pages": "huge pages", "libc": "libc", "python": "Python"},
    # Of files of other programs.
    **{"timer": "timer", "program": "version", "cpu_config": "CPU settings", "aslr": "ASLR", "compiler": "compiler"},
    **{"ecc": "ECC", "driver": "driver", "device_clock": "default clock"},
}

# A clock that differs by less does not explain a verdict.
CLOCK_MARGIN = 0.02

# A name for "no value" where this is a fact and not a gap.
NOT_SET, NOT_CONVERTED, NONE = "not set", "not converted", "none"

# Facts about a machine that are told of hosts only: two files of one machine do not differ in them.
OF_HOSTS = {"system": "system", "cores_allowed": "cores", "numa_nodes": "NUMA nodes"}

# Readings of a run, their units, and by how much they must lie outside those of all other hosts: a number, or a share.
# The first is of the host, the others are sensors of an accelerator.
OTHER_CPUS = "other_cpus"
READINGS = {
    OTHER_CPUS: ("CPUs that other programs used", "", OTHER_LOAD, 0.0),
    "clock_mhz": ("clock", " MHz", 0.0, CLOCK_MARGIN),
    "memory_clock_mhz": ("memory clock", " MHz", 0.0, CLOCK_MARGIN),
    "celsius": ("temperature", " °C", 5.0, 0.0),
    "watts": ("power", " W", 0.0, 0.1),
    "other_processes": ("other processes on the GPU", "", 0.5, 0.0),
}

# A file may name any number of cases and variables: so many facts of hosts are looked at, and no more.
MOST_FACTS, MOST_VARIABLES = 2000, 200

COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Reason:
    """Something that differs between the sides."""

    what: str
    """For example `implementation`, `version`, or the name of an environment variable."""
    first: str
    second: str
    library: str | None = None
    """The library that it is about."""

    @property
    def change(self) -> str:
        """Without the library: `version 3.5 → 3.6`."""
        return f"{self.what} {self.first} → {self.second}"

    @property
    def text(self) -> str:
        """`oneDNN 3.5 → 3.6`, `implementation: brg:avx512_core → brg:avx512_core_amx`."""
        if self.library is None:
            return f"{self.what}: {self.first} → {self.second}"
        return f"{self.library} {self.change.removeprefix('version ')}"


@dataclass(frozen=True)
class Reasons:
    """What differs between two files."""

    of_all: list[Reason]
    """For all cases: the machine, or what a run compares."""
    of_library: dict[str, list[Reason]]
    """For all cases of a library, by its title."""
    of_case: dict[str, list[Reason]]
    """What is particular to a case, by its text."""

    def of(self, case: str, library: str) -> list[Reason]:
        """What may explain the ratio of a case: what is particular to it, or else what it shares with others."""
        return self.of_case.get(case) or [*self.of_library.get(library, []), *self.of_all]


def reasons(a: ResultFile, b: ResultFile, pairs: Sequence[tuple[Summary, Summary]]) -> Reasons:
    """What differs between two files for these cases, each with its summaries on both sides."""
    shareable: dict[str, list[Reason]] = {}
    of_case: dict[str, list[Reason]] = {}
    by_library: dict[str, list[str]] = {}
    for of_a, of_b in pairs:
        case = of_a.record["case"]
        shareable[case] = list(_of_process(of_a, of_b))
        of_case[case] = list(_of_kernel(of_a.rounds, of_b.rounds))
        by_library.setdefault(library_title(of_a, of_b), []).append(case)

    of_all = [r for r in _shared(list(shareable.values())) if r.library is None]
    of_library = {}
    for title, cases in sorted(by_library.items()):
        # The implementation of a single case is a fact about that case, not about its library.
        every = [[*shareable[case], *(of_case[case] if len(cases) > 1 else [])] for case in cases]
        of_library[title] = [r for r in _shared(every) if r not in of_all]
        shared = {*of_all, *of_library[title]}
        for case in cases:
            of_case[case] = [r for r in [*of_case[case], *shareable[case]] if r not in shared]
    return Reasons([*of_all, *_of_machine(a, b)], of_library, of_case)


def _shared(every: Sequence[list[Reason]]) -> list[Reason]:
    """Those that occur in every list."""
    return [r for r in every[0] if all(r in others for others in every[1:])] if every else []


def library_title(a: Summary, b: Summary) -> str:
    """The library of a case, or both where the sides differ in it."""
    return ", ".join(dict.fromkeys((a.record["library_title"], b.record["library_title"])))


def _differs(what: str, first: Iterable[str | None], second: Iterable[str | None]) -> Iterator[Reason]:
    """A reason if both sides have values and these differ; a side with several names all of them."""
    texts = [sorted({value for value in values if value is not None}) for values in (first, second)]
    if all(texts) and texts[0] != texts[1]:
        yield Reason(what, *map(" or ".join, texts))


# ---- of a case


def _of_kernel(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Reason]:
    """What the library reports about the kernel of a case, and the clock that it ran at."""
    for name in ("implementation", "algorithm", "sums", "threads_used"):
        yield from _differs(name.replace("_", " "), *([_text(r["notes"].get(name)) for r in s] for s in (a, b)))
    yield from _of_conversions(a, b)
    yield from _of_clock(a, b)
    yield from _differs("clock limited by", map(_clock_limits, a), map(_clock_limits, b))


def _of_conversions(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Reason]:
    """Arrays that the library converts to layouts of its own; a record without `converted_bytes` does not say."""
    sides = [[r["notes"] for r in rounds if isinstance(r["notes"].get("converted_bytes"), int)] for rounds in (a, b)]
    formats = [[_dict(notes.get("formats")) for notes in side] for side in sides]
    names = sorted({name for side in formats for of_round in side for name in of_round})
    for name in names:
        texts = [[_text(of_round.get(name)) or NOT_CONVERTED for of_round in side] for side in formats]
        yield from _differs(f"layout of {name}", *texts)
    if not names:
        sizes = ([units.data_bytes(n["converted_bytes"]) if n["converted_bytes"] else NONE for n in s] for s in sides)
        yield from _differs("layout conversions", *sizes)


def _of_clock(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Reason]:
    """The median clock of an accelerator."""
    mhz = [[v for r in rounds for v in _sensor(r, "clock_mhz") if isinstance(v, int | float)] for rounds in (a, b)]
    if all(mhz) and (of_a := median(mhz[0])) > 0 and abs(median(mhz[1]) / of_a - 1) > CLOCK_MARGIN:
        yield Reason("clock", *(f"{median(values):.0f} MHz" for values in mhz))


def _clock_limits(record: Record) -> str | None:
    """The driver's reasons for a lower clock; None if it reports none of them, not even that there are none."""
    lists = [v for v in _sensor(record, "limited_by") if isinstance(v, list)]
    return ", ".join(sorted({str(v) for values in lists for v in values})) or NONE if lists else None


def _sensor(record: Record, name: str) -> list[object]:
    device = _dict(record["measurement"]).get("device")
    if not device:
        return []
    readings = [device["during"]] if device.get("during") else [device["before"], device["after"]]
    return [r.get(name) for r in readings if r]


# ---- of the processes of a case


def _of_process(a: Summary, b: Summary) -> Iterator[Reason]:
    """The library, the threads, the settings, and what surrounds the kernel in its process."""
    if a.record["backend"] == b.record["backend"]:
        yield from _of_library(a, b)
    else:
        yield from _differs("library", *([_library_text(r) for r in s.rounds] for s in (a, b)))
    yield from _differs("threads", *([str(s.record["threads"])] for s in (a, b)))
    for name in a.record["settings"]:
        yield from _differs(name, *([_text(s.record["settings"].get(name))] for s in (a, b)))
    yield from _of_environment(a.rounds, b.rounds)
    yield from _differs("OpenMP runtime", *(map(_openmp, s.rounds) for s in (a, b)))
    yield from _differs(
        "measuring loop", *([_text(_dict(r["measurement"]).get("loop")) for r in s.rounds] for s in (a, b))
    )
    yield from _differs("launcher", *([r["group"]["launcher"] for r in s.rounds if r["group"]] for s in (a, b)))


def _of_library(a: Summary, b: Summary) -> Iterator[Reason]:
    """Its version; else its build, or else the file that it was loaded from."""
    title = a.record["library_title"]

    def differs(name: str) -> list[Reason]:
        values = ([_text(_dict(r["library"]).get(name)) for r in s.rounds] for s in (a, b))
        what = {"cpu_kernels": "CPU kernels", "path": "file"}.get(name, name)
        shortened = _changed_folders if name == "path" else _changed_words
        return [Reason(what, *shortened(r.first, r.second), title) for r in _differs(what, *values)]

    yield from differs("version") or differs("build") or differs("path")
    yield from [*differs("cpu_kernels"), *differs("threading")]
    for name in ("name", "driver", "runtime"):
        values = ([_text(card.get(name)) for card in map(_card, s.rounds)] for s in (a, b))
        yield from _differs("GPU" if name == "name" else f"GPU {name}", *values)


def _card(record: Record) -> Mapping[str, Any]:
    return _dict(_dict(record["library"]).get("card"))


def _library_text(record: Record) -> str:
    version = _dict(record["library"]).get("version")
    return f"{record['library_title']} {version}" if version else record["library_title"]


def _changed_words(first: str, second: str) -> tuple[str, str]:
    """Two descriptions without the words that both begin and end with; a commit has 12 digits, as Git shows it."""
    a, b = first.split(), second.split()
    while min(len(a), len(b)) > 1 and a[0] == b[0]:
        a, b = a[1:], b[1:]
    while min(len(a), len(b)) > 1 and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    short = [" ".join(word[:12] if COMMIT.fullmatch(word) else word for word in words) for words in (a, b)]
    return (short[0], short[1]) if short[0] != short[1] else (first, second)


def _changed_folders(first: str, second: str) -> tuple[str, str]:
    """Two paths without the names that both end with."""
    a, b = first.split("/"), second.split("/")
    while min(len(a), len(b)) > 1 and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    ending = "" if len(a) == len(first.split("/")) else "/…"
    return f"{'/'.join(a)}{ending}", f"{'/'.join(b)}{ending}"


def _of_environment(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Reason]:
    """Variables that tune libraries. The number of threads is a fact of its own."""
    sides = [[e for r in rounds if isinstance(e := _dict(r["process"]).get("environment"), dict)] for rounds in (a, b)]
    for name in sorted({name for side in sides for environment in side for name in environment}):
        if _is_choice(name):
            yield from _differs(name, *([_text(e.get(name)) or NOT_SET for e in side] for side in sides))


def _openmp(record: Record) -> str | None:
    runtimes = _dict(record["process"]).get("openmp_runtimes")
    return " ".join(map(str, runtimes)) or NONE if isinstance(runtimes, list) else None


# ---- of the machines


def _of_machine(a: ResultFile, b: ResultFile) -> list[Reason]:
    machines: list[Mapping[str, Any]] = [f.header["machine"] for f in (a, b)]
    first, second = (machine_facts(f.header) for f in (a, b))
    of_facts = [r for name in first for r in _differs(name, [first[name]], [second[name]])]
    return [*of_facts, *_of_instructions(machines), *_of_cpus(machines)]


def machine_facts(header: Header) -> dict[str, str | None]:
    """What may explain any ratio, by the names that people read; None for what the machine did not record."""
    machine: Mapping[str, Any] = header["machine"]
    facts = {title: _text(machine.get(name)) for name, title in MACHINE.items()}
    facts["microcode"] = _text(_dict(machine.get("cpu_ids")).get("microcode"))
    facts["memory"] = units.data_bytes(size) if (size := machine.get("memory_bytes")) else None
    facts["DeepBench"] = header["tool"].removeprefix("deepbench ")
    return facts


def library_facts(record: Record) -> dict[str, str | None]:
    """The version of the library of a record, or else its build, and that of the driver of its GPU."""
    library = _dict(record["library"])
    version = _text(library.get("version")) or _text(library.get("build"))
    return {"version": version, "GPU driver": _text(_card(record).get("driver"))}


def _of_instructions(machines: Sequence[Mapping[str, Any]]) -> list[Reason]:
    a, b = (found if isinstance(found := m.get("instructions"), list) else [] for m in machines)
    if not a or not b or set(a) == set(b):
        return []
    only = [[name for name in x if name not in y] for x, y in ((a, b), (b, a))]
    return [Reason("instructions", *(f"with {' '.join(names)}" if names else "without" for names in only))]


def _of_cpus(machines: Sequence[Mapping[str, Any]]) -> Iterator[Reason]:
    a, b = (found if isinstance(found := m.get("cpus_allowed"), list) else [] for m in machines)
    texts = [str(len(cpus)) if len(a) != len(b) else _text(cpus) for cpus in (a, b)]
    return _differs("CPUs", texts[:1], texts[1:]) if a and b else iter(())


def _text(value: object) -> str | None:
    """A value of a file in words; None if it is missing, or neither a text nor a number."""
    if value is None or value == "":
        return None
    if isinstance(value, list):
        return " ".join(map(str, value)) or NONE
    return str(value) if isinstance(value, str | int | float) else None


def _dict(value: object) -> Mapping[str, Any]:
    """The facts in a part of a record; empty where the part is missing, or something else in a file of others."""
    return value if isinstance(value, dict) else {}


# ---- of one host among many


@dataclass
class HostFacts:
    """What the runs of one host recorded."""

    facts: dict[str, set[str]] = field(default_factory=dict)
    """Its values of each fact: one, unless it changed between two runs."""
    variables: dict[str, set[str]] = field(default_factory=dict)
    """The variables that tune libraries."""
    recorded_variables: bool = False
    """Whether it recorded them at all, so that a missing one is a fact."""
    readings: dict[str, list[float]] = field(default_factory=dict)
    """All values of each reading."""

    def add(self, header: Header, records: Iterable[Record]) -> None:
        """Add what one run recorded."""
        for name, value in (*machine_facts(header).items(), *_host_facts(header)):
            if value is not None and name != "host":
                self.facts.setdefault(name, set()).add(value)
        for record in records:
            for name, value in _record_facts(record):
                self.facts.setdefault(name, set()).add(value)
            environment = _dict(record["process"]).get("environment")
            if isinstance(environment, dict):
                self.recorded_variables = True
                for name, value in islice(environment.items(), MOST_VARIABLES):
                    if _is_choice(name) and (words := _text(value)):
                        self.variables.setdefault(name, set()).add(words)
            for name, number in _readings(record):
                self.readings.setdefault(name, []).append(number)


def _host_facts(header: Header) -> Iterator[tuple[str, str | None]]:
    machine: Mapping[str, Any] = header["machine"]
    for name, title in OF_HOSTS.items():
        yield title, _text(machine.get(name))
    if "cpu_quota" in machine:
        yield MACHINE["cpu_quota"], _text(machine.get("cpu_quota")) or NONE
    ids = _dict(machine.get("cpu_ids"))
    numbers = {name: _text(value) for name, value in ids.items() if name != "microcode"}
    yield "CPU model", ", ".join(f"{name} {value}" for name, value in numbers.items() if value) or None
    yield "instructions", _text(sorted(set(machine.get("instructions") or [])) or None)
    caches = machine.get("caches") or []
    yield "caches", ", ".join(f"L{cache['level']} {units.data_bytes(cache['bytes'])}" for cache in caches) or None
    for backend, answer in header["libraries"].items():
        library = answer.get("library")
        yield f"{backend} version", "missing" if library is None else _text(library["version"])
        for name, title in (("cpu_kernels", "CPU kernels"), ("threading", "threading"), ("device", "device")):
            yield f"{backend} {title}", _text(_dict(library).get(name))
        for name in ("name", "driver", "runtime"):
            yield f"{backend} GPU {name}", _text(_dict(_dict(library).get("card")).get(name))


def _record_facts(record: Record) -> Iterator[tuple[str, str]]:
    for name in ("implementation", "algorithm"):
        if (words := _text(record["notes"].get(name))) is not None:
            yield f"{name} of {record['case']}", words
    for name, found in (
        ("OpenMP runtime", _openmp(record)),
        ("measuring loop", _text(_dict(record["measurement"]).get("loop"))),
        ("clock limited by", _clock_limits(record)),
    ):
        if found is not None:
            yield name, found


def _readings(record: Record) -> Iterator[tuple[str, float]]:
    for name in READINGS:
        values = [_dict(record["measurement"]).get(name)] if name == OTHER_CPUS else _sensor(record, name)
        for value in values:
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
                yield name, float(value)


class Hosts:
    """What many hosts recorded, and what sets one apart from all others."""

    def __init__(self, hosts: Mapping[str, HostFacts]) -> None:
        self._hosts = hosts
        self._values: dict[str, dict[str, list[str]]] = {}
        for host, known in hosts.items():
            for name, values in known.facts.items():
                if name in self._values or len(self._values) < MOST_FACTS:
                    self._values.setdefault(name, {}).setdefault(_one_of(values), []).append(host)
        self._add_variables()
        self._alone: dict[str, dict[str, str]] = {}
        for name, by_value in self._values.items():
            self._add_alone(name, by_value)
        self._extremes = {name: self._extremes_of(name) for name in READINGS}

    def _add_variables(self) -> None:
        recorded = [host for host, known in self._hosts.items() if known.recorded_variables]
        names = dict.fromkeys(name for host in recorded for name in self._hosts[host].variables)
        for name in islice(names, MOST_VARIABLES):
            by_value = self._values.setdefault(name, {})
            for host in recorded:
                values = self._hosts[host].variables.get(name)
                by_value.setdefault(_one_of(values) if values else NOT_SET, []).append(host)

    def _add_alone(self, name: str, by_value: Mapping[str, list[str]]) -> None:
        """Note which hosts are the only ones with their value of a fact."""
        others, hosts = len(by_value) - 1, sum(map(len, by_value.values())) - 1
        # What differs from host to host anyway, such as a serial number, sets none of them apart.
        if others < 1 or (others > 1 and 2 * others > hosts):
            return
        first, second = sorted(by_value, key=lambda value: -len(by_value[value]))[:2]
        for own, holders in by_value.items():
            if len(holders) == 1:
                usual = second if own == first else first
                if name == "instructions":
                    words = _fewer_or_more(own, usual)
                else:
                    words = f"{shorten(own)} (elsewhere {shorten(usual)}{' and others' if others > 1 else ''})"
                self._alone.setdefault(holders[0], {})[name] = words

    def _extremes_of(self, name: str) -> list[tuple[float, float, str]]:
        """The lowest and the highest value of some hosts: those two with the lowest, and those two with the highest."""
        ranges = [(min(v), max(v), h) for h, known in self._hosts.items() if (v := known.readings.get(name))]
        return [*sorted(ranges)[:2], *sorted(ranges, key=lambda r: r[1])[-2:]]

    def differences(self) -> dict[str, dict[str, list[str]]]:
        """Facts in which hosts differ: the hosts of each value."""
        return {name: values for name, values in self._values.items() if len(values) > 1}

    def apart(self, host: str) -> dict[str, str]:
        """What this host has and no other, by the name of the fact: its value, and that of the others, in words.

        Of readings the median must lie outside all values of all other hosts.
        """
        return {**self._alone.get(host, {}), **dict(self._readings_apart(host))}

    def _readings_apart(self, host: str) -> Iterator[tuple[str, str]]:
        readings = self._hosts[host].readings if host in self._hosts else {}
        for name, (title, unit, margin, share) in READINGS.items():
            others = [(low, high) for low, high, other in self._extremes[name] if other != host]
            if not (own := readings.get(name)) or not others:
                continue
            low, high, typical = min(low for low, _ in others), max(high for _, high in others), median(own)
            if typical > high + margin + share * abs(high) or typical < low - margin - share * abs(low):
                between = _short(low) if low == high else f"{_short(low)} to {_short(high)}"
                yield title, f"{_short(typical)}{unit} (elsewhere {between}{unit})"


def _one_of(values: Iterable[str]) -> str:
    return " or ".join(sorted(values))


def _fewer_or_more(own: str, usual: str) -> str:
    """The instruction sets that a host lacks, and those that only it has."""
    a, b = set(own.split()), set(usual.split())
    parts = [("without", sorted(b - a)), ("with", sorted(a - b))]
    return " and ".join(f"{word} {shorten(' '.join(names))}" for word, names in parts if names)


def _short(value: float) -> str:
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


@lru_cache(maxsize=2**12)
def _is_choice(variable: str) -> bool:
    """Whether a variable tunes a library; the number of threads is a fact of its own."""
    return is_tuning(variable) and variable not in thread_variables()
