"""A website of many result files: an index, a page per machine and per family of problems, and a page that compares.

What other pages need to know about a file is cached in the folder `.state` of the site: a file that has not changed is
not read again, and only pages affected by a change are written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.files import NotWritten, read_regular, replacing
from deepbench.core.json_lines import from_line, printable, to_bytes
from deepbench.core.kinds import kind_of_header
from deepbench.core.version import VERSION
from deepbench.judge.history import History, identity_of
from deepbench.reporting.page import content, render
from deepbench.reporting.page import history as history_pages
from deepbench.reporting.page.first_screen import BY_BITS
from deepbench.results import published
from deepbench.results.file import GZIP, JSONL, ResultFile, damage_text, lines_of, read_results, title_of

INDEX = "index.json"
STATE = ".state"
GPUS = "gpus.html"
"""A page of `deepbench report MODEL GPU -o`, which the index has a link to where it is in the folder of the site."""
HISTORY = "history.html"
"""The page about each case over time, which the index has a link to, too."""
MORE = {GPUS: "GPUs for language models", HISTORY: "History"}
HISTORIES = "histories.js"
"""A script with what pages of machines say of their history. Only it changes when the history does."""

MOST_STATE_BYTES = 64 * 2**20
ASSETS = ("page.css", *render.SCRIPTS, "site.js")
TEMPLATES = ("head.html", "report.html", "training.html", "index.html")
SITE_SCRIPTS = ("plotly.min.js", "format.js", "table.js", "charts.js", "figures.js", "machines.js", "site.js")

KINDS = {
    "measured": "measured with deepbench",
    "imported": "imported from other programs",
    "simulated": "simulated or modelled, on no hardware",
}

# What the page that compares knows about a case.
ROW = ("op", "title", "precision", "library", "threads", "time_s", "flop_per_s", "family", "size", "disturbed", "notes")

# What the index knows about the total of an application (`totals.Total`).
TOTAL = (
    *("suite", "application", "precision", "threads", "kernels", "measured", "disturbed", "single_process", "time_s"),
    *("low_s", "high_s", "joules", "bits", "below_minimum"),
)

# What a family knows about each of its problems on a machine.
MEMBER = ("precision", "library", "size", "time_s", "rate")


@dataclass(frozen=True)
class SitePage:
    """The page of a file that has no cases, and what the index says of it."""

    template: str
    content: Mapping[str, Any]
    title: str
    about: str
    what: str
    """In place of the operations of a file of kernels."""
    libraries: str


@dataclass
class Built:
    """What a build did."""

    machines: int = 0
    fresh: list[str] = field(default_factory=list)
    """Machines whose page was written."""
    removed: list[str] = field(default_factory=list)
    families: int = 0
    written: int = 0
    """Pages of families written."""
    refused: list[str] = field(default_factory=list)
    """Files that could not be read, each with the reason."""
    damaged: list[str] = field(default_factory=list)
    """Files that were read without their damaged lines, with the numbers of these."""


def build(
    folder: Path,
    out: Path,
    with_published: bool,
    step: Callable[[str, int], None] = lambda name, total: None,
    skip_damaged: bool = False,
    history: History | None = None,
) -> Built:
    """Bring the site in the folder `out` up to date with the result files in `folder` and its subfolders.

    Files that cannot be read are left out and listed in the result. `with_published` adds the machines that the
    original DeepBench published. `step` is called with the name of each machine that is done, and the number of all.
    With `skip_damaged`, files with damaged lines are read without these lines. `history` becomes the page about each
    case over time; without it, that of an earlier build stays.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder; wanted one with result files")
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file; wanted a folder for the site")
    if out.is_dir() and any(out.iterdir()) and not (out / INDEX).is_file():
        raise BadInput(f"{out} contains files that are not from a deepbench site; choose an empty folder")
    render.require_templates()
    try:
        return _build(folder.resolve(), out.resolve(), with_published, render.plotly(), step, skip_damaged, history)
    except OSError as error:
        reason = error.strerror or str(error)
        where = f"{error.filename}: " if error.filename else ""
        raise BadInput(f"cannot write the site: {where}{reason}") from None


