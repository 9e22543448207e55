"""What a comparison says, for people: what differs first, then the means, then each case, the decided ones first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deepbench.core import units
from deepbench.core.stats import lower_quartile
from deepbench.judge.compare import MOST_ROUNDS, ComparedCase, Comparison, Mean, process_times_s
from deepbench.report.table import rival_title, title
from deepbench.report.views import Cell, View

ORDER = ("slower", "faster", "cannot tell", "same")

# Cases without a ratio that are named; the rest is counted.
MOST_NAMED = 5


def ratio_words(ratio: float) -> str:
    """`1.034`: three digits behind the point, which is what intervals are good for."""
    return f"{ratio:.3f}"


def heading(found: Comparison, names: tuple[str, str]) -> list[str]:
    """What a reader must know before any ratio."""
    lines = [f"ratio: time of {names[1]} over time of {names[0]}, so above 1 the second is slower"]
    if found.interleaved:
        lines.append("both sides took turns in one run, so what the machine did met both")
    else:
        lines.append(
            "not interleaved: what the machine did meanwhile is in the ratios (run --against or --ab take turns)"
        )
    lines += [f"differs: {text}" for text in found.differences]
    if not found.differences and not found.interleaved:
        lines.append("nothing else differs that the files know of")
    return lines


def means(found: Comparison) -> View:
    """Geometric means, overall first."""
    rows: list[dict[str, Cell]] = [_mean_row(m) for m in found.means()]
    columns: dict[str, Callable[[Any], str]] = {
        "geometric mean": str,
        "cases": str,
        "ratio": ratio_words,
        "low": ratio_words,
        "high": ratio_words,
    }
    return View(columns, rows, [])


def _mean_row(m: Mean) -> dict[str, Cell]:
    low, high = m.interval or (None, None)
    return {"geometric mean": m.name, "cases": m.count, "ratio": m.ratio, "low": low, "high": high}


def cases(found: Comparison) -> View:
    """A row a case."""
    rows = [_row(c) for c in ordered(found)]
    columns: dict[str, Callable[[Any], str]] = {
        **dict.fromkeys(("case", "precision", "library"), str),
        **dict.fromkeys(("first", "second"), units.seconds),
        **dict.fromkeys(("ratio", "low", "high"), ratio_words),
        "processes": str,
        "verdict": str,
        "more rounds": lambda n: f"{n}+" if n >= MOST_ROUNDS else str(n),
    }
    return View(columns, rows, [])


def ordered(found: Comparison) -> list[ComparedCase]:
    """The decided ones first, the largest change on top."""
    return sorted(found.cases, key=lambda c: (ORDER.index(c.verdict), -abs(c.ratio - 1)))


def _row(c: ComparedCase) -> dict[str, Cell]:
    low, high = c.interval or (None, None)
    one, other = rival_title(c.a), rival_title(c.b)
    counts = sorted({len(c.a.rounds), len(c.b.rounds)})
    return {
        "case": title(c.a),
        "precision": c.a.record["precision"],
        "library": one if one == other else f"{one}, {other}",
        "first": lower_quartile(process_times_s(c.a.rounds)),
        "second": lower_quartile(process_times_s(c.b.rounds)),
        "ratio": c.ratio,
        "low": low,
        "high": high,
        "processes": " and ".join(map(str, counts)),
        "verdict": c.verdict,
        "more rounds": c.more_rounds,
    }


def sentences(found: Comparison) -> list[str]:
    """The verdict in a few lines."""
    counts = [f"{found.count(v)} {v}" for v in ORDER if found.count(v)]
    lines = [f"{len(found.cases)} cases compared: {', '.join(counts) or 'none'}"]
    lines += [f"not compared: {text}" for text in found.left_out[:MOST_NAMED]]
    if len(found.left_out) > MOST_NAMED:
        lines.append(f"not compared: {len(found.left_out) - MOST_NAMED} more")
    if found.unmeasured:
        lines.append(f"{found.unmeasured} cases have no time on either side")
    margin = next((c.margin for c in found.cases), None)
    if margin is not None:
        lines.append(
            f"faster, slower: beyond ±{units.percent(margin, 1)}, and less than 1 in 20 such calls by chance; "
            "same: the whole 95 % interval (low, high) within it."
        )
    crowded = [c.other_load for c in found.cases if c.other_load]
    if crowded:
        first, second = (sum(x) / len(x) for x in zip(*crowded, strict=True))
        lines.append(
            f"{len(crowded)} cases cannot be told: other programs kept {first:.1f} CPUs busy while the first side was "
            f"measured and {second:.1f} while the second was; measure again when nothing else runs."
        )
    if any(c.difference is None for c in found.cases):
        lines.append("one process a side says nothing of chance: measure without --quick, or with --rounds 5.")
    elif any(c.more_rounds for c in found.cases):
        lines.append("more rounds: how many of each side would probably decide (run --rounds).")
    return lines


def to_json(found: Comparison) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "interleaved": found.interleaved,
        "differs": found.differences,
        "means": means(found).rows,
        "cases": [{**_row(c), "case": c.case, "q": c.q} for c in ordered(found)],
        "not_compared": found.left_out,
    }
