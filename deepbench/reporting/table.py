"""One table for every output: a terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from deepbench.core import units
from deepbench.core.json_lines import printable, printable_lines, sanitized

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

Cell = str | int | float | None

# Text columns wrap on a narrow terminal, but not to less than this, and words up to the second length stay whole.
LEAST_TEXT_WIDTH = 12
LEAST_PROBLEM = 20  # `5124 × 700 × 2048 NN` is on one line
LONGEST_WORD = 20

# The same where a table is still too wide without the columns that it can spare.
LEAST_TIGHT_WIDTH = 8
LONGEST_TIGHT_WORD = 16

# Rows below a name that they share.
INDENT = 2


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
    of: Callable[[Mapping[str, Cell]], Cell] | None = None
    """What people see of a row instead of the value of this name."""
    least: int = LEAST_TEXT_WIDTH
    """Where text wraps, this is the least width, if there is so much text."""

    @property
    def heading(self) -> str:
        """What people read above the column."""
        return printable(self.title or self.name)


def number(name: str, show: Callable[[Any], str] = str, title: str = "", narrow: int = 0) -> Column:
    """A column of numbers, aligned to the right."""
    return Column(name, show, "right", title, narrow=narrow)


def flop_rates(name: str, unit: tuple[str, float], title: str = "{}", narrow: int = 0) -> Column:
    """A column of FLOP/s, shown in a unit of `units.flop_unit`, which takes the place of `{}` in the title."""
    return number(name, lambda rate: units.significant(rate / unit[1]), title.format(unit[0]), narrow)


class AtMost(float):
    """Seconds that are an upper bound, because other programs disturbed the measurement."""


def time_text(seconds: float) -> str:
    """`12.3 µs`, and `≤ 13 µs` for an upper bound."""
    return units.at_most(seconds) if isinstance(seconds, AtMost) else units.seconds(seconds)


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
    """The footnotes of all notes that occur, one per code, each once."""
    return list(dict.fromkeys({note.code: note.footnote for note in notes if note.footnote}.values()))


@dataclass(frozen=True, repr=False)
class Table:
    """Columns, rows of plain values (times in seconds), and sentences to print below."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Cell]]
    notes: Sequence[str] = ()
    more_for_programs: Sequence[str] = ()
    """Names of values that CSV has after the columns; JSON has every value of a row."""
    shares_names: bool = False
    """Whether a terminal too narrow for one line per row prints a name that several rows share once, above them."""

    def without_empty_columns(self, *kept: str) -> Table:
        """The same table without columns that have no value in any row, except those that are `kept`."""
        filled = {name for row in self.rows for name, value in row.items() if value not in (None, "")}
        return replace(self, columns=[c for c in self.columns if c.name in filled.union(kept)])

    def print(self, console: Console) -> None:
        """Print the table and its notes. On a narrow terminal text wraps and some columns are left out, with a note.

        Numbers are never cut.
        """
        left_out = self.print_rows(console)
        notes = [note for note in self.notes if note.partition(":")[0] not in left_out]
        if left_out:
            notes.append(f"Not shown at this width: {', '.join(dict.fromkeys(left_out))}.")
        print_lines(notes, console)

    def print_rows(self, console: Console) -> list[str]:
        """Print the table alone; the headings of columns that a narrow terminal has no room for."""
        if not console.is_terminal:
            self._print_block(console, self.columns, None)
            return []
        if self.shares_names and self._is_shared(console.width):
            return self._print_below_names(console)
        columns, left_out = self._fitting(self.columns, console.width)
        tight = self._needed(columns) > console.width
        first, *further = self._blocks(columns, console.width)
        self._print_block(console, first, console.width, tight, bool(left_out))
        for block in further:
            console.print()
            self._with_values(block)._print_block(console, block, console.width, tight, bool(left_out))
        return left_out

    def _fitting(self, columns: Sequence[Column], width: int) -> tuple[list[Column], list[str]]:
        """The columns that fit, as far as some can be spared, and the headings of those that were."""
        fitting, left_out = list(columns), []
        while self._needed(fitting) > width and any(c.narrow for c in fitting):
            spare = max(fitting, key=lambda c: c.narrow)
            fitting.remove(spare)
            left_out.append(spare.heading)
        return fitting, left_out

    def _is_shared(self, width: int) -> bool:
        """Whether rows do not fit on one line each, but fit below a name that two or more of them share on average."""
        name, *rest = self.columns
        whole = sum(self._least_width(c) if c.align == "right" else self._width(c) for c in self.columns)
        is_shared = 2 * len({row.get(name.name) for row in self.rows}) <= len(self.rows)
        fits = self._needed(self._fitting(rest, width - INDENT)[0]) <= width - INDENT
        return is_shared and fits and whole + 2 * len(rest) > width

    def _print_below_names(self, console: Console) -> list[str]:
        """Each name on a line of its own, and its rows below; the headings of columns that have no room."""
        from rich.padding import Padding
        from rich.text import Text

        name, *rest = self.columns
        columns, left_out = self._fitting(rest, console.width - INDENT)
        widths = self._widths(columns, console.width - INDENT, False)
        console.print(Text(name.heading, "bold"))
        groups: dict[str, list[Mapping[str, Cell]]] = {}
        for row in self.rows:
            groups.setdefault(_text(name, row), []).append(row)
        console.print(Padding(_grid(columns, widths, []), (0, 0, 0, INDENT), expand=False))
        for text, rows in groups.items():
            grid = _grid(columns, widths, rows)
            grid.show_header = False
            console.print(Text(text))
            console.print(Padding(grid, (0, 0, 0, INDENT), expand=False))
        return left_out

    def _blocks(self, columns: Sequence[Column], width: int) -> list[list[Column]]:
        """The columns, in blocks that fit below each other; each begins with the columns that say what a row is."""
        names, rest = self._names(columns), columns[len(self._names(columns)) :]
        blocks = [names]
        for column in rest:
            if blocks[-1] != names and self._needed([*blocks[-1], column], tight=True) > width:
                blocks.append(names)
            blocks[-1] = [*blocks[-1], column]
        return blocks

    def _names(self, columns: Sequence[Column]) -> list[Column]:
        """The first columns, which say what a row is: up to the first number, but not none."""
        return list(columns[: next((i for i, c in enumerate(columns) if i and c.align == "right"), 1)])

    def _with_values(self, block: Sequence[Column]) -> Table:
        """The rows that have more in a block than their name. A name that is left out below an equal one is added."""
        names = self._names(block)
        rows, above = [], dict[str, Cell]()
        for row in self.rows:
            above |= {c.name: row.get(c.name) for c in names if row.get(c.name) != "" or not c.heading}
            if any(row.get(c.name) not in (None, "") for c in block[len(names) :]):
                rows.append({**row, **above})
        return replace(self, rows=rows)

    def _print_block(
        self,
        console: Console,
        columns: Sequence[Column],
        available: int | None,
        tight: bool = False,
        flush_left: bool = False,
    ) -> None:
        widths = self._widths(columns, available, tight)
        total = sum(widths) + 2 * (len(widths) - 1)
        grid = _grid(columns, widths, self.rows, flush_left=flush_left)
        console.print(grid, soft_wrap=available is None or total > available)

    def _widths(self, columns: Sequence[Column], available: int | None, tight: bool) -> list[int]:
        """The width of each column; where less is available than all need, headings wrap, then the widest texts."""
        widths, least = [self._width(c) for c in columns], [self._least_width(c, tight) for c in columns]
        excess = 0 if available is None else sum(widths) + 2 * (len(columns) - 1) - available
        for _ in range(excess):
            wrapping = [i for i, width in enumerate(widths) if width > least[i]]
            headings = [i for i in wrapping if columns[i].align == "right"]
            if wrapping:
                widths[max(headings or wrapping, key=lambda i: widths[i])] -= 1
        return widths

    def _width(self, column: Column) -> int:
        """The width in which no text of a column wraps."""
        from rich.cells import cell_len

        return max(cell_len(text) for text in [column.heading, *(_text(column, row) for row in self.rows)])

    def _least_width(self, column: Column, tight: bool = False) -> int:
        from rich.cells import cell_len

        texts = [column.heading, *(_text(column, row) for row in self.rows)]
        width = self._width(column)
        if column.whole:
            return width
        longest_word = max((cell_len(word) for text in texts for word in text.split()), default=0)
        if column.align == "right":
            # Numbers stay on one line; their heading may wrap.
            return max(longest_word, *(cell_len(text) for text in texts[1:]), 0)
        least = min(column.least, LEAST_TIGHT_WIDTH) if tight else column.least
        return min(width, max(least, min(longest_word, LONGEST_TIGHT_WORD if tight else LONGEST_WORD)))

    def _needed(self, columns: Sequence[Column], tight: bool = False) -> int:
        """The width of a table of these columns, where text wraps as far as it may."""
        return sum(self._least_width(c, tight) for c in columns) + 2 * (len(columns) - 1)

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
        return (
            json.dumps([sanitized(dict(row)) for row in self.rows], ensure_ascii=False, indent=1, allow_nan=False)
            + "\n"
        )


