"""A roofline in the terminal: each letter is a kernel, lines are the limits of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10

from deepbench.core import units
from deepbench.judge.limits import Limits
from deepbench.reporting import answers
from deepbench.reporting.cases import rankings
from deepbench.results.summary import Summary

LETTERS = {"gemm": "g", "conv": "c", "recurrent": "r", "sparse_gemm": "s", "memory": "m"}
SEVERAL, HEIGHT, MARGIN = "#", 22, 10


@dataclass(frozen=True)
class Roofs:
    """The kernels of a roofline: the fastest library of each problem, on the device of most of them, and its limits."""

    kernels: Sequence[Summary]
    """Those with a rate of arithmetic, also the disturbed ones."""
    peaks: Mapping[str, float]
    """FLOP per second by precision, as far as they are known."""
    dram: float | None
    """Bytes per second of memory."""

    @staticmethod
    def intensity(s: Summary) -> float:
        """FLOP per byte of minimum traffic."""
        return s.record["flop"] / s.record["traffic_bytes"]


def roofs(summaries: Sequence[Summary], known: Limits) -> Roofs:
    """What a roofline shows; without kernels if no case computes anything."""
    fastest = [ranking.ranked[0] for ranking in rankings(summaries) if ranking.ranked]
    devices = [s.record["device"] for s in fastest]
    device = max(devices, key=devices.count, default="cpu")
    on_device = [s for s in fastest if s.record["device"] == device]
    threads = max((s.record["threads"] for s in on_device), default=1)
    precisions = dict.fromkeys(s.record["precision"] for s in on_device)
    peaks = {p: peak for p in precisions if (peak := known.peak(p, device, threads))}
    kernels = [s for s in on_device if s.flop_per_s and s.record["traffic_bytes"]]
    return Roofs(kernels, peaks, known.dram(threads, device))


def roofline(summaries: Sequence[Summary], known: Limits, width: int) -> list[str]:
    """Lines of at most this width, for the device of most cases; empty if no case computes anything."""
    found = roofs(summaries, known)
    # The rate of a disturbed time is too low, and a letter has no room for a mark.
    fastest = [s for s in found.kernels if not s.is_disturbed]
    points = [(found.intensity(s), s.flop_per_s, s.record["op"]) for s in fastest if s.flop_per_s]
    if not points:
        return []
    shown = {s.record["precision"] for s in fastest}
    peaks, dram = {p: peak for p, peak in found.peaks.items() if p in shown}, found.dram
    low, high = min(x for x, _, _ in points) / 1.5, max(x for x, _, _ in points) * 1.5
    rates = [rate for _, rate, _ in points]
    bottom, top = min(rates) / 1.5, max([*peaks.values(), *rates]) * 1.3
    columns = max(20, width - MARGIN - 1)
    grid = [[" "] * columns for _ in range(HEIGHT)]

    def column(x: float) -> int:
        return round((columns - 1) * (log10(x) - log10(low)) / (log10(high) - log10(low)))

    def row(rate: float) -> int:
        return round((HEIGHT - 1) * (log10(top) - log10(rate)) / (log10(top) - log10(bottom)))

    for peak in peaks.values():
        if bottom <= peak <= top:
            grid[row(peak)] = ["─"] * columns
    if dram:
        for i in range(columns):
            rate = dram * 10 ** (log10(low) + i / (columns - 1) * (log10(high) - log10(low)))
            if bottom <= rate <= max(peaks.values(), default=top):
                grid[row(rate)][i] = "·"
    for x, rate, op in points:
        letter, cells, at = LETTERS.get(op, op[:1]), grid[row(rate)], column(x)
        cells[at] = letter if cells[at] in f" ─·{letter}" else SEVERAL
    labels = {0: top, HEIGHT // 2: 10 ** ((log10(top) + log10(bottom)) / 2), HEIGHT - 1: bottom}
    lines = [
        f"{units.flop_per_s(labels[i]) if i in labels else '':>{MARGIN - 2}} │{''.join(cells).rstrip()}"
        for i, cells in enumerate(grid)
    ]
    lines.append(f"{'TFLOP/s':>{MARGIN - 2}} └{'─' * columns}")
    left, right = units.significant(low), units.significant(high)
    lines.append(" " * MARGIN + left + "FLOP per byte".center(columns - len(left) - len(right)) + right)
    letters = ", ".join(f"{LETTERS.get(op, op[:1])} {op}" for op in dict.fromkeys(op for _, _, op in points))
    lines.append(f"{letters}, {SEVERAL} several operations. Each problem is shown with its fastest library.")
    if left_out := len(found.kernels) - len(fastest):
        lines.append(f"{left_out} of {len(found.kernels)} problems are left out: other programs disturbed their times.")
    compute = ", ".join(f"{p} {units.flop_per_s(peak)} TFLOP/s" for p, peak in peaks.items())
    memory = f"; · memory bandwidth {units.bytes_per_s(dram)} GB/s" if dram else ""
    lines.append(f"─ peak rate: {compute}{memory}.")
    lines += filter(None, [answers.disturbed_limits(fastest, known)])
    return lines
