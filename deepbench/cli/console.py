"""What several commands print: machine, libraries, tables."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deepbench.cli.streams import print_for_programs, printable_lines, warn
from deepbench.core import units, variables
from deepbench.core.json_lines import sanitized
from deepbench.machine import microarchitecture

if TYPE_CHECKING:
    from rich.console import Console

    from deepbench.applications.judge.serving import Served
    from deepbench.fleets.file import FleetFile
    from deepbench.machine.doctor import LoadWatch
    from deepbench.reporting.output import Report
    from deepbench.reporting.table import Part, Table
    from deepbench.results.file import ResultFile


def make_console(quiet: bool = False) -> Console:
    """Standard output. Control characters in texts, which file names may have, are replaced."""
    from rich.console import Console

    class PrintableConsole(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*(printable_lines(o) if isinstance(o, str) else o for o in objects), **options)

    # Piped output is plain and its lines are not wrapped.
    return PrintableConsole(width=None if sys.stdout.isatty() else 400, highlight=False, quiet=quiet)


# The texts about a machine and its libraries begin in this column, after a label.
INDENT = 11

# Lines for people are not made longer than this, which is hard to read.
WIDEST = 120


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


def warn_of_gaps(file: ResultFile | FleetFile) -> None:
    """Say on standard error which lines of a file were left out."""
    from deepbench.results.file import damage_text

    if file.damaged:
        print(f"deepbench: {file.path}: left out {damage_text(file.damaged)}", file=sys.stderr)
    if file.truncated:
        warn(f"{file.path}: the last line is incomplete and was ignored")


def print_head(console: Console, file: ResultFile, environment: Mapping[str, str] | None = None) -> None:
    """Machine, libraries and number of cases: a reader of a log must know which library it was.

    `environment` is that of a session which has not measured yet.
    """
    from deepbench.reporting.limits import library_name
    from deepbench.results.file import damage_text

    header = file.header
    print_machine(console, header["machine"])
    used = {word for planned in header["plan"]["cases"] for word in planned["case"].split()}
    cards = [a["library"].get("card") for n, a in header["libraries"].items() if n in used and "library" in a]
    if card := next((c for c in cards if isinstance(c, dict)), None):
        print_card(console, card)
    for name, answer in header["libraries"].items():
        if name in used:
            print_library(console, library_name(name), answer)
    if chosen := file.chosen_variables | variables.chosen(environment or {}):
        text = ", ".join(f"{name}={value}" for name, value in chosen.items())
        print_labelled(console, "variables", f"{text}: set by the user; they change what libraries do")
    plan = header["plan"]
    if file.has_applications:
        runs, ended = len(plan["training"]), sum("end" in event for event in file.training)
        text = f"{runs}" if ended in (0, runs) else f"{ended} of {runs} ended"
        print_labelled(console, "runs", f"{text}, file {file.path}")
        return
    if plan["mode"] == "imported":
        how = f"times of {header['tool'].partition(', imported from ')[2]}"
    else:
        least, most = plan["rounds"]["least"], plan["rounds"]["most"]
        processes = f"{least}" if least == most else f"{least} to {most}"
        how = f"{processes} process{'es' if processes != '1' else ''} per case, mode {plan['mode']}"
    count, measured = len(plan["cases"]), len({r["case"] for r in file.records})
    cases = f"{count}" if measured in (0, count) else f"{measured} of {count} measured"
    print_labelled(console, "cases", f"{cases}, {how}, file {file.path}")
    if file.damaged:
        print_labelled(console, "left out", damage_text(file.damaged))


def print_load(console: Console, watch: LoadWatch) -> None:
    """One line if other programs use the CPUs."""
    if text := load_text(watch):
        print_labelled(console, "busy", text, style="bold yellow")


def load_text(watch: LoadWatch) -> str | None:
    """What other programs use, and what that does to measurements; None if they are quiet."""
    sentence = watch.load().sentence
    advice = "disturbed times will be marked. Better stop these programs first, or run later."
    return f"{sentence}; {advice}" if sentence else None


def print_machine(console: Console, machine: Mapping[str, Any]) -> None:
    """CPU, cores, memory and system; then the instructions."""
    about, instructions = machine_texts(machine)
    print_labelled(console, "machine", about)
    if instructions:
        print_labelled(console, "", instructions)


def machine_texts(machine: Mapping[str, Any]) -> tuple[str, str]:
    """CPU, cores, memory and system; and the instructions that decide which kernels libraries choose."""
    cores, hypervisor = machine.get("cores_allowed"), machine.get("hypervisor")
    instructions = [i for i in machine.get("instructions") or [] if re.match(r"avx|amx|sve|sme|asimd|bf16|i8mm", i)]
    parts = [
        machine.get("cpu"),
        microarchitecture.of_machine(machine),
        {True: "virtual machine", False: "not virtual"}.get(hypervisor) if isinstance(hypervisor, bool) else None,
        f"{cores} core{'s' if cores != 1 else ''}" if cores else None,
        units.data_bytes(machine["memory_bytes"]) if machine.get("memory_bytes") else None,
        machine.get("system"),
    ]
    return ", ".join(str(p) for p in parts if p) or "unknown", " ".join(instructions)


def print_library(console: Console, title: str, answer: Mapping[str, Any]) -> None:
    """One line: version and path, or why the library is missing and what to do."""
    if "library" in answer:
        library = answer["library"]
        about = ", ".join(filter(None, (library["version"], threading_text(library))))
        print_labelled(console, title, f"{about}  {library['path'] or ''}".strip() or str(library["name"]))
    else:
        missing = answer["unavailable"]
        print_labelled(console, title, f"not found: {missing['reason']}")
        print_labelled(console, "", f"to fix: {missing['remedy']}")


def threading_text(library: Mapping[str, Any]) -> str | None:
    """How a library uses threads."""
    return "one thread" if library.get("threading") == "none" else library.get("threading")


def print_card(console: Console, card: dict[str, Any]) -> None:
    """One line about a GPU."""
    print_labelled(console, "GPU", card_text(card))


def card_text(card: Mapping[str, Any]) -> str:
    """Name, size and driver of a GPU."""
    parts = [
        f"{card.get('vendor')} {card.get('name')}".replace("NVIDIA NVIDIA", "NVIDIA"),
        f"{card.get('processors')} multiprocessors",
        units.data_bytes(card.get("memory_bytes")),
        f"driver {card.get('driver')}",
    ]
    return ", ".join(parts)


def print_table(table: Table, form: str | None) -> None:
    """A table in the form that was asked for; None: for people."""
    if form is not None:
        print_for_programs({"json": table.json, "csv": table.csv, "markdown": table.markdown}[form]())
    else:
        table.print(make_console())


def print_report(parts: Sequence[Part], form: str | None) -> None:
    """Sentences and tables for people or as Markdown; CSV has the last table."""
    from deepbench.reporting.table import Table, markdown_of, print_parts

    if form == "csv":
        print_table([part for part in parts if isinstance(part, Table)][-1], form)
    elif form == "markdown":
        print_for_programs(markdown_of(parts))
    else:
        print_parts(parts, make_console())


def print_text(report: Report, form: str | None) -> None:
    """What a verb has to say, in the form that was asked for; None: for people."""
    if form is not None:
        print_for_programs(report.text(form))
    else:
        report.print(make_console())


def print_summary(lines: Sequence[tuple[str, str]]) -> None:
    """Labels and sentences above a table."""
    console = make_console()
    for label, text in lines:
        print_labelled(console, label, text)
    console.print()


def print_json(content: Any) -> None:
    """Any value, for programs."""
    print_for_programs(json.dumps(sanitized(content), ensure_ascii=False, indent=1) + "\n")


def print_served(found: Sequence[Served]) -> None:
    """Models that answer queries: a table, and batches against latency."""
    from deepbench.applications.reporting import serving

    console = make_console()
    console.print()
    serving.table(found).print(console)
    for line in serving.batch_lines(found):
        console.print(line, markup=False, soft_wrap=True)
