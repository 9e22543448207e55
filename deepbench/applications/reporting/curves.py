"""Curves over a number, as an SVG picture: training curves with their target, or a rate over the batch.

Colours of text and lines come from the page (`currentColor`), so that they suit light and dark backgrounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from deepbench.core import units

# Colours that people with colour-blindness can tell apart (Okabe and Ito, 2008).
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 250, 52, 20, 34, 40
TICKS = 4


@dataclass(frozen=True)
class Curve:
    """One curve, the mean of several, with its band."""

    label: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float]] = ()
    """The least and the greatest value at each point."""
    color: int = 0
    dots: bool = False


@dataclass(frozen=True)
class Rule:
    """A horizontal line at a value."""

    label: str
    value: float
    is_above: bool = True
    """Whether the label is above the line, or below it."""


@dataclass(frozen=True)
class Axis:
    """What an axis shows."""

    title: str
    show: Callable[[float], str] = units.significant
    is_log: bool = False

    def place(self, value: float) -> float:
        """On the scale of the axis."""
        return math.log10(value) if self.is_log else value


def svg(title: str, x: Axis, y: Axis, curves: Sequence[Curve], rules: Sequence[Rule] = ()) -> str:
    """A picture of curves; empty without a point."""
    points = [p for curve in curves for p in curve.points]
    if not points:
        return ""
    values = [p[1] for p in points] + [v for curve in curves for ends in curve.band for v in ends]
    values += [rule.value for rule in rules]
    low_x, high_x = _ends([x.place(p[0]) for p in points])
    low_y, high_y = _ends([y.place(v) for v in values], 0.06)

    def at_x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (x.place(value) - low_x) / (high_x - low_x)

    def at_y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y.place(value) - low_y) / (high_y - low_y)

    text = ". ".join([title, *(_in_words(curve, x, y) for curve in curves)])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(text)}" font-size="11" fill="currentColor">',
        f'<text x="{LEFT}" y="16" font-size="14" font-weight="bold">{escape(title)}</text>',
        *_axes(x, y, (low_x, high_x), (low_y, high_y)),
    ]
    for rule in rules:
        height = at_y(rule.value)
        has_room = height + 13 < HEIGHT - BOTTOM  # below, above the ticks
        shift = -4 if rule.is_above or not has_room else 13
        lines.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}" stroke="currentColor" '
            f'stroke-dasharray="6 4"/><text x="{LEFT + 4}" y="{height + shift:.1f}">{escape(rule.label)}</text>'
        )
    for curve in curves:
        color = COLORS[curve.color % len(COLORS)]
        if curve.band:
            there = [f"{at_x(p[0]):.1f},{at_y(ends[1]):.1f}" for p, ends in zip(curve.points, curve.band, strict=True)]
            back = [f"{at_x(p[0]):.1f},{at_y(ends[0]):.1f}" for p, ends in zip(curve.points, curve.band, strict=True)]
            lines.append(f'<polygon points="{" ".join(there + back[::-1])}" fill="{color}" opacity="0.22"/>')
        places = [f"{at_x(a):.1f},{at_y(b):.1f}" for a, b in curve.points]
        lines.append(f'<polyline points="{" ".join(places)}" fill="none" stroke="{color}" stroke-width="2"/>')
        if curve.dots or len(places) == 1:
            lines += [f'<circle cx="{a}" cy="{b}" r="3" fill="{color}"/>' for a, b in (p.split(",") for p in places)]
    return "\n".join([*lines, "</svg>"])


def _ends(values: Sequence[float], room: float = 0.0) -> tuple[float, float]:
    """The least and the greatest value, with some room, never the same."""
    low, high = min(values), max(values)
    more = (high - low) * room or (abs(high) * 0.05 or 1.0) * (low == high)
    return low - more, high + more


def _axes(x: Axis, y: Axis, of_x: tuple[float, float], of_y: tuple[float, float]) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines = [f'<path d="M{LEFT},{TOP} V{bottom} H{right}" fill="none" stroke="currentColor" opacity="0.5"/>']
    for place in _ticks(*of_x, x.is_log):
        left = LEFT + (right - LEFT) * (place - of_x[0]) / (of_x[1] - of_x[0])
        text = escape(x.show(10**place if x.is_log else place))
        lines.append(f'<text x="{left:.1f}" y="{bottom + 14}" text-anchor="middle">{text}</text>')
    for place in _ticks(*of_y, y.is_log):
        height = bottom - (bottom - TOP) * (place - of_y[0]) / (of_y[1] - of_y[0])
        text = escape(y.show(10**place if y.is_log else place))
        lines.append(
            f'<line x1="{LEFT}" x2="{right}" y1="{height:.1f}" y2="{height:.1f}" stroke="currentColor" opacity="0.12"/>'
            f'<text x="{LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{text}</text>'
        )
    lines.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x.title)}</text>')
    lines.append(f'<text x="{right}" y="16" text-anchor="end" opacity="0.8">{escape(y.title)}</text>')
    return lines


def _ticks(low: float, high: float, is_log: bool) -> list[float]:
    """Round values between both ends, about `TICKS` of them; places on the axis."""
    if is_log:
        decades = [float(d) for d in range(math.ceil(low), math.floor(high) + 1)]
        if len(decades) >= 2:
            return decades
        steps = [(low + (high - low) * i / (TICKS - 1)) for i in range(TICKS)]
        rounded = [float(f"{10**s:.1g}") for s in steps]
        return [math.log10(v) for v in dict.fromkeys(rounded) if low <= math.log10(v) <= high]
    raw = (high - low) / TICKS
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _in_words(curve: Curve, x: Axis, y: Axis) -> str:
    (first, last) = curve.points[0], curve.points[-1]
    return f"{curve.label}: {y.show(first[1])} at {x.show(first[0])}, {y.show(last[1])} at {x.show(last[0])} {x.title}"
