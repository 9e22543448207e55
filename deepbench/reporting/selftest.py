"""A self-test for people: what comparisons on this machine are worth, and how to improve them."""

from __future__ import annotations

from statistics import median

from deepbench.core import stats, units
from deepbench.judge import selftest
from deepbench.judge.selftest import ColdProof, SelfTestResult, Sensitivity
from deepbench.reporting.table import Cell, Column, Table, number

# Beyond these limits the page gives advice: share of comparisons, share of blocks, ratio of times, seconds per call.
MOST_FALSE_ALARMS, MOST_DISTURBED, MOST_CORE_RATIO, MOST_LOOP_S = 0.05, 0.05, 1.03, 50e-9
# The median detectable change of a quiet machine, at most.
GOOD_CHANGE = 0.05

SEPARATE, IN_TURN = "two files measured one after the other", "two sides that meet in heats (run --ab, --against)"


def page(findings: SelfTestResult) -> list[str]:
    """Sentences, one per line; advice begins with an arrow."""
    return [
        *_false_alarms(SEPARATE, findings.separate),
        *_false_alarms(IN_TURN, findings.in_heats),
        *_power(findings),
        *_sessions(findings),
        *_harness(findings),
        *_cores(findings),
        *_cold(findings.cold),
    ]


def _false_alarms(how: str, cases: list[Sensitivity]) -> list[str]:
    if not cases:
        return []
    share = sum(c.rates.false_alarms for c in cases) / len(cases)
    same = sum(c.rates.same for c in cases) / len(cases)
    lines = [
        f"False alarms, {how}, {selftest.PROCESSES} processes per side: unchanged code was called faster or slower in "
        f"{units.percent(share, 1)} of comparisons, same in {units.percent(same)}, undecided in the rest.",
        f"Intervals of the ratio, {how}: {units.plus_minus(median(c.half_width for c in cases))} in the median case, "
        f"{units.plus_minus(max(c.half_width for c in cases))} in the worst.",
    ]
    if share > MOST_FALSE_ALARMS:
        worst = max(cases, key=lambda c: c.rates.false_alarms)
        lines.append(
            f"→ Above {units.percent(MOST_FALSE_ALARMS)} is too often; worst case: {worst.case}. Let both sides meet "
            "in heats (run --ab, run --against, gate --rerun), and pin threads (--set pin=cores)."
        )
    return lines


def _power(findings: SelfTestResult) -> list[str]:
    lines = []
    for how, cases in ((SEPARATE, findings.separate), (IN_TURN, findings.in_heats)):
        smallest = [(c.smallest if c.smallest is not None else float("inf")) for c in cases]
        if smallest:
            lines.append(
                f"Smallest slowdown detected 9 times out of 10, {how}: median case {_change(median(smallest))}, "
                f"worst case {_change(max(smallest))}."
            )
    known = [c.smallest for c in findings.in_heats if c.smallest is not None]
    if not known or median(known) > GOOD_CHANGE:
        lines.append(
            "→ This machine is noisy: other programs or virtual machines use its cores. Stop them, measure at a "
            "quieter time, or measure both sides in turn. Half the detectable change needs four times the rounds and "
            "minutes; compare prints the minutes for each undecided case."
        )
    return lines


def _change(value: float) -> str:
    return f"+{units.percent(value, 1)}" if value < 1 else f"above +{units.percent(selftest.CHANGES[-1])}"


def _sessions(findings: SelfTestResult) -> list[str]:
    if findings.between_sessions is None:
        return [
            "Drift between sessions: unknown. Run selftest again on another day; compare then widens its confidence "
            "intervals accordingly."
        ]
    return [
        f"Drift between sessions: {units.percent(findings.between_sessions, 1)} (standard deviation beyond the noise "
        "between processes). compare widens its confidence intervals for this machine by it."
    ]


def _harness(findings: SelfTestResult) -> list[str]:
    lines = [
        f"Overhead: {1e9 * findings.loop_s:.1f} ns per call ({findings.loop} loop), and "
        f"{1e9 * findings.clock_s:.0f} ns for two clock readings per sample of 1.5 ms."
    ]
    if findings.loop_s > MOST_LOOP_S:
        lines.append("→ Calls are made from Python. Install gcc, then install deepbench again: about 5 ns per call.")
    return lines


def _cores(findings: SelfTestResult) -> list[str]:
    if not findings.cores:
        return []
    disturbed = median(c["disturbed"] for c in findings.cores.values())
    slow = {cpu: ratio for cpu, ratio in findings.core_speeds.items() if ratio > MOST_CORE_RATIO}
    lines = [
        f"Core stability: {units.percent(disturbed)} of equal 1 ms blocks of work take over 5 % longer than the "
        f"fastest ({len(findings.cores)} cores, tested one at a time)."
    ]
    if disturbed > MOST_DISTURBED:
        lines.append(
            "→ The clock frequency changes, or other work interrupts the cores; deepbench info --doctor looks for the "
            "cause."
        )
    if slow:
        names = ", ".join(f"core {cpu} {units.percent(ratio - 1)}" for cpu, ratio in slow.items())
        lines.append(f"→ Cores differ in speed (slower than the fastest: {names}); pin threads (--set pin=cores).")
    return lines


def _cold(cold: ColdProof | None) -> list[str]:
    if cold is None:
        return ["Cold caches: not tested, because no library here multiplies a matrix by a vector."]
    speeds = cold["large_hot_bytes_per_s"], cold["small_hot_bytes_per_s"], cold["small_cold_bytes_per_s"]
    rates = [speed / 1e9 for speed in speeds]
    size = units.data_bytes(cold["cache_bytes"] // 8)
    line = (
        f"Cold caches: a matrix larger than all caches is read at {rates[0]:.1f} GB/s; one of {size} at "
        f"{rates[1]:.1f} GB/s hot and {rates[2]:.1f} GB/s cold."
    )
    if not cold["cold_is_cold"]:
        return [line, "→ Some buffers stay in a cache here, so cache=cold and cache=weights are refused."]
    if not cold["has_cache"]:
        return [line, "cache=cold works, but no cache here is much faster than memory."]
    return [line, "cache=cold works."]


def table(findings: SelfTestResult) -> Table:
    """One row per case."""
    in_heats = {c.case: c for c in findings.in_heats}
    rows: list[dict[str, Cell]] = [
        {
            "case": c.case,
            "time": stats.lower_quartile(findings.times[c.case]),
            "spread": stats.faster_half_range(findings.times[c.case]) / stats.lower_quartile(findings.times[c.case]),
            "false alarms": c.rates.false_alarms,
            "finds": c.smallest,
            "false alarms in heats": in_heats[c.case].rates.false_alarms if c.case in in_heats else None,
            "interval in heats": in_heats[c.case].half_width if c.case in in_heats else None,
            "finds in heats": in_heats[c.case].smallest if c.case in in_heats else None,
        }
        for c in findings.separate
    ]
    columns = [
        *(Column("case"), number("time", units.seconds), number("spread", _share)),
        *(number("false alarms", _share), number("finds", _change, "detects")),
        *(number("false alarms in heats", _share), number("interval in heats", units.plus_minus, "± in heats")),
        number("finds in heats", _change, "detects in heats"),
    ]
    note = "spread: of the faster half of the processes; detects: smallest slowdown detected 9 times out of 10."
    return Table(columns, rows, [note])


def _share(value: float) -> str:
    return units.percent(value, 1)