def _build(
    folder: Path,
    out: Path,
    with_published: bool,
    plotly: str,
    step: Callable[[str, int], None],
    skip_damaged: bool,
    history: History | None,
) -> Built:
    for name in ("assets", "data", "machines", "families", STATE):
        (out / name).mkdir(parents=True, exist_ok=True)
    if not (out / INDEX).is_file():  # an interrupted first build can be continued
        _write(out / INDEX, b"{}")
    sources = {name: render.asset(name) for name in (*ASSETS, *TEMPLATES)} | {"plotly.min.js": plotly}
    for name in (*ASSETS, "plotly.min.js"):
        _write(out / "assets" / name, sources[name].encode())
    # Pages of another version are written again, and so is the cache.
    how = "without damaged lines" if skip_damaged else ""
    version = hashlib.sha256("".join([VERSION, how, *sources.values()]).encode()).hexdigest()[:16]
    cached = {path.stem: path for path in (out / STATE).glob("*.json")}
    found = (path for end in (JSONL, JSONL + GZIP) for path in folder.rglob(f"*{end}"))
    files = sorted(path for path in found if out not in path.parents)
    named = [(path, name, _title(path.relative_to(folder))) for path, name in _names(folder, files).items()]
    if with_published:
        named += [(published.path_of(machine), _slug(machine), machine) for machine in published.machines()]
    total, built = len(named), Built()
    digests: dict[str, dict[str, Any]] = {}
    for path, name, title in named:
        try:
            stamp = f"{version} {path.stat().st_size} {path.stat().st_mtime_ns}"
            digest = _unchanged(cached.get(name), stamp)
            if digest is None:
                file = read_results(path, skip_damaged)
                if file.damaged:
                    built.damaged.append(f"{path}: left out {damage_text(file.damaged)}")
                download = f"../data/{name}.jsonl"
                page = kind_of_header(file.header).results_class().site_page(file, title)
                if page is not None:
                    digest = _write_page_without_cases(out, name, page, file, stamp)
                else:
                    machine = identity_of(file.header["machine"])
                    digest = _write_machine(out, name, content.of_file(file, title), stamp, download, machine)
                # Not a copy: what was read has no values that may be secrets.
                _write(out / "data" / f"{name}.jsonl", b"".join(lines_of(file)))
                built.fresh.append(name)
        except NotWritten:
            raise
        except BadInput as error:
            built.refused.append(str(error))
            continue
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, FileNotFoundError) as error:
            # Values that pass the schema one by one may contradict each other; one file must not end the build.
            built.refused.append(f"{path}: its values are inconsistent ({type(error).__name__}: {error})")
            continue
        digests[name] = digest
        step(name, total)
    built.removed = sorted(set(cached) - set(digests))
    changed: set[str] = set()
    for name in [*built.fresh, *built.removed]:  # the families of a machine now, and those before
        for digest in (digests.get(name), _digest(cached.get(name))):
            changed |= set(digest["families"]) if digest else set()
    last = set(map(_slug, published.machines()))
    ordered = sorted(digests.values(), key=lambda d: (d["name"] in last, d["index"]["title"]))
    built.families, built.written = _write_families(out, ordered, changed)
    built.machines = len(ordered)
    _write_history(out, history)
    _write_index(out, ordered)
    # The cache comes last: after an interruption the next build does everything that is missing.
    for name in built.removed:
        pages = [out / "machines" / f"{name}.html", *(out / "data" / f"{name}{end}" for end in (".js", ".jsonl"))]
        for path in [*pages, cached[name]]:
            path.unlink(missing_ok=True)
    for name in built.fresh:
        _write(out / STATE / f"{name}.json", to_bytes(digests[name]))
    return built


def _names(folder: Path, files: Iterable[Path]) -> dict[Path, str]:
    """A unique, URL-safe name for each file."""
    names: dict[Path, str] = {}
    used = {_slug(machine) for machine in published.machines()}
    for path in files:
        text = title_of(path.relative_to(folder))
        name = _slug(text)
        if name in used or name != text:  # the hash of the path keeps names stable when other files come and go
            whole = path.relative_to(folder).as_posix().encode(errors="surrogateescape")
            name = f"{name}-{hashlib.sha256(whole).hexdigest()[:8]}"
        used.add(name)
        names[path] = name
    return names


