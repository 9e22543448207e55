"""What the original DeepBench published (2016–2019): 18 workbooks of 14 machines, 10,729 numbers, and ours beside them.

A published number is the mean of calls made back to back, mostly in whole microseconds, of answers that nobody checked.
Rates are worked out anew from the times, by the very count of FLOP that our own results have; where the sheet's own
rate was wrong, both are here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from math import exp, log
from typing import Any

from deepbench.core.case import Case, known_settings, read_field
from deepbench.core.collective import CollectiveOp
from deepbench.core.errors import BadInput, shorten
from deepbench.core.op import find_op
from deepbench.core.precision import find_precision
from deepbench.core.problem import make_problem
from deepbench.results.summary import Summary

# Their precisions, and ours that do the same work: what is multiplied has as many bits.
PRECISIONS = {
    "float32": ("f32",),
    "float16_mixed": ("f16", "bf16", "f16f16"),
    "float16_storage": ("f16", "bf16", "f16f16"),
    "int8": ("i8", "i8u8"),
}

# Rows that are sums of others.
TOTAL = "total"

# A published rate further from the one of its time than this was worked out wrongly, not rounded.
WRONG_RATE = 0.02

# What the sheets say of software, newest names first.
SOFTWARE = {
    **{"cuda": "CUDA", "cudnn": "cuDNN", "rocm": "ROCm", "miopen": "MIOpen", "mkl": "MKL", "libxsmm": "LIBXSMM"},
    **{"mlsl": "MLSL", "eigen": "Eigen", "gemmlowp": "gemmlowp", "arm_compute_library": "ARM Compute Library"},
}


@dataclass(frozen=True)
class Sheet:
    """What a workbook says of how it was measured: a machine has one a suite."""

    machine: str
    suite: str
    vendor: str
    facts: dict[str, str]
    """Every other cell that is filled, by its name."""

    @property
    def year(self) -> str:
        """When it was last changed."""
        return self.facts["last_changed"][:4]

    @property
    def software(self) -> str:
        """`CUDA 8.0.88, cuDNN 6.0.20`; else the names of the libraries."""
        told = [
            f"{title} {self.facts[name].removeprefix(title).strip()}"
            for name, title in SOFTWARE.items()
            if name in self.facts
        ]
        return ", ".join(told) or self.facts["libraries"]


@dataclass(frozen=True)
class Result:
    """One published number."""

    op: str
    machine: str
    suite: str
    row: int
    """Of the suite."""
    problem: str
    """As a case's text has it: what was run, where the sheet lists something else."""
    direction: str
    """`total` is the sum of the others that the sheet shows."""
    precision: str
    """The original's word: float32, float16_mixed, float16_storage, int8."""
    time_s: float
    published_flop_per_s: float | None
    published_bytes_per_s: float | None
    """Of an all-reduce: ranks × bytes over the time."""
    how: str
    """Algorithm or implementation where the sheet says it, else empty."""
    padded: bool
    """Whether more was computed than the problem asks for; the rate counts the problem."""
    dense_time_s: float | None
    """Of a sparse product: the dense one of its shape."""
    note: str
    """What is known to be wrong or doubtful."""
    sheet: str
    sheet_row: int
    """Where in the workbook."""

    @cached_property
    def values(self) -> Any:
        """The problem, as its op has it."""
        op = find_op(self.op)
        words = (word.partition("=") for word in self.problem.split())
        return make_problem(op, {name: read_field(op, name, value) for name, _, value in words})

    @property
    def settings(self) -> dict[str, str]:
        """Ours that do the same work, where they are not the default: training keeps what its backward pass needs."""
        trains = self.op == "recurrent" and self.direction == "forward" and self.suite == "deepbench/train"
        return {"mode": "training"} if trains else {}

    @property
    def words(self) -> list[str]:
        """Direction and settings that are not the default, as a case's text has them."""
        extra = [] if self.direction == "forward" else [self.direction]
        return [*extra, *(f"{n}={v}" for n, v in self.settings.items())]

    @property
    def title(self) -> str:
        """The problem for people."""
        return " ".join([find_op(self.op).title(self.values), *self.words])

    @property
    def flop_per_s(self) -> float | None:
        """From the time, and the count of FLOP that our own results have; None for an all-reduce and a total."""
        op = find_op(self.op)
        if self.direction == TOTAL or op.is_group:
            return None
        own = find_precision(PRECISIONS[self.precision][0])
        flop = op.flop(Case(self.op, self.values, self.direction, own, "reference", 1))
        return flop / self.time_s if flop else None

    @property
    def bus_bytes_per_s(self) -> float | None:
        """Of an all-reduce: as nccl-tests counts it."""
        op = find_op(self.op)
        if not isinstance(op, CollectiveOp):
            return None
        return float(4 * self.values.n / self.time_s * op.bus_factor(self.values))

    @property
    def wrong_rate(self) -> bool:
        """Whether the sheet's own rate is not that of its time. Recurrent rates left a little work out on purpose."""
        mine, theirs = self.flop_per_s, self.published_flop_per_s
        if mine is None or theirs is None or self.op == "recurrent":
            return False
        return abs(theirs / mine - 1) > WRONG_RATE


