"""`deepbench compare` and `deepbench gate`: what two result files say together, for people and for CI."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepbench.cli.printing import make_console, print_view
from deepbench.cli.root import HELP, cli, end_with_the_reader
from deepbench.core.errors import BadInput

if TYPE_CHECKING:
    from deepbench.judge.compare import Comparison
    from deepbench.results.file import ResultFile


DEFAULT_MARGIN = "2%"


@cli.command(context_settings=HELP)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B", required=False)
@click.option("--all", "among_all", is_flag=True, help="In place of B: all published machines, a line each.")
@click.option("--margin", metavar="P", default=DEFAULT_MARGIN, help="What does not matter, such as 2% (the default).")
@click.option("--unchecked", is_flag=True, help="Compare times of results that nobody checked, too.")
@click.option("--json", "form", flag_value="json", help="Everything, for programs.")
@click.option("--csv", "form", flag_value="csv", help="A row a case, for spreadsheets.")
@click.option("--markdown", "form", flag_value="markdown", help="A table to paste into a page.")
def compare(first: str, second: str | None, among_all: bool, margin: str, unchecked: bool, form: str | None) -> None:
    """For each case in both files: is B faster or slower than A, the same, or can nobody tell?

    B may be a machine of which the original DeepBench published results: deepbench reference list.

    \b
    Examples:
      deepbench compare before.jsonl after.jsonl
      deepbench compare mine.jsonl V100
      deepbench compare mine.jsonl --all
      deepbench run gemm m=1760 n=128 k=1760 --ab threads=1,2 -o mine    # mine.a.jsonl, mine.b.jsonl, compared
    """
    end_with_the_reader()
    if second is None or among_all or not Path(second).exists():
        if unchecked or margin != DEFAULT_MARGIN:
            raise BadInput("--margin and --unchecked are for two files: published times have no interval to judge by")
        _compare_published(first, second, among_all, form)
        return
    found = compared(first, second, share("--margin", margin), unchecked)
    print_comparison(found, (Path(first).name, Path(second).name), form)


def _compare_published(first: str, second: str | None, among_all: bool, form: str | None) -> None:
    from deepbench.cli.reference import compare_with, compare_with_all
    from deepbench.results import published, summary
    from deepbench.results.file import read_results

    if (second is None) != among_all:
        raise BadInput("compare wants two files, a file and a published machine, or a file and --all")
    if second is not None and ("/" in second or second.endswith(".jsonl")):
        raise BadInput(f"{second} does not exist; wanted a result file, or a machine of deepbench reference list")
    machine = published.find(second) if second is not None else None
    found = read_results(Path(first))
    summaries = summary.summarize(found.records, found.order)
    if machine is None:
        compare_with_all(Path(first).name, summaries, form)
    else:
        compare_with(Path(first).name, summaries, machine, form)


@cli.command(context_settings=HELP)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--margin", metavar="P", default="5%", help="What may be lost without notice, such as 5% (the default).")
@click.option("--rerun", is_flag=True, help="Measure what looks slower again, here, and judge it by that alone.")
@click.option("--unchecked", is_flag=True, help="Compare times of results that nobody checked, too.")
@click.option("--junit", metavar="FILE", help="Write JUnit's XML for a CI system.")
@click.option("--markdown", metavar="FILE", help="Write a summary for a pull request.")
def gate(
    first: str,
    second: str,
    margin: str,
    rerun: bool,
    unchecked: bool,
    junit: str | None,
    markdown: str | None,
) -> int:
    """Is B slower than A anywhere? Exit code 0: no; 1: yes; 2: cannot tell.

    \b
    Example: deepbench gate main.jsonl branch.jsonl --rerun --junit gate.xml
    """
    from deepbench.judge import gate as gates

    allowed = share("--margin", margin)
    found = compared(first, second, comparison_margin(allowed), unchecked, broken=True)
    outcome = gates.judge(found, allowed)
    flagged = [j.case for j in outcome.of(gates.REGRESSION)]
    if rerun and flagged:
        print(f"measuring {len(flagged)} flagged case{'s' if len(flagged) > 1 else ''} again")
        again = _again(first, second, flagged, comparison_margin(allowed), unchecked)
        outcome = gates.after_rerun(outcome, gates.judge(again, allowed))
    names = (Path(first).name, Path(second).name)
    lines = gates.sentences(outcome)
    broken = tuple(f"{case}: " for case in found.broken)
    others = [text for text in found.left_out if not text.startswith(broken)]
    for line in [*lines, *(f"differs: {t}" for t in found.differences), *(f"not compared: {t}" for t in others[:5])]:
        print(line)
    if junit is not None:
        _write(junit, gates.junit(outcome))
    if markdown is not None:
        _write(markdown, _gate_markdown(found, names, lines))
    return outcome.exit_code


def comparison_margin(allowed: float) -> float:
    """What counts as the same where something more may be lost: no more than usual."""
    from deepbench.judge import compare

    return min(allowed, compare.MARGIN)


def _gate_markdown(found: Comparison, names: tuple[str, str], lines: list[str]) -> str:
    from deepbench.report import compare as report
    from deepbench.report.export import escaped

    parts = [f"**{escaped(lines[0])}**", ""]
    parts += [f"- {escaped(line)}" for line in [*lines[1:], *report.heading(found, names)]]
    return "\n".join([*parts, "", report.cases(found).markdown()])


def _again(first: str, second: str, flagged: list[str], margin: float, unchecked: bool) -> Comparison:
    """The flagged cases measured afresh: both sides in turn where the first one's libraries are still here."""
    import tempfile

    from deepbench.cli import interleave, run
    from deepbench.judge import compare, selftest
    from deepbench.measure import sides
    from deepbench.results.file import read_results

    before, after = read_results(Path(first)), read_results(Path(second))
    if after.header["plan"].get("interleaved") or not set(flagged) <= set(after.order):
        raise BadInput("--rerun is for two files of the same cases, not for sides of one run; measure both again")
    run.refuse_other_machine(after, [])
    with tempfile.TemporaryDirectory(prefix="deepbench-") as folder:
        try:
            both = sides.of_file(before, after.header["libraries"], after)
        except BadInput:  # nothing of the first side is left to run
            path = Path(folder) / "again.jsonl"
            fresh = run.measure_again(after, flagged, path)
            old = _only(before, flagged)
            return compare.compare_files(old, fresh, margin, unchecked, selftest.between_files(old, fresh))
        files = interleave.measure_sides(both, tuple(flagged), Path(folder) / "again")
        return compare.compare_files(*files, margin, unchecked)


