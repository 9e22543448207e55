"""Logs of libraries: a file per family of libraries, and what all share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from deepbench.networks.traces.kernels import bytes_of


@dataclass(frozen=True)
class Logged:
    """A call in a log."""

    operator: str
    """The library and what was called."""
    kernel: str | None
    bytes: int
    is_fused: bool = False
    """Whether the call does more than the kernel, such as an activation after a convolution."""


def kernel_call(operator: str, kernel: str, is_fused: bool = False) -> Logged:
    """A call that is a kernel of ours."""
    return Logged(operator, kernel, bytes_of(kernel), is_fused)


def options(words: Sequence[str]) -> dict[str, str]:
    """`-m 8 --lda 16 --fused` as names and values; the value of an option that stands alone is empty."""
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if re.fullmatch(r"--?[A-Za-z_!@#$^].*", word):
            name = word.lstrip("-")
            name, _, value = name.partition("=")
            found[name] = value
        elif name:
            found[name], name = word, ""
    return found
