"""The kernels of one step of a model on one GPU, as the tables have them, and their time.

The lines of a suite say what a model computes. Here each line becomes a kernel of a family of tables: the lines of a
layer of experts together are one kernel, and what no table has, such as a normalization, is an operator of which only
the bytes count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from deepbench.core.aliases import did_you_mean
from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput, shorten
from deepbench.gpus import times
from deepbench.gpus.families import attention, collectives, delta, experts, families, products
from deepbench.gpus.sheet import sheet
from deepbench.plan.models import Row
from deepbench.plan.suites import model_of

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ServedFormat:
    """In which types a server computes."""

    layers: str
    """Of fully connected layers, as tables name types. The router and the logits have 16 bits."""
    experts: str
    cache: str
    """Of keys and values: bfloat16 or fp8."""

    @property
    def text(self) -> str:
        """For tables."""
        return f"layers {self.layers}, experts {self.experts}, cache {self.cache}"


FORMATS = {
    "bf16": ServedFormat("bfloat16", "bfloat16", "bfloat16"),
    "fp8": ServedFormat("fp8", "fp8", "bfloat16"),
    "fp8_block": ServedFormat("fp8_block", "fp8_block", "bfloat16"),
    "nvfp4": ServedFormat("nvfp4", "nvfp4", "bfloat16"),
    "mxfp4": ServedFormat("bfloat16", "w4a16_mxfp4", "bfloat16"),
    "mxfp4_fp8": ServedFormat("bfloat16", "w4a8_mxfp4_mxfp8", "bfloat16"),
    "int4": ServedFormat("bfloat16", "int4_wo", "bfloat16"),
}

OTHER = "other operators"
"""The family of what no table has."""

# Lines of a layer of experts: together they are one kernel of the tables.
OF_EXPERTS = ("permute_tokens", "grouped_gemm")

# Which products of suites stay in 16 bits, by what stands behind their line.
IN_16_BITS = ("router", "logits")

# Lines of a gated delta net, and of experts that every token uses.
DELTA, SHARED = "gated delta net", "shared experts"

# How unequally tokens are routed: what tables have for a real router.
ROUTING = "power_law_1.01"


@dataclass(frozen=True)
class Part:
    """A kernel of a step, or an operator of which only the bytes are known."""

    family: str
    kernel: Mapping[str, int]
    count: int
    label: str
    bytes: float = 0.0


def format_named(name: str) -> ServedFormat:
    """The format with this name; `BadInput` lists the names."""
    if name not in FORMATS:
        raise BadInput(
            f"unknown format {shorten(name)!r} of a served model; choose one of {', '.join(FORMATS)}"
            f"{did_you_mean(name, FORMATS)}"
        )
    return FORMATS[name]


def format_of_server(name: str, framework: str, machine: str) -> ServedFormat:
    """In which types a server of a framework computes, with the format of this name.

    TensorRT-LLM keeps keys and values in 8 bits where its layers have 8 bits or less. It multiplies 8 bits with weights
    of 4 bits where the GPU has units for these.
    """
    if framework != "trtllm":
        return format_named(name)
    if name == "mxfp4" and "nvfp4" in sheet(machine).peak:
        name = "mxfp4_fp8"
    found = format_named(name)
    return replace(found, cache="fp8") if name in ("fp8", "fp8_block", "nvfp4") else found


@lru_cache(maxsize=4096)
def parts_of(suite: str, phase: str, parameters: tuple[tuple[str, int], ...], kind: ServedFormat) -> tuple[Part, ...]:
    """The kernels of a phase of a model on one GPU. `BadInput` for parameters that the suite refuses."""
    model = model_of(suite)
    _, chosen = model.chosen({"phase": phase, **{name: str(value) for name, value in parameters}})
    rows = model.rows(phase, chosen)
    return tuple(_parts(rows, chosen, kind))


def _parts(rows: Sequence[Row], chosen: Mapping[str, int], kind: ServedFormat) -> list[Part]:
    found: list[Part] = []
    routed: dict[str, int] = {}
    values = 0  # heads of values of a gated delta net
    for row in rows:
        v = {name: value for name, value in row.values.items() if isinstance(value, int)}
        if row.op == "top_k" and "router" in row.where:
            routed = {"tokens": v["rows"], "experts": v["columns"], "active": v["k"]}
        if row.op == "gemm" and "decay" in row.where:
            values = v["m"] // 2
        if row.op in ("gemm", "linear"):
            name = "bfloat16" if any(word in row.where for word in IN_16_BITS) else kind.layers
            kernel = {"m": v["n"], "n": v["m"], "k": v["k"], "type": products.TYPES.index(name)}
            found.append(Part("linear", kernel, row.count, row.where))
        elif row.op == "attention":
            found.append(_attention(v, kind, row))
        elif row.op == "batched_gemm" and {v["n"], v["k"]} == {128, 512}:
            kernel = {"tokens": v["m"], "heads": v["batch"], "after": int(v["k"] == 512), "type": attention.BF16}
            found.append(Part("latent_products", kernel, row.count, row.where))
        elif row.op == "grouped_gemm" and "up" in row.where:
            found.append(Part("experts", _experts(v, routed, chosen, kind), row.count, "experts"))
        elif row.op in OF_EXPERTS or (row.op == "elementwise" and row.where == "experts"):
            continue  # the table of experts includes them
        elif row.op == "conv" and DELTA in row.where:
            sizes = {"batch": v["n"], "length": v["w"] - 3, "value_heads": values, "decoding": int(v["w"] == 4)}
            sizes["key_heads"] = (v["c"] // delta.SIZE - values) // 2
            for part in (delta.CONVOLUTION, delta.RECURRENCE):
                found.append(Part("delta", {**sizes, "part": part}, row.count, row.where))
        elif row.op in collectives.OPS:
            elements = v["n"]
            kernel = {"op": collectives.OPS.index(row.op), "ranks": v["ranks"], "bytes": 2 * elements}
            found.append(Part("collectives", kernel, row.count, row.where))
        else:
            found.append(Part(OTHER, {}, row.count, row.where or row.op, _bytes_of(row)))
    return found


def _attention(v: Mapping[str, int], kind: ServedFormat, row: Row) -> Part:
    cache = attention.TYPES[kind.cache]
    sizes = {"batch": v["batch"], "heads": v["heads"], "queries": v["queries"], "keys": v["keys"], "cache": cache}
    is_decoding = v["queries"] == 1
    value_size = v.get("value_size", 0)
    if value_size == 512 and v["kv_heads"] == 1:
        return Part("latent_attention_decode", {**sizes, "type": attention.BF16}, row.count, row.where)
    if value_size == 128 and v["head_size"] == 192:
        return Part("latent_attention", {**sizes, "type": attention.BF16}, row.count, row.where)
    window = v.get("window", 0)
    kernel = {
        **sizes,
        "kv_heads": v["kv_heads"],
        "head_size": v["head_size"],
        "window": window if window < v["keys"] else 0,
        "type": attention.BF16,
    }
    return Part("attention_decode" if is_decoding else "attention", kernel, row.count, row.where)


def _experts(
    v: Mapping[str, int], routed: Mapping[str, int], chosen: Mapping[str, int], kind: ServedFormat
) -> dict[str, int]:
    tensor = chosen.get("expert_tensor", 1)
    return {
        **routed,
        "hidden": v["k"],
        "inner": v["m"] // 2 * tensor,
        "tensor": tensor,
        "expert_parallel": chosen.get("expert", 1),
        "type": experts.TYPES.index(kind.experts),
        "routing": experts.ROUTINGS.index(ROUTING),
    }


def _bytes_of(row: Row) -> float:
    """What an operator reads and writes, with numbers of 16 bits; 0 where we have no such operation."""
    sizes = " ".join(f"{name}={value}" for name, value in row.values.items())
    try:
        case = parse_case(f"{row.op} {sizes} {row.directions[0]} bf16 reference threads=1")
        return float(case.operation.traffic_bytes(case))
    except BadInput:
        return 0.0


# ---- memory


@dataclass(frozen=True)
class Held:
    """What a model takes of the memory of one GPU."""

    weights: float
    """Bytes of weights."""
    cached: float
    """Bytes of keys and values of one token of one sequence."""


@lru_cache(maxsize=4096)
def held(suite: str, division: tuple[tuple[str, int], ...], kind: ServedFormat) -> Held:
    """The memory of a GPU that serves its part of a model."""
    weights = cached = 0.0
    for part in parts_of(suite, "decode", (*division, ("batch", 1), ("context", 2048)), kind):
        k = part.kernel
        if part.family == "linear":
            weights += part.count * products.WEIGHT_BYTES[k["type"]] * k["n"] * k["k"]
        elif part.family == "experts":
            local = k["experts"] / k["expert_parallel"]
            size = 3 * k["hidden"] * k["inner"] / k["tensor"] * experts.WEIGHT_BYTES[k["type"]]
            weights += part.count * local * size
        elif part.family == "latent_products":
            weights += part.count * 2.0 * k["heads"] * 128 * 512
        elif part.family == "attention_decode" and not k["window"]:
            cached += part.count * 2 * attention.BYTES[k["cache"]] * k["kv_heads"] * k["head_size"]
        elif part.family == "latent_attention_decode":
            cached += part.count * attention.BYTES[k["cache"]] * 576
    model = model_of(suite)
    words, hidden = model.sizes.get("vocabulary", 0), model.sizes.get("hidden", 0)
    if isinstance(words, int) and isinstance(hidden, int) and not model.sizes.get("tied", 0):  # the logits have them
        weights += 2.0 * words * hidden / dict(division).get("tensor", 1)
    return Held(weights, cached)


# ---- times


@dataclass(frozen=True)
class StepTime:
    """The time of a step on one GPU, by kind of kernel. A kind without any time has NaN."""

    seconds: Mapping[str, float]
    low_s: float
    """The ends of a 95 % interval, where kernels are wrong independently of each other."""
    high_s: float
    calls: Mapping[str, int]
    """How many kernels the step has, by kind."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of the time by how it is known: measured, interpolated, modelled."""

    @property
    def total_s(self) -> float:
        """The sum of all kernels."""
        return sum(self.seconds.values())


