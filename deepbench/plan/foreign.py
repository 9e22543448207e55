"""Problems in files of other projects. A format is one file in `workloads/`, which reads them as cases of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deepbench.core import registry


@dataclass(frozen=True)
class ForeignProblem:
    """A problem of another project as one of ours."""

    op: str
    precision: str
    fields: Mapping[str, int | str]
    settings: Mapping[str, str]
    note: str | None
    """What differs from theirs."""


@dataclass(frozen=True)
class Coverage:
    """A kernel that another project defines, with its problems, and what they are here."""

    definition: str
    """Its name."""
    op_type: str | None
    models: tuple[str, ...]
    """Networks that call it."""
    stages: tuple[str, ...]
    workloads: int
    """How many problems the files list."""
    op: str | None = None
    """The operation that computes it; None where there is none."""
    precision: str | None = None
    problems: tuple[ForeignProblem, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why problems, or the definition, are not measured, and how many."""


@dataclass(frozen=True)
class WorkloadFormat:
    """One format. Its file ends with `WORKLOADS = WorkloadFormat(…)`."""

    name: str
    is_file: Callable[[str], bool]
    """Whether this is the name of a file or a folder that may have this format. It need not exist."""
    read: Callable[[Path], list[Coverage]]
    """All definitions in a file or a folder; `BadInput` where nothing is found, or a file is damaged."""


def format_of(name: str) -> WorkloadFormat | None:
    """The format of a file or folder with this name; None if no format has such names."""
    known: Mapping[str, WorkloadFormat] = registry.registered("workloads")
    return next((known_format for known_format in known.values() if known_format.is_file(name)), None)
