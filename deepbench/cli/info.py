"""`deepbench info`: this machine, its libraries, and what they support."""

from __future__ import annotations

import itertools
from typing import Any

import click

from deepbench.cli.console import make_console, print_card, print_json, print_library, print_machine
from deepbench.cli.root import HELP, cli

DEFAULT_DEVICE = "cpu"

# They run anything that an operation allows, and are no libraries.
OWN_BACKENDS = ("null", "reference")


@cli.command(context_settings=HELP, short_help="Show this machine, its libraries, and how to get missing ones.")
@click.option("--matrix", is_flag=True, help="Which library supports which operation, precision and direction.")
@click.option(
    "--doctor", is_flag=True, help="What makes measurements on this machine noisy or slow, and how to fix it."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def info(matrix: bool, doctor: bool, as_json: bool) -> None:
    """Show this machine and the libraries found, and for each missing library the reason and the remedy.

    \b
    Example: deepbench info --matrix
    """
    if doctor:
        _examine(as_json)
        return
    table = _matrix()
    if matrix and not as_json:
        _print_matrix(table)
        return
    from deepbench.core.backend import all_backends, find_backend
    from deepbench.machine import describe
    from deepbench.measure.session import open_libraries
    from deepbench.native import callloop

    machine, libraries = describe.describe_machine(), open_libraries(list(all_backends()))
    compiled = callloop.native_library() is not None
    if as_json:
        answers = {n: {k: v for k, v in a.items() if k in ("library", "unavailable")} for n, a in libraries.items()}
        loop = "native" if compiled else "python"
        facts = {"machine": machine, "libraries": answers, "loop": loop, "precisions": _precisions(), "support": table}
        print_json(facts)
        return
    console = make_console()
    print_machine(console, machine)
    slow = "Python, about 0.5 µs per call: no C compiler at installation; install gcc, then deepbench again"
    console.print(f"call loop  {'compiled' if compiled else slow}", markup=False)
    console.print(f"{_rule()}\n", markup=False, soft_wrap=not console.is_terminal)
    cards = [answer.get("library", {}).get("card") for answer in libraries.values()]
    for card in {card["bus_id"]: card for card in cards if card}.values():
        print_card(console, card)
    missing: dict[tuple[str, str], list[str]] = {}
    for name, answer in libraries.items():
        if "library" in answer:
            print_library(console, find_backend(name).title, answer)
        else:
            why = answer["unavailable"]["reason"], answer["unavailable"]["remedy"]
            missing.setdefault(why, []).append(find_backend(name).title)
    for (reason, remedy), titles in missing.items():
        print_library(console, ", ".join(titles), {"unavailable": {"reason": reason, "remedy": remedy}})


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
    from deepbench.measure.session import open_libraries

    libraries = open_libraries([n for n, b in all_backends().items() if b.default])
    findings = [*doctor.examine(), doctor.openmp(libraries)]
    if as_json:
        print_json([asdict(f) for f in findings])
        return
    console = make_console()
    problems = [f for f in findings if not f.good]
    for f in [*problems, *(f for f in findings if f.good)]:
        console.print(f"{'✓' if f.good else '✗'} {f.what:17} {f.text}", markup=False, soft_wrap=True)
        if f.remedy:
            console.print(f"{'':20}→ {f.remedy}", markup=False, soft_wrap=True)
    count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}" if problems else "no problem"
    console.print(
        f"\n{count} found; nothing was changed. deepbench selftest shows how small a change can be detected here.",
        markup=False,
    )


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
    from deepbench.core.backend import DEVICES, all_backends
    from deepbench.core.op import find_op
    from deepbench.report.table import Column, Table

    console = make_console()
    for device, group in itertools.product(DEVICES, (False, True)):
        of_kind = [r for r in rows if find_op(r["op"]).is_group == group]
        serving = {name for r in of_kind for name in r["backends"]}
        names = [n for n, b in all_backends().items() if b.device == device and n in serving]
        table = [
            {**row, **{name: "yes" if name in row["backends"] else None for name in names}}
            for row in of_kind
            if set(names) & set(row["backends"]) - set(OWN_BACKENDS)
        ]
        words = [f"--device {device}"] if device != DEFAULT_DEVICE else []
        words += ["one process per rank"] if group else []
        if words:
            console.print(f"\n{', '.join(words)}", markup=False)
        Table([Column(n) for n in ("op", "direction", "precision", *names)], table).print(console)
    console.print("yes: the library has a kernel for it. Whether it runs on this machine shows when it is measured.")
    console.print(_rule(), markup=False, soft_wrap=not console.is_terminal)
