"""Predicted servers: sentences and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deepbench.core import units
from deepbench.core.words import join
from deepbench.gpus.reporting.ranking import beyond_a_node, money
from deepbench.gpus.serving import server
from deepbench.gpus.serving.server import KINDS, PredictedServer
from deepbench.reporting.table import Cell, Column, Part, Strong, Table, number


def parts(
    found: Sequence[PredictedServer], prices: Mapping[str, float], left_out: Mapping[str, str] | None = None
) -> list[Part]:
    """What a person reads; the best first. `left_out` says why a GPU has no prediction."""
    first = found[0].setup
    head = (
        f"{first.suite}: {first.batch} requests at a time on each server, prompts of {first.prompt} and outputs of "
        f"{first.output} tokens; {join(list(dict.fromkeys(s.setup.format.text for s in found)), 'or')}"
    )
    measured = server.shipped().machines
    apart = list(dict.fromkeys(s.setup.machine for s in found if s.setup.machine not in measured))
    without = [f"No deployment on {join(apart)} was measured: the 95 % are those of other GPUs."] if apart else []
    without += beyond_a_node((s.setup.machine, s.setup.devices) for s in found)
    if len({s.setup.machine for s in found}) == len(found) > 1:
        without.append("The framework with the most tokens stands for each GPU; --framework names another.")
    without += [f"{name} is left out: {reason}" for name, reason in (left_out or {}).items()]
    shown: list[Part] = [[head, *_verdict(found, prices), *without], table(found, prices)]
    if len(found) == 1:
        shown.append(kinds(found[0]))
    return shown


def ordered(found: Sequence[PredictedServer], prices: Mapping[str, float]) -> list[PredictedServer]:
    """By cost where every GPU has a price, else by tokens per second and GPU; what does not fit comes last."""
    by_cost = all(s.setup.machine in prices for s in found)

    def key(s: PredictedServer) -> tuple[bool, float]:
        return not s.fits, s.cost(prices[s.setup.machine]) if by_cost else -s.tokens_per_s_and_device

    return sorted(found, key=key)


def _verdict(found: Sequence[PredictedServer], prices: Mapping[str, float]) -> list[str]:
    fitting = [s for s in found if s.fits]
    if len(fitting) < 2:
        return []
    best, others = fitting[0], fitting[1:]
    by_cost = all(s.setup.machine in prices for s in found)

    def ends(s: PredictedServer) -> tuple[float, float]:
        per_device = [value / s.setup.devices for value in s.tokens_interval]
        if not by_cost:
            return 1 / per_device[1], 1 / per_device[0]
        price = prices[s.setup.machine] / 3600 * 1e6
        return price / per_device[1], price / per_device[0]

    names = [s.setup.machine for s in found]
    is_one = len(set(names)) == 1

    def name(s: PredictedServer) -> str:
        return s.setup.framework if is_one else s.setup.machine

    near = [name(s) for s in others if ends(s)[0] <= ends(best)[1]]
    what = "costs least per million tokens" if by_cost else "gives the most tokens per second and GPU"
    certain = f"not certain: {join(near, 'or')} could be better" if near else "certain within the 95 % intervals"
    return [f"{name(best)} {what}; {certain}."]


def table(found: Sequence[PredictedServer], prices: Mapping[str, float]) -> Table:
    """One row per server."""
    rows: list[dict[str, Cell]] = []
    for i, s in enumerate(found):
        price = prices.get(s.setup.machine)
        rows.append(
            {
                "gpu": Strong(s.setup.machine) if i == 0 and s.fits and len(found) > 1 else s.setup.machine,
                "framework": s.setup.framework,
                "devices": s.setup.devices,
                **(_numbers(s, price) if s.fits else {}),
                "running": s.setup.running * s.setup.data if s.fits and s.setup.running < s.setup.batch else None,
                "modelled": _modelled(s),
                "note": None if s.fits else "does not fit into the memory",
            }
        )
    columns = [
        Column("gpu", title="GPU", whole=True),
        Column("framework", narrow=0 if len({s.setup.machine for s in found}) < len(found) else 4),
        number("devices", title="GPUs"),
        number("first_s", units.seconds, "first token"),
        Column("first", title="first, 95 %", narrow=2, align="right"),
        number("token_s", units.seconds, "per token"),
        Column("token", title="token, 95 %", align="right", narrow=1),
        number("tokens_per_s", units.short_count, "tokens/s/GPU"),
        Column("tokens", title="tokens, 95 %", align="right", narrow=1),
        number("cost", money, "cost per M tokens"),
        number("running", title="running"),
        number("modelled", units.percent, "modelled", 6),
        Column("note"),
    ]
    notes = [
        "The 95 % come from the errors on measured deployments that took no part in the fit (docs/deployments.md).",
        "running: as many requests as the memory holds keys and values for; the others wait, which is not predicted.",
        "modelled: share of the kernels' time outside of the sizes of the tables, or in none.",
        "Times of kernels: NVIDIA's aiconfigurator-core, unchecked; overheads: fitted to measured deployments "
        "(docs/serving.md).",
    ]
    if all(row["running"] is None for row in rows):
        notes.pop(1)
    return Table(columns, rows, notes).without_empty_columns()


def _numbers(s: PredictedServer, price: float | None) -> dict[str, Cell]:
    """What is predicted of a server that holds its model."""
    low, high = (end / s.setup.devices for end in s.tokens_interval)
    return {
        "first_s": s.first_s,
        "first_low_s": s.first_interval[0],
        "first_high_s": s.first_interval[1],
        "first": f"{units.seconds(s.first_interval[0], 2)} – {units.seconds(s.first_interval[1], 2)}",
        "token_s": s.token_s,
        "token_low_s": s.token_interval[0],
        "token_high_s": s.token_interval[1],
        "token": f"{units.seconds(s.token_interval[0], 2)} – {units.seconds(s.token_interval[1], 2)}",
        "tokens_per_s": s.tokens_per_s_and_device,
        "tokens_low": low,
        "tokens_high": high,
        "tokens": f"{units.short_count(low)} – {units.short_count(high)}",
        "cost": s.cost(price) if price is not None else None,
        "cost_low": s.cost(price) * s.tokens_per_s_and_device / high if price is not None else None,
        "cost_high": s.cost(price) * s.tokens_per_s_and_device / low if price is not None else None,
    }


def _modelled(s: PredictedServer) -> float:
    total = s.steps.decode.total_s
    return s.steps.decode.shares.get("modelled", 0.0) if total else 0.0


def kinds(s: PredictedServer) -> Table:
    """Of one server: what its two steps consist of."""
    rows: list[dict[str, Cell]] = []
    for name, families in KINDS.items():
        decode, prompt = (
            sum(step.seconds.get(family, 0.0) for family in families) for step in (s.steps.decode, s.steps.prompt)
        )
        if decode or prompt:
            rows.append({"kind": name, "decode_s": decode, "prompt_s": prompt})
    total = {"decode_s": s.steps.decode.total_s, "prompt_s": s.steps.prompt.total_s}
    rows.append({"kind": "all kernels", **total})
    columns = [
        Column("kind", title="kernels"),
        number("decode_s", units.seconds, "decoding step"),
        number("prompt_s", units.seconds, "a prompt"),
    ]
    return Table(columns, rows)


def values(found: Sequence[PredictedServer], prices: Mapping[str, float]) -> list[dict[str, Any]]:
    """Everything, for programs."""
    hidden = ("first", "token", "tokens", "gpu")
    return [
        {
            "model": s.setup.suite,
            "gpu": s.setup.machine,
            **{name: value for name, value in row.items() if name not in hidden},
            "fits": s.fits,
            "batch": s.setup.batch,
            "prompt": s.setup.prompt,
            "output": s.setup.output,
            **dict(s.setup.division),
            "format": s.setup.format.text,
            "decoding_step_s": dict(s.steps.decode.seconds),
            "prompt_s": dict(s.steps.prompt.seconds),
            "known": {"decode": dict(s.steps.decode.shares), "prompt": dict(s.steps.prompt.shares)},
        }
        for s, row in zip(found, table(found, prices).rows, strict=True)
    ]
