"""Case: one problem on one library with its settings. One line of text is its name everywhere.

    gemm m=1760 n=128 k=1760 a_t=0 b_t=0 forward f32 onednn threads=2

The line is the key in a result file, the title in a table and, after `deepbench run`, the command that measures
the case again. Settings at their default are left out, except `threads`, which is always said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from deepbench.core import registry
from deepbench.core.errors import BadInput, shorten
from deepbench.core.precision import PRECISIONS, Precision, find_precision
from deepbench.core.problem import fields_of, make_problem

# `backward` is both gradients in one call, where libraries have no other.
DIRECTIONS = ("forward", "backward", "backward_data", "backward_weights")

# Settings that belong to running rather than to an op's mathematics; the first value is the default.
RUN_SETTINGS = {"pin": ("none", "cores"), "cache": ("hot", "cold", "weights")}

MOST_THREADS = 4096


@dataclass(frozen=True)
class Case:
    """Problem + direction + precision + backend + settings; frozen, so it can be a key."""

    op: str
    problem: Any
    direction: str
    precision: Precision
    backend: str
    threads: int
    chosen: tuple[tuple[str, str], ...] = ()
    """Settings that differ from their default, in the order of their names."""

    @property
    def settings(self) -> dict[str, str]:
        """Every setting with its value, defaults included."""
        return {n: v[0] for n, v in known_settings(self.op).items()} | dict(self.chosen)

    @property
    def text(self) -> str:
        """The one line; `parse` is its inverse."""
        words = [
            self.op,
            self.problem.text,
            self.direction,
            self.precision.name,
            self.backend,
            f"threads={self.threads}",
            *(f"{name}={value}" for name, value in self.chosen),
        ]
        return " ".join(words)


@dataclass(frozen=True)
class Pattern:
    """A case in which words may be left out; `plan` fills them with every choice there is."""

    op: str
    problem: Any
    direction: str | None = None
    precision: str | None = None
    backend: str | None = None
    threads: int | None = None
    settings: tuple[tuple[str, str], ...] = ()
    """Every setting that the line says, defaults included: no choice changes them."""


def run_words(case: Case) -> str:
    """The settings of running of a case, as its text says them: what it is compared with runs the same way."""
    return " ".join(f"{name}={value}" for name, value in case.chosen if name in RUN_SETTINGS)


def known_settings(op_name: str) -> dict[str, tuple[str, ...]]:
    """Every setting that cases of this op have, with its values; the first is the default."""
    return {**registry.operation(op_name).settings, **RUN_SETTINGS}


def parse_case(text: str) -> Case:
    """The Case of a complete line. `BadInput` says which word is wrong or missing."""
    pattern = parse_pattern(text)
    for word in ("direction", "precision", "backend", "threads"):
        if getattr(pattern, word) is None:
            raise BadInput(f"the case {shorten(text)!r} does not say its {word}")
    return Case(
        pattern.op,
        pattern.problem,
        pattern.direction or "",
        find_precision(pattern.precision or ""),
        pattern.backend or "",
        pattern.threads or 0,
        check_settings(pattern.op, dict(pattern.settings)),
    )


def parse_pattern(text: str) -> Pattern:
    """A Pattern from a line of which all words but the op and its sizes may be missing."""
    words = text.split()
    if not words:
        raise BadInput("an empty case; write for example: gemm m=1760 n=128 k=1760 f32 onednn")
    op = registry.operation(words[0])
    fields = {f.name for f in fields_of(op.Problem)}
    values: dict[str, int | str] = {}
    found: dict[str, Any] = {}
    chosen: dict[str, str] = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if equals and name in fields:
            _once(values, name, read_field(op, name, value), text)
        elif equals and name == "threads":
            _once(found, "threads", thread_count(value), text)
        elif equals:
            _once(chosen, name, value, text)
        else:
            _once(found, _kind_of(word), word, text)
    problem = make_problem(op, values)
    if found.get("direction", op.directions[0]) not in op.directions:
        raise BadInput(f"{op.name} has no direction {found['direction']}; it has {', '.join(op.directions)}")
    check_settings(op.name, chosen)
    return Pattern(op.name, problem, settings=tuple(sorted(chosen.items())), **found)


def check_settings(op_name: str, chosen: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The settings that differ from their default, sorted; `BadInput` for unknown names and values."""
    known = known_settings(op_name)
    for name, value in chosen.items():
        if name not in known:
            raise BadInput(f"{op_name} has no field or setting {shorten(name)!r}; settings are {', '.join(known)}")
        if value not in known[name]:
            raise BadInput(f"{name} is one of {', '.join(known[name])}, found {shorten(value)!r}")
    return tuple(sorted((n, v) for n, v in chosen.items() if v != known[n][0]))


def read_field(op: Any, name: str, text: str) -> int | str:
    """The value of a field of the op's Problem: a word where it is a choice, else a whole number."""
    field = next(f for f in fields_of(op.Problem) if f.name == name)
    return text if "words" in field.metadata else whole_number(name, text)


def whole_number(name: str, text: str) -> int:
    """`text` as a whole number; `BadInput` names the field and what was found."""
    if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
        found = repr(shorten(text)) if text else "nothing"
        raise BadInput(f"{name} must be a whole number, found {found}")
    if len(text) > 20:  # Python refuses to convert thousands of digits; no size needs twenty
        raise BadInput(f"{name} must be a whole number of at most 20 digits, found {len(text)}")
    return int(text)


def thread_count(text: str) -> int:
    """A number of threads from 1 up."""
    threads = whole_number("threads", text)
    if not 1 <= threads <= MOST_THREADS:
        raise BadInput(f"threads must be from 1 to {MOST_THREADS}, found {threads}")
    return threads


def _once(found: dict[str, Any], name: str, value: Any, text: str) -> None:
    if name in found:
        raise BadInput(f"{name} is said twice in {shorten(text)!r}; say it once")
    found[name] = value


def _kind_of(word: str) -> str:
    if word in DIRECTIONS:
        return "direction"
    if word in PRECISIONS:
        return "precision"
    if word in registry.registered("backends"):
        return "backend"
    libraries = ", ".join(registry.registered("backends"))
    raise BadInput(
        f"{shorten(word)!r} is no direction ({', '.join(DIRECTIONS)}), precision ({', '.join(PRECISIONS)}) "
        f"or backend ({libraries})"
    )
