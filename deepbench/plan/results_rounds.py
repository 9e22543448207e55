"""Rounds of results: which suites count in a year, and by which rules, so that results of one round compare.

A round is a TOML file in `suites/rounds/`, or one of a results repository of its own. It is data: a strict reader knows
every name, and refuses all others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from deepbench.core.aliases import refuse_unknown
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.core.precision import PRECISIONS, find_precision
from deepbench.core.toml import parse_toml
from deepbench.plan.suites import is_suite, is_training_suite, read_suite, split_name, text_of
from deepbench.results.record import SCHEMA

FOLDER = Path(__file__).parents[1] / "suites" / "rounds"

MOST_BYTES, MOST_SUITES = 64 * 2**10, 100

# A name is also that of a folder.
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
TOOL = re.compile(r"([0-9]{1,5})\.([0-9]{1,5})(?:\.([0-9]{1,5}))?")

Mark = Literal["measured", "published"]
MARKS: tuple[Mark, ...] = get_args(Mark)


@dataclass(frozen=True)
class RoundSuite:
    """A suite of a round."""

    name: str
    """As result files have it, with the phase and the parameters of a model that are not at their default."""
    required: bool
    """Whether each file of the round must have it. All others may be absent; one that is there must be complete."""
    precisions: tuple[str, ...]
    """Those that count: all meet DeepBench's minimum for the suite."""


@dataclass(frozen=True)
class RoundRules:
    """What a measured file must fulfil. Shares are from 0 to 1."""

    least_processes: int
    """Of each case that has a time."""
    widest_half_interval: float
    """Half of a 95 % interval over its time: no wider than this share in `least_certain` of the times."""
    least_certain: float
    most_disturbed: float
    """The largest share of times that other programs disturbed."""
    most_load_per_core: float
    """Programs that waited for a core when the run began, over the number of cores."""
    least_timed: float
    """Of the problems of a suite, the least share that has a time; the others have a reason."""


@dataclass(frozen=True)
class ResultsRound:
    """A round: results of the same round are ranked together."""

    name: str
    year: int
    mark: Mark
    """`measured` with DeepBench, or `published` by the original."""
    first_day: date
    last_day: date | None
    """Of the measurements, in UTC; None: no end."""
    schema: str
    oldest_tool: str
    """The oldest version of DeepBench that may have written the file."""
    suites: tuple[RoundSuite, ...]
    rules: RoundRules | None
    """None in rounds of published results."""

    def is_open_on(self, day: date) -> bool:
        """Whether measurements of this day belong to it."""
        return self.first_day <= day and (self.last_day is None or day <= self.last_day)


def known_rounds() -> list[ResultsRound]:
    """The rounds of the package, the newest first."""
    found = [_of_package(path) for path in FOLDER.glob("*.toml")]
    return sorted(found, key=lambda r: (r.year, r.name), reverse=True)


@cache
def _of_package(path: Path) -> ResultsRound:
    return read_round(path)


def find_round(name: str | Path) -> ResultsRound:
    """The round of this name, or that of a TOML file; `BadInput` if there is none."""
    return read_round(Path(name)) if str(name).endswith(".toml") else known_round(str(name))


def known_round(name: str) -> ResultsRound:
    """The round of the package with this name, which may come from anyone: it is never taken for a path."""
    known = {found.name: found for found in known_rounds()}
    refuse_unknown([name], known, "there is no round", "there are")
    return known[name]


def read_round(path: Path) -> ResultsRound:
    """The round that a TOML file describes; `BadInput` in one sentence for anything else."""
    named = shorten(printable(str(path)), 200)
    text = text_of(path, "a round of results", MOST_BYTES)
    try:
        return _round(parse_toml(text, named))
    except BadInput as error:
        reason = str(error)
        raise BadInput(reason if reason.startswith(named) else f"{named}: {reason}") from None


