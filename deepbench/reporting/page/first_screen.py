"""The first screen of a page: the machine, how far to trust the run, and what most readers look for.

It is computed from what the rest of the page has too, in time linear in the number of cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from deepbench.core import units
from deepbench.core.precision import PRECISIONS
from deepbench.judge import furthest
from deepbench.judge.levels import MEMORY
from deepbench.judge.limits import Limits, NearestLimit, is_crowded
from deepbench.machine import microarchitecture
from deepbench.reporting.cases import LibraryRanking
from deepbench.reporting.furthest import why
from deepbench.results.completeness import COMPLETE, MOST_DISTURBED, MOST_LOAD, intervals_text, lacks_of
from deepbench.results.file import ResultFile, damage_text
from deepbench.results.summary import Summary

# Precisions that multiply as many bits: the name of a column of the site, the title of a tile, and the precisions.
BY_BITS = {
    "f32": ("f32", ("f32",)),
    "bits16": ("16 bits", ("bf16", "f16", "f16f16")),
    "bits8": ("8 bits", ("i8", "i8u8", "f8e4m3", "f8e5m2")),
}

# Their products are integers, so their rate is in operations, not in floating-point operations.
INTEGERS = ("i8", "i8u8")

# Above these shares of the times, a banner says so.
MANY_SINGLE, MANY_CROWDED = 0.5, 0.1

DEVICES = {"cpu": "CPU", "cuda": "GPU", "hip": "GPU", "xpu": "GPU"}

MISSING = "–"


def of_file(
    file: ResultFile,
    incomplete: str | None,
    about: Mapping[str, Any],
    summaries: Sequence[Summary],
    groups: Sequence[LibraryRanking],
    nearest: Sequence[NearestLimit | None],
    known: Limits,
    places: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The first screen of a result file.

    `incomplete` says what the file lacks, `about` are the facts about its machine that `content.py` collects, `groups`
    are all rankings, `nearest` the limits of `summaries`, and `places` the limits by device and number of threads, with
    that of most cases first.
    """
    return {
        "facts": _facts(file, about),
        "banners": _banners(file, incomplete, summaries),
        # Results of other programs are labelled as such.
        "publishable": _publishable(file, summaries) if about["mode"] else None,
        "tiles": _tiles(summaries, known, places[0]) if places else [],
        "winners": _winners(groups),
        "furthest": _furthest(summaries, groups, nearest),
    }


# ---- the machine


