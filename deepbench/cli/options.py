"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from deepbench.api.text import BadInput, printable, shorten

if TYPE_CHECKING:
    from deepbench.api.filters import Choices

UNITS_S = {"s": 1, "min": 60, "h": 3600}


def comma_list(ctx: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """`--backend mkl,onednn` and `--backend mkl --backend onednn` are the same."""
    return tuple(dict.fromkeys(w for v in value for w in v.split(",") if w))


def _choosing(own: Mapping[str, str]) -> Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """The options that choose cases, by name; `own` has help texts of a command by the names of arguments."""
    several = (
        ("--op", "OP", "Only these operations."),
        (
            "--backend",
            "NAME",
            "Only these libraries (default: all of the device; gloo, iree, null, onednn_sycl, openvino, paddle, "
            "reference, torch and torch_compiled only when named).",
        ),
        ("--precision", "P", "These precisions, or all (default: f32, or what the suite says)."),
        ("--direction", "D", "These directions (default: what the suite says, else forward)."),
        ("--application", "A", 'Only problems of these applications, such as "Speech Recognition".'),
        ("--threads", "N", "Numbers of threads (default: all cores that this process may use)."),
        ("--ranks", "N", "Only groups of this many ranks (default: what the suite says, up to the number of cores)."),
        ("--set", "NAME=VALUE", "A setting of cases, such as beta=0, or a parameter of a model, such as batch=8."),
    )
    options = {}
    for name, metavar, text in several:
        split = None if name in ("--set", "--application") else comma_list
        text = f"{own.get(name.strip('-'), text)} Repeatable."
        options[name] = click.option(name, multiple=True, metavar=metavar, help=text, callback=split)
    options["--device"] = click.option(
        "--device",
        metavar="DEVICE",
        help=own.get(
            "device", "Measure on cpu (default), cuda, hip, or another device that deepbench info --devices lists."
        ),
    )
    options["--with-parts"] = click.option(
        "--with-parts",
        is_flag=True,
        help="Also measure the parts of wide or stacked recurrent layers and of linear layers; see show --by parts.",
    )
    options["--fit"] = click.option(
        "--fit",
        metavar="SIZE",
        help="Replace problems of suites that need more memory (4GiB) or work (4GiB+20GFLOP) by smaller ones; with "
        "run --quick at most 512 MiB and 5 GFLOP, unless SIZE has a work.",
    )
    return options


def choosing_options(*names: str, **own: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Some of the options that choose cases, in this order. `own` has help texts that replace the usual ones."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        options = _choosing(own)
        for name in reversed(names):
            command = options[name](command)
        return command

    return add


def case_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All options that choose cases."""
    return choosing_options(*_choosing({}))(command)


def one_of(argument: str, **helps: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Flags of which one may be given: its name, or None, becomes an argument of the command."""

    def choose(ctx: click.Context, option: click.Parameter, value: bool) -> None:
        chosen = ctx.params.setdefault(argument, None)
        if value and chosen:
            raise BadInput(f"--{chosen} and --{option.name} exclude each other; choose one of them")
        if value:
            ctx.params[argument] = option.name

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name, text in reversed(helps.items()):
            command = click.option(f"--{name}", is_flag=True, expose_value=False, callback=choose, help=text)(command)
        return command

    return add


form_options = one_of(
    "form",
    json="Print JSON, for programs.",
    csv="Print CSV, for spreadsheets.",
    markdown="Print a Markdown table.",
)
"""The options that choose a form for programs."""


skip_damaged_option = click.option(
    "--skip-damaged", is_flag=True, help="Read files with damaged lines, without these lines."
)


metric_option = click.option(
    "--metric",
    metavar="M",
    default="steady",
    help="Which time of a process: steady (default), first_call, creation, pack, convert, optimize or compile.",
)


price_option = click.option(
    "--price", "prices", multiple=True, metavar="NAME=N/h", help="The price of a machine. Repeatable."
)


def choices_of(filters: dict[str, Any], mode: str | None = None) -> Choices:
    """The case options as filters of a run in this mode; `BadInput` for words that are none."""
    from deepbench.api.filters import backends, device_of, make_choices, thread_count, whole_number
    from deepbench.api.groups import launched

    place = launched()
    choices = make_choices(
        ops=filters.get("op", ()),
        backends=filters.get("backend", ()),
        precisions=filters.get("precision", ()),
        directions=filters.get("direction", ()),
        applications=filters.get("application", ()),
        threads=map(thread_count, filters.get("threads", ())),
        ranks=[whole_number("ranks", n) for n in filters.get("ranks", ())],
        device=filters.get("device"),
        settings=settings_of(filters.get("set", ())),
        fit=filters.get("fit"),
        with_parts=filters.get("with_parts", False),
        mode=mode,
        most_ranks=place.ranks if place is not None else None,
    )
    if filters.get("device"):
        for name in choices.backends:  # a library that is named is used on its own device, whatever the option says
            if not backends()[name].reaches(choices.device):
                raise BadInput(
                    f"--backend {name} is a library for {device_of(name)}, and --device says {choices.device}; "
                    "leave out one"
                )
    return choices


def settings_of(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The values of `--set` by name: `batch=1,8,phase=decode`."""
    settings: dict[str, tuple[str, ...]] = {}
    for word in words:
        name = ""
        for part in word.split(","):
            before, equals, value = part.rpartition("=")
            name = before if equals else name
            if not name:
                raise BadInput(f"--set wants NAME=VALUE, found {shorten(word)!r}")
            settings[name] = (*settings.get(name, ()), value)
    return settings


def whole(name: str, text: str | None, most: int) -> int | None:
    """The value of an option that is a whole number from 1 up."""
    from deepbench.api.filters import whole_number

    if text is None:
        return None
    value = whole_number(name, text)
    if not 1 <= value <= most:
        raise BadInput(f"{name} must be from 1 to {most}, found {value}")
    return value


def pairs(name: str, words: Sequence[str]) -> dict[str, str]:
    """The values of a repeatable option whose words are NAME=VALUE or NAME=VALUE,NAME=VALUE."""
    found = {}
    for word in words:
        for pair in re.split(r",(?=[A-Za-z_][A-Za-z_0-9]*=)", word):
            key, equals, value = pair.partition("=")
            if not (key and equals and value):
                raise BadInput(f"{name} wants NAME=VALUE, found {shorten(word)!r}")
            found[key] = value
    return found


def seconds(name: str, text: str | None) -> float | None:
    """The value of an option that is a number of seconds."""
    if text is None:
        return None
    value = number(text)
    if not 0 < value < 1e6:
        raise BadInput(f"{name} must be a number of seconds above 0, found {text[:60]!r}")
    return value


def number(text: str) -> float:
    """A number; NaN for any other text, which lies in no range."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def duration(name: str, text: str | None) -> float | None:
    """`90s`, `10min` or `1.5h` in seconds."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?(s|min|h)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise BadInput(f"{name} wants a time such as 90s, 10min or 1.5h, found {text[:60]!r}")
    return float(match[1]) * UNITS_S[match[2]]


def prices_of(words: Sequence[str], machine: str) -> dict[str, float]:
    """The values of `price_option`: `NAME=2.5/h`, in any currency; `machine` is one for the example of a message."""
    found = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        value = number(text.removesuffix("/h"))
        if not equals or not 0 < value < 1e9:
            example = f"{printable(os.path.basename(machine)).partition('.')[0]}=2.5/h"
            raise BadInput(
                f"--price wants a machine and the price of an hour, such as {example}, found {shorten(word)!r}"
            )
        found[name] = value
    return found


def share(name: str, text: str) -> float:
    """`2%` or `0.02` as a share from 0 to 1."""
    value = number(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    if not 0 < value < 1:
        raise BadInput(f"{name} must be a share such as 2% or 0.02, found {text[:60]!r}")
    return value


def is_trusted(file: str | None, trust: str | None) -> bool:
    """Whether `--trust` names the file whose libraries would be loaded; `BadInput` if it names another one."""
    if trust is not None and (file is None or os.path.realpath(trust) != os.path.realpath(file)):
        wanted = f"--trust {file}" if file is not None else "no --trust"
        raise BadInput(
            f"--trust must name the file whose libraries are loaded: wanted {wanted}, found {shorten(trust)}"
        )
    return trust is not None


def print_libraries(libraries: Mapping[str, str], file: str) -> None:
    """Say which libraries are loaded because a file names them."""
    for variable, path in libraries.items():
        print(f"deepbench: loading {printable(path)} ({variable}), as {printable(file)} says", file=sys.stderr)


def require_suffix(option: str, path: str, suffixes: tuple[str, ...]) -> None:
    """An output that replaces an older file must have a name of its kind, so that no slip costs a result file."""
    if not path.lower().endswith(suffixes):
        raise BadInput(f"{option} wants a name that ends in {' or '.join(suffixes)}, found {path[-60:]!r}")