@cache
def sheets() -> tuple[Sheet, ...]:
    """Every workbook."""
    return tuple(
        Sheet(row.pop("machine"), row.pop("suite"), row.pop("vendor"), {n: v for n, v in row.items() if v})
        for row in _rows("machines.csv")
    )


@cache
def results() -> tuple[Result, ...]:
    """Every number, in the order of the sheets."""
    return tuple(
        Result(
            op=r["op"],
            machine=r["machine"],
            suite=r["suite"],
            row=int(r["row"]),
            problem=r["problem"],
            direction=r["direction"],
            precision=r["precision"],
            time_s=float(r["time_ms"]) / 1e3,
            published_flop_per_s=float(r["published_tflops"]) * 1e12 if r["published_tflops"] else None,
            published_bytes_per_s=float(r["published_gbytes_per_s"]) * 1e9 if r["published_gbytes_per_s"] else None,
            how=r["how"],
            padded=r["padded"] == "1",
            dense_time_s=float(r["dense_time_ms"]) / 1e3 if r["dense_time_ms"] else None,
            note=r["note"],
            sheet=r["sheet"],
            sheet_row=int(r["sheet_row"]),
        )
        for r in _rows("results.csv")
    )


def all_reduces() -> list[Result]:
    """The times of all-reduce."""
    return [r for r in results() if r.op == "all_reduce"]


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("deepbench").joinpath("results", "published", name).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def machines() -> list[str]:
    """Names, the newest first."""
    newest = {s.machine: s.facts["last_changed"] for s in sorted(sheets(), key=lambda s: s.facts["last_changed"])}
    return sorted(newest, key=lambda name: (newest[name], name), reverse=True)


def find(text: str) -> str:
    """The machine that this names, in part and in any case: `V100`, `xeon phi`. `BadInput` for none or several."""
    known, wanted = machines(), _plain(text)
    exact = [name for name in known if _plain(name) == wanted]
    # What a name ends in comes before what is in it: TitanXp is no TitanX Pascal.
    ends = [name for name in known if wanted and _plain(name).endswith(wanted)]
    found = exact or ends or [name for name in known if wanted and wanted in _plain(name)]
    if len(found) != 1:
        what = "is no published machine" if not found else f"may be {', '.join(found)}"
        raise BadInput(f"{shorten(text)!r} {what}; see deepbench reference list")
    return found[0]


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


def of_machine(machine: str) -> list[Result]:
    """Its results, and for recurrent layers and their two gradients the sum as `backward`, which our libraries have."""
    found = [r for r in results() if r.machine == machine]
    parts: dict[tuple[str, str, str, str], dict[str, Result]] = {}
    for r in found:
        if r.op == "recurrent":
            parts.setdefault((r.suite, r.problem, r.precision, r.sheet), {})[r.direction] = r
    for both in parts.values():
        if {"backward_data", "backward_weights"} <= set(both):
            one, other = both["backward_data"], both["backward_weights"]
            found.append(
                Result(
                    **{
                        **{n: getattr(one, n) for n in one.__dataclass_fields__},
                        "direction": "backward",
                        "time_s": one.time_s + other.time_s,
                        "published_flop_per_s": None,
                        "note": "sum of both gradients",
                    }
                )
            )
    return found