def _title(path: Path) -> str:
    """What the pages call a file. In a submitted folder, the file has the name of the folder, which is said once."""
    title = title_of(path)
    *_, parent, name = ("", *title.split("/"))
    return title.removesuffix(f"/{name}") if parent == name else title


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80] or "file"


def _digest(path: Path | None) -> dict[str, Any] | None:
    """What the last build knew of a machine; None if it knew nothing, or if that file is damaged."""
    import fastjsonschema

    if path is None:
        return None
    try:
        value: dict[str, Any] = from_line(read_regular(path, MOST_STATE_BYTES, "the state of a site"))
        _digest_check()(value)
    except (BadInput, ValueError, fastjsonschema.JsonSchemaValueException):
        return None
    return value if value["name"] == value["index"]["file"] == path.stem else None


@cache
def _digest_check() -> Callable[[Any], Any]:
    """A function that raises `fastjsonschema.JsonSchemaValueException` for what `_write_machine` never returns."""
    import fastjsonschema

    text, number, optional = {"type": "string"}, {"type": "number"}, {"type": ["number", "null"]}
    kind = {"enum": list(KINDS)}
    known: dict[str, Any] = {"file": text, "title": text, "kind": kind, "cases": {"type": "integer"}}
    known |= {name: {"type": ["string", "null"]} for name in ("hardware", "date", "incomplete", "ops", "libraries")}
    known |= dict.fromkeys((*BY_BITS, "memory"), optional)
    count, some = {"type": "integer"}, {"type": ["integer", "null"]}
    total = [text, text, text, some, *[count] * 4, *[optional] * 4, some, {"type": ["string", "null"]}]
    items = {"type": "array", "items": total, "minItems": len(TOTAL), "maxItems": len(TOTAL)}
    known["applications"] = {"type": "array", "items": items}
    row = {"type": "array", "items": [text, text, number, number, optional], "minItems": 5, "maxItems": 5}
    family = _closed({"sweep_field": text, "rows": {"type": "array", "items": row}})
    families = {"type": "object", "additionalProperties": family}
    fields = {"stamp": text, "name": text, "kind": kind, "index": _closed(known), "families": families}
    check: Callable[[Any], Any] = fastjsonschema.compile(_closed(fields))
    return check


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _unchanged(path: Path | None, stamp: str) -> dict[str, Any] | None:
    digest = _digest(path)
    return digest if digest is not None and digest.get("stamp") == stamp else None


