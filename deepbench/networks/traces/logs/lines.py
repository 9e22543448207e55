"""Where the calls are in the text of a log: the rules that all formats share.

A call begins with the word of its library, wherever that stands in a line: a launcher may write a rank, a container or
a time before it, and two processes may write to one line. It ends at the next such word or with its line. A command
goes on in the next line if it ends with a backslash (in shells of Windows with ` or ^), or if the next line begins with
the rest of it. What follows a `#` is a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Literal

from deepbench.core.foreign_text import COLORS
from deepbench.networks.traces.logs import COMMENTS

# Longer lines are no line of a log, and a call of cuDNN has fewer lines and characters.
MOST_CHARACTERS = 100_000

Library = Literal["onednn", "rocm", "cudnn"]

BEGINNINGS: dict[Library, str] = {
    "onednn": r"(?:onednn|dnnl|mkldnn)_verbose,",
    "rocm": r"(?:(?:rocblas|hipblaslt)-bench|MIOpenDriver)(?:\.exe)?(?=[ \t]+\S)",
    "cudnn": r"(?:I! )?[Cc]uDNN \(v[0-9 ]{1,20}\) function cudnn\w{1,100}\(\) called:",
}
BEGINNING = re.compile("|".join(f"(?P<{library}>{pattern})" for library, pattern in BEGINNINGS.items()))

# What a line ends with if the next one is the rest of it.
CONTINUED = ("\\", "`", "^")
# A line that is the rest of a command begins with an option, or if the line before ends with one, with its value.
REST = re.compile(r"\s*--?[A-Za-z_!@#$^][A-Za-z0-9_]*(?:[\s=]|$)")
VALUE_AND_REST = re.compile(rf"\s*[A-Za-z0-9_.,]{{1,40}}{REST.pattern}")
ENDS_WITH_OPTION = re.compile(r"\s--?[A-Za-z_!@#$^][A-Za-z0-9_]*\s*$")


@dataclass(frozen=True)
class FoundCall:
    """The text of a call, from the word of its library to its end."""

    library: Library
    text: str
    """A command with the blank or the end of the line after it, if there is one."""
    before: str
    """What stands before it in its line."""


@dataclass
class LogText:
    """A text that may contain calls."""

    text: str
    comments: int = field(default=0, init=False)
    """Calls in comments, which did not run, so far."""

    def __iter__(self) -> Iterator[FoundCall]:
        """The calls in their order."""
        text = COLORS.sub("", self.text)
        end = 0  # of the call before
        comment_end = 0  # of the last line that is a comment
        for match, following in pairwise(chain(BEGINNING.finditer(text), [None])):
            assert match is not None, "only the last one is None"
            library: Library = match.lastgroup  # type: ignore[assignment]
            start = match.start()
            if start < comment_end:
                self.comments += 1
                continue
            # Nothing is searched beyond the next beginning: a line may have a million of them.
            limit = following.start() if following else len(text)
            line_end = _line_end(text, start, limit)
            earliest = max(end, start - MOST_CHARACTERS)
            before = text[max(earliest, text.rfind("\n", earliest, start) + 1) : start]
            if _is_comment(before):
                comment_end = _line_end(text, start, len(text))
                self.comments += 1
            elif library == "cudnn":
                end = min(limit, start + MOST_CHARACTERS)
                yield FoundCall(library, text[start:end], before)
            else:
                end = min(limit, line_end)
                found = text[start:end]
                if library == "rocm":
                    found, end = _whole_command(text, found, before, end, limit)
                    found += text[end : end + 1]
                yield FoundCall(library, found, before)


def _line_end(text: str, start: int, limit: int) -> int:
    """Where the line ends, or where there is nothing more to read of it."""
    limit = min(limit, start + MOST_CHARACTERS)
    newline = text.find("\n", start, limit)
    return newline if newline >= 0 else limit


def _is_comment(before: str) -> bool:
    """Whether what stands before a call makes it a comment."""
    return before.lstrip().startswith(COMMENTS) or before.rstrip().endswith(tuple(f" {c}" for c in COMMENTS))


def _whole_command(text: str, found: str, before: str, end: int, limit: int) -> tuple[str, int]:
    """A command with what follows in the next lines, and where it ends. Each line may have the same text before it."""
    while len(found) < MOST_CHARACTERS and end < limit and text[end] == "\n":
        newline = text.find("\n", end + 1, limit)
        line_end = newline if newline >= 0 else limit
        line = text[end + 1 : min(line_end, end + 1 + MOST_CHARACTERS)].removeprefix(before)
        own = found.rstrip()
        if own.endswith(CONTINUED):
            own = own[:-1]
        elif not REST.match(line) and not (ENDS_WITH_OPTION.search(own) and VALUE_AND_REST.match(line)):
            break
        found, end = f"{own} {line}", line_end
    return found, end
