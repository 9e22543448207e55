"""What a verb prints: for people on a console, and the same for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.json_lines import sanitized
from deepbench.reporting.table import Part, Table, markdown_of, print_parts

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Report:
    """Text for people and for programs. Nothing is computed before it is asked for."""

    print: Callable[[Console], None]
    """Writes what people read."""
    forms: Mapping[str, Callable[[], str]]
    """The text in the forms for programs: `json`, `csv` and `markdown`."""

    def text(self, form: str) -> str:
        """The text in one of the forms for programs."""
        return self.forms[form]()

    @classmethod
    def of_table(cls, table: Table) -> Report:
        """A table alone."""
        return cls(table.print, {"json": table.json, "csv": table.csv, "markdown": table.markdown})

    @classmethod
    def of_parts(cls, parts: Sequence[Part], values: Callable[[], Any]) -> Report:
        """Sentences and tables. Markdown has all of them, CSV the last table, and JSON the values."""
        last = [part for part in parts if isinstance(part, Table)][-1]
        forms = {"json": lambda: json_text(values()), "csv": last.csv, "markdown": lambda: markdown_of(parts)}
        return cls(lambda console: print_parts(parts, console), forms)


def json_text(content: Any) -> str:
    """Any value as JSON for programs."""
    return json.dumps(sanitized(content), ensure_ascii=False, indent=1) + "\n"
