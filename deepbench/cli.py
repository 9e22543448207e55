"""The command `deepbench`: the only file that talks to a person, and where the steps of the pipe meet."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from deepbench import __version__
from deepbench.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from deepbench.group import Place
    from deepbench.measure import Rules
    from deepbench.plan import Choices, Planned, Rounds
    from deepbench.report.views import View
    from deepbench.store import ResultFile, Store
    from deepbench.summary import Summary

EXIT_WRONG = 1
EXIT_BAD_INPUT = 64  # EX_USAGE of sysexits.h
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def main() -> NoReturn:
    """Run the command and leave with its exit code; bad input is one sentence on standard error."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that has no µ gets a ?
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
    except BadInput as error:
        _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        print("deepbench: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        # Only output gets here: files are read and written where an error can be told in a better sentence.
        _drop_output()
        _fail(f"cannot write the output: {error.strerror or error}")


def _drop_output() -> None:
    """What is still buffered cannot be written; Python would try again at exit and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_with_the_reader() -> None:
    """Let `| head` end us in silence, as it ends other programs. Not while measuring: a run keeps its file."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _fail(sentence: str) -> NoReturn:
    from deepbench.record import printable

    print(f"deepbench: {printable(sentence)}", file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)


def _comma_list(ctx: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """`--backend mkl,onednn` and `--backend mkl --backend onednn` are the same."""
    return tuple(dict.fromkeys(w for v in value for w in v.split(",") if w))


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose cases, which `list` and `run` share."""
    options = (
        ("--op", "OP", "Only these ops."),
        ("--backend", "NAME", "Only these libraries (default: all of the device but torch, reference and null)."),
        ("--precision", "P", "These precisions, or all (default: f32, or what the suite says)."),
        ("--direction", "D", "These directions (default: what the suite says, else forward)."),
        ("--application", "A", 'Only problems of these applications, such as "Speech Recognition".'),
        ("--threads", "N", "Threads (default: all cores that this process may use)."),
        ("--ranks", "N", "Only groups of so many ranks (default: what a suite says, up to the number of cores)."),
        ("--set", "NAME=VALUE", "A setting, such as weights=packed or beta=0."),
    )
    device = click.option("--device", metavar="DEVICE", help="cpu (default), cuda or hip: whose libraries to take.")
    command = device(command)
    for name, metavar, text in reversed(options):
        split = None if name in ("--set", "--application") else _comma_list
        command = click.option(name, multiple=True, metavar=metavar, help=text + " Repeatable.", callback=split)(
            command
        )
    return command


@click.group(context_settings=HELP)
@click.version_option(__version__, "-V", "--version", message="deepbench %(version)s")
def cli() -> None:
    """How fast do hardware and libraries run the basic operations of deep learning?

    \b
    deepbench run                                 the suite `quick`, on every library here
    deepbench run deepbench/server                DeepBench's inference problems
    deepbench run gemm m=1760 n=128 k=1760 f32    one problem
    deepbench show FILE                           the table of a result file
    """


@cli.command(name="list", context_settings=HELP)
@click.argument("words", nargs=-1, metavar="[SUITE|FILE|CASE]...")
@_filters
@click.option("--suites", is_flag=True, help="The suites there are, instead of cases.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a case.")
def list_cases(words: tuple[str, ...], suites: bool, as_json: bool, **filters: Any) -> None:
    """Print cases without running them; each line, after `deepbench run`, measures that case.

    \b
    Example: deepbench list deepbench/server --precision i8,i8u8 --backend onednn
    """
    from deepbench import plan

    _end_with_the_reader()
    if suites:
        for name in plan.suite_files():
            rows = {(e.pattern.op, e.source["row"]) for e in plan.read_suite(name) if e.source}
            print(f"{name:24} {len(rows):4} problems")
        return
    for planned in _plan(words, filters):
        line = {"case": planned.case.text, "sources": planned.sources}
        print(json.dumps(line, ensure_ascii=False) if as_json else planned.case.text)


@cli.command(context_settings=HELP)
@click.option("--matrix", is_flag=True, help="Which library serves which op, precision and direction.")
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
def info(matrix: bool, as_json: bool) -> None:
    """This machine, the libraries found here, and for each missing one why and the remedy.

    \b
    Example: deepbench info --matrix
    """
    from deepbench import backend as backends
    from deepbench import system
    from deepbench.native import callloop

    _end_with_the_reader()
    table = _matrix()
    if matrix and not as_json:
        _print_matrix(table)
        return
    machine, opened = system.describe(), _open_backends(list(backends.all_backends()))
    loop = "native" if callloop.native_library() else "python"
    if as_json:
        content = {"machine": machine, "libraries": opened, "loop": loop, "support": table}
        print(json.dumps(content, ensure_ascii=False, indent=1))
        return
    console = _console()
    _print_machine(console, machine)
    text = (
        "compiled"
        if loop == "native"
        else (
            "Python (about 0.5 µs a call): no C compiler when deepbench was installed; "
            "install gcc, then install deepbench again"
        )
    )
    console.print(f"call loop  {text}", markup=False, highlight=False)
    console.print()
    cards = [answer.get("library", {}).get("card") for answer in opened.values()]
    for card in {card["bus_id"]: card for card in cards if card}.values():
        _print_card(console, card)
    for name, answer in opened.items():
        _print_library(console, backends.find(name).title, answer)


@cli.command(context_settings=HELP)
@click.argument("words", nargs=-1, metavar="[SUITE|FILE|CASE]...")
@_filters
@click.option("--quick", "mode", flag_value="quick", help="One round, short samples.")
@click.option("--rigorous", "mode", flag_value="rigorous", help="Ten to twenty rounds, ±0.5 %.")
@click.option("--rounds", metavar="N", help="Exactly so many rounds, each in fresh processes.")
@click.option("--energy", is_flag=True, help="Joules a call, on devices that count energy (2 s more a case).")
@click.option("--hostfile", metavar="FILE", help="Hosts for groups, one a line; ranks are spread evenly over them.")
@click.option("--timeout", metavar="S", help="Seconds without a sign of life that end a case (default 600).")
@click.option("-o", "--output", metavar="FILE", help="The result file (default: deepbench-<time>.jsonl).")
@click.option("--resume", is_flag=True, help="Go on with FILE where it stops.")
@click.option("--full", is_flag=True, help="A line for each library in the table.")
def run(
    words: tuple[str, ...],
    mode: str | None,
    rounds: str | None,
    energy: bool,
    hostfile: str | None,
    timeout: str | None,
    output: str | None,
    resume: bool,
    full: bool,
    **filters: Any,
) -> int:
    """Measure cases, keep every record in a file, print the table. Without words: the suite `quick`.

    \b
    Examples:
      deepbench run
      deepbench run deepbench/train --backend mkl,onednn --precision f32 -o train.jsonl
      deepbench run my_problems.csv --set weights=plain,packed --threads 1,2
      deepbench run --resume -o train.jsonl
    """
    from deepbench.record import cleaned
    from deepbench.store import Store, default_path, read

    _check_environment()
    if resume:
        if not output:
            raise BadInput("--resume needs the file to go on with: deepbench run --resume -o FILE")
        given = [n for n, v in filters.items() if v] + [n for n in (mode, rounds, energy, hostfile) if n]
        if words or given:
            raise BadInput("--resume takes cases and settings from the file; leave out everything but -o FILE")
        with _place_of(_launched(), True) as hosts:
            store = Store.reopen(Path(output))
            found = read(Path(output))
            _refuse_other_machine(found, hosts)
            store.go_on(found)
            return _go_on(found, store, _seconds(timeout), full)
    where = _launched()
    if hostfile and where is not None:
        raise BadInput(f"leave out --hostfile: {where.launcher} has started deepbench on the hosts to use")
    planned = _plan(words, filters)
    with _place_of(where, _groups(planned)) as hosts:
        hosts = _hosts(hostfile, planned) if hostfile else hosts
        header = _header(planned, mode or "default", rounds, energy, _seconds(timeout), hosts)
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        path = Path(output) if output else default_path(Path(), stamp)
        store = Store.create(path, cleaned(header))
        return _go_on(read(path), store, None, full)


@cli.command(context_settings=HELP)
@click.argument("file", metavar="FILE")
@click.option("--json", "form", flag_value="json", help="Header, roofs and a row a case.")
@click.option("--csv", "form", flag_value="csv", help="A row a case, for spreadsheets.")
@click.option("--markdown", "form", flag_value="markdown", help="A table to paste into a page.")
@click.option("--full", is_flag=True, help="A line for each library instead of the fastest only.")
@click.option(
    "--by",
    metavar="WHAT",
    help="application: sums of an application's kernels; backend: side by side; ranks: all-reduce.",
)
@click.option("--against", metavar="FILE", help="With --by application: another file to compare with.")
def show(file: str, form: str | None, full: bool, by: str | None, against: str | None) -> None:
    """The table of a result file; checks every line of it first.

    \b
    Examples:
      deepbench show deepbench-20261121-113000.jsonl --csv > results.csv
      deepbench show new.jsonl --by application --against old.jsonl
    """
    from deepbench.report import export
    from deepbench.store import read
    from deepbench.summary import summarize

    _end_with_the_reader()
    found = read(Path(file))
    if found.torn:
        print(f"deepbench: {file}: the last line is incomplete and was ignored", file=sys.stderr)
    summaries = summarize(found.records, found.order)
    if by is not None or against is not None:
        _show_view(found, summaries, by, against, form)
        return
    if form == "json":
        print(export.to_json(found, summaries), end="")
    elif form == "csv":
        print(export.to_csv(summaries), end="")
    elif form == "markdown":
        print(export.to_markdown(summaries), end="")
    else:
        console = _console()
        _print_head(console, found)
        _print_table(console, found, full)


def _show_view(
    found: ResultFile, summaries: list[Summary], by: str | None, against: str | None, form: str | None
) -> None:
    from deepbench.report import views
    from deepbench.store import read
    from deepbench.summary import summarize

    if by not in ("application", "backend", "ranks"):
        raise BadInput(f"--by is application, backend or ranks, found {by or 'nothing'}")
    if against is not None and by != "application":
        raise BadInput("--against goes with --by application")
    if by == "application":
        other = read(Path(against)) if against is not None else None
        view = views.by_application(summaries, summarize(other.records, other.order) if other else None)
        if not view.rows:
            raise BadInput(f"no case of {found.path} comes from a suite that names applications; run deepbench/server")
    elif by == "ranks":
        from deepbench.report import groups

        view = groups.by_ranks(summaries)
        if not view.rows:
            raise BadInput(f"no all-reduce of {found.path} has a time; run all_reduce n=100000 ranks=2")
    else:
        view = views.by_backend(summaries)
        if not view.rows:
            raise BadInput(f"no case of {found.path} has a time; see deepbench show {found.path}")
    _print_view(view, form)


def _print_view(view: View, form: str | None) -> None:
    if form is not None:
        print({"json": view.json, "csv": view.csv, "markdown": view.markdown}[form](), end="")
        return
    console = _console()
    console.print(view.table(), soft_wrap=not console.is_terminal)
    for line in view.notes:
        console.print(line, markup=False)


@cli.command(context_settings=HELP)
@click.argument("file", metavar="FILE")
@click.option("--ranks", multiple=True, metavar="N", callback=_comma_list, help="Group sizes to predict. Repeatable.")
@click.option("--json", "form", flag_value="json", help="For programs.")
@click.option("--csv", "form", flag_value="csv", help="For spreadsheets.")
@click.option("--markdown", "form", flag_value="markdown", help="To paste into a page.")
def scale(file: str, ranks: tuple[str, ...], form: str | None) -> None:
    """Predict all-reduce of larger groups from a file that has several sizes at two or more numbers of ranks.

    \b
    Example: deepbench scale deepbench-20261121-113000.jsonl --ranks 64,1024
    """
    from deepbench.case import whole_number
    from deepbench.report import groups
    from deepbench.store import read
    from deepbench.summary import summarize

    _end_with_the_reader()
    found = read(Path(file))
    wanted = [whole_number("--ranks", n) for n in ranks] or groups.DEFAULT_RANKS
    if not all(2 <= n <= 10**6 for n in wanted):
        raise BadInput("--ranks must be from 2 to 1000000")
    view = groups.scaled(summarize(found.records, found.order), wanted)
    if not view.rows:
        raise BadInput(f"{found.path} gives no model: {view.notes[0]}")
    _print_view(view, form)


# ---- choosing


def _plan(words: tuple[str, ...], filters: dict[str, Any]) -> list[Planned]:
    from deepbench import plan, system

    choices = _choices(filters)
    entries = plan.read_words(words or ("quick",))
    planned = plan.expand(entries, choices, system.default_threads())
    if not planned:
        raise BadInput("no case is left: no library serves what the filters ask for; see `deepbench info --matrix`")
    return planned


def _choices(filters: dict[str, Any]) -> Choices:
    from deepbench import case as cases
    from deepbench import plan, precision

    settings: dict[str, tuple[str, ...]] = {}
    for word in filters["set"]:
        name, equals, values = word.partition("=")
        if not equals:
            raise BadInput(f"--set wants NAME=VALUE, found {cases.shorten(word)!r}")
        settings[name] = (*settings.get(name, ()), *values.split(","))
    precisions = filters["precision"]
    return plan.Choices(
        ops=filters["op"],
        backends=filters["backend"],
        precisions=tuple(precision.PRECISIONS) if "all" in precisions else precisions,
        directions=filters["direction"],
        applications=filters["application"],
        threads=tuple(map(cases.thread_count, filters["threads"])),
        ranks=tuple(cases.whole_number("ranks", n) for n in filters["ranks"]),
        most_ranks=where.ranks if (where := _launched()) else None,
        device=_device(filters["device"]),
        settings=settings,
    )


DEFAULT_DEVICE = "cpu"


def _device(name: str | None) -> str:
    from deepbench.backend import DEVICES

    if name is not None and name not in DEVICES:
        raise BadInput(f"--device is one of {', '.join(DEVICES)}, found {name[:60]!r}")
    return name or DEFAULT_DEVICE


def _rounds(mode: str, exactly: str | None, energy: bool) -> tuple[Rounds, Rules]:
    from dataclasses import replace

    from deepbench import measure, plan
    from deepbench.case import whole_number

    rounds = {"quick": plan.QUICK, "default": plan.DEFAULT, "rigorous": plan.RIGOROUS}[mode]
    rules = {"quick": measure.QUICK, "default": measure.DEFAULT, "rigorous": measure.RIGOROUS}[mode]
    if exactly is not None:
        number = whole_number("--rounds", exactly)
        if not 1 <= number <= 1000:
            raise BadInput(f"--rounds must be from 1 to 1000, found {number}")
        rounds = replace(rounds, least=number, most=number)
    return rounds, replace(rules, energy_s=measure.ENERGY_S) if energy else rules


def _launched() -> Place | None:
    """Which of how many processes this is, None where no launcher has started several."""
    from deepbench import group

    where = group.place(os.environ)
    return where if where is not None and where.ranks > 1 else None


def _groups(planned: list[Planned]) -> bool:
    from deepbench import op as ops

    return any(ops.find(p.case.op).group for p in planned)


@contextmanager
def _place_of(where: Place | None, groups: bool) -> Iterator[list[str]]:
    """Take the place that a launcher gave: rank 0 goes on, with the hosts of all; the others serve it, and leave."""
    from deepbench import allocation

    if where is None:
        yield []
    elif not groups:
        if where.rank:
            raise click.exceptions.Exit(0)
        print(
            f"deepbench: started {where.ranks} times by {where.launcher}: this one measures, the others have ended; "
            "deepbench fleet measures on all hosts",
            file=sys.stderr,
        )
        yield []
    elif where.rank:
        allocation.lend(where)
        raise click.exceptions.Exit(0)
    else:
        with allocation.gather(where) as given:
            yield list(given.hosts.values()) if len(given.hosts) > 1 else []


def _hosts(path: str, planned: list[Planned]) -> list[str]:
    """The hosts of a file, one a line; what stands behind the name, such as `slots=4`, is left to launchers."""
    from deepbench import allocation, launch, plan

    if not _groups(planned):
        raise BadInput("--hostfile is for ops in which several processes take part, such as all_reduce")
    lines = (line.partition("#")[0].split() for line in plan.text_of(Path(path)).splitlines())
    hosts = [re.split("[: ]", words[0])[0] for words in lines if words]
    wrong = next((h for h in hosts if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", h)), None)
    if not hosts or wrong is not None:
        raise BadInput(f"{path}: wanted a host a line, found {wrong[:60]!r}" if wrong else f"{path} names no host")
    if shell := os.environ.get(launch.REMOTE_SHELL):
        os.environ.update(allocation.remote_shell(shell))
    return list(dict.fromkeys(hosts))


DEFAULT_TIMEOUT_S = 600.0


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise BadInput(f"--timeout must be a number of seconds above 0, found {text[:60]!r}")
    return value


def _check_environment() -> None:
    """Say it when the environment asks for threads that the settings decide."""
    text, where = os.environ.get("OMP_NUM_THREADS"), _launched()
    if text is None or (where is not None and where.rank):
        return
    if not re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text):
        raise BadInput(f"OMP_NUM_THREADS is {text[:60]!r}, wanted a whole number; unset it, and say --threads N")
    print(f"deepbench: OMP_NUM_THREADS={text} is not used; threads are a setting, --threads N", file=sys.stderr)


# ---- running


def _header(
    planned: list[Planned],
    mode: str,
    rounds: str | None,
    energy: bool,
    timeout_s: float | None,
    hosts: list[str],
) -> dict[str, Any]:
    import random

    from deepbench import backend as backends
    from deepbench import system
    from deepbench.record import SCHEMA

    how, rules = _rounds(mode, rounds, energy)
    names = {p.case.backend for p in planned}
    devices = {backends.find(name).device for name in names}
    # Those that may set a roof.
    names |= {
        name
        for name, b in backends.all_backends().items()
        if b.default and b.device in devices and not isinstance(b, backends.GroupBackend)
    }
    libraries = _open_backends(sorted(names))
    _refuse_without_device(planned, libraries)
    return {
        "schema": SCHEMA,
        "tool": f"deepbench {__version__}",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv[1:],
        "machine": system.describe(),
        "libraries": libraries,
        "plan": {
            "rounds": asdict(how),
            "mode": mode,
            "order_seed": random.SystemRandom().randrange(2**31),
            "timeout_s": timeout_s or DEFAULT_TIMEOUT_S,
            "rules": asdict(rules),
            "hosts": hosts,
            "cases": [{"case": p.case.text, "sources": p.sources} for p in planned],
        },
    }


def _refuse_without_device(planned: list[Planned], libraries: dict[str, Any]) -> None:
    """`BadInput` in one sentence where all cases are for a device that is not here."""
    from deepbench import backend as backends

    names = {p.case.backend for p in planned}
    missing = [libraries[n]["unavailable"] for n in sorted(names) if "unavailable" in libraries[n]]
    if len(missing) == len(names) and all(backends.find(n).device != DEFAULT_DEVICE for n in names):
        raise BadInput(f"{missing[0]['reason']}; {missing[0]['remedy']}")


def _open_backends(names: list[str]) -> dict[str, Any]:
    from concurrent.futures import ThreadPoolExecutor

    from deepbench import run as runs

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:  # each waits for a process
        return dict(zip(names, threads.map(lambda name: runs.open_backend(name, 60.0), names), strict=True))


def _refuse_other_machine(found: ResultFile, hosts: list[str]) -> None:
    """`BadInput` naming what differs between the machine, hosts or libraries of the file and those here."""
    from deepbench import system

    differs = system.differences(found.header["machine"], system.describe())
    then_hosts = found.header["plan"].get("hosts") or []
    if hosts and hosts != then_hosts:
        differs.append(f"the hosts were {' '.join(then_hosts) or 'this one alone'} and are {' '.join(hosts)}")
    here = _open_backends(sorted(found.header["libraries"]))
    for name, then in found.header["libraries"].items():
        old, new = then.get("library"), here[name].get("library")
        if old != new:
            differs.append(f"library {name} was {_library_words(old)} and is {_library_words(new)}")
    if differs:
        raise BadInput(f"{found.path} was measured elsewhere: {'; '.join(differs)}; start a new file instead")


def _library_words(library: dict[str, Any] | None) -> str:
    if library is None:
        return "unavailable"
    build = library.get("cpu_kernels") or library.get("build") or "-"
    return f"{library.get('version')} at {library.get('path')} ({build})"


def _go_on(found: ResultFile, store: Store, timeout_s: float | None, full: bool) -> int:
    """Measure what the plan of the file still lacks; returns the exit code."""
    from deepbench.report.progress import Bar

    console, plan_line = _console(), found.header["plan"]
    _print_head(console, found)
    try:
        with Bar(console) as bar, _interruptible():
            _measure_remaining(console, found, store, bar, timeout_s or plan_line["timeout_s"])
    except BrokenPipeError:
        _drop_output()
        raise BadInput(
            f"the output was closed; {found.path} is whole up to here; "
            f"go on with: deepbench run --resume -o {found.path}"
        ) from None
    except KeyboardInterrupt:
        store.close()
        console.print()
        if any(r["status"] != "interrupted" for r in found.records):
            _print_table(console, found, full)
        console.print(
            f"interrupted; {found.path} is whole up to here. Go on with:\n  deepbench run --resume -o {found.path}",
            markup=False,
            highlight=False,
        )
        return EXIT_INTERRUPTED
    store.close()
    _print_table(console, found, full)
    console.print(f"\n{found.path} keeps every sample. Next:", markup=False, highlight=False)
    console.print(f"  deepbench show {found.path} --full", markup=False, highlight=False)
    return EXIT_WRONG if any(r["status"] == "wrong" for r in found.records) else 0


def _measure_remaining(console: Console, found: ResultFile, store: Store, bar: Any, timeout_s: float) -> None:
    """The loop where plan, run, roof and store meet."""
    from deepbench import backend as backends
    from deepbench import case as cases
    from deepbench import measure, plan, record
    from deepbench import op as ops
    from deepbench import run as runs
    from deepbench.roof import Roofs

    header = found.header
    rounds, rules = plan.Rounds(**header["plan"]["rounds"]), measure.Rules(**header["plan"]["rules"])
    seed = header["plan"]["order_seed"]
    planned = [plan.Planned(cases.parse(p["case"]), p["sources"]) for p in header["plan"]["cases"]]
    sources = {p.case.text: p.sources for p in planned}
    opened = header["libraries"]
    unavailable = {
        n: f"{a['unavailable']['reason']}; {a['unavailable']['remedy']}"
        for n, a in opened.items()
        if "unavailable" in a
    }

    def keep(line: dict[str, Any]) -> None:
        store.append(line)
        if "roof" in line:
            found.roofs.append(line["roof"])
        else:
            found.records.append(line)

    hosts = header["plan"].get("hosts") or []

    def probe(case: cases.Case, number: int) -> record.Record:
        return runs.measure_case(case, number, measure.QUICK, timeout_s)

    def probe_again(case: cases.Case, number: int) -> record.Record:
        return runs.measure_case(case, number, measure.DEFAULT, timeout_s)

    def queue() -> list[tuple[cases.Case, int]]:
        return plan.queue(planned, found.records, rounds, seed)

    defaults = [n for n, b in backends.all_backends().items() if b.default]
    roofs = Roofs(found.roofs, [n for n in defaults if n in opened and n not in unavailable])
    left = [case for case, _ in queue()]
    used = {(c.precision.name, backends.find(c.backend), c.threads) for c in left if not ops.find(c.op).group}
    needed = {(precision, backend.device, threads) for precision, backend, threads in used if backend.computes}
    for precision, device, threads in sorted(needed):
        for name in roofs.missing(precision, device, threads):
            bar.say(f"roof of {name}")
            line = roofs.probe(name, device, threads, probe)
            if line is not None:
                keep({"roof": line})

    def estimate(case: cases.Case) -> float:
        if case.backend in unavailable:
            return 0.0
        roof = roofs.highest(case.precision.name, backends.find(case.backend).device, case.threads)
        return plan.estimated_s(case, roof, rules)

    bar.start(planned, found.records, rounds, estimate)
    events = runs.measure_all(
        queue, unavailable, lambda case, number: runs.measure_case(case, number, rules, timeout_s, hosts)
    )
    current: tuple[cases.Case, int] | None = None
    try:
        for event in events:
            if isinstance(event, runs.Started):
                current = (event.case, event.round)
                bar.started(event.case, event.round)
            else:
                judged = roofs.judge(event.record, probe_again, keep)
                keep({**judged, "sources": sources[judged["case"]]})
                current = None
                bar.finished(judged)
    except KeyboardInterrupt:
        if current is not None:
            keep(record.make(*current, "interrupted", "stopped by the user (Ctrl-C)"))
        raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """A polite `kill` ends a run as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- printing


def _console() -> Console:
    from rich.console import Console

    # Piped output is plain and is not folded to some width nobody asked for.
    return Console(width=None if sys.stdout.isatty() else 400, highlight=False)


def _print_head(console: Console, found: ResultFile) -> None:
    """Machine, libraries, number of cases: a reader of a log must never wonder which library it was."""
    header = found.header
    _print_machine(console, header["machine"])
    used = {word for planned in header["plan"]["cases"] for word in planned["case"].split()}
    cards = [a["library"].get("card") for n, a in header["libraries"].items() if n in used and "library" in a]
    if card := next(filter(None, cards), None):
        _print_card(console, card)
    for name, answer in header["libraries"].items():
        if name in used:
            _print_library(console, _title(name), answer)
    plan_line = header["plan"]
    rounds = plan_line["rounds"]
    times = f"{rounds['least']}" if rounds["least"] == rounds["most"] else f"{rounds['least']} to {rounds['most']}"
    count = len(plan_line["cases"])
    console.print(
        f"cases      {count}, each measured in {times} fresh process{'es' if times != '1' else ''}"
        f" ({plan_line['mode']}), to {found.path}",
        markup=False,
    )


def _title(name: str) -> str:
    from deepbench.report.table import library_title

    return library_title(name)


def _print_machine(console: Console, machine: dict[str, Any]) -> None:
    from deepbench import units

    allowed = machine.get("cores_allowed")
    has = [i for i in machine.get("instructions") or [] if re.match(r"avx|amx|sve|sme|asimd|bf16|i8mm", i)]
    parts = [
        str(machine.get("cpu")),
        f"{allowed} core{'s' if allowed != 1 else ''}",
        units.data_bytes(machine.get("memory_bytes")),
        str(machine.get("system")),
    ]
    console.print(f"machine    {', '.join(parts)}", markup=False)
    console.print(f"           {' '.join(has)}", markup=False)


def _print_library(console: Console, title: str, answer: dict[str, Any]) -> None:
    if "library" in answer:
        library = answer["library"]
        threading = f", {library['threading']}" if library.get("threading") else ""
        text = f"{library['version'] or ''}{threading}  {library['path'] or ''}".strip() or str(library["name"])
    else:
        missing = answer["unavailable"]
        text = f"not here: {missing['reason']}\n{'':11}remedy: {missing['remedy']}"
    console.print(f"{title:10} {text}", markup=False, soft_wrap=True)


def _print_card(console: Console, card: dict[str, Any]) -> None:
    from deepbench import units

    parts = [
        f"{card.get('vendor')} {card.get('name')}".replace("NVIDIA NVIDIA", "NVIDIA"),
        f"{card.get('processors')} multiprocessors",
        units.data_bytes(card.get("memory_bytes")),
        f"driver {card.get('driver')}",
    ]
    console.print(f"card       {', '.join(parts)}", markup=False)


def _print_table(console: Console, found: ResultFile, full: bool) -> None:
    from deepbench.report import table
    from deepbench.summary import summarize

    console.print()
    table.render(summarize(found.records, found.order), console, full)


def _matrix() -> list[dict[str, Any]]:
    """Rows of the support table, read from the marks."""
    from deepbench import backend as backends
    from deepbench import op as ops
    from deepbench import precision

    return [
        {
            "op": op.name,
            "direction": direction,
            "precision": name,
            "backends": [b.name for b in backends.all_backends().values() if b.supports(op.name, name, direction)],
        }
        for op in ops.all_ops().values()
        for direction in op.directions
        for name in precision.PRECISIONS
    ]


# They serve whatever an op allows, and are no libraries.
OURS = ("null", "reference")


def _print_matrix(rows: list[dict[str, Any]]) -> None:
    import itertools

    from rich.table import Table

    from deepbench import backend as backends
    from deepbench import op as ops

    console = _console()
    for device, group in itertools.product(backends.DEVICES, (False, True)):
        of_kind = [r for r in rows if ops.find(r["op"]).group == group]
        serving = {name for r in of_kind for name in r["backends"]}
        names = [n for n, b in backends.all_backends().items() if b.device == device and n in serving]
        table = Table("op", "direction", "precision", *names, box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for row in of_kind:
            marks = ["yes" if name in row["backends"] else "–" for name in names]
            if set(names) & set(row["backends"]) - set(OURS):
                table.add_row(row["op"], row["direction"], row["precision"], *marks)
        words = [f"--device {device}"] if device != DEFAULT_DEVICE else []
        words += ["one process a rank"] if group else []
        if words:
            console.print(f"\n{', '.join(words)}", markup=False)
        console.print(table)
    console.print("yes: the library has a kernel for it; whether this machine does shows when it runs.")
