"""`deepbench info`: this machine, its libraries, and what they support."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from deepbench.cli.console import (
    INDENT,
    fitted,
    make_console,
    print_json,
    width_for_people,
)
from deepbench.cli.options import one_of
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say

DEFAULT_DEVICE = "cpu"

# They run anything that an operation allows, and are no libraries.
OWN_BACKENDS = ("null", "reference")

DETAILS = "deepbench info --verbose"


@cli.command(context_settings=HELP, short_help="Show this machine, its libraries, and how to get missing ones.")
@one_of(
    "view",
    matrix="Which library supports which operation, precision and direction.",
    devices="Every device that a library reaches here: what --device takes.",
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
    from deepbench.api import machine as api

    if view == "doctor":
        _examine(as_json)
        return
    if view == "devices":
        _print_devices(as_json)
        return
    if view == "matrix" and not as_json:
        _print_matrix()
        return
    here = api.describe_machine()
    libraries = {n: {k: v for k, v in a.items() if k in ("library", "unavailable")} for n, a in api.libraries().items()}
    loop = api.call_loop()
    if as_json:
        facts = {"precisions": api.precisions(), "support": api.support()}
        print_json({"machine": here, "libraries": libraries, "loop": loop, **facts})
        return
    width = width_for_people()
    blocks = [_about_machine(here, libraries, loop == "native"), *_present(libraries, view == "verbose")]
    missing = {name: answer["unavailable"] for name, answer in libraries.items() if "unavailable" in answer}
    if missing:
        blocks.append([*(_each_missing(missing) if view == "verbose" else _missing_together(missing))])
    blocks.append([("", _rule())])
    say("\n\n".join("\n".join(fitted(label, text, width) for label, text in block) for block in blocks))


def _about_machine(machine: Mapping[str, Any], libraries: Mapping[str, Any], compiled: bool) -> list[tuple[str, str]]:
    """Labels and texts about what the libraries run on."""
    from deepbench.api.machine import card_text, machine_texts

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
    from deepbench.api.filters import backends
    from deepbench.api.machine import LIBRARIES_OF, threading_text

    known = backends()
    here = {name: answer["library"] for name, answer in libraries.items() if "library" in answer}
    for device, title in LIBRARIES_OF.items():
        names = [name for name in here if known[name].device == device]
        # What is no library comes last.
        names.sort(key=lambda name: name in OWN_BACKENDS)
        lines = []
        for name in names:
            library = here[name]
            about = " ".join(filter(None, (known[name].title, library["version"])))
            lines.append((f"  {name:{INDENT}} ", ", ".join(filter(None, (about, threading_text(library))))))
            if verbose and library["path"]:
                lines.append((" " * (INDENT + 3), library["path"]))
        if lines:
            yield [("", f"{title} (--device {device})" if device != DEFAULT_DEVICE else title), *lines]


def _each_missing(missing: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Every missing library with its reason and remedy; those that lack the same, such as a driver, together."""
    yield "", "missing"
    groups: dict[tuple[str, str], list[str]] = {}
    for name, answer in missing.items():
        groups.setdefault((answer["reason"], answer["remedy"]), []).append(name)
    for (reason, remedy), names in groups.items():
        if len(names) == 1:
            yield f"  {names[0]:{INDENT}} ", reason
        else:
            yield "  ", ", ".join(names)
            yield " " * (INDENT + 3), reason
        yield " " * (INDENT + 3) + "→ ", remedy


def _missing_together(missing: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """A line for each reason, with the libraries concerned and one remedy."""
    from deepbench.api import machine as api

    yield "", f"missing (each with its reason and remedy: {DETAILS})"
    for group in api.missing_groups(missing, DETAILS):
        yield "  ", f"{group.libraries}: {group.reason} ({', '.join(group.names)})"
        yield "    → ", group.remedy


def _rule() -> str:
    """The minimum precision, and the precisions that do not meet it for any use."""
    from deepbench.api.machine import MINIMUM, precisions

    below = [f"{p['name']} ({why})" for p in precisions() if (why := p["below_minimum_for_inference"])]
    return f"minimum precision: {MINIMUM}. Below it: {', '.join(below)}."


def _examine(as_json: bool) -> None:
    """Print what the doctor finds, problems first."""
    from dataclasses import asdict

    from deepbench.api.machine import diagnose

    findings = diagnose()
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


def _print_devices(as_json: bool) -> None:
    """Print what `--device` takes here, and what reaches no device."""
    from dataclasses import asdict

    from deepbench.api.machine import find_devices
    from deepbench.api.results import Column, Table

    found = find_devices()
    if as_json:
        print_json(asdict(found))
        return
    width, console = width_for_people(), make_console()
    rows = [
        {"device": r.device, "name": r.title, "backends": ", ".join(r.through), "through": "; ".join(_interfaces(r))}
        for r in found.reached
    ]
    columns = [Column("device", whole=True), Column("name"), Column("backends")]
    Table(columns, rows).print(console)
    for row in rows:
        if row["through"]:
            say(fitted(f"{row['device']:{INDENT}} ", row["through"], width))
    for failed in found.failed:
        say(fitted("✗ ", f"{failed['backend']}, {failed['candidate']}: {failed['reason']}", width))
        say(fitted("  → ", failed["remedy"], width))
    ending = "deepbench run SUITE --device NAME measures one of them; deepbench conform --device NAME reports on it."
    say(f"\n{fitted('', ending, width)}")


def _interfaces(reached: Any) -> list[str]:
    """What interfaces such as PJRT reach a device through."""
    from deepbench.api.filters import interfaces

    return [f"{name}: {reached.through[name]}" for name in interfaces() if name in reached.through]


def _print_matrix() -> None:
    from deepbench.api.filters import backends, operations
    from deepbench.api.machine import LIBRARIES_OF, support
    from deepbench.api.results import Column, Table, print_parts

    rows, known, all_ops = support(), backends(), operations()
    console = make_console()
    columns = [Column("library", whole=True), Column("operation", whole=True), Column("direction"), Column("precision")]
    for device, group in itertools.product(LIBRARIES_OF, (False, True)):
        names = [n for n, b in known.items() if b.device == device and n not in OWN_BACKENDS]
        of_kind = [row for row in rows if all_ops[row["op"]].is_group == group]
        table = [line for name in names for line in _supported(name, of_kind)]
        if table:
            words = f" (--device {device})" if device != DEFAULT_DEVICE else ""
            more = ", one process per rank" if group else ""
            console.print(f"{LIBRARIES_OF[device]}{words}{more}", style="bold", markup=False)
            Table(columns, table).print(console)
            console.print()
    below = "The library has a kernel for it. Whether it runs on this machine shows when it is measured."
    own = f"{' and '.join(OWN_BACKENDS)} are no libraries; they serve every operation that runs in one process."
    print_parts([[below, own, _rule()]], console)


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
