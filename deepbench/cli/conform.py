"""`deepbench conform`: whether a device does everything right, and how fast it is."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepbench.api.text import BadInput, NotWritten, command
from deepbench.cli.console import (
    make_console,
    print_head,
    print_load,
    print_text,
    progress_bar,
    warn_of_gaps,
)
from deepbench.cli.interrupts import EXIT_INTERRUPTED
from deepbench.cli.launch import check_environment
from deepbench.cli.options import choices_of, choosing_options, duration, form_options, seconds
from deepbench.cli.root import EXIT_WRONG, HELP, cli, system_error
from deepbench.cli.streams import go_on_without_output, say

if TYPE_CHECKING:
    from deepbench.api.measuring import LoadWatch, Session

PAGES = (".html", ".htm")


@cli.command(context_settings=HELP, short_help="Report whether a device does everything right, and how fast.")
@click.argument("file", required=False, metavar="[FILE]")
@choosing_options(
    *("--device", "--op", "--backend", "--precision", "--direction", "--threads"),
    device="Measure this device, which deepbench info --devices lists.",
    backend="Only these libraries (default: those that a run on the device uses).",
    precision="Only these precisions (default: all).",
    direction="Only these directions (default: all).",
)
@click.option("--peak", "peaks", multiple=True, metavar="P=RATE", help="The data sheet's peak: bf16=989T. Repeatable.")
@click.option("--bandwidth", metavar="RATE", help="The data sheet's bandwidth of memory, such as 4.8TB/s.")
@click.option("--budget", metavar="TIME", help="Stop after TIME, such as 10min.")
@click.option("--timeout", metavar="S", help="Give up a case after S seconds without a sign of life (default 600).")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="The result file (default: deepbench-conform-<device>-<date>.jsonl); if it ends in .html, the page.",
)
@click.option("--page", metavar="FILE", help="Also write the report as a page that works offline.")
@click.option("--resume", is_flag=True, help="Continue the result file of -o where it stopped.")
@form_options
def conform(
    file: str | None,
    peaks: tuple[str, ...],
    bandwidth: str | None,
    budget: str | None,
    timeout: str | None,
    output: str | None,
    page: str | None,
    resume: bool,
    form: str | None,
    **filters: Any,
) -> int:
    """Measure everything that the libraries reaching a device offer, and report what is right, refused or wrong.

    FILE shows the report of a result file again. Exit code 1: something is wrong, crashed or hung, or nothing is right.

    \b
    Examples:
      deepbench info --devices
      deepbench conform --device pjrt:tpu --budget 20min --page tpu.html
      deepbench conform --device cuda --peak bf16=989T --bandwidth 3.35TB/s
      deepbench conform deepbench-conform-cuda-20261121-113000.jsonl --json
    """
    from deepbench.api.conformance import (
        conformance,
        conformance_path,
        conformance_report,
        peaks_of,
        plan_conformance,
        write_conformance,
    )
    from deepbench.api.measuring import LoadWatch, Options, Session
    from deepbench.api.results import load_kernels

    stated = peaks_of(peaks, bandwidth)
    if output is not None and output.lower().endswith(PAGES):
        if page is not None:
            raise BadInput(f"-o {output} and --page {page} name two pages; leave one out")
        output, page = None, output
    if page is not None and not page.lower().endswith(PAGES):
        raise BadInput(f"--page wants a name that ends in .html, found {page[-60:]!r}")
    code = 0
    if file is not None:
        if resume or output or budget or timeout or any(filters.values()):
            raise BadInput("FILE is shown, not measured: leave out the options for measuring, or FILE")
        results = load_kernels(Path(file))
        warn_of_gaps(results)
    else:
        check_environment()
        watch, timeout_s = LoadWatch(), seconds("--timeout", timeout)
        quiet = form is not None
        if resume:
            if not output or budget or any(filters.values()):
                raise BadInput("--resume takes everything from the file: deepbench conform --resume -o FILE")
            with Session.resume(Path(output), (), timeout_s) as session:
                code, results = _measure(session, watch, quiet)
        else:
            if not filters["device"]:
                raise BadInput(
                    "name a device, such as --device pjrt:tpu (deepbench info --devices lists them), or FILE"
                )
            choices = choices_of(filters, "quick")
            options = Options(
                "quick",
                timeout_s=timeout_s,
                budget_s=duration("--budget", budget),
                command=tuple(sys.argv[1:]),
            )
            path = Path(output) if output else conformance_path(choices.device, f"{datetime.now():%Y%m%d-%H%M%S}")
            if os.path.lexists(path):
                raise BadInput(f"{path} exists; name another file, or continue it with {_continue(path)}")
            with progress_bar(make_console(quiet=quiet)) as bar:
                planned = plan_conformance(choices, options, bar)
            with Session.create(path, planned, options) as session:
                code, results = _measure(session, watch, quiet, options.begin)
    found = conformance(results, stated)
    if page is not None:
        write_conformance(found, page)
    print_text(conformance_report(found), form)
    if form is None and page is not None:
        say(f"\nwrote {page}")
    return code or (EXIT_WRONG if found.is_broken else 0)


def _measure(session: Session, watch: LoadWatch, quiet: bool, begin: float | None = None) -> tuple[int, Any]:
    """Measure what the session plans; the exit code so far, and the results."""
    from deepbench.api.results import results_of

    console, path = make_console(quiet=quiet), session.file.path
    go_on_without_output(f"all results still go to {path}")
    print_head(console, results_of(session.file), os.environ)
    session.slowdown = print_load(console, watch).slowdown
    code = 0
    try:
        with progress_bar(console) as bar:
            session.run(bar, begin, once=True)
    except (NotWritten, OSError) as error:
        reason = system_error(error) if isinstance(error, OSError) else str(error)
        raise BadInput(f"{reason}. What was measured is in {path}. To continue: {_continue(path)}") from None
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    console.print()
    if not session.is_in_place:
        raise BadInput(f"{path} was moved, removed or replaced while it was measured: look for it first")
    if not quiet and (code or session.file.incomplete is not None):
        say(f"{'interrupted' if code else session.file.incomplete}; to continue: {_continue(path)}\n")
    return code, results_of(session.file)


def _continue(path: Path) -> str:
    return command("conform", "--resume", "-o", path)
