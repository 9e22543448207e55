"""`deepbench info`: this machine, its libraries, and what they support."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from deepbench.cli.console import (
    INDENT,
    card_text,
    fitted,
    machine_texts,
    make_console,
    print_json,
    threading_text,
    width_for_people,
)
from deepbench.cli.options import one_of
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say

DEFAULT_DEVICE = "cpu"

# They run anything that an operation allows, and are no libraries.
OWN_BACKENDS = ("null", "reference")

# What the libraries of a device are called.
LIBRARIES_OF = {"cpu": "CPU libraries", "cuda": "NVIDIA libraries", "hip": "AMD libraries"}

DETAILS = "deepbench info --verbose"


@cli.command(context_settings=HELP, short_help="Show this machine, its libraries, and how to get missing ones.")
@one_of(
    "view",
    matrix="Which library supports which operation, precision and direction.",
    doctor="What makes measurements on this machine noisy or slow, and how to fix it.",
    verbose="The path of each library; for each missing one, the reason and the remedy.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def info(view: str | None, as_json: bool) -> None:
    """Show this machine and its libraries. Those that are missing follow, together where the reason is the same.

    \b
    Examples:
      deepbench info --verbose
      deepbench info --matrix
    """
    if view == "doctor":
        _examine(as_json)
        return
    table = _matrix()
    if view == "matrix" and not as_json:
        _print_matrix(table)
        return
    from deepbench.core.backend import all_backends
    from deepbench.machine import describe
    from deepbench.measuring.session import open_libraries
    from deepbench.native import callloop

    machine, libraries = describe.describe_machine(), open_libraries(list(all_backends()))
    compiled = callloop.native_library() is not None
    if as_json:
        answers = {n: {k: v for k, v in a.items() if k in ("library", "unavailable")} for n, a in libraries.items()}
        loop = "native" if compiled else "python"
        facts = {"machine": machine, "libraries": answers, "loop": loop, "precisions": _precisions(), "support": table}
        print_json(facts)
        return
    width = width_for_people()
    blocks = [_about_machine(machine, libraries, compiled), *_present(libraries, view == "verbose")]
    missing = {name: answer["unavailable"] for name, answer in libraries.items() if "unavailable" in answer}
    if missing:
        blocks.append([*(_each_missing(missing) if view == "verbose" else _missing_together(missing))])
    blocks.append([("", _rule())])
    say("\n\n".join("\n".join(fitted(label, text, width) for label, text in block) for block in blocks))


def _about_machine(machine: Mapping[str, Any], libraries: Mapping[str, Any], compiled: bool) -> list[tuple[str, str]]:
    """Labels and texts about what the libraries run on."""
    about, instructions = machine_texts(machine)
    slow = "Python, about 0.5 µs per call: no C compiler at installation; install gcc, then deepbench again"
    cards = [answer.get("library", {}).get("card") for answer in libraries.values()]
    lines = [
        ("machine", about),
        ("", instructions),
        *(("GPU", card_text(card)) for card in {card["bus_id"]: card for card in cards if card}.values()),
        ("call loop", "compiled" if compiled else slow),
    ]
    return [(f"{label:{INDENT}}", text) for label, text in lines if text]


def _present(libraries: Mapping[str, Any], verbose: bool) -> Iterator[list[tuple[str, str]]]:
    """A block for each device that has libraries here: the word for --backend, then title and version."""
    from deepbench.core.backend import find_backend

    here = {name: answer["library"] for name, answer in libraries.items() if "library" in answer}
    for device, title in LIBRARIES_OF.items():
        names = [name for name in here if find_backend(name).device == device]
        # What is no library comes last.
        names.sort(key=lambda name: name in OWN_BACKENDS)
        lines = []
        for name in names:
            library = here[name]
            about = " ".join(filter(None, (find_backend(name).title, library["version"])))
            lines.append((f"  {name:{INDENT}} ", ", ".join(filter(None, (about, threading_text(library))))))
            if verbose and library["path"]:
                lines.append((" " * (INDENT + 3), library["path"]))
        if lines:
            yield [("", f"{title} (--device {device})" if device != DEFAULT_DEVICE else title), *lines]


def _each_missing(missing: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Every missing library with its own reason and remedy."""
    yield "", "missing"
    for name, answer in missing.items():
        yield f"  {name:{INDENT}} ", answer["reason"]
        yield " " * (INDENT + 3) + "→ ", answer["remedy"]


