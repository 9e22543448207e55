"""Writes the tables of results.md from the types of records; with `--check`, says whether this was done."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import typing
from pathlib import Path

PAGE = Path(__file__).parent / "results.md"
RECORD = Path(__file__).parents[1] / "deepbench" / "results" / "record.py"
BEGIN = re.compile(r"^<!-- fields of (\w+)(?: at ([\w.]+))?(?: without ([\w ]+))? -->$")
HEAD = ["| field | unit | meaning |", "|---|---|---|"]


def texts() -> dict[tuple[str, str], tuple[str, str]]:
    """Unit and meaning of each field, by class and name: the text below it in the source."""
    found = {}
    for node in ast.parse(RECORD.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        found |= {(node.name, name): text for (owner, name), text in found.items() if owner in bases}
        body = node.body
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                words = " ".join(str(ast.literal_eval(text.value)).split())
                unit, meaning = re.fullmatch(r"(?:\[([^]()]+)\] )?(.*)", words).groups()  # type: ignore[union-attr]
                found[node.name, field.target.id] = unit or "", meaning
    return found


def structures(kind: typing.Any) -> list[tuple[typing.Any, str]]:
    """The structures within a type, with `[]` where it is a list of them."""
    if typing.is_typeddict(kind):
        return [(kind, "")]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return []
    if origin is typing.Annotated:
        return structures(arguments[0])
    mark = "[]" if origin in (list, typing.get_origin(typing.Sequence[int])) else ""
    return [(found, mark + inner) for argument in arguments for found, inner in structures(argument)]


def rows(kind: typing.Any, place: str, skipped: set[str], seen: set[object]) -> list[str]:
    """One row per field of a structure, and of the structures in it that the page does not have already."""
    found = []
    for name, field in typing.get_type_hints(kind, include_extras=True).items():
        unit, meaning = TEXTS.get((kind.__name__, name), ("", ""))
        if not meaning:
            raise SystemExit(f"{kind.__name__}.{name} has no text that says what it means")
        found.append(f"| `{place}{name}` | {unit} | {meaning} |".replace("|  |", "| |"))
        for inner, mark in structures(field) if name not in skipped else ():
            if inner not in seen:
                seen.add(inner)
                found += rows(inner, f"{place}{name}{mark}.", skipped, seen)
    return list(dict.fromkeys(found))


def page() -> str:
    """The page with its tables as the types say."""
    from deepbench.results import record

    lines, out, seen = PAGE.read_text(encoding="utf-8").split("\n"), list[str](), set[object]()
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        out.append(line)
        if begin := BEGIN.match(line):
            kind, place, skipped = begin.groups()
            while lines[position].startswith("|") or not lines[position]:
                position += 1
            seen.add(getattr(record, kind))
            prefix = f"{place}." if place else ""
            out += [*HEAD, *rows(getattr(record, kind), prefix, set((skipped or "").split()), seen), ""]
    return "\n".join(out)


TEXTS = texts()

if __name__ == "__main__":
    text = page()
    if "--check" in sys.argv:
        sys.exit(
            0
            if text == PAGE.read_text(encoding="utf-8")
            else "results.md is not up to date: python docs/make_results.py"
        )
    PAGE.write_text(text, encoding="utf-8")
