"""Strong scaling of a training step: a fixed batch on more and more devices.

Each of p devices computes the kernels for its part of the batch, batch / p, and the optimizer in full. Then all devices
add up their gradients in an all-reduce over p ranks. The time of the kernels is the total of the suite
(`judge/totals.py`). The all-reduce was measured, or a model predicts it (`judge/scaling.py`). Both are sums of calls
one after the other: no step was measured as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deepbench.core import units
from deepbench.core.errors import BadInput, shorten
from deepbench.core.op import find_op
from deepbench.core.times import NOTHING, Time
from deepbench.judge import groups as fitted
from deepbench.judge import scaling, totals
from deepbench.judge.totals import Total
from deepbench.plan import models
from deepbench.plan.suites import is_fitted, is_suite, is_training, left_out, read_suite, split_name
from deepbench.reporting import groups
from deepbench.reporting.table import Cell, Column, Table, number
from deepbench.results.summary import Summary

HOW = Literal["measured", "predicted"]

ONE_PROCESS_EACH = (
    "±: some times come from one process only, so their intervals ignore the variation between processes."
)



@dataclass(frozen=True)
class Ratio:
    """How many times faster, and the ends of its interval where both times have one."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, first: Time, second: Time) -> Ratio:
        """The first time over the second one. The ends hold whatever the correlation of both."""
        low = None if first.low_s is None or second.high_s is None else first.low_s / second.high_s
        high = None if first.high_s is None or second.low_s is None else first.high_s / second.low_s
        return cls(first.seconds / second.seconds, low, high)


@dataclass(frozen=True)
class AllReduce:
    """The all-reduces of the gradients of one step."""

    time: Time
    """The interval of a prediction is the range of errors of such models; none far beyond the measured groups."""
    how: HOW
    precision: str
    about: str
    """The library; of a prediction also the model and its errors."""
    disturbed: bool = False
    hosts: int | None = None
    """On how many hosts the ranks were."""
    oversubscribed: bool = False
    """Whether ranks shared cores."""


@dataclass(frozen=True)
class Step:
    """A training step on so many devices. What is missing is None."""

    suite: str
    title: str
    precision: str
    threads: int | None
    batch: int
    """Of all devices together."""
    devices: int
    kernels: Time | None
    """On one device, which computes batch / devices."""
    all_reduce: AllReduce | None
    """None on one device too, which exchanges nothing."""
    disturbed: bool
    """Whether other programs disturbed one of the times."""
    single_process: bool
    """Whether the interval of a kernel comes from one process, and so is too narrow."""
    withheld: str | None
    """Why there is no time of the step."""

    @property
    def one_after_the_other(self) -> Time | None:
        """Kernels, then the all-reduce."""
        return self._both(Time.plus)

    @property
    def overlapped(self) -> Time | None:
        """The longer of both: no overlap of the all-reduce with kernels makes a step shorter."""
        return self._both(Time.longer)

    def _both(self, combined: Callable[[Time, Time], Time]) -> Time | None:
        if self.withheld is not None or self.kernels is None:
            return None
        return self.kernels if self.all_reduce is None else combined(self.kernels, self.all_reduce.time)


@dataclass(frozen=True)
class Scaling:
    """The steps of one model with one batch in one precision, by number of devices."""

    title: str
    steps: Sequence[Step]

    @property
    def first(self) -> Step | None:
        """The step on the fewest devices that has a time which is trusted: speed-ups are relative to it."""
        return next((s for s in self.steps if s.one_after_the_other and not s.disturbed), None)

    def speed_up(self, step: Step) -> Ratio | None:
        """Time of the first step over the time of this one, without overlap; None where a time is not trusted."""
        first = self.first and self.first.one_after_the_other
        time = step.one_after_the_other
        return Ratio.of(first, time) if first and time and not step.disturbed else None

    def efficiency(self, step: Step) -> float | None:
        """Speed-up over the number of devices, relative to the first step."""
        ratio = self.speed_up(step)
        return ratio.value * self.first.devices / step.devices if ratio and self.first else None

    def values(self) -> list[dict[str, Any]]:
        """All of it as plain values, for pages and programs."""
        return [
            {
                **asdict(step),
                "one_after_the_other": _plain(step.one_after_the_other),
                "overlapped": _plain(step.overlapped),
                "speed_up": _plain(self.speed_up(step)),
                "efficiency": self.efficiency(step),
            }
            for step in self.steps
        ]


