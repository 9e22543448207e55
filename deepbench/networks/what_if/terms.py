"""Terms: the kernels of an application with their counts and measured times, whatever file or trace they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deepbench.core.case import Case


@dataclass(frozen=True)
class Term:
    """A kernel, or the operators that are no operation of ours, and what it takes."""

    case: Case | None
    """None: operators of which only the bytes are known."""
    label: str
    count: int
    """How often one pass of the application calls it."""
    seconds: float
    """Of one call."""
    low_s: float | None
    """The ends of the 95 % interval of the time, where there is one."""
    high_s: float | None
    flop: int
    """Of one call."""
    bytes: int
    """Least traffic of one call."""
    rivals: tuple[Term, ...] = ()
    """The same work on other libraries, whose times are trusted: after a change, one of these may be the fastest."""

    @property
    def is_overhead(self) -> bool:
        """Whether it is what a framework adds to each operator: no kernel, and no bytes."""
        return self.case is None and not self.bytes

    @property
    def total_s(self) -> float:
        """Of all calls."""
        return self.count * self.seconds


@dataclass(frozen=True)
class ModelledApplication:
    """What is run: a network, or the kernels of a suite that belong together."""

    title: str
    terms: Sequence[Term]
    remarks: Mapping[str, int] = field(default_factory=dict)
    """What to say about kernels and about how many, such as those without a time, which are not among the terms."""
    suite: str = ""
    """The name of the suite that lists them."""
    precision: str = ""
    """The one that all kernels have; empty: several or unknown."""
    kernels: int | None = None
    """How many different ones it has, with those that are left out; None: no more than the terms."""

    @property
    def seconds(self) -> float:
        """The sum of all terms."""
        return sum(term.total_s for term in self.terms)
