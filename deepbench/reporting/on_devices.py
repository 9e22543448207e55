"""A predicted training step on several devices that divide the data: each runs the step, then all add their gradients.

Weak scaling keeps the batch of a device, strong scaling divides a fixed batch. The all-reduce of as many numbers as the
network has parameters was measured, or a model fitted to smaller groups predicts it (`judge/scaling.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deepbench.core import units
from deepbench.core.times import Time
from deepbench.judge import groups as fitted
from deepbench.networks.predictions.predict import Prediction
from deepbench.networks.reporting.predictions import without_time
from deepbench.reporting import groups
from deepbench.reporting.steps import AllReduce, all_reduce_of
from deepbench.reporting.table import Cell, Column, Table, number
from deepbench.results.summary import Summary


@dataclass(frozen=True)
class OnDevices:
    """A step on so many devices."""

    devices: int
    prediction: Prediction
    """Of one device."""
    all_reduce: AllReduce | None
    """None on one device, and where the files have none."""
    withheld: str | None
    """Why the step has no time."""

    @property
    def one_after_the_other(self) -> Time | None:
        """The step of one device, then the all-reduce."""
        own = self.prediction.time
        if self.withheld is not None or own is None:
            return None
        return own if self.all_reduce is None else own.plus(self.all_reduce.time)

    @property
    def overlapped(self) -> Time | None:
        """The longer of both: no overlap of the all-reduce with kernels makes a step shorter."""
        own = self.prediction.time
        if self.withheld is not None or own is None:
            return None
        return own if self.all_reduce is None else own.longer(self.all_reduce.time)


def on_devices(found: Sequence[tuple[int, Prediction]], summaries: Sequence[Summary]) -> list[OnDevices]:
    """Steps by the number of devices; `found` has the step of one device for each number."""
    known = fitted.measured(summaries)
    made = []
    for devices, prediction in found:
        exchange, reason = None, None
        if prediction.time is None:
            reason = without_time(len(prediction.missing))
        elif devices > 1:
            if prediction.trace.parameters is None:
                reason = "the network does not say how many parameters it has"
            else:
                exchange = all_reduce_of(prediction.trace.parameters, devices, known)
                if exchange is None:
                    reason = (
                        f"no all-reduce over {devices} ranks; measure several sizes over two or more groups: "
                        "deepbench run all_reduce"
                    )
        made.append(OnDevices(devices, prediction, exchange, reason))
    return made


def values(steps: Sequence[OnDevices]) -> list[dict[str, Any]]:
    """All of it as plain values, for programs."""
    found = []
    for step in steps:
        whole, overlapped, reduce = step.one_after_the_other, step.overlapped, step.all_reduce
        found.append(
            {
                "devices": step.devices,
                "one_device": asdict(step.prediction.time) if step.prediction.time else None,
                "all_reduce": asdict(reduce) if reduce else None,
                "step": asdict(whole) if whole else None,
                "overlapped": asdict(overlapped) if overlapped else None,
                "withheld": step.withheld,
            }
        )
    return found


def table(steps: Sequence[OnDevices], is_strong: bool) -> Table:
    """One row per number of devices."""
    first = next((step for step in steps if step.one_after_the_other), None)
    base = first.one_after_the_other if first else None
    rows: list[dict[str, Cell]] = []
    for step in steps:
        whole, overlapped, reduce, own = (
            *(step.one_after_the_other, step.overlapped, step.all_reduce, step.prediction.time),
        )
        ratio = base.seconds / whole.seconds if base and whole else None
        gain = step.devices / first.devices if first else 1.0
        rows.append(
            {
                "devices": step.devices,
                "own": own.seconds if own else None,
                "all-reduce": reduce.time.seconds if reduce else None,
                "how": reduce.how if reduce else None,
                "step": whole.seconds if whole else None,
                "low": whole.low_s if whole else None,
                "high": whole.high_s if whole else None,
                "speed-up": None if ratio is None else ratio if is_strong else ratio * gain,
                "efficiency": None if ratio is None else ratio / gain if is_strong else ratio,
                "overlapped": overlapped.seconds if overlapped else None,
                "withheld": step.withheld,
            }
        )
    columns = [
        *(number("devices"), number("own", units.seconds, "one device"), number("all-reduce", units.seconds)),
        *(Column("how", narrow=3), number("step", units.seconds)),
        *(number("low", units.seconds, "from", narrow=4), number("high", units.seconds, "to", narrow=4)),
        *(number("speed-up", lambda v: f"{units.significant(v)}×"), number("efficiency", units.percent, narrow=1)),
        number("overlapped", units.seconds, "overlapped ≥", narrow=2),
    ]
    return Table(columns, rows, _notes(steps, is_strong), more_for_programs=("withheld",)).without_empty_columns()


def _notes(steps: Sequence[OnDevices], is_strong: bool) -> list[str]:
    reduces = [step.all_reduce for step in steps if step.all_reduce]
    kind = (
        "Strong scaling: the devices divide one batch."
        if is_strong
        else "Weak scaling: each device has the whole batch; the speed-up is that of the throughput."
    )
    reasons: dict[str, list[str]] = {}
    for step in steps:
        if step.withheld:
            reasons.setdefault(step.withheld, []).append(str(step.devices))
    return [
        kind,
        *(f"Withheld, {', '.join(devices)} devices: {reason}." for reason, devices in reasons.items()),
        "step: the step of one device and then the all-reduce of all gradients, one after the other. Input, and "
        "waiting for the slowest device, are not in it.",
        *dict.fromkeys(f"all-reduce, {r.how}, {r.precision}: {r.about}." for r in reduces),
        "overlapped ≥: the longer of both. No overlap of the all-reduce with kernels makes a step shorter.",
        *([groups.OVERSUBSCRIBED] if any(r.oversubscribed for r in reduces) else []),
    ]
