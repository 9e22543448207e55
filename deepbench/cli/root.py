"""The command `deepbench`: how it starts and ends, and how it reports bad input."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

import click

from deepbench.cli.interrupts import EXIT_INTERRUPTED, handled
from deepbench.core.errors import DeepBenchError
from deepbench.core.version import VERSION

EXIT_WRONG = 1
EXIT_BAD_INPUT = 64  # EX_USAGE of sysexits.h

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@handled()
def main() -> NoReturn:
    """Run the command and exit with its code. Bad input is one sentence on standard error."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without µ prints a ?
    try:
        code = cli.main(standalone_mode=False, prog_name="deepbench")
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx else "")
        sys.exit(0)
    except click.UsageError as error:
        hint = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
        _fail(f"{error.format_message().rstrip('.')}{hint}")
    except click.ClickException as error:
        _fail(error.format_message())
    except DeepBenchError as error:
        _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        print("deepbench: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        # Only output gets here: errors of other files are reported where they occur.
        drop_output()
        _fail(f"cannot write the output: {error.strerror or error}")


def drop_output() -> None:
    """Discard buffered output that cannot be written: Python would try again at exit and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_with_reader() -> None:
    """Let `| head` end this command silently, as it ends other programs. Not while measuring: a run keeps its file."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _fail(sentence: str) -> NoReturn:
    from deepbench.core.json_lines import printable

    print(f"deepbench: {printable(sentence)}", file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)


@click.group(context_settings=HELP)
@click.version_option(VERSION, "-V", "--version", message="deepbench %(version)s")
def cli() -> None:
    """Measure how fast hardware and libraries run the basic operations of deep learning.

    \b
    deepbench run                                 measure the suite `quick` with every library found
    deepbench run deepbench/server                measure DeepBench's inference problems
    deepbench run gemm m=1760 n=128 k=1760 f32    measure one problem
    deepbench show FILE                           print the table of a result file
    """
