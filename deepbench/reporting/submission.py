"""The words of a submission: what `submission.json` and the README of its folder say, and the rules of rounds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from deepbench.core import shell, units
from deepbench.core.errors import shorten
from deepbench.core.json_lines import printable
from deepbench.core.words import count
from deepbench.judge.submission import UNKNOWN_OF_PUBLISHED, Judged
from deepbench.machine import microarchitecture
from deepbench.plan.results_rounds import ResultsRound
from deepbench.reporting.heading import card_name
from deepbench.reporting.table import Column, Part, Table, escape_markdown
from deepbench.results.completeness import intervals_text
from deepbench.results.file import ResultFile
from deepbench.results.summary import Summary

# Texts of a file in a page are cut to this.
MOST_CHARACTERS = 200


def facts_of(file: ResultFile, summaries: Sequence[Summary], judged: Judged) -> dict[str, Any]:
    """What a file says of itself, the same in every version: machine, libraries, suites, date."""
    machine = cast(Mapping[str, Any], file.header["machine"])
    libraries = {(r["backend"], r["library"]["name"], r["library"]["version"]) for r in file.records if r["library"]}
    return {
        "started": file.header["started"],
        "measured_with": file.header["tool"],
        "machine": {
            "name": _text_or_none(machine.get("name")),
            "cpu": _text_or_none(machine.get("cpu")),
            "cores": _number_or_none(machine.get("cores_allowed")),
            "memory_bytes": _number_or_none(machine.get("memory_bytes")),
            "virtual": machine.get("hypervisor") if isinstance(machine.get("hypervisor"), bool) else None,
            "system": _text_or_none(machine.get("system")),
            "kernel": _text_or_none(machine.get("kernel")),
            "accelerators": _cards(file),
        },
        "libraries": [
            {"backend": backend, "name": name, "version": version}
            for backend, name, version in sorted(libraries, key=lambda found: (found[0], found[1], found[2] or ""))
        ],
        "cases": len(file.order),
        "records": len(file.records),
        "statuses": dict(sorted(Counter(s.status for s in summaries).items())),
        "variables": dict(sorted(file.chosen_variables.items())),
        "unknown": list(UNKNOWN_OF_PUBLISHED) if judged.mark == "published" else [],
    }


def numbers_of(file: ResultFile, summaries: Sequence[Summary], judged: Judged) -> dict[str, Any]:
    """What this version computes from a file: a later one may know a better rule, or another library."""
    ranked = [s for s in summaries if s.is_ranked]
    widths = judged.widths
    return {
        "microarchitecture": microarchitecture.of_machine(cast(Mapping[str, Any], file.header["machine"])),
        "suites": {
            c.suite.name: {p: [c.timed[p], c.kernels] for p in judged.suites.get(c.suite.name, ())}
            for c in judged.covers
        },
        "times": len(ranked),
        "disturbed": sum(s.is_disturbed for s in ranked) if judged.mark == "measured" else None,
        "half_interval_median": judged.median_width,
        "half_interval_widest": widths[-1] if widths else None,
        "findings": list(judged.findings),
    }


def _text_or_none(value: object) -> str | None:
    return shorten(printable(value), MOST_CHARACTERS) if isinstance(value, str) and value else None


def _number_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _cards(file: ResultFile) -> list[str]:
    cards = [a["library"].get("card") for a in file.header["libraries"].values() if "library" in a]
    return sorted({shorten(printable(card_name(card)), MOST_CHARACTERS) for card in cards if isinstance(card, dict)})


# ---- the page of a folder


def readme(form: Mapping[str, Any], summaries: Sequence[Summary], command: Sequence[str]) -> str:
    """The README of a folder in Markdown, from what `submission.json` says. `command` is how it was measured."""
    facts, numbers = form["facts"], form["numbers"]
    machine, mark, name = facts["machine"], form["mark"], form["data"]["file"]
    rows = [
        ("round", form["round"]),
        ("results are", f"{mark} with {facts['measured_with']}" if mark == "measured" else mark),
        ("date", facts["started"]),
        ("processor", _listed([machine["cpu"], numbers["microarchitecture"]])),
        ("accelerator", _listed(machine["accelerators"])),
        ("cores", machine["cores"]),
        ("memory", units.data_bytes(machine["memory_bytes"]) if machine["memory_bytes"] else None),
        ("virtual machine", {True: "yes", False: "no"}.get(machine["virtual"])),
        ("system", _listed([machine["system"], machine["kernel"]])),
        ("variables that change libraries", _listed([f"{n}={v}" for n, v in facts["variables"].items()])),
    ]
    lines = [f"# {_cell(form['title'])}", "", "|  |  |", "|---|---|"]
    lines += [f"| {label} | {_cell(str(value))} |" for label, value in rows if value]
    lines += ["", "## Suites", "", "| suite | precision | problems with a time |", "|---|---|---:|"]
    for suite, precisions in numbers["suites"].items():
        lines += [f"| {_cell(suite)} | {_cell(p)} | {timed} of {all_} |" for p, (timed, all_) in precisions.items()]
    lines += ["", "## Libraries", "", "| library | version |", "|---|---|"]
    named = {(library["name"], library["version"]): None for library in facts["libraries"]}
    lines += [f"| {_cell(name)} | {_cell(version or '–')} |" for name, version in named]
    lines += ["", "## Precision", ""]
    if mark == "measured":
        lines += [f"- {count(numbers['times'], 'time')}, {numbers['disturbed']} of them disturbed by other programs."]
        lines += [f"- {_cell(text)}." for text in (intervals_text(summaries),) if text]
    else:
        lines += [f"- {count(numbers['times'], 'time')}. Unknown: {', '.join(facts['unknown'])}."]
    lines += [f"- {_cell(finding)}." for finding in numbers["findings"]]
    lines += ["", "## Reproduce", ""]
    if mark == "measured":
        lines += ["With the libraries above on such a machine:", "", _code(command), ""]
    lines += ["Look at the results, and check this folder:", ""]
    lines += ["```sh", f"deepbench show {name}", "deepbench submit --check .", "```", ""]
    replaced = form["replaced"]
    if replaced:
        lines += ["## Replaced", "", "These texts of the original file have others in their place:", ""]
        lines += [f"- {_cell(r['what'])} → {_cell(r['by'])}: {count(r['times'], 'time')}" for r in replaced]
        lines += [""]
    lines += [f"`{name}` has the SHA-256 {form['data']['sha256']}."]
    return "\n".join(lines) + "\n"


def _listed(texts: Sequence[str | None]) -> str | None:
    return ", ".join(dict.fromkeys(text for text in texts if text)) or None


def _cell(text: str) -> str:
    """Text of a file in Markdown: nothing in it is a link, an image, a mention or HTML."""
    escaped = escape_markdown(shorten(text, MOST_CHARACTERS))
    return re.sub(r"(?=[#@!(){}])|(?<=:)(?=//)|(?<=[Ww]{3})(?=\.)", "\\\\", escaped)


def _code(words: Sequence[str]) -> str:
    """A command as a block of code: one line, which cannot end the block."""
    return f"    {shorten(shell.command(*words), 2000)}"


# ---- rounds


def rounds_parts(rounds: Sequence[ResultsRound]) -> list[Part]:
    """The rules of each round in sentences, then a table of the suites of all."""
    parts: list[Part] = [[sentence for found in rounds for sentence in _rules_text(found)]]
    rows = [
        {
            "round": found.name,
            "suite": suite.name,
            "required": "required" if suite.required else "free",
            "precisions": ", ".join(suite.precisions),
        }
        for found in rounds
        for suite in found.suites
    ]
    columns = [Column("round"), Column("suite"), Column("required", title=""), Column("precisions")]
    return [*parts, Table(columns, rows)]


def _rules_text(found: ResultsRound) -> list[str]:
    until = f"to {found.last_day}" if found.last_day else "on"
    first = f"Round {found.name}: {found.mark} results, from {found.first_day} {until}"
    rules = found.rules
    if rules is None:
        return [f"{first}. Nobody knows {', '.join(UNKNOWN_OF_PUBLISHED)}."]
    return [
        f"{first}, with deepbench {found.oldest_tool} or newer. Required: each required suite, and every problem of "
        f"each suite in one of its precisions, {units.percent(rules.least_timed)} of them with a time; "
        f"{rules.least_processes} processes per time; {units.percent(rules.least_certain)} of the 95 % intervals "
        f"within {units.plus_minus(rules.widest_half_interval)}; at most {units.percent(rules.most_disturbed)} of the "
        f"times disturbed; at most {rules.most_load_per_core:g} waiting programs per core at the start."
    ]


def rounds_values(rounds: Sequence[ResultsRound]) -> list[dict[str, Any]]:
    """The same for programs."""
    from dataclasses import asdict

    values = [asdict(found) for found in rounds]
    for value in values:
        for name in ("first_day", "last_day"):
            value[name] = str(value[name]) if value[name] is not None else None
    return values