def _round(table: Mapping[str, Any]) -> ResultsRound:
    mark = _text(table, "mark")
    if mark not in MARKS:
        raise BadInput(f"mark must be {' or '.join(MARKS)}, found {shorten(mark)!r}")
    names = [f.name for f in fields(ResultsRound) if f.name != "rules" or mark == "measured"]
    _require_names(table, names, "a round", optional=("last_day",))
    name, first, last = _text(table, "name"), _day(table, "first_day"), table.get("last_day")
    if not NAME.fullmatch(name):
        raise BadInput(f"name must have small letters, digits and dashes, found {shorten(printable(name))!r}")
    until = None if last is None else _day(table, "last_day")
    if until is not None and until < first:
        raise BadInput(f"last_day must not be before first_day, {first}; found {until}")
    if _text(table, "schema") != SCHEMA:
        raise BadInput(f"schema must be {SCHEMA}, which this version reads, found {shorten(table['schema'])!r}")
    if not TOOL.fullmatch(_text(table, "oldest_tool")):
        raise BadInput(f"oldest_tool must be a version such as 0.1.0, found {shorten(table['oldest_tool'])!r}")
    return ResultsRound(
        name,
        _whole(table, "year", 2000, 9999),
        mark,
        first,
        until,
        SCHEMA,
        table["oldest_tool"],
        _suites(table["suites"]),
        _rules(table["rules"]) if mark == "measured" else None,
    )


def _suites(listed: Any) -> tuple[RoundSuite, ...]:
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_SUITES:
        raise BadInput(f"suites must be 1 to {MOST_SUITES} tables")
    found = tuple(map(_suite, listed))
    names = [suite.name for suite in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"the suite {twice} is listed twice")
    return found


def _suite(table: Any) -> RoundSuite:
    if not isinstance(table, dict):
        raise BadInput("each of suites must be a table")
    _require_names(table, ("name", "required", "precisions"), "a suite of a round", optional=("precisions",))
    typed, required = _text(table, "name"), table["required"]
    if not is_suite(typed):
        raise BadInput(f"{shorten(printable(typed))!r} is no suite of this version; deepbench list --suites names all")
    if not isinstance(required, bool):
        raise BadInput(f"required must be true or false, found {shorten(str(required))!r}")
    name = canonical(typed)
    trains = is_training_suite(name)
    allowed = tuple(p.name for p in PRECISIONS.values() if p.below_minimum(trains) is None)
    listed = table.get("precisions", list(allowed))
    if not isinstance(listed, list) or not listed or not all(isinstance(word, str) for word in listed):
        raise BadInput("precisions must be a list of names such as f32")
    for word in listed:
        if (why := find_precision(word).below_minimum(trains)) is not None:
            raise BadInput(f"{word} {why}, which is below the minimum precision of {name}; leave it out")
    return RoundSuite(name, required, tuple(dict.fromkeys(listed)))


def canonical(suite: str) -> str:
    """The name of a suite as the cases of a run have it: `mlperf/gnmt` is `mlperf/gnmt:phase=train`."""
    names = dict.fromkeys(e.source["suite"] for e in read_suite(suite) if e.source is not None)
    others = [name for name in names if split_name(name)[0] != split_name(suite)[0]]
    if others or len(names) != 1:
        raise BadInput(f"{suite} is a choice of other suites ({', '.join(names)}); list these instead")
    return next(iter(names))


def _rules(table: Any) -> RoundRules:
    if not isinstance(table, dict):
        raise BadInput("rules must be a table")
    _require_names(table, [f.name for f in fields(RoundRules)], "the rules of a round")
    return RoundRules(
        least_processes=_whole(table, "least_processes", 1, 1000),
        widest_half_interval=_share(table, "widest_half_interval"),
        least_certain=_share(table, "least_certain"),
        most_disturbed=_share(table, "most_disturbed"),
        most_load_per_core=_share(table, "most_load_per_core"),
        least_timed=_share(table, "least_timed"),
    )


def _require_names(table: Mapping[str, Any], names: Sequence[str], what: str, optional: Sequence[str] = ()) -> None:
    refuse_unknown([printable(name) for name in table], names, f"in {what} there is no", "there are")
    missing = [name for name in names if name not in table and name not in optional]
    if missing:
        raise BadInput(f"wanted {', '.join(missing)} in {what}, found nothing; add it")


def _text(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{name} must be a text, found {'nothing' if value is None else shorten(str(value))!r}")
    return value


def _whole(table: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = table.get(name)
    if type(value) is not int or not least <= value <= most:
        raise BadInput(f"{name} must be a whole number from {least} to {most}, found {shorten(str(value))}")
    return value


def _share(table: Mapping[str, Any], name: str) -> float:
    value = table.get(name)
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]
        raise BadInput(f"{name} must be a share from 0 to 1, found {shorten(str(value))}")
    return float(value)  # type: ignore[arg-type]


def _day(table: Mapping[str, Any], name: str) -> date:
    value = table.get(name)
    if type(value) is not date:
        raise BadInput(f"{name} must be a day such as 2026-01-31, without quotes, found {shorten(str(value))!r}")
    return value
