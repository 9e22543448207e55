"""The table: a line for each problem and precision, the fastest library first, the others beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from deepbench.core import units
from deepbench.core.backend import all_backends
from deepbench.core.case import known_settings
from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from deepbench.core.problem import make_problem
from deepbench.judge.limits import Limits
from deepbench.results.record import MEASURED
from deepbench.results.summary import Baseline, Summary, baselines

# A case with a smaller share of undisturbed samples than this gets a note.
FEW_CLEAN = 0.25


@dataclass(frozen=True)
class Rivals:
    """All libraries on the same work: measured ones from the fastest on, then those without a number."""

    ranked: list[Summary]
    others: list[Summary]

    @property
    def tie(self) -> list[Summary]:
        """Libraries whose interval reaches that of the fastest: the order among them is not certain."""
        best = self.ranked[0].estimate if self.ranked else None
        if best is None or best.high_s is None:
            return []
        return [
            s
            for s in self.ranked[1:]
            if s.estimate and s.estimate.low_s is not None and s.estimate.low_s <= best.high_s
        ]


def rivals(summaries: Iterable[Summary]) -> list[Rivals]:
    """Group by the work: op, problem, direction, precision, threads and settings. Unchecked times win only where
    the file says which other program they are of."""
    groups: dict[str, list[Summary]] = {}
    for s in summaries:
        groups.setdefault(work_text(s), []).append(s)
    found = []
    for group in groups.values():
        ok = [s for s in group if s.is_ranked]
        ranked = sorted(ok, key=lambda s: s.estimate.time_s if s.estimate else 0.0)
        found.append(Rivals(ranked, [s for s in group if s not in ok]))
    return found


def work_text(s: Summary) -> str:
    """What two cases must share to be rivals: everything but the library, and the ways it goes about the same work.

    A CPU and a GPU are no rivals: which library to take is asked on one of them.
    """
    r = s.record
    settings = {n: v for n, v in r["settings"].items() if n not in _ways(s)}
    parts = [r["op"], r["problem"], r["direction"], r["precision"], s.device, r["threads"], settings]
    return repr(parts)


def by_group(s: Summary) -> bool:
    """Whether one process a rank takes part."""
    try:
        return find_op(s.record["op"]).is_group
    except BadInput:
        return s.group is not None


def _ways(s: Summary) -> tuple[str, ...]:
    try:
        return find_op(s.record["op"]).variants
    except BadInput:
        return ()


def rival_title(s: Summary) -> str:
    """The library, and which way it went where that is not its own choice: `MPICH ring`."""
    chosen = [word.partition("=")[2] for word in settings_words(s) if word.partition("=")[0] in _ways(s)]
    return " ".join([library_title(s.record["backend"]), *chosen])


def title(s: Summary) -> str:
    """The problem as its op writes it; a file from elsewhere may have an op that is not here."""
    record = s.record
    try:
        op = find_op(record["op"])
        text = op.title(make_problem(op, record["problem"]))
    except BadInput:
        text = " ".join(f"{k}={v}" for k, v in record["problem"].items())
    extra = [] if record["direction"] == "forward" else [record["direction"]]
    return " ".join([text, *extra, *settings_words(s, ways=False)])


@cache
def _defaults(op: str) -> dict[str, str]:
    try:
        return {n: v[0] for n, v in known_settings(op).items()}
    except BadInput:
        return {}


def settings_words(s: Summary, ways: bool = True) -> list[str]:
    """Settings that are not at their default, as a case's text has them; without those that are only ways to do it."""
    defaults, left_out = _defaults(s.record["op"]), () if ways else _ways(s)
    return [f"{n}={v}" for n, v in s.record["settings"].items() if defaults.get(n) != v and n not in left_out]


def library_title(name: str) -> str:
    """The library as its makers spell it, or the word in the file."""
    known = all_backends()
    return known[name].title if name in known else name


def is_framework(name: str) -> bool:
    """Whether this backend calls libraries of others."""
    known = all_backends()
    return name in known and known[name].framework


