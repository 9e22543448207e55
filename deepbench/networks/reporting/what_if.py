"""What a change would do, and which change helps most, as sentences and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from deepbench.core import units
from deepbench.core.devices import SIMULATED
from deepbench.core.errors import BadInput
from deepbench.core.precision import find_precision
from deepbench.judge.limits import Limits
from deepbench.networks.predictions import forecast
from deepbench.networks.traces.trace import Trace
from deepbench.networks.what_if import effects
from deepbench.networks.what_if import of_results as applications
from deepbench.networks.what_if.effects import (
    ApplicationEffect,
    ChangeEffects,
    Effect,
    Elsewhere,
    KnobSensitivity,
    Range,
)
from deepbench.networks.what_if.hardware import ALL, MAIN, Hardware
from deepbench.networks.what_if.knobs import Change, Knob
from deepbench.networks.what_if.step_terms import application_of, with_overhead
from deepbench.networks.what_if.terms import ModelledApplication
from deepbench.networks.what_if.time_model import peak_name
from deepbench.reporting.limits import library_name
from deepbench.reporting.table import Cell, Column, Part, Table, number, plain_text, print_parts
from deepbench.results.file import ResultFile
from deepbench.results.summary import Summary

# So many kernels that change most are listed, and so many knobs next to each other.
MOST_KERNELS, MOST_KNOBS = 8, 5

# A kernel with a smaller share of the gain is not listed, nor is a knob that helps less.
LEAST_SHARE, LEAST_HELP = 5e-3, 5e-4

# A knob has a column if the elasticity of some application to it is at least this.
LEAST_ELASTICITY = 0.05

HOW = (
    "time: measured, with the fastest library of each kernel. A change scales it by the ratio of a time model after "
    "and before."
)
SIMULATED_TIMES = (
    "time: simulated. A change scales it by the ratio of a time model after and before. interval: how well the model "
    "follows the simulation. It says nothing about how far a real machine is from both."
)
INTERVAL = (
    "interval: what the model does not explain of a kernel may depend on whatever changes, or on nothing that changes."
)
HOT = (
    "Each kernel was repeated with the same data, so what fits into a cache comes from there. In a network other data "
    "may take its place: deepbench run … --set cache=cold measures that."
)
ONE_BY_ONE = (
    "A sum of kernels one after the other; what runs between them is not in it, nor is the exchange of devices."
)


class Answer(ChangeEffects):
    """Changes and what they do to applications; in a terminal it is the tables below."""

    def __str__(self) -> str:
        return plain_text(lambda console: print_parts(parts(self), console))

    __repr__ = __str__


def answer(
    summaries: Sequence[Summary],
    limits: Limits,
    named: str,
    changes: Sequence[str] = (),
    name: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    hardware: Hardware | None = None,
) -> Answer:
    """What changes would do to the applications of a result file.

    `name` chooses applications, `precision` one of theirs, `threads` a number of threads (None: that of most times).
    `hardware` replaces that of the file's limits. `BadInput` says what the file lacks.
    """
    threads, device = _place(summaries, named, threads)
    base = hardware or Hardware.measured(limits, named, threads, device)
    on_device = [s for s in summaries if s.record["device"] == device]
    every = applications.of_summaries(on_device, threads)
    chosen = every
    if precision is not None:
        chosen = applications.of_summaries(on_device, threads, find_precision(precision).name)
    if not chosen:
        known_ones = ", ".join(dict.fromkeys(s.record["precision"] for s in on_device))
        raise BadInput(f"{named} has no times in {precision}; it has {known_ones}")
    chosen = chosen if name is None else applications.chosen(chosen, name)
    return Answer(effects.model_of(every, base), chosen, _parsed(changes, base))


def answer_of_step(
    trace: Trace,
    file: ResultFile,
    summaries: Sequence[Summary],
    limits: Limits,
    named: str,
    changes: Sequence[str] = (),
    library: str = "torch",
    threads: int | None = None,
    hardware: Hardware | None = None,
) -> Answer:
    """What changes would do to the step of a traced network, whose kernels a result file has.

    The overhead of the framework counts where the file has it, and then it is a knob.
    """
    threads, device = _place(summaries, named, threads)
    prediction = forecast.forecast([trace], [file], library=library, threads=threads).predictions[0]
    base = hardware or with_overhead(Hardware.measured(limits, named, threads, device), prediction)
    step = application_of(prediction)
    if not step.terms:
        raise BadInput(
            f"{named} has no kernel of {trace.title} on {library} with {threads} thread{'s' * (threads != 1)}; "
            "measure them: deepbench predict … --measure"
        )
    measured = applications.of_summaries([s for s in summaries if s.record["device"] == device], threads)
    return Answer(effects.model_of([step, *measured], base), [step], _parsed(changes, base))


def _place(summaries: Sequence[Summary], named: str, threads: int | None) -> tuple[int, str]:
    """The number of threads and the device that the answer is about."""
    known = applications.threads_of(summaries)
    if not known:
        raise BadInput(f"{named} has no time that is trusted; measure it again: deepbench run")
    if threads is not None and threads not in known:
        raise BadInput(f"{named} has no times with {threads} threads; it has {', '.join(map(str, sorted(known)))}")
    devices = Counter(s.record["device"] for s in summaries if s.is_ranked)
    return threads or known[0], devices.most_common(1)[0][0]


def _parsed(changes: Sequence[str], base: Hardware) -> list[Change]:
    """The changes; `BadInput` for a knob that the hardware lacks."""
    parsed = [Change.parse(text) for text in changes]
    for change in parsed:
        base.changed(*change.of_hardware)
    return parsed


# ---- for people


def parts(answer: Answer, full: bool = False) -> list[Part]:
    """The answer, then what it rests on. `full` lists every kernel."""
    sensitivity = [sensitivity_table(answer), *_each(answer)] if not answer.changes else []
    if len(answer.applications) == 1:
        outcomes = answer.outcomes[0]
        tables = [changes_table(outcomes), kernels_table(outcomes[-1], full)] if answer.changes else []
        head = [_heading(answer), *verdicts(answer), *_incomplete(answer)]
        return [head, *tables, *sensitivity, _notes(answer)]
    tables = [applications_table(answer)] if answer.changes else []
    return [[*verdicts(answer), *_incomplete(answer), *_legend(answer)], *tables, *sensitivity, _notes(answer)]


def _heading(answer: Answer) -> str:
    (application,) = answer.applications
    kernels = f"{_kernels(application)} different kernels"
    calls = sum(term.count for term in application.terms)
    limited = shares_text(effects.what_if(application, answer.model, Change(())).bound_before)
    seconds = units.seconds(application.seconds)
    return f"{application.title}: {seconds} for {kernels}, {calls} calls. Limited by {limited}."


def _incomplete(answer: Answer) -> list[str]:
    """Which answers are not about the whole application."""
    partial = [a for a in answer.applications if a.kernels is not None and len(a.terms) < a.kernels]
    if not partial:
        return []
    if len(answer.applications) > 1:
        which = f"{len(partial)} of {len(answer.applications)} applications"
        return [f"In {which} some kernels have no time that is trusted: these answers are about the others."]
    (application,) = partial
    lacking = (application.kernels or 0) - len(application.terms)
    which = f"{lacking} of {application.kernels} kernels {'has' if lacking == 1 else 'have'}"
    return [f"{which} no time that is trusted: this answer is about the others."]


def shares_text(shares: Mapping[str, float], most: int = 3) -> str:
    """`compute 62 %, memory 30 %`: the largest shares."""
    listed = [(name, share) for name, share in shares.items() if share >= 0.005][:most]
    return ", ".join(f"{_bound_title(name)} {units.percent(share)}" for name, share in listed)


def _bound_title(name: str) -> str:
    return "main memory" if name == MAIN else name


# With more applications than this, the sentence is about their geometric mean.
MOST_SENTENCES = 4


def verdicts(answer: Answer) -> list[str]:
    """Which change helps most, in a sentence, and which changes do nothing."""
    if not answer.changes:
        return []
    alone = len(answer.changes)
    if len(answer.applications) > MOST_SENTENCES:
        subject = f"Geometric mean of {len(answer.applications)} applications: "
        means = [answer.mean(i) for i in range(alone)]
        idle = [all(_does_nothing(outcomes[i]) for outcomes in answer.outcomes) for i in range(alone)]
        return _verdict(subject, list(zip(answer.changes, means, idle, strict=True)))
    found = []
    for outcomes in answer.outcomes:
        subject = f"{outcomes[0].application.title}: " if len(answer.applications) > 1 else ""
        found += _verdict(subject, [(o.change, o.speed_up, _does_nothing(o)) for o in outcomes[:alone]])
    return found


def _verdict(subject: str, changes: Sequence[tuple[Change, Range, bool]]) -> list[str]:
    working = sorted(((c, r) for c, r, idle in changes if not idle), key=lambda pair: -pair[1].value)
    sentences = []
    if len(working) == 1:
        ((change, speed_up),) = working
        sentences.append(f"{_capital(words(change))} makes it {_speed(speed_up)}.")
    elif working:
        (change, best), *others = working
        sentences.append(f"{_capital(words(change))} helps most: {_speed(best)}.")
        sentences += [f"{_capital(words(other))}: {_speed(speed_up)}." for other, speed_up in others]
        if any(speed_up.high >= best.low for _, speed_up in others):
            sentences.append("The intervals overlap, so this order is not certain.")
    sentences += [
        f"{_capital(words(c))} changes nothing: no kernel here depends on it." for c, _, idle in changes if idle
    ]
    return [subject + " ".join(sentences)]


def _does_nothing(o: ApplicationEffect) -> bool:
    return all(max(abs(r - 1) for r in (e.ratio.value, e.ratio.low, e.ratio.high)) < 1e-12 for e in o.effects)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _speed(speed_up: Range) -> str:
    """`1.62× faster (1.41 to 1.80)`."""
    if abs(speed_up.value - 1) < LEAST_HELP:
        return f"as fast as before ({_interval(speed_up)})"
    if speed_up.value >= 1:
        return f"{units.factor(speed_up.value)} faster ({_interval(speed_up)})"
    inverse = speed_up.inverse
    return f"{units.factor(inverse.value)} slower ({_interval(inverse)})"


def _interval(r: Range) -> str:
    return f"{units.significant(r.low)} to {units.significant(r.high)}"


# Words for what a knob is.
_WORDS = {
    "bytes_per_s": "the bandwidth of {}",
    "bytes": "the size of {}",
    "call_s": "the cost of a call",
    "operator_s": "the cost of an operator",
    "units": "the number of units",
    "rows": "the rows of the array",
    "columns": "the columns of the array",
    "count": "the number of arrays",
    "clock_hz": "the clock of the array",
}


def words(change: Change) -> str:
    """`twice the bandwidth of main memory`."""
    return " and ".join(map(_knob_words, change.knobs))


def _knob_words(knob: Knob) -> str:
    factor = knob.value if knob.how == "*" else 1 / knob.value
    names = {2.0: "twice", 0.5: "half", 1.0: "once"}
    times = names.get(factor, f"{float(units.significant(factor)):g} times")
    first, *rest = knob.path
    if first == "time":
        where = " where " + " and ".join(f"{c.name} {c.comparison} {c.value}" for c in knob.conditions)
        what = f"the time of {' '.join(map(library_name, rest))}{where if knob.conditions else ''}"
    elif first == "peak":
        what = f"the {rest[0]} peak" if rest and rest != [ALL] else "every peak"
    elif first == "memory":
        levels = {ALL: "every level of memory", MAIN: "main memory"}
        level = "main memory" if len(rest) == 1 else levels.get(rest[0], rest[0])
        what = _WORDS[rest[-1]].format(level)
    elif first == "overhead" and rest in ([], [ALL]):
        what = "every fixed cost"
    else:
        what = _WORDS[knob.path[-1]]
    return f"{times} {what}" if knob.how != "=" else f"{what} set to {knob.value:g}"


# ---- tables


def changes_table(outcomes: Sequence[ApplicationEffect]) -> Table:
    """One row per change of one application."""
    rows: list[dict[str, Cell]] = [
        {
            "change": o.change.text,
            "time": o.after_s,
            "speed-up": o.speed_up.value,
            "interval": _interval(o.speed_up),
            "low": o.speed_up.low,
            "high": o.speed_up.high,
            "limited by": shares_text(o.bound_after, 2),
        }
        for o in outcomes
    ]
    columns = [
        Column("change", least=20),
        number("time", units.seconds),
        number("speed-up", units.factor),
        Column("interval", whole=True),
        Column("limited by", title="then limited by"),
    ]
    return Table(columns, rows, more_for_programs=["low", "high"])


def every_change(outcomes: Sequence[ApplicationEffect]) -> Table:
    """For programs: for each change one row for the whole application, without a kernel, and one row per kernel."""
    rows: list[dict[str, Cell]] = []
    for o in outcomes:
        whole = ("", sum(e.term.count for e in o.effects), o.before_s, o.ratio, shares_text(o.bound_after, 1), None)
        each = [
            (e.term.label, e.term.count, e.term.seconds, e.ratio, _bound_title(e.after.bound), e.library)
            for e in sorted(o.effects, key=lambda e: -abs(e.saved_s))
        ]
        for kernel, calls, before_s, ratio, bound, library in (whole, *each):
            rows.append(
                {
                    "change": o.change.text,
                    "kernel": kernel or None,
                    "calls": calls,
                    "before": before_s,
                    "after": before_s * ratio.value,
                    "low": before_s * ratio.low,
                    "high": before_s * ratio.high,
                    "speed_up": ratio.inverse.value,
                    "speed_up_low": ratio.inverse.low,
                    "speed_up_high": ratio.inverse.high,
                    "limited_by": bound,
                    "library": library,
                }
            )
    return Table(list(map(Column, rows[0])), rows)


def kernels_table(outcome: ApplicationEffect, full: bool = False) -> Table:
    """The kernels that change most."""
    effects = sorted((e for e in outcome.effects), key=lambda e: -abs(e.saved_s))
    gain = outcome.before_s - outcome.after_s
    listed = effects if full else [e for e in effects if abs(e.saved_s) > LEAST_SHARE * abs(gain)][:MOST_KERNELS]
    rows: list[dict[str, Cell]] = [
        {
            "kernel": e.term.label,
            "calls": e.term.count,
            "before": e.term.seconds,
            "after": e.after_s,
            "low": e.term.seconds * e.ratio.low,
            "high": e.term.seconds * e.ratio.high,
            "share": e.saved_s / gain if gain else None,
            "limited_by": _limit(e),
            "library": library_name(e.library) if e.library else None,
        }
        for e in listed
    ]
    columns = [
        Column("kernel", least=20),
        number("calls"),
        number("before", units.seconds, "time"),
        number("after", units.seconds, "then"),
        number("share", units.percent, "of the gain"),
        Column("limited_by", title="limited by"),
        *([Column("library", title="then by")] if any(row["library"] for row in rows) else []),
    ]
    more = len(effects) - len(listed)
    title = f"The kernels that change most with {outcome.change.text}"
    notes = [f"{title}; {more} more are not listed (--full)." if more > 0 else f"{title}."]
    return Table(columns, rows, notes, more_for_programs=["low", "high"])


def _limit(e: Effect) -> str:
    before, after = _bound_title(e.before.bound), _bound_title(e.after.bound)
    return before if before == after else f"{before}, then {after}"


def _legend(answer: Answer) -> list[str]:
    letters = _letters(answer)
    return [f"{letter}: {change.text}" for letter, change in zip(letters, answer.changes, strict=False)]


def _letters(answer: Answer) -> list[str]:
    letters = [chr(ord("A") + i % 26) for i in range(len(answer.changes))]
    return [*letters, *["together"] * answer.has_together] if len(answer.changes) > 1 else ["speed-up"]


def applications_table(answer: Answer) -> Table:
    """One row per application, and one for all of them; the speed-up by each change with its interval."""
    letters = _letters(answer)
    rows: list[dict[str, Cell]] = []
    for outcomes in [*answer.outcomes, *[answer.whole] * answer.is_of_one_precision]:
        application = outcomes[0].application
        row: dict[str, Cell] = {
            "application": application.title,
            "kernels": _kernels(application),
            "time": application.seconds,
            "limited by": shares_text(outcomes[0].bound_before, 1),
        }
        for letter, o in zip(letters, outcomes, strict=True):
            row |= {letter: o.speed_up.value}
            row |= {f"{letter} low": o.speed_up.low, f"{letter} high": o.speed_up.high, f"{letter} time": o.after_s}
        rows.append(row)
    rows.append(_means(answer, letters))
    columns = [
        Column("application", least=20),
        Column("kernels", narrow=0 if _incomplete(answer) else 2),
        number("time", units.seconds),
        Column("limited by", narrow=1),
        *(Column(letter, of=partial(_with_interval, letter), whole=True) for letter in letters),
    ]
    more = [f"{letter} {name}" for letter in letters for name in ("low", "high", "time")]
    return Table(columns, rows, more_for_programs=more)


def _kernels(application: ModelledApplication) -> str:
    """`52 of 58`."""
    count = len(application.terms)
    return f"{count}" if application.kernels in (None, count) else f"{count} of {application.kernels}"


def _with_interval(name: str, row: Mapping[str, Cell]) -> Cell:
    """`1.62× (1.41–1.80)`."""
    value, low, high = (row[key] for key in (name, f"{name} low", f"{name} high"))
    shown = [units.significant(v) for v in (value, low, high) if isinstance(v, float)]
    return f"{shown[0]}× ({shown[1]}–{shown[2]})"


def _means(answer: Answer, letters: Sequence[str]) -> dict[str, Cell]:
    """Geometric means over applications, in which each counts alike."""
    row: dict[str, Cell] = {"application": "geometric mean", "time": None, "limited by": None}
    for i, letter in enumerate(letters):
        mean = answer.mean(i)
        row |= {letter: mean.value, f"{letter} low": mean.low, f"{letter} high": mean.high}
    return row


def sensitivity_table(answer: Answer) -> Table:
    """One row per knob, the one that helps most first."""
    rows: list[dict[str, Cell]] = [
        {
            "knob": s.knob,
            "elasticity": s.elasticity,
            "what": s.twice.change.text.removeprefix(s.knob).replace("*", "×"),
            "speed-up": s.twice.speed_up.value,
            "interval": _interval(s.twice.speed_up),
            "low": s.twice.speed_up.low,
            "high": s.twice.speed_up.high,
        }
        for s in answer.sensitivities
        if _matters(s)
    ]
    columns = [
        Column("knob", least=20),
        number("elasticity", _elasticity),
        Column("what", title="with"),
        number("speed-up", units.factor),
        Column("interval", whole=True),
    ]
    notes = [
        "elasticity: the change of the time in percent, for one percent more of the knob. A size of a memory works in "
        "steps and has none."
    ]
    if rest := [s.knob for s in answer.sensitivities if not _matters(s)]:
        notes.append(f"Knobs without an effect: {', '.join(rest)}.")
    return Table(columns, rows, notes, more_for_programs=["low", "high"])


def _matters(s: KnobSensitivity) -> bool:
    return abs(s.twice.ratio.value - 1) > LEAST_HELP


def _elasticity(value: float) -> str:
    text = f"{value:+.2f}"
    return "0.00" if text[1:] == "0.00" else text.replace("-", "\N{MINUS SIGN}")


def _each(answer: Answer) -> list[Table]:
    """The elasticities of each application, where there are several."""
    if len(answer.applications) == 1:
        return []
    each = answer.sensitivities_of_each
    used = {s.knob for found in each for s in found if abs(s.elasticity or 0.0) >= LEAST_ELASTICITY}
    knobs = [s.knob for s in answer.sensitivities if s.knob in used][:MOST_KNOBS]
    rows: list[dict[str, Cell]] = []
    for application, found in zip(answer.applications, each, strict=True):
        by_knob = {s.knob: s.elasticity for s in found}
        rows.append({"application": application.title, **{knob: by_knob[knob] for knob in knobs}})
    columns = [Column("application", least=20)]
    columns += [number(knob, _elasticity, _short(knob), narrow=i) for i, knob in enumerate(knobs)]
    return [Table(columns, rows, ["Elasticity of each application to the knobs that matter most."])]


def _short(knob: str) -> str:
    return knob.removeprefix("memory.").removeprefix("overhead.")


def _notes(answer: Answer) -> list[str]:
    cases = [t.case for a in answer.applications for t in a.terms if t.case is not None]
    is_simulated = any(case.device == SIMULATED for case in cases)
    how = [SIMULATED_TIMES, answer.model.sentence] if is_simulated else [HOW, answer.model.sentence, INTERVAL]
    sentences = [*how, ONE_BY_ONE]
    if not is_simulated and any(case.settings.get("cache", "hot") == "hot" for case in cases):
        sentences.append(HOT)
    if answer.model.hardware.remarks:
        sentences += answer.model.hardware.remarks
    remarks = Counter[str]()
    for application in answer.applications:
        remarks.update(application.remarks)
    if remarks:
        every = sum(a.kernels or len(a.terms) for a in answer.applications)
        sentences.append(f"Of {every} kernels: {', '.join(f'{n} {remark}' for remark, n in remarks.items())}.")
    if not is_simulated and any(t.low_s is None for a in answer.applications for t in a.terms):
        sentences.append("Some times have no interval of their own (one process), so intervals miss their errors.")
    return sentences


# ---- another device


def elsewhere_parts(answer: Answer, hardware: Hardware) -> list[Part]:
    """The time of each application on other hardware, with how little is known about it."""
    found = [effects.elsewhere(a, answer.model, hardware) for a in answer.applications]
    least, most = effects.OTHER_DEVICE_KERNEL
    notes = [
        f"{hardware.name} ({hardware.origin}): the model alone, with the efficiencies of this machine. Nothing was "
        "measured there.",
        f"interval: a factor of {effects.OTHER_DEVICE}, the largest error of a sum of products on eleven published "
        f"devices that the model never saw. There, one kernel was off by {units.percent(least)} to "
        f"{units.percent(most)} on average (docs/what-if.md).",
        answer.model.sentence,
        ONE_BY_ONE,
    ]
    needed = {peak_name(t.case) for a in answer.applications for t in a.terms if t.case is not None}
    if lacking := sorted(needed - hardware.peak.keys()):
        notes.insert(0, f"{hardware.name} states no peak of {', '.join(lacking)}; that of f32 counts.")
    return [elsewhere_table(found), notes]


def elsewhere_table(found: Sequence[Elsewhere]) -> Table:
    """One row per application: its time here, measured, and on other hardware, by the model alone."""
    rows: list[dict[str, Cell]] = [
        {
            "application": e.application.title,
            "time": e.application.seconds,
            "there": e.seconds,
            "interval": f"{units.seconds(e.low_s)} to {units.seconds(e.high_s)}",
            "low": e.low_s,
            "high": e.high_s,
            "limited by": shares_text(e.bound, 2),
        }
        for e in found
    ]
    columns = [
        Column("application", least=20),
        number("time", units.seconds, "time here"),
        number("there", units.seconds),
        Column("interval", whole=True),
        Column("limited by", title="limited by there"),
    ]
    return Table(columns, rows, more_for_programs=["low", "high"])
