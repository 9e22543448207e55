"""Which records contradict themselves, or the limits in their file.

The schema looks at one field after the other. Here fields are compared with each other, with what the operation
counts, and with the peak rates in the file. A record that fails gets the status `inconsistent` when it is read: it is
shown with the reason, and none of its numbers is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import TypeGuard

from deepbench.core import units
from deepbench.core.backend import known_backend
from deepbench.core.case import Case, check_settings, device_of_case, known_settings
from deepbench.core.errors import BadInput, shorten
from deepbench.core.op import Op, known_op
from deepbench.core.precision import find_precision
from deepbench.core.problem import fields_of, make_problem
from deepbench.results.peaks import Peaks, excess_over_card
from deepbench.results.record import MEASURED, Check, Limit, Measurement, Record
from deepbench.results.schema import LISTS

# No processor makes a call in a tenth of a nanosecond: that is less than a cycle of its clock.
SHORTEST_CALL_S = 1e-10

# The fields that a case decides.
OF_CASE = itemgetter(
    *("op", "problem", "direction", "precision", "backend", "threads", "settings"),
    *("flop", "least_flop", "traffic_bytes", "other_flop", "device", "is_group"),
)

OF_SAMPLES = itemgetter(*LISTS)


class Consistency:
    """Marks the records of result files. Of each case only the first record is compared with its operation."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, ...]] = {}

    def marked(self, records: Iterable[Record], limits: Iterable[Limit], cpus: object = None) -> list[Record]:
        """The records of one file with these limits; each that is not consistent as a copy that says so.

        `cpus` are those that the machine of the file allows, where all its processes ran on it.
        """
        peaks, marked = Peaks(limits), []
        for record in records:
            reason = self._inconsistency(record) or excess_over_card(record) or peaks.excess(record)
            reason = reason or other_cpus(record, cpus)
            marked.append(record if reason is None else {**record, "status": "inconsistent", "reason": reason})
        return marked

    def _inconsistency(self, record: Record) -> str | None:
        """What in a record contradicts another part of it; None if nothing does."""
        fields = OF_CASE(record)
        if self._known.get(record["case"]) != fields:
            reason = _case_error(record)
            if reason is not None:
                return reason
            self._known[record["case"]] = fields
        return _result_error(record)


def other_cpus(record: Record, cpus: object) -> str | None:
    """Why a record does not belong to a file whose processes may use these CPUs; None if it does, or if unknown.

    Ranks of groups and pinned processes have a part of the CPUs.
    """
    own = record["process"].get("cpus_allowed") if record["process"] else None
    if not _are_numbers(cpus) or not _are_numbers(own) or not record["measurement"] or record["is_group"]:
        return None
    wanted = set(own) & set(cpus) if record["settings"].get("pin") == "cores" else set(cpus)
    if set(own) == wanted:
        return None
    return f"its process could use the CPUs {units.numbers(own)}, and those of this file can use {units.numbers(cpus)}"


def _are_numbers(values: object) -> TypeGuard[list[int]]:
    """Whether this is what a file should have where it lists CPUs."""
    return isinstance(values, list) and all(type(value) is int for value in values)


# ---- the case


def _case_error(record: Record) -> str | None:
    """What differs between the text of the case, its fields, and what its operation counts.

    Operations and libraries of plug-ins may be unknown here. Then only the text is compared with the fields.
    """
    backend = known_backend(record["backend"])
    if backend is not None and not backend.reaches(record["device"]):
        return f"its device is {shorten(record['device'])}, but {backend.title} runs on {backend.device}"
    op = known_op(record["op"])
    if op is None:
        return _text_error(record)
    try:
        case = _case_of(op, record)
    except BadInput as error:
        return f"its fields describe no case: {error}"
    if case.text != record["case"]:
        return _text_error(record) or f"its text differs from its fields, which describe {case.text}"
    if record["is_group"] != op.is_group:
        return f"is_group is {record['is_group']}, but for {op.name} it is {op.is_group}"
    counted = {"flop": op.flop(case), "least_flop": op.least_flop(case), "traffic_bytes": op.traffic_bytes(case)}
    stated = {"flop": record["flop"], "least_flop": record["least_flop"], "traffic_bytes": record["traffic_bytes"]}
    others = op.other_flop(case)
    counted |= {f"other_flop.{name}": others[name] for name in record["other_flop"] if name in others}
    stated |= {f"other_flop.{name}": record["other_flop"][name] for name in others if name in record["other_flop"]}
    wrong = next((name for name in counted if counted[name] != stated[name]), None)
    return f"{wrong} is {stated[wrong]}, but this case has {counted[wrong]}" if wrong is not None else None