def notes(s: Summary, compared: Mapping[str, Baseline] = MappingProxyType({})) -> list[str]:
    """What a reader should know of a number, in few words; `compared` has the baselines of cases by their text."""
    found = []
    if baseline := compared.get(s.record["case"]):
        found.append(f"{units.significant(baseline.speed_up)}× dense")
        if baseline.break_even_density is not None and baseline.break_even_density <= 1:  # beyond, it always pays off
            found.append(f"even at {units.significant(100 * baseline.break_even_density)} % non-zeros")
    if s.hidden is not None:
        found.append(f"{units.percent(s.hidden)} of the all-reduce hidden")
    if s.group and s.group["oversubscribed"]:
        found.append("more ranks than cores")
    if s.estimate is not None:
        stopped = {r["measurement"]["stopped"] for r in s.rounds if r["measurement"]}
        loops = {r["measurement"]["loop"] for r in s.rounds if r["measurement"]}
        clean = s.estimate.undisturbed_fraction
        if "first_call" in stopped:
            found.append("first call")
        if "python" in loops:
            found.append("Python loop")
        if s.estimate.disturbed:
            found.append("disturbed")
        elif clean < FEW_CLEAN:
            found.append("few clean")
    energy = [m["energy"] for r in s.rounds if (m := r["measurement"]) and "energy" in m]
    if s.joules_per_call is not None:
        found.append(f"{units.joules(s.joules_per_call)} a call")
    elif reason := next((e["valid"] for e in energy if isinstance(e["valid"], str)), None):
        found.append(f"no joules: {reason}")
    for name, word in (("pack_s", "packed in"), ("convert_s", "converted in"), ("optimize_s", "inspected in")):
        if name in s.record["notes"]:
            found.append(f"{word} {units.seconds(float(s.record['notes'][name]))}")
    if s.record["sources"] and not any(source.get("needed", True) for source in s.record["sources"]):
        found.append("not needed by training")
    if s.imported:
        found.append(f"from {s.imported}, unchecked" if s.status == "unchecked" else f"from {s.imported}")
    short = {"converted": "converted", "two_openmp_runtimes": "two OpenMP runtimes", "not_cold": "not cold"}
    return found + [short.get(w["code"], w["code"]) for w in s.warnings]


def render(summaries: Sequence[Summary], console: Console, every: bool = False, limits: Limits | None = None) -> None:
    """Print the table. `every`: a line for each library instead of one for the fastest."""
    grouped = rivals(summaries)
    table = (_full_table if every else _table)(grouped, baselines(summaries), limits or Limits())
    console.print(table, soft_wrap=not console.is_terminal)
    console.print(Group(*map(Text, _footnotes(summaries))))


def _columns(table: Table, names: Sequence[str]) -> None:
    for name in names:
        right = name in ("time", "± 95 %", "TFLOP/s", "GB/s", "bus GB/s", "clean")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "beside it")


def limit_words(s: Summary, limits: Limits) -> str:
    """`███▏  compute 64 %`: the limit that a case is closest to, and what share of it the case reaches."""
    nearest = limits.nearest(s)
    return f"{units.bar(nearest.share)} {nearest.name} {units.percent(nearest.share)}" if nearest else "–"


def _table(grouped: Sequence[Rivals], compared: Mapping[str, Baseline], limits: Limits) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    everything = [s for group in grouped for s in (*group.ranked, *group.others)]
    rates = {"TFLOP/s": any(not by_group(s) for s in everything), "bus GB/s": any(map(by_group, everything))}
    _columns(
        table,
        ("problem", "precision", "fastest", "time", "± 95 %", *(n for n, shown in rates.items() if shown), "limit",
         "clean", "beside it", "notes"),
    )  # fmt: skip
    for group in grouped:
        rest = ", ".join(dict.fromkeys(map(_without_number, group.others)))
        if not group.ranked:
            first = group.others[0]
            empty = ["–"] * (4 + sum(rates.values()))
            table.add_row(
                Text(title(first)), Text(first.record["precision"]), Text("–", "dim"), *empty, Text(rest, "dim"), ""
            )
            continue
        best = group.ranked[0]
        beside = ", ".join(_beside(s, best, s in group.tie) for s in group.ranked[1:])
        time, interval, tflop, clean = _numbers(best)
        shown = {"TFLOP/s": tflop, "bus GB/s": _bytes_per_s(best) if by_group(best) else "–"}
        table.add_row(
            Text(title(best)),
            Text(best.record["precision"]),
            Text(rival_title(best), "bold green"),
            time,
            interval,
            *(value for name, value in shown.items() if rates[name]),
            limit_words(best, limits),
            clean,
            Text(", ".join(filter(None, (beside, rest)))),
            Text(", ".join(notes(best, compared)), "yellow"),
        )
    return table


