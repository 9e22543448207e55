"""The steps that only a rank takes; `measure/steps.py` has the others."""

from __future__ import annotations

import hashlib
import random
import time
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from deepbench.core.backend import GroupBackend
from deepbench.core.case import Case
from deepbench.core.collective import CollectiveOp
from deepbench.core.kernel import Kernel
from deepbench.machine import describe
from deepbench.measuring.check import Verdict, verdict_of
from deepbench.measuring.clock import Sample, Sampler, measure_kernel, take_sample
from deepbench.measuring.group.link import Group
from deepbench.measuring.steps import CHECKED_S, CHECKED_SHARE, MOST_CHECKED, CheckResult, Timing, timing_of
from deepbench.native import callloop
from deepbench.plan.modes import Rules
from deepbench.results.record import GroupFacts

if TYPE_CHECKING:
    from deepbench.core.op import Arrays

# Calls whose results are compared bit by bit. Each rank waits for a random time of up to MOST_SKEW_S before each.
REPEATS, MOST_SKEW_S = 3, 0.005

# After these, calls as they are timed, as many as fit into the time that `measuring/steps.py` allows; their results are
# hashed at about this speed.
HASHED_BYTES_PER_S = 1e9


def describe_group(group: Group, backend: GroupBackend) -> GroupFacts:
    """Where the ranks run and how they are connected. After `backend.join`."""
    facts: GroupFacts = {
        "launcher": group.launcher,
        "hosts": {host: group.hosts.count(host) for host in dict.fromkeys(group.hosts)},
        "interconnect": dict(zip(group.hosts, group.gather(describe.interconnect()), strict=True)),
        "oversubscribed": backend.device == "cpu" and _is_oversubscribed(group),
    }
    return {**facts, **cast(GroupFacts, backend.group_facts())}


def _is_oversubscribed(group: Group) -> bool:
    """Whether a host has more ranks than cores that they may use together."""
    ranks = group.gather([group.host, group.cpus, describe.cpu_quota()])
    for host in set(group.hosts):
        cores = len(set(chain(*(cpus for name, cpus, _ in ranks if name == host))))
        quotas = [quota for name, _, quota in ranks if name == host and quota is not None]
        if group.hosts.count(host) > min([cores, *quotas]):
            return True
    return False


class GroupClock:
    """The clock of all ranks: the time of a call is that of the slowest rank. Every rank gets the same numbers."""

    turn = 1

    def __init__(self, timer: Any, group: Group) -> None:
        self._timer, self._group = timer, group
        self._now = max(group.gather(0.0))
        self._start = perf_counter()

    def run(self, turns: int) -> int:
        """Make this many calls, each after a barrier; the sum of the slowest ranks' nanoseconds."""
        times = self._timer(turns)
        everything = self._group.gather([perf_counter() - self._start, times])
        self._now = everything[0][0]
        return sum(map(max, zip(*(times for _, times in everything), strict=True)))

    def evidence(self) -> None:
        """None: a rank does not see what disturbs the others."""
        return None

    def now(self) -> float:
        """Seconds on the clock of rank 0 at the last call."""
        return float(self._now)