def _write_machine(
    out: Path, name: str, data: dict[str, Any], stamp: str, download: str, machine: str
) -> dict[str, Any]:
    """Write the page of a machine and its data for comparisons; returns what other pages need to know."""
    one_file = {"files": [data], "pairs": []}
    page = render.filled(
        "report.html",
        title=data["name"],
        content=one_file,
        style="",
        packed=None,
        scripts=["plotly.min.js", HISTORIES, *render.SCRIPTS],
        embed=one_file,
        policy=render.site_policy(),
        shared="../assets",
        download=download,
        machine=machine if data["kind"] == "measured" else "",
    )
    _write(out / "machines" / f"{name}.html", page)
    columns: Mapping[str, Sequence[Any]] = data["columns"]
    count = len(columns["case"]) if columns else 0
    keys = [key for key in (*ROW, "status", "position", "sweep_field") if key in columns]
    rows = [{key: columns[key][i] for key in keys} for i in range(count)]
    timed = [r for r in rows if r["time_s"] is not None and r["status"] in ("ok", "imported")]
    hardware = data["machine"]["card"] or data["machine"]["cpu"]
    libraries = ", ".join(" ".join(str(x[n]) for n in ("name", "version") if x[n]) for x in data["libraries"])
    compared = {
        "name": data["name"],
        "kind": data["kind"],
        "about": f"{hardware or 'unknown hardware'}; {libraries}",
        "rows": [{key: row.get(key) for key in ROW} for row in timed],
    }
    # A script, because a page that is opened from a folder may not fetch JSON. `embedded` keeps it plain data.
    script = b'(window.deepbench ??= new Map()).set("%s", %s);\n' % (name.encode(), render.embedded(compared))
    _write(out / "data" / f"{name}.js", script)
    families: dict[str, dict[str, Any]] = {}
    for r in timed:
        # A disturbed time would bend the curve of its machine.
        if r["family"] and r["size"] is not None and r["position"] in ("fastest", "only") and not r.get("disturbed"):
            family = families.setdefault(r["family"], {"sweep_field": r["sweep_field"], "rows": []})
            library = f"{r['library']}, {r['threads']} threads" if r.get("threads") else str(r["library"])
            family["rows"].append([r["precision"], library, r["size"], r["time_s"], r["flop_per_s"]])
    # Convolutions count work that some algorithms avoid, so the index has rates of products.
    products = [r for r in timed if r["op"] == "gemm" and r["flop_per_s"] and not r.get("disturbed")]
    best = {
        column: max((float(r["flop_per_s"]) for r in products if r["precision"] in precisions), default=None)
        for column, (_, precisions) in BY_BITS.items()
    }
    return {
        "stamp": stamp,
        "name": name,
        "kind": data["kind"],
        "index": {
            "file": name,
            "title": data["name"],
            "kind": data["kind"],
            "hardware": hardware,
            "date": data["machine"]["date"],
            "cases": len(timed),
            "incomplete": data["incomplete"],
            **best,
            "memory": max((limits["memory"].get("memory", 0.0) for limits in data["limits"]), default=0.0) or None,
            "ops": ", ".join(dict.fromkeys(str(r["op"]) for r in timed)),
            "libraries": libraries,
            "applications": [[total[name] for name in TOTAL] for total in data["applications"]],
        },
        "families": families,
    }


def _write_page_without_cases(out: Path, name: str, page: SitePage, file: ResultFile, stamp: str) -> dict[str, Any]:
    """Write the page of a file that has no cases; returns what other pages need to know."""
    html = render.filled(
        page.template,
        **page.content,
        title=page.title,
        style="",
        policy=render.site_policy(),
        shared="../assets",
        download=f"../data/{name}.jsonl",
    )
    _write(out / "machines" / f"{name}.html", html)
    cpu = file.header["machine"].get("cpu")
    compared = {"name": page.title, "kind": "measured", "about": page.about, "rows": list[Any]()}
    script = b'(window.deepbench ??= new Map()).set("%s", %s);\n' % (name.encode(), render.embedded(compared))
    _write(out / "data" / f"{name}.js", script)
    return {
        "stamp": stamp,
        "name": name,
        "kind": "measured",
        "index": {
            "file": name,
            "title": page.title,
            "kind": "measured",
            "hardware": printable(cpu) if isinstance(cpu, str) else None,
            "date": file.header["started"][:10],
            "cases": 0,
            "incomplete": None,
            **dict.fromkeys(BY_BITS),
            "memory": None,
            "ops": page.what,
            "libraries": page.libraries,
            "applications": [],
        },
        "families": {},
    }


