"""A result file as a workbook, Parquet and SQLite."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.files import replacing
from deepbench.reporting import export
from deepbench.reporting.table import not_a_formula
from deepbench.results.file import ResultFile
from deepbench.results.summary import Summary


def xlsx(results: ResultFile, summaries: Sequence[Summary], path: Path) -> None:
    """One sheet with one row per case. Cells hold values, not formulas."""
    try:
        import openpyxl
        from openpyxl.styles import Font
    except ImportError:
        raise BadInput("a workbook needs openpyxl: pip install openpyxl") from None
    cases = export.table(results, summaries)
    names = [column.name for column in cases.columns]
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "All cases"
    sheet.append([not_a_formula(name) for name in names])
    for row in cases.rows:
        sheet.append([not_a_formula(row.get(name)) for name in names])
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    sheet.freeze_panes = "B2"
    sheet.column_dimensions["A"].width = 60
    if cases.rows:
        sheet.auto_filter.ref = sheet.dimensions
    # In memory first: openpyxl tries to end a file that could not be written and prints a traceback.
    content = io.BytesIO()
    book.save(content)
    with replacing(path) as draft:
        draft.write_bytes(content.getvalue())


def parquet(results: ResultFile, summaries: Sequence[Summary], path: Path) -> None:
    """One row per case; the metadata has the header of the file as `deepbench_header`."""
    try:
        import pyarrow
        from pyarrow import parquet as writer
    except ImportError:
        raise BadInput("Parquet needs PyArrow: pip install pyarrow") from None
    cases = export.table(results, summaries)
    names, rows = [column.name for column in cases.columns], cases.rows
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        kinds = {type(v) for v in values if v is not None}
        if kinds == {int, float}:
            values = [None if v is None else float(v) for v in values]
        elif len(kinds) > 1:  # operations that disagree on the type become text
            values = [None if v is None else str(v) for v in values]
        try:
            columns[name] = pyarrow.array(values)
        except (pyarrow.ArrowException, OverflowError):  # an integer of more than 64 bits
            columns[name] = pyarrow.array([None if v is None else str(v) for v in values])
    table = pyarrow.table(columns).replace_schema_metadata({"deepbench_header": json.dumps(results.header)})
    with replacing(path) as draft:
        writer.write_table(table, draft)


def sqlite(results: ResultFile, summaries: Sequence[Summary], path: Path) -> None:
    """Tables `cases` (one row per case), `samples` (case, round, position, seconds) and `header` (JSON)."""
    if path.exists():
        raise BadInput(f"{path} exists; choose another name")
    cases = export.table(results, summaries)
    names, rows = [column.name for column in cases.columns], cases.rows
    quoted = ['"' + name.replace('"', '""') + '"' for name in _unique(names)]
    try:
        with replacing(path) as draft, closing(sqlite3.connect(draft)) as database, database:
            database.execute("create table header (json text)")
            database.execute("insert into header values (?)", (json.dumps(results.header, ensure_ascii=False),))
            database.execute(f"create table cases ({', '.join(quoted) or 'no_cases'})")
            marks = ", ".join("?" * len(names))
            values = ([_value(row.get(name)) for name in names] for row in rows)
            if rows:
                database.executemany(f"insert into cases values ({marks})", values)
            database.execute('create table samples ("case" text, round integer, position integer, seconds real)')
            database.executemany(
                "insert into samples values (?, ?, ?, ?)",
                (
                    (r["case"], r["round"], i, seconds)
                    for s in summaries
                    for r in s.rounds
                    if r["measurement"]
                    for i, seconds in enumerate(r["measurement"]["samples_s"])
                ),
            )
    except sqlite3.Error as error:
        raise BadInput(f"cannot write {path}: {error}; free some space or choose another name") from None


def _unique(names: Sequence[str]) -> list[str]:
    """Distinct column names: SQLite ignores case, so `n` and `N` become `n` and `N_2`."""
    unique: dict[str, str] = {}
    for name in names:
        new, count = name, 1
        while new.lower() in unique:
            count += 1
            new = f"{name}_{count}"
        unique[new.lower()] = new
    return list(unique.values())


def _value(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:  # integers of SQLite have 64 bits
        return str(value)
    return value if isinstance(value, str | int | float | None) else json.dumps(value)
