"""Measure cases, the limits of this machine, and how reliable its comparisons are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from deepbench.api.filters import Filters, What, make_choices, plan_cases, words_of
from deepbench.api.results import Results
from deepbench.core.progress import Activity, Progress
from deepbench.judge.metrics import find_metric
from deepbench.machine import describe, remembered
from deepbench.machine.doctor import Load, LoadWatch
from deepbench.machine.system import require_measurable
from deepbench.measuring import builds, probes
from deepbench.measuring.once import run_once
from deepbench.measuring.session import Options, Session
from deepbench.measuring.sides import Turns, names_of_sides, same_libraries, sides_of_file
from deepbench.reporting.progress import Bar, shown
from deepbench.results.file import default_path

if TYPE_CHECKING:
    from deepbench.judge.compare import Comparison
    from deepbench.judge.selftest import SelfTestResult
    from deepbench.reporting.output import Report
    from deepbench.reporting.table import Table
    from deepbench.results.record import Limit

__all__ = [
    "FEW_HEATS",
    "MANY_HEATS",
    "Activity",
    "Bar",
    "Load",
    "LoadWatch",
    "Options",
    "Progress",
    "Session",
    "Turns",
    "alternate",
    "builds",
    "default_path",
    "limit_tables",
    "measure",
    "measure_limits",
    "names_of_sides",
    "resume",
    "run_once",
    "run_session",
    "same_libraries",
    "selftest",
    "selftest_report",
    "sides_of_file",
    "temporary_path",
]


def measure(
    what: What | Iterable[What] = "quick",
    *,
    mode: str = "default",
    rounds: int | None = None,
    energy: bool = False,
    sustained: bool = False,
    no_limits: bool = False,
    search_again: bool = False,
    budget_s: float | None = None,
    timeout_s: float | None = None,
    hosts: Sequence[str] = (),
    output: str | Path | None = None,
    progress: bool | Progress = False,
    **filters: Unpack[Filters],
) -> Results:
    """Measure cases in fresh processes, check every answer, and keep every record in a file.

    Args:
        what: what to measure, or several such things, as in `cases`.
        mode: `quick` (one process per case), `default` (three to five) or `rigorous` (ten to twenty). With `quick`,
            `fit` limits calls to 512 MiB and 5 GFLOP, unless it has a work.
        rounds: exactly this many processes per case, instead of what the mode says.
        energy: joules per call too, where the CPU or the device counts energy.
        sustained: load a GPU with each case for 3 s more, and keep the time, clock and power over these seconds.
        no_limits: do not measure what the machine can do at most, and judge no result by it.
        search_again: let libraries of GPUs search for the fastest algorithm, even if an earlier run has.
        budget_s: stop after this many seconds, with the most that can be known by then.
        timeout_s: seconds without a sign of life after which a case is given up.
        hosts: where the ranks of collective operations run; this machine if empty.
        output: the result file, which must not exist; by default a file in the folder for temporary files.
        progress: True shows a progress bar; a function is called with an `Activity` before each measurement.
        filters: which cases; see `Filters`.

    Raises `BadInput` for words that cannot be used, where none of the libraries is here, and where nothing fits into
    the budget. A library that crashes, hangs or is wrong raises nothing: its record says so. On KeyboardInterrupt the
    file keeps what was measured.
    """

    choices = make_choices(mode, **filters)
    options = Options(
        mode,
        rounds,
        energy,
        timeout_s,
        budget_s,
        hosts=tuple(hosts),
        sustained=sustained,
        no_limits=no_limits,
        search_again=search_again,
    )
    path = Path(output) if output is not None else temporary_path()
    with Session.create(path, plan_cases(what, choices), options) as session:
        return run_session(session, progress, options.begin)


def resume(
    path: str | Path, *, hosts: Sequence[str] = (), trusted: bool = False, progress: bool | Progress = False
) -> Results:
    """Measure what an interrupted file still lacks; `BadInput` where the machine or the libraries have changed.

    A file that names hosts, or has more ranks than this machine has cores, needs the same `hosts`, or `trusted`.
    """

    with Session.resume(Path(path), hosts, trusted=trusted) as session:
        return run_session(session, progress)


def run_session(session: Session, progress: bool | Progress, begin: float | None = None) -> Results:
    """Measure everything a session plans."""
    with shown(progress) as show:
        session.run(show, begin)
    return Results(session.file)


def alternate(
    sides: str,
    what: What | Iterable[What] = "quick",
    *,
    mode: str = "default",
    rounds: int | None = None,
    timeout_s: float | None = None,
    output: str | Path | None = None,
    metric: str = "steady",
    progress: bool | Progress = False,
    **filters: Unpack[Filters],
) -> Comparison:
    """Measure two sides in turn, which is more certain than one after the other, and compare them.

    Args:
        sides: `NAME=ONE,OTHER`, where NAME is `threads`, `backend`, a setting of cases, or an environment VARIABLE; or
            two builds of a library: `openblas=old.whl,new.whl`, also folders or files, or `openblas==0.3.30,0.3.33`.
        what: what to measure, as in `cases`.
        mode: as in `measure`, and so are `rounds`, `timeout_s` and `progress`.
        rounds: exactly this many processes per case and side.
        timeout_s: seconds without a sign of life after which a case is given up.
        output: `mine` writes `mine.a.jsonl` and `mine.b.jsonl`; by default, files in the folder for temporary files.
        metric: which time of each process is compared, as in `compare`.
        progress: True shows a progress bar.
        filters: which cases; see `Filters`.
    """
    stem = Path(output) if output is not None else temporary_path().with_suffix("")
    options = Options(mode, rounds, False, timeout_s)
    choices = builds.of_library(sides, make_choices(mode, **filters))
    with builds.sides(sides) as both, Turns.create(both, words_of(what), choices, options, stem) as turns:
        with shown(progress) as show:
            turns.run(show)
        return turns.comparison(find_metric(metric))


def measure_limits(
    threads: int | Iterable[int] | None = None, *, quick: bool = False, progress: bool | Progress = False
) -> list[Limit]:
    """Measure the limits of this machine: peak rates, bandwidths, shortest calls. They are remembered for later runs.

    `threads`: numbers of threads; None: one and all cores. `quick`: fewer sizes, one process each.
    """
    require_measurable()
    counts = [threads] if isinstance(threads, int) else [*(threads or sorted({1, describe.default_threads()}))]
    with shown(progress) as show:
        return probes.measure_limits(describe.describe_machine(), counts, quick, show)


# Heats per case, of two processes each: enough to draw sides of five in many ways.
MANY_HEATS, FEW_HEATS = 12, 7


def selftest(*, quick: bool = False, progress: bool | Progress = False) -> tuple[SelfTestResult, Path | None]:
    """Measure how often comparisons on this machine err, and the smallest change that they detect.

    Returns the findings and the file that remembers them, which `compare` reads; None if it could not be written.
    """
    from deepbench.measuring.selftest import measure_selftest

    require_measurable()
    machine = describe.describe_machine()
    with shown(progress) as show:
        findings = measure_selftest(machine, FEW_HEATS if quick else MANY_HEATS, show)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return findings, remembered.remember(machine, "selftest", findings.as_line(now))


def temporary_path() -> Path:
    """An unused name for a result file in the folder for temporary files."""
    import tempfile

    return default_path(Path(tempfile.gettempdir()), f"{datetime.now().strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")


def selftest_report(findings: SelfTestResult) -> Report:
    """The findings of a self-test: sentences, then a table of the smallest change that is detected in each case."""
    from deepbench.reporting import selftest as tables
    from deepbench.reporting.output import Report

    table = tables.table(findings)

    def values() -> dict[str, Any]:
        return {
            "page": tables.page(findings),
            "cases": table.rows,
            "cold": findings.cold,
            "between": findings.between_sessions,
            "cores": {str(cpu): values for cpu, values in findings.cores.items()},
        }

    return Report.of_parts([tables.page(findings), table], values)


def limit_tables(limits: Sequence[Limit], threads: Sequence[int]) -> dict[str, Table]:
    """Limits of this machine for these numbers of threads: the tables `compute`, `memory` and `calls`."""
    from deepbench.reporting import limits as tables

    return tables.tables(limits, threads, describe.describe_machine())
