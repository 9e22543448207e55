"""One table for every output: a terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from deepbench.core.json_lines import printable

if TYPE_CHECKING:
    from rich.console import Console

Cell = str | int | float | None

# Text columns wrap on a narrow terminal, but not to less than this, and words up to the second length stay whole.
LEAST_TEXT_WIDTH = 12
LONGEST_WORD = 20


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    """The key of its values in a row, and its name in CSV and JSON."""
    show: Callable[[Any], str] = str
    """Formats a value for people; `None` is always shown as a dash."""
    align: Literal["left", "right"] = "left"
    title: str = ""
    """The heading for people, where it is not the name."""
    style: str = ""
    """Colour in a terminal."""
    narrow: int = 0
    """Where it is above 0, a terminal that is too narrow shows no such column; the highest goes first."""
    whole: bool = False
    """Whether its text never wraps; numbers never do."""
    least: int = LEAST_TEXT_WIDTH
    """Where text wraps, this is the least width, if there is so much text."""

    @property
    def heading(self) -> str:
        """What people read above the column."""
        return self.title or self.name


def number(name: str, show: Callable[[Any], str] = str, title: str = "", narrow: int = 0) -> Column:
    """A column of numbers, aligned to the right."""
    return Column(name, show, "right", title, narrow=narrow)


class Strong(str):
    """Text to emphasize in a terminal and in Markdown, such as the fastest library."""


@dataclass(frozen=True)
class Note:
    """A remark on a case, shown in the column `notes`."""

    code: str
    """Stable name, for programs."""
    text: str
    """What the cell says."""
    footnote: str = ""
    """The sentence below the table that explains it; empty where the text needs none."""
    flag: str = ""
    """The letter for tables that have a column of flags; empty for what is no reason for distrust."""


def footnotes(notes: Iterable[Note]) -> list[str]:
    """The footnotes of all notes that occur, one per code."""
    return list({note.code: note.footnote for note in notes if note.footnote}.values())


@dataclass(frozen=True, repr=False)
class Table:
    """Columns, rows of plain values (times in seconds), and sentences to print below."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Cell]]
    notes: Sequence[str] = ()
    more_for_programs: Sequence[str] = ()
    """Names of values that CSV has after the columns; JSON has every value of a row."""

    def without_empty_columns(self) -> Table:
        """The same table without columns that have no value in any row."""
        columns = [c for c in self.columns if any(row.get(c.name) not in (None, "") for row in self.rows)]
        return replace(self, columns=columns)

    def print(self, console: Console) -> None:
        """Print the table and its notes. On a narrow terminal text wraps and some columns are left out, with a note.

        Numbers are never cut.
        """
        left_out = self.print_rows(console)
        notes = [note for note in self.notes if note.partition(":")[0] not in left_out]
        if left_out:
            notes.append(f"Not shown at this width: {', '.join(dict.fromkeys(left_out))}.")
        for line in notes:
            console.print(line, markup=False, soft_wrap=not console.is_terminal)

    def print_rows(self, console: Console) -> list[str]:
        """Print the table alone; the headings of columns that a narrow terminal has no room for."""
        from rich.table import Table as RichTable
        from rich.text import Text

        columns = list(self.columns)
        left_out = []
        if console.is_terminal:
            while self._needed(columns) > console.width and any(c.narrow for c in columns):
                spare = max(columns, key=lambda c: c.narrow)
                columns.remove(spare)
                left_out.append(spare.heading)
        cells = [[_text(column, row) for column in columns] for row in self.rows]
        needed = self._needed(columns)
        widths = self._widths(columns, max(needed, console.width) if console.is_terminal else None)
        table = RichTable(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        table.width = sum(widths) + 2 * (len(widths) - 1)  # if more than fits, the terminal wraps entire lines
        for column, width in zip(columns, widths, strict=True):
            table.add_column(Text(column.heading), justify=column.align, width=width, overflow="fold")
        for row, texts in zip(self.rows, cells, strict=True):
            styles = ("bold green" if isinstance(row.get(c.name), Strong) else c.style for c in columns)
            if left_out:  # spaces before a word would make it break where the text wraps
                texts = [text.lstrip() for text in texts]
            table.add_row(*map(Text, texts, styles))  # plain text: what files say is not markup
        console.print(table, soft_wrap=not console.is_terminal or needed > console.width)
        return left_out

    def _widths(self, columns: Sequence[Column], available: int | None) -> list[int]:
        """The width of each column; where less is available than all need, the widest texts wrap first."""
        widths, least = [self._width(c) for c in columns], [self._least_width(c) for c in columns]
        excess = 0 if available is None else sum(widths) + 2 * (len(columns) - 1) - available
        for _ in range(excess):
            wrapping = [i for i, width in enumerate(widths) if width > least[i]]
            if wrapping:
                widths[max(wrapping, key=lambda i: widths[i])] -= 1
        return widths

    def _width(self, column: Column) -> int:
        """The width in which no text of a column wraps."""
        from rich.cells import cell_len

        return max(cell_len(text) for text in [column.heading, *(_text(column, row) for row in self.rows)])

    def _least_width(self, column: Column) -> int:
        from rich.cells import cell_len

        texts = [column.heading, *(_text(column, row) for row in self.rows)]
        width = self._width(column)
        if column.align == "right" or column.whole:
            return width
        longest_word = max((cell_len(word) for text in texts for word in text.split()), default=0)
        return min(width, max(column.least, min(longest_word, LONGEST_WORD)))

    def _needed(self, columns: Sequence[Column]) -> int:
        """The width of a table of these columns, where text wraps as far as it may."""
        return sum(map(self._least_width, columns)) + 2 * (len(columns) - 1)

    def __str__(self) -> str:
        return plain_text(self.print)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For a notebook."""
        head = "".join(f"<th>{escape(c.heading)}</th>" for c in self.columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(_text(c, row))}</td>' for c in self.columns)}</tr>" for row in self.rows
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def markdown(self) -> str:
        """For a Markdown page."""
        lines = [
            f"| {' | '.join(escape_markdown(c.heading) for c in self.columns)} |",
            f"|{'|'.join('---:' if c.align == 'right' else '---' for c in self.columns)}|",
        ]
        for row in self.rows:
            texts = (escape_markdown(_text(c, row)) for c in self.columns)
            strong = (isinstance(row.get(c.name), Strong) for c in self.columns)
            lines.append(f"| {' | '.join(f'**{t}**' if s else t for t, s in zip(texts, strong, strict=True))} |")
        return "\n".join([*lines, "", *([markdown_list(self.notes)] if self.notes else [])])

    def csv(self) -> str:
        """For spreadsheets: plain values, times in seconds."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [*(c.name for c in self.columns), *self.more_for_programs]
        writer.writerow(map(not_a_formula, names))
        writer.writerows([not_a_formula(row.get(name)) for name in names] for row in self.rows)
        return text.getvalue()

    def json(self) -> str:
        """For programs: a list of objects, times in seconds."""
        return json.dumps(self.rows, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def plain_text(show: Callable[[Console], None]) -> str:
    """What `show` prints on a console, without colours."""
    import shutil

    from rich.console import Console

    text = io.StringIO()
    show(Console(file=text, width=shutil.get_terminal_size((120, 24)).columns, highlight=False))
    return text.getvalue().rstrip()


Part = Table | Sequence[str]
"""A table, or sentences of one line each."""


def print_parts(parts: Iterable[Part], console: Console) -> None:
    """Print tables and sentences with blank lines between; empty parts are left out."""
    for i, part in enumerate(p for p in parts if (p.rows if isinstance(p, Table) else p)):
        if i:
            console.print()
        if isinstance(part, Table):
            part.print(console)
        else:
            for line in part:
                console.print(line, markup=False, soft_wrap=not console.is_terminal)


def markdown_of(parts: Iterable[Part]) -> str:
    """The same for a Markdown page: sentences become items of a list."""
    texts = (p.markdown() if isinstance(p, Table) else markdown_list(p) for p in parts)
    return "\n".join(filter(None, texts))


def markdown_list(lines: Iterable[str]) -> str:
    """Lines of plain text as items of a Markdown list."""
    return "".join(f"- {escape_markdown(line)}\n" for line in lines)


def _text(column: Column, row: Mapping[str, Cell]) -> str:
    value = row.get(column.name)
    return "–" if value is None else column.show(value)


def escape_markdown(text: str) -> str:
    """Escape the characters that Markdown gives a meaning, and replace those that a terminal would obey."""
    text = printable(text)
    for character in "\\|`*_<>[]~&":
        text = text.replace(character, "\\" + character)
    return text


def not_a_formula(value: Any) -> Any:
    """The same value; a text that a spreadsheet would run as a formula starts with a quote."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@"))
    return f"'{value}" if formula else value
