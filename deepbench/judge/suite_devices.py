"""Training steps of suites on several devices, from the records of a file.

The time of one device is the total of a suite. The all-reduce was measured, or a model fitted to smaller groups
predicts it (`scaling.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from deepbench.core import units, words
from deepbench.core.errors import BadInput, shorten
from deepbench.core.op import find_op
from deepbench.core.times import NOTHING, Time
from deepbench.judge import groups, scaling, totals
from deepbench.judge.devices import AllReduce, DeviceScaling, DeviceStep
from deepbench.judge.totals import Total
from deepbench.plan import models
from deepbench.plan.suites import is_fitted, is_suite, is_training_suite, read_suite, split_name
from deepbench.results.summary import Summary

# Gradients are often added in f32 where the library has no all-reduce in the precision of the kernels.
F32 = "f32"


def of_summaries(summaries: Sequence[Summary]) -> list[DeviceScaling]:
    """Every model, batch, precision and number of threads of which a file has training steps on stated devices."""
    named = {source["suite"] for s in summaries for source in s.record["sources"]}
    if not any(f"{models.DEVICES}=" in name for name in named):
        return []
    found: dict[tuple[object, ...], list[DeviceStep]] = {}
    for total in totals.of_summaries(summaries):
        base, parameters = split_name(total.suite)
        devices, batch = _number(parameters.pop(models.DEVICES, "")), _number(parameters.get(models.BATCH, ""))
        if is_training_suite(total.suite) and devices and batch:
            key = base, *parameters.items(), total.precision, total.threads
            found.setdefault(key, []).append(_step(total, batch, devices, summaries))
    return [DeviceScaling(_title(steps[0]), sorted(steps, key=lambda step: step.devices)) for steps in found.values()]


def _number(text: str) -> int | None:
    """A size in the name of a suite, which a file may spell as it likes."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 11 and int(text) else None


def _title(step: DeviceStep) -> str:
    threads = "" if step.threads is None else f", {words.count(step.threads, 'thread')}"
    return f"{step.title}, {step.precision}{threads}"


def chosen(found: Sequence[DeviceScaling], name: str) -> list[DeviceScaling]:
    """Those of one model, by the name of its suite or a part of it; `BadInput` says what there is."""
    name_of = {id(s): split_name(s.steps[0].suite or "")[0] for s in found}
    names = list(dict.fromkeys(name_of.values()))
    fitting = [name] if name in names else [n for n in names if name.lower() in n.lower()]
    if not names:
        raise BadInput(
            f"the file has no training step on stated devices; measure one: "
            f"deepbench run {shorten(name)} --set phase=train,devices=1,2,4"
        )
    if len(fitting) != 1:
        what = "several models" if fitting else "no model"
        raise BadInput(f"{shorten(name)!r} names {what} of the file; it has {', '.join(fitting or names)}")
    return [s for s in found if name_of[id(s)] == fitting[0]]


def _step(total: Total, batch: int, devices: int, summaries: Sequence[Summary]) -> DeviceStep:
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
        known = [s for s in groups.measured(summaries) if s.record["device"] in places]
        found = _all_reduce(total, devices, known)
        if isinstance(found, str):
            reasons.append(found)
        else:
            all_reduce = found
    title = re.sub(r", on one( of [0-9]+)? devices?(?=,|$)", "", total.application)
    disturbed = bool(total.disturbed) or (all_reduce is not None and all_reduce.disturbed)
    return DeviceStep(
        title=title,
        precision=total.precision,
        threads=total.threads,
        devices=devices,
        one_device=kernels,
        all_reduce=all_reduce,
        withheld="; ".join(reasons) or None,
        disturbed=disturbed,
        suite=total.suite,
        batch=batch,
        single_process=bool(total.single_process),
    )


def no_all_reduce(elements: int, ranks: int, precision: str) -> str:
    """Why there is no all-reduce of this size, and what to measure."""
    return (
        f"no all-reduce of {elements} elements over {ranks} ranks in {precision}; measure it, or for a prediction "
        "several sizes over two or more smaller groups: deepbench run all_reduce"
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
            return no_all_reduce(n, devices, precision)
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
    fitting = [m for m in groups.models(known) if m.fits]
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
        shortest, longest = groups.range_of_errors()
        low, high = min(low, shortest), max(high, longest)
    time = Time(time_s, None, None) if is_far else Time(time_s, low * time_s, high * time_s)
    return AllReduce(time, "predicted", first["precision"], about, oversubscribed=oversubscribed)
