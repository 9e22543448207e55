"""A result file → what its page knows: a column for each thing there is to say of a case.

Every number comes from `summary.summarize` by way of `export.row`; the page draws, sorts and filters, and works out
nothing but what it shows of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from deepbench.core import units
from deepbench.core.errors import BadInput
from deepbench.core.json_lines import printable
from deepbench.core.op import find_op
from deepbench.judge import compare, limits, selftest
from deepbench.judge.limits import Limits, NearestLimit
from deepbench.report import compare as comparing
from deepbench.report import export, views
from deepbench.report import published as published_tables
from deepbench.report.table import (
    Rivals,
    by_group,
    is_framework,
    library_title,
    rival_title,
    rivals,
    settings_words,
    title,
)
from deepbench.results import published
from deepbench.results.file import ResultFile
from deepbench.results.summary import Summary, baselines, summarize

# Fields of `export.row` that a page has as they are.
FIELDS = (
    *("case", "op", "direction", "precision", "backend", "threads", "status", "reason"),
    *("time_s", "low_s", "high_s", "processes", "clean_fraction", "first_call_s"),
    *("flop", "traffic_bytes", "flop_per_s", "bytes_per_s", "bus_bytes_per_s"),
    *("flop_per_byte", "limit", "share_of_limit", "limit_evidence", "interval_of"),
    *("speed_up_over_baseline", "break_even_density", "joules_per_call", "peak_memory_bytes", "applications"),
)

# Samples of all processes in a page together, and of one process: more make a large page and no better picture.
MOST_SAMPLES, MOST_OF_PROCESS, LEAST_OF_PROCESS = 60_000, 40, 4


def of_file(found: ResultFile, name: str) -> dict[str, Any]:
    """Everything a page shows of one file; names of files are strangers' texts too."""
    name = printable(name)
    summaries = summarize(found.records, found.order)
    known = limits.of_file(found, summaries)
    nearest = [known.nearest(s) for s in summaries]
    groups = rivals(summaries)
    measured = sum(1 for s in summaries for r in s.rounds if r["measurement"])
    most = max(LEAST_OF_PROCESS, min(MOST_OF_PROCESS, MOST_SAMPLES // max(1, measured)))
    return {
        "name": name,
        "kind": "imported" if any(s.imported for s in summaries) else "measured",
        "machine": _machine(found, any(s.imported for s in summaries)),
        "libraries": _libraries(found),
        "sentences": _sentences(summaries, groups, nearest, known),
        "columns": _columns(summaries, groups, nearest),
        "samples": [
            [_thinned(r["measurement"]["samples_s"], most) for r in s.rounds if r["measurement"]] for s in summaries
        ],
        "limits": _limits(known, summaries),
        "applications": views.by_application(summaries).rows,
    }


def _columns(
    summaries: Sequence[Summary], groups: Sequence[Rivals], nearest: Sequence[NearestLimit | None]
) -> dict[str, list[Any]]:
    """A list with a value a case for each thing there is to say."""
    place = {}
    for group in groups:
        ties = {s.record["case"] for s in group.tie}
        for i, s in enumerate(group.ranked):
            # 1: the fastest library of its problem; 2: its interval reaches that one's.
            place[s.record["case"]] = 1 if i == 0 else 2 if s.record["case"] in ties else 0
    compared = baselines(summaries)
    names: list[str] = []
    rows = []
    for s, limit in zip(summaries, nearest, strict=True):
        whole = export.row(s, compared.get(s.record["case"]), limit)
        family, size = _family(s)
        told = {
            **{name: whole.get(name) for name in FIELDS},
            **({"status": "imported"} if s.imported and s.is_ranked else {}),
            "title": title(s),
            "command": _command(s),
            "library": rival_title(s),
            "version": whole["library_version"],
            "device": s.device,
            "framework": is_framework(s.record["backend"]),
            "place": place.get(s.record["case"], 0),
            "family": family,
            "size": size,
            "ranks": s.record["problem"].get("ranks"),
            "bytes": _message_bytes(s),
            "notes": whole["notes"],
        }
        names = list(told)
        rows.append(tuple(told.values()))
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


# Words of a case and nothing that a shell takes for more: what people paste.
PLAIN = re.compile(r"[a-z0-9_]+(?: [A-Za-z0-9_]+(?:=[A-Za-z0-9_.:-]+)?)*")


def _command(s: Summary) -> str | None:
    """The command that measures it again; None where the file's text is none that anybody should paste."""
    text = s.record["case"]
    return f"deepbench run {text}" if PLAIN.fullmatch(text) and text.startswith(f"{s.record['op']} ") else None


def _family(s: Summary) -> tuple[str | None, int | None]:
    """What stays the same along a curve, in words, and the size that grows."""
    r = s.record
    try:
        varies = find_op(r["op"]).sweep_field
    except BadInput:
        return None, None
    size = r["problem"].get(varies) if varies else None
    if not isinstance(size, int):
        return None, None
    # The case's own words, which leave out what most problems have alike.
    words = [word.partition("=") for word in r["case"].split()[1:]]
    fixed = [f"{name}={value}" for name, _, value in words if name in r["problem"] and name != varies]
    extra = [] if r["direction"] == "forward" else [r["direction"]]
    # Not how a library goes about it: that is in its title, and no other problem.
    return " ".join([r["op"], *fixed, *extra, *settings_words(s, ways=False)]), size


def _message_bytes(s: Summary) -> float | None:
    """Of a group: bytes that each rank holds."""
    return float(s.record["traffic_bytes"]) if by_group(s) else None


def _thinned(samples_s: Sequence[float], most: int) -> list[float]:
    """Every k-th sample, in the order they were taken."""
    step = -(-len(samples_s) // most)
    return [float(f"{v:.4g}") for v in samples_s[::step]]


def _machine(found: ResultFile, imported: bool) -> dict[str, Any]:
    machine = found.header["machine"]
    cards = [a["library"].get("card") for a in found.header["libraries"].values() if "library" in a]
    card = next((c for c in cards if isinstance(c, dict)), None)
    return {
        "host": machine.get("host"),
        "cpu": machine.get("cpu"),
        "cores": machine.get("cores_allowed"),
        "memory": units.data_bytes(machine.get("memory_bytes")),
        "system": machine.get("system"),
        "card": f"{card.get('vendor')} {card.get('name')}" if card else None,
        # Of an import the header has the day of importing; when it was measured nobody said.
        "started": "unknown" if imported else found.header["started"],
        "date": None if imported else found.header["started"][:10],
        "mode": None if imported else found.header["plan"]["mode"],
    }


def _libraries(found: ResultFile) -> list[dict[str, Any]]:
    used = {r["backend"] for r in found.records}
    return [
        {"name": library_title(name), "version": answer["library"]["version"], "build": answer["library"].get("build")}
        for name, answer in found.header["libraries"].items()
        if name in used and "library" in answer
    ]


def _limits(known: Limits, summaries: Sequence[Summary]) -> list[dict[str, Any]]:
    """Roofs of each device and number of threads, where most cases ran first: peaks by precision, rates by level of
    memory."""
    ok = [s for s in summaries if s.is_ranked and not by_group(s)]
    places = Counter((s.device, s.record["threads"]) for s in ok)
    found = []
    for device, threads in sorted(places, key=lambda place: (-places[place], place[0], -place[1])):
        own = (s.record for s in ok if (s.device, s.record["threads"]) == (device, threads))
        kinds = dict.fromkeys(r["precision"] for r in own if r["flop"])
        peaks = {p: peak for p in kinds if (peak := known.peak(p, device, threads)) is not None}
        memory = known.levels(threads) if device == "cpu" else {}
        found.append({"device": device, "threads": threads, "peaks": peaks, "memory": memory})
    return found


# Below this share of its nearest roof something else takes the time.
FAR = 0.5


def _sentences(
    summaries: Sequence[Summary], groups: Sequence[Rivals], nearest: Sequence[NearestLimit | None], known: Limits
) -> list[str]:
    """How fast, which library, how near to the limits: a sentence each, and one of what went wrong."""
    ok = [s for s in summaries if s.is_ranked]
    stands = {s.record["case"]: limit for s, limit in zip(summaries, nearest, strict=True)}
    fastest = [stands[group.ranked[0].record["case"]] for group in groups if group.ranked]
    near = _how_near([limit for limit in fastest if limit])
    devices = list(dict.fromkeys(s.device for s in ok))
    fast = [_how_fast(ok, known, device, len(devices) > 1) for device in devices]
    told = [text for text in (*fast, _which_library(groups), near) if text]
    counts = Counter(s.status for s in summaries)
    if any(s.single_process for s in ok):
        told.append("*: one process only, so the interval is from inside it and too narrow.")
    others = [f"{count} {status.replace('_', ' ')}" for status, count in sorted(counts.items()) if status != "ok"]
    told.append(
        f"{counts['ok']} of {len(summaries)} cases have a checked time{'; ' if others else ''}{', '.join(others)}."
    )
    return told


def _how_fast(every: Sequence[Summary], known: Limits, device: str, several: bool) -> str | None:
    best: dict[str, Summary] = {}
    ok = [s for s in every if s.device == device]
    # A convolution may count work that its algorithm (Winograd's) saves, so its rate is no measure of the machine.
    products = [s for s in ok if s.record["op"] == "gemm"]
    for s in products or ok:
        rate = s.flop_per_s
        if rate and (s.record["precision"] not in best or rate > (best[s.record["precision"]].flop_per_s or 0)):
            best[s.record["precision"]] = s
    if not best:
        return None
    rates = [f"{_tera(s.flop_per_s)} in {p}" for p, s in best.items()]
    top = max(best.values(), key=lambda s: s.flop_per_s or 0.0)
    memory = known.dram(max(s.record["threads"] for s in ok)) if device == "cpu" else None
    also = f", and reads memory at {units.significant(memory / 1e9)} GB/s" if memory else ""
    what = "In dense products" if products else "At its best"
    who = "this machine" if not several else "the CPU" if device == "cpu" else "the GPU"
    return f"{what} {who} reaches {_listed(rates)} (the highest: {rival_title(top)}, {title(top)}){also}."


def _tera(rate: float | None) -> str:
    assert rate is not None, "only computed cases"
    return f"{units.significant(rate / 1e12)} TFLOP/s" if rate >= 1e12 else f"{units.significant(rate / 1e9)} GFLOP/s"


def _which_library(groups: Sequence[Rivals]) -> str | None:
    wins: dict[str, dict[str, int]] = {}
    for group in groups:
        if len({s.record["backend"] for s in group.ranked}) > 1:
            best = group.ranked[0].record
            counts = wins.setdefault(best["op"], {})
            counts[best["backend"]] = counts.get(best["backend"], 0) + 1
    if not wins:
        return None
    parts = []
    for op, counts in wins.items():
        ordered = sorted(counts.items(), key=lambda item: -item[1])
        parts.append(f"{op}: {', '.join(f'{library_title(name)} {count}' for name, count in ordered)}")
    return f"Where libraries compete, the fastest is so many times each, for {'; '.join(parts)}."


def _how_near(nearest: Sequence[NearestLimit]) -> str | None:
    if not nearest:
        return None
    bounds: dict[str, list[float]] = {}
    for found in nearest:
        bounds.setdefault(found.name, []).append(found.share)
    ordered = sorted(bounds.items(), key=lambda item: -len(item[1]))
    names = {
        "compute": "arithmetic (compute)",
        "latency": "the least a call takes (latency)",
        "parallelism": "too little to share out (parallelism)",
    }
    parts = [
        f"{names.get(name, name)} for {len(shares)} (the middle one reaches {units.percent(median(shares))})"
        for name, shares in ordered
    ]
    far = sum(found.share < FAR for found in nearest)
    told = f"Of {len(nearest)} problems, each at its fastest library, the nearest roof is {_listed(parts)}"
    return f"{told}; {far} stay below half of theirs, which no roof explains." if far else f"{told}."


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _plainly(names: tuple[str, str], ratio: float, count: int, what: str) -> str:
    """What the geometric mean says, in words; a case is a problem on one library."""
    times = units.significant(max(ratio, 1 / ratio))
    how = f"takes {times} times as long as" if ratio > 1 else f"is {times} times as fast as"
    return f"Over the {count} {what} that both have, {names[1]} {how} {names[0]} (geometric mean)"


def _nothing(names: tuple[str, str], reasons: Sequence[str]) -> dict[str, Any]:
    why = f" ({'; '.join(reasons)})" if reasons else ""
    text = f"{names[0]} and {names[1]} have no measured case in common{why}"
    return {"first": names[0], "second": names[1], "heading": [text], "means": [], "cases": [], "sentences": []}


def of_pair(a: ResultFile, b: ResultFile, names: tuple[str, str]) -> dict[str, Any]:
    """Two files beside each other; without a case in common it says so."""
    names = printable(names[0]), printable(names[1])
    imported = any(f.header["plan"]["mode"] == "imported" for f in (a, b))
    found = compare.compare_files(a, b, unchecked=imported, between_sessions=selftest.between_files(a, b))
    if not found.cases:
        return _nothing(names, found.left_out[:3])
    mean = next(m.ratio for m in found.means() if m.name == "all")
    return {
        "first": names[0],
        "second": names[1],
        "heading": [_plainly(names, mean, len(found.cases), "cases"), *comparing.heading(found, names)],
        "means": comparing.means(found).rows,
        "cases": [
            {**row, "case": c.case}
            for row, c in zip(comparing.cases(found).rows, comparing.ordered(found), strict=True)
        ],
        "sentences": comparing.sentences(found),
    }


def of_published(found: ResultFile, name: str, machine: str) -> dict[str, Any]:
    """A file beside a published machine; without a case in common it says so."""
    name = printable(name)
    matched = published.match(summarize(found.records, found.order), machine)
    if not matched:
        return _nothing((name, machine), [])
    rows, once = published_tables.beside(matched).rows, published.best_matches(matched)
    return {
        "first": name,
        "second": machine,
        "published": True,
        "heading": [
            _plainly((name, machine), published.geometric_mean(once) or 1.0, len(once), "problems"),
            f"ratio: time of {machine} over time of {name}, so above 1 {machine} is slower",
            *(f"differs: {text}" for text in published.differences(matched, machine)),
        ],
        "means": [
            {
                "geometric mean": f"{row['op']} {row['precision']}".replace("all all", "all"),
                "cases": row["cases"],
                "ratio": row["ratio"],
            }
            for row in published_tables.means(matched, machine).rows
        ],
        "cases": [
            {
                "case": b.ours.record["case"],
                "title": row["problem"],
                "precision": row["precision"],
                "library": row["library"],
                "first": row["ours"],
                "second": row["theirs"],
                "ratio": row["ratio"],
                "low": row["low"],
                "high": row["high"],
                "verdict": None,
                "notes": row["notes"],
            }
            for row, b in zip(rows, matched, strict=True)
        ],
        "sentences": [],
    }


def of_machine(machine: str) -> dict[str, Any]:
    """A published machine, as a file is shown: no samples, no limits, and nobody checked an answer."""
    sheets = [s for s in published.sheets() if s.machine == machine]
    results = [r for r in published.of_machine(machine) if r.direction != published.TOTAL]
    count = sum(r.machine == machine and r.direction != published.TOTAL for r in published.results())
    fastest: dict[tuple[str, str, str, str], float] = {}
    for r in results:
        key = r.op, r.problem, " ".join(r.words), r.precision
        fastest[key] = min(r.time_s, fastest.get(key, r.time_s))
    rows = []
    for r in results:
        op = find_op(r.op)
        fixed = [word for word in r.values.text.split() if not word.startswith(f"{op.sweep_field}=")]
        flop = r.flop_per_s
        rows.append(
            {
                "case": " ".join(
                    [r.op, r.problem, r.direction, r.precision, *(f"{n}={v}" for n, v in r.settings.items())]
                ),
                "op": r.op,
                "direction": r.direction,
                "precision": r.precision,
                "status": "published",
                "time_s": r.time_s,
                "flop": flop * r.time_s if flop else None,
                "flop_per_s": flop,
                "title": r.title,
                "library": " ".join(filter(None, [sheets[0].vendor, r.how])),
                "place": int(r.time_s == fastest[r.op, r.problem, " ".join(r.words), r.precision]),
                "family": " ".join([r.op, *fixed, *r.words]),
                "size": r.values.values.get(op.sweep_field) if op.sweep_field else None,
                "ranks": r.values.values.get("ranks"),
                "bytes": 4 * r.values.n if r.op == "all_reduce" else None,
                "bus_bytes_per_s": r.bus_bytes_per_s,
                "notes": ", ".join(filter(None, ["padded" if r.padded else "", r.note])) or None,
            }
        )
    columns = list(dict.fromkeys(key for row in rows for key in row))
    products = [r for r in results if r.op == "gemm"]  # as in `_how_fast`
    best = {p: max(r.flop_per_s or 0.0 for r in products if r.precision == p) for p in {r.precision for r in products}}
    top = _listed([f"{_tera(rate)} in {p}" for p, rate in sorted(best.items(), key=lambda item: -item[1]) if rate])
    wrong = sum(r.wrong_rate for r in results)
    more = len(results) - count
    sums = f", and {more} sums of the two gradients of a layer" if more else ""
    return {
        "name": machine,
        "kind": "published",
        "machine": {
            "date": ", ".join(sorted({s.year for s in sheets})),
            "cpu": sheets[0].facts.get("cpu"),
            "card": sheets[0].facts.get("gpu"),
            "cores": None,
            "memory": None,
            "system": sheets[0].facts.get("os"),
            "started": ", ".join(sorted({s.year for s in sheets})),
            "mode": None,
            "host": None,
        },
        "libraries": [
            {"name": text, "version": None, "build": None} for text in dict.fromkeys(s.software for s in sheets)
        ],
        "sentences": [
            f"At its best it reached {top} in dense products.",
            "Published by Baidu's DeepBench: means of calls made back to back, mostly in whole microseconds, and no "
            "answer was checked.",
            f"{count} times{sums}"
            + (f"; {wrong} of the sheets' own rates are not those of their times." if wrong else "."),
        ],
        "columns": {key: [row.get(key) for row in rows] for key in columns},
        "samples": [[] for _ in rows],
        "limits": [],
        "applications": [],
    }
