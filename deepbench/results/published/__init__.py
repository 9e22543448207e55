"""Results that Baidu's DeepBench published from 2016 to 2019: an imported result file for each of 14 machines.

The files come from 18 workbooks with 10,729 numbers. Each time is the mean of consecutive calls, mostly in whole
microseconds, and nobody checked the answers. The notes of a record say where it was published, and what is known about
it: `their_precision`, `their_flop_per_s` (the rate in the sheet), `padded`, `remark`. Where a suite lists a problem
twice, the faster time counts, and `also_published` has the other. `machine.published` of a header has the facts of the
workbooks. Both gradients of a recurrent layer also appear as their sum, `backward`.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import from_line
from deepbench.results.file import ResultFile, first_line, read_results
from deepbench.results.summary import Summary, summarize

# The remark on a time that was not published itself.
SUM = "sum of both gradients"

PRECISIONS = {"f16": ("f16", "bf16", "f16f16"), "i8": ("i8", "i8u8")}
"""Published precisions, and those of ours that multiply as many bits. Others are their own only."""

THEIRS = {"float32": "f32", "float16_mixed": "f16", "float16_storage": "f16", "int8": "i8"}
"""The words of the workbooks for our precisions."""


@cache
def headers() -> dict[str, dict[str, Any]]:
    """The first lines of the files by the name of the machine, the newest machine first."""
    folder = resources.files("deepbench").joinpath("results", "published")
    paths = [Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".jsonl.gz")]
    found = [{**first_line(path), "path": path} for path in paths]
    found.sort(key=lambda header: (header["started"], header["machine"]["name"]), reverse=True)
    return {header["machine"]["name"]: header for header in found}


def machines() -> list[str]:
    """Names of machines, the newest first."""
    return list(headers())


def path_of(machine: str) -> Path:
    """The file of a machine."""
    path: Path = headers()[machine]["path"]
    return path


def workbooks(machine: str) -> list[dict[str, str]]:
    """What the workbooks of a machine state: suite, year, vendor, software and more, with a value where it is known."""
    facts: list[dict[str, str]] = headers()[machine]["machine"]["published"]
    return facts


def year_of(machine: str) -> str:
    """The year of the last change."""
    return max(book["year"] for book in workbooks(machine))


def find(text: str) -> str:
    """The machine whose name contains this text, ignoring case: `V100`, `xeon phi`. `BadInput` for none or several."""
    known, wanted = machines(), _plain(text)
    exact = [name for name in known if _plain(name) == wanted]
    # The end of a name is preferred, because TitanXp is not TitanX Pascal.
    ends = [name for name in known if wanted and _plain(name).endswith(wanted)]
    names = exact or ends or [name for name in known if wanted and wanted in _plain(name)]
    if len(names) > 1:
        raise BadInput(f"{shorten(text)!r} matches {', '.join(names)}; see deepbench published list")
    if not names:
        words = dict.fromkeys(word for name in known for word in name.split())
        raise BadInput(
            f"{shorten(text)!r} is not a published machine; see deepbench published list; a result file ends in .jsonl "
            f"or .jsonl.gz{did_you_mean(text, words)}"
        )
    return names[0]


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


@cache
def load(machine: str) -> ResultFile:
    """The file of a machine. Its lines are not checked, because they are part of this package."""
    return read_results(path_of(machine), checked=False)


@cache
def summaries(machine: str) -> list[Summary]:
    """One summary per published time, in the order of the sheets."""
    file = load(machine)
    return summarize(file.records, file.order)


@dataclass(frozen=True)
class Overview:
    """What the file of a machine has, in short."""

    numbers: int
    """How many times its workbooks have: those of records, those of the same problem in other rows, and totals."""
    ops: tuple[str, ...]
    precisions: tuple[str, ...]


@cache
def overviews() -> dict[str, Overview]:
    """What the file of each machine has, from a list beside the files: reading all of these takes half a second."""
    text = resources.files("deepbench").joinpath("results", "published", "overview.json").read_bytes()
    kept = from_line(text)
    return {name: Overview(one["numbers"], tuple(one["ops"]), tuple(one["precisions"])) for name, one in kept.items()}


def counted(machine: str) -> Overview:
    """The same from the file itself; `python -m deepbench.results.published.counting` writes the list."""
    with gzip.open(path_of(machine), "rb") as lines:
        next(lines)
        records = [from_line(line) for line in lines]
    records = [r for r in records if isinstance(r, dict) and "case" in r]
    notes: list[dict[str, Any]] = [r["notes"] for r in records]
    rows = [row for n in notes if n.get("remark") != SUM for row in (n, *n.get("also_published", ()))]
    return Overview(
        sum(1 + ("their_total" in row) for row in rows),
        tuple(dict.fromkeys(r["op"] for r in records)),
        tuple(sorted({r["precision"] for r in records})),
    )


def numbers_of(machine: str) -> int:
    """How many times its workbooks have."""
    return overviews()[machine].numbers


@cache
def all_reduces() -> dict[str, list[Summary]]:
    """The published times of all-reduce by machine."""
    planned = {name: [p["case"] for p in header["plan"]["cases"]] for name, header in headers().items()}
    having = [name for name, cases in planned.items() if any(case.startswith("all_reduce ") for case in cases)]
    return {name: [s for s in summaries(name) if s.record["op"] == "all_reduce"] for name in having}
