"""Horizontal bars of times that consist of parts, as an SVG picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from deepbench.core import units

# Of groups of kernels in pictures, in their order; other names get the colours that are left, one after the other.
COLORS = {
    "products": "#7B61C9",
    "products of experts": "#2A9D8F",
    "convolution": "#3E7CB1",
    "recurrent layers": "#2A9D8F",
    "attention": "#B5651D",
    "normalization": "#C2477F",
    "norms": "#C2477F",
    "embeddings": "#8A7A00",
    "gates": "#5E8C31",
    "optimizer": "#5E8C31",
    "other kernels": "#708090",
    "other": "#708090",
    "other operators": "#A7B0B8",
    "overhead": "#D3C5A5",
    "measured": "#404040",
}
SPARE = ("#AA4466", "#4477AA", "#228833", "#CCBB44")

WIDTH, LEFT, WIDE, HIGH, TOP = 860, 190, 520, 26, 62

# No character of a text is wider on average, in the size of the picture.
CHARACTER = 7.5


@dataclass(frozen=True)
class StackedBar:
    """A time that consists of parts."""

    label: str
    parts: Mapping[str, float]
    """Seconds by name, from left to right."""
    text: str
    """What stands behind the bar."""
    ends: tuple[float, float] | None = None
    """Of the interval of the sum, in seconds."""
    mark: float | None = None
    """Seconds that were measured: a line across the bar."""

    @property
    def seconds(self) -> float:
        """The sum."""
        return sum(self.parts.values())


def svg(title: str, bars: Sequence[StackedBar], notes: Sequence[str] = ()) -> str:
    """All bars with the same scale, below a title and a legend; notes stand below them."""
    names = list(dict.fromkeys(name for bar in bars for name, seconds in bar.parts.items() if seconds > 0))
    spare = iter(SPARE * (len(names) + 1))
    colors = {name: COLORS.get(name) or next(spare) for name in names}
    every = [
        *(bar.seconds for bar in bars),
        *(bar.ends[1] for bar in bars if bar.ends),
        *(bar.mark or 0 for bar in bars),
    ]
    longest = max(every, default=0) or 1.0
    legend, rows = _legend(colors)
    top = TOP + 20 * (rows - 1)
    below = top + HIGH * len(bars) + 12
    height, width_used = below + 18 * len(notes), max(float(WIDTH), 20 + CHARACTER * len(title))
    lines = list[str]()
    for i, bar in enumerate(bars):
        y, x = top + HIGH * i, float(LEFT)
        lines.append(f'<text x="10" y="{y + 15}">{escape(bar.label)}</text>')
        for name, seconds in bar.parts.items():
            width = WIDE * seconds / longest
            share = units.percent(seconds / bar.seconds) if bar.seconds else ""
            lines.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="20" fill="{colors.get(name, SPARE[0])}">'
                f"<title>{escape(name)}: {units.seconds(seconds)}, {share}</title></rect>"
            )
            x += width
        if bar.ends is not None:
            first, last = (LEFT + WIDE * end / longest for end in bar.ends)
            lines.append(
                f'<path d="M{first:.1f} {y + 5}v10M{first:.1f} {y + 10}H{last:.1f}M{last:.1f} {y + 5}v10" '
                'stroke="#000000" stroke-width="1.5" fill="none"/>'
            )
            x = max(x, last)
        if bar.mark is not None:
            at = LEFT + WIDE * bar.mark / longest
            lines.append(
                f'<rect x="{at - 1.5:.1f}" y="{y - 3}" width="3" height="26" fill="#000000">'
                f"<title>measured: {units.seconds(bar.mark)}</title></rect>"
            )
            x = max(x, at)
        lines.append(f'<text x="{x + 6:.1f}" y="{y + 15}">{escape(bar.text)}</text>')
        width_used = max(width_used, x + 16 + CHARACTER * len(bar.text))
    lines += [
        f'<text x="10" y="{below + 18 * i + 6}" font-size="12" fill="#505050">{escape(note)}</text>'
        for i, note in enumerate(notes)
    ]
    wide = math.ceil(width_used)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {height}" font-family="sans-serif" '
        'font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{wide}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="20" font-weight="bold">{escape(title)}</text>',
    ]
    return "\n".join([*head, *legend, *lines, "</svg>", ""])


def _legend(colors: Mapping[str, str]) -> tuple[list[str], int]:
    """The names with their colours, in as many rows as they need."""
    lines, x, row = [], 10, 0
    for name, color in colors.items():
        width = 40 + 7 * len(name)
        if x + width > WIDTH:
            x, row = 10, row + 1
        y = 32 + 20 * row
        lines += [
            f'<rect x="{x}" y="{y}" width="12" height="12" fill="{color}"/>',
            f'<text x="{x + 17}" y="{y + 11}">{escape(name)}</text>',
        ]
        x += width
    return lines, row + 1
