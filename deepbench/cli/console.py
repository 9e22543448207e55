"""What several commands print: machine, libraries, tables."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deepbench.api.text import command, printable_lines, sanitized
from deepbench.cli.streams import print_for_programs, warn

if TYPE_CHECKING:
    from rich.console import Console

    from deepbench.api.measuring import Bar, Load, LoadWatch
    from deepbench.api.results import FileResults, Part, Report, Table


def make_console(quiet: bool = False, to_read: bool = False) -> Console:
    """Standard output. Control characters in texts, which files and their names may have, are replaced.

    What a person only reads (`to_read`), perhaps with `less`, fits 80 columns where there is no terminal, or as many as
    COLUMNS says. The output of other commands, whose progress belongs to a terminal, is not wrapped there.
    """
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        def render(self, *what: Any, **options: Any) -> Iterator[Segment]:
            for segment in super().render(*what, **options):
                # Rich's own controls, such as those that move the cursor, are marked.
                yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)

    if sys.stdout.isatty() or not to_read:
        # Piped output is plain and its lines are not wrapped.
        return PrintableConsole(width=None if sys.stdout.isatty() else 400, highlight=False, quiet=quiet)
    # Tables fit as on a terminal, and are plain all the same.
    return PrintableConsole(width=piped_width(), force_terminal=True, color_system=None, highlight=False, quiet=quiet)


# The texts about a machine and its libraries begin in this column, after a label.
INDENT = 11

# Lines for people are not made longer than this, which is hard to read.
WIDEST = 120


def piped_width() -> int:
    """Columns of output that is not on a terminal: what COLUMNS says, else 80."""
    text = os.environ.get("COLUMNS", "")
    return min(max(40, int(text)), 1000) if text.isascii() and text.isdigit() and len(text) < 6 else 80


def width_for_people() -> int:
    """Columns of the terminal, or what COLUMNS says; 80 where there is neither."""
    import shutil

    return max(40, min(shutil.get_terminal_size((80, 24)).columns, WIDEST))


def fitted(label: str, text: str, width: int) -> str:
    """`label` and `text` in lines of this width: broken between words, and indented below the first word of `text`.

    A word that is longer, such as a path, stays whole.
    """
    import textwrap

    indent = " " * len(label)
    return textwrap.fill(
        text, width, initial_indent=label, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def print_labelled(console: Console, label: str, text: str, style: str | None = None) -> None:
    """A label and a text, which a terminal breaks and indents as `fitted` does."""
    label = f"{label:{INDENT - 1}} "
    lines = fitted(label, text, min(console.width, WIDEST)) if console.is_terminal else label + text
    console.print(lines, style=style, markup=False, soft_wrap=True)


def print_load(console: Console, watch: LoadWatch) -> Load:
    """One line if other programs use the CPUs. What they use."""
    load = watch.load()
    if text := _load_text(load):
        print_labelled(console, "busy", text, style="bold yellow")
    return load


def print_unused(console: Console, used: Collection[str]) -> None:
    """One line for GPUs that are here and that a run on these devices does not measure."""
    from deepbench.api.machine import accelerators

    for group in accelerators():
        if group.device not in used:
            measured, advice = " and ".join(sorted(used)), command("run", "--device", group.device)
            text = f"{group}, not measured: this run is for {measured}; to measure it: {advice}"
            print_labelled(console, "GPU", text)


def load_text(watch: LoadWatch) -> str | None:
    """What other programs use, and what that does to measurements; None if they are quiet."""
    return _load_text(watch.load())


def _load_text(load: Load) -> str | None:
    sentence = load.sentence
    advice = "disturbed times are upper bounds (≤, D). Better stop these programs first, or run later."
    return f"{sentence}; {advice}" if sentence else None


def warn_of_gaps(results: FileResults) -> None:
    """Say on standard error which lines of a file were left out."""
    for text in results.gaps:
        warn(text)


def print_head(console: Console, results: FileResults, environment: Mapping[str, str] | None = None) -> None:
    """Machine, libraries and how much there is; what belongs to a kind of file comes from it.

    `environment` is that of a session which has not measured yet.
    """
    for label, text in results.heading(environment):
        print_labelled(console, label, text)


def print_machine(console: Console, machine: Mapping[str, Any]) -> None:
    """CPU, cores, memory and system; then the instructions."""
    from deepbench.api.machine import machine_lines

    for label, text in machine_lines(machine):
        print_labelled(console, label, text)


def print_table(table: Table, form: str | None) -> None:
    """A table in the form that was asked for; None: for people."""
    if form is not None:
        print_for_programs({"json": table.json, "csv": table.csv, "markdown": table.markdown}[form]())
    else:
        table.print(make_console(to_read=True))


def print_text(report: Report, form: str | None) -> None:
    """What a verb has to say, in the form that was asked for; None: for people."""
    if form is not None:
        print_for_programs(report.text(form))
    else:
        report.print(make_console(to_read=True))


def print_lines_and_tables(parts: Sequence[Part], console: Console) -> None:
    """Sentences and tables with blank lines between."""
    from deepbench.api.results import print_parts

    print_parts(parts, console)


def print_summary(lines: Sequence[tuple[str, str]]) -> None:
    """Labels and sentences above a table."""
    console = make_console()
    for label, text in lines:
        print_labelled(console, label, text)
    console.print()


def print_json(content: Any) -> None:
    """Any value, for programs."""
    print_for_programs(json.dumps(sanitized(content), ensure_ascii=False, indent=1) + "\n")


def progress_bar(console: Console | None = None) -> Bar:
    """A bar with the time left, on this console or on standard error."""
    from deepbench.api.measuring import Bar

    return Bar(console)
