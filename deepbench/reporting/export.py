"""One row per case, for programs and spreadsheets: JSON, CSV and Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from deepbench.judge import limits
from deepbench.judge.limits import Limits, NearestLimit
from deepbench.reporting.cases import library_table
from deepbench.reporting.notes import below_minimum, note_texts, notes_of
from deepbench.reporting.table import Column, Table
from deepbench.results.file import ResultFile
from deepbench.results.summary import Baseline, FewerThreads, Summary, baselines, faster_with_fewer_threads

# Notes of backends that are columns; times are in seconds.
NOTES = (
    *("implementation", "algorithm", "workspace_bytes"),
    *("pack_s", "convert_s", "optimize_s", "compile_s", "compression"),
)

# What follows from a time. A disturbed time is an upper bound, so these would be lower bounds, and are withheld.
RATES = (
    *("flop_per_s", "bytes_per_s", "bus_bytes_per_s", "original_bytes_per_s"),
    *("limited_by", "share_of_limit", "limit_evidence"),
)


def row(
    s: Summary,
    baseline: Baseline | None = None,
    nearest: NearestLimit | None = None,
    fewer: FewerThreads | None = None,
) -> dict[str, Any]:
    """Every property of a case that is a single value; None if missing."""
    r, e = s.record, s.estimate
    library, check = r["library"], r["check"]["after"] or r["check"]["before"]
    measured = [m["measurement"] for m in s.rounds if m["measurement"]]
    processes = [m["process"] for m in s.rounds if m["process"]]
    applications = {source["application"] for source in r["sources"] if source["application"]}
    return {
        "case": r["case"],
        "op": r["op"],
        **r["problem"],
        "direction": r["direction"],
        "precision": r["precision"],
        **{f"{name}_type": value for name, value in r["types"].items()},
        "backend": r["backend"],
        "library": library["name"] if library else None,
        "library_version": library["version"] if library else None,
        "threads": r["threads"],
        **r["settings"],
        "status": s.status,
        "reason": r["reason"],
        "time_s": e.time_s if e else None,
        "low_s": e.low_s if e else None,
        "high_s": e.high_s if e else None,
        "interval_of": None if e is None or e.low_s is None else "one process" if s.single_process else "processes",
        "processes": e.processes if e else None,
        "disturbed": s.is_disturbed if e and not s.imported else None,
        "clean_fraction": e.undisturbed_fraction if e and not s.imported else None,
        "first_call_s": min((m["first_call_s"] for m in measured if m["first_call_s"] is not None), default=None),
        "flop": r["flop"],
        **{f"flop_{name}": count for name, count in r.get("other_flop", {}).items()},
        "traffic_bytes": r["traffic_bytes"],
        "flop_per_s": s.flop_per_s,
        "bytes_per_s": s.bytes_per_s,
        "flop_per_byte": r["flop"] / r["traffic_bytes"] if r["flop"] and r["traffic_bytes"] else None,
        "limited_by": nearest.name if nearest else None,
        "share_of_limit": nearest.share if nearest else None,
        "limit_evidence": nearest.evidence if nearest else None,
        "bus_bytes_per_s": s.bus_bytes_per_s,
        "original_bytes_per_s": s.original_bytes_per_s,
        "hidden_fraction": s.hidden,
        "deterministic": s.group.get("deterministic") if s.group else None,
        "hash": s.group.get("hash") if s.group else None,
        "error_in_tolerances": check["error"] if check else None,
        "quantization_error": s.quantization_error,
        # Notes of backends may be anything; a cell holds one value.
        **{n: v if isinstance(v := r["notes"].get(n), str | int | float | None) else str(v) for n in NOTES},
        "peak_memory_bytes": max(
            (b for p in processes if isinstance(b := p.get("peak_memory_bytes"), int | float)), default=None
        ),
        "joules_per_call": s.joules_per_call,
        "sustained_s": s.sustained_s,
        "sustained_clock_mhz": s.sustained_clock_mhz,
        "baseline": baseline.summary.record["case"] if baseline else None,
        "time_over_baseline": baseline.time_over_baseline if baseline else None,
        "baseline_withheld": baseline.withheld if baseline else None,
        "break_even_density": baseline.break_even_density if baseline else None,
        "applications": "; ".join(sorted(applications)) or None,
        "suite_rows": "; ".join(f"{x['suite']}:{x['row']}" for x in r["sources"]) or None,
        "below_minimum_precision": below_minimum(s),
        "threads_of_a_faster_case": fewer.threads if fewer else None,
        "slowdown_with_more_threads": fewer.slowdown if fewer else None,
        "notes": note_texts(notes_of(s, fewer=fewer)) or None,
    }


def rows(summaries: Sequence[Summary], known: Limits | None = None) -> list[dict[str, Any]]:
    """One row per case, with what it is compared with in the same file."""
    compared, fewer = baselines(summaries), faster_with_fewer_threads(summaries)
    return [
        row(s, compared.get(text), known.nearest(s) if known else None, fewer.get(text))
        | (dict.fromkeys(RATES) if s.is_disturbed else {})
        for s in summaries
        for text in [s.record["case"]]
    ]


def table(results: ResultFile, summaries: Sequence[Summary]) -> Table:
    """One row per case; the columns of all operations together."""
    cases = rows(summaries, limits.of_file(results, summaries))
    return Table(list(map(Column, dict.fromkeys(name for r in cases for name in r))), cases)


def to_json(results: ResultFile, summaries: Sequence[Summary]) -> str:
    """An object with the file's header, its limits, and one row per case."""
    cases = rows(summaries, limits.of_file(results, summaries))
    content = {
        "header": results.header,
        "damaged_lines": results.damaged,
        "limits": results.limits,
        "cases": cases,
    }
    return json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def to_csv(results: ResultFile, summaries: Sequence[Summary]) -> str:
    """A header line and one row per case."""
    return table(results, summaries).csv()


def to_markdown(results: ResultFile, summaries: Sequence[Summary]) -> str:
    """The table with one row per library, for an issue or a page."""
    return library_table(summaries, limits.of_file(results, summaries), repeat=True).markdown()