def _missing_together(missing: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """A line for each reason, with the libraries concerned and one remedy."""
    yield "", f"missing (each with its reason and remedy: {DETAILS})"
    for group in missing_groups(missing):
        yield "  ", f"{group.libraries}: {group.reason} ({', '.join(group.names)})"
        yield "    → ", group.remedy


@dataclass(frozen=True)
class Missing:
    """Libraries that are missing for one reason."""

    libraries: str
    """What they are, as in `LIBRARIES_OF`."""
    reason: str
    names: tuple[str, ...]
    remedy: str


def missing_groups(missing: Mapping[str, Mapping[str, str]]) -> list[Missing]:
    """Missing libraries by device and short reason. `missing` has `reason` and `remedy` of each."""
    from deepbench.core.backend import find_backend

    names: dict[tuple[str, str], list[str]] = {}
    for name, answer in missing.items():
        names.setdefault((find_backend(name).device, short_reason(answer["reason"])), []).append(name)
    return [
        Missing(LIBRARIES_OF[device], reason, tuple(group), one_remedy([missing[name]["remedy"] for name in group]))
        for (device, reason), group in names.items()
    ]


def short_reason(reason: str) -> str:
    """`MKL not found (looked in …)` → `not installed`. Where something was searched is left to `--verbose`."""
    if (named := re.search(r"(DEEPBENCH_\w+)=", reason)) and os.environ.get(named[1]):
        return f"not found where {named[1]} says"
    if failed := re.match(r"the process that loaded \S+ failed: (.*?)(?: during: .*)?$", reason):
        return f"loading failed: {failed[1]}"
    if no_driver := re.match(r"no (\w+) GPU here: .* not found\b", reason):
        return f"no {no_driver[1]} driver"
    head = reason.partition(" (")[0]
    return "not installed" if head.endswith(" not found") else head


def one_remedy(remedies: Sequence[str]) -> str:
    """What helps all of these libraries in one sentence, if it can be said in one."""
    if len(set(remedies)) == 1:
        return remedies[0]
    # How to name a file in a variable differs from library to library.
    short = list(dict.fromkeys(remedy.partition(", or name ")[0] for remedy in remedies))
    if len(short) == 1:
        return short[0]
    from_index = [m for text in short if (m := re.fullmatch(r"pip install ([\w -]+?)(?: \(.*\))?", text))]
    packages = dict.fromkeys(package for match in from_index for package in match[1].split())
    if not packages:
        return f"each has a remedy of its own: {DETAILS}"
    rest = "" if len(from_index) == len(short) else f"; the others have remedies of their own: {DETAILS}"
    return f"pip install {' '.join(packages)}{rest}"


def _precisions() -> list[dict[str, Any]]:
    """Every precision with its types, and why it does not meet the minimum where it does not."""
    from deepbench.core.precision import PRECISIONS

    uses = {"below_minimum_for_training": True, "below_minimum_for_inference": False}
    return [
        {"name": p.name, **p.types(), **{name: p.below_minimum(is_training) for name, is_training in uses.items()}}
        for p in PRECISIONS.values()
    ]


def _rule() -> str:
    """The minimum precision, and the precisions that do not meet it for any use."""
    from deepbench.core.precision import MINIMUM

    below = [f"{p['name']} ({why})" for p in _precisions() if (why := p["below_minimum_for_inference"])]
    return f"minimum precision: {MINIMUM}. Below it: {', '.join(below)}."


def _examine(as_json: bool) -> None:
    """Print what the doctor finds, problems first."""
    from dataclasses import asdict

    from deepbench.core.backend import all_backends
    from deepbench.machine import doctor
    from deepbench.measuring.session import open_libraries

    libraries = open_libraries([n for n, b in all_backends().items() if b.default])
    findings = [*doctor.examine(), doctor.openmp(libraries)]
    if as_json:
        print_json([asdict(f) for f in findings])
        return
    width = width_for_people()
    problems = [f for f in findings if not f.good]
    for f in [*problems, *(f for f in findings if f.good)]:
        say(fitted(f"{'✓' if f.good else '✗'} {f.what:17} ", f.text, width))
        if f.remedy:
            say(fitted(f"{'':20}→ ", f.remedy, width))
    count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}" if problems else "no problem"
    ending = f"{count} found; nothing was changed. deepbench selftest shows how small a change can be detected here."
    say(f"\n{fitted('', ending, width)}")


def _matrix() -> list[dict[str, Any]]:
    """Rows of the support table, read from the marks of the libraries' methods."""
    from deepbench.core.backend import all_backends
    from deepbench.core.op import all_ops
    from deepbench.core.precision import PRECISIONS

    return [
        {
            "op": op.name,
            "direction": direction,
            "precision": name,
            "backends": [b.name for b in all_backends().values() if b.supports(op.name, name, direction)],
        }
        for op in all_ops().values()
        for direction in op.directions
        for name in PRECISIONS
    ]


def _print_matrix(rows: list[dict[str, Any]]) -> None:
    from deepbench.core.backend import all_backends
    from deepbench.core.op import find_op
    from deepbench.reporting.table import Column, Table, print_lines

    console = make_console()
    columns = [Column("library", whole=True), Column("operation", whole=True), Column("direction"), Column("precision")]
    for device, group in itertools.product(LIBRARIES_OF, (False, True)):
        names = [n for n, b in all_backends().items() if b.device == device and n not in OWN_BACKENDS]
        of_kind = [row for row in rows if find_op(row["op"]).is_group == group]
        table = [line for name in names for line in _supported(name, of_kind)]
        if table:
            words = f" (--device {device})" if device != DEFAULT_DEVICE else ""
            more = ", one process per rank" if group else ""
            console.print(f"{LIBRARIES_OF[device]}{words}{more}", style="bold", markup=False)
            Table(columns, table).print(console)
            console.print()
    below = "The library has a kernel for it. Whether it runs on this machine shows when it is measured."
    own = f"{' and '.join(OWN_BACKENDS)} are no libraries; they serve every operation that runs in one process."
    print_lines([below, own, _rule()], console)


def _supported(name: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """A row for each operation of a library; directions with the same precisions share one."""
    precisions: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if name in row["backends"]:
            precisions.setdefault((row["op"], row["direction"]), []).append(row["precision"])
    directions: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (op, direction), words in precisions.items():
        directions.setdefault((op, tuple(words)), []).append(direction)
    found = [
        {"library": name, "operation": op, "direction": ", ".join(names), "precision": " ".join(words)}
        for (op, words), names in directions.items()
    ]
    for above, line in reversed(list(itertools.pairwise(found))):
        # Each library and operation is named once.
        if line["operation"] == above["operation"]:
            line["operation"] = ""
        line["library"] = ""
    return found