def _full_table(grouped: Sequence[Rivals], compared: Mapping[str, Baseline], limits: Limits) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    _columns(
        table,
        ("problem", "precision", "", "library", "time", "± 95 %", "TFLOP/s", "GB/s", "limit", "clean", "notes"),
    )
    for group in grouped:
        for i, s in enumerate([*group.ranked, *group.others]):
            measured = s.estimate is not None
            rate = _bytes_per_s(s)
            time, interval, tflop, clean = _numbers(s)
            said = notes(s, compared) if measured else []
            if not s.is_ranked:
                said = [f"{s.status}: {s.record['reason'] or ''}", *said]
            elif s in group.tie:
                said = ["tie", *said]
            table.add_row(
                Text(title(s) if i == 0 else ""),
                Text(s.record["precision"] if i == 0 else ""),
                Text("▶" if i == 0 and s.is_ranked else "", "bold green"),
                Text(rival_title(s)),
                *(time, interval, tflop, rate, limit_words(s, limits), clean),
                Text(", ".join(said), "yellow"),
            )
    return table


def _numbers(s: Summary) -> tuple[str, str, str, str]:
    e = s.estimate
    if e is None:
        return "–", "–", "–", "–"
    interval = units.plus_minus(e.half_width) + ("*" if s.single_process else "")
    tflop = "–" if by_group(s) else units.flop_per_s(s.flop_per_s)
    clean = "–" if s.imported else units.percent(e.undisturbed_fraction)  # other programs keep no evidence
    return units.seconds(e.time_s), interval, tflop, clean


def _bytes_per_s(s: Summary) -> str:
    """Memory traffic, or of a group its bus bandwidth."""
    rate = s.bus_bytes_per_s if by_group(s) else s.bytes_per_s
    return units.significant(rate / 1e9) if rate else "–"


def _beside(s: Summary, best: Summary, tie: bool) -> str:
    assert s.estimate is not None, "ranked cases have a time"
    assert best.estimate is not None, "ranked cases have a time"
    ratio = s.estimate.time_s / best.estimate.time_s
    mark = "≈" if tie else ""
    return f"{rival_title(s)} {mark}{units.significant(ratio)}×"


def _without_number(s: Summary) -> str:
    name = library_title(s.record["backend"]) if s.status == "unavailable" else rival_title(s)
    if s.status == "unchecked" and s.estimate:
        return f"{name} {units.seconds(s.estimate.time_s)} unchecked"
    return f"{name} {s.status.replace('_', ' ')}"


def _footnotes(summaries: Sequence[Summary]) -> list[str]:
    """What the marks mean, for those that occur, and the reasons of cases without a number, each once."""
    lines = []
    compared = baselines(summaries)
    said = {note for s in summaries for note in notes(s, compared)}
    if any(s.estimate and s.estimate.half_width is not None for s in summaries):
        lines.append("± 95 %: interval of the time between processes; ≈ or tie: the intervals overlap.")
    if any(by_group(s) is False and s.status == "ok" for s in summaries):
        lines.append(
            "limit: what a case stands at (arithmetic, a level of memory, the least a call takes), and its share of "
            "that roof; deepbench roofline has the roofs."
        )
    if any(s.single_process for s in summaries):
        lines.append("*: one process only, so the interval is from inside it and too narrow.")
    if "disturbed" in said:
        lines.append("disturbed: fewer than three samples were left alone by other programs; all were used.")
    if "few clean" in said:
        lines.append("few clean: under a quarter of the samples were left alone; only these were used.")
    if "converted" in said:
        lines.append("converted: this CPU has no instructions for the precision; the library converts to another.")
    if "first call" in said:
        lines.append("first call: the kernel is long, so its first call is the only sample.")
    if any(note.startswith("even at") for note in said):
        lines.append(
            "× dense: how many times as fast as the fastest dense product of this shape here; even at: the share of "
            "non-zeros at which both would take the same time."
        )
    if "not needed by training" in said:
        lines.append("not needed by training: the gradient of a network's input.")
    if "more ranks than cores" in said:
        lines.append("more ranks than cores: the time is that of taking turns, not of the messages.")
    if any(s.bus_bytes_per_s for s in summaries):
        lines.append("GB/s of a group: bus bandwidth as nccl-tests counts it.")
    if "Python loop" in said:
        lines.append(
            "Python loop: calls are made from Python, half a microsecond each; a C compiler at installation avoids it."
        )
    reasons: dict[str, int] = {}
    for s in summaries:
        if s.status not in MEASURED:
            name = _without_number(s).removesuffix(f" {s.status.replace('_', ' ')}")
            text = f"{name} {s.status.replace('_', ' ')}: {s.record['reason'] or ''}"
            reasons[text] = reasons.get(text, 0) + 1
    lines += [text if n == 1 else f"{text} ({n} cases)" for text, n in reasons.items()]
    return lines