def _only(found: ResultFile, cases: list[str]) -> ResultFile:
    return replace(found, records=[r for r in found.records if r["case"] in cases])


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; choose another name") from None


def compared(first: str, second: str, margin: float, unchecked: bool, broken: bool = False) -> Comparison:
    """Two files, read and compared; `BadInput` where they have nothing in common, not even what is `broken` now."""
    from deepbench.judge import compare, selftest
    from deepbench.results.file import read_results

    files = read_results(Path(first)), read_results(Path(second))
    found = compare.compare_files(*files, margin, unchecked, selftest.between_files(*files))
    for file in files:
        if file.truncated:
            print(f"deepbench: {file.path}: the last line is incomplete and was ignored", file=sys.stderr)
    if not found.cases and not (broken and found.broken):
        reason = f" ({found.left_out[0]})" if found.left_out else ""
        raise BadInput(f"{first} and {second} have no measured case in common{reason}")
    return found


def print_comparison(found: Comparison, names: tuple[str, str], form: str | None) -> None:
    """Heading, means, cases, verdict; or one of the forms for programs."""
    from deepbench.report import compare as report

    if form == "json":
        print(json.dumps(report.to_json(found), ensure_ascii=False, indent=1))
        return
    if form == "csv":
        print_view(report.cases(found), form)
        return
    if form == "markdown":
        for line in report.heading(found, names):
            print(f"- {line}")
        print()
        for view in (report.means(found), report.cases(found)):
            print_view(view, form)
        for line in report.sentences(found):
            print(f"- {line}")
        return
    console = make_console()
    for line in report.heading(found, names):
        console.print(line, markup=False, soft_wrap=True)
    for view in (report.means(found), report.cases(found)):
        console.print()
        print_view(view, None)
    console.print()
    for line in report.sentences(found):
        console.print(line, markup=False, soft_wrap=True)


def share(name: str, text: str) -> float:
    """`2%` or `0.02` as a share from 0 to 1."""
    try:
        value = float(text.strip().removesuffix("%").strip()) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise BadInput(f"{name} must be a share such as 2% or 0.02, found {text[:60]!r}")
    return value
