"""The command `deepbench`: how it starts and ends, and how it reports bad input."""

from __future__ import annotations

import errno
import sys
from typing import NoReturn

import click

from deepbench.api.text import VERSION, DeepBenchError
from deepbench.cli import streams
from deepbench.cli.interrupts import EXIT_INTERRUPTED, handled
from deepbench.cli.streams import warn

EXIT_WRONG = 1
EXIT_BAD_INPUT = 64  # EX_USAGE of sysexits.h

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@handled()
def main() -> NoReturn:
    """Run the command and exit with its code. Bad input is one sentence on standard error."""
    streams.prepare()
    sys.exit(streams.exit_code(_run()))


def _run() -> int:
    try:
        code = cli.main(standalone_mode=False, prog_name="deepbench")
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx else "")
        return 0
    except click.UsageError as error:
        hint = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
        sentence = f"{error.format_message().rstrip('.')}{hint}"
    except click.ClickException as error:
        sentence = error.format_message()
    except DeepBenchError as error:
        sentence = str(error)
    except (click.Abort, KeyboardInterrupt) as error:
        if not isinstance(error.__cause__, EOFError):
            warn("interrupted")
            return EXIT_INTERRUPTED
        sentence = f"a file ends too early: {error.__cause__}"  # click takes it for an interrupt
    except OSError as error:  # errors of files that a person names are reported where they occur
        sentence = system_error(error)
    warn(sentence)
    return EXIT_BAD_INPUT


def system_error(error: OSError) -> str:
    """What the system refused, and what to do about it."""
    reason = error.strerror or str(error)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{reason}; raise the limit: ulimit -n 1024"
    if reason.startswith("No usable temporary directory"):
        return "no folder for temporary files can be written; set TMPDIR to a folder with free space"
    return f"{error.filename}: {reason}" if error.filename else reason


@click.group(context_settings=HELP)
@click.version_option(VERSION, "-V", "--version", message="deepbench %(version)s")
def cli() -> None:
    """Measure how fast hardware and libraries run the basic operations of deep learning.

    \b
    deepbench run                              measure the suite `quick`
    deepbench run deepbench/server             measure the inference problems
    deepbench run gemm m=64 n=64 k=64 f32      measure one problem
    deepbench show FILE                        print the table of a result file
    deepbench info                             what is here, and what is missing
    """