def _text_error(record: Record) -> str | None:
    """The first word of the text that the fields contradict, and bare words that it lacks."""
    first, *words = record["case"].split() or [""]
    bare = [record["direction"], record["precision"], record["backend"]]
    values = {**record["settings"], **record["problem"], **{name: record[name] for name in ("threads", "device")}}
    if first != record["op"]:
        return f"its text begins with {shorten(first)!r}, but its operation is {shorten(record['op'])!r}"
    for word in words:
        name, equals, value = word.partition("=")
        if equals and str(values.get(name)) != value:
            return f"its text has {shorten(word)}, but its field {shorten(name)} is {shorten(str(values.get(name)))}"
    if [word for word in words if "=" not in word] != bare:
        return f"its text does not have the words {shorten(' '.join(bare))}, which its fields have"
    return None


def _case_of(op: Op, record: Record) -> Case:
    """The case that the fields describe, without sizes and settings of later versions; `BadInput` if it is none."""
    sizes = {f.name for f in fields_of(op.Problem)}
    problem = make_problem(op, {name: value for name, value in record["problem"].items() if name in sizes})
    if record["direction"] not in op.directions:
        raise BadInput(f"{op.name} has no direction {shorten(record['direction'])}")
    known = known_settings(op.name)
    settings = check_settings(op.name, {name: value for name, value in record["settings"].items() if name in known})
    precision = find_precision(record["precision"])
    device = device_of_case(record["backend"], record["device"]) if known_backend(record["backend"]) else None
    return Case(
        op.name, problem, record["direction"], precision, record["backend"], record["threads"], settings, device
    )


# ---- the result


def _are_equally_long(measurement: Measurement) -> bool:
    lengths = set(map(len, OF_SAMPLES(measurement)))
    samples_s = measurement["samples_s"]
    others = measurement.get("slices", samples_s), measurement.get("queued_s", samples_s)
    return len(lengths) == 1 and all(len(other) in lengths for other in others)


def _result_error(record: Record) -> str | None:
    """What the status claims and the measurement and the checks do not show."""
    measurement, check = record["measurement"], record["check"]
    if measurement is not None and not _are_equally_long(measurement):
        return "its lists of samples differ in length"
    if record["status"] not in MEASURED:
        return None
    if measurement is None or record["process"] is None:
        return f"it has the status {record['status']} but no {'process' if measurement else 'measurement'}"
    shortest = min(measurement["samples_s"])
    if shortest < SHORTEST_CALL_S:
        return f"a call cannot take {units.seconds(shortest)}: that is less than a cycle of any clock"
    for when, verdict in (("before", check["before"]), ("after", check["after"])):
        if verdict is not None and (error := _check_error(verdict)) is not None:
            return f"its check {when} timing {error}"
    return _missing_check(record, measurement) if record["status"] == "ok" else None


def _check_error(check: Check) -> str | None:
    if not check["passed"]:
        return "failed"
    if check["error"] is None or not 0 <= check["error"] <= 1:
        error = "none that is finite" if check["error"] is None else f"{check['error']:.3g} tolerances"
        return f"passed with an error of {error}"
    if not 0 < check["covers"] <= check["of"]:
        return f"covers {check['covers']} of {check['of']} elements"
    return None


def _missing_check(record: Record, measurement: Measurement) -> str | None:
    """A first call that is the only sample is checked once; all others are checked before and after timing."""
    if record["check"]["before"] is None:
        return "its result was not checked before timing"
    if record["check"]["after"] is None and measurement["stopped"] != "first_call":
        return "its result was not checked after timing"
    return None
