"""Knobs: what a designer may change, as words.

    peak.bf16*2            the peak of one precision; `peak*2` of all of them
    memory.bytes_per_s*2   the outermost level, which is the main memory
    memory.L2.bytes*2      one level, by its name; its capacity
    memory.all.bytes_per_s*2   every level
    units*2                the cores of a CPU, or the multiprocessors of a GPU
    array.rows*2           of a systolic array: also columns, count and clock_hz; peaks grow with it
    overhead.call_s/2      the fixed cost of a call or a launch
    time.onednn/2 where n<=8   the kernels of a library, or of an operation, whose sizes fulfil all conditions

`*` and `/` scale a value, `=` sets it. Several knobs with commas between them are one change.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepbench.core import registry
from deepbench.core.aliases import did_you_mean
from deepbench.core.case import DIRECTIONS, Case
from deepbench.core.errors import BadInput, shorten
from deepbench.core.op import all_ops
from deepbench.core.precision import PRECISIONS
from deepbench.core.problem import fields_of

# The first word of a knob that scales measured times, and of all others, which belong to the hardware.
TIME = "time"

# No machine differs from another by more than this.
LARGEST_FACTOR = 1e9

EXAMPLES = "memory.bytes_per_s*2, peak.bf16*1.5, overhead.call_s/2 or 'time.onednn/2 where n<=8'"

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}

_KNOB = re.compile(r"([A-Za-z0-9_.]+)\s*([*/=])\s*([0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)")
_CONDITION = re.compile(r"([a-z_]+)\s*(<=|>=|<|>|=)\s*([0-9]{1,12})")


@dataclass(frozen=True)
class Condition:
    """A bound on a size of a problem."""

    name: str
    comparison: str
    value: int

    def holds(self, case: Case) -> bool:
        """Whether the problem of a case has this size, within the bound."""
        value = case.problem.values.get(self.name)
        return isinstance(value, int) and COMPARISONS[self.comparison](value, self.value)


@dataclass(frozen=True)
class Knob:
    """One value that changes."""

    path: tuple[str, ...]
    how: str
    """`*`, `/` or `=`."""
    value: float
    conditions: tuple[Condition, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Knob:
        """The knob that a word describes; `BadInput` says what is wrong with it."""
        words, _, wheres = text.strip().partition(" where ")
        match = _KNOB.fullmatch(words.strip())
        if match is None:
            raise BadInput(f"wanted a knob such as {EXAMPLES}, found {shorten(text)!r}")
        path, value = tuple(match[1].split(".")), float(match[3])
        if not all(path):
            raise BadInput(f"wanted a knob such as {EXAMPLES}, found {shorten(text)!r}")
        if match[2] != "=" and not 1 / LARGEST_FACTOR <= value <= LARGEST_FACTOR:
            raise BadInput(f"the factor of {shorten(text)!r} must be from 1e-9 to 1e9")
        if not math.isfinite(value) or value <= 0:
            raise BadInput(f"the value of {shorten(text)!r} must be a number above 0")
        conditions = tuple(_condition(part, text) for part in wheres.split(" and ")) if wheres else ()
        knob = cls(path, match[2], value, conditions)
        if path[0] == TIME:
            _check_time(knob, text)
        elif conditions:
            raise BadInput(f"only times have conditions, such as 'time.onednn/2 where n<=8', found {shorten(text)!r}")
        return knob

    @property
    def is_time(self) -> bool:
        """Whether it scales measured times, and not the hardware."""
        return self.path[0] == TIME

    @property
    def text(self) -> str:
        """As it was typed."""
        wheres = " and ".join(f"{c.name}{c.comparison}{c.value}" for c in self.conditions)
        return f"{'.'.join(self.path)}{self.how}{self.value:g}" + (f" where {wheres}" if wheres else "")

    def applied(self, value: float) -> float:
        """The value after the change."""
        return {"*": value * self.value, "/": value / self.value, "=": self.value}[self.how]

    def applies(self, case: Case | None) -> bool:
        """Whether it scales the time of a case: all its words and conditions fit."""
        if case is None:
            return False
        known = {case.op, case.backend, case.precision.name, case.direction}
        return set(self.path[1:]) <= known and all(condition.holds(case) for condition in self.conditions)


def _condition(text: str, whole: str) -> Condition:
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise BadInput(f"wanted a condition such as n<=8 after where, found {shorten(text)!r} in {shorten(whole)!r}")
    known = sorted({field.name for op in all_ops().values() for field in fields_of(op.Problem)})
    if match[1] not in known:
        hint = did_you_mean(match[1], known)
        raise BadInput(f"no operation has a size {match[1]!r}, in {shorten(whole)!r}{hint}")
    return Condition(match[1], match[2], int(match[3]))


def _check_time(knob: Knob, text: str) -> None:
    if knob.how == "=":
        raise BadInput(f"a time is scaled with * or /, found {shorten(text)!r}")
    known = [*registry.registered("backends"), *all_ops(), *PRECISIONS, *DIRECTIONS]
    if len(knob.path) < 2:
        raise BadInput(f"wanted a library or an operation after time, such as time.onednn/2, found {shorten(text)!r}")
    for word in knob.path[1:]:
        if word not in known:
            raise BadInput(
                f"{shorten(word)!r} in {shorten(text)!r} is no library, operation, precision or direction"
                f"{did_you_mean(word, known)}"
            )


@dataclass(frozen=True)
class Change:
    """Knobs that are changed together."""

    knobs: tuple[Knob, ...]

    @classmethod
    def parse(cls, text: str) -> Change:
        """The change that words with commas between them describe."""
        parts = [part for part in text.split(",") if part.strip()]
        if not parts:
            raise BadInput(f"wanted a knob such as {EXAMPLES}, found nothing")
        return cls(tuple(map(Knob.parse, parts)))

    @classmethod
    def together(cls, changes: Sequence[Change]) -> Change:
        """All knobs of several changes."""
        return cls(tuple(knob for change in changes for knob in change.knobs))

    @property
    def text(self) -> str:
        """As it was typed."""
        return ", ".join(knob.text for knob in self.knobs)

    @property
    def of_hardware(self) -> tuple[Knob, ...]:
        """The knobs that change the hardware."""
        return tuple(knob for knob in self.knobs if not knob.is_time)

    def time_factor(self, case: Case | None) -> float:
        """By how much the knobs of times scale that of a case."""
        return math.prod(knob.applied(1.0) for knob in self.knobs if knob.is_time and knob.applies(case))
