"""`deepbench gate`: is anything slower than before? For CI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepbench.cli.compare import compared, trained_files
from deepbench.cli.options import is_trusted, print_libraries, share, skip_damaged_option
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say
from deepbench.core.errors import BadInput
from deepbench.core.files import replacing, require_no_results
from deepbench.core.json_lines import printable

if TYPE_CHECKING:
    from deepbench.judge.compare import Comparison
    from deepbench.results.file import ResultFile


@cli.command(context_settings=HELP, short_help="Fail if any case is slower in B than in A.")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--margin", metavar="P", default="5%", help="Ignore slowdowns below P (default 5%).")
@click.option("--rerun", is_flag=True, help="Measure cases that look slower again, and judge them by that alone.")
@click.option("--trust", metavar="A", help="With --rerun: load the libraries whose paths A names.")
@click.option("--unchecked", is_flag=True, help="Also compare times whose results were not checked.")
@skip_damaged_option
@click.option("--junit", metavar="FILE", help="Write JUnit XML for a CI system.")
@click.option("--markdown", metavar="FILE", help="Write a summary for a pull request.")
def gate(
    first: str,
    second: str,
    margin: str,
    rerun: bool,
    trust: str | None,
    unchecked: bool,
    skip_damaged: bool,
    junit: str | None,
    markdown: str | None,
) -> int:
    """Fail if any case is slower in B than in A. Exit code 0: no regression; 1: regression; 2: undecided.

    \b
    Examples:
      deepbench gate main.jsonl branch.jsonl --junit gate.xml
      deepbench gate main.jsonl branch.jsonl --rerun --trust main.jsonl
    """
    from deepbench.cli.console import load_text, make_console
    from deepbench.judge import gate as gates
    from deepbench.judge.compare import MARGIN
    from deepbench.machine.doctor import LoadWatch
    from deepbench.reporting import compare as tables
    from deepbench.reporting.table import print_parts
    from deepbench.results.file import read_results

    for output in filter(None, (junit, markdown)):
        require_no_results(Path(output))  # now, and not after measuring again
    if trust is not None and not rerun:
        raise BadInput("--trust A belongs to --rerun: without it, no library is loaded")
    allowed, trusted = share("--margin", margin), is_trusted(first, trust)
    watch = LoadWatch()
    same = min(allowed, MARGIN)  # what counts as the same stays small where a larger slowdown is allowed
    if (files := trained_files(first, second, skip_damaged)) is not None:
        if rerun:
            raise BadInput("--rerun measures kernels again, and these files have trained applications; train again")
        return _gate_trained(*files, allowed, junit, markdown)
    comparison = compared(first, second, same, unchecked, skip_damaged, broken=True)
    outcome = gates.judge(comparison, allowed)
    flagged = [j.case for j in outcome.of(gates.REGRESSION)]
    if rerun and flagged:
        say(f"measuring {len(flagged)} flagged case{'s' if len(flagged) > 1 else ''} again")
        if busy := load_text(watch):
            say(f"busy: {busy}")
        before, after = (read_results(Path(path), skip_damaged) for path in (first, second))
        again = _measure_again(before, after, flagged, same, unchecked, trusted)
        outcome = gates.after_rerun(outcome, gates.judge(again, allowed))
    lines = gates.sentences(outcome)
    broken = tuple(comparison.broken)
    others = [text for text in comparison.left_out if not (broken and text.startswith(broken))]
    lines_below = [f"differs: {text}" for text in comparison.differences]
    lines_below += [f"not compared: {text}" for text in others[:5]]
    answer = tables.answer_of_gate(comparison, outcome)
    print_parts([[*lines, *lines_below], answer], make_console())
    if junit is not None:
        _write(junit, gates.junit(outcome))
    if markdown is not None:
        names = printable(Path(first).name), printable(Path(second).name)
        _write(markdown, tables.gate_markdown(comparison, names, [*lines, *answer]))
    return outcome.exit_code


def _gate_trained(before: ResultFile, after: ResultFile, margin: float, junit: str | None, markdown: str | None) -> int:
    from deepbench.applications.judge import training_pairs
    from deepbench.applications.judge.trained import runs_of, trained
    from deepbench.applications.reporting.training import pairs_table
    from deepbench.cli.console import make_console
    from deepbench.judge import gate as gates
    from deepbench.judge import selftest
    from deepbench.reporting.table import Table, markdown_of, print_parts

    sides = trained(runs_of(before)), trained(runs_of(after))
    drift = selftest.between_files(before, after)
    outcome = training_pairs.gate(*sides, margin, drift)
    if not outcome.cases:
        raise BadInput(f"{before.path} and {after.path} have no application and rung in common")
    table = pairs_table(training_pairs.judged(*sides, margin, drift)[0])
    table = replace(table, notes=[*table.notes, *training_pairs.differences(before, after)])
    parts: list[Table | Sequence[str]] = [gates.sentences(outcome), table]
    print_parts(parts, make_console())
    if junit is not None:
        _write(junit, gates.junit(outcome))
    if markdown is not None:
        _write(markdown, markdown_of(parts))
    return outcome.exit_code


def _measure_again(
    before: ResultFile, after: ResultFile, flagged: list[str], margin: float, unchecked: bool, trusted: bool
) -> Comparison:
    """Measure flagged cases again: both sides in turn where the first one's libraries are still here."""
    import tempfile

    from deepbench.api import compare as compare_results
    from deepbench.measuring import session, sides
    from deepbench.plan.cases import Choices

    if after.header["plan"].get("interleaved") or not set(flagged) <= set(after.order):
        raise BadInput("--rerun is for two files of the same cases, not for sides of one run; measure both again")
    session.require_same_machine(after)
    with tempfile.TemporaryDirectory(prefix="deepbench-") as folder:
        try:
            both = sides.sides_of_file(before, after.header["libraries"], after, trusted=trusted)
        except sides.NotTrusted:
            raise
        except BadInput:  # the libraries of the first side are gone
            fresh = session.remeasure(after, flagged, Path(folder) / "again.jsonl")
            old = replace(before, records=[r for r in before.records if r["case"] in flagged])
            return compare_results(old, fresh, margin=margin, unchecked=unchecked)
        print_libraries(both[0].libraries, str(before.path))
        with sides.Turns.create(both, flagged, Choices(), session.Options(), Path(folder) / "again") as turns:
            turns.run()
            return compare_results(*turns.files, margin=margin, unchecked=unchecked)


def _write(path: str, text: str) -> None:
    with replacing(Path(path)) as draft:
        draft.write_text(text, encoding="utf-8", errors="replace")
