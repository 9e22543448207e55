"""What a result file says in a few sentences: peak rates, fastest libraries, limits, and what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from statistics import median
from textwrap import wrap

from deepbench.core import units
from deepbench.judge.limits import DISTURBED, TOO_SLOW, UNKNOWN, Limits, NearestLimit
from deepbench.reporting.cases import LibraryRanking, rankings
from deepbench.reporting.notes import (
    BELOW_MINIMUM,
    ONE_PROCESS,
    SUMS_NOTE,
    SUMS_OF_16_BITS,
    below_minimum,
    disturbed_sentences,
)
from deepbench.results.record import MEASURED
from deepbench.results.summary import Summary, faster_with_fewer_threads

# Lines of a terminal that the summary of a run has at most.
MOST_LINES = 8

# Limits that this summary names, and the length of a reason that it has room for.
MOST_LIMITS, LONGEST_REASON = 4, 120


def of_file(
    summaries: Sequence[Summary],
    groups: Sequence[LibraryRanking],
    nearest: Sequence[NearestLimit | None],
    known: Limits,
) -> list[str]:
    """The summary at the top of a page: peak rates, fastest libraries, limits, and what failed."""
    ranked = [s for s in summaries if s.is_ranked]
    by_case = {s.record["case"]: limit for s, limit in zip(summaries, nearest, strict=True)}
    of_fastest = [by_case[group.ranked[0].record["case"]] for group in groups if group.ranked]
    sentences = [
        *_answers(ranked, groups, of_fastest, known),
        ONE_PROCESS.footnote if any(s.single_process for s in ranked) else None,
        BELOW_MINIMUM.footnote if any(below_minimum(s) for s in ranked) else None,
        SUMS_OF_16_BITS.footnote if any(s.record["notes"].get("sums") == SUMS_NOTE for s in ranked) else None,
        _more_threads_sentence(summaries),
        *_roofs_of_fewer_threads(ranked, known),
    ]
    return [*filter(None, sentences), _counts(summaries)]


def of_run(summaries: Sequence[Summary], known: Limits) -> list[str]:
    """The same for a terminal, the most important first: peak rates, who wins, what has no time and why.

    What the table explains is left out. Disturbed problems do not count.
    """
    groups = [group for group in rankings(summaries) if not any(s.is_disturbed for s in group.ranked)]
    ranked = [s for s in summaries if s.is_ranked]
    sentences = [
        *_highest_rates([s for s in ranked if not s.is_disturbed], known),
        disturbed_limits(summaries, known),
        _fastest_libraries(groups),
        f"{_counts(summaries)}{_most_frequent_reason(summaries)}",
        *disturbed_sentences(summaries),
        _limits_in_short([limit for group in groups if group.ranked and (limit := known.nearest(group.ranked[0]))]),
        _more_threads_sentence(summaries),
    ]
    return list(filter(None, sentences))


def shortened(sentences: Sequence[str], width: int, lines: int = MOST_LINES) -> list[str]:
    """The sentences that fit lines of this width, the first ones first."""
    kept = []
    for sentence in sentences:
        lines -= len(wrap(sentence, width))
        if lines < 0:
            break
        kept.append(sentence)
    return kept


def _answers(
    ranked: Sequence[Summary],
    groups: Sequence[LibraryRanking],
    of_fastest: Sequence[NearestLimit | None],
    known: Limits,
) -> list[str | None]:
    limits = _limits_reached([limit for limit in of_fastest if limit])
    quiet = [group for group in groups if not any(s.is_disturbed for s in group.ranked)]
    rates = _highest_rates([s for s in ranked if not s.is_disturbed], known)
    return [*rates, disturbed_limits(ranked, known), _fastest_libraries(quiet), limits]


def _highest_rates(ranked: Sequence[Summary], known: Limits) -> list[str | None]:
    """A sentence per device."""
    devices = list(dict.fromkeys(s.record["device"] for s in ranked))
    return [_peak_rates(ranked, known, device, len(devices) > 1) for device in devices]


def disturbed_limits(summaries: Sequence[Summary], known: Limits) -> str | None:
    """Which limits of these cases other programs made too low; None for none."""
    places: dict[tuple[str, int], dict[str, None]] = {}
    for s in summaries:
        if not s.is_group:
            places.setdefault((s.record["device"], s.record["threads"]), {})[s.record["precision"]] = None
    found = [
        f"{listed(names)} with {threads} thread{'s' * (threads != 1)}"
        for (device, threads), precisions in places.items()
        if (names := known.disturbed(precisions, threads, device))
    ]
    return f"Measured while other programs ran, so too low: the limits of {'; '.join(found)}." if found else None


def _counts(summaries: Sequence[Summary]) -> str:
    """How many cases were checked, and what became of the others."""
    counts = Counter(s.status for s in summaries)
    others = [f"{count} {status.replace('_', ' ')}" for status, count in sorted(counts.items()) if status != "ok"]
    verb = "was" if len(summaries) == 1 else "were"
    checked = f"{counts['ok']} of {len(summaries)} case{'s' * (verb == 'were')} {verb} measured and checked"
    return f"{'; '.join([checked, ', '.join(others)] if others else [checked])}."


def _most_frequent_reason(summaries: Sequence[Summary]) -> str:
    """` Most frequent reason (16 cases): …`, why cases have no time; nothing where all have one or it is long."""
    reasons = Counter(str(s.record["reason"]) for s in summaries if s.status not in MEASURED and s.record["reason"])
    if not reasons:
        return ""
    reason, count = reasons.most_common(1)[0]
    if len(reason) > LONGEST_REASON:
        return " The reasons are above."
    what = "The reason" if len(reasons) == 1 else f"Most frequent reason ({count} case{'s' * (count > 1)})"
    return f" {what}: {reason.rstrip('.')}."


def _more_threads_sentence(summaries: Sequence[Summary]) -> str | None:
    found = faster_with_fewer_threads(summaries)
    if not found:
        return None
    worst = max(found, key=lambda text: found[text].slowdown)
    cases = f"{len(found)} case{' is' if len(found) == 1 else 's are'}"
    return (
        f"{cases} slower than with fewer threads, the largest slowdown is "
        f"{units.significant(found[worst].slowdown)}×: {worst}."
    )


def _roofs_of_fewer_threads(ranked: Sequence[Summary], known: Limits) -> list[str]:
    """Where fewer threads reached a higher rate than more threads, their rate is the roof of both."""
    places = dict.fromkeys(
        (s.record["precision"], s.record["device"], s.record["threads"])
        for s in ranked
        if s.record["flop"] and not s.is_group
    )
    return [
        f"Roof in {precision} with {threads} threads: the rate of {fewer} thread{'s' if fewer > 1 else ''}, because "
        f"{threads} threads reached less."
        for precision, device, threads in places
        if (fewer := known.peaks.threads_of(precision, device, threads)) is not None and fewer < threads
    ]


def _peak_rates(summaries: Sequence[Summary], known: Limits, device: str, several: bool) -> str | None:
    on_device = [s for s in summaries if s.record["device"] == device]
    # The rate of a convolution may count work that its algorithm (Winograd's) saves, so products come first.
    products = [s for s in on_device if s.record["op"] == "gemm"]
    best: dict[str, tuple[float, Summary]] = {}
    for s in products or on_device:
        rate, precision = s.flop_per_s, s.record["precision"]
        if rate and (precision not in best or rate > best[precision][0]):
            best[precision] = rate, s
    if not best:
        return None
    rates = listed([f"{rate_text(rate)} in {p}" for p, (rate, _) in best.items()])
    _, top = max(best.values(), key=itemgetter(0))
    memory = known.dram(max(s.record["threads"] for s in on_device), device)
    bandwidth = f"; memory bandwidth {units.bytes_per_s(memory)} GB/s" if memory else ""
    place = {"cpu": "the CPU", "cuda": "the GPU", "hip": "the GPU", "xpu": "the GPU"}.get(device, device)
    where = f" on {place}" if several else ""
    what = " of matrix products" if products else ""
    return f"Highest rate{what}{where}: {rates} (fastest: {top.library_title}, {top.problem_title}){bandwidth}."


def rate_text(rate: float) -> str:
    """`1.23 TFLOP/s`, `45.6 GFLOP/s`."""
    return f"{units.significant(rate / 1e12)} TFLOP/s" if rate >= 1e12 else f"{units.significant(rate / 1e9)} GFLOP/s"


def _fastest_libraries(groups: Sequence[LibraryRanking]) -> str | None:
    """Who wins how often. Where the fastest one has a tie, nobody does."""
    wins: dict[str, Counter[str]] = {}
    for group in groups:
        if len({s.record["backend"] for s in group.ranked}) > 1:
            best = group.ranked[0].record
            winner = "undecided" if group.ties else best["library_title"]
            wins.setdefault(best["op"], Counter())[winner] += 1
    if not wins:
        return None
    parts = [f"{op}: {', '.join(f'{name} {count}' for name, count in c.most_common())}" for op, c in wins.items()]
    return f"Fastest library, by number of problems: {'; '.join(parts)}."


def _limits_reached(nearest: Sequence[NearestLimit]) -> str | None:
    if not nearest:
        return None
    shares: dict[str, list[float]] = {}
    for limit in nearest:
        found = shares.setdefault(limit.name, [])
        if limit.share is not None:
            found.append(limit.share)
    counts = Counter(limit.name for limit in nearest if limit.name != UNKNOWN).most_common()
    parts = [
        f"{name} {count}" + (f" (median {units.percent(median(shares[name]))} of the limit)" if shares[name] else "")
        for name, count in counts
    ]
    return _limiting(parts, nearest)


def _limits_in_short(nearest: Sequence[NearestLimit]) -> str | None:
    """The most frequent limits."""
    counts = Counter(limit.name for limit in nearest if limit.name != UNKNOWN).most_common()
    named, rest = counts[:MOST_LIMITS], sum(count for _, count in counts[MOST_LIMITS:])
    return _limiting([f"{name} {count}" for name, count in named] + [f"others {rest}"] * bool(rest), nearest)


def _limiting(parts: Sequence[str], nearest: Sequence[NearestLimit]) -> str | None:
    """The sentence, with the problems whose limit was measured too low; None for no problem."""
    unknown = [limit for limit in nearest if limit.name == UNKNOWN]
    if unknown:
        parts = [*parts, f"unknown {len(unknown)}, because {_why_unknown(unknown)}"]
    return f"What limits the fastest library, by number of problems: {', '.join(parts)}." if parts else None


def _why_unknown(unknown: Sequence[NearestLimit]) -> str:
    whys = {
        DISTURBED: "other programs disturbed the probes of the limits",
        TOO_SLOW: "the probes of the limits were slower than the problems",
    }
    found = [words for why, words in whys.items() if any(why in limit.evidence for limit in unknown)]
    where = " on a quiet machine" if any(DISTURBED in limit.evidence for limit in unknown) else ""
    return f"{' or '.join(found)}; measure again{where}"


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
