"""Figures for papers and slides, drawn by Matplotlib: a roofline, rates of libraries, and ratios of two files.

Matplotlib is optional. Texts of files are drawn as they are, never as formulas or TeX.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deepbench.core import units
from deepbench.core.errors import BadInput, shorten
from deepbench.core.files import replacing
from deepbench.core.json_lines import printable
from deepbench.core.words import count
from deepbench.judge.compare import ComparedCase
from deepbench.reporting.cases import LibraryRanking, differing_places, place_cells, rankings
from deepbench.reporting.plot import Roofs
from deepbench.reporting.sections import rate_of
from deepbench.results.summary import Summary

SUFFIXES = (".svg", ".pdf", ".png")

REMEDY = "figures need Matplotlib: pip install matplotlib"

# Inches. Journals have columns of about 3.3 inches, and pages of 7.
LEAST_WIDTH, WIDTH, MOST_WIDTH = 2.0, 7.0, 40.0

# Rows of bars or points with their names; more cannot be read.
MOST_ROWS = 40
MOST_OF_LABEL = 48

# The palette of Okabe and Ito, which people with any colour vision can tell apart, without its yellow; shapes differ.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000", "#777777")
MARKERS = "osD^vP*X<>hp"
VERDICT_COLORS = {"faster": "#0072B2", "slower": "#D55E00", "same": "#777777", "cannot tell": "#BBBBBB"}

INTEGERS = ("i8", "i8u8")

# Texts are no formulas, and files with the same content are the same bytes.
SETTINGS = {"text.usetex": False, "text.parse_math": False, "svg.hashsalt": "deepbench", "font.size": 8}
METADATA: Mapping[str, dict[str, None]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}

# Factors of speed that an axis may name.
TICKS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000, 10_000)


@contextmanager
def _drawing() -> Iterator[type[Any]]:
    """Matplotlib's class of figures; `BadInput` with the remedy where it is missing."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise BadInput(REMEDY) from None
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of letters that a font lacks, and of labels wider than a figure
        yield Figure


def require_width(width: float) -> None:
    """`BadInput` for a width in inches that no figure can have."""
    if not LEAST_WIDTH <= width <= MOST_WIDTH:
        raise BadInput(f"the width must be from {LEAST_WIDTH:g} to {MOST_WIDTH:g} inches, found {width:g}")


def require_name(path: Path) -> None:
    """`BadInput` for a name that says no form of figures."""
    if path.suffix.lower() not in SUFFIXES:
        raise BadInput(f"a figure needs a name that ends in .svg, .pdf or .png, found {str(path)[-60:]!r}")


def save(figure: Any, path: Path) -> None:
    """Write a figure as a whole, in the form that the name of the file says; `BadInput` for other names."""
    require_name(path)
    suffix = path.suffix.lower()
    with _drawing(), replacing(path) as draft:
        figure.savefig(draft, format=suffix[1:], dpi=300, metadata=METADATA.get(suffix), bbox_inches="tight")


def _label(text: str) -> str:
    return shorten(printable(text), MOST_OF_LABEL)


def _flop_unit(heading: str, precisions: set[str]) -> str:
    """`GFLOP/s`; of integers, whose operations are none of floating point, `GOP/s`."""
    integers = precisions.intersection(INTEGERS)
    if "FLOP" not in heading or not integers:
        return heading
    of_integers = heading.replace("FLOP", "OP")
    return of_integers if integers == precisions else f"{heading} ({', '.join(sorted(integers))}: {of_integers})"


# ---- roofline


def roofline(found: Roofs, title: str, width: float) -> Any:
    """Rate over FLOP per byte, one point per problem with its fastest library, below the limits of the machine.

    A hollow point is a disturbed time: its rate is a lower bound.
    """
    points = [(found.intensity(s), s.flop_per_s or 0.0, s) for s in found.kernels]
    with _drawing() as figure_class:
        figure = figure_class(figsize=(width, 0.62 * width + 0.6), layout="constrained")
        axes = figure.add_subplot()
        low, high = min(x for x, _, _ in points) / 2, max(x for x, _, _ in points) * 2
        for i, op in enumerate(dict.fromkeys(s.record["op"] for _, _, s in points)):
            color, marker = COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]
            of_op = [point for point in points if point[2].record["op"] == op]
            for disturbed in (False, True):
                chosen = [(x, y) for x, y, s in of_op if s.is_disturbed is disturbed]
                face = "none" if disturbed else color
                is_named = not disturbed or all(s.is_disturbed for _, _, s in of_op)
                if chosen:
                    xs, ys = zip(*chosen, strict=True)
                    label = _label(op) if is_named else None
                    axes.scatter(xs, ys, 16, facecolors=face, edgecolors=color, marker=marker, label=label)
        groups = _equal_peaks(found.peaks)
        bottom, top = min(y for _, y, _ in points) / 2, 2 * max([y for _, y, _ in points] + [p for _, p in groups])
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
        _draw_limits(axes, groups, found.dram, 0.25 / width)
        _plain_ticks(axes.xaxis, high / low, 1)
        _plain_ticks(axes.yaxis, top / bottom, 1e9)
        axes.set_xlabel("FLOP per byte")
        axes.set_ylabel(_flop_unit("GFLOP/s", {s.record["precision"] for _, _, s in points}))
        axes.set_title(_label(title), loc="left")
        _legend(figure, any(s.is_disturbed for _, _, s in points))
    return figure


