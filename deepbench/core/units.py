"""Numbers to text, at the edge and nowhere else. Inside, everything is seconds, bytes and FLOP."""

from __future__ import annotations


def scaled(value: float, units: tuple[tuple[float, str], ...], digits: int = 3) -> str:
    """`value` in the largest unit it reaches, with so many significant digits."""
    size, unit = next(((s, u) for s, u in units if abs(value) >= s), units[-1])
    return f"{significant(value / size, digits)} {unit}"


def significant(value: float, digits: int = 3) -> str:
    """Plain decimal notation with so many significant digits: 0.0123, 1.23, 123, 12300."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    before = len(str(int(abs(rounded)))) if abs(rounded) >= 1 else 0
    if before:
        return f"{rounded:.{max(0, digits - before)}f}"
    text = f"{rounded:.12f}".rstrip("0")
    zeros = len(text.partition(".")[2]) - len(text.partition(".")[2].lstrip("0"))
    return f"{rounded:.{zeros + digits}f}"


def seconds(value: float | None) -> str:
    """`12.3 µs`."""
    if value is None:
        return "–"
    return scaled(value, ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")))


def joules(value: float) -> str:
    """`12.3 mJ`."""
    return scaled(value, ((1, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ")))


def duration(value: float) -> str:
    """A length of time for people: `45 s`, `3 min 20 s`, `1 h 05 min`."""
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def flop_per_s(value: float | None) -> str:
    """A rate in TFLOP/s, the unit of DeepBench's tables."""
    return "–" if value is None else significant(value / 1e12)


def bytes_per_s(value: float | None) -> str:
    """A rate in GB/s."""
    return "–" if value is None else significant(value / 1e9)


def data_bytes(value: float | None) -> str:
    """Binary sizes as memory is sold: `1.25 GiB`."""
    if value is None:
        return "–"
    units = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
    return scaled(value, units)


def percent(value: float | None, digits: int = 0) -> str:
    """`97 %`."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def bar(share: float, width: int = 5) -> str:
    """So much of a bar: `███▌ `, in eighths of a character."""
    eighths = round(8 * width * min(1.0, max(0.0, share)))
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + ("" if rest == 0 else "▏▎▍▌▋▊▉"[rest - 1])).ljust(width)


def plus_minus(value: float | None) -> str:
    """`±0.4 %`: half the width of an interval."""
    if value is None:
        return "–"
    if value > 1:
        return ">±100 %"
    return f"±{100 * value:.1f} %" if value < 0.1 else f"±{100 * value:.0f} %"