def _grid(
    columns: Sequence[Column], widths: Sequence[int], rows: Iterable[Mapping[str, Cell]], flush_left: bool = False
) -> RichTable:
    """A table for a terminal, in these widths."""
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    grid.width = sum(widths) + 2 * (len(widths) - 1)  # if more than fits, the terminal wraps entire lines
    for column, width in zip(columns, widths, strict=True):
        grid.add_column(Text(column.heading), justify=column.align, width=width, overflow="fold")
    for row in rows:
        styles = ("bold green" if isinstance(row.get(c.name), Strong) else c.style for c in columns)
        texts = [_text(column, row) for column in columns]
        if flush_left:  # spaces before a word would make it break where the text wraps
            texts = [text.lstrip() for text in texts]
        grid.add_row(*map(Text, texts, styles))  # plain text: what files say is not markup
    return grid


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
            print_lines(part, console)


def print_lines(lines: Iterable[str], console: Console) -> None:
    """Print sentences. A terminal breaks them between words; elsewhere each is one line."""
    for line in lines:
        console.print(printable_lines(line), markup=False, soft_wrap=not console.is_terminal)


def markdown_of(parts: Iterable[Part]) -> str:
    """The same for a Markdown page: sentences become items of a list."""
    texts = (p.markdown() if isinstance(p, Table) else markdown_list(p) for p in parts)
    return "\n".join(filter(None, texts))


def markdown_list(lines: Iterable[str]) -> str:
    """Lines of plain text as items of a Markdown list."""
    return "".join(f"- {escape_markdown(line)}\n" for line in lines)


def _text(column: Column, row: Mapping[str, Cell]) -> str:
    value = row.get(column.name) if column.of is None else column.of(row)
    return "–" if value is None else printable(column.show(value))


def escape_markdown(text: str) -> str:
    """Escape the characters that Markdown gives a meaning, and replace those that a terminal would obey."""
    text = printable(text)
    for character in "\\|`*_<>[]~&":
        text = text.replace(character, "\\" + character)
    return text


def not_a_formula(value: Any) -> Any:
    """The same value; a text that a spreadsheet would run as a formula starts with a quote, and is printable."""
    if isinstance(value, str):
        value = printable(value)
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@"))
    return f"'{value}" if formula else value
