"""`deepbench info`: this machine, its libraries, and what they serve."""

from __future__ import annotations

import json
from typing import Any

import click

from deepbench.cli.choose import DEFAULT_DEVICE
from deepbench.cli.printing import make_console, print_card, print_library, print_machine
from deepbench.cli.root import HELP, cli, end_with_the_reader
from deepbench.cli.run import open_backends, open_fully


@cli.command(context_settings=HELP)
@click.option("--matrix", is_flag=True, help="Which library serves which op, precision and direction.")
@click.option("--doctor", is_flag=True, help="What makes numbers worse here than they need be, and the remedy.")
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
def info(matrix: bool, doctor: bool, as_json: bool) -> None:
    """This machine, the libraries found here, and for each missing one why and the remedy.

    \b
    Example: deepbench info --matrix
    """
    from deepbench.core.backend import all_backends, find_backend
    from deepbench.machine import describe
    from deepbench.native import callloop

    end_with_the_reader()
    if doctor:
        _examine(as_json)
        return
    table = _matrix()
    if matrix and not as_json:
        _print_matrix(table)
        return
    machine, opened = describe.describe_machine(), open_backends(list(all_backends()))
    loop = "native" if callloop.native_library() else "python"
    if as_json:
        content = {"machine": machine, "libraries": opened, "loop": loop, "support": table}
        print(json.dumps(content, ensure_ascii=False, indent=1))
        return
    console = make_console()
    print_machine(console, machine)
    text = (
        "compiled"
        if loop == "native"
        else (
            "Python (about 0.5 µs a call): no C compiler when deepbench was installed; "
            "install gcc, then install deepbench again"
        )
    )
    console.print(f"call loop  {text}", markup=False, highlight=False)
    console.print()
    cards = [answer.get("library", {}).get("card") for answer in opened.values()]
    for card in {card["bus_id"]: card for card in cards if card}.values():
        print_card(console, card)
    for name, answer in opened.items():
        print_library(console, find_backend(name).title, answer)


def _examine(as_json: bool) -> None:
    """The doctor's findings, what is wrong first. Nothing is changed."""
    from dataclasses import asdict

    from deepbench.core.backend import all_backends
    from deepbench.machine import doctor

    libraries = open_fully([n for n, b in all_backends().items() if b.default])
    findings = [*doctor.examine(), doctor.openmp(libraries)]
    if as_json:
        print(json.dumps([asdict(f) for f in findings], ensure_ascii=False, indent=1))
        return
    console = make_console()
    bad = [f for f in findings if not f.good]
    for f in [*bad, *(f for f in findings if f.good)]:
        console.print(f"{'✗' if not f.good else '✓'} {f.what:17} {f.text}", markup=False, soft_wrap=True)
        if f.remedy:
            console.print(f"{'':20}→ {f.remedy}", markup=False, soft_wrap=True)
    count = f"{len(bad)} thing{'s' if len(bad) != 1 else ''} to mend" if bad else "nothing to mend"
    console.print(
        f"\n{count}; nothing was changed. deepbench selftest says what comparisons are worth here.", markup=False
    )


def _matrix() -> list[dict[str, Any]]:
    """Rows of the support table, read from the marks."""
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


# They serve whatever an op allows, and are no libraries.
OURS = ("null", "reference")


def _print_matrix(rows: list[dict[str, Any]]) -> None:
    import itertools

    from rich.table import Table

    from deepbench.core.backend import DEVICES, all_backends
    from deepbench.core.op import find_op

    console = make_console()
    for device, group in itertools.product(DEVICES, (False, True)):
        of_kind = [r for r in rows if find_op(r["op"]).is_group == group]
        serving = {name for r in of_kind for name in r["backends"]}
        names = [n for n, b in all_backends().items() if b.device == device and n in serving]
        table = Table("op", "direction", "precision", *names, box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for row in of_kind:
            marks = ["yes" if name in row["backends"] else "–" for name in names]
            if set(names) & set(row["backends"]) - set(OURS):
                table.add_row(row["op"], row["direction"], row["precision"], *marks)
        words = [f"--device {device}"] if device != DEFAULT_DEVICE else []
        words += ["one process a rank"] if group else []
        if words:
            console.print(f"\n{', '.join(words)}", markup=False)
        console.print(table)
    console.print("yes: the library has a kernel for it; whether this machine does shows when it runs.")