def _draw_limits(axes: Any, groups: Sequence[tuple[list[str], float]], dram: float | None, distance: float) -> None:
    """Lines of the peak rates and of the bandwidth of memory, with their names and values at the right.

    These are at least so far apart, as a share of the height: lines may be closer.
    """
    low, high = axes.get_xlim()
    line = {"color": "#555555", "linewidth": 1, "zorder": 0}
    if dram:
        ends = [low, min(high, groups[-1][1] / dram if groups else high)]
        axes.plot(ends, [x * dram for x in ends], **line)
        axes.text(1.01, 0, f"rising: memory\n{units.bytes_per_s(dram)} GB/s", transform=axes.transAxes, color="#555555")
    bottom, top = axes.get_ylim()
    lowest = 3 * distance
    for names, peak in groups:
        axes.plot([max(low, peak / dram) if dram else low, high], [peak, peak], **line)
        height = max(lowest, math.log(peak / bottom) / math.log(top / bottom))
        lowest = height + distance
        unit = "OP/s" if set(names) <= set(INTEGERS) else "FLOP/s"
        text = f"{', '.join(names)}: {units.scaled(peak, ((1e12, f'T{unit}'), (1e9, f'G{unit}')))}"
        axes.text(1.01, height, text, transform=axes.transAxes, va="center", color="#555555")


def _equal_peaks(peaks: Mapping[str, float]) -> list[tuple[list[str], float]]:
    """The peaks with their precisions; those within 5 % are one line, whose labels would cover each other."""
    groups: list[tuple[list[str], float]] = []
    for name, peak in sorted(peaks.items(), key=lambda item: item[1]):
        if groups and peak < 1.05 * groups[-1][1]:
            groups[-1][0].append(name)
        else:
            groups.append(([name], peak))
    return groups


