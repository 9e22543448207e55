"""A session measures the cases of one result file: it creates or resumes the file, probes what the machine can do,
measures case by case in fresh processes, judges each record and appends it.

It prints nothing. `progress` is called before each measurement, never during one.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from deepbench.core import units
from deepbench.core.backend import DeviceBackend, all_backends, find_backend
from deepbench.core.case import Case, parse_case
from deepbench.core.errors import BadInput
from deepbench.core.json_lines import sanitized
from deepbench.core.kinds import kind_of_header
from deepbench.core.progress import Activity, Progress, no_progress
from deepbench.core.shell import command
from deepbench.core.version import VERSION
from deepbench.judge import limits
from deepbench.machine import describe
from deepbench.machine.system import allowed_cpus, require_measurable
from deepbench.measuring import cold, launch, probes
from deepbench.measuring.choices import ChosenAlgorithms
from deepbench.measuring.heat import Rival, measure_case, measure_heat
from deepbench.measuring.parent import open_backends
from deepbench.measuring.trust import ranks_of, require_hosts, require_ranks
from deepbench.plan.cases import Planned, with_reference
from deepbench.plan.cost import estimated_s
from deepbench.plan.modes import ENERGY_S, MODES, QUICK, SUSTAINED_S, Rounds, Rules
from deepbench.plan.rounds import RoundsForecast, next_within_budget, queue
from deepbench.results import summary
from deepbench.results.consistency import other_cpus
from deepbench.results.file import ResultFile, Store, read_results
from deepbench.results.record import SCHEMA, Header, Limit, NetworkSteps, Record, make_record

DEFAULT_TIMEOUT_S = 600.0

# At the end of a run, cases that no limit explains are measured with one thread. This takes at most this share of the
# run, or a few seconds. One of them takes about QUESTION_S: its process must start, and its result is checked.
QUESTIONS_SHARE, LEAST_QUESTIONS_S, QUESTION_S = 0.05, 5.0, 1.0


@dataclass(frozen=True)
class Options:
    """How to measure."""

    mode: str = "default"
    """`quick`, `default`, `rigorous` or `steps`: a name in `MODES`."""
    rounds: int | None = None
    """Exactly this many rounds; None: as the mode says."""
    energy: bool = False
    timeout_s: float | None = None
    """Seconds without a sign of life that end a case; None: ten minutes, less with a budget."""
    budget_s: float | None = None
    """Seconds for everything, from `begin` on."""
    begin: float = field(default_factory=time.monotonic)
    hosts: tuple[str, ...] = ()
    """Where the ranks of a group run; none: here."""
    command: tuple[str, ...] = ()
    """The words of the command, for the header of the file."""
    sustained: bool = False
    """Also hold each case of a GPU for some seconds, and store clock and power over time."""
    no_limits: bool = False
    """Do not measure what the machine can do at most, and judge no result by it."""
    search_again: bool = False
    """Let libraries of GPUs search for the fastest algorithm, even if an earlier run has."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise BadInput(f"mode must be one of {', '.join(MODES)}, found {self.mode!r:.60}")
        if self.rounds is not None and not 1 <= self.rounds <= 1000:
            raise BadInput(f"rounds must be from 1 to 1000, found {self.rounds}")
        if self.rounds is not None and self.budget_s is not None:
            raise BadInput("a budget decides how many rounds there are; leave out the number of rounds")

    def on(self, hosts: Iterable[str]) -> Options:
        """The same, for groups on these hosts."""
        return replace(self, hosts=tuple(hosts))

    def rules(self, of_sides: bool) -> Rules:
        """How each process samples, of a run or of the sides of a comparison."""
        mode = MODES[self.mode]
        return replace(
            mode.rules_of_sides if of_sides else mode.rules,
            energy_s=ENERGY_S if self.energy else None,
            sustained_s=SUSTAINED_S if self.sustained else None,
        )

    def processes(self, of_sides: bool) -> Rounds:
        """How many processes measure each case, or each side of a comparison."""
        mode = MODES[self.mode]
        least, most = mode.rounds_of_sides if of_sides else (mode.rounds.least, mode.rounds.most)
        return replace(mode.rounds, least=self.rounds or least, most=self.rounds or most)

    @property
    def case_timeout_s(self) -> float:
        """A case that hangs must not take more than a quarter of a budget."""
        if self.timeout_s is not None:
            return self.timeout_s
        return DEFAULT_TIMEOUT_S if self.budget_s is None else min(DEFAULT_TIMEOUT_S, max(10.0, self.budget_s / 4))


