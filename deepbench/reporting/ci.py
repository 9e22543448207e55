"""What a CI job found, for people: a line, Markdown for a pull request, and JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as xml

from deepbench.core import units
from deepbench.core.shell import command
from deepbench.judge import gate
from deepbench.judge.ci import REFUSED, CiVerdict
from deepbench.judge.gate import CaseOutcome
from deepbench.judge.resolution import percent
from deepbench.reporting.table import escape_markdown

# Rows of a table in a comment: GitHub takes 65,536 characters.
MOST_ROWS = 50

WORDS = {
    gate.PASSED: "No case is slower",
    gate.REGRESSION: "Slower",
    gate.CANNOT_TELL: "Not decided",
    REFUSED: "Not judged",
}


def sentence(v: CiVerdict) -> str:
    """The verdict in one line."""
    if v.outcome is None:
        return f"Not judged: {v.refusal}"
    numbers = {name: len(v.outcome.of(name)) for name in (gate.REGRESSION, gate.CANNOT_TELL, gate.PASSED)}
    parts = [f"{numbers[gate.REGRESSION]} slower"] if numbers[gate.REGRESSION] else []
    parts += [f"{numbers[gate.CANNOT_TELL]} not decided"] if numbers[gate.CANNOT_TELL] else []
    parts.append(f"{numbers[gate.PASSED]} not slower by {percent(v.margin)} or more")
    return f"{WORDS[v.verdict]}: {', '.join(parts)}"


def comment(v: CiVerdict) -> str:
    """Markdown for a pull request and for the summary of a job. Everything from files is escaped."""
    lines = [
        f"### DeepBench: {escape_markdown(sentence(v))}",
        "",
        f"`{_code(v.base)}` against `{_code(v.head)}` in turn on {escape_markdown(v.machine)}, "
        f"margin {percent(v.margin)}. {_resolution(v)}".rstrip(),
    ]
    if v.outcome is None:
        lines += ["", "No conclusion about the change follows from this run."]
        return "\n".join(lines) + "\n"
    slower = sorted(v.outcome.of(gate.REGRESSION), key=lambda c: -_ratio(c))
    if slower:
        lines += ["", "| slower | time | 95 % interval |", "|---|---:|---:|", *map(_row, slower[:MOST_ROWS])]
        if len(slower) > MOST_ROWS:
            lines.append(f"| {len(slower) - MOST_ROWS} more | | |")
        lines += ["", "To measure one again:", "", "```sh"]
        lines += [_code(command(*v.repeat, c.case)) for c in slower[:3]]
        lines += ["```"]
        if v.seen_again:
            lines += [
                "",
                f"{len(v.seen_again)} cases that looked slower were measured a second time in new processes, and only "
                "that counts here. It was the same machine, so it confirms nothing about others.",
            ]
    for title, verdict in (("not decided", gate.CANNOT_TELL), ("not slower", gate.PASSED)):
        if others := v.outcome.of(verdict):
            lines += ["", f"<details><summary>{len(others)} {title}</summary>", ""]
            lines += ["| case | time | 95 % interval |", "|---|---:|---:|", *map(_row, others[:MOST_ROWS])]
            if len(others) > MOST_ROWS:
                lines.append(f"| {len(others) - MOST_ROWS} more | | |")
            lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def junit(v: CiVerdict, seconds: float) -> str:
    """JUnit XML; a job that was refused is one skipped case."""
    if v.outcome is not None:
        return gate.junit(v.outcome, seconds)
    suite = xml.Element("testsuite", name="deepbench gate", tests="1", failures="0", skipped="1", time=f"{seconds:.3f}")
    case = xml.SubElement(suite, "testcase", classname="deepbench", name="the machine")
    xml.SubElement(case, "skipped", message=str(v.refusal))
    xml.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(suite, encoding="unicode") + "\n"


def _resolution(v: CiVerdict) -> str:
    share = v.resolution.share
    return (
        ""
        if share is None
        else f"Two equal builds were measured first: slowdowns from {percent(share)} on can be seen here."
    )


def _row(c: CaseOutcome) -> str:
    if c.compared is None:
        return f"| {escape_markdown(c.case)} | {escape_markdown(c.reason)} | |"
    interval = c.compared.interval
    words = units.faster_or_slower
    between = " to ".join(map(words, units.by_factor(*interval))) if interval else ""
    return f"| {escape_markdown(c.case)} | {words(c.compared.ratio)} | {between} |"


def _ratio(c: CaseOutcome) -> float:
    return c.compared.ratio if c.compared is not None else float("inf")


def _code(text: str) -> str:
    return text.replace("`", "'").replace("\n", " ")
