"""How many rows every table has, remembered: counting them takes a second, and reading the index some milliseconds."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.files import read_regular, replacing
from deepbench.core.json_lines import printable
from deepbench.gpus import package
from deepbench.gpus.families import families, family_of
from deepbench.machine import remembered

MOST_BYTES = 2**20


@dataclass(frozen=True)
class Contents:
    """What the tables of a GPU have."""

    machine: str
    rows: int
    families: dict[str, int]
    """Rows of each family that is like operations of ours."""
    other: dict[str, int]
    """Rows of the other tables."""
    sources: tuple[str, ...]
    """Frameworks with their newest version."""


def contents() -> list[Contents]:
    """Of every GPU of the package; none without it."""
    root = package.folder()
    if root is None:
        return []
    files = [package.facts(file) for machine in package.machines() for file in package.tables(machine)]
    digest = hashlib.sha256(repr((3, str(root), version(), files)).encode()).hexdigest()[:16]
    path = remembered.folder() / "gpus" / f"index-{digest}.json"
    with contextlib.suppress(Exception):  # damaged, or of another program: count again
        kept = [_from_plain(one) for one in json.loads(read_regular(path, MOST_BYTES, "an index of tables"))]
        if tuple(one.machine for one in kept) == package.machines():
            return kept
    found = [_count(machine) for machine in package.machines()]
    with contextlib.suppress(OSError, BadInput):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, ours=True) as draft:
            draft.write_text(json.dumps([vars(one) for one in found]), encoding="utf-8")
    return found


def _from_plain(kept: dict[str, Any]) -> Contents:
    own = {families()[name].name: int(rows) for name, rows in kept["families"].items()}
    other = {printable(name): int(rows) for name, rows in kept["other"].items()}
    return Contents(kept["machine"], int(kept["rows"]), own, other, tuple(map(printable, kept["sources"])))


def version() -> str:
    """Of the package, by the folder that describes it; empty where there is none."""
    root = package.folder()
    folders = sorted(root.parent.parent.glob(f"{package.PACKAGE}-*.dist-info")) if root is not None else []
    name = folders[0].name if len(folders) == 1 else ""
    return printable(name.removeprefix(f"{package.PACKAGE}-").removesuffix(".dist-info"))[:32]


def _count(machine: str) -> Contents:
    from deepbench.gpus.table import version_order

    own: dict[str, int] = {}
    other: dict[str, int] = {}
    newest: dict[str, str] = {}
    for file in package.tables(machine):
        family = family_of(file.stem)
        rows = package.row_count(file)
        counted = own if family is not None else other
        name = family.name if family is not None else file.stem
        counted[name] = counted.get(name, 0) + rows
        if file.stem == "gemm" and version_order(file.version) > version_order(newest.get(file.framework, "")):
            newest[file.framework] = file.version
    sources = tuple(f"{framework} {number}" for framework, number in sorted(newest.items()))
    return Contents(machine, sum(own.values()) + sum(other.values()), own, other, sources)
