"""Two sides of one run that take turns: the best comparison there is, because what the machine does meets both.

A side is what its cases say otherwise, or what its workers find in their environment. Each side has a result file of
its own, as of any run; that both are of one run stands in their headers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepbench.core.case import Case, thread_count
from deepbench.core.errors import BadInput
from deepbench.core.variables import FIXED, OVERRIDES, THREAD_VARIABLES, tuning
from deepbench.judge import compare
from deepbench.plan.cases import Choices, Planned
from deepbench.plan.modes import Rounds
from deepbench.results.file import ResultFile
from deepbench.results.record import MEASURED, Record, Source

# Where a library is looked for first, by backend.
PATHS = {"onednn": "DEEPBENCH_ONEDNN_PATH", "mkl": "DEEPBENCH_MKL_PATH", "openblas": "DEEPBENCH_OPENBLAS_PATH"}


# Variables that make a library load a program: a file from elsewhere must not name one.
LOADS_CODE = re.compile(r"LIBRAR|PLUGIN|PATH|INJECTION|AGENT|PRELOAD|DIR|EXEC|TOOL|_FILE|=", re.IGNORECASE)

# Chance of a difference by accident below which no further round is needed. Looked at after every round, so a
# difference must be clearer than one that is looked at once; comparison.LOOKS is the other half of that.
EARLY = 0.005


@dataclass(frozen=True)
class Side:
    """What one side does otherwise."""

    name: str
    """`a` or `b`."""
    choices: dict[str, str] = field(default_factory=dict)
    """`threads`, `backend`, or a setting of cases."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of workers; an empty text: the variable is not there."""

    @property
    def words(self) -> str:
        """`threads=1`."""
        words = [f"{n}={v}" if v else f"without {n}" for n, v in {**self.choices, **self.environment}.items()]
        return ", ".join(words) or "as it is here"

    def applied(self, choices: Choices) -> Choices:
        """The filters of the command line, with what this side says otherwise."""
        for name, value in self.choices.items():
            if name == "threads":
                choices = dataclasses.replace(choices, threads=(thread_count(value),))
            elif name == "backend":
                choices = dataclasses.replace(choices, backends=(value,))
            else:
                choices = dataclasses.replace(choices, settings={**choices.settings, name: (value,)})
        return choices

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Workers started meanwhile are of this side."""
        before = {name: os.environ.get(name) for name in self.environment}
        for name, value in self.environment.items():
            _set(name, value or None)
        try:
            yield
        finally:
            for name, earlier in before.items():
                _set(name, earlier)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def parse_sides(text: str) -> tuple[Side, Side]:
    """The sides of `NAME=a,b`: a setting, `threads` or `backend`; or, in capitals, a variable of the environment."""
    name, equals, rest = text.partition("=")
    values = rest.split(",")
    if not name or not equals or len(values) != 2 or values[0] == values[1]:
        raise BadInput(f"--ab wants NAME=ONE,OTHER, found {text[:60]!r}")
    sides = []
    for letter, value in zip("ab", values, strict=True):
        if re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            if name in THREAD_VARIABLES:
                raise BadInput("threads are a setting: --ab threads=1,2")
            if name in (*OVERRIDES, *FIXED):
                raise BadInput(f"{name} is decided by the settings (see --set pin=cores), so both sides would be equal")
            sides.append(Side(letter, environment={name: value}))
        else:
            sides.append(Side(letter, choices={name: value}))
    return sides[0], sides[1]


def of_file(found: ResultFile, here: Mapping[str, Any], other: ResultFile | None = None) -> tuple[Side, Side]:
    """A file's libraries and environment against those of now; `BadInput` where nothing differs, or nothing is left.

    `here` has the facts of libraries as a header has them. With another file, its environment stands for that of now.
    """
    environment: dict[str, str] = {}
    for name in sorted({r["backend"] for r in found.records}):
        then, now = ((side.get(name) or {}).get("library") for side in (found.header["libraries"], here))
        if then is None or then == now:
            continue
        path = str(then.get("path"))
        if name not in PATHS or not Path(path).is_file() or (now and now.get("path") == path):
            raise BadInput(
                f"{found.path} was measured with {name} {then.get('version')} at {path}, which is not there any more; "
                "compare the files instead: deepbench compare"
            )
        environment[PATHS[name]] = path
    then_tuned, now_tuned = _tuned(found), _tuned(other) if other is not None else _users(os.environ)
    changed = [n for n in {**then_tuned, **now_tuned} if then_tuned.get(n) != now_tuned.get(n)]
    environment |= {n: then_tuned.get(n, "") for n in changed}
    if not environment:
        raise BadInput(
            f"libraries and environment of {found.path} are those of now, so there are no two sides; "
            "measure again and compare the files: deepbench compare"
        )
    return Side("a", environment=environment), Side("b", environment={n: now_tuned.get(n, "") for n in changed})


def _tuned(found: ResultFile) -> dict[str, str]:
    """Variables that users set to change how libraries run, as the first record has them."""
    processes = [r["process"] for r in found.records if r["process"]]
    known = processes[0].get("environment") if processes else None
    return _users({n: v for n, v in known.items() if isinstance(v, str)} if isinstance(known, dict) else {})


def _users(environment: Mapping[str, str]) -> dict[str, str]:
    ours = {*THREAD_VARIABLES, *FIXED}
    return {n: v for n, v in tuning(environment).items() if v and n not in ours and not LOADS_CODE.search(n)}


@dataclass(frozen=True)
class Pair:
    """One case on both sides."""

    a: Case
    b: Case
    sources: list[Source]


def pairs(a: Sequence[Planned], b: Sequence[Planned], names: set[str]) -> list[Pair]:
    """The cases that both sides have, told by all but what the sides say otherwise; `BadInput` for none."""
    right = {_key(p.case, names): p for p in b}
    found = [Pair(p.case, right[key].case, p.sources) for p in a if (key := _key(p.case, names)) in right]
    # What a setting does not touch would be compared with itself.
    found = [p for p in found if not names or p.a != p.b]
    if not found:
        raise BadInput("the two sides have no case in common; see deepbench list with either value")
    return found


def _key(case: Case, names: set[str]) -> str:
    chosen = {n: v for n, v in case.settings.items() if n not in names}
    parts: list[Any] = [case.op, case.problem, case.direction, case.precision.name, chosen]
    parts += [None if "backend" in names else case.backend, None if "threads" in names else case.threads]
    return repr(parts)


def queue(
    wanted_pairs: Sequence[Pair], a: ResultFile, b: ResultFile, rounds: Rounds, seed: int, margin: float
) -> list[tuple[Pair, int]]:
    """The pairs of the next round in random order: those with too few rounds, and those of which nobody can tell."""
    by_case = [_by_case(f) for f in (a, b)]
    wanted = []
    for pair in wanted_pairs:
        records = [by_case[0].get(pair.a.text, []), by_case[1].get(pair.b.text, [])]
        done = min(map(len, records))
        if any(r["status"] not in MEASURED for side in records for r in side) or done >= rounds.most:
            continue
        if done < rounds.least or not decided(records[0], records[1], margin):
            wanted.append((pair, done + 1))
    if not wanted:
        return []
    first = min(number for _, number in wanted)
    batch = [(pair, number) for pair, number in wanted if number == first]
    random.Random(f"{seed}/{first}").shuffle(batch)
    return batch


def decided(a: Sequence[Record], b: Sequence[Record], margin: float) -> bool:
    """Whether the rounds so far tell the sides apart, or show that they are the same."""
    difference, _ = compare.difference_of(compare.process_times_s(a), compare.process_times_s(b), True)
    if difference is None:
        return False
    clear = difference.p < EARLY and compare.verdict_of(difference, difference.p, margin) != "cannot tell"
    return clear or compare.verdict_of(difference, 1.0, margin) == "same"


def _by_case(found: ResultFile) -> dict[str, list[Record]]:
    by_case: dict[str, list[Record]] = {}
    for record in found.records:
        if record["status"] != "interrupted":
            by_case.setdefault(record["case"], []).append(record)
    return by_case
