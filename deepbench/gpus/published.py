"""Published kernels of a GPU: chosen rows, and our results next to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from deepbench.core.aliases import did_you_mean, refuse_unknown
from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput, shorten
from deepbench.core.words import join
from deepbench.gpus import times
from deepbench.gpus.families import attention, collectives, families, products
from deepbench.gpus.families.family import Family
from deepbench.gpus.table import KernelTable, table
from deepbench.results.summary import Summary

# Names that people use for families: our operations.
ALIASES = {
    "gemm": "linear",
    "all_reduce": "collectives",
    "all_gather": "collectives",
    "reduce_scatter": "collectives",
    "all_to_all": "collectives",
    "grouped_gemm": "experts",
    "moe": "experts",
}


@dataclass(frozen=True)
class Chosen:
    """Rows of a table that somebody asked for."""

    rows: KernelTable
    total: int
    """How many rows the table has."""
    order: list[int]
    """The rows to show, in their order."""


def family_named(name: str, machine: str) -> Family:
    """The family with this name; `BadInput` lists those that a GPU has."""
    found = families().get(ALIASES.get(name, name))
    if found is None:
        known = [*families(), *ALIASES]
        raise BadInput(
            f"{machine} has no published times of {shorten(name)!r}; there are {', '.join(families())}"
            f"{did_you_mean(name, known)}"
        )
    return found


def choose(
    machine: str,
    op: str,
    precision: str | None,
    framework: str | None,
    sizes: Mapping[str, str],
    every_version: bool = False,
) -> Chosen:
    """Rows of a family on a GPU. `BadInput` where nothing is as wanted, with what there is."""
    import numpy as np

    family = family_named(op, machine)
    rows = table(machine, family.name, every_version)
    if not len(rows):
        raise BadInput(f"{machine}: none of the {rows.unmapped} rows of {family.title} is like a kernel of ours")
    names = [name for name in family.keys if name not in family.categories]
    refuse_unknown(sizes, names, f"{family.title} have no size", "they have")
    kept = np.ones(len(rows), bool)
    for name, text in sizes.items():
        if not (text.isascii() and text.isdecimal() and len(text) < 16):
            raise BadInput(f"{name} must be a whole number, found {shorten(text)!r}")
        kept &= rows.kernels[name] == int(text)
        if not kept.any():
            values = np.unique(rows.kernels[name])
            listed = ", ".join(map(str, values[:: max(1, len(values) // 12)].tolist()))
            raise BadInput(f"{machine} has no such row with {name}={text}; {name} is, for example, {listed}")
    if framework is not None:
        known = [source.framework for source in rows.sources]
        if framework not in known:
            raise BadInput(
                f"{machine} has no {family.title} of {shorten(framework)!r}; "
                f"there are {', '.join(dict.fromkeys(known))}"
            )
        kept &= np.isin(rows.source, [i for i, name in enumerate(known) if name == framework])
    if precision is not None:
        categories = [rows.kernels[name] for name in family.categories] or [np.zeros(len(rows), np.int64)]
        _, first, index = np.unique(np.stack(categories), axis=1, return_index=True, return_inverse=True)
        index = index.ravel()
        texts = [family.precision_name({k: int(v[row]) for k, v in rows.kernels.items()}) for row in first]
        wanted = {"bf16": "bfloat16", "f8e4m3": "fp8"}.get(precision, precision)
        fitting = [i for i, text in enumerate(texts) if wanted in (text, text.partition(",")[0])]
        if not fitting:
            there_are = ", ".join(dict.fromkeys(text for text in texts if text)) or "none stated"
            raise BadInput(f"{machine} has no {family.title} in {shorten(precision)!r}; there are {there_are}")
        kept &= np.isin(index, fitting)
    chosen = np.flatnonzero(kept)
    if not len(chosen):
        raise BadInput(f"{machine} has no {family.title} with all of these words; leave one out")
    keys = [rows.kernels[name][chosen] for name in reversed(family.keys)]
    order = chosen[np.lexsort((rows.source[chosen], *keys))]
    return Chosen(rows, len(rows), order.tolist())


# ---- our results


@dataclass(frozen=True)
class Near:
    """A result of ours, and the same work in published tables."""

    ours: Summary
    family: str
    kernel: Mapping[str, int]
    by_framework: Mapping[str, float]
    """Seconds."""
    how: str
    """How the least certain of them is known."""
    interval: tuple[float, float]
    """From the fastest framework to the slowest, each with the error of interpolation."""
    remark: str | None = None

    @property
    def theirs_s(self) -> float:
        """The median of the frameworks."""
        return median(self.by_framework.values())

    @property
    def ratio(self) -> float:
        """Our time over theirs."""
        return self.ours.time_s / self.theirs_s

    @property
    def is_within(self) -> bool:
        """Whether our time lies between the fastest and the slowest framework, or within their errors."""
        return self.interval[0] <= self.ours.time_s <= self.interval[1]


# A result is unusual if it is so many times further from its published time than the others of its operation.
UNUSUAL = 1.5


def kernel_of(s: Summary) -> tuple[str, dict[str, int], str | None] | None:
    """The family and the kernel that do the same work as a result, and what differs; None where no table has it."""
    record = s.record
    case = parse_case(record["case"])
    if case.direction != "forward":
        return None
    p, precision = case.problem, case.precision.name
    remark = "f16 next to their bf16" if precision == "f16" else None
    if case.op in ("gemm", "linear") and not (case.op == "gemm" and (p.a_t or p.b_t)):
        block = case.settings.get("scales") == "block"
        name = {"bf16": "bfloat16", "f16": "bfloat16", "f8e4m3": "fp8_block" if block else "fp8", "nvfp4": "nvfp4"}
        if precision not in name:
            return None
        kind = name[precision]
        if case.op == "gemm" and (case.settings.get("beta"), case.settings.get("result")) != ("0", "narrow"):
            remark = join(filter(None, [remark, "ours adds to C, or stores 32 bits"]))
        if kind != "bfloat16":
            remark = join(filter(None, [remark, "theirs includes the conversion of the activations"]))
        return "linear", {"m": p.n, "n": p.m, "k": p.k, "type": products.TYPES.index(kind)}, remark
    if case.op == "attention" and precision in ("bf16", "f16") and p.mask == "causal" and not p.value_size:
        if p.page or p.lengths != "equal" or (p.queries not in (1, p.keys)):
            return None
        cache = attention.FP8 if case.settings.get("cache_type") == "f8e4m3" else attention.BF16
        sizes = ("batch", "heads", "kv_heads", "head_size", "queries", "keys", "window")
        kernel = {**{name: int(getattr(p, name)) for name in sizes}, "type": attention.BF16, "cache": cache}
        return ("attention_decode" if p.queries == 1 else "attention"), kernel, remark
    if case.op in collectives.OPS:
        size = int(p.n * {"f32": 4, "bf16": 2, "f16": 2}.get(precision, 1))
        ranks = int(p.ranks)
        return "collectives", {"op": collectives.OPS.index(case.op), "ranks": ranks, "bytes": size}, None
    return None


def nearest(summaries: Sequence[Summary], machine: str) -> list[Near]:
    """Our results whose work a GPU has published times of, or whose sizes lie between such times."""
    found: list[Near] = []
    asked: dict[str, list[tuple[Summary, dict[str, int], str | None]]] = {}
    for s in summaries:
        if s.is_ranked and (known := kernel_of(s)) is not None:
            asked.setdefault(known[0], []).append((s, known[1], known[2]))
    for name, wanted in asked.items():
        try:
            known_frameworks = times.frameworks(machine, name)
        except BadInput:
            continue
        arrays = times.as_arrays([kernel for _, kernel, _ in wanted], families()[name].keys)
        by_framework = {f: times.times(machine, name, arrays, f) for f in known_frameworks}
        for i, (s, kernel, remark) in enumerate(wanted):
            own = {f: t for f, t in by_framework.items() if t is not None and t.seconds[i] == t.seconds[i]}
            if own and all(int(t.how[i]) != times.MODELLED for t in own.values()):
                how = times.HOW[max(int(t.how[i]) for t in own.values())]
                each = {f: float(t.seconds[i]) for f, t in own.items()}
                ends = [_ends(t, i) for t in own.values()]
                interval = min(low for low, _ in ends), max(high for _, high in ends)
                found.append(Near(s, name, kernel, each, how, interval, remark))
    return found


def _ends(found: times.KernelTimes, i: int) -> tuple[float, float]:
    """A time of a row; of an interpolated time its interval."""
    if int(found.how[i]) == times.MEASURED:
        return float(found.seconds[i]), float(found.seconds[i])
    return float(found.low_s[i]), float(found.high_s[i])


def unusual(found: Sequence[Near]) -> list[bool]:
    """Whether each result is far from what others of its operation say: slower or faster than their median ratio."""
    middle: dict[tuple[str, str], float] = {}
    for key in {_kind(n) for n in found}:
        middle[key] = median(n.ratio for n in found if _kind(n) == key)
    counts = {key: sum(_kind(n) == key for n in found) for key in middle}
    return [
        counts[_kind(n)] >= 3 and not n.is_within and not 1 / UNUSUAL < n.ratio / middle[_kind(n)] < UNUSUAL
        for n in found
    ]


def _kind(n: Near) -> tuple[str, str]:
    return n.family, str(n.ours.record["precision"])
