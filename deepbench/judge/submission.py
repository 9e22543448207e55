"""Whether a result file may stand in a round of results: what it lacks, and what it reached.

The rules are those of a round (`plan/results_rounds.py`). Each lack is a sentence with what was wanted, what was found,
and the command that mends it. What is no fault of the file, such as a library that is wrong or lacks a precision, is a
result: it is published, and listed among the findings.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from statistics import median
from typing import Any, cast

from deepbench.core import devices, units, variables
from deepbench.core.backend import Backend, all_backends, known_backend
from deepbench.core.case import parse_case
from deepbench.core.devices import SIMULATED
from deepbench.core.errors import BadInput, shorten
from deepbench.core.op import find_op, known_op
from deepbench.core.precision import PRECISIONS
from deepbench.core.shell import command
from deepbench.core.words import count, join
from deepbench.judge.totals import GRADIENTS
from deepbench.plan.results_rounds import TOOL, Mark, ResultsRound, RoundRules, RoundSuite
from deepbench.plan.suites import FIT, Entry, read_suite, split_name
from deepbench.results import completeness
from deepbench.results.completeness import named
from deepbench.results.file import GZIP, ResultFile, damage_text
from deepbench.results.record import MEASURED, Record
from deepbench.results.summary import Summary

# What `imported_from` is in files of the original's results: those of the package, and those of `deepbench import`.
ORIGINALS = ("Baidu's DeepBench", "DeepBench")

# The clocks of two machines differ by less than this.
CLOCK = timedelta(minutes=10)

# A library of ours has the version of the program.
OURS = "deepbench"

# Devices whose highest rate is measured.
WITH_PEAKS = ("cpu", "cuda", "hip")

# What nobody knows about published results.
UNKNOWN_OF_PUBLISHED = ("intervals", "what disturbed the times", "limits of the machine", "whether answers are right")

NEW = "new.jsonl"


@dataclass(frozen=True)
class Lack:
    """What a file lacks."""

    code: str
    """Stable, for programs."""
    wanted: str
    found: str
    remedy: str

    @property
    def text(self) -> str:
        """One sentence."""
        return f"wanted {self.wanted}, found {self.found}; {self.remedy}"


@dataclass(frozen=True)
class Cover:
    """How much of a suite a file has."""

    suite: RoundSuite
    kernels: int
    """How many problems it has, each direction for itself."""
    timed: Mapping[str, int]
    """By precision, of those that count for this suite: how many problems have a time."""
    missing: Mapping[str, Sequence[str]]
    """By precision: the problems without any answer."""
    unserved: Mapping[str, int]
    """By precision: problems that no library computes on this device, or only libraries that are not installed."""

    @property
    def is_there(self) -> bool:
        """Whether the file has anything of it."""
        return bool(self.timed or self.missing)

    def complete(self, least_timed: float) -> list[str]:
        """The precisions in which each problem has an answer, and enough have a time."""
        return [
            p
            for p, missing in self.missing.items()
            if not missing and self.timed[p] > 0 and self.timed[p] >= least_timed * self.kernels
        ]


@dataclass(frozen=True)
class Judged:
    """What became of a file in a round."""

    mark: Mark
    lacks: Sequence[Lack]
    covers: Sequence[Cover]
    """Of the suites of the round that the file has anything of."""
    suites: Mapping[str, Sequence[str]]
    """The suites that count, each with its precisions: complete ones; of published results all that have a time."""
    findings: Sequence[str]
    """What readers should know, and what is no reason to refuse the file."""
    widths: Sequence[float] = field(default=(), repr=False)
    """Half of each 95 % interval over its time, in ascending order."""

    @property
    def median_width(self) -> float | None:
        """That of half of the times; None without intervals."""
        return median(self.widths) if self.widths else None


def mark_of(file: ResultFile) -> Mark | None:
    """How the file came to be: measured, published by the original, or None if another program wrote its results."""
    if file.header["plan"]["mode"] != "imported":
        return "measured"
    programs = {r["notes"].get("imported_from") for r in file.records}
    return "published" if programs and programs <= set(ORIGINALS) else None


def choose_round(file: ResultFile, rounds: Iterable[ResultsRound]) -> ResultsRound:
    """The newest round whose suites the file has, and in which it was measured if there is any; `BadInput` for none."""
    mark, present = mark_of(file) or "measured", suites_of(file)
    fitting = [r for r in rounds if r.mark == mark and any(suite.name in present for suite in r.suites)]
    if not fitting:
        there = list(dict.fromkeys(s.name for r in rounds if r.mark == mark for s in r.suites))
        raise BadInput(
            f"{file.path} has no suite of a round ({', '.join(there)}); measure one: "
            f"{command('run', there[0], '-o', NEW)}"
            if there
            else f"there is no round for {mark} results"
        )
    moment = moment_of(file)
    in_time = [r for r in fitting if moment is not None and r.is_open_on(moment.date())]
    return (in_time or fitting)[0]


def suites_of(file: ResultFile) -> set[str]:
    """The names of all suites in a file, with their parameters."""
    planned = (source["suite"] for p in file.header["plan"]["cases"] for source in p["sources"])
    return {*planned, *(source["suite"] for r in file.records for source in r["sources"])}


def moment_of(file: ResultFile) -> datetime | None:
    """When the run began, in UTC; None where the file does not say it. Published files have a day alone."""
    return _moment(file.header["started"])


def _moment(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if found is None:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def judge(file: ResultFile, summaries: Sequence[Summary], chosen: ResultsRound, now: datetime) -> Judged:
    """Everything that a file lacks in a round. `summaries` are of this file, and `now` has a time zone."""
    mark = mark_of(file)
    if mark is None:
        programs = sorted({str(r["notes"].get("imported_from")) for r in file.records}) or ["another program"]
        what = "simulated or estimated" if any(_is_simulated(r) for r in file.records) else "imported"
        lack = Lack(
            "imported",
            "results of deepbench run, or of the original DeepBench",
            f"{what} results of {join(map(shorten, programs))}",
            f"measure them: {_run(file, chosen)}",
        )
        return Judged("measured", [lack], [], {}, [])
    covers = [c for suite in chosen.suites if (c := cover(file, summaries, suite)).is_there]
    lacks = [*_of_mark(file, mark, chosen), *_of_lines(file, chosen), *_of_date(file, chosen, now)]
    if mark != chosen.mark:
        return Judged(mark, lacks, covers, {}, [])
    if chosen.rules is None:
        suites = {c.suite.name: [p for p, n in c.timed.items() if n] for c in covers}
        lacks += _of_published(file, chosen, summaries, suites)
        return Judged(mark, lacks, covers, suites, [*_unversioned(file), *_failed(summaries), *_below(summaries)])
    suites = {c.suite.name: c.complete(chosen.rules.least_timed) for c in covers}
    ranked = [s for s in summaries if s.is_ranked]
    widths = completeness.half_widths(ranked)
    lacks += [
        *_of_suites(file, chosen, chosen.rules, covers, suites),
        *_of_statuses(file, chosen, summaries),
        *_of_copies(file, chosen),
        *_of_times(file, chosen, chosen.rules, ranked, widths),
        *_of_limits(file, chosen, ranked),
        *_of_libraries(file, chosen),
        *_of_variables(file, chosen),
        *_of_machine(file, chosen, chosen.rules),
    ]
    return Judged(mark, lacks, covers, suites, _findings(summaries, covers, suites), widths)


# ---- commands that mend


def _run(file: ResultFile, chosen: ResultsRound, *suites: str, precision: str | None = None) -> str:
    """The command that measures suites anew: those that are named, or those of the round that the file has."""
    present = suites_of(file)
    names = list(suites) or [s.name for s in chosen.suites if s.name in present or s.required]
    names = names or [chosen.suites[0].name]
    device = next((d for d in _devices(file) if d != "cpu"), None)
    words = [*names, *(["--precision", precision] if precision else []), *(["--device", device] if device else [])]
    return command("run", *words, "-o", NEW)


def _resume(file: ResultFile) -> str:
    """The command that continues the file."""
    path = file.path
    if path.suffix == GZIP:
        plain = path.with_suffix("")
        return f"{command('run', '--resume', '-o', plain)} (after gunzip)"
    return command("run", "--resume", "-o", path)


# ---- how the file came to be


def _is_simulated(record: Record) -> bool:
    return record["backend"] == SIMULATED or record["device"] == SIMULATED


def _of_mark(file: ResultFile, mark: Mark, chosen: ResultsRound) -> Iterator[Lack]:
    plan, machine = file.header["plan"], cast(Mapping[str, Any], file.header["machine"])
    anew = f"measure again: {_run(file, chosen)}"
    if mark != chosen.mark:
        other = "measured with deepbench run" if mark == "measured" else "published by the original DeepBench"
        yield Lack("mark", f"{chosen.mark} results in the round {chosen.name}", f"results {other}", "leave out --round")
    version = re.match(r"deepbench (\S{1,40})", file.header["tool"])
    numbers = _version(version[1]) if version else None
    if numbers is None or numbers < (_version(chosen.oldest_tool) or ()):
        yield Lack(
            "tool",
            f"a file of deepbench {chosen.oldest_tool} or newer",
            f"one of {shorten(file.header['tool'])!r}",
            anew if mark == "measured" else "import the results again: deepbench import",
        )
    if machine.get("emulated") is not None:
        yield Lack(
            "emulated",
            "times of a processor",
            f"times of a processor that a program imitates ({shorten(str(machine['emulated']))})",
            f"measure on the hardware itself: {_run(file, chosen)}",
        )
    simulated = [r["case"] for r in file.records if _is_simulated(r)]
    if simulated and mark == "measured":
        yield Lack("simulated", "measured times", f"simulated ones: {named(simulated)}", anew)
    if mark == "measured" and plan["mode"] not in ("default", "rigorous"):
        option = f"--{plan['mode']}" if plan["mode"] == "quick" else f"the mode {plan['mode']}"
        yield Lack("mode", "a run of the usual length", f"one with {option}", f"{anew}, without {option}")
    if plan.get("interleaved"):
        yield Lack("sides", "a run of its own", "one side of run --ab or --against", f"{anew}, without --ab")


def _version(text: str) -> tuple[int, ...] | None:
    found = TOOL.match(text)
    return tuple(int(n or 0) for n in found.groups()) if found else None


def _of_lines(file: ResultFile, chosen: ResultsRound) -> Iterator[Lack]:
    if file.damaged:
        wanted = "a file whose lines have their checksums"
        remedy = f"send the file as it was written, or measure again: {_run(file, chosen)}"
        yield Lack("damaged", wanted, damage_text(file.damaged), remedy)
    if file.truncated:
        found = "an incomplete last line"
        yield Lack("truncated", "a file that ends with a whole line", found, f"continue the run: {_resume(file)}")
    if "checksums" not in file.header and file.header["plan"]["mode"] != "imported":
        wanted, found = "a checksum on each line", "a file without checksums"
        yield Lack("checksums", wanted, found, f"measure again with this version: {_run(file, chosen)}")
    wrong = [r for r in file.records if r["status"] == "inconsistent"]
    if wrong:
        cases = named(list(dict.fromkeys(r["case"] for r in wrong)))
        reason = shorten(wrong[0]["reason"] or "", 200)
        found = f"{count(len(wrong), 'record')} with a contradiction ({cases}: {reason})"
        yield Lack("inconsistent", "records without contradictions", found, f"measure again: {_run(file, chosen)}")


def _of_date(file: ResultFile, chosen: ResultsRound, now: datetime) -> Iterator[Lack]:
    moment, started = moment_of(file), shorten(file.header["started"])
    anew = f"set the clock, then measure again: {_run(file, chosen)}"
    if moment is None:
        yield Lack("date", "the date of the run", f"{started!r}", anew)
        return
    if moment > now + CLOCK:
        yield Lack("future", f"a run before now, {now:%Y-%m-%d %H:%M} UTC", f"one of {started}", anew)
    elif not chosen.is_open_on(moment.date()):
        until = f" to {chosen.last_day}" if chosen.last_day else " on"
        wanted = f"a run from {chosen.first_day}{until}, as the round {chosen.name} has it"
        remedy = f"choose another round (deepbench submit --rounds), or measure again: {_run(file, chosen)}"
        yield Lack("dates", wanted, f"one of {moment.date()}", remedy)
    if file.header["plan"]["mode"] == "imported":
        return
    starts = [m for r in file.records if r["process"] and (m := _moment(r["process"].get("started"))) is not None]
    odd = [m for m in starts if m < moment - CLOCK or m > now + CLOCK]
    if odd:
        found = f"one of {odd[0]:%Y-%m-%d %H:%M} UTC"
        yield Lack("clock", f"processes that began after the run, {started}, and before now", found, anew)


# ---- published results


def _of_published(
    file: ResultFile, chosen: ResultsRound, summaries: Sequence[Summary], suites: Mapping[str, Sequence[str]]
) -> Iterator[Lack]:
    machine = cast(Mapping[str, Any], file.header["machine"])
    again = "import the results again with"
    if not (machine.get("name") or machine.get("cpu")):
        yield Lack(
            "machine", "the name of the machine", "none", f"{again} --machine: deepbench import TEXT --machine NAME"
        )
    libraries = {(r["library"]["name"], r["library"]["version"]) for r in file.records if r["library"] is not None}
    if not any(version for _, version in libraries) or "unknown" in {name for name, _ in libraries}:
        found = "none" if not libraries else "an unknown library" if ("unknown", None) in libraries else "no version"
        remedy = f"{again} --library: deepbench import TEXT --library 'cuDNN 7.6'"
        yield Lack("versions", "the library and its version", found, remedy)
    if not any(suites.values()):
        names = ", ".join(s.name for s in chosen.suites)
        found = "no such problem with a time" if summaries else "no result"
        yield Lack("suites", f"a problem of {names}", found, "import the output of the original's programs")


# ---- suites


@cache
def _kernels(suite: str) -> dict[tuple[str, int, str], Entry]:
    """The problems of a suite that count: by operation, row and direction.

    Groups do not count, because how many ranks there are depends on the machine; nor do gradients that training does
    not need.
    """
    found: dict[tuple[str, int, str], Entry] = {}
    for entry in read_suite(suite):
        op, source = find_op(entry.pattern.op), entry.source
        if source is not None and source.get("needed", True) and not op.is_group:
            found[op.name, source["row"], entry.pattern.direction or "forward"] = entry
    return found


def cover(file: ResultFile, summaries: Sequence[Summary], suite: RoundSuite) -> Cover:
    """How much of a suite the cases of a file answer. A case counts if it has the problem of the row that it names."""
    wanted = _kernels(suite.name)
    answers: dict[tuple[str, int], dict[tuple[str, int, str], bool]] = {}
    for s in summaries:
        record = s.record
        for source in record["sources"]:
            if source["suite"] == suite.name and record["precision"] in suite.precisions:
                known = answers.setdefault((record["precision"], record["threads"]), {})
                for direction in _stands_for(record["direction"]):
                    key = record["op"], source["row"], direction
                    if key in wanted and serves(s, wanted[key]):
                        known[key] = known.get(key, False) or s.is_ranked
    for precision, threads, key in _open_keys(file, summaries, suite):
        answers.setdefault((precision, threads), {}).setdefault(key, False)  # that they are open is said elsewhere
    timed: dict[str, int] = {}
    missing: dict[str, list[str]] = {}
    unserved: dict[str, int] = {}
    candidates = _candidates(file)
    for (precision, _), known in sorted(answers.items(), key=lambda item: sum(item[1].values())):  # the best is last
        open_keys = [key for key in wanted if not _is_answered(key, known)]
        not_served = [key for key in open_keys if not _serve(candidates, key, precision)]
        missing[precision] = [_kernel_text(key, wanted[key]) for key in open_keys if key not in not_served]
        timed[precision], unserved[precision] = sum(_is_answered(k, known, True) for k in wanted), len(not_served)
    return Cover(suite, len(wanted), timed, missing, unserved)


def _open_keys(
    file: ResultFile, summaries: Sequence[Summary], suite: RoundSuite
) -> Iterator[tuple[str, int, tuple[str, int, str]]]:
    """Precision, threads and problem of the cases that are planned and not measured."""
    done = {s.record["case"] for s in summaries}
    for planned in file.header["plan"]["cases"]:
        rows = [source["row"] for source in planned["sources"] if source["suite"] == suite.name]
        if rows and planned["case"] not in done:
            with contextlib.suppress(BadInput):
                case = parse_case(planned["case"])
                for row, direction in itertools.product(rows, _stands_for(case.direction)):
                    if case.precision.name in suite.precisions:
                        yield case.precision.name, case.threads, (case.op, row, direction)


def _stands_for(direction: str) -> tuple[str, ...]:
    return (direction, *GRADIENTS) if direction == "backward" else (direction,)


def _is_answered(key: tuple[str, int, str], known: Mapping[tuple[str, int, str], bool], timed: bool = False) -> bool:
    """Whether a problem has an answer, or a time. Two calls for the gradients stand for one of both."""
    op, row, direction = key
    parts = [(op, row, d) for d in GRADIENTS] if direction == "backward" and key not in known else [key]
    return all(part in known and (known[part] or not timed) for part in parts)


def _kernel_text(key: tuple[str, int, str], entry: Entry) -> str:
    op, row, direction = key
    return f"row {row}, {op} {entry.pattern.problem.text} {direction}"


def serves(s: Summary, entry: Entry) -> bool:
    """Whether a case is the problem of a line of a suite, with the settings of that line and no others."""
    record = s.record
    words = record["case"].split()
    if [w for w in words if w.partition("=")[0] in record["problem"]] != entry.pattern.problem.text.split():
        return False
    chosen = dict(word.split("=", 1) for word in s.settings_words(variants=False))
    stated = entry.stated
    if any(name not in stated for name in chosen):
        return False
    differing = [name for name, value in stated.items() if record["settings"].get(name) != value]
    if not differing:
        return True
    try:
        case = parse_case(record["case"])
    except BadInput:
        return False
    return set(differing) <= set(case.operation.unused_settings(case.problem, case.direction, case.precision))


def _devices(file: ResultFile) -> list[str]:
    return list(dict.fromkeys(devices.base(r["device"]) for r in file.records)) or ["cpu"]


def _candidates(file: ResultFile) -> list[Backend]:
    """The libraries for the devices of a file that it does not call missing."""
    answers, used = file.header["libraries"], _devices(file)
    return [
        backend
        for name, backend in all_backends().items()
        if "unavailable" not in answers.get(name, {}) and any(map(backend.is_default_on, used))
    ]


def _serve(backends: Iterable[Backend], key: tuple[str, int, str], precision: str) -> bool:
    """Whether one of these libraries computes a problem."""
    op, _, direction = key
    ways = (direction, "backward") if direction in GRADIENTS else (direction,)
    return any(backend.supports(op, precision, way) for backend in backends for way in ways)


def _of_suites(
    file: ResultFile,
    chosen: ResultsRound,
    rules: RoundRules,
    covers: Sequence[Cover],
    complete: Mapping[str, Sequence[str]],
) -> Iterator[Lack]:
    present = {c.suite.name: c for c in covers}
    for suite in chosen.suites:
        found = present.get(suite.name)
        if found is None:
            if suite.name in suites_of(file):
                yield _below_minimum(file, chosen, suite)
            elif suite.required:
                remedy = f"measure it too: {_run(file, chosen, *_names(file, chosen), suite.name)}"
                fitted = [n for n in suites_of(file) if _is_fitted(n, suite.name)]
                what = f"{shorten(fitted[0])}, whose problems --fit made smaller" if fitted else "nothing of it"
                yield Lack("suites", f"the suite {suite.name}, which the round {chosen.name} requires", what, remedy)
        elif not complete[suite.name]:
            yield _incomplete(file, chosen, rules, found)
    if not covers and not any(s.required for s in chosen.suites):
        names = join((s.name for s in chosen.suites), "or")
        remedy = f"measure one: {_run(file, chosen, chosen.suites[0].name)}"
        yield Lack("suites", f"a suite of the round {chosen.name}: {names}", "none", remedy)


def _names(file: ResultFile, chosen: ResultsRound) -> list[str]:
    present = suites_of(file)
    return [s.name for s in chosen.suites if s.name in present]


def _is_fitted(name: str, suite: str) -> bool:
    try:
        base, parameters = split_name(name)
    except BadInput:
        return False
    return FIT in parameters and base == split_name(suite)[0]


def _below_minimum(file: ResultFile, chosen: ResultsRound, suite: RoundSuite) -> Lack:
    listed = [r["precision"] for r in file.records if any(s["suite"] == suite.name for s in r["sources"])]
    found = join(dict.fromkeys(map(shorten, listed))) or "no result"
    wanted = f"{suite.name} in one of {', '.join(suite.precisions)}, which meet the minimum precision"
    remedy = f"measure it: {_run(file, chosen, suite.name, precision=suite.precisions[0])}"
    return Lack("precision", wanted, found, remedy)


def _incomplete(file: ResultFile, chosen: ResultsRound, rules: RoundRules, found: Cover) -> Lack:
    name = found.suite.name
    precision = min(found.missing, key=lambda p: (len(found.missing[p]), -found.timed[p]))
    missing = found.missing[precision]
    anew = _run(file, chosen, *_names(file, chosen), precision=precision)
    if missing:
        lacks = f"{len(missing):,} of {found.kernels:,} without a result in {precision}: {named(list(missing))}"
        wanted = f"each problem of {name} in one precision"
        return Lack("problems", wanted, lacks, f"measure all of it: {anew}")
    wanted = f"a time for at least {units.percent(rules.least_timed)} of the problems of {name}"
    lacks = f"{found.timed[precision]:,} of {found.kernels:,} in {precision}"
    return Lack("untimed", wanted, lacks, f"install what is missing (deepbench info --verbose), then: {anew}")


# ---- statuses


def _of_statuses(file: ResultFile, chosen: ResultsRound, summaries: Sequence[Summary]) -> Iterator[Lack]:
    done = {s.record["case"] for s in summaries}
    planned = dict.fromkeys(file.order)
    missing = [text for text in planned if text not in done]
    if missing:
        found = f"{len(missing):,} of {len(planned):,} that are not measured: {named(missing)}"
        yield Lack("cases", "a result for each planned case", found, f"continue: {_resume(file)}")
    if unplanned := [text for text in done if text not in planned]:
        found = f"{len(unplanned):,} that are not planned: {named(unplanned)}"
        yield Lack("unplanned", "records of planned cases alone", found, f"measure again: {_run(file, chosen)}")
    again = [s for s in summaries if not _is_result(file, s)]
    for status in dict.fromkeys(s.status for s in again):
        cases = [s for s in again if s.status == status]
        reason = shorten(cases[0].record["reason"] or "no reason", 200)
        found = f"{len(cases):,} with the status {status} ({named([s.record['case'] for s in cases])}: {reason})"
        yield Lack("status", _WANTED_OF_STATUS[status], found, f"{_MENDED[status]}: {_run(file, chosen)}")


_WANTED_OF_STATUS = {
    "wrong": "wrong answers that a failed check shows",
    "timeout": "cases that end in time",
    "out_of_memory": "cases that fit into memory, or that need more than the machine has",
}
_MENDED = {
    "wrong": "measure again on a quiet machine, so that the clock and the peak are right",
    "timeout": "measure again with a longer --timeout",
    "out_of_memory": "free memory, then measure again",
}
_REASONED = ("unchecked", "unsupported", "unavailable", "crashed")
_WANTED_OF_STATUS |= {status: f"a reason for each case that is {status}" for status in _REASONED}
_MENDED |= dict.fromkeys(_REASONED, "measure again")


def _is_result(file: ResultFile, s: Summary) -> bool:
    """Whether the status of a case is a result that can be published, with the evidence that this needs.

    A library that lacks a case, is not installed, crashes, or fails a check is one: it would be so again. A case that
    timed out or found no memory may end otherwise on the same machine.
    """
    record = s.record
    if s.status == "wrong":
        checks = [c for r in s.rounds for c in (r["check"]["before"], r["check"]["after"]) if c is not None]
        return any(not c["passed"] for c in checks)
    if s.status == "out_of_memory":
        memory = _memory_bytes(file, record)
        return memory is not None and record["traffic_bytes"] > memory
    if s.status in _REASONED:
        return bool((record["reason"] or "").strip())
    return s.status not in ("timeout",)


def _memory_bytes(file: ResultFile, record: Record) -> int | None:
    """Of the machine or of the device that a case runs on."""
    facts: Any = file.header["machine"] if record["device"] == "cpu" else {}
    library = file.header["libraries"].get(record["backend"], {}).get("library")
    if record["device"] != "cpu" and library is not None and isinstance(library.get("card"), dict):
        facts = library["card"]
    found = facts.get("memory_bytes")
    return found if isinstance(found, int) else None


def _of_copies(file: ResultFile, chosen: ResultsRound) -> Iterator[Lack]:
    """No two processes take the same samples; and a case of a suite is the problem that it is said to be."""
    seen: dict[tuple[object, ...], Record] = {}
    for record in file.records:
        if record["measurement"] is None or record["status"] == "interrupted":
            continue
        samples = tuple(record["measurement"]["samples_s"])
        keys: list[tuple[object, ...]] = [("round", record["case"], record["round"])]
        if len(samples) > 2:
            keys.append(("samples", record["case"], samples))
        if any(key in seen for key in keys):
            found = f"round {record['round']} of {shorten(record['case'], 120)} twice"
            yield Lack("copies", "each process once", found, f"measure again: {_run(file, chosen)}")
            return
        seen |= dict.fromkeys(keys, record)


# ---- times


def _of_times(
    file: ResultFile, chosen: ResultsRound, rules: RoundRules, ranked: Sequence[Summary], widths: Sequence[float]
) -> Iterator[Lack]:
    few = [s.record["case"] for s in ranked if len(s.rounds) < rules.least_processes]
    if few:
        wanted = (
            f"at least {rules.least_processes} {'process' if rules.least_processes == 1 else 'processes'} for each time"
        )
        found = f"{len(few):,} with fewer: {named(few)}"
        enough = file.header["plan"]["rounds"]["least"] >= rules.least_processes or file.header["plan"].get("budget_s")
        how = f"continue: {_resume(file)}" if enough else f"measure again with more --rounds: {_run(file, chosen)}"
        yield Lack("processes", wanted, found, how)
    disturbed = [s.record["case"] for s in ranked if s.is_disturbed]
    if len(disturbed) > rules.most_disturbed * len(ranked):
        wanted = f"at most {units.percent(rules.most_disturbed)} of the times disturbed by other programs"
        found = f"{len(disturbed):,} of {len(ranked):,}: {named(disturbed)}"
        remedy = f"stop what deepbench info --doctor names, then measure again: {_run(file, chosen)}"
        yield Lack("disturbed", wanted, found, remedy)
    certain = [width for width in widths if width <= rules.widest_half_interval]
    undisturbed = len(ranked) - len(disturbed)
    if undisturbed and len(certain) < rules.least_certain * undisturbed:
        wanted = (
            f"95 % intervals within {units.plus_minus(rules.widest_half_interval)} for "
            f"{units.percent(rules.least_certain)} of the undisturbed times"
        )
        found = f"{len(certain):,} of {undisturbed:,}"
        remedy = f"measure more processes on a quiet machine: {_run(file, chosen)} --rigorous"
        yield Lack("intervals", wanted, found, remedy)


def _of_limits(file: ResultFile, chosen: ResultsRound, ranked: Sequence[Summary]) -> Iterator[Lack]:
    wanted = "the limits of the machine, measured in the same run"
    if file.header["plan"].get("no_limits"):
        remedy = f"measure again without it: {_run(file, chosen)}"
        yield Lack("limits", wanted, "a run with --no-limits", remedy)
        return
    products = [s.record for s in ranked if s.record["op"] == "gemm" and devices.base(s.record["device"]) in WITH_PEAKS]
    needed = {(r["precision"], r["device"], r["threads"]) for r in products}
    known = {(x["precision"], x["device"], x["threads"]) for x in file.limits if x["what"] == "compute"}
    missing = [f"no highest rate in {p} on {device}" for p, device, _ in sorted(needed - known)]
    if any(s.record["device"] == "cpu" for s in ranked) and not any(x["what"] == "memory" for x in file.limits):
        missing.append("no rate of memory")
    if missing:
        yield Lack("limits", wanted, join(dict.fromkeys(missing)), f"measure again: {_run(file, chosen)}")


# ---- conditions


def _of_libraries(file: ResultFile, chosen: ResultsRound) -> Iterator[Lack]:
    versions: dict[str, dict[tuple[str, str | None], None]] = {}
    for name, answer in file.header["libraries"].items():
        if "library" in answer:
            versions.setdefault(name, {})[answer["library"]["name"], answer["library"]["version"]] = None
    used = [r for r in file.records if r["status"] in MEASURED]
    for record in used:
        if (library := record["library"]) is None:
            versions.setdefault(record["backend"], {})[record["library_title"], None] = None
        else:
            versions.setdefault(record["backend"], {})[library["name"], library["version"]] = None
    backends = dict.fromkeys(r["backend"] for r in used)
    unnamed = [name for name in backends if any(not v and not _is_ours(n) for n, v in versions[name])]
    if unnamed:
        remedy = f"install a release that says it, then measure again: {_run(file, chosen)}"
        yield Lack("versions", "the version of each library", f"none of {join(map(shorten, unnamed))}", remedy)
    mixed = next((name for name in backends if len(versions[name]) > 1 and name not in unnamed), None)
    if mixed is not None:
        found = join(shorten(f"{n} {v}") for n, v in versions[mixed])
        remedy = f"measure again with one version: {_run(file, chosen)}"
        yield Lack("mixed", f"one version of {shorten(mixed)}", found, remedy)


def _is_ours(name: str) -> bool:
    return name.startswith(OURS)


def _of_variables(file: ResultFile, chosen: ResultsRound) -> Iterator[Lack]:
    """Variables that change libraries are allowed if the file has their values, which are always the same."""
    environments = [
        r["process"].get("environment") for r in file.records if r["status"] in MEASURED and r["process"] is not None
    ]
    wanted = "the environment variables that change libraries, with their values"
    if unknown := sum(not isinstance(e, dict) for e in environments):
        found = f"{unknown:,} of {len(environments):,} processes without them"
        yield Lack("variables", wanted, found, f"measure again with this version: {_run(file, chosen)}")
    known = file.chosen_variables
    hidden = [name for name, value in known.items() if not variables.is_whole(value)]
    if hidden:
        how = f"unset {' '.join(map(shorten, hidden))}" if all(map(_is_word, hidden)) else "unset them"
        found = f"no value of {join(map(shorten, hidden))}"
        yield Lack("variables", wanted, found, f"{how}, then measure again: {_run(file, chosen)}")
    values: dict[str, set[str]] = {}
    # Records share equal environments, so there are few.
    for environment in {id(e): e for e in environments if isinstance(e, dict)}.values():
        given = variables.chosen({n: v for n, v in environment.items() if isinstance(v, str)})
        for name in known:
            values.setdefault(name, set()).add(given.get(name, "(unset)"))
    if changing := [name for name, found in values.items() if len(found) > 1 and name not in hidden]:
        found = f"several of {join(map(shorten, changing))}"
        remedy = f"measure again with one: {_run(file, chosen)}"
        yield Lack("variables", "one value of each environment variable", found, remedy)


def _is_word(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_]\w{0,99}", name) is not None


def _of_machine(file: ResultFile, chosen: ResultsRound, rules: RoundRules) -> Iterator[Lack]:
    machine = cast(Mapping[str, Any], file.header["machine"])
    if missing := completeness.unknown_facts(machine):
        found = f"none of {join(missing)}"
        remedy = f"measure where the system tells them (deepbench info): {_run(file, chosen)}"
        yield Lack("machine", "the facts of the machine", found, remedy)
    load = completeness.load_per_core(machine)
    if load is not None and load > rules.most_load_per_core:
        wanted = f"at most {rules.most_load_per_core:g} waiting programs per core when the run began"
        remedy = f"stop other programs, then measure again: {_run(file, chosen)}"
        yield Lack("load", wanted, f"{load:.2f}", remedy)


# ---- findings


def _findings(summaries: Sequence[Summary], covers: Sequence[Cover], suites: Mapping[str, Sequence[str]]) -> list[str]:
    found = _failed(summaries)
    if unchecked := sum(s.status == "unchecked" for s in summaries):
        found.append(f"{count(unchecked, 'case')}: unchecked")
    for c in covers:
        for precision in suites.get(c.suite.name, ()):
            if n := c.unserved[precision]:
                found.append(f"{c.suite.name} in {precision}: no library here computes {count(n, 'problem')}")
    found += _below(summaries)
    plugins = {s.record["op"] for s in summaries if known_op(s.record["op"]) is None}
    plugins |= {s.record["backend"] for s in summaries if known_backend(s.record["backend"]) is None}
    if plugins:
        found.append(f"operations and libraries of plug-ins: {', '.join(sorted(map(shorten, plugins)))}")
    return found


def _failed(summaries: Sequence[Summary]) -> list[str]:
    statuses = Counter(s.status for s in summaries if s.status not in MEASURED)
    return [f"{count(n, 'case')}: {status}" for status, n in statuses.items()]


def _unversioned(file: ResultFile) -> list[str]:
    libraries = [r["library"] for r in file.records if r["library"] is not None]
    names = sorted({shorten(library["name"]) for library in libraries if not library["version"]})
    return [f"no version is known of {', '.join(names)}"] if names else []


def _below(summaries: Sequence[Summary]) -> list[str]:
    used = {s.record["precision"] for s in summaries}
    below = [p.name for p in PRECISIONS.values() if p.name in used and p.below_minimum(is_training=False)]
    return [f"below the minimum precision, so it does not count: {', '.join(below)}"] if below else []