# An operator that no table has: the start of a kernel, and its bytes at a share of the rate of the data sheet.
OTHER_S, OTHER_RATE = 2e-6, 0.7


def step_times(steps: Sequence[Sequence[Part]], machine: str, framework: str) -> list[StepTime]:
    """The times of steps on a GPU with a framework. Where it lacks a table, the median of the others stands for it."""
    import numpy as np

    flat = [(i, part) for i, step in enumerate(steps) for part in step]
    seconds, low, high = (np.full(len(flat), np.nan) for _ in range(3))
    how = np.full(len(flat), times.MODELLED)
    for name in dict.fromkeys(part.family for _, part in flat):
        rows = np.array([j for j, (_, part) in enumerate(flat) if part.family == name])
        if name == OTHER:
            sizes = np.array([flat[j][1].bytes for j in rows])
            seconds[rows] = OTHER_S + sizes / (OTHER_RATE * sheet(machine).bytes_per_s)
            low[rows], high[rows] = seconds[rows] / 2, seconds[rows] * 2
            continue
        kernels = times.as_arrays([flat[j][1].kernel for j in rows], families()[name].keys)
        found = _of_framework(machine, name, kernels, framework)
        seconds[rows], low[rows], high[rows], how[rows] = found.seconds, found.low_s, found.high_s, found.how
    ends = np.cumsum([len(step) for step in steps])
    found_steps = []
    for step, end in zip(steps, ends.tolist(), strict=True):
        own = slice(end - len(step), end)
        found_steps.append(_step_time(step, seconds[own], low[own], high[own], how[own]))
    return found_steps