class Session:
    """One result file that is being measured. Use as a context manager: it closes the file."""

    def __init__(
        self,
        file: ResultFile,
        store: Store,
        timeout_s: float | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` has variables for the workers; an empty text removes one. It never comes from a file."""
        plan = file.header["plan"]
        self.file = file
        self._store = store
        self.timeout_s = timeout_s or plan["timeout_s"]
        self.rules, self._rounds = Rules(**plan["rules"]), Rounds(**plan["rounds"])
        self.hosts = plan.get("hosts") or []
        self.planned = [Planned(parse_case(p["case"]), p["sources"]) for p in plan["cases"]]
        self._sources = {p["case"]: p["sources"] for p in plan["cases"]}
        self._is_new = False
        self._unavailable = {
            name: f"{answer['unavailable']['reason']}; {answer['unavailable']['remedy']}"
            for name, answer in file.header["libraries"].items()
            if "unavailable" in answer
        }
        libraries = [
            name
            for name, b in all_backends().items()
            if b.default and name in file.header["libraries"] and name not in self._unavailable
        ]
        self._prober = probes.Prober(limits.Limits(file.limits), libraries, self._measure, self._keep_limit)
        self._sharing = [self]
        """The sessions whose files get each new limit."""
        self.slowdown = 1.0
        """How much longer everything takes than on a quiet machine, for estimates of time."""
        mode = MODES.get(plan["mode"])
        self.environment = {
            **cold.environment(self.cases, file.header["machine"]),
            **(launch.KEEPS_MEMORY if mode and mode.keeps_memory else {}),
            **(environment or {}),
        }
        self._choices = ChosenAlgorithms(file, self.environment, os.environ)

    # ---- create and resume

    @classmethod
    def create(
        cls, path: Path, planned: Sequence[Planned], options: Options, side: Mapping[str, Any] | None = None
    ) -> Session:
        """A new result file for these cases; `BadInput` where it exists, or where none of its libraries is here.

        `side` describes one side of a comparison whose sides take turns (`sides.py`).
        """
        require_measurable()
        header = new_header(planned, options, side)
        cold.require([p.case for p in planned], header["machine"])
        store = Store.create(path, sanitized(header))
        session = cls(read_results(path), store, environment=side["environment"] if side else None)
        session._is_new = True
        return session

    @classmethod
    def resume(
        cls,
        path: Path,
        hosts: Sequence[str] = (),
        timeout_s: float | None = None,
        *,
        trusted: bool = False,
        started: int = 0,
    ) -> Session:
        """Go on with a file where it stops; `BadInput` where machine, hosts or libraries are no longer the same.

        A file that names hosts, or more ranks than there are cores, needs the same `hosts`, a launcher that has
        `started` so many ranks, or a user who says that it is `trusted`: see `trust.py`.
        """
        require_measurable()
        store = Store.reopen(path)
        try:
            file = read_results(path)
            if file.header["plan"].get("interleaved"):
                raise BadInput(f"{path} is one side of a comparison; measure both sides again: deepbench run --ab")
            kind = kind_of_header(file.header)
            if kind.resumed_by != "run":
                verb = kind.resumed_by
                advice = f"continue it with {command(verb, '--resume', '-o', path)}" if verb else "measure it again"
                raise BadInput(f"{path} has {kind.noun}; {advice}")
            cases = [parse_case(p["case"]) for p in file.header["plan"]["cases"]]
            if not trusted:
                require_hosts(file, hosts)
                require_ranks(file, ranks_of(cases), hosts, started)
            require_same_machine(file, hosts)
            cold.require(cases, file.header["machine"])
        except BaseException:
            store.close()
            raise
        store.append_after(file)
        return cls(file, store, timeout_s)

    @property
    def is_in_place(self) -> bool:
        """Whether the file is still where it was opened."""
        return self._store.is_in_place

    def discard(self) -> None:
        """Remove the file if this session has created it and measured nothing."""
        if self._is_new and not self.file.records:
            self._store.discard()

    def close(self) -> None:
        """Close the file; everything measured is in it."""
        self._store.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- measure

    @property
    def cases(self) -> list[Case]:
        """The planned cases."""
        return [p.case for p in self.planned]

    def run(self, progress: Progress = no_progress, begin: float | None = None, *, once: bool = False) -> None:
        """Measure what the plan still lacks. `begin` is when a budget began (monotonic clock); None: now.

        With `once`, a budget that is left when every case was measured once is not used.

        On KeyboardInterrupt the case in progress becomes a record with the status `interrupted`. `BadInput` if no case
        fits into the budget; then a new file is removed.
        """
        plan = self.file.header["plan"]
        budget_s, seed = plan.get("budget_s"), plan["order_seed"]
        begin = time.monotonic() if begin is None else begin
        ends = None if budget_s is None else begin + budget_s
        next_heats = queue(self.planned, self.file.records, self._rounds, seed)
        self.probe([case for heat in next_heats for case, _ in heat], progress)
        forecast = RoundsForecast(self.planned, self.file.records, self._rounds, self.estimate, ends)
        widths: dict[tuple[str, int], float] = {}
        # Some of a budget is kept for the question whether more threads help.
        rounds_end = None if ends is None or budget_s is None else ends - QUESTIONS_SHARE * budget_s

        def batch() -> list[list[tuple[Case, int]]]:
            if rounds_end is None:
                return queue(self.planned, self.file.records, self._rounds, seed)
            left_s = rounds_end - time.monotonic()
            heat = next_within_budget(self.planned, self.file.records, self.estimate, left_s, seed, widths)
            return [heat] if heat and not (once and heat[0][1] > 1) else []

        own_rules, is_hopeless, earlier = self.rules, False, len(self.file.records)
        while heats := batch():
            for heat in heats:
                names = ", ".join(dict.fromkeys(case.backend for case, _ in heat))
                case, number = heat[0]
                text = f"round {number}  {case.text.replace(f' {case.backend} ', f' {names} ', 1)}"
                was_hopeless, is_hopeless = is_hopeless, self._is_hopeless(earlier)
                if is_hopeless and number > 1:
                    continue
                self.rules = replace(own_rules, **HOPELESS) if is_hopeless else own_rules
                notice = None
                if is_hopeless and not was_hopeless:
                    notice = self._notice()
                    forecast.only_once()
                progress(Activity(text, forecast.done, forecast.total, forecast.left_s, notice))
                for record in measure_together([(self, case, number) for case, number in heat]):
                    forecast.add(record)
            if is_hopeless and heats[0][0][1] > 1:
                break
        self.rules = own_rules
        if not is_hopeless and not plan.get("no_limits"):
            self._ask_for_fewer_threads(progress, ends)
        if budget_s is not None and not self.file.records:
            before_s, cheapest_s = time.monotonic() - begin, min(map(self.estimate, self.cases))
            self.discard()
            raise BadInput(
                f"no case fits into the budget of {budget_s:g} s: the start, with probes of the machine, took "
                f"{before_s:.1f} s, and one round of the cheapest case takes about {cheapest_s:.1f} s; "
                f"allow at least {math.ceil(1.2 * (before_s + cheapest_s))} s"
            )

    def _is_hopeless(self, earlier: int) -> bool:
        """Whether other programs disturbed nearly all of the last measurements, so that more rounds would not help.

        The first `earlier` records are those of another run.
        """
        last = [r for r in self.file.records[earlier:] if r["measurement"]][-ENOUGH_DISTURBED:]
        return len(last) == ENOUGH_DISTURBED and len(summary.undisturbed_rounds(last)) <= MOST_CLEAN

    def _notice(self) -> str:
        """What to tell people then."""
        path = self.file.path
        return (
            f"Other programs disturbed nearly all of the last {ENOUGH_DISTURBED} measurements, so from here on each "
            "case is measured once and briefly: their times are upper bounds. What helps: stop these programs, or "
            "measure fewer threads (--threads 1); deepbench info --doctor names what disturbs. Then continue: "
            f"{command('run', '--resume', '-o', str(path))}"
        )

    def _ask_for_fewer_threads(self, progress: Progress, ends: float | None) -> None:
        """Measure cases that no limit explains with one thread, once and quickly, as far as time allows."""
        known = limits.of_file(self.file, summaries := summary.summarize(self.file.records))
        questions = limits.open_questions(known, summaries)
        begin, spent_s = time.monotonic(), sum(r["process"]["duration_s"] for r in self.file.records if r["process"])
        if ends is None:
            ends = begin + max(LEAST_QUESTIONS_S, QUESTIONS_SHARE * spent_s)
        for done, case in enumerate(questions):
            left_s = ends - time.monotonic()
            if left_s < QUESTION_S:
                return
            left_s = min(left_s, QUESTION_S * (len(questions) - done))
            progress(Activity(f"does one thread suffice?  {case.text}", done, len(questions), left_s))
            line = probes.answer(self._measure(case, QUICK.rules))
            if line is not None:
                self._keep_limit(line)

    def unavailable(self, case: Case, number: int) -> Record | None:
        """The record of a case whose library or GPUs are not here; None for all others, which must be measured."""
        if case.backend in self._unavailable:
            return make_record(case, number, "unavailable", self._unavailable[case.backend])
        facts: Mapping[str, Any] = self.file.header["libraries"].get(case.backend, {}).get("library") or {}
        card = facts.get("card")
        cards = card.get("cards") if isinstance(card, dict) else None
        if case.operation.is_group and not self.hosts and isinstance(cards, int) and case.problem.ranks > cards:
            # The same words for every number of ranks: tables print equal reasons once.
            reason = f"each rank needs a GPU of its own, and this machine has {cards} GPU{'s' * (cards != 1)}"
            return make_record(case, number, "unsupported", reason)
        return None

    def finish(self, case: Case, record: Record) -> Record:
        """Judge the rate of a measured record, and keep the record."""
        if record["status"] != "interrupted":
            record = {**self._prober.judge(record), "sources": self._sources[case.text]}
        self._choices.keep(case, record)
        self._keep(record)
        return record

    def rival(self, case: Case) -> Rival:
        """A case with what its process needs to know."""
        return Rival(case, self.environment, self._choices.of(case))

    def _measure(self, case: Case, rules: Rules) -> Record:
        self.require_cpus(allowed_cpus())
        record = measure_case(case, 1, rules, self.timeout_s, (), self.environment, self._choices.of(case))
        self.require_cpus_of(record)
        self._choices.keep(case, record)
        return record

    def require_cpus(self, cpus: Collection[int]) -> None:
        """`BadInput` unless this process may use the CPUs that it might use when the file was created."""
        planned = self.file.header["machine"].get("cpus_allowed")
        if isinstance(planned, list) and set(planned) != set(cpus):
            then, now = units.numbers(planned), units.numbers(cpus)
            raise BadInput(
                f"the CPUs of this command were {then} when {self.file.path} was created, and are now {now} (taskset, "
                "cpuset). Times on other CPUs are those of another machine, so it stops. What has been measured is in "
                f"the file. With the same CPUs, continue: {command('run', '--resume', '-o', self.file.path)}"
            )

    def require_cpus_of(self, record: Record) -> None:
        """The same for the process of a record: this process had other CPUs for a moment."""
        if not self.hosts and other_cpus(record, self.file.header["machine"].get("cpus_allowed")):
            self.require_cpus(cast("list[int]", cast(Any, record["process"])["cpus_allowed"]))

    def _keep(self, record: Record) -> None:
        self._store.append(record)
        self.file.records.append(record)

    def _keep_limit(self, limit: Limit) -> None:
        for session in self._sharing:
            session._store.append({"limit": limit})
            session.file.limits.append(limit)

    def keep_steps(self, steps: NetworkSteps) -> None:
        """Write steps of a network into the file, behind what was measured so far."""
        self._store.append({"step": steps})
        self.file.steps.append((len(self.file.records), steps))

    def share_limits(self, other: Session) -> None:
        """Judge by the same limits as another new session, so that two sides of a comparison cannot differ in them."""
        self._prober.limits = other._prober.limits
        self._sharing = other._sharing = [other, self]

    def estimate(self, case: Case) -> float:
        """Seconds that a round of a case takes, roughly."""
        if case.backend in self._unavailable:
            return 0.0
        peak = self._prober.limits.peak(case.precision.name, case.device, case.threads)
        return self.slowdown * estimated_s(case, peak, self.rules)

    def probe(self, cases: Iterable[Case], progress: Progress = no_progress) -> None:
        """Measure the limits that these cases need and that are not known here yet, unless the plan forbids it."""
        if self.file.header["plan"].get("no_limits"):
            return
        here = [case for case in cases if case.backend not in self._unavailable]
        header = self.file.header
        self._prober.complete(here, header["machine"], progress, header["plan"].get("budget_s"))


# A run on a machine that is disturbed all the time: the number of its last measurements, and how many of them were not
# disturbed at most. Then each case is measured once, by these rules.
ENOUGH_DISTURBED, MOST_CLEAN = 10, 2
HOPELESS: dict[str, Any] = {"patience": 1, "warm_up_s": 0.02, "most_s": 0.06, "least_slices": 5}


def measure_together(entries: Sequence[tuple[Session, Case, int]]) -> list[Record]:
    """Measure one round of rivals in one heat; judge and keep each record in its session.

    On KeyboardInterrupt each case that has no record yet becomes one with the status `interrupted`.
    """
    records: dict[int, Record] = {}
    try:
        for i, (session, case, number) in enumerate(entries):
            if (record := session.unavailable(case, number)) is not None:
                records[i] = session.finish(case, record)
        here = [i for i in range(len(entries)) if i not in records]
        if here:
            session, _, number = entries[here[0]]
            session.require_cpus(allowed_cpus())
            rivals = [entries[i][0].rival(entries[i][1]) for i in here]
            measured = measure_heat(rivals, number, session.rules, session.timeout_s, session.hosts)
            for record in measured:
                session.require_cpus_of(record)
            for i, record in zip(here, measured, strict=True):
                records[i] = entries[i][0].finish(entries[i][1], record)
    except KeyboardInterrupt:
        for i, (session, case, number) in enumerate(entries):
            if i not in records:
                session.finish(case, make_record(case, number, "interrupted", "stopped by the user (Ctrl-C)"))
        raise
    return [records[i] for i in range(len(entries))]


# ---- the header of a new file


def new_header(
    planned: Sequence[Planned],
    options: Options,
    side: Mapping[str, Any] | None = None,
    libraries: Mapping[str, Any] | None = None,
) -> Header:
    """The first line of a result file; `BadInput` where none of the libraries that the cases name is here.

    `libraries` are those that a caller has opened, and then no others are opened: no limits are probed.
    """
    rounds = options.processes(side is not None)
    if options.sustained and not any(_has_long_loads(p.case) for p in planned):
        raise BadInput("--sustained loads a GPU for seconds, and no case runs on one; choose --device cuda or hip")
    names = {p.case.backend for p in planned}
    # Limits are known from the default libraries; what computes nothing, or in a group, has no limit.
    devices = {p.case.device for p in planned if p.case.library.computes and not p.case.operation.is_group}
    probing = {n for n, b in all_backends().items() if any(map(b.is_default_on, devices)) and not b.is_group}
    on = {p.case.backend: p.case.device for p in planned}
    are_given = libraries is not None
    if libraries is None:
        libraries = open_libraries(sorted(names | probing), side["environment"] if side else None, on)
    missing = [libraries[n]["unavailable"] for n in sorted(names) if "unavailable" in libraries[n]]
    if len(missing) == len(names) and not are_given:
        raise BadInput(f"{missing[0]['reason']}; {missing[0]['remedy']}{_otherwise(planned[0].case, libraries)}")
    plan = {
        "rounds": asdict(rounds),
        "mode": options.mode,
        "order_seed": random.SystemRandom().randrange(2**31),
        "timeout_s": options.case_timeout_s,
        "rules": asdict(options.rules(side is not None)),
        "hosts": list(options.hosts),
        "budget_s": options.budget_s,
        **({"no_limits": True} if options.no_limits else {}),
        **({"search_again": True} if options.search_again else {}),
        **({"interleaved": dict(side)} if side else {}),
        "cases": [{"case": p.case.text, "sources": p.sources} for p in planned],
    }
    header = {
        "schema": SCHEMA,
        "tool": f"deepbench {VERSION}",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(options.command),
        "machine": describe.describe_machine(),
        "libraries": {
            name: {key: answer[key] for key in ("library", "unavailable") if key in answer}
            for name, answer in libraries.items()
        },
        "plan": plan,
    }
    return cast(Header, header)


def _has_long_loads(case: Case) -> bool:
    """Whether its library may hold a load for seconds: those of GPUs, with events."""
    return case.device != "cpu" and not case.operation.is_group and not isinstance(case.library, DeviceBackend)


def open_libraries(
    names: Sequence[str],
    environment: Mapping[str, str] | None = None,
    devices: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Facts about each library, or why it is not here; each answer comes from a process of its own.

    `environment` has variables to set for these processes; an empty text removes one. `devices` has the device of each
    library, where that is not its usual one.
    """
    return open_backends(names, probes.OPEN_TIMEOUT_S, environment, devices=devices)


def _otherwise(case: Case, libraries: Mapping[str, Any]) -> str:
    """What can run a case whose library is missing: a default library that is here, else the float64 reference."""
    here = [
        name
        for name, answer in libraries.items()
        if "library" in answer and find_backend(name).supports(case.op, case.precision.name, case.direction)
    ]
    work = f"{case.op} {case.direction} in {case.precision.name}"
    if here:
        return f"; libraries that are here and serve {work}: {', '.join(here)}"
    if words := with_reference(case):
        device = case.device
        return f"; no default library for {device} that is here serves {work}, the float64 reference does: {words}"
    return ""


def _devices_of(file: ResultFile) -> dict[str, str]:
    """The device of each library of a file, as its cases state it."""
    cases = (line["case"] for line in file.header["plan"]["cases"] if " device=" in line["case"])
    return {case.backend: case.device for case in map(parse_case, cases)}


def require_same_machine(
    file: ResultFile, hosts: Sequence[str] = (), libraries: Callable[[Sequence[str]], Mapping[str, Any]] | None = None
) -> None:
    """`BadInput` that names what differs between the machine, hosts and libraries of the file and those here.

    `libraries` opens libraries by their names; without it, those of `backends/`.
    """
    differences = describe.differences(file.header["machine"], describe.describe_machine())
    then_hosts = file.header["plan"].get("hosts") or []
    if hosts and list(hosts) != then_hosts:
        differences.append(f"the hosts were {' '.join(then_hosts) or 'this one alone'} and are {' '.join(hosts)}")
    names = sorted(file.header["libraries"])
    here = libraries(names) if libraries is not None else open_libraries(names, devices=_devices_of(file))
    for name, then in file.header["libraries"].items():
        old, new = then.get("library"), here[name].get("library")
        if old != new:
            differences.append(f"library {name} was {_build(old)} and is {_build(new)}")
    if differences:
        raise BadInput(f"{file.path} was measured elsewhere: {'; '.join(differences)}; start a new file instead")


def _build(library: Mapping[str, Any] | None) -> str:
    if library is None:
        return "unavailable"
    build = library.get("cpu_kernels") or library.get("build") or "-"
    return f"{library.get('version')} at {library.get('path')} ({build})"


def remeasure(file: ResultFile, cases: Sequence[str], path: Path) -> ResultFile:
    """Measure some cases of a file again, as often as one side of a comparison, into a file of their own."""
    plan = file.header["plan"]
    least, most = MODES[plan["mode"]].rounds_of_sides
    header = {
        **file.header,
        "plan": {
            **plan,
            "cases": [p for p in plan["cases"] if p["case"] in cases],
            "rounds": {**plan["rounds"], "least": least, "most": most},
            "budget_s": None,
        },
    }
    store = Store.create(path, header)
    with Session(read_results(path), store) as session:
        session.run()
        return session.file
