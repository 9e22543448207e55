"""Problems for other programs: what a library, its threads and its device do not belong to. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from deepbench.core.case import Case
from deepbench.core.errors import BadInput
from deepbench.core.lowering import MatrixProduct
from deepbench.core.op import find_op
from deepbench.core.precision import find_precision
from deepbench.plan.cases import (
    REFERENCE,
    Choices,
    application_of,
    check_choices,
    read_chosen,
    settings_of,
    why_no_line,
    why_nothing_passes,
    works_of,
)
from deepbench.results.record import Source

UNSAFE = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True)
class ExportedProblem:
    """One problem with its settings, in one direction and precision."""

    name: str
    """Letters, digits and underscores, beginning with the operation's name: safe in every format, and unique."""
    case: Case
    sources: list[Source] = field(default_factory=list)
    """Lines of suites that ask for it: application, and how often one pass calls it."""

    @property
    def products(self) -> tuple[MatrixProduct, ...]:
        """See `Op.matrix_products`."""
        return self.case.operation.matrix_products(self.case)

    @property
    def flop(self) -> int:
        """Operations per call."""
        return self.case.operation.flop(self.case)

    @property
    def text(self) -> str:
        """The case without library, threads and device."""
        c = self.case
        settings = (f"{name}={value}" for name, value in c.overrides)
        return " ".join([c.op, c.problem.text, c.direction, c.precision.name, *settings])


def exported_problems(words: Sequence[str], choices: Choices) -> list[ExportedProblem]:
    """Every problem that words ask for, once, whichever libraries serve it; filters for libraries do not count.

    `BadInput` for filters that name what does not exist, and where no problem is left.
    """
    entries, choices = read_chosen(words, choices)
    check_choices(choices)
    choices = replace(choices, backends=(), device="cpu")
    applications = {name.lower() for name in choices.applications}
    cases: dict[str, Case] = {}
    sources: dict[str, list[Source]] = {}
    refused = None
    for entry in entries:
        pattern = replace(entry.pattern, backend=REFERENCE, device=None)
        if applications and (application_of(entry) or "").lower() not in applications:
            continue
        op = find_op(pattern.op)
        if op.is_group and choices.ranks and pattern.problem.ranks not in choices.ranks:
            continue
        for direction, precision, _ in works_of(pattern, choices, entry.precision):
            kind = find_precision(precision)
            if direction not in op.directions or not op.allows(direction, kind):
                refused = f"{op.name} has no direction {direction} in {precision}"
                continue
            idle = op.unused_settings(pattern.problem, direction, kind)
            for chosen in settings_of(op, pattern, choices, idle, dict(entry.settings)):
                case = Case(op.name, pattern.problem, direction, kind, REFERENCE, 1, chosen)
                cases.setdefault(case.text, case)
                found = sources.setdefault(case.text, [])
                if entry.source is not None and entry.source not in found:
                    found.append(entry.source)
    if not cases:
        raise BadInput(
            f"no problem is left: {refused or why_nothing_passes(entries, choices)}"
            if entries
            else why_no_line(words, choices)
        )
    digits = len(str(len(cases)))
    return [
        ExportedProblem(f"{UNSAFE.sub('_', case.op)}_{number:0{digits}}", case, sources[text])
        for number, (text, case) in enumerate(cases.items(), 1)
    ]
