"""Which cases compete: those that ask libraries to do the same work.

Work is read from the text of a case, which leaves out settings at their default and rarely used sizes. So a record
written before a setting or a size existed equals one written after.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from deepbench.core.case import Case
from deepbench.results.record import Record


class Work(NamedTuple):
    """What a case computes and where. `None` stands for any value."""

    op: str
    problem: tuple[str, ...]
    """Words such as `m=1760`."""
    direction: str
    precision: str
    device: str | None
    threads: int | None
    settings: tuple[str, ...]
    """Words such as `beta=0`, for settings that are not at their default."""
    backend: str | None = None

    @classmethod
    def of(cls, record: Record) -> Work:
        """The work that libraries compete for. Variants such as the algorithm are each library's own choice."""
        work = cls.on_library(record)
        return work.without("backend", *record["variants"]) if record["variants"] else work._replace(backend=None)

    @classmethod
    def on_library(cls, record: Record) -> Work:
        """The work with the backend and its variants: two cases are equal only if they are the same case."""
        words = [word for word in record["case"].split() if "=" in word]
        return cls(
            record["op"],
            tuple(word for word in words if _name(word) in record["problem"]),
            record["direction"],
            record["precision"],
            record["device"],
            record["threads"],
            tuple(w for w in words if _name(w) not in record["problem"] and _name(w) not in ("threads", "device")),
            record["backend"],
        )

    @classmethod
    def of_case(cls, case: Case) -> Work:
        """The same as `on_library`, for a case that has not been measured yet."""
        return cls(
            case.op,
            tuple(case.problem.text.split()),
            case.direction,
            case.precision.name,
            case.device,
            case.threads,
            tuple(f"{name}={value}" for name, value in case.overrides),
            case.backend,
        )

    def without(self, *names: str) -> Work:
        """The same for any value of these: `threads`, `device`, `backend`, a size, or a setting."""
        return self._replace(
            problem=tuple(word for word in self.problem if _name(word) not in names),
            settings=tuple(word for word in self.settings if _name(word) not in names),
            device=None if "device" in names else self.device,
            threads=None if "threads" in names else self.threads,
            backend=None if "backend" in names else self.backend,
        )

    @property
    def text(self) -> str:
        """The text of a case without what is None."""
        threads = None if self.threads is None else f"threads={self.threads}"
        parts = [self.op, *self.problem, self.direction, self.precision, self.backend, threads, *self.settings]
        return " ".join(filter(None, parts))


def _name(word: str) -> str:
    return word.partition("=")[0]


def by_case(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of each case by its text, in the order of the file. Interrupted ones are left out."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record["status"] != "interrupted":
            groups.setdefault(record["case"], []).append(record)
    return groups
