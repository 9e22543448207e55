"""Numbers as text, for output only. Everywhere else, values are in seconds, bytes and FLOP."""

from __future__ import annotations

import math
from collections.abc import Iterable

# Up to this factor a ratio is a percentage: three digits of 1.01 say less than was measured.
MOST_PERCENT = 1.25

FLOP_UNITS = (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6))


def scaled(value: float, units: tuple[tuple[float, str], ...], digits: int = 3) -> str:
    """`value` in the largest unit that is not larger than it; `units` are sorted from large to small."""
    size, unit = next(((s, u) for s, u in units if abs(value) >= s), units[-1])
    return f"{significant(value / size, digits)} {unit}"


def significant(value: float, digits: int = 3) -> str:
    """Decimal notation, rounded to `digits` significant digits: 0.0123, 1.23, 123, 12300."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    exponent = math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(0, digits - 1 - exponent)}f}"


def seconds(value: float | None, digits: int = 3) -> str:
    """`12.3 µs`."""
    if value is None:
        return "–"
    return scaled(value, ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")), digits)


def at_most(value: float) -> str:
    """`≤ 13 ms`: an upper bound in two digits, rounded up."""
    exponent = math.floor(math.log10(value)) - 1
    return f"≤ {seconds(math.ceil(value / 10.0**exponent * (1 - 1e-9)) * 10.0**exponent, 2)}"


def joules(value: float) -> str:
    """`12.3 mJ`."""
    return scaled(value, ((1, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ")))


def duration(value: float) -> str:
    """`45 s`, `3 min 20 s`, `1 h 05 min`."""
    total = round(value)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02} s"
    return f"{total // 3600} h {total % 3600 // 60:02} min"


def flop_per_s(value: float | None) -> str:
    """A rate in TFLOP/s, without the unit."""
    return "–" if value is None else significant(value / 1e12)


def flop_unit(rates: Iterable[float | None]) -> tuple[str, float]:
    """The unit in which a column of such rates is easy to read, and how many FLOP/s it is."""
    largest = max((rate for rate in rates if rate is not None), default=0.0)
    return next((unit for unit in FLOP_UNITS if largest >= 10 * unit[1]), FLOP_UNITS[-1])


def bytes_per_s(value: float | None) -> str:
    """A rate in GB/s."""
    return "–" if value is None else significant(value / 1e9)


def data_bytes(value: float | None) -> str:
    """`1.25 GiB`."""
    if value is None:
        return "–"
    units = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
    return scaled(value, units)


def factor(value: float) -> str:
    """`1.62×`."""
    return f"{significant(value)}×"


def short_count(value: float) -> str:
    """`1.20k`, `25.6M`: a number of samples, calls or the like in three digits."""
    return scaled(value, ((1e6, "M"), (1e3, "k"), (1.0, ""))).strip()


def minutes(seconds: float) -> str:
    """A duration for people who decide whether to wait: `40 s`, `12 min`, `3 h`."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5940 else f"{round(seconds / 3600)} h"


def percent(value: float | None, digits: int = 0) -> str:
    """`97 %`."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def precise_percent(value: float) -> str:
    """`0.64 %`, `11 %`: two significant digits, where small shares differ."""
    return f"{significant(100 * value, 2)} %"


def bar(share: float, width: int = 5) -> str:
    """A bar filled to `share` (0 to 1), in eighths of a character: `███▌ `."""
    eighths = round(8 * width * min(1.0, max(0.0, share)))
    full, rest = divmod(eighths, 8)
    return ("█" * full + ("" if rest == 0 else "▏▎▍▌▋▊▉"[rest - 1])).ljust(width)


def numbers(values: Iterable[int]) -> str:
    """`0-3,8`: ranges of whole numbers, as Linux lists CPUs."""
    ranges: list[list[int]] = []
    for value in sorted(set(values)):
        if ranges and value == ranges[-1][1] + 1:
            ranges[-1][1] = value
        else:
            ranges.append([value, value])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)


def faster_or_slower(ratio: float | None) -> str:
    """A ratio of times in words: below 1, `37.0× faster`; above 1, `1.80× slower`; near 1, `1.3 % slower` or `as fast`.

    The ratio is the time of what the words are about over the time that it is compared with.
    """
    if ratio is None:
        return "–"
    factor = max(ratio, 1 / ratio)
    more = f"{significant(factor)}×" if factor > MOST_PERCENT else percent(factor - 1, 1)
    return "as fast" if more == "0.0 %" else f"{more} {'faster' if ratio < 1 else 'slower'}"


def by_factor(low: float, high: float) -> tuple[float, float]:
    """An interval of ratios in the order of its factors: of `faster` ones the highest ratio is the smallest factor."""
    return (high, low) if high < 1 else (low, high)


def speed_sentence(subject: str, ratio: float, other: str) -> str:
    """`B is 3.33× slower than A`; the ratio is the time of the subject over that of the other."""
    words = faster_or_slower(ratio)
    return f"{subject} is {words} {'as' if words == 'as fast' else 'than'} {other}"


def plus_minus(value: float | None) -> str:
    """The half-width of an interval: `±0.4 %`."""
    if value is None:
        return "–"
    if value > 1:
        return ">±100 %"
    return f"±{100 * value:.1f} %" if value < 0.1 else f"±{100 * value:.0f} %"
