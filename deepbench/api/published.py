"""Results that the original DeepBench published from 2016 to 2019, and how a file compares with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deepbench.api.results import Results
from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput
from deepbench.core.json_lines import printable
from deepbench.core.kinds import wing
from deepbench.reporting.output import Report
from deepbench.reporting.table import Table


def published_machines() -> Table:
    """One row per machine: GPUs of published tables, then those of the original, with what each has."""
    from deepbench.reporting import published as tables

    gpus = wing("gpus")
    return tables.machines(gpus.machine_rows(), gpus.REMEDY)


def published_kernels(machine: str, **words: Any) -> Report:
    """Published kernels of a GPU: see `deepbench.gpus.api.show`."""
    found: Report = wing("gpus").show(machine, **words)
    return found


def has_tables(machine: str) -> bool:
    """Whether it is a GPU of published tables, and not a machine of the original."""
    return bool(wing("gpus").is_machine(machine))


def published(machine: str, *, op: str | None = None, precision: str | None = None) -> Results:
    """The results of a published machine, as those of any imported file.

    Args:
        machine: its name, or a part of it such as `V100`.
        op: only this operation.
        precision: only this precision, by our name or that of the sheets: `f16` or `float16_mixed`.
    """
    from deepbench.results import published as data

    name = _find(machine)
    file = data.load(name)
    records = [
        r
        for r in file.records
        if op in (None, r["op"]) and precision in (None, r["precision"], r["notes"]["their_precision"])
    ]
    if not records:
        known = sorted({(r["op"], r["precision"]) for r in file.records})
        raise BadInput(
            f"{name} has no result of {op or 'any operation'} in {precision or 'any precision'}; it has "
            + ", ".join(f"{o} {p}" for o, p in known)
            + (did_you_mean(op or "", {o for o, _ in known}) or did_you_mean(precision or "", {p for _, p in known}))
        )
    kept = {r["case"] for r in records}
    plan = file.header["plan"]
    plan = {**plan, "cases": [planned for planned in plan["cases"] if planned["case"] in kept]}
    return Results(replace(file, header={**file.header, "plan": plan}, records=records))


def _find(machine: str) -> str:
    """The machine of the original with this name; `BadInput` also says how to get newer GPUs, where there are none."""
    from deepbench.results import published as data

    try:
        return data.find(machine)
    except BadInput as error:
        gpus = wing("gpus")
        if gpus.machines():
            raise
        raise BadInput(f"{error}; kernel times of newer GPUs are in a package: {gpus.REMEDY}") from None


def against_published(results: Results, machine: str | None) -> Report:
    """The cases of a file next to the same work of a published machine; None: a row per published machine."""
    from deepbench.judge.published import match
    from deepbench.reporting import published as tables
    from deepbench.results import published as data

    if machine is not None and has_tables(machine):
        near: Report = wing("gpus").against(results, machine)
        return near
    file = printable(results.path.name)
    if machine is None:
        table = tables.among_all(results.summaries)
        if not table.rows:
            raise BadInput(
                f"{file} has no measured case that a published machine has; run rank (ten minutes), deepbench/train or "
                "deepbench/server"
            )
        return Report.of_table(table)
    name = _find(machine)
    matches = match(results.summaries, name)
    if not matches:
        suites = sorted({book["suite"] for book in data.workbooks(name)})
        raise BadInput(f"{file} has no measured case that {name} has; run {' or '.join(suites)} first")

    def values() -> Any:
        return tables.to_json(matches, name)

    return Report.of_parts(tables.parts(matches, name, file), values)
