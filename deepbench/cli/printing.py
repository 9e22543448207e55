"""What several commands print: the console, and who was measured."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from deepbench.report.table import Table
    from deepbench.results.file import ResultFile


def make_console(quiet: bool = False) -> Console:
    """For standard output."""
    from rich.console import Console

    # Piped output is plain and is not folded to some width nobody asked for.
    return Console(width=None if sys.stdout.isatty() else 400, highlight=False, quiet=quiet)


def print_head(console: Console, found: ResultFile) -> None:
    """Machine, libraries, number of cases: a reader of a log must never wonder which library it was."""
    header = found.header
    print_machine(console, header["machine"])
    used = {word for planned in header["plan"]["cases"] for word in planned["case"].split()}
    cards = [a["library"].get("card") for n, a in header["libraries"].items() if n in used and "library" in a]
    if card := next((c for c in cards if isinstance(c, dict)), None):
        print_card(console, card)
    for name, answer in header["libraries"].items():
        if name in used:
            print_library(console, _title(name), answer)
    plan_line = header["plan"]
    rounds = plan_line["rounds"]
    times = f"{rounds['least']}" if rounds["least"] == rounds["most"] else f"{rounds['least']} to {rounds['most']}"
    how = f"each measured in {times} fresh process{'es' if times != '1' else ''} ({plan_line['mode']}), to {found.path}"
    if plan_line["mode"] == "imported":
        how = f"{header['tool'].partition(', ')[2]}: its times, in {found.path}"
    console.print(f"cases      {len(plan_line['cases'])}, {how}", markup=False)


def _title(name: str) -> str:
    from deepbench.report.names import library_name

    return library_name(name)


def print_machine(console: Console, machine: Mapping[str, Any]) -> None:
    """CPU, cores, memory, system and instructions, on two lines."""
    from deepbench.core import units

    allowed = machine.get("cores_allowed")
    has = [i for i in machine.get("instructions") or [] if re.match(r"avx|amx|sve|sme|asimd|bf16|i8mm", i)]
    parts = [
        machine.get("cpu"),
        f"{allowed} core{'s' if allowed != 1 else ''}" if allowed else None,
        units.data_bytes(machine["memory_bytes"]) if machine.get("memory_bytes") else None,
        machine.get("system"),
    ]
    console.print(f"machine    {', '.join(str(p) for p in parts if p) or 'not said'}", markup=False)
    if has:
        console.print(f"           {' '.join(has)}", markup=False)


def print_library(console: Console, title: str, answer: Mapping[str, Any]) -> None:
    """One line: which version from where, or why it is not here."""
    if "library" in answer:
        library = answer["library"]
        about = ", ".join(filter(None, (library["version"], library.get("threading"))))
        text = f"{about}  {library['path'] or ''}".strip() or str(library["name"])
    else:
        missing = answer["unavailable"]
        text = f"not here: {missing['reason']}\n{'':11}remedy: {missing['remedy']}"
    console.print(f"{title:10} {text}", markup=False, soft_wrap=True)


def print_card(console: Console, card: dict[str, Any]) -> None:
    """One line about a GPU."""
    from deepbench.core import units

    parts = [
        f"{card.get('vendor')} {card.get('name')}".replace("NVIDIA NVIDIA", "NVIDIA"),
        f"{card.get('processors')} multiprocessors",
        units.data_bytes(card.get("memory_bytes")),
        f"driver {card.get('driver')}",
    ]
    console.print(f"card       {', '.join(parts)}", markup=False)


def print_table(console: Console, found: ResultFile, full: bool) -> None:
    """The table of cases."""
    from deepbench.judge import limits
    from deepbench.report import cases
    from deepbench.results.summary import summarize

    console.print()
    summaries = summarize(found.records, found.order)
    known = limits.of_file(found, summaries)
    table = cases.library_table(summaries, known, repeat=False) if full else cases.fastest_table(summaries, known)
    table.print(console)


def print_view(view: Table, form: str | None) -> None:
    """A table in the form that was asked for; None: a table for people."""
    if form is not None:
        print({"json": view.json, "csv": view.csv, "markdown": view.markdown}[form](), end="")
        return
    view.print(make_console())


@dataclass
class Step:
    """What starts now, and how far the work is."""

    text: str
    done: int = 0
    total: int | None = None
    left_s: float | None = None


@contextmanager
def steps_bar(console: Console, steps: int) -> Iterator[Any]:
    """A bar whose steps are counted here: call it with what has ended, and how many steps there are by now."""
    from deepbench.report.progress import Bar

    done = 0

    def step(what: str, total: int) -> None:
        nonlocal done
        done += 1
        bar(Step(what, done, total))

    with Bar(console) as bar:
        bar(Step("", 0, steps))
        yield step
