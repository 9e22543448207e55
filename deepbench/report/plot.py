"""A roofline in the terminal: each character a kernel, the lines what the machine can do."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

from deepbench.core import units
from deepbench.judge.limits import Limits
from deepbench.report.table import rivals
from deepbench.results.summary import Summary

LETTERS = {"gemm": "g", "conv": "c", "recurrent": "r", "sparse_gemm": "s", "memory": "m"}
SEVERAL, HEIGHT, MARGIN = "#", 22, 10


def roofline(summaries: Sequence[Summary], known: Limits, width: int) -> list[str]:
    """Lines of text of this width, of the device that most cases ran on; empty where nothing computes."""
    every = [g.ranked[0] for g in rivals(summaries) if g.ranked]
    devices = [s.device for s in every]
    device = max(devices, key=devices.count, default="cpu")
    fastest = [s for s in every if s.device == device]
    points = [
        (s.record["flop"] / s.record["traffic_bytes"], s.flop_per_s, s.record["op"])
        for s in fastest
        if s.flop_per_s and s.record["traffic_bytes"]
    ]
    if not points:
        return []
    threads = max(s.record["threads"] for s in fastest)
    peaks = {
        p: peak
        for p in dict.fromkeys(s.record["precision"] for s in fastest)
        if (peak := known.peak(p, device, threads))
    }
    dram = known.dram(threads) if device == "cpu" else None
    top = max([*peaks.values(), *(rate for _, rate, _ in points)])
    low, high = min(x for x, _, _ in points) / 1.5, max(x for x, _, _ in points) * 1.5
    bottom, top = min(rate for _, rate, _ in points) / 1.5, top * 1.3
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
        line, at = row(rate), column(x)
        letter = LETTERS.get(op, op[:1])
        grid[line][at] = letter if grid[line][at] in " ─·" or grid[line][at] == letter else SEVERAL
    labels = {0: top, HEIGHT // 2: 10 ** ((log10(top) + log10(bottom)) / 2), HEIGHT - 1: bottom}
    lines = [
        f"{units.flop_per_s(labels[i]) if i in labels else '':>{MARGIN - 2}} │{''.join(cells).rstrip()}"
        for i, cells in enumerate(grid)
    ]
    lines.append(f"{'TFLOP/s':>{MARGIN - 2}} └{'─' * columns}")
    left, right = units.significant(low), units.significant(high)
    middle = "FLOP a byte"
    space = columns - len(left) - len(right) - len(middle)
    lines.append(" " * MARGIN + left + middle.rjust(len(middle) + space // 2).ljust(len(middle) + space) + right)
    used = dict.fromkeys(op for _, _, op in points)
    named = ", ".join(f"{LETTERS.get(op, op[:1])} {op}" for op in used)
    roofs = ", ".join(f"{p} {units.flop_per_s(peak)} TFLOP/s" for p, peak in peaks.items())
    lines.append(f"{named}, {SEVERAL} several; each problem at its fastest library.")
    lines.append(f"─ arithmetic at most ({roofs}){f', · memory {units.significant(dram / 1e9)} GB/s' if dram else ''}.")
    return lines
