"""counts.json, which lies beside the output of `deepbench export`, read again: which problem an output belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.formats import json_object

# Problems with more runs than any simulator can count.
MOST_TIMES = 1e18


@dataclass(frozen=True)
class CountedProblem:
    """One problem of counts.json."""

    name: str
    text: str
    """What was asked for."""
    computed: str
    """What the output computes; the same, unless it says otherwise."""
    layers: Mapping[str, int]
    """How often one call of the problem runs each."""
    sources: list[Any] = field(default_factory=list)


def format_of(text: str) -> str:
    """What the export was written for, such as `tflite`; `BadInput` if it is another file."""
    content = json_object(text, "--problems")
    name = content.get("format")
    if not isinstance(content.get("problems"), list) or not isinstance(name, str):
        raise BadInput("--problems: the file is no counts.json of deepbench export")
    return printable(name)


def counted_problems(text: str) -> Iterator[CountedProblem]:
    """Those of a counts.json; `BadInput` if it is another file."""
    format_of(text)
    for entry in json_object(text, "--problems")["problems"]:
        try:
            layers = {str(layer["name"]): int(layer["times"]) for layer in entry["layers"]}
            sources, asked = entry.get("sources", []), printable(str(entry["problem"]))
            problem = CountedProblem(
                printable(str(entry.get("name", ""))),
                asked,
                printable(str(entry.get("computed", asked))),
                layers,
                sources if isinstance(sources, list) else [],
            )
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
            raise BadInput("--problems: a problem in it has no text, or a layer without name or times") from None
        if not layers or not all(1 <= times <= MOST_TIMES for times in layers.values()):
            raise BadInput(f"--problems: {shorten(problem.text, 80)} has no layers, or one that never runs")
        yield problem