@dataclass(frozen=True)
class RankPart:
    """The part of a case that this process measures: one rank, or several with one kernel for all of them."""

    group: Group
    op: CollectiveOp
    case: Case
    arrays: dict[int, Arrays]
    """By rank."""
    kernel: Kernel
    timer: Any

    @classmethod
    def prepare(
        cls, group: Group, op: CollectiveOp, backend: GroupBackend, case: Case, arrays: dict[int, Arrays]
    ) -> RankPart:
        """Prepare the kernel, and a timer for it."""
        kernel = backend.prepare_ranks(case, arrays)
        return cls(group, op, case, arrays, kernel, callloop.each_timer(kernel))

    def first_call(self) -> Sample:
        """Time the very first call."""
        self._reset()
        return take_sample(GroupClock(self.timer, self.group), 1)

    def check(self, integers: bool, prefix: str = "") -> CheckResult:
        """Check the outputs of all ranks. Every rank returns the same: the first wrong result, or the worst."""
        self.kernel.store()
        compare = self.op.compare_rank
        local = [(r, verdict_of(compare(self.case, r, arrays, integers))) for r, arrays in self.arrays.items()]
        rank, verdict = _worst(local)
        of_all = self.group.gather([rank, verdict.fields])
        rank, verdict = _worst([(rank, Verdict(**fields)) for rank, fields in of_all])
        return CheckResult(verdict, None if verdict.passed else f"{prefix}rank {rank} received {verdict.sentence}")

    def check_random_numbers(self) -> CheckResult:
        """Fill the buffers with the numbers that are timed, make one call, and check it."""
        for rank, arrays in self.arrays.items():
            self.op.fill_send(self.case, rank, arrays, integers=False)
        self._reset()
        self.timer(1)
        return self.check(integers=False)

    def begin(self, rules: Rules, first: Sample) -> GroupSampling:
        """Warm up in step with the other ranks."""
        device = self.kernel.device
        before = device.conditions() if device is not None else None
        return GroupSampling(
            Sampler(GroupClock(self.timer, self.group), rules, first, self.timer.kind), self, rules, before
        )

    def check_again(self, facts: GroupFacts, timing: Timing) -> tuple[CheckResult, GroupFacts]:
        """Check that all ranks and all calls leave the same bits, whichever rank is late; add a hash to the facts."""
        skew, hashes = random.Random(self.group.rank), []
        for i in range(REPEATS + self._further_calls(timing)):
            self._reset()
            if is_late := i < REPEATS:
                time.sleep(skew.uniform(0.0, MOST_SKEW_S))
            self.timer(1, not is_late)
            self.kernel.store()
            local = [_hash(arrays["receive"].view("u1").data) for arrays in self.arrays.values()]
            hashes.append(list(chain(*self.group.gather(local))))
        result = self.check(integers=False, prefix="after timing, ")
        if result.error is not None:
            return result, facts
        difference = _difference(hashes, self.op.equal_on_all_ranks)
        facts = {
            **facts,
            "deterministic": "yes" if difference is None else f"no ({difference})",
            "hash": hashes[0][0] if self.op.equal_on_all_ranks else _hash("".join(hashes[0]).encode()),
        }
        return replace(result, error=difference and f"not deterministic: {difference}"), facts

    def _further_calls(self, timing: Timing) -> int:
        """The same number on every rank: all of them have seen the same times."""
        each_s = median(timing.measurement["samples_s"]) + self.op.operand_bytes(self.case) / HASHED_BYTES_PER_S
        return min(MOST_CHECKED - REPEATS, int(max(CHECKED_S, CHECKED_SHARE * timing.spent_s) / each_s))

    def _reset(self) -> None:
        """Put the outputs back to what the kernel must find."""
        for rank, arrays in self.arrays.items():
            self.op.reset_rank(self.case, rank, arrays)
        self.kernel.load()


@dataclass(frozen=True)
class GroupSampling:
    """A kernel of all ranks that is warmed up and sampled slice by slice."""

    sampler: Sampler
    """Decides alike on all ranks, because all of them see the same numbers."""
    part: RankPart
    rules: Rules
    before: dict[str, Any] | None

    def end(self) -> Timing:
        """The samples. Notes have the median of each part of the work, measured alone."""
        part, device = self.part, self.part.kernel.device
        facts = part.timer.facts() if device is not None else {}
        timing = timing_of(self.sampler.measurement(), device, self.before, facts)
        timing = replace(timing, spent_s=self.sampler.spent_s)
        for name, kernel in part.kernel.parts.items():
            clock = GroupClock(callloop.each_timer(kernel), part.group)
            alone = measure_kernel(clock, self.rules, take_sample(clock, 1), "python")
            timing.notes[f"{name}_alone_s"] = median(alone["samples_s"])
        return timing


def _worst(verdicts: list[tuple[int, Verdict]]) -> tuple[int, Verdict]:
    """The first verdict that failed, with its rank; if all passed, the one with the largest error."""
    failed = [(rank, verdict) for rank, verdict in verdicts if not verdict.passed]
    return failed[0] if failed else max(verdicts, key=lambda item: item[1].error or 0.0)


def _difference(hashes: list[list[str]], equal_on_all_ranks: bool) -> str | None:
    """The first difference between ranks or calls, as text. `hashes` has one list per call with one hash per rank."""
    for call, of_ranks in enumerate(hashes, 1):
        for rank, value in enumerate(of_ranks):
            if equal_on_all_ranks and value != of_ranks[0]:
                return f"call {call}: rank {rank} has other bits than rank 0"
        for rank, value in enumerate(of_ranks):
            if value != hashes[0][rank]:
                return f"call {call}: rank {rank} has other bits than after call 1"
    return None


def _hash(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
