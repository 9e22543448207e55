"""One rank of a group: joins, measures its part of one case in step with the others, and rank 0 tells what came out.

A process may serve several ranks (one that drives all GPUs of a machine): `parts` has the arrays of each.

All ranks run the same steps on the same numbers (`GroupClock`), so they decide alike without asking each other.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from deepbench.measure import worker
from deepbench.measure.group import link as groups

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.collective import CollectiveOp
    from deepbench.core.kernel import Kernel
    from deepbench.core.op import Arrays
    from deepbench.measure.group.link import Group

# Calls whose results are compared bit by bit, each rank arriving after a random pause of up to so many seconds.
REPEATS, MOST_SKEW_S = 3, 0.005


def main() -> None:
    """Serve the one case that the hub sends."""
    group = groups.join(os.environ)
    request = group.receive()
    # The hub decides first, and knows who is waited for; this is for ranks that it cannot reach.
    group.watch(2 * request["timeout_s"] + 10)
    if cpus := request.get("cpus"):
        os.sched_setaffinity(0, {cpus[group.rank]})
    worker.import_numpy_without_threads()
    found = measure_rank(request, group)
    if group.rank == 0 or found["status"] != "ok":
        group.send({"record": found})
    group.receive()  # ends with the hub: libraries' own goodbyes may hang
    sys.exit(0)


def measure_rank(request: dict[str, Any], group: Group) -> Any:
    """The record of one case as this rank sees it; every way out is one."""
    from deepbench.core.case import parse_case
    from deepbench.results.record import make_record

    case = parse_case(request["case"])
    result: Any = make_record(case, request["round"], "ok")
    started, clock = datetime.now(UTC), perf_counter()
    with worker.recorded(result):
        _fill(result, case, request, group)
    if result["status"] not in ("ok", "wrong"):  # what is wrong all ranks know
        result["reason"] = f"rank {group.rank} on {group.host}: {result['reason']}"
    result["process"] = worker.process_facts(request, started, perf_counter() - clock)
    return result


def _fill(result: dict[str, Any], case: Case, request: dict[str, Any], group: Group) -> None:
    from deepbench.core import errors
    from deepbench.core.backend import find_backend
    from deepbench.core.op import find_op
    from deepbench.machine import describe
    from deepbench.measure.clock import measure_kernel, take_sample
    from deepbench.native import callloop
    from deepbench.plan.modes import Rules
    from deepbench.results.record import make_warning

    op: Any = find_op(case.op)
    backend: Any = find_backend(case.backend)
    group.meet()
    hosts, alone = group.hosts, group.ranks == 1
    here = case.problem.ranks if alone else group.local_ranks
    worker.refuse_too_large(here * op.operand_bytes(case), case.settings, here * op.workspace_bytes(case))
    if case.settings["cache"] != "hot":
        raise errors.Unsupported("buffers of a group are used again and again; choose cache=hot")
    backend.settle(group)
    result["library"] = backend.open()
    free = backend.memory_free()
    if free is not None and op.operand_bytes(case) > free:
        raise errors.OutOfMemory(f"needs {op.operand_bytes(case)} bytes on the GPU, free are {free}")
    group.phase("join")
    backend.join(group, case)
    result["group"] = {
        "launcher": group.place.launcher,
        "hosts": {host: hosts.count(host) for host in dict.fromkeys(hosts)},
        "interconnect": dict(zip(hosts, group.gather(describe.interconnect()), strict=True)),
        "oversubscribed": backend.device == "cpu" and _oversubscribed(group),
        **backend.group_facts(),
    }
    group.phase("inputs")
    whole = op.integer_bound(case) >= 1
    parts = {r: op.rank_operands(case, r, whole) for r in (range(case.problem.ranks) if alone else [group.rank])}
    group.phase("prepare")
    kernel = backend.prepare_ranks(case, parts)
    result["notes"] |= op.facts(case) | kernel.notes
    each = callloop.each_timer(kernel)
    clock = GroupClock(each, group)
    group.phase("first call")
    _put_back(op, case, parts, kernel)
    first = take_sample(clock, 1)
    group.phase("check")
    # Whole numbers first: exact in whatever order they are added, while their sums fit the type.
    if not _passes(result, "before", group, op, case, parts, kernel, whole):
        return
    if whole:
        for rank, arrays in parts.items():
            op.fill_send(case, rank, arrays, integers=False)
        _put_back(op, case, parts, kernel)
        each(1)
        if not _passes(result, "before", group, op, case, parts, kernel, whole=False):
            return
    group.phase("measure")
    before = kernel.device.conditions() if kernel.device is not None else None
    # In a first call ranks meet: that is no time of a message.
    rules = replace(Rules(**request["rules"]), first_call_counts_s=None)
    measurement = measure_kernel(clock, rules, first, each.kind)
    result["measurement"] = measurement.as_dict()
    if kernel.device is not None:
        seen = {"before": before, "after": kernel.device.conditions(), **each.facts()}
        result["measurement"]["device"] = seen
        result["warnings"] += [make_warning(*w) for w in kernel.device.warnings(seen)]
    if kernel.parts:
        result["notes"] |= _parts(case, kernel, group, rules)
    group.phase("check again")
    _deterministic(result, group, op, case, parts, kernel, each)


def _parts(case: Case, kernel: Kernel, group: Group, rules: Any) -> dict[str, Any]:
    """Medians of what the work is made of, each alone: seconds by name."""
    from deepbench.measure.clock import measure_kernel, take_sample
    from deepbench.native import callloop

    found = {}
    for name, part in kernel.parts.items():
        clock = GroupClock(callloop.each_timer(part), group)
        measured = measure_kernel(clock, rules, take_sample(clock, 1), "python")
        found[f"{name}_alone_s"] = median(measured.samples_s)
    return found


class GroupClock:
    """The clock of all ranks: of each call the time of the slowest. Every rank gets the same numbers."""

    turn = 1

    def __init__(self, each: Any, group: Group) -> None:
        self._each, self._group = each, group
        self._now = max(group.gather(0.0))
        self._start = perf_counter()

    def run(self, turns: int) -> int:
        """Make so many calls, each after a barrier; nanoseconds of the slowest ranks together."""
        times = self._each(turns)
        everything = self._group.gather([perf_counter() - self._start, times])
        self._now = everything[0][0]
        return sum(map(max, zip(*(times for _, times in everything), strict=True)))

    def evidence(self) -> None:
        """None: ranks elsewhere cannot be watched from here."""
        return None

    def now(self) -> float:
        """Seconds, by the clock of rank 0 at the last call."""
        return float(self._now)


def _hash(array: Any) -> str:
    return hashlib.sha256(memoryview(array.view("u1"))).hexdigest()[:32]


def _oversubscribed(group: Group) -> bool:
    """Whether a host has more ranks than cores that they may use together."""
    from deepbench.machine import describe

    quota = describe.cpu_quota()
    told = group.gather([group.host, group.cpus, quota])
    for host in set(group.hosts):
        cores = len(set(chain(*(cpus for name, cpus, _ in told if name == host))))
        quotas = [q for name, _, q in told if name == host and q is not None]
        if group.hosts.count(host) > min([cores, *quotas]):
            return True
    return False


def _put_back(op: CollectiveOp, case: Case, parts: dict[int, Arrays], kernel: Kernel) -> None:
    for rank, arrays in parts.items():
        op.reset_rank(case, rank, arrays)
    kernel.load()


def _passes(
    result: dict[str, Any],
    when: str,
    group: Group,
    op: CollectiveOp,
    case: Case,
    parts: dict[int, Arrays],
    kernel: Kernel,
    whole: bool,
) -> bool:
    """Whether every rank found what it must; the first that did not is told, by all of them."""
    from deepbench.measure.check import verdict_of

    kernel.store()
    verdicts = {rank: verdict_of(op.compare_rank(case, rank, arrays, whole)) for rank, arrays in parts.items()}
    found = [{"rank": rank, "sentence": v.sentence, **v.as_dict()} for rank, v in verdicts.items() if not v.passed]
    found = found or [max(({"rank": r, **v.as_dict()} for r, v in verdicts.items()), key=lambda v: v["error"] or 0.0)]
    # Every process knows what is wrong with any rank, so all of them stop here; what is kept is the worst of all.
    told = list(chain(*group.gather(found)))
    failed = [v for v in told if not v["passed"]]
    worst = failed[0] if failed else max(told, key=lambda v: v["error"] or 0.0)
    result["check"][when] = {n: v for n, v in worst.items() if n not in ("rank", "sentence")}
    if failed:
        after = "after timing, " if when == "after" else ""
        result["status"] = "wrong"
        result["reason"] = f"{after}rank {worst['rank']} received {worst['sentence']}"
        return False
    return True


def _deterministic(
    result: dict[str, Any],
    group: Group,
    op: CollectiveOp,
    case: Case,
    parts: dict[int, Arrays],
    kernel: Kernel,
    each: Any,
) -> None:
    """Whether all ranks, and all calls, leave the same bits, whoever comes late."""
    late = random.Random(group.rank)
    seen: list[list[str]] = []
    for _ in range(REPEATS):
        _put_back(op, case, parts, kernel)
        time.sleep(late.uniform(0.0, MOST_SKEW_S))
        each(1, False)
        kernel.store()
        seen.append(list(chain(*group.gather([_hash(arrays["receive"]) for arrays in parts.values()]))))
    if not _passes(result, "after", group, op, case, parts, kernel, whole=False):
        return
    differs = None
    for i, hashes in enumerate(seen):
        if op.equal_on_all_ranks and len(set(hashes)) > 1:
            other = next(r for r, h in enumerate(hashes) if h != hashes[0])
            differs = f"call {i + 1}: rank {other} has other bits than rank 0"
            break
        changed = [r for r, h in enumerate(hashes) if h != seen[0][r]]
        if changed:
            differs = f"call {i + 1}: rank {changed[0]} has other bits than after call 1"
            break
    result["group"] |= {
        "deterministic": "yes" if differs is None else f"no ({differs})",
        "hash": hashlib.sha256("".join(seen[0]).encode()).hexdigest()[:32] if not op.equal_on_all_ranks else seen[0][0],
    }
    if differs is not None:
        result["status"], result["reason"] = "wrong", f"not deterministic: {differs}"


if __name__ == "__main__":
    main()
