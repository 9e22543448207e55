"""A folder of result files → a folder of pages: an index, each machine, each family of problems, any two compared.

What a file gives to other pages is kept beside the site (`.state`), so that a file that has not changed is not read
again, and only pages that a change touches are written.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.json_lines import from_line, to_bytes
from deepbench.core.version import VERSION
from deepbench.report.page import content, render
from deepbench.results import published
from deepbench.results.file import read_results

MARK = "index.json"
STATE = ".state"
ASSETS = ("page.css", *render.SCRIPTS, "site.js")
TEMPLATES = ("head.html", "report.html", "index.html")
SITE_SCRIPTS = ("plotly.min.js", "words.js", "table.js", "charts.js", "site.js")

# The precisions of the index, by the bits of what is multiplied.
COLUMNS = {
    "f32": ("f32", "float32"),
    "bits16": ("bf16", "f16", "f16f16", "float16_mixed", "float16_storage"),
    "bits8": ("i8", "i8u8", "int8"),
}

# What pages of families and comparisons say of a row.
ROW = ("op", "title", "precision", "library", "threads", "time_s", "flop_per_s", "family", "size", "place", "notes")


@dataclass
class Built:
    """What was done."""

    machines: int = 0
    fresh: list[str] = field(default_factory=list)
    """Machines whose page was made anew."""
    removed: list[str] = field(default_factory=list)
    families: int = 0
    written: int = 0
    """Pages of families written."""
    refused: list[str] = field(default_factory=list)
    """Files that could not be read, each with the reason."""


def build(
    folder: Path, out: Path, with_published: bool, step: Callable[[str, int], None] = lambda name, total: None
) -> Built:
    """Bring the site up to date; a file that cannot be read is left out and told of.

    Args:
        folder: result files, in subfolders too.
        out: where the site goes; new, or one that was made before.
        with_published: whether the machines that the original published are in it.
        step: called with the name of what was done, and how much there is to do.

    """
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder; wanted one with result files")
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file; wanted a folder for the site")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).is_file():
        raise BadInput(f"{out} has files that are no site of deepbench; choose an empty folder")
    plotly = render.plotly()
    try:
        return _build(folder, out, with_published, plotly, step)
    except OSError as error:
        raise BadInput(f"cannot write the site: {error.filename}: {error.strerror}") from None


def _build(folder: Path, out: Path, with_published: bool, plotly: str, step: Callable[[str, int], None]) -> Built:
    folder, out = folder.resolve(), out.resolve()
    for name in ("assets", "data", "machines", "families", STATE):
        (out / name).mkdir(parents=True, exist_ok=True)
    if not (out / MARK).is_file():  # so that a first build that was stopped can go on
        _write(out / MARK, b"{}")
    whole = {name: render.asset(name) for name in (*ASSETS, *TEMPLATES)} | {"plotly.min.js": plotly}
    for name in (*ASSETS, "plotly.min.js"):
        _write(out / "assets" / name, whole[name].encode())
    # Pages of another version are made anew, and so is what stands in them.
    version = hashlib.sha256("".join([VERSION, *whole.values()]).encode()).hexdigest()[:16]
    before = {path.stem: path for path in (out / STATE).glob("*.json")}
    files = sorted(path for path in folder.rglob("*.jsonl") if out not in path.parents)
    names = _names(folder, files)
    machines = published.machines() if with_published else []
    done = Built()
    kept: dict[str, dict[str, Any]] = {}
    touched: set[str] = set()
    total = len(files) + len(machines)
    for path in files:
        name = names[path]
        try:
            stamp = f"{version} {path.stat().st_size} {path.stat().st_mtime_ns}"
            digest = _known(before.get(name), stamp)
            if digest is None:
                title = path.relative_to(folder).with_suffix("").as_posix()
                made = content.of_file(read_results(path), title)
                digest = _machine(out, name, made, stamp, f"../data/{name}.jsonl")
                shutil.copyfile(path, out / "data" / f"{name}.jsonl")
                done.fresh.append(name)
        except BadInput as error:
            done.refused.append(str(error))
            continue
        except (
            ValueError,
            TypeError,
            LookupError,
            ArithmeticError,
            FileNotFoundError,
        ) as error:  # no stranger's file ends it all
            done.refused.append(f"{path}: its values make no sense together ({type(error).__name__}: {error})")
            continue
        kept[name] = digest
        step(name, total)
    for machine in machines:
        name = _slug(machine)
        digest = _known(before.get(name), version)
        if digest is None:
            digest = _machine(out, name, content.of_machine(machine), version, None)
            done.fresh.append(name)
        kept[name] = digest
        step(name, total)
    done.removed = sorted(set(before) - set(kept))
    for name in [*done.fresh, *done.removed]:  # families that are in it now, and those that were
        touched |= set(kept[name]["families"]) if name in kept else set()
        touched |= set((_digest(before.get(name)) or {"families": ()})["families"])
    digests = sorted(kept.values(), key=lambda d: (d["kind"] == "published", d["index"]["title"]))
    _families(out, digests, touched, done)
    _index(out, digests)
    # Last of all what says that a machine is up to date: whoever stops us before, we begin there again.
    for name in done.removed:
        stale = [out / "machines" / f"{name}.html", *(out / "data" / f"{name}{end}" for end in (".js", ".jsonl"))]
        for path in [*stale, before[name]]:
            path.unlink(missing_ok=True)
    for name in done.fresh:
        _write(out / STATE / f"{name}.json", to_bytes(kept[name]))
    done.machines = len(digests)
    return done


def _names(folder: Path, files: Iterable[Path]) -> dict[Path, str]:
    """A name a file that is no other's, and that an address may have."""
    found: dict[Path, str] = {}
    taken = {_slug(machine) for machine in published.machines()}
    for path in files:
        text = path.relative_to(folder).with_suffix("").as_posix()
        name = _slug(text)
        if name in taken or name != text:  # told apart by the whole path, so that no order of files changes a name
            name = f"{name}-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:8]}"
        taken.add(name)
        found[path] = name
    return found


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80] or "file"