def _write_families(out: Path, digests: Sequence[dict[str, Any]], changed: set[str]) -> tuple[int, int]:
    """Write the pages of changed families and the list of all; returns how many there are and how many were written."""
    rows: dict[str, list[dict[str, Any]]] = {}
    sweep_fields: dict[str, str] = {}
    for digest in digests:
        for family, values in digest["families"].items():
            sweep_fields[family] = values["sweep_field"]
            rows.setdefault(family, []).extend(
                {"machine": digest["index"]["title"], "file": digest["name"], **dict(zip(MEMBER, row, strict=True))}
                for row in values["rows"]
            )
    listed, written = [], 0
    for family, of_family in sorted(rows.items()):
        best = max(of_family, key=lambda r: r["rate"] or 0.0)
        op, _, title = family.partition(" ")
        file = f"{_slug(op)}-{hashlib.sha256(family.encode()).hexdigest()[:12]}"
        listed.append(
            {
                "op": op,
                "title": title or op,
                "file": file,
                "machines": len({r["file"] for r in of_family}),
                "sizes": len({r["size"] for r in of_family}),
                "best": best["rate"],
                "of": best["machine"] if best["rate"] else None,
            }
        )
        path = out / "families" / f"{file}.html"
        if family in changed or not path.exists():
            data = {
                "page": "family",
                "family": family,
                "sweep_field": sweep_fields[family],
                "rows": sorted(of_family, key=lambda r: (r["size"], -(r["rate"] or 0.0))),
            }
            line = (
                f"These problems differ in {data['sweep_field']} only. Each machine is shown with its fastest library."
            )
            _write_page(path, data, f"{op}: {title}", "All times", [line], "../")
            written += 1
    pages = {f"{entry['file']}.html" for entry in listed} | {"index.html"}
    for path in (out / "families").glob("*.html"):
        if path.name not in pages:
            path.unlink()
    lines = ["The problems of a family differ in one size only, such as the batch. Each family has a page."]
    data = {"page": "families", "families": listed}
    _write_page(out / "families" / "index.html", data, "Families of problems", "Families", lines, "../")
    return len(listed), written


def _write_history(out: Path, history: History | None) -> None:
    """Write the page about each case over time, and what pages of machines say of it. Without one, both stay."""
    if history is not None:
        _write(out / HISTORY, history_pages.page(history))
    elif (out / HISTORY).is_file() and (out / "assets" / HISTORIES).is_file():
        return
    texts = render.embedded(history_pages.summaries(history) if history is not None else {})
    _write(out / "assets" / HISTORIES, b"window.deepbenchHistories = new Map(Object.entries(%s));\n" % texts)


def _write_index(out: Path, digests: Sequence[dict[str, Any]]) -> None:
    machines = [d["index"] for d in digests]
    kinds = [m["kind"] for m in machines]
    counts = ", ".join(f"{kinds.count(kind)} {what}" for kind, what in KINDS.items() if kind in kinds)
    lines = [
        f"Machines: {counts or 'none'}. TFLOP/s: the highest rate of any matrix product, without padding.",
        "The page of a machine shows every kernel: its time, the fastest library, and the share of the limit reached.",
    ]
    data: dict[str, Any] = {"page": "index", "machines": machines, "total": TOTAL}
    more = [(name, text) for name, text in MORE.items() if (out / name).is_file()]
    _write_page(out / "index.html", data, "DeepBench results", "Machines", lines, "", more)
    lines = ["Choose two machines to compare the problems that both have, each with its fastest library."]
    data = {"page": "compare", "machines": [{"file": m["file"], "title": m["title"]} for m in machines]}
    _write_page(out / "compare.html", data, "Compare two machines", "Common problems", lines, "")
    entries = []
    for m in machines:
        totals = [dict(zip(TOTAL, total, strict=True)) for total in m["applications"]]
        entries.append(
            {**m, "applications": totals, "page": f"machines/{m['file']}.html", "data": f"data/{m['file']}.jsonl"}
        )
    index = {"schema": "deepbench-site/1", "tool": f"deepbench {VERSION}", "machines": entries}
    _write(out / INDEX, to_bytes(index))


def _write_page(
    path: Path,
    data: Mapping[str, Any],
    title: str,
    heading: str,
    lines: Sequence[str],
    up: str,
    more: Sequence[tuple[str, str]] = (),
) -> None:
    html = render.filled(
        "index.html",
        title=title,
        heading=heading,
        lines=lines,
        up=up,
        more=more,
        embed=data,
        scripts=SITE_SCRIPTS,
        policy=render.site_policy(),
    )
    _write(path, html)


def _write(path: Path, new: bytes) -> None:
    """Replace a file as a whole, and only if it changes."""
    if path.is_file() and path.stat().st_size == len(new) and path.read_bytes() == new:
        return
    with replacing(path, ours=True) as draft:
        draft.write_bytes(new)