def _plain(value: Time | Ratio | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


# ---- of a file


def of_summaries(summaries: Sequence[Summary]) -> list[Scaling]:
    """Every model, batch, precision and number of threads of which a file has training steps on stated devices."""
    named = {source["suite"] for s in summaries for source in s.record["sources"]}
    if not any(f"{models.DEVICES}=" in name for name in named):
        return []
    found: dict[tuple[object, ...], list[Step]] = {}
    for total in totals.of_summaries(summaries):
        base, parameters = split_name(total.suite)
        devices, batch = _number(parameters.pop(models.DEVICES, "")), _number(parameters.get(models.BATCH, ""))
        if is_training(total.suite) and devices and batch:
            key = base, *parameters.items(), total.precision, total.threads
            found.setdefault(key, []).append(_step(total, batch, devices, summaries))
    return [Scaling(_title(steps[0]), sorted(steps, key=lambda step: step.devices)) for steps in found.values()]


def _number(text: str) -> int | None:
    """A size in the name of a suite, which a file may spell as it likes."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 11 and int(text) else None


def _title(step: Step) -> str:
    threads = "" if step.threads is None else f", {step.threads} thread{'s' * (step.threads != 1)}"
    return f"{step.title}, {step.precision}{threads}"


def chosen(found: Sequence[Scaling], name: str) -> list[Scaling]:
    """Those of one model, by the name of its suite or a part of it; `BadInput` says what there is."""
    names = list(dict.fromkeys(split_name(s.steps[0].suite)[0] for s in found))
    fitting = [name] if name in names else [n for n in names if name.lower() in n.lower()]
    if not names:
        raise BadInput(
            f"the file has no training step on stated devices; measure one: "
            f"deepbench run {shorten(name)} --set phase=train,devices=1,2,4"
        )
    if len(fitting) != 1:
        what = "several models" if fitting else "no model"
        raise BadInput(f"{shorten(name)!r} names {what} of the file; it has {', '.join(fitting or names)}")
    return [s for s in found if split_name(s.steps[0].suite)[0] == fitting[0]]


def _step(total: Total, batch: int, devices: int, summaries: Sequence[Summary]) -> Step:
    own = [s for s in summaries if any(source["suite"] == total.suite for source in s.record["sources"])]
    kernels = None if total.time_s is None else Time(total.time_s, total.low_s, total.high_s)
    all_reduce = None
    reasons = []
    if kernels is None:
        reasons.append(f"{total.kernels - total.measured} of {total.kernels} kernels have no time")
    if any(is_fitted(source) for s in own for source in s.record["sources"] if source["suite"] == total.suite):
        reasons.append("problems were made smaller to fit, so they are not those of this batch")
    if devices > 1:
        places = {s.record["device"] for s in own if not s.is_group}
        known = [s for s in fitted.measured(summaries) if s.record["device"] in places]
        found = _all_reduce(total, devices, known)
        if isinstance(found, str):
            reasons.append(found)
        else:
            all_reduce = found
    title = re.sub(r", on one( of [0-9]+)? devices?(?=,|$)", "", total.application)
    disturbed = bool(total.disturbed) or (all_reduce is not None and all_reduce.disturbed)
    return Step(
        total.suite,
        title,
        total.precision,
        total.threads,
        batch,
        devices,
        kernels,
        all_reduce,
        disturbed,
        bool(total.single_process),
        "; ".join(reasons) or None,
    )


def _all_reduce(total: Total, devices: int, known: Sequence[Summary]) -> AllReduce | str:
    """The fastest of each all-reduce of a suite, measured or predicted; a sentence where there is none."""
    calls = _calls(total.suite, known)
    if not calls:
        return "the file does not say how many gradients there are"
    precision = total.precision if any(s.record["precision"] == total.precision for s in known) else F32
    parts = []
    for n, count in calls:
        part = all_reduce_of(n, devices, known, precision)
        if part is None:
            return (
                f"no all-reduce of {n} elements over {devices} ranks in {precision}; measure it, or for a prediction "
                "several sizes over two or more smaller groups"
            )
        parts.append((count, part))
    time = NOTHING
    for count, part in parts:
        time = time.plus(part.time.times(count))
    hosts = [part.hosts for _, part in parts if part.hosts is not None]
    return AllReduce(
        time,
        "measured" if all(part.how == "measured" for _, part in parts) else "predicted",
        precision,
        "; ".join(dict.fromkeys(part.about for _, part in parts)),
        any(part.disturbed for _, part in parts),
        min(hosts, default=None),
        any(part.oversubscribed for _, part in parts),
    )


def _calls(suite: str, known: Iterable[Summary]) -> list[tuple[int, int]]:
    """Elements and number of calls of each all-reduce of a step.

    Of a model of the package the suite says it; of a user's own model the records of the file do.
    """
    if is_suite(suite):
        try:
            entries = [e for e in read_suite(suite) if find_op(e.pattern.op).is_group]
        except BadInput:  # a parameter or a model of another version
            entries = []
        return [(e.pattern.problem.n, e.source.get("count", 1)) for e in entries if e.source]
    rows = {
        source["row"]: (int(s.record["problem"]["n"]), source.get("count", 1))
        for s in known
        for source in s.record["sources"]
        if source["suite"] == suite
    }
    return list(rows.values())


def all_reduce_of(n: int, ranks: int, known: Sequence[Summary], precision: str = F32) -> AllReduce | None:
    """The fastest all-reduce of so many numbers over so many ranks, measured or else predicted; None without either.

    `known` are the all-reduces of a file that have a time.
    """
    fitting = [s for s in known if s.record["precision"] == precision]
    return _measured(n, ranks, fitting) or _predicted(n, ranks, fitting)


def _measured(n: int, ranks: int, known: Iterable[Summary]) -> AllReduce | None:
    """The fastest one over libraries, algorithms and places."""
    fitting = [s for s in known if (s.record["problem"]["n"], s.record["problem"]["ranks"]) == (n, ranks)]
    if not fitting:
        return None
    s = min(fitting, key=lambda s: s.time_s)
    low_s, high_s = (s.estimate.low_s, s.estimate.high_s) if s.estimate else (None, None)
    return AllReduce(
        Time(s.time_s, low_s, high_s),
        "measured",
        s.record["precision"],
        s.library_title,
        s.is_disturbed,
        len(s.group["hosts"]) if s.group else None,
        bool(s.group and s.group["oversubscribed"]),
    )


def _predicted(n: int, ranks: int, known: Sequence[Summary]) -> AllReduce | None:
    """By the model of the library that is the fastest for this size within the groups that were measured."""
    fitting = [m for m in fitted.models(known) if m.fits]
    if not fitting:
        return None
    first = known[0].record
    count = n * (first["traffic_bytes"] // int(first["problem"]["n"]))
    most = min(m.most_ranks for m in fitting)
    model = min(fitting, key=lambda m: m.time_s(most, count))
    fit = model.fit_of(count)
    worst = units.percent(max(map(abs, fit.errors)))
    is_far = ranks > scaling.FAR * model.most_ranks
    about = f"{model.library}, model {fit.model} of up to {model.most_ranks} ranks, off by up to {worst} on its points"
    if is_far:
        about += f"; uncertain, because {ranks} ranks are more than {scaling.FAR} times as many"
    oversubscribed = any(s.group and s.group["oversubscribed"] for s in known if s.library_title == model.library)
    time_s = model.time_s(ranks, count)
    # An error is the predicted time over the measured one, less 1.
    low, high = 1 / (1 + max(fit.errors)), 1 / (1 + min(fit.errors))
    if ranks > model.most_ranks:
        shortest, longest = fitted.range_of_errors()
        low, high = min(low, shortest), max(high, longest)
    time = Time(time_s, None, None) if is_far else Time(time_s, low * time_s, high * time_s)
    return AllReduce(time, "predicted", first["precision"], about, oversubscribed=oversubscribed)


# ---- a table


def table(found: Sequence[Scaling]) -> Table:
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
