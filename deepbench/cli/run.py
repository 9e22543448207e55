"""`deepbench run`: measure cases and print the table."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepbench.api.text import BadInput, DeepBenchError, NotWritten, command, count
from deepbench.cli.interrupts import EXIT_INTERRUPTED
from deepbench.cli.launch import check_environment, resumed_place, taking_place
from deepbench.cli.options import (
    case_options,
    choices_of,
    duration,
    is_trusted,
    metric_option,
    one_of,
    print_libraries,
    seconds,
    whole,
)
from deepbench.cli.root import EXIT_WRONG, HELP, cli, system_error
from deepbench.cli.streams import go_on_without_output, say

if TYPE_CHECKING:
    from deepbench.api.measuring import LoadWatch, Options, Session


@cli.command(context_settings=HELP, short_help="Measure cases and print a table.")
@click.argument("words", nargs=-1, metavar="[SUITE|FILE|CASE]...")
@case_options
@one_of(
    "mode",
    quick="One process per case, short samples.",
    rigorous="Ten to twenty processes per case, ±0.5 %.",
)
@click.option("--once", is_flag=True, help="One call of one case in this process, without a clock: for simulators.")
@click.option("--rounds", metavar="N", help="Exactly N processes per case.")
@click.option("--energy", is_flag=True, help="Energy per call, where the CPU or the device counts it (2 s more each).")
@click.option(
    "--sustained", is_flag=True, help="Load a GPU with each case for 3 s more: its time, clock and power then."
)
@click.option("--no-limits", is_flag=True, help="Do not measure what the machine can do at most; saves some seconds.")
@click.option("--search-again", is_flag=True, help="Let libraries of GPUs choose their algorithms anew.")
@click.option("--hostfile", metavar="FILE", help="Hosts for groups, one per line; ranks are spread evenly over them.")
@click.option(
    "--ab",
    metavar="NAME=A,B",
    help="Alternate between two values of a setting, of threads or backend, or of an environment VARIABLE; or between "
    "two builds: openblas=old.whl,new.whl (also folders or files), openblas==0.3.30,0.3.33. -o mine writes "
    "mine.a.jsonl and mine.b.jsonl.",
)
@click.option(
    "--against",
    metavar="FILE",
    help="Measure the cases of FILE, alternating between its libraries and the current ones.",
)
@metric_option
@click.option(
    "--trust",
    metavar="FILE",
    help="With --against FILE: load the libraries whose paths FILE names. With --resume: start as many ranks as FILE "
    "says, on the hosts it names.",
)
@click.option(
    "--budget",
    metavar="TIME",
    help="Stop after TIME, such as 10min: every case once, then again where intervals are widest.",
)
@click.option("--timeout", metavar="S", help="Give up a case after S seconds without a sign of life (default 600).")
@click.option("-o", "--output", metavar="FILE", help="The result file (default: deepbench-<date>-<time>.jsonl).")
@click.option("--resume", is_flag=True, help="Continue FILE where it stopped.")
def run(
    words: tuple[str, ...],
    mode: str | None,
    once: bool,
    rounds: str | None,
    energy: bool,
    sustained: bool,
    no_limits: bool,
    search_again: bool,
    hostfile: str | None,
    ab: str | None,
    against: str | None,
    metric: str,
    trust: str | None,
    budget: str | None,
    timeout: str | None,
    output: str | None,
    resume: bool,
    **filters: Any,
) -> int:
    """Measure cases, keep every record in a file, and print a table. Without arguments: the suite `quick`.

    \b
    Examples:
      deepbench run
      deepbench run gemm m=1760 n=128 k=1760 f32,bf16 onednn,mkl
      deepbench run deepbench/train --backend mkl,onednn -o train.jsonl
      deepbench run my_problems.csv --set weights=plain,packed --threads 1,2
      deepbench run --ab threads=1,2 gemm m=1760 n=128 k=1760 -o mine
      deepbench run --ab openblas==0.3.30,0.3.33 quick -o mine
      deepbench run --resume -o train.jsonl
      valgrind --tool=callgrind deepbench run --once gemm m=64 n=64 k=64 onednn
    """
    from deepbench.api.filters import needs_groups, plan_cases
    from deepbench.api.groups import hosts_of_file, launched
    from deepbench.api.measuring import LoadWatch, Options, Session, default_path

    check_environment()
    if once:
        others = (mode, rounds, energy, sustained, no_limits, search_again, hostfile, ab, against, trust)
        if any((*others, budget, timeout, output, resume, metric != "steady")):
            raise BadInput("--once makes one call and writes no file: it takes a case and the options that choose one")
        return _run_once(words, filters)
    timeout_s, watch = seconds("--timeout", timeout), LoadWatch()
    if resume:
        options_given = (mode, rounds, energy, sustained, no_limits, search_again, ab, against, budget)
        given = [*words, *filter(None, (*options_given, *filters.values()))]
        if given or not output:
            raise BadInput("--resume takes everything from the file; the command is deepbench run --resume -o FILE")
        trusted = is_trusted(output, trust)
        with resumed_place(hostfile) as (hosts, ranks):
            resumed = Session.resume(Path(output), hosts, timeout_s, trusted=trusted, started=ranks)
            with resumed as session:
                return measure_and_print(session, watch)
    options = Options(
        mode or "default",
        whole("--rounds", rounds, 1000),
        energy,
        timeout_s,
        duration("--budget", budget),
        command=tuple(sys.argv[1:]),
        sustained=sustained,
        no_limits=no_limits,
        search_again=search_again,
    )
    place = launched()
    if ab or against:
        if (ab and against) or hostfile or budget or place is not None:
            raise BadInput("--ab and --against stand alone: one of them, on one host, without --budget")
        return _run_sides(words, filters, ab, against, metric, trust, options, output, watch)
    if metric != "steady":
        raise BadInput("--metric belongs to --ab and --against; deepbench compare takes it for two files")
    if trust is not None:
        raise BadInput("--trust FILE belongs to --against FILE, or to --resume")
    if hostfile and place is not None:
        raise BadInput(f"leave out --hostfile: {place.launcher} has started deepbench on the hosts to use")
    planned = plan_cases(words or "quick", choices_of(filters, mode))
    groups = needs_groups(planned)
    with taking_place(place, groups) as given_hosts:
        if hostfile and not groups:
            raise BadInput("--hostfile is for operations in which several processes take part, such as all_reduce")
        hosts = hosts_of_file(hostfile) if hostfile else given_hosts
        path = Path(output) if output else default_path(Path(), _stamp())
        with Session.create(path, planned, options.on(hosts)) as session:
            return measure_and_print(session, watch, options.begin)


def _run_once(words: tuple[str, ...], filters: dict[str, Any]) -> int:
    """Make one call of one case and say whether its result is right; the exit code of the command."""
    from deepbench.api.filters import plan_cases
    from deepbench.api.measuring import run_once

    planned = plan_cases(words or "quick", choices_of(filters))
    if len(planned) != 1:
        texts = f"{planned[0].case.text} and {planned[1].case.text}"
        raise BadInput(f"--once takes one case, and this names {len(planned)}, such as {texts}; add what is missing")
    try:
        found = run_once(planned[0].case)
    except DeepBenchError as error:
        if isinstance(error, BadInput):
            raise
        say(f"{planned[0].case.text}: {error}")
        return EXIT_WRONG
    result = f"wrong: {found.error}" if found.error else f"right: {found.checked}" if found.checked else "not checked"
    print(f"{found.case.text}: {found.library}, {found.loop} loop, {result}")
    return EXIT_WRONG if found.error else 0


def measure_and_print(session: Session, watch: LoadWatch, begin: float | None = None) -> int:
    """Measure what the session plans and print the table; the exit code of the command.

    `watch` knows what other programs use; it has run while the session was prepared.
    """
    from deepbench.api.results import results_of
    from deepbench.cli.console import make_console, print_head, print_load, print_unused, progress_bar

    console, path = make_console(), session.file.path
    go_on_without_output(f"all results still go to {path}")
    print_head(console, results_of(session.file), os.environ)
    print_unused(console, {case.device for case in session.cases})
    session.slowdown = print_load(console, watch).slowdown
    code = 0
    try:
        with progress_bar(console) as bar:
            session.run(bar, begin)
    except (NotWritten, OSError) as error:
        reason = system_error(error) if isinstance(error, OSError) else str(error)
        raise BadInput(f"{reason}. {_to_continue(session)}") from None
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
        console.print()
    records = [r for r in session.file.records if r["status"] != "interrupted"]
    if records:
        console.print()
        results_of(session.file).table().print(console)
    if code:
        say(f"interrupted; {_to_continue(session)}")
        return code
    if not session.is_in_place:
        raise BadInput(_to_continue(session))
    if session.file.incomplete is not None and session.file.header["plan"].get("budget_s"):
        say(f"{session.file.incomplete}, because the budget is over. To continue:")
        say(f"  {command('run', '--resume', '-o', path)}")
    say(f"\n{path} has every sample. To see one line per library:\n  {command('show', path, '--full')}")
    has_time = any(s.estimate is not None for s in results_of(session.file).summaries)
    if not has_time:
        say("no case has a time, so this command fails (exit code 1); the reasons are above")
    return EXIT_WRONG if not has_time or any(r["status"] == "wrong" for r in records) else 0


def _to_continue(session: Session) -> str:
    path = session.file.path
    if not session.is_in_place:
        return f"{path} was moved, removed or replaced while it was measured: look for it before you measure again"
    return f"{path} has everything measured so far. To continue: {command('run', '--resume', '-o', path)}"


def _run_sides(
    words: tuple[str, ...],
    filters: dict[str, Any],
    ab: str | None,
    against: str | None,
    metric: str,
    trust: str | None,
    options: Options,
    output: str | None,
    watch: LoadWatch,
) -> int:
    """Measure two sides in turn and print their comparison."""
    from deepbench.api.measuring import Turns, builds, names_of_sides, same_libraries, sides_of_file
    from deepbench.api.results import comparison_report, load_kernels, results_of
    from deepbench.cli.console import make_console, print_head, print_labelled, print_load, print_text, progress_bar

    trusted, stack = is_trusted(against, trust), ExitStack()
    chosen = choices_of(filters, options.mode)
    if ab is not None:
        chosen = builds.of_library(ab, chosen)
        both, cases = stack.enter_context(builds.sides(ab)), words or ("quick",)
    elif words or any(filters.values()):
        raise BadInput("--against takes its cases from the file; leave out words and filters")
    else:
        file = load_kernels(Path(str(against))).file
        both, cases = sides_of_file(file, trusted=trusted), tuple(file.order)
        print_libraries(both[0].libraries, str(against))
    stem = Path(output.removesuffix(".jsonl")) if output else Path(f"deepbench-{_stamp()}")
    console = make_console()
    go_on_without_output(f"all results still go to {stem}.a.jsonl and {stem}.b.jsonl")
    with stack, Turns.create(both, cases, chosen, options, stem) as turns:
        rounds = turns.files[0].header["plan"]["rounds"]
        names = names_of_sides(both, turns.files)
        for side, file in zip(both, turns.files, strict=True):
            print_labelled(console, f"side {side.name.upper()}", f"{side.words}, file {file.path}")
            print_head(console, results_of(file), os.environ)
        if text := same_libraries(both, turns.files):
            print_labelled(console, "same", text, style="bold yellow")
        console.print(
            f"{count(len(turns.pairs), 'case')}, {rounds['least']} to {rounds['most']} processes per side", markup=False
        )
        print_load(console, watch)
        code = 0
        try:
            with progress_bar(console) as bar:
                turns.run(bar)
        except KeyboardInterrupt:
            console.print("interrupted; both files have everything measured so far", markup=False)
            code = EXIT_INTERRUPTED
        comparison = turns.comparison(metric)
        if comparison.cases:
            print_text(comparison_report(comparison, names, full=False), None)
        else:
            console.print(f"no case has a time on both sides: {'; '.join(comparison.left_out[:3])}", markup=False)
        say(f"\nTo compare again:\n  {command('compare', *(file.path for file in turns.files))}")
        wrong = any(r["status"] == "wrong" for file in turns.files for r in file.records)
        return code or (EXIT_WRONG if wrong or not comparison.cases else 0)


def _stamp() -> str:
    return datetime.now().strftime("%Y%m%d-%H%M%S")
