"""Reads lines of earlier versions as lines of today.

Old records lack facts about their operation and backend. No other reader looks them up in the registry. They may also
hold environment variables that are not stored any more, because some were passwords: no other reader sees their values.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, cast

from deepbench.core.backend import all_backends
from deepbench.core.case import Case, check_settings, known_settings
from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from deepbench.core.precision import find_precision
from deepbench.core.problem import make_problem
from deepbench.core.variables import HIDDEN, is_secret, is_tuning, kept
from deepbench.results.record import BackendFields, Limit, OpFields, Record, backend_fields, op_fields

# Fields that every record has in memory, but not in every file.
ADDED = frozenset({"other_flop", "group", "heat", *BackendFields.__annotations__, *OpFields.__annotations__})

# Fields of a `roof`.
ROOF = ("precision", "device", "flop_per_s", "library", "case", "threads", "at")

# A word of a command that sets a variable, such as --ab NAME=1,2.
SETS_VARIABLE = re.compile(r"((?:--[a-z-]+=)?(\w+)=)")


def without_secrets(line: Any) -> Any:
    """The same line of any kind; values of variables that today's version does not store are replaced."""
    if not isinstance(line, dict):
        return line
    plan, command = line.get("plan"), line.get("command")
    starts = [event.get("start") for name in ("training", "serving") if isinstance(event := line.get(name), dict)]
    for place in (line.get("process"), *starts):
        if isinstance(place, dict) and "environment" in place:
            place["environment"] = _masked(place["environment"])
    side = plan.get("interleaved") if isinstance(plan, dict) else None
    if isinstance(side, dict) and isinstance(side.get("environment"), dict):
        # The user asked to compare by these variables, so only secrets are hidden.
        side["environment"] = {n: HIDDEN if is_secret(n) else v for n, v in side["environment"].items()}
    if isinstance(command, list):
        line["command"] = [_masked_word(word) if isinstance(word, str) else word for word in command]
    return line


def _masked(environment: Any) -> Any:
    if not isinstance(environment, dict):
        return HIDDEN
    return {n: kept(v) if isinstance(v, str) and is_tuning(n) else HIDDEN for n, v in environment.items()}


def _masked_word(word: str) -> str:
    match = SETS_VARIABLE.match(word)
    return f"{match[1]}{HIDDEN}" if match and is_secret(match[2]) else word


def complete(stored: dict[str, Any]) -> Record:
    """Add the fields that a record of an old file lacks.

    Where its operation or backend is unknown here, names serve as titles and the device is taken to be the CPU.
    """
    if not stored.keys() >= ADDED:
        what = (stored[name] for name in ("op", "direction", "precision", "threads"))
        known = _op_fields(*what, tuple(stored["problem"].items()), tuple(stored["settings"].items()))
        name = stored["backend"]
        unknown: BackendFields = {"device": "cpu", "library_title": name, "framework": False}
        of_backend = backend_fields(name) if name in all_backends() else unknown
        added = {"other_flop": {}, "group": None, "heat": None, **of_backend, **known}
        added["is_group"] = known["is_group"] or bool(stored.get("group"))
        for field, value in added.items():
            stored.setdefault(field, value)
    return cast(Record, stored)


@lru_cache(maxsize=2**16)
def _op_fields(
    name: str,
    direction: str,
    precision: str,
    threads: int,
    problem: tuple[tuple[str, int | str], ...],
    settings: tuple[tuple[str, str], ...],
) -> OpFields:
    """As `record.op_fields`, or as many of these fields as can be known."""
    fields: OpFields = {
        "problem_title": " ".join(f"{size}={value}" for size, value in problem),
        "variants": [],
        "sweep_field": None,
        "is_group": False,
        "least_flop": None,
        "baselines": [],
    }
    try:
        op = find_op(name)
        fields["variants"], fields["sweep_field"], fields["is_group"] = list(op.variants), op.sweep_field, op.is_group
        sizes = make_problem(op, dict(problem))
        fields["problem_title"] = op.title(sizes)
        if direction not in op.directions:
            return fields
        known = known_settings(name)
        chosen = check_settings(name, {setting: value for setting, value in settings if setting in known})
        return op_fields(op, Case(name, sizes, direction, find_precision(precision), "reference", threads, chosen))
    except BadInput:
        return fields


def read_limit(line: dict[str, Any]) -> Limit | None:
    """The limit in a valid line of a result file; None for a header or a record.

    Earlier versions wrote compute limits as `roof`, and compute and memory limits without a device.
    """
    if "roof" in line:
        line = {"limit": {"what": "compute", **{name: line["roof"][name] for name in ROOF if name in line["roof"]}}}
    limit: Limit | None = line.get("limit")
    if limit and (limit["what"] == "compute" or limit["what"] == "memory"):
        limit.setdefault("device", "cpu")
    return limit
