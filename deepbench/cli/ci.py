"""`deepbench ci`: is a change of a library slower? The whole job of a CI system."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from deepbench.cli.console import load_text, make_console, progress_bar
from deepbench.cli.options import choices_of, choosing_options, duration, share
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say, warn


@cli.command(context_settings=HELP, short_help="For CI: two builds of a library in turn, with a verdict.")
@click.argument("words", nargs=-1, metavar="[SUITE|CASE]...")
@click.option("--ab", metavar="NAME=OLD,NEW", required=True, help="Two builds, as in run --ab; the old one first.")
@click.option("--budget", metavar="TIME", default="10min", help="Time for everything (default 10min).")
@click.option("--margin", metavar="P", default="5%", help="Ignore slowdowns below P (default 5%).")
@click.option("--quick", is_flag=True, help="Short samples.")
@click.option("-o", "--output", metavar="FOLDER", help="A new folder (default: deepbench-ci-<date>-<time>).")
@choosing_options("--op", "--precision", "--direction", "--threads", "--set", "--device", "--fit", "--backend")
def ci(
    words: tuple[str, ...], ab: str, budget: str, margin: str, quick: bool, output: str | None, **filters: Any
) -> int:
    """Measure two builds of a library in turn, and judge the second. Exit code 0: not slower; 1: slower; 2: neither.

    The old build is measured against itself first. If that shows that this machine cannot tell what --margin asks for,
    there is no verdict, and the exit code is 2. The folder gets both result files, verdict.json, comment.md for a pull
    request, and junit.xml.

    \b
    Examples:
      deepbench ci --ab openblas==0.3.30,0.3.33 quick
      deepbench ci --ab onednn=base/libdnnl.so,head/libdnnl.so conv --margin 3%
    """
    from deepbench.api.ci import BUDGET_S, run_job, texts
    from deepbench.api.measuring import LoadWatch

    mode, watch = ("quick" if quick else "default"), LoadWatch()
    folder = Path(output or f"deepbench-ci-{datetime.now().strftime('%Y%m%d-%H%M%S')}")
    chosen, seconds, allowed = choices_of(filters, mode), duration("--budget", budget), share("--margin", margin)
    if busy := load_text(watch):
        warn(f"busy: {busy}")
    console = make_console(to_read=True)
    with progress_bar(console) as bar:
        job = run_job(ab, words or ("quick",), chosen, folder, seconds or BUDGET_S, allowed, mode, bar)
    say(texts.sentence(job.verdict))
    for case in job.verdict.outcome.cases if job.verdict.outcome else ():
        if case.verdict != "passed":
            say(f"  {case.verdict}: {case.case}: {case.reason}")
    say(f"{folder} has the result files, comment.md, junit.xml and verdict.json")
    return job.verdict.exit_code
