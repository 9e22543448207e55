"""A heat: one round of one piece of work, with one new process for each rival. Rivals take turns in short slices.

Rivals are prepared and checked one after the other. Then each runs for some milliseconds while all others are stopped,
so that none of their threads uses a core, again and again in random order. What disturbs the machine for longer than a
slice disturbs all of them, and the ratio of neighbouring slices does not contain it. The idea is related to duet
benchmarking (Bulej et al., 2020), which runs both sides at once; here each rival has all cores.

A case that is measured alone is a heat with one rival. The ranks of a group take turns like single processes; they need
not be stopped, because ranks that wait for their turn sleep.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from deepbench.core.case import Case
from deepbench.core.errors import DeepBenchError
from deepbench.machine import describe
from deepbench.measuring import choices, launch, process
from deepbench.measuring.group.parent import Coordinator, start_group
from deepbench.measuring.parent import Worker
from deepbench.plan.modes import Rules
from deepbench.results.record import Record, make_record
from deepbench.results.schema import schema_error

# The length of a slice. Shorter ones are mostly spent on returning to work, longer ones meet different machines.
SLICE_S = 0.010

# The same for groups of ranks, which exchange messages with this process after each sample.
GROUP_SLICE_S = 0.050

# Rivals of a heat, at most: each needs its memory at the same time.
MOST_RIVALS = 6

# Memory of a rival besides its operands.
RIVAL_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Rival:
    """A case to be measured, with variables for its process."""

    case: Case
    variables: Mapping[str, str] = field(default_factory=dict)
    """An empty value removes a variable."""
    choice: str | None = None
    """The algorithm that an earlier search chose for this case; None: its process searches."""


def measure_case(
    case: Case,
    round_number: int,
    rules: Rules,
    timeout_s: float,
    hosts: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    choice: str | None = None,
) -> Record:
    """The record of one case that is measured alone; see `measure_heat`."""
    return measure_heat([Rival(case, variables or {}, choice)], round_number, rules, timeout_s, hosts)[0]


def measure_heat(
    rivals: Sequence[Rival], round_number: int, rules: Rules, timeout_s: float, hosts: Sequence[str] = ()
) -> list[Record]:
    """The records of rivals, in their order. A process that fails gives a record too, and the others continue.

    `timeout_s` limits the time without a sign of life: processes send a message when they enter a phase. The ranks of a
    group are spread evenly over `hosts`; without hosts they run on this machine. Rivals that do not fit into memory
    together are measured in several heats.
    """
    records: list[Record] = []
    for part in _parts(rivals):
        # Slices of groups are longer, and as many of them are wanted.
        most_s = max(rules.most_s, rules.least_slices * _slice_s(part[0].case)) if len(part) > 1 else rules.most_s
        its_rules = replace(rules, most_s=most_s)
        devices = [r.case.device for r in part]
        requests = [
            launch.Request(
                r.case, round_number, its_rules, timeout_s, choice=r.choice, rivals=devices.count(device) - 1
            )
            for r, device in zip(part, devices, strict=True)
        ]
        heat = _Heat(requests, part, hosts)
        measured = heat.run()
        if len(part) > 1:
            # What does not fit next to others may fit alone. A GPU may refuse a second process (exclusive mode).
            for i, record in enumerate(measured):
                is_refused = record["status"] == "unavailable" and record["device"] != "cpu"
                if record["status"] == "out_of_memory" or is_refused:
                    measured[i] = _Heat([replace(heat.requests[i], rivals=0)], part[i : i + 1], hosts).run()[0]
        records += measured
    return records


def _slice_s(case: Case) -> float:
    return GROUP_SLICE_S if case.operation.is_group else SLICE_S


def _parts(rivals: Sequence[Rival]) -> Iterator[Sequence[Rival]]:
    """The rivals that fit into memory together, at least one at a time."""
    available, part, used = describe.memory_available(), list[Rival](), 0
    for rival in rivals:
        request = launch.Request(rival.case, 1, Rules(), 0.0)
        # Libraries may keep a second copy of the operands in their own format.
        needed = 2 * request.op.operand_bytes(rival.case) + request.op.workspace_bytes(rival.case) + RIVAL_BYTES
        if request.op.is_group:
            needed *= rival.case.problem.ranks
        if part and (len(part) == MOST_RIVALS or (available is not None and used + needed > available)):
            yield part
            part, used = [], 0
        part.append(rival)
        used += needed
    yield part


@dataclass(eq=False)
class _Racer:
    """A rival whose process is ready to be sampled."""

    worker: Worker | Coordinator
    request: launch.Request
    index: int
    stopped: str | None
    is_done: bool
    """Whether it takes no further samples."""
    others_s: float = 0.0
    """CPU seconds of all other racers when it became ready."""
    ending: process.Ending | None = None
    used_s: float = 0.0

    def cpu_s(self) -> float:
        """CPU seconds that its process has used until now; of one that has ended, those of the last reading."""
        self.used_s = max(self.used_s, self.worker.cpu_s())
        return self.used_s

    def takes_part(self) -> bool:
        """Whether it is sampled further."""
        return self.ending is None and not self.is_done


class _Heat:
    """One heat; `run` does everything."""

    def __init__(self, requests: list[launch.Request], rivals: Sequence[Rival], hosts: Sequence[str]) -> None:
        self.requests, self._rivals, self._hosts = requests, rivals, hosts
        self._kills = describe.kills_for_memory()
        self._racers: list[_Racer] = []
        self._choices: dict[tuple[str, ...], str] = {}

    def run(self) -> list[Record]:
        """The record of each rival."""
        endings: dict[int, process.Ending | Record] = {}
        with ExitStack() as stack:
            for i in random.sample(range(len(self._rivals)), len(self._rivals)):
                try:
                    ending = self._prepare(i, stack)
                except DeepBenchError as error:
                    request = self.requests[i]
                    endings[i] = make_record(request.case, request.round_number, error.record_status, str(error))
                    continue
                if ending is not None:
                    endings[i] = ending
            self._race()
            for racer in self._racers:
                endings[racer.index] = racer.ending or self._finish(racer)
        records = [
            self._record(request, found) if isinstance(found := endings[i], process.Ending) else found
            for i, request in enumerate(self.requests)
        ]
        met = [r["case"] for r in records if r["measurement"]]
        if len(met) > 1:
            name = secrets.token_hex(8)
            for record in records:
                record["heat"] = {"id": name, "rivals": [text for text in met if text != record["case"]]}
        return records

    def _prepare(self, i: int, stack: ExitStack) -> process.Ending | None:
        """Start the process of a rival and let it prepare its kernel; how it ended, if it has."""
        request, inherited = self.requests[i], launch.with_variables(os.environ, self._rivals[i].variables)
        case = request.case
        # Two sides that differ in nothing that a search depends on must not run different algorithms.
        alike = (case.text, *choices.conditions(case, inherited))
        if request.choice is None and alike in self._choices:
            self.requests[i] = request = replace(request, choice=self._choices[alike])
        worker: Worker | Coordinator
        if request.op.is_group:
            worker, message = start_group(request, self._hosts, inherited), request.message
        else:
            worker = Worker(case.threads, case.settings["pin"], inherited)
            message = {**request.message, "cpus": worker.cpus}
        stack.enter_context(worker)
        ending = worker.ask(message, {"ready", "record"}, request.timeout_s)
        if ending.answer is None or "record" in ending.answer:
            worker.close()
            return ending
        if isinstance(choice := ending.answer.get("choice"), str):
            self._choices[alike] = choice
        racer = _Racer(worker, request, i, ending.answer["stopped"], ending.answer["done"])
        racer.others_s = self._others_s(racer)
        self._racers.append(racer)
        if len(self._rivals) > 1:
            worker.pause()
        return None

    def _race(self) -> None:
        """Sample all racers, slice by slice in random order and then in the reverse of it, until none needs more."""
        order: list[_Racer] = []
        number, with_rivals = 0, len(self._racers) > 1
        while racing := [racer for racer in self._racers if racer.takes_part()]:
            least = racing[0].request.rules.least_slices if with_rivals else 0
            if number >= least and all(racer.stopped for racer in racing):
                return
            order = order[::-1] if number % 2 else random.sample(self._racers, len(self._racers))
            for racer in order:
                if racer in racing:
                    seconds = _slice_s(racer.request.case) if with_rivals else None
                    ending = self._turn(racer, {"slice": number, "seconds": seconds}, "sampled")
                    if ending.answer is None or "record" in ending.answer:
                        racer.ending = ending
                    else:
                        racer.stopped, racer.is_done = ending.answer["stopped"], ending.answer["done"]
            number += 1

    def _turn(self, racer: _Racer, message: dict[str, object], answer: str) -> process.Ending:
        """Let one racer run while the others are stopped."""
        was_stopped = len(self._rivals) > 1
        if was_stopped:
            racer.worker.go_on()
        ending = racer.worker.ask(message, {answer, "record"}, racer.request.timeout_s)  # a failure is a record, too
        racer.cpu_s()  # the others must not take its work for that of other programs, even after it has ended
        if was_stopped and ending.answer is not None and answer != "record":
            racer.worker.pause()
        return ending

    def _finish(self, racer: _Racer) -> process.Ending:
        """Let a racer check its outputs, and take its record."""
        rivals_s = max(0.0, self._others_s(racer) - racer.others_s)
        ending = self._turn(racer, {"rivals_s": rivals_s}, "record")
        racer.worker.close()
        return ending

    def _others_s(self, racer: _Racer) -> float:
        return sum(other.cpu_s() for other in self._racers if other is not racer)

    def _record(self, request: launch.Request, ending: process.Ending) -> Record:
        """The record of a process that ended."""
        case, number = request.case, request.round_number
        if ending.answer is not None:
            record: Record = ending.answer["record"]
            if mismatch := schema_error(record):
                return make_record(case, number, "crashed", f"its record does not fit the schema: {mismatch}")
            return record
        if ending.was_killed and (describe.kills_for_memory() or 0) > (self._kills or 0):
            reason = f"the system killed a process to free memory: {ending.reason}"
            return make_record(case, number, "out_of_memory", reason)
        return make_record(case, number, ending.status, ending.reason)
