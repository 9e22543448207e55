"""The data of a page: for each file one list of values per property of a case.

Every number comes from `summary.summarize` by way of `export.row`. The scripts draw, sort and filter; they compute
nothing but what they display.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from deepbench.core import units
from deepbench.core.json_lines import printable
from deepbench.judge import compare, limits, selftest, suite_devices, totals
from deepbench.judge.limits import Limits, NearestLimit
from deepbench.judge.published import differences, match
from deepbench.reporting import answers, export
from deepbench.reporting import compare as comparisons
from deepbench.reporting import published as published_tables
from deepbench.reporting.cases import LibraryRanking, rankings
from deepbench.reporting.heading import card_name
from deepbench.reporting.notes import disturbed_sentences
from deepbench.reporting.page import applications, first_screen
from deepbench.results.file import ResultFile, damage_text
from deepbench.results.summary import Summary, baselines, faster_with_fewer_threads, summarize

# Columns of `export.row` that a page has too.
EXPORTED = (
    *("case", "op", "direction", "precision", "backend", "threads", "status", "reason"),
    *("time_s", "low_s", "high_s", "processes", "clean_fraction", "first_call_s", "disturbed"),
    *("flop", "traffic_bytes", "flop_per_s", "bytes_per_s", "bus_bytes_per_s"),
    *("flop_per_byte", "limited_by", "share_of_limit", "limit_evidence", "interval_of"),
    *(
        "time_over_baseline",
        "baseline_withheld",
        "break_even_density",
        "joules_per_call",
        "peak_memory_bytes",
        "quantization_error",
        "applications",
    ),
)

# Samples in a page, at most: of all processes, and of one process. More enlarge the page without a better picture.
MOST_SAMPLES, MOST_OF_PROCESS, LEAST_OF_PROCESS = 60_000, 40, 4


StepsOf = Callable[[ResultFile], list[dict[str, Any]]]
"""The steps of networks that the kernels of a file predict: the wing of networks computes and words them."""


def of_file(
    file: ResultFile, name: str, steps_of: StepsOf | None = None, machines: Collection[str] = ()
) -> dict[str, Any]:
    """The data of one result file, with the steps of networks that its kernels predict, and next to these machines."""
    summaries = summarize(file.records, file.order)
    known = limits.of_file(file, summaries)
    nearest = [known.nearest(s) for s in summaries]
    every = rankings(summaries)
    # Sentences count only problems whose times are trusted.
    groups = [group for group in every if not any(s.is_disturbed for s in group.ranked)]
    imported = any(s.imported for s in summaries)
    kind = "simulated" if any(s.is_simulated for s in summaries) else "imported" if imported else "measured"
    processes = sum(1 for s in summaries for r in s.rounds if r["measurement"])
    most = max(LEAST_OF_PROCESS, min(MOST_OF_PROCESS, MOST_SAMPLES // max(1, processes)))
    incomplete, about, places = file.incomplete, _machine(file, imported), _limits(known, summaries)
    sums = totals.of_summaries(summaries)
    return {
        "name": printable(name),  # a file name may be any text
        "kind": kind,
        "source": next((s.imported for s in summaries if s.imported), None),
        "incomplete": incomplete,
        "machine": about,
        "first": {
            **first_screen.of_file(file, incomplete, about, summaries, every, nearest, known, places),
            "machines": applications.of_file(summaries, sums, name, machines),
        },
        "libraries": _libraries(file),
        "variables": [f"{name}={value}" for name, value in file.chosen_variables.items()],
        "sentences": [
            *disturbed_sentences(summaries),
            *answers.of_file(summaries, groups, nearest, known),
            *[f"Left out: {damage_text(file.damaged)} of the file."] * bool(file.damaged),
        ],
        "columns": _by_column(_rows(summaries, every, nearest)),
        **_fields([(s.record["op"], s.record["problem"]) for s in summaries]),
        "samples": [[_thinned(m["samples_s"], most) for r in s.rounds if (m := r["measurement"])] for s in summaries],
        "limits": places,
        "applications": [total.values() for total in sums],
        "steps": [{"title": s.title, "steps": s.values()} for s in suite_devices.of_summaries(summaries)],
        "networks": steps_of(file) if steps_of is not None else [],
    }


def _rows(
    summaries: Sequence[Summary], groups: Sequence[LibraryRanking], nearest: Sequence[NearestLimit | None]
) -> Iterator[dict[str, Any]]:
    positions: dict[str, str | None] = {s.record["case"]: "tie" for group in groups for s in group.ties}
    positions |= {g.ranked[0].record["case"]: _position(g) for g in groups if g.ranked}
    compared, fewer = baselines(summaries), faster_with_fewer_threads(summaries)
    for s, limit in zip(summaries, nearest, strict=True):
        text = s.record["case"]
        exported = export.row(s, compared.get(text), limit, fewer.get(text))
        family, size = _family(s)
        yield {
            **{name: exported.get(name) for name in EXPORTED},
            **({"status": "imported"} if s.imported and s.is_ranked else {}),
            "title": s.problem_title,
            "command": _command(s),
            "library": s.library_title,
            "version": exported["library_version"],
            "device": s.record["device"],
            "framework": s.record["framework"],
            "position": positions.get(s.record["case"]),
            "family": family,
            "size": size,
            "sweep_field": s.record["sweep_field"],
            "ranks": s.record["problem"].get("ranks"),
            "bytes": float(s.record["traffic_bytes"]) if s.is_group else None,
            "notes": exported["notes"],
            "implementation": _implementation(s),
        }


def _position(group: LibraryRanking) -> str:
    """Of the first library of a group: `open` where disturbed times leave open which one is the fastest.

    Where no other library has a time, the word fastest would claim a comparison.
    """
    if len(group.ranked) == 1:
        return "only"
    return "fastest" if group.is_decided else "open"


def _implementation(s: Summary) -> str | None:
    """What the library says about its kernel."""
    named = (s.record["notes"].get(name) for name in ("implementation", "algorithm"))
    return next((text for text in named if isinstance(text, str)), None)


def _by_column(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """One list per key; None where a row lacks it."""
    columns: dict[str, list[Any]] = {}
    for i, row in enumerate(rows):
        for name in row:
            if name not in columns:
                columns[name] = [None] * i
        for name, values in columns.items():
            values.append(row.get(name))
    return columns


def _fields(problems: Sequence[tuple[str, Mapping[str, int | str]]]) -> dict[str, Any]:
    """The fields of problems, such as `m`, one list per field; and the names of the fields of each operation."""
    names: dict[str, dict[str, None]] = {}
    for op, problem in problems:
        names.setdefault(op, {}).update(dict.fromkeys(problem))
    return {
        "fields": _by_column(problem for _, problem in problems),
        "fields_of": {op: [*n] for op, n in names.items()},
    }


# Words of a case without any character that a shell treats specially: safe to paste.
SAFE_CASE = re.compile(r"[a-z0-9_]+(?: [A-Za-z0-9_]+(?:=[A-Za-z0-9_.:-]+)?)*")


def _command(s: Summary) -> str | None:
    """The command that measures a case again; None where the text of the case is not safe to paste."""
    text = s.record["case"]
    return f"deepbench run {text}" if SAFE_CASE.fullmatch(text) and text.startswith(f"{s.record['op']} ") else None


def _family(s: Summary) -> tuple[str | None, int | None]:
    """The family of the problem, whose members differ in one size only, and that size."""
    r, field = s.record, s.record["sweep_field"]
    size = r["problem"].get(field) if field else None
    if not isinstance(size, int):
        return None, None
    # The words of the case leave out sizes that most problems have in common.
    words = [word.partition("=") for word in r["case"].split()[1:]]
    fixed = [f"{name}={value}" for name, _, value in words if name in r["problem"] and name != field]
    extra = [] if r["direction"] == "forward" else [r["direction"]]
    return " ".join([r["op"], *fixed, *extra, *s.settings_words(variants=False)]), size


def _thinned(samples_s: Sequence[float], most: int) -> list[float]:
    """At most so many samples, in the order of measurement."""
    step = -(-len(samples_s) // most)
    return [float(f"{v:.4g}") for v in samples_s[::step]]


def _machine(file: ResultFile, imported: bool) -> dict[str, Any]:
    machine = file.header["machine"]
    cards = [a["library"].get("card") for a in file.header["libraries"].values() if "library" in a]
    card = next((c for c in cards if isinstance(c, dict)), None)
    years = machine.get("published_in")
    years = years if isinstance(years, str) else None
    return {
        "host": machine.get("host"),
        "cpu": machine.get("cpu"),
        "cores": machine.get("cores_allowed"),
        "memory": units.data_bytes(machine.get("memory_bytes")),
        "system": machine.get("system"),
        "card": card_name(card) if card else None,
        # The header of an imported file has the date of the import, and may state when the times were published.
        "started": (years or "unknown") if imported else file.header["started"],
        "date": years if imported else file.header["started"][:10],
        "mode": None if imported else file.header["plan"]["mode"],
    }


def _libraries(file: ResultFile) -> list[dict[str, Any]]:
    # An imported file may have several libraries of one backend.
    versions: dict[str, dict[str, str | None]] = {}
    for r in file.records:
        versions.setdefault(r["backend"], {})[r["library_title"]] = r["library"]["version"] if r["library"] else None
    return [
        {"name": title, "version": version or answer["library"]["version"], "build": answer["library"].get("build")}
        for name, answer in file.header["libraries"].items()
        if "library" in answer
        for title, version in versions.get(name, {}).items()
    ]


def _limits(known: Limits, summaries: Sequence[Summary]) -> list[dict[str, Any]]:
    """Peak rates and bandwidths by device and number of threads; where most cases ran comes first."""
    ranked = [s for s in summaries if s.is_ranked and not s.is_group]
    counts = Counter((s.record["device"], s.record["threads"]) for s in ranked)
    rows = []
    for device, threads in sorted(counts, key=lambda key: (-counts[key], key[0], -key[1])):
        records = (s.record for s in ranked if (s.record["device"], s.record["threads"]) == (device, threads))
        precisions = dict.fromkeys(r["precision"] for r in records if r["flop"])
        peaks = {p: peak for p in precisions if (peak := known.peak(p, device, threads)) is not None}
        memory = known.levels(threads, device)
        disturbed = known.disturbed(peaks, threads, device)
        rows.append({"device": device, "threads": threads, "peaks": peaks, "memory": memory, "disturbed": disturbed})
    return rows


# ---- two files, a file and a published machine


def _no_pair(names: tuple[str, str], reasons: Sequence[str], published: bool) -> dict[str, Any]:
    text = f"{names[0]} and {names[1]} have no measured case in common"
    lines = [f"{text} ({'; '.join(reasons)})" if reasons else text]
    about = {"first": names[0], "second": names[1], "published": published, "answer": lines, "heading": lines}
    return {**about, "differs": [], "means": [], "cases": [], "sentences": []}


def of_pair(a: ResultFile, b: ResultFile, names: tuple[str, str]) -> dict[str, Any]:
    """The comparison of two files."""
    names = printable(names[0]), printable(names[1])
    imported = any(f.header["plan"]["mode"] == "imported" for f in (a, b))
    comparison = compare.compare_files(a, b, unchecked=imported, between_sessions=selftest.between_files(a, b))
    if not comparison.cases:
        return _no_pair(names, comparison.left_out[:3], published=False)
    rows = zip(comparisons.cases(comparison).rows, comparisons.ordered(comparison), strict=True)
    return {
        "first": names[0],
        "second": names[1],
        "published": False,
        "answer": comparisons.answer(comparison),
        "differs": comparison.differences,
        "heading": [comparisons.headline(comparison, names), *comparisons.heading(comparison, names)],
        "means": [_with_ratio(row, comparisons.SECOND_OVER_FIRST) for row in comparisons.means(comparison).rows],
        "cases": [
            {**_with_ratio(row, comparisons.SECOND_OVER_FIRST), "title": row["case"], "op": c.a.record["op"]}
            | {"case": c.case, "second_case": c.b.record["case"]}
            for row, c in rows
        ],
        "note": " ".join(comparisons.ratio_note(comparison)),
        "sentences": comparisons.sentences(comparison),
    }


def _with_ratio(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The row with its ratio, the second time over the first, under the name that the scripts read."""
    return {**{key: value for key, value in row.items() if key != name}, "ratio": row[name]}


def of_published(file: ResultFile, name: str, machine: str) -> dict[str, Any]:
    """The comparison of a file with a published machine."""
    names = printable(name), machine
    matches = match(summarize(file.records, file.order), machine)
    if not matches:
        return _no_pair(names, [], published=True)
    rows = zip(published_tables.matched(matches).rows, matches, strict=True)
    same, ratio = ("precision", "library", "low", "high", "notes"), published_tables.PUBLISHED_OVER_OURS
    return {
        "first": names[0],
        "second": machine,
        "published": True,
        "heading": [
            published_tables.headline(matches, *names),
            comparisons.ratio_line(*names),
            *(f"differs: {text}" for text in differences(matches, machine)),
        ],
        "means": [
            {"geometric mean": " ".join(dict.fromkeys((str(row["op"]), str(row["precision"]))))}
            | {"cases": row["cases"], "disturbed": row["disturbed"], "ratio": row[ratio]}
            for row in published_tables.means(matches).rows
        ],
        "cases": [
            {**{key: row[key] for key in same}, "case": m.ours.record["case"], "title": row["problem"]}
            | {"first": row["ours"], "second": row["theirs"], "ratio": row[ratio], "verdict": None}
            for row, m in rows
        ],
        "sentences": [],
    }