@dataclass(frozen=True)
class Match:
    """A case of ours and the published result of the same work."""

    ours: Summary
    """The fastest library at default settings."""
    theirs: Result

    @property
    def ratio(self) -> float:
        """Their time over ours, as `compare` has it: above 1 they are slower."""
        assert self.ours.estimate is not None, "only measured cases are matched"
        return self.theirs.time_s / self.ours.estimate.time_s

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the ratio, by our time alone: nobody knows that of theirs."""
        e = self.ours.estimate
        if e is None or e.low_s is None or e.high_s is None:
            return None
        return self.theirs.time_s / e.high_s, self.theirs.time_s / e.low_s


def match(summaries: Sequence[Summary], machine: str) -> list[Match]:
    """Our fastest of each problem, direction and precision beside the published one, in the order of our file.

    Settings must be theirs: the default and, for layers in training, `mode=training`; only those do not matter that are
    another way to the same work. Each of our 16-bit precisions meets their one, and each of our 8-bit ones
    (`best_matches` keeps the faster).
    """
    fastest: dict[_Work, Summary] = {}
    for s in summaries:
        if s.estimate is None or not s.is_ranked:
            continue
        key = _work(s)
        known = fastest.get(key)
        if known is None or known.estimate is None or s.estimate.time_s < known.estimate.time_s:
            fastest[key] = s
    theirs: dict[_Work, Result] = {}
    for r in of_machine(machine):
        for own in PRECISIONS[r.precision]:
            # Two suites list some problems alike; the faster number, as the original took the best.
            key = r.op, repr(r.values.values), r.direction, own, tuple(sorted(r.settings.items()))
            known_result = theirs.get(key)
            if known_result is None or r.time_s < known_result.time_s:
                theirs[key] = r
    return [Match(s, theirs[key]) for key, s in fastest.items() if key in theirs]


# Op, problem, direction, our precision, and the settings that are not the default.
_Work = tuple[str, str, str, str, tuple[tuple[str, str], ...]]


def _work(s: Summary) -> _Work:
    r = s.record
    try:
        op = find_op(r["op"])
        values = make_problem(op, r["problem"]).values
    except BadInput:  # none of theirs
        return r["op"], repr(r["problem"]), r["direction"], r["precision"], ()
    known = known_settings(op.name)
    said = {n: v for n, v in r["settings"].items() if n not in op.variants and (n not in known or v != known[n][0])}
    return r["op"], repr(values), r["direction"], r["precision"], tuple(sorted(said.items()))


def best_matches(found: Sequence[Match]) -> list[Match]:
    """Each of theirs once, beside the faster of ours: f16 and bf16 both meet one 16-bit number."""
    best: dict[int, Match] = {}
    for b in found:
        known = best.get(id(b.theirs))
        if known is None or b.ratio > known.ratio:
            best[id(b.theirs)] = b
    return list(best.values())


def geometric_mean(found: Sequence[Match]) -> float | None:
    """Of the ratios; None for none."""
    return exp(sum(log(b.ratio) for b in found) / len(found)) if found else None


@dataclass(frozen=True)
class Caveat:
    """What is known of the original's programs; it holds for results of these kinds, None for all."""

    text: str
    op: str | None = None
    precisions: tuple[str, ...] | None = None
    vendors: tuple[str, ...] | None = None
    cell: str | None = None
    """Of a recurrent layer."""

    def holds(self, r: Result, vendor: str) -> bool:
        """Whether it is about this result."""
        return (
            self.op in (None, r.op)
            and (self.precisions is None or r.precision in self.precisions)
            and (self.vendors is None or vendor in self.vendors)
            and self.cell in (None, r.values.values.get("cell"))
        )


CAVEATS = (
    Caveat("theirs are means of calls made back to back, in whole microseconds mostly, and no answer was checked"),
    Caveat(
        "their operands of 16 and 8 bits were zeros, up to 15 % too fast on a GPU",
        precisions=("float16_mixed", "float16_storage", "int8"),
        vendors=("NVIDIA", "AMD"),
    ),
    Caveat(
        "their 16-bit products were added up in 16 bits, though the sheets say 32",
        "gemm",
        precisions=("float16_mixed",),
    ),
    Caveat("their vanilla layers overflow to infinity", "recurrent", cell="vanilla"),
    Caveat("their gradients are those of the data alone", "recurrent", vendors=("AMD",)),
    Caveat(
        "their sparse products overwrite the result and ours add to it; rates of both count the non-zeros",
        "sparse_gemm",
    ),
)


def differences(found: Sequence[Match], machine: str) -> list[str]:
    """What differs between ours and theirs, to be read before any ratio."""
    used = {b.theirs.suite for b in found}
    lines = [
        f"{s.machine}: {s.software}, {s.year} ({s.suite})" for s in sheets() if s.machine == machine and s.suite in used
    ]
    kinds = sorted({(b.ours.record["precision"], b.theirs.precision) for b in found})
    lines += [
        f"precision: ours {ours}, theirs {theirs}" for ours, theirs in kinds if (ours, theirs) != ("f32", "float32")
    ]
    vendor = next(s.vendor for s in sheets() if s.machine == machine)
    theirs = [b.theirs for b in best_matches(found)]
    lines += [caveat.text for caveat in CAVEATS if any(caveat.holds(r, vendor) for r in theirs)]
    padded = sum(r.padded for r in theirs)
    if padded:
        lines.append(f"{padded} of theirs were padded to sizes that the card likes; rates count the problem without it")
    short = sum(r.time_s < 50e-6 for r in theirs)
    if short:
        lines.append(f"{short} of theirs are below 50 µs, where a whole microsecond is over 2 %")
    doubtful = [r for r in theirs if r.note]
    if doubtful:
        lines.append(f"{len(doubtful)} of theirs have a note, such as: {doubtful[0].note}")
    return lines