def _step_time(step: Sequence[Part], seconds: Array, low: Array, high: Array, how: Array) -> StepTime:
    by_kind: dict[str, float] = {}
    by_how: dict[str, float] = {}
    calls: dict[str, int] = {}
    shared = lows = highs = 0.0
    for part, time_s, low_s, high_s, code in zip(step, seconds, low, high, how, strict=True):
        total = part.count * float(time_s)
        if SHARED in part.label:
            shared += total
        name = times.HOW[int(code)]
        by_kind[part.family] = by_kind.get(part.family, 0.0) + total
        by_how[name] = by_how.get(name, 0.0) + total
        calls[part.family] = calls.get(part.family, 0) + part.count
        lows += (part.count * float(time_s - low_s)) ** 2
        highs += (part.count * float(high_s - time_s)) ** 2
    # Servers compute the shared experts beside the others, so only the longer of both counts.
    hidden = min(shared, by_kind.get("experts", 0.0))
    if hidden > 0:
        by_kind["experts"] -= hidden
    whole = sum(by_kind.values())
    known = sum(by_how.values()) or 1.0
    shares = {name: value / known for name, value in by_how.items()}
    return StepTime(by_kind, max(0.0, whole - lows**0.5), whole + highs**0.5, calls, shares)


def _of_framework(machine: str, family: str, kernels: dict[str, Array], framework: str) -> times.KernelTimes:
    """Times with a framework; where it has none, the median of all others, which is a model of it."""
    import numpy as np

    count = len(next(iter(kernels.values())))
    try:
        known = times.frameworks(machine, family)
    except BadInput:
        known = []
    own = times.times(machine, family, kernels, framework) if framework in known else None
    if own is None:
        nothing = np.full(count, np.nan)
        own = times.KernelTimes(nothing, nothing.copy(), nothing.copy(), np.full(count, times.MODELLED))
    missing = np.flatnonzero(np.isnan(own.seconds))
    if len(missing):
        part = {name: values[missing] for name, values in kernels.items()}
        others = [times.times(machine, family, part, name) for name in known if name != framework]
        each = [other.seconds for other in others if other is not None]
        if each:
            rows = np.stack(each)
            known_by_any = ~np.isnan(rows).all(axis=0)
            middle = np.full(len(missing), np.nan)
            middle[known_by_any] = np.nanmedian(rows[:, known_by_any], axis=0)
            own.seconds[missing], own.how[missing] = middle, times.MODELLED
            own.low_s[missing], own.high_s[missing] = middle / 1.5, middle * 1.5
    return own
