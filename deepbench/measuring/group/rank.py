"""One rank of a group: it joins the group and measures its part of one case in step with the other ranks.

All ranks take the same steps on the same numbers (`GroupClock`), so they decide alike without asking each other. A
process may serve several ranks, for example if it drives all GPUs of a machine.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, cast

from deepbench.measuring import worker
from deepbench.measuring.group import link
from deepbench.measuring.launch import Request

if TYPE_CHECKING:
    from deepbench.core.backend import GroupBackend
    from deepbench.core.collective import CollectiveOp
    from deepbench.results.record import Record


def main() -> None:
    """Serve the one case that the coordinator sends."""
    group = link.join(os.environ)
    request = Request.of(group.receive())
    # The time-out of the coordinator comes first, because it knows which rank the others wait for. This one ends ranks
    # that the coordinator does not reach.
    group.watch(2 * request.timeout_s + 10)
    if request.cpus:
        os.sched_setaffinity(0, {request.cpus[group.rank]})
    worker.import_numpy()
    record = measure_rank(request, group)
    if group.rank == 0 or record["status"] != "ok":
        group.send({"record": record})
    group.receive()  # ends this process with the coordinator: destructors of libraries may hang
    sys.exit(0)


def measure_rank(request: Request, group: link.Group) -> Record:
    """Measure one round of a case; the record as this rank sees it."""
    from deepbench.core.errors import Unsupported
    from deepbench.measuring import steps
    from deepbench.measuring.group.steps import RankPart, describe_group

    case, op, backend = request.case, cast("CollectiveOp", request.op), cast("GroupBackend", request.backend)

    def measure(findings: steps.StepResults) -> None:
        group.exchange_hosts()
        ranks = [group.rank] if group.ranks > 1 else list(range(case.problem.ranks))
        steps.check_memory(request, max(len(ranks), group.local_ranks))
        if case.settings["cache"] != "hot":
            raise Unsupported("the buffers of a group are used again and again; choose cache=hot")
        backend.settle(group)
        findings.library = steps.open_library(request)
        steps.check_device_memory(request)
        group.phase("join")
        backend.join(group, case)
        findings.group = describe_group(group, backend)
        group.phase(link.JOINED)
        integers = op.integer_bound(case) >= 1  # their sums are exact in any order as long as they fit the type
        arrays = {rank: op.rank_operands(case, rank, integers) for rank in ranks}
        group.phase("prepare")
        part = RankPart.prepare(group, op, backend, case, arrays)
        findings.prepared = steps.StepResult(
            notes=op.facts(case) | part.kernel.notes, warnings=steps.loop_warnings(part.kernel)
        )
        group.phase("first call")
        first = part.first_call()
        group.phase("check")
        findings.before = part.check(integers)
        if integers and findings.before.error is None:
            findings.before = part.check_random_numbers()
        if findings.before.error is not None:
            return
        group.phase("measure")
        sampling = part.begin(request.sampling_rules, first)
        _, findings.waited_s = worker.take_turns(sampling.sampler, group.send_once, group.wait)
        findings.timing = sampling.end()
        group.phase("check again")
        findings.after, findings.group = part.check_again(findings.group, findings.timing)

    return steps.record_of(request, measure, f"rank {group.rank} on {group.host}: ")


if __name__ == "__main__":
    main()
