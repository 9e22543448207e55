"""Standard output and standard error of the command.

What cannot be written there is dropped and remembered. A pipe whose reader has ended, or a full disk, must neither end
a measurement nor hide the exit code that says what was found.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any, TextIO

from deepbench.api.text import printable, printable_lines

EXIT_NOT_WRITTEN = 64  # as for bad input
EXIT_CLOSED = 141  # 128 + SIGPIPE, as in shells

CLOSED = (errno.EPIPE, errno.EBADF)


class _Stream(io.FileIO):
    """A file that drops everything from the first error on."""

    error: OSError | None = None

    def write(self, content: Any, /) -> int:
        if self.error is None:
            try:
                while (written := super().write(content)) is None:  # it does not block, and it is full
                    select.select([], [self], [])
                return written
            except OSError as error:
                self.error = error
                self.report(error)
        return len(content)

    def report(self, error: OSError) -> None:
        """Nothing: where standard error cannot be written, there is no place to say so."""


class _Output(_Stream):
    goes_on: str = ""
    """What the command does although its output is lost."""

    def report(self, error: OSError) -> None:
        """Say it at once: a measurement may take hours. `| head` ends other programs in silence, and so this one."""
        if self.goes_on or error.errno != errno.EPIPE:
            closed = error.errno in CLOSED
            reason = "standard output is closed" if closed else f"cannot write the output: {error.strerror}"
            warn(f"{reason}; {self.goes_on}" if self.goes_on else reason)


def prepare() -> None:
    """Replace the streams of Python; to be called once, before anything is opened or printed."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Files opened later must not become a standard stream. Writing to this one is an error, as it was before.
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
    sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Stream(2, "w", closefd=False), sys.stderr)


def _text(raw: _Stream, former: TextIO | None) -> io.TextIOWrapper:
    """A text stream like the former one; characters that it lacks become question marks."""
    encoding = "utf-8" if former is None else former.encoding
    at_once = raw.fileno() == 2 or raw.isatty() or bool(os.environ.get("PYTHONUNBUFFERED"))
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "replace", line_buffering=at_once)


def _output() -> _Output | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Output) else None


def go_on_without_output(sentence: str) -> None:
    """Say this sentence too if the output is lost, which does not end the command."""
    if output := _output():
        output.goes_on = sentence


def exit_code(code: int) -> int:
    """The exit code of a command that found `code`: success is none if its output is lost."""
    sys.stdout.flush()
    output = _output()
    if code or output is None or output.error is None:
        return code
    return EXIT_CLOSED if output.error.errno in CLOSED else EXIT_NOT_WRITTEN


def warn(sentence: str) -> None:
    """One line on standard error."""
    print(f"deepbench: {printable(sentence)}", file=sys.stderr)


# More sentences of one kind than this are not read.
MOST_WARNINGS = 20


def warn_each(what: str, sentences: Iterable[str]) -> None:
    """A line for each of many sentences on standard error, each once, and how many more there are."""
    times = Counter(sentences)
    for sentence, number in list(times.items())[:MOST_WARNINGS]:
        warn(f"{what}: {sentence}{f' ({number} times)' if number > 1 else ''}")
    if len(times) > MOST_WARNINGS:
        warn(f"{what}: {len(times) - MOST_WARNINGS} more")


def say(text: str) -> None:
    """Lines for people on standard output. File names may have control characters, which a terminal would obey."""
    print(printable_lines(text))


def print_for_programs(text: str) -> None:
    """JSON, CSV or Markdown on standard output: always UTF-8, whatever the terminal shows.

    A terminal may show it, too, so control characters are replaced; so is half of a character, which UTF-8 lacks.
    """
    sys.stdout.flush()
    sys.stdout.buffer.write(printable_lines(text).encode())
    sys.stdout.buffer.flush()