def _digest(path: Path | None) -> dict[str, Any] | None:
    try:
        value = from_line(path.read_bytes()) if path else None
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("families"), dict) else None


def _known(path: Path | None, stamp: str) -> dict[str, Any] | None:
    value = _digest(path)
    return value if value is not None and value.get("stamp") == stamp else None


def _machine(out: Path, name: str, made: dict[str, Any], stamp: str, download: str | None) -> dict[str, Any]:
    """The page of a machine and its data for comparisons; what other pages say of it."""
    kind = made["kind"]
    whole = {"files": [made], "pairs": []}
    page = render.filled(
        "report.html",
        title=made["name"],
        content=whole,
        style="",
        scripts=["plotly.min.js", *render.SCRIPTS],
        embed=whole,
        policy=render.site_policy(),
        shared="../assets",
        download=download,
    )
    _write(out / "machines" / f"{name}.html", page)
    columns = made["columns"]
    count = len(columns["case"]) if columns else 0
    rows = [{n: columns[n][i] if n in columns else None for n in ROW} for i in range(count)]
    timed = [
        r
        for r, status in zip(rows, columns.get("status", ()), strict=True)
        if r["time_s"] is not None and status in ("ok", "published", "imported")
    ]
    hardware = made["machine"]["card"] or made["machine"]["cpu"]
    libraries = ", ".join(" ".join(str(x[n]) for n in ("name", "version") if x[n]) for x in made["libraries"])
    data = {
        "name": made["name"],
        "kind": kind,
        "about": f"{hardware or 'unknown hardware'}; {libraries}",
        "rows": timed,
    }
    # A script and not JSON, because a page that lies in a folder may not fetch; `embedded` keeps it from being code.
    _write(
        out / "data" / f"{name}.js", b'(window.deepbench ??= {})["%s"] = %s;\n' % (name.encode(), render.embedded(data))
    )
    families: dict[str, list[list[Any]]] = {}
    for r in timed:
        if r["family"] and r["size"] is not None and r["place"] == 1:
            families.setdefault(r["family"], []).append(
                [r["precision"], _threads(r), r["size"], r["time_s"], r["flop_per_s"]]
            )
    # Not convolutions: they count work that an algorithm may save.
    products = [r for r in timed if r["op"] == "gemm" and r["flop_per_s"]]
    best = {
        column: max((float(r["flop_per_s"] or 0) for r in products if r["precision"] in kinds), default=None)
        for column, kinds in COLUMNS.items()
    }
    return {
        "stamp": stamp,
        "name": name,
        "kind": kind,
        "index": {
            "file": name,
            "title": made["name"],
            "kind": kind,
            "hardware": hardware,
            "date": made["machine"]["date"],
            "cases": len(timed),
            **best,
            "memory": max((place["memory"].get("memory", 0.0) for place in made["limits"]), default=0.0) or None,
            "ops": ", ".join(dict.fromkeys(str(r["op"]) for r in timed)),
            "libraries": libraries,
        },
        "families": families,
    }


