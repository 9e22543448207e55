"""Results that the original DeepBench published from 2016 to 2019: 10,729 times in 18 workbooks of 14 machines.

Each is the mean of consecutive calls, mostly in whole microseconds, of answers that were not checked. Rates are
computed from the times with the FLOP counts of our own results. Where a sheet has a wrong rate, both are available.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any, cast

from deepbench.core.case import Case, read_field
from deepbench.core.collective import CollectiveOp
from deepbench.core.errors import BadInput, shorten
from deepbench.core.op import find_op
from deepbench.core.precision import find_precision
from deepbench.core.problem import make_problem
from deepbench.results.summary import Summary
from deepbench.results.work import Work

# Their precisions, and those of ours that multiply as many bits.
PRECISIONS = {
    "float32": ("f32",),
    "float16_mixed": ("f16", "bf16", "f16f16"),
    "float16_storage": ("f16", "bf16", "f16f16"),
    "int8": ("i8", "i8u8"),
}

# The direction of rows that are sums of others.
TOTAL = "total"

# A published rate that differs more than this from the rate of its time is wrong, not rounded.
WRONG_RATE = 0.02

# Names of software in the sheets, in the order in which they are shown.
SOFTWARE = {
    **{"cuda": "CUDA", "cudnn": "cuDNN", "rocm": "ROCm", "miopen": "MIOpen", "mkl": "MKL", "libxsmm": "LIBXSMM"},
    **{"mlsl": "MLSL", "eigen": "Eigen", "gemmlowp": "gemmlowp", "arm_compute_library": "ARM Compute Library"},
}


@dataclass(frozen=True)
class Sheet:
    """How the results of a machine and a suite were measured, as their workbook states it."""

    machine: str
    suite: str
    vendor: str
    facts: dict[str, str]
    """The other cells that are not empty, by name."""

    @property
    def year(self) -> str:
        """The year of the last change."""
        return self.facts["last_changed"][:4]

    @property
    def software(self) -> str:
        """Names and versions such as `CUDA 8.0.88, cuDNN 6.0.20`, or only names of libraries."""
        known = [(title, self.facts[name]) for name, title in SOFTWARE.items() if name in self.facts]
        versions = [f"{title} {version.removeprefix(title).strip()}" for title, version in known]
        return ", ".join(versions) or self.facts["libraries"]


@dataclass(frozen=True)
class Result:
    """One published time."""

    op: str
    machine: str
    suite: str
    row: int
    """The row of the suite."""
    problem: str
    """The sizes as in the text of a case. Where the sheet lists other sizes than were run: those that were run."""
    direction: str
    """As in a case, or `total` for the sum of the others."""
    precision: str
    """One of float32, float16_mixed, float16_storage and int8."""
    time_s: float
    published_flop_per_s: float | None
    published_bytes_per_s: float | None
    """For an all-reduce: ranks × bytes over the time."""
    how: str
    """The algorithm or implementation; empty if the sheet does not state it."""
    padded: bool
    """Whether the problem was padded. Rates count the unpadded problem."""
    dense_time_s: float | None
    """For a sparse product: the time of the dense product of its shape."""
    note: str
    """Known errors and doubts."""
    sheet: str
    sheet_row: int
    """The sheet of the workbook, and the row in it."""

    @cached_property
    def values(self) -> Any:
        """The sizes as an object of the operation."""
        op = find_op(self.op)
        words = (word.partition("=") for word in self.problem.split())
        return make_problem(op, {name: read_field(op, name, value) for name, _, value in words})

    @property
    def settings(self) -> dict[str, str]:
        """Our settings for the same work: a layer in training keeps what its backward pass needs."""
        trains = self.op == "recurrent" and self.direction == "forward" and self.suite == "deepbench/train"
        return {"mode": "training"} if trains else {}

    @property
    def words(self) -> list[str]:
        """The direction unless forward, and the settings, as in the text of a case."""
        extra = [] if self.direction == "forward" else [self.direction]
        return [*extra, *(f"{n}={v}" for n, v in self.settings.items())]

    @property
    def title(self) -> str:
        """The problem as tables show it."""
        return " ".join([find_op(self.op).title(self.values), *self.words])

    @property
    def flop_per_s(self) -> float | None:
        """FLOP per second; None for an all-reduce and for a total."""
        op = find_op(self.op)
        if self.direction == TOTAL or op.is_group:
            return None
        precision = find_precision(PRECISIONS[self.precision][0])
        flop = op.flop(Case(self.op, self.values, self.direction, precision, "reference", 1))
        return flop / self.time_s if flop else None

    @property
    def bus_bytes_per_s(self) -> float | None:
        """Bus bandwidth of an all-reduce as nccl-tests defines it; None for other operations."""
        op = find_op(self.op)
        if not isinstance(op, CollectiveOp):
            return None
        return float(4 * self.values.n / self.time_s * op.bus_factor(self.values))

    @property
    def wrong_rate(self) -> bool:
        """Whether the published rate contradicts the time. Rates of recurrent layers leave out some work on purpose."""
        if self.flop_per_s is None or self.published_flop_per_s is None or self.op == "recurrent":
            return False
        return abs(self.published_flop_per_s / self.flop_per_s - 1) > WRONG_RATE


@cache
def sheets() -> tuple[Sheet, ...]:
    """All workbooks."""
    return tuple(
        Sheet(row.pop("machine"), row.pop("suite"), row.pop("vendor"), {n: v for n, v in row.items() if v})
        for row in _rows("machines.csv")
    )


@cache
def results() -> tuple[Result, ...]:
    """All published times, in the order of the sheets."""
    texts = ("op", "machine", "suite", "problem", "direction", "precision", "how", "note", "sheet")
    return tuple(
        Result(
            **{name: cast(Any, r[name]) for name in texts},
            row=int(r["row"]),
            time_s=float(r["time_ms"]) / 1e3,
            published_flop_per_s=float(r["published_tflops"]) * 1e12 if r["published_tflops"] else None,
            published_bytes_per_s=float(r["published_gbytes_per_s"]) * 1e9 if r["published_gbytes_per_s"] else None,
            padded=r["padded"] == "1",
            dense_time_s=float(r["dense_time_ms"]) / 1e3 if r["dense_time_ms"] else None,
            sheet_row=int(r["sheet_row"]),
        )
        for r in _rows("results.csv")
    )


def all_reduces() -> list[Result]:
    """The published times of all-reduce."""
    return [r for r in results() if r.op == "all_reduce"]


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("deepbench").joinpath("results", "published", name).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def machines() -> list[str]:
    """Names of machines, the newest first."""
    newest = {s.machine: s.facts["last_changed"] for s in sorted(sheets(), key=lambda s: s.facts["last_changed"])}
    return sorted(newest, key=lambda name: (newest[name], name), reverse=True)


def find(text: str) -> str:
    """The machine whose name contains this text, ignoring case: `V100`, `xeon phi`. `BadInput` for none or several."""
    known, wanted = machines(), _plain(text)
    exact = [name for name in known if _plain(name) == wanted]
    # The end of a name is preferred, because TitanXp is not TitanX Pascal.
    ends = [name for name in known if wanted and _plain(name).endswith(wanted)]
    names = exact or ends or [name for name in known if wanted and wanted in _plain(name)]
    if len(names) != 1:
        reason = "is not a published machine" if not names else f"matches {', '.join(names)}"
        raise BadInput(f"{shorten(text)!r} {reason}; see deepbench published list")
    return names[0]


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


def of_machine(machine: str) -> list[Result]:
    """The results of a machine. Both gradients of a recurrent layer also appear as their sum, `backward`."""
    published = [r for r in results() if r.machine == machine]
    layers: dict[tuple[str, str, str, str], dict[str, Result]] = {}
    for r in published:
        if r.op == "recurrent":
            layers.setdefault((r.suite, r.problem, r.precision, r.sheet), {})[r.direction] = r
    for by_direction in layers.values():
        if {"backward_data", "backward_weights"} <= set(by_direction):
            data, weights = by_direction["backward_data"], by_direction["backward_weights"]
            time_s, note = data.time_s + weights.time_s, "sum of both gradients"
            published.append(replace(data, direction="backward", time_s=time_s, published_flop_per_s=None, note=note))
    return published


@dataclass(frozen=True)
class Match:
    """A case of ours and the published result of the same work."""

    ours: Summary
    """The fastest library at default settings."""
    theirs: Result

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


def match(summaries: Sequence[Summary], machine: str) -> list[Match]:
    """Our fastest library for each work that the machine has a result of, in the order of our file.

    Settings must equal those of the original: the defaults, and `mode=training` for layers in training. Each of our
    16-bit precisions matches their only one, and so does each of our 8-bit ones; `best_matches` keeps the faster.
    """
    fastest: dict[Work, Summary] = {}
    for s in summaries:
        work = s.work.without("device", "threads")
        if s.is_ranked and (work not in fastest or s.time_s < fastest[work].time_s):
            fastest[work] = s
    published: dict[Work, Result] = {}
    for r in of_machine(machine):
        problem = tuple(r.values.text.split())
        settings = tuple(f"{name}={value}" for name, value in r.settings.items())
        for precision in PRECISIONS[r.precision]:
            work = Work(r.op, problem, r.direction, precision, None, None, settings)
            # Two suites list some problems twice. The original kept the best number, so we take the faster one.
            if work not in published or r.time_s < published[work].time_s:
                published[work] = r
    return [Match(s, published[work]) for work, s in fastest.items() if work in published]


def best_matches(matches: Sequence[Match]) -> list[Match]:
    """Each published result once, with the faster of our cases: f16 and bf16 match the same 16-bit result."""
    best: dict[int, Match] = {}
    for m in matches:
        other = best.get(id(m.theirs))
        if other is None or m.ratio > other.ratio:
            best[id(m.theirs)] = m
    return list(best.values())


def geometric_mean(matches: Sequence[Match]) -> float | None:
    """The geometric mean of the ratios whose time of ours is not disturbed; None without any."""
    ratios = [m.ratio for m in matches if not m.ours.is_disturbed]
    return statistics.geometric_mean(ratios) if ratios else None


@dataclass(frozen=True)
class Caveat:
    """A known weakness of the original's programs. It applies to results of these kinds; None means all."""

    text: str
    op: str | None = None
    precisions: tuple[str, ...] | None = None
    vendors: tuple[str, ...] | None = None
    cell: str | None = None
    """The cell of a recurrent layer."""

    def applies(self, r: Result, vendor: str) -> bool:
        """Whether it applies to this result."""
        return (
            self.op in (None, r.op)
            and (self.precisions is None or r.precision in self.precisions)
            and (self.vendors is None or vendor in self.vendors)
            and self.cell in (None, r.values.values.get("cell"))
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
    suites = {m.theirs.suite for m in matches}
    workbooks = [s for s in sheets() if s.machine == machine]
    lines = [f"{s.machine}: {s.software}, {s.year} ({s.suite})" for s in workbooks if s.suite in suites]
    precisions = {(m.ours.record["precision"], m.theirs.precision) for m in matches} - {("f32", "float32")}
    lines += [f"precision: ours {ours}, published {theirs}" for ours, theirs in sorted(precisions)]
    used = [m.theirs for m in best_matches(matches)]
    lines += [caveat.text for caveat in CAVEATS if any(caveat.applies(r, workbooks[0].vendor) for r in used)]
    if padded := sum(r.padded for r in used):
        lines.append(f"padded problems among the published ones: {padded}; their rates count the unpadded problem")
    if short := sum(r.time_s < 50e-6 for r in used):
        lines.append(f"published times below 50 µs, where one microsecond is over 2 %: {short}")
    if with_notes := [r.note for r in used if r.note]:
        lines.append(f"published results with a note: {len(with_notes)}, such as: {with_notes[0]}")
    return lines
