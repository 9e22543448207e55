"""The command in the process of the test, for tests of what it prints for files and arguments."""

import contextlib
import io
import sys
from dataclasses import dataclass

from deepbench.cli import root


@dataclass(frozen=True)
class Done:
    """How it ended, and what it printed."""

    code: int
    output: str
    errors: str


def run_here(arguments):
    """Run `deepbench` with these arguments in this process."""
    before, output, errors = sys.argv, io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    sys.argv = ["deepbench", *arguments]
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = root._run()
    finally:
        sys.argv = before
    for stream in (output, errors):
        stream.flush()
    return Done(code, *(stream.buffer.getvalue().decode(errors="replace") for stream in (output, errors)))
