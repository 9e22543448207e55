"""Training steps on more and more devices as a table, with what the times rest on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deepbench.core import units, words
from deepbench.core.errors import BadInput
from deepbench.judge.devices import DeviceScaling, DeviceStep
from deepbench.plan.suites import is_suite, left_out
from deepbench.reporting import groups
from deepbench.reporting.table import Cell, Column, Table, number

ONE_PROCESS_EACH = (
    "±: some times come from one process only, so their intervals ignore the variation between processes."
)


def table(found: Sequence[DeviceScaling]) -> Table:
    """One row per number of devices."""
    rows = [_row(scaling, step) for scaling in found for step in scaling.steps]
    steps = [step for scaling in found for step in scaling.steps]
    several = len(found) > 1
    columns = [
        *([Column("model"), Column("precision", title="type")] if several else []),
        number("devices"),
        *([number("batch", title="batch each")] if any(step.batch for step in steps) else []),
        *(number("one device", units.seconds), number("one device ±", units.plus_minus, "±", narrow=4)),
        *(number("all-reduce", units.seconds), number("all-reduce ±", units.plus_minus, "±", narrow=5)),
        Column("how"),
        *(number("step", units.seconds), number("±", units.plus_minus)),
        *(
            number("speed-up", units.factor, narrow=2),
            Column("speed-up interval", title="interval", whole=True, narrow=6),
        ),
        number("efficiency", units.percent, narrow=1),
        number("overlapped", units.seconds, "overlapped ≥", narrow=3),
        *([Column("notes", style="yellow")] if any(row["notes"] for row in rows) else []),
    ]
    more = ("withheld", "batch of all", "low", "high", "about the all-reduce")
    return Table(columns, rows, _notes(found, steps), more_for_programs=more)


def _row(scaling: DeviceScaling, step: DeviceStep) -> dict[str, Cell]:
    time, overlapped, ratio, reduce = (
        *(step.one_after_the_other, step.overlapped, scaling.speed_up(step)),
        step.all_reduce,
    )
    interval = None
    if ratio and ratio.low is not None and ratio.high is not None and step is not scaling.first:
        interval = f"{units.significant(ratio.low)} to {units.significant(ratio.high)}"
    precision = (
        "" if reduce is None or reduce.precision == (step.precision or reduce.precision) else f", {reduce.precision}"
    )
    return {
        "model": step.title,
        "precision": step.precision,
        "devices": step.devices,
        "batch": step.batch // step.devices if step.batch else None,
        "batch of all": step.batch,
        "one device": step.one_device.seconds if step.one_device else None,
        "one device ±": step.one_device.half_width if step.one_device else None,
        "all-reduce": reduce.time.seconds if reduce else None,
        "all-reduce ±": reduce.time.half_width if reduce else None,
        "how": f"{reduce.how}{precision}" if reduce else None,
        "about the all-reduce": reduce.about if reduce else None,
        "step": time.seconds if time else None,
        "±": time.half_width if time else None,
        "low": time.low_s if time else None,
        "high": time.high_s if time else None,
        "speed-up": ratio.value if ratio else None,
        "speed-up interval": interval,
        "efficiency": scaling.efficiency(step),
        "overlapped": overlapped.seconds if overlapped else None,
        "withheld": step.withheld,
        "notes": "withheld" if step.withheld else "disturbed" if step.disturbed else None,
    }


def _notes(found: Sequence[DeviceScaling], steps: Sequence[DeviceStep]) -> list[str]:
    reduces = [step.all_reduce for step in steps if step.all_reduce]
    firsts = list(dict.fromkeys(scaling.first.devices for scaling in found if scaling.first))
    base = words.count(firsts[0], "device") if len(firsts) == 1 else "the fewest devices with a step"
    hosts = {reduce.hosts for reduce in reduces if reduce.hosts is not None}
    threads = sorted({step.threads for step in steps if step.threads is not None})
    of_suites = any(step.suite for step in steps)
    sentences = [
        f"{found[0].title}." if len(found) == 1 else "",
        "Strong scaling: the devices divide one batch."
        if all(scaling.is_strong for scaling in found)
        else "Weak scaling: each device has the whole batch; the speed-up is that of the throughput.",
        *_withheld(steps, found),
        *(
            f"Disturbed by other programs, {_of(step, found)}{words.count(step.devices, 'device')}: no speed-up; "
            "run again."
            for step in steps
            if step.disturbed and not step.withheld
        ),
        *_left_out(steps),
        "step: what one device computes and then the all-reduce of all gradients, one after the other. It is a sum, "
        "not a measured step: input, and waiting for the slowest device, are not in it.",
        "one device: the kernels for batch / devices, with the fastest library each; what runs between kernels is not "
        "in it. The optimizer runs in full on every device."
        if of_suites
        else "one device: the predicted step of its part of the data.",
        "all-reduce: of the gradients over as many ranks as devices; measured, or predicted by a model fitted to "
        "smaller groups. The interval of a prediction is the range of errors of such models on published times; far "
        "beyond the measured groups there is none."
        if reduces
        else "",
        *dict.fromkeys(f"all-reduce, {reduce.how}, {reduce.precision}: {reduce.about}." for reduce in reduces),
        "overlapped ≥: the longer of both. No overlap of the all-reduce with kernels makes a step shorter.",
        f"speed-up: relative to the step on {base}; its interval holds whatever the correlation of both. "
        "efficiency: the speed-up over that of the devices.",
        _places(threads, hosts) if hosts else "",
        groups.OVERSUBSCRIBED if any(reduce.oversubscribed for reduce in reduces) else "",
        ONE_PROCESS_EACH if any(step.single_process for step in steps) else "",
    ]
    return [sentence for sentence in sentences if sentence]


def _withheld(steps: Sequence[DeviceStep], found: Sequence[DeviceScaling]) -> list[str]:
    """One sentence per reason."""
    reasons: dict[tuple[str, str], list[int]] = {}
    for step in steps:
        if step.withheld:
            reasons.setdefault((_of(step, found), step.withheld), []).append(step.devices)
    return [
        f"Withheld, {of}{words.join(map(str, devices))} device{'s' * (devices != [1])}: {reason}."
        for (of, reason), devices in reasons.items()
    ]


def _places(threads: Sequence[int], hosts: Iterable[int]) -> str:
    """Where the kernels ran, and where the ranks: they may share what one device has for itself."""
    kernels = " or ".join(words.count(n, "thread") for n in threads)
    ranks = " or ".join(words.count(n, "host") for n in sorted(hosts))
    return f"device: where the kernels ran, with {kernels}. The ranks of a measured all-reduce were on {ranks}."


def _of(step: DeviceStep, found: Sequence[DeviceScaling]) -> str:
    return "" if len(found) == 1 else f"{step.title}, {step.precision}, "


def _left_out(steps: Sequence[DeviceStep]) -> list[str]:
    """What the model calls and no operation serves, so that no total has it."""
    sentences = []
    for base in dict.fromkeys(step.suite for step in steps if step.suite):
        if is_suite(base):
            try:
                names = dict.fromkeys(kernel.kernel.split()[0] for kernel in left_out(base))
            except BadInput:
                continue
            if names:
                title = next(step.title for step in steps if step.suite == base)
                sentences.append(f"Not in the kernels of {title}, because no operation serves it: {', '.join(names)}.")
    return list(dict.fromkeys(sentences))
