"""The fastest libraries of a file next to published times of the same work (`results/published`)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deepbench.results import published
from deepbench.results.summary import Summary
from deepbench.results.work import Work

# A published rate that differs more than this from the rate of its time is wrong, not rounded.
WRONG_RATE = 0.02


@dataclass(frozen=True)
class Match:
    """A case of ours and the published result of the same work."""

    ours: Summary
    """The fastest library at default settings."""
    theirs: Summary

    @property
    def ratio(self) -> float:
        """Their time over ours: above 1, they are slower. Not to be shown or averaged if ours is disturbed."""
        return self.theirs.time_s / self.ours.time_s

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % confidence interval of the ratio, from our time alone: theirs has no known error."""
        e = self.ours.estimate
        if e is None or e.low_s is None or e.high_s is None:
            return None
        return self.theirs.time_s / e.high_s, self.theirs.time_s / e.low_s


def match(summaries: Iterable[Summary], machine: str) -> list[Match]:
    """Our fastest library for each work that the machine has a result of, in the order of our file.

    Settings must equal those of the original: the defaults, and `mode=training` for layers in training. Each of our
    16-bit precisions matches their only one, and so does each of our 8-bit ones; `best_matches` keeps the faster.
    """
    fastest: dict[Work, Summary] = {}
    for s in summaries:
        work = s.work.without("device", "threads")
        if s.is_ranked and (work not in fastest or s.time_s < fastest[work].time_s):
            fastest[work] = s
    theirs = {s.work.without("device", "threads"): s for s in published.summaries(machine)}
    found = ((s, theirs.get(published_work(work))) for work, s in fastest.items())
    return [Match(ours, result) for ours, result in found if result is not None]


def published_work(work: Work) -> Work:
    """The same work in the published precision that multiplies as many bits."""
    precisions = (p for p, ours in published.PRECISIONS.items() if work.precision in ours)
    return work._replace(precision=next(precisions, work.precision))


def best_matches(matches: Iterable[Match]) -> list[Match]:
    """Each published result once, with the faster of our cases: f16 and bf16 match the same 16-bit result."""
    best: dict[str, Match] = {}
    for m in matches:
        case = m.theirs.record["case"]
        if case not in best or m.ratio > best[case].ratio:
            best[case] = m
    return list(best.values())


def geometric_mean(matches: Iterable[Match]) -> float | None:
    """The geometric mean of the ratios whose time of ours is not disturbed; None without any."""
    ratios = [m.ratio for m in matches if not m.ours.is_disturbed]
    return statistics.geometric_mean(ratios) if ratios else None


def sheet_rate(s: Summary) -> float | None:
    """FLOP per second that the sheet states, where it contradicts the time; None where it does not.

    Rates of recurrent layers leave out some work on purpose.
    """
    stated, rate = s.record["notes"].get("their_flop_per_s"), s.flop_per_s
    if not isinstance(stated, int | float) or not rate or s.record["op"] == "recurrent":
        return None
    return float(stated) if abs(stated / rate - 1) > WRONG_RATE else None


@dataclass(frozen=True)
class Caveat:
    """A known weakness of the original's programs. It applies to results of these kinds; None means all."""

    text: str
    op: str | None = None
    precisions: tuple[str, ...] | None = None
    vendors: tuple[str, ...] | None = None
    cell: str | None = None
    """The cell of a recurrent layer."""

    def applies(self, s: Summary, vendor: str) -> bool:
        """Whether it applies to this published result."""
        r = s.record
        return (
            self.op in (None, r["op"])
            and (self.precisions is None or r["notes"]["their_precision"] in self.precisions)
            and (self.vendors is None or vendor in self.vendors)
            and self.cell in (None, r["problem"].get("cell"))
        )


CAVEATS = (
    Caveat("the published times are means of consecutive calls, mostly in whole microseconds; no answer was checked"),
    Caveat(
        "the published 16-bit and 8-bit runs multiplied zeros, which is up to 15 % faster on a GPU",
        precisions=("float16_mixed", "float16_storage", "int8"),
        vendors=("NVIDIA", "AMD"),
    ),
    Caveat(
        "the published 16-bit products were accumulated in 16 bits, although the sheets state 32",
        "gemm",
        precisions=("float16_mixed",),
    ),
    Caveat("the published vanilla layers overflow to infinity", "recurrent", cell="vanilla"),
    Caveat("the published gradients are those of the data only", "recurrent", vendors=("AMD",)),
    Caveat(
        "the published sparse products overwrite the result, ours add to it; both rates count the non-zeros",
        "sparse_gemm",
    ),
)


def differences(matches: Sequence[Match], machine: str) -> list[str]:
    """How the published results differ from ours, to be read before any ratio."""
    books = published.workbooks(machine)
    notes: list[dict[str, Any]] = [m.theirs.record["notes"] for m in matches]
    suites = {note["suite"] for note in notes}
    lines = [f"{machine}: {b['software']}, {b['year']} ({b['suite']})" for b in books if b["suite"] in suites]
    precisions = {(m.ours.record["precision"], m.theirs.record["precision"]) for m in matches}
    lines += [f"precision: ours {ours}, published {theirs}" for ours, theirs in sorted(precisions) if ours != theirs]
    used = [m.theirs for m in best_matches(matches)]
    lines += [caveat.text for caveat in CAVEATS if any(caveat.applies(s, books[0]["vendor"]) for s in used)]
    if padded := sum(bool(s.record["notes"].get("padded")) for s in used):
        lines.append(f"padded problems among the published ones: {padded}; their rates count the unpadded problem")
    if short := sum(s.time_s < 50e-6 for s in used):
        lines.append(f"published times below 50 µs, where one microsecond is over 2 %: {short}")
    if remarks := [remark for s in used if (remark := s.record["notes"].get("remark"))]:
        lines.append(f"published results with a note: {len(remarks)}, such as: {remarks[0]}")
    return lines