def _plain_ticks(axis: Any, span: float, unit: float) -> None:
    """Numbers on a logarithmic axis as people write them, in this unit; `span` is the ratio of the ends."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if span < 200 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / unit:g}"))
    axis.set_minor_formatter(NullFormatter())


def _legend(figure: Any, disturbed: bool, sentence: str = "", entries: Sequence[tuple[Any, str]] = ()) -> None:
    """Names below the axes, and what a hollow mark means if there is one."""
    found = list(entries) or list(zip(*figure.axes[0].get_legend_handles_labels(), strict=True))
    handles, labels = [handle for handle, _ in found], [label for _, label in found]
    hollow = "hollow: disturbed by other programs, at least this fast" if disturbed else ""
    columns = max(1, min(len(found), int(figure.get_figwidth() / 1.3)))
    note = ". ".join(filter(None, (sentence, hollow)))
    if handles:
        title = {"title": note, "title_fontsize": 7} if note else {}
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, **title)


# ---- rates


def rates(summaries: Sequence[Summary], title: str, width: float) -> Any:
    """Bars of the rate of each library with its 95 % interval, by problem; one axis per operation.

    A hollow bar is a disturbed time: its rate is a lower bound.
    """
    every = [ranking for ranking in rankings(summaries) if ranking.ranked]
    shown = every[:MOST_ROWS]
    ops: dict[str, list[LibraryRanking]] = {}
    for ranking in shown:
        ops.setdefault(ranking.ranked[0].record["op"], []).append(ranking)
    libraries = list(dict.fromkeys(s.library_title for ranking in shown for s in ranking.ranked))
    colors = {name: COLORS[i % len(COLORS)] for i, name in enumerate(libraries)}
    bars = [sum(1 + len(r.ranked) for r in found) for found in ops.values()]
    with _drawing() as figure_class:
        from matplotlib.patches import Patch

        height = 0.16 * sum(bars) + 0.55 * len(ops) + 0.7
        figure = figure_class(figsize=(width, height), layout="constrained")
        grid = figure.subplots(len(ops), 1, squeeze=False, gridspec_kw={"height_ratios": bars})
        for (op, found), axes in zip(ops.items(), grid[:, 0], strict=True):
            _draw_rates(axes, op, found, colors)
        figure.suptitle(_label(title), x=0.01, ha="left")
        sentence = f"{len(shown)} of {len(every)} problems" if len(shown) < len(every) else ""
        entries = [(Patch(color=color), _label(name)) for name, color in colors.items()]
        _legend(figure, any(s.is_disturbed for r in shown for s in r.ranked), sentence, entries)
    return figure


def _draw_rates(axes: Any, op: str, found: Sequence[LibraryRanking], colors: Mapping[str, str]) -> None:
    heading, value_of = rate_of([r.ranked[0] for r in found])
    firsts = [r.ranked[0] for r in found]
    differing = differing_places(firsts)
    at, ticks, labels = 0.0, list[float](), list[str]()
    for ranking in found:
        ticks.append(at + (len(ranking.ranked) - 1) / 2)
        labels.append(_problem(ranking.ranked[0], differing))
        for s in ranking.ranked:
            value = value_of(s)
            if value is not None:
                color = colors[s.library_title]
                fill = "none" if s.is_disturbed else color
                linestyle = "--" if s.is_disturbed else "-"
                axes.barh(at, value, 0.85, color=fill, edgecolor=color, linestyle=linestyle)
                e, end = s.estimate, value
                if e and e.low_s and e.high_s:
                    # A rate is work over time, so the ends of the interval change places.
                    low, end = value * s.time_s / e.high_s, value * s.time_s / e.low_s
                    axes.plot([low, end], [at, at], color="black", linewidth=0.8, marker="|", markersize=4)
                text = f"{'≥ ' if s.is_disturbed else ''}{units.significant(value)}"
                axes.annotate(text, (end, at), (3, 0), "data", "offset points", va="center", fontsize=7)
            at += 1
        at += 1
    axes.set_yticks(ticks, labels)
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.set_ylim(at - 1.3, -0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(f"{_label(op)}: {_flop_unit(heading, {s.record['precision'] for s in firsts})}")


def _problem(s: Summary, differing: Sequence[str]) -> str:
    places = [f"{name} {value}" for name, value in place_cells(s, differing).items()]
    return ", ".join([_label(s.problem_title), *map(_label, (s.record["precision"], *places))])


def _case(s: Summary, is_one_op: bool) -> str:
    text = f"{_problem(s, ())}, {_label(s.library_title)}"
    return text if is_one_op else f"{_label(s.record['op'])} {text}"


# ---- ratios


def ratios(cases: Sequence[ComparedCase], names: tuple[str, str], title: str | None, width: float) -> Any:
    """How much faster the second file is, by case with its 95 % interval, the slowest first; None without a case.

    Ratios of disturbed times are left out, and the figure says how many.
    """
    trusted = sorted((c for c in cases if not c.is_disturbed), key=lambda c: -c.ratio)
    if not trusted:
        return None
    is_named, is_one_op = len(trusted) <= MOST_ROWS, len({c.b.record["op"] for c in trusted}) == 1
    with _drawing() as figure_class:
        height = 0.16 * len(trusted) + 1.1 if is_named else 0.62 * width
        figure = figure_class(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        furthest = 1.0
        for verdict, color in VERDICT_COLORS.items():
            chosen = [(i, c) for i, c in enumerate(trusted) if c.verdict == verdict]
            for i, c in chosen:
                interval = c.interval
                if interval is not None:
                    low, high = interval
                    axes.plot([1 / high, 1 / low], [i, i], color=color, linewidth=1, zorder=1)
                    furthest = max(furthest, high, 1 / low)
                furthest = max(furthest, c.ratio, 1 / c.ratio)
            if chosen:
                marker = MARKERS[list(VERDICT_COLORS).index(verdict)]
                xs, ys = [1 / c.ratio for _, c in chosen], [i for i, _ in chosen]
                axes.scatter(xs, ys, 16, color=color, marker=marker, label=f"{verdict}: {len(chosen)}", zorder=2)
        axes.axvline(1, color="#555555", linewidth=0.8, zorder=0)
        axes.set_xscale("log")
        _speed_ticks(axes, furthest)
        if is_named:
            axes.set_yticks(range(len(trusted)), [_case(c.b, is_one_op) for c in trusted])
        else:
            axes.set_ylabel("cases, the slowest first")
            axes.set_yticks([])
        axes.set_ylim(len(trusted), -1)
        axes.spines[["top", "right"]].set_visible(False)
        first, second = map(_label, names)
        axes.set_title(_label(title) if title else f"{second} compared with {first}", loc="left")
        left_out = len(cases) - len(trusted)
        _legend(
            figure, False, f"left out, as other programs disturbed them: {count(left_out, 'case')}" * (left_out > 0)
        )
    return figure


def _speed_ticks(axes: Any, furthest: float) -> None:
    """Speed in words, with the same room for faster and slower."""
    from matplotlib.ticker import NullFormatter, NullLocator

    most = max(TICKS[0], furthest * 1.05)
    # The factors that are nearest to the ends and to the middle of each half.
    factors = sorted({min(TICKS, key=lambda f: abs(math.log(f) - share * math.log(most))) for share in (0.45, 0.9)})
    texts = [f"{factor:g}×" if factor > units.MOST_PERCENT else units.percent(factor - 1) for factor in factors]
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(
        [*(1 / factor for factor in factors), 1.0, *factors],
        [*(f"{text} slower" for text in texts), "as fast", *(f"{text} faster" for text in texts)],
    )
    most = max(most, factors[-1])
    axes.set_xlim(1 / most, most)