def _facts(file: ResultFile, about: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    machine: Mapping[str, Any] = dict(file.header["machine"])
    cores = f"{about['cores']} core{'s' * (about['cores'] != 1)}" if about["cores"] else None
    hypervisor = machine.get("hypervisor")
    kind = None
    if isinstance(hypervisor, bool):
        kind = "virtual machine" if hypervisor else "not virtual"
    memory = None if about["memory"] == MISSING else about["memory"]
    # An imported file has neither a mode nor a date.
    mode = f"{about['mode']} mode" if about["mode"] else None
    return [
        ("Processor", _joined([about["cpu"], _model(machine), cores])),
        *([("GPU", about["card"])] if about["card"] else []),
        ("Machine", _joined([kind, memory, about["system"]])),
        ("Measured", _joined([_moment(about["started"]), mode])),
        ("Version", file.header["tool"]),
    ]


def _joined(parts: Iterable[Any]) -> str | None:
    return ", ".join(str(part) for part in parts if part) or None


def _model(machine: Mapping[str, Any]) -> str | None:
    """The microarchitecture, and the numbers by which x86 tells processors of one name apart."""
    ids = machine.get("cpu_ids")
    known: Mapping[str, Any] = ids if isinstance(ids, dict) else {}
    titles = {"cpu family": "family", "model": "model", "stepping": "stepping"}
    numbers = [f"{title} {known[name]}" for name, title in titles.items() if known.get(name)]
    return _joined([microarchitecture.of_machine(machine), " ".join(numbers)])


def _moment(text: str) -> str:
    """A time stamp as people read it; any other text as it is."""
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return text


# ---- how far to trust the run


def _banners(file: ResultFile, incomplete: str | None, summaries: Sequence[Summary]) -> list[dict[str, str]]:
    """What makes the whole run incomplete or less certain, each with a title and sentences."""
    ranked = [s for s in summaries if s.is_ranked]
    disturbed = sum(s.is_disturbed for s in ranked)
    single = sum(s.single_process and not s.imported for s in ranked)
    programs = dict.fromkeys(s.imported for s in summaries if s.imported)
    unchecked = sum(s.status == "unchecked" and not s.imported for s in summaries)
    count = f"{len(ranked):,}"
    found = {
        "Incomplete": _sentence((incomplete or "").partition(": ")[2]),
        "Damaged file": f"{_sentence(damage_text(file.damaged))} They are left out." if file.damaged else None,
        "Cut off": "The last line of the file is incomplete, and is left out." if file.truncated else None,
        "Disturbed": (
            f"Other programs disturbed {disturbed:,} of {count} times. They are marked, and no library wins by them. A "
            "comparison with another file has no verdict where most processes of a side were disturbed."
            if disturbed > MOST_DISTURBED * len(ranked)
            else None
        ),
        "One process per case": (
            f"{single:,} of {count} times come from one process. Their intervals leave out what differs between "
            "processes, and below 10 % they give no order."
            if single > MANY_SINGLE * len(ranked)
            else None
        ),
        "Busy machine": _busy(file, ranked),
        "Unchecked": (
            f"Measured by {', '.join(map(str, programs))}. Nobody checked the answers here."
            if programs
            else f"The answers of {unchecked:,} of {len(summaries):,} cases were not checked."
            if unchecked
            else None
        ),
    }
    return [{"title": title, "text": text} for title, text in found.items() if text]


def _publishable(file: ResultFile, summaries: Sequence[Summary]) -> dict[str, Any]:
    """Whether the file is good enough to publish, and what it has or lacks."""
    lacks = lacks_of(file, summaries)
    count = f"{len(lacks)} reason{'s' * (len(lacks) != 1)}"
    title = f"Not good enough to publish: {count}" if lacks else "Good enough to publish: yes"
    texts = [*(lacks or [f"It has {COMPLETE}"]), intervals_text(summaries)]
    return {"title": title, "texts": [_sentence(text) for text in texts if text]}


def _sentence(text: str) -> str | None:
    return f"{text[0].upper()}{text[1:]}." if text else None


def _busy(file: ResultFile, ranked: Sequence[Summary]) -> str | None:
    """Whether other programs ran: before the run by the load, during it by the CPUs that they kept busy."""
    machine: Mapping[str, Any] = dict(file.header["machine"])
    load, cores = machine.get("load_1min"), machine.get("cores_allowed")
    texts = []
    if isinstance(load, int | float) and isinstance(cores, int) and load > MOST_LOAD * cores:
        texts.append(f"When the run began, other programs were running: a load of {load:.2f} on {cores} cores.")
    crowded = sum(all(map(is_crowded, s.rounds)) for s in ranked)
    if crowded > MANY_CROWDED * len(ranked):
        texts.append(f"Other programs kept CPUs busy that {crowded:,} of {len(ranked):,} cases needed.")
    return " ".join(texts) or None


# ---- four numbers


def _tiles(summaries: Sequence[Summary], known: Limits, place: Mapping[str, Any]) -> list[dict[str, str | None]]:
    """The peak rate of f32, of 16 and of 8 bits, and the bandwidth of memory, on one device with some threads.

    Where no limit was measured, the highest rate of a product counts: that of a convolution may include work that its
    algorithm avoids.
    """
    device, threads = place["device"], place["threads"]
    where = DEVICES.get(device, device)
    if device == "cpu":
        where += f", {threads} thread{'s' * (threads != 1)}"
    products: dict[str, Summary] = {}
    for s in summaries:
        r, rate = s.record, s.flop_per_s
        if r["op"] == "gemm" and (r["device"], r["threads"]) == (device, threads) and rate and not s.is_disturbed:
            best = products.get(r["precision"])
            if best is None or rate > (best.flop_per_s or 0.0):
                products[r["precision"]] = s
    tiles = []
    for title, precisions in BY_BITS.values():
        peaks = {p: float(place["peaks"][p]) for p in precisions if p in place["peaks"]}
        rates = {p: products[p].flop_per_s or 0.0 for p in precisions if p in products}
        if name := _best(peaks):
            mark = "probe disturbed" if _is_disturbed(known, peaks[name]) else None
            tiles.append(_tile(f"Peak rate, {name}", _rate(peaks[name], name), f"measured limit, {where}", mark))
        elif name := _best(rates):
            note = f"highest of a product: {products[name].library_title}, {where}"
            tiles.append(_tile(f"Highest rate, {name}", _rate(rates[name], name), note))
        else:
            tiles.append(_tile(f"Peak rate, {title}"))
    bandwidth = place["memory"].get(MEMORY)
    if not bandwidth:
        return [*tiles, _tile("Memory bandwidth")]
    mark = "probe disturbed" if _is_disturbed(known, bandwidth) else None
    how = "reading" if device == "cpu" else "copying"
    return [*tiles, _tile("Memory bandwidth", f"{units.bytes_per_s(bandwidth)} GB/s", f"{how}, {where}", mark)]


def _tile(
    label: str, text: str = MISSING, note: str = "not measured", mark: str | None = None
) -> dict[str, str | None]:
    """A number with its unit, what it is, where it comes from, and why it is not trusted."""
    value, _, unit = text.partition(" ")
    return {"label": label, "value": value, "unit": unit, "note": note, "mark": mark}


def _rate(rate: float, precision: str) -> str:
    unit = "OP/s" if precision in INTEGERS else "FLOP/s"
    return units.scaled(rate, ((1e12, f"T{unit}"), (1e9, f"G{unit}")))


def _best(rates: Mapping[str, float]) -> str | None:
    """The fastest precision, of those that meet DeepBench's minimum if there is any."""
    allowed = [p for p in rates if p not in PRECISIONS or not PRECISIONS[p].below_minimum(is_training=False)]
    return max(allowed or rates, key=lambda p: rates[p], default=None)


def _is_disturbed(known: Limits, rate: float) -> bool:
    """Whether other programs disturbed every probe that measured this limit."""
    probes: list[Mapping[str, Any]] = [dict(line) for line in known.lines]
    measured = [p for p in probes if rate in (p.get("flop_per_s"), p.get("bytes_per_s"))]
    return bool(measured) and all(p.get("disturbed") for p in measured)


# ---- libraries and limits


def _winners(groups: Iterable[LibraryRanking]) -> list[dict[str, Any]]:
    """By operation: how many problems each library won, of those that several libraries solved.

    No library wins where the fastest one has a tie, or where a time is disturbed.
    """
    rows: dict[str, dict[str, Any]] = {}
    wins: dict[str, Counter[str]] = {}
    for group in groups:
        if len({s.record["backend"] for s in group.ranked}) < 2:
            continue
        best = group.ranked[0].record
        op = best["op"]
        row = rows.setdefault(op, {"op": op, "problems": 0, "undecided": 0, "disturbed": 0})
        row["problems"] += 1
        if any(s.is_disturbed for s in group.ranked):
            row["disturbed"] += 1
        elif group.ties:
            row["undecided"] += 1
        else:
            wins.setdefault(op, Counter())[best["library_title"]] += 1
    return [{**row, "wins": wins.get(op, Counter()).most_common()} for op, row in rows.items()]


def _furthest(
    summaries: Sequence[Summary], groups: Iterable[LibraryRanking], nearest: Sequence[NearestLimit | None]
) -> list[dict[str, Any]]:
    """The problems furthest from their limit, then further ones with the most time above it.

    `row` is the position among the cases of the file.
    """
    known = furthest.kernels(summaries, [g.ranked[0] for g in groups if g.ranked], nearest)
    chosen = {kernel.position: kernel for order in furthest.ORDERS for kernel in furthest.furthest(known, order)}
    found = []
    for kernel in chosen.values():
        s, r = kernel.summary, kernel.summary.record
        where = "" if r["is_group"] or r["device"] != "cpu" else f", {r['threads']} thread{'s' * (r['threads'] != 1)}"
        found.append(
            {
                "row": kernel.position,
                "title": f"{r['op']} {s.problem_title}",
                "about": f"{r['precision']}, {s.library_title}{where}: {units.seconds(s.time_s)}",
                "share": kernel.share,
                "percent": units.percent(kernel.share),
                "excess_s": kernel.excess_s,
                "excess": units.seconds(kernel.excess_s),
                "why": f"{(text := why(kernel))[0].upper()}{text[1:]}",
            }
        )
    return found