def _threads(row: Mapping[str, Any]) -> str:
    """The library, and with how many threads where that is said: curves of both would be one otherwise."""
    return f"{row['library']}, {row['threads']} threads" if row["threads"] else str(row["library"])


def _families(out: Path, digests: list[dict[str, Any]], touched: set[str], done: Built) -> None:
    """A page for each family that something changed in, and the list of all."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for digest in digests:
        for family, values in digest["families"].items():
            for precision, library, size, time_s, rate in values:
                rows.setdefault(family, []).append(
                    {
                        "machine": digest["index"]["title"],
                        "file": digest["name"],
                        "precision": precision,
                        "library": library,
                        "size": size,
                        "time_s": time_s,
                        "rate": rate,
                    }
                )
    listed = []
    for family, found in sorted(rows.items()):
        best = max(found, key=lambda r: r["rate"] or 0.0)
        op, _, title = family.partition(" ")
        file = f"{_slug(op)}-{hashlib.sha256(family.encode()).hexdigest()[:12]}"
        listed.append(
            {
                "op": op,
                "title": title or op,
                "file": file,
                "machines": len({r["file"] for r in found}),
                "sizes": len({r["size"] for r in found}),
                "best": best["rate"],
                "of": best["machine"] if best["rate"] else None,
            }
        )
        path = out / "families" / f"{file}.html"
        if family in touched or not path.exists():
            varies = _varies(op)
            made = {
                "page": "family",
                "family": family,
                "varies": varies,
                "rows": sorted(found, key=lambda r: (r["size"], -(r["rate"] or 0.0))),
            }
            lines = [f"All problems of this family are alike but for {varies}; each machine at its fastest library."]
            _page(path, made, f"{op}: {title}", "Every time", lines, "../")
            done.written += 1
    wanted = {f"{entry['file']}.html" for entry in listed} | {"index.html"}
    for path in (out / "families").glob("*.html"):
        if path.name not in wanted:
            path.unlink()
    lines = ["Problems that differ in one size only, such as the batch; each family has a page with all machines."]
    _page(
        out / "families" / "index.html",
        {"page": "families", "families": listed},
        "Families of problems",
        "Families",
        lines,
        "../",
    )
    done.families = len(listed)


def _varies(op: str) -> str:
    from deepbench.core.op import find_op

    try:
        return find_op(op).sweep_field or "size"
    except BadInput:
        return "size"


def _index(out: Path, digests: list[dict[str, Any]]) -> None:
    machines = [d["index"] for d in digests]
    measured = sum(m["kind"] == "measured" for m in machines)
    told = f"{measured} measured machine{'s' if measured != 1 else ''}"
    imported = sum(m["kind"] == "imported" for m in machines)
    if imported:
        told += f", {imported} of other programs' results"
    if others := len(machines) - measured - imported:
        told += f" and {others} that Baidu's DeepBench published from 2016 to 2019"
    lines = [
        f"{told}. Rates are the highest of any dense product, counted without padding.",
        "A machine's page says how fast each kernel is, through which library, and how far from the machine's limits.",
    ]
    _page(out / "index.html", {"page": "index", "machines": machines}, "DeepBench results", "Machines", lines, "")
    lines = ["Choose two machines: the problems that both have, each at its fastest library."]
    listed = [{"file": m["file"], "title": m["title"]} for m in machines]
    _page(
        out / "compare.html",
        {"page": "compare", "machines": listed},
        "Two machines beside each other",
        "Problems that both have",
        lines,
        "",
    )
    entries = [
        {
            **m,
            "page": f"machines/{m['file']}.html",
            "data": None if m["kind"] == "published" else f"data/{m['file']}.jsonl",
        }
        for m in machines
    ]
    _write(
        out / MARK,
        to_bytes({"schema": "deepbench-site/1", "tool": f"deepbench {VERSION}", "machines": entries}),
    )


def _page(path: Path, made: Mapping[str, Any], title: str, heading: str, lines: list[str], up: str) -> None:
    html = render.filled(
        "index.html",
        title=title,
        heading=heading,
        lines=lines,
        up=up,
        embed=made,
        scripts=SITE_SCRIPTS,
        policy=render.site_policy(),
    )
    _write(path, html)


def _write(path: Path, new: bytes) -> None:
    """Only where something changes, and all of it or nothing."""
    if path.is_file() and path.stat().st_size == len(new) and path.read_bytes() == new:
        return
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(new)
    draft.replace(path)
