"""Logs of libraries: a file per family of libraries, and what all share."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deepbench.core.errors import BadInput, shorten
from deepbench.networks.traces.kernels import bytes_of

# What comments in logs begin with.
COMMENTS = ("#", "//")

FUSED = "more than its kernel is done, such as an activation"


@dataclass(frozen=True)
class Logged:
    """A call in a log."""

    operator: str
    """The library and what was called."""
    kernel: str | None
    bytes: int
    notes: tuple[str, ...] = ()
    """How the call differs from its kernel, or what its bytes leave out."""


def kernel_call(operator: str, kernel: str, *notes: str) -> Logged:
    """A call that is a kernel of ours."""
    return Logged(operator, kernel, bytes_of(kernel), notes)


# Where a command ends for a shell: at another command, or at a file for its output.
SHELL = re.compile(r"^[0-9]?>|(?<!^-)[|;&]")
# The rest of a word from here on is no part of a value: markup, or what another process wrote.
NO_VALUE = re.compile(r"[<\[]")


def options(command: str) -> dict[str, str]:
    """`-m 8 --lda 16 --fused` as names and values; the value of an option that stands alone is empty.

    What a shell does after the command is left out, and so are words at the end that belong to no option: a frame, or
    the beginning of what another process wrote. `BadInput` for other such words, and for an option with two values.
    """
    found: dict[str, str] = {}
    name, stray = "", ""
    for word in command.replace('"', " ").replace("'", " ").split():
        if word.startswith(COMMENTS):
            break
        if re.fullmatch(r"--?[A-Za-z_!@#$^].*", word):
            if stray:
                raise BadInput(f"{shorten(stray)!r} belongs to no option")
            name, has_value, value = word.lstrip("-").partition("=")
            if found.get(name, value) != value and has_value:
                raise BadInput(f"--{shorten(name)} stands there twice")
            found.setdefault(name, value)
            name = "" if has_value else name
            continue
        shell = SHELL.search(word)
        value = word[: shell.start()] if shell else word
        value, rest = (value[: cut.start()], value[cut.start() :]) if (cut := NO_VALUE.search(value)) else (value, "")
        if value and name:
            if found[name] not in ("", value):
                raise BadInput(f"--{shorten(name)} stands there twice")
            found[name], name = value, ""
        elif value or rest:
            stray = stray or word
        stray = stray or rest
        if shell:
            break
    return found
