"""Which cases: the options that choose them, and `deepbench list`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from deepbench.core.errors import BadInput

if TYPE_CHECKING:
    from deepbench.plan.cases import Choices, Planned

from deepbench.cli.place import launched
from deepbench.cli.root import HELP, cli, end_with_the_reader


def comma_list(ctx: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """`--backend mkl,onednn` and `--backend mkl --backend onednn` are the same."""
    return tuple(dict.fromkeys(w for v in value for w in v.split(",") if w))


def require_suffix(option: str, path: str, suffixes: tuple[str, ...]) -> None:
    """What is written in place of an older file has a name of its kind: a slip must not cost a result file."""
    if not path.lower().endswith(suffixes):
        raise BadInput(f"{option} wants a name that ends in {' or '.join(suffixes)}, found {path[-60:]!r}")


def case_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose cases, which `list` and `run` share."""
    options = (
        ("--op", "OP", "Only these ops."),
        ("--backend", "NAME", "Only these libraries (default: all of the device but torch, reference and null)."),
        ("--precision", "P", "These precisions, or all (default: f32, or what the suite says)."),
        ("--direction", "D", "These directions (default: what the suite says, else forward)."),
        ("--application", "A", 'Only problems of these applications, such as "Speech Recognition".'),
        ("--threads", "N", "Threads (default: all cores that this process may use)."),
        ("--ranks", "N", "Only groups of so many ranks (default: what a suite says, up to the number of cores)."),
        ("--set", "NAME=VALUE", "A setting, such as weights=packed or beta=0."),
    )
    device = click.option("--device", metavar="DEVICE", help="cpu (default), cuda or hip: whose libraries to take.")
    command = device(command)
    for name, metavar, text in reversed(options):
        split = None if name in ("--set", "--application") else comma_list
        command = click.option(name, multiple=True, metavar=metavar, help=text + " Repeatable.", callback=split)(
            command
        )
    return command


@cli.command(name="list", context_settings=HELP)
@click.argument("words", nargs=-1, metavar="[SUITE|FILE|CASE]...")
@case_options
@click.option("--suites", is_flag=True, help="The suites there are, instead of cases.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a case.")
def list_cases(words: tuple[str, ...], suites: bool, as_json: bool, **filters: Any) -> None:
    """Print cases without running them; each line, after `deepbench run`, measures that case.

    \b
    Example: deepbench list deepbench/server --precision i8,i8u8 --backend onednn
    """
    from deepbench.plan.suites import read_suite, suite_files

    end_with_the_reader()
    if suites:
        for name in suite_files():
            rows = {(e.pattern.op, e.source["row"]) for e in read_suite(name) if e.source}
            print(f"{name:24} {len(rows):4} problems")
        return
    for planned in plan_of(words, filters):
        line = {"case": planned.case.text, "sources": planned.sources}
        print(json.dumps(line, ensure_ascii=False) if as_json else planned.case.text)


def plan_of(words: tuple[str, ...], filters: dict[str, Any]) -> list[Planned]:
    """The cases that words and filters choose, as many as there are; `BadInput` for none."""
    from deepbench.machine import describe
    from deepbench.plan.cases import expand
    from deepbench.plan.suites import read_words

    choices = choices_of(filters)
    entries = read_words(words or ("quick",))
    planned = expand(entries, choices, describe.default_threads())
    if not planned:
        raise BadInput("no case is left: no library serves what the filters ask for; see `deepbench info --matrix`")
    return planned


def choices_of(filters: dict[str, Any]) -> Choices:
    """The filters of the command line, checked as words."""
    from deepbench.core.case import thread_count, whole_number
    from deepbench.core.errors import shorten
    from deepbench.core.precision import PRECISIONS
    from deepbench.plan.cases import Choices

    settings: dict[str, tuple[str, ...]] = {}
    for word in filters["set"]:
        name, equals, values = word.partition("=")
        if not equals:
            raise BadInput(f"--set wants NAME=VALUE, found {shorten(word)!r}")
        settings[name] = (*settings.get(name, ()), *values.split(","))
    precisions = filters["precision"]
    return Choices(
        ops=filters["op"],
        backends=filters["backend"],
        precisions=tuple(PRECISIONS) if "all" in precisions else precisions,
        directions=filters["direction"],
        applications=filters["application"],
        threads=tuple(map(thread_count, filters["threads"])),
        ranks=tuple(whole_number("ranks", n) for n in filters["ranks"]),
        most_ranks=where.ranks if (where := launched()) else None,
        device=_device(filters["device"]),
        settings=settings,
    )


DEFAULT_DEVICE = "cpu"


def _device(name: str | None) -> str:
    from deepbench.core.backend import DEVICES

    if name is not None and name not in DEVICES:
        raise BadInput(f"--device is one of {', '.join(DEVICES)}, found {name[:60]!r}")
    return name or DEFAULT_DEVICE
