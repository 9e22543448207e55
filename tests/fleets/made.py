"""Fleet files made by hand: hosts with times, and what their records say."""

import copy
from pathlib import Path

from deepbench.core.case import parse_case
from deepbench.fleets.file import SCHEMA, FleetFile, HostRun
from tests.help import samples

CASE = parse_case(samples.TEXT.format(backend="mkl")).text
SECOND = parse_case("conv n=1 c=3 h=8 w=8 k=4 r=3 s=3 forward f32 onednn threads=1").text


def host_run(host, run, seconds, machine=(), environment=(), minute=0, status="ok", libraries=None):
    """One run of a host; `seconds` by case."""
    header = samples.header()
    header["machine"] |= {"host": host, **dict(machine)}
    header["started"] = f"2026-11-27T{run:02}:{minute:02}:00+00:00"
    header["libraries"] = copy.deepcopy(libraries or {})
    records = [samples.measured(text=text, seconds=s, round_number=run) for text, s in seconds.items()]
    for record in records:
        record["process"] |= {"environment": dict(environment)}
        record["status"] = status
    return HostRun(host, run, "ok", None, [header, *records])


def fleet(hosts, runs=10, cases=(CASE,), expected=None, facts=None, **header):
    """A fleet file in memory. `hosts` has the factor of the times of each host: a number, or one by case.

    Times of a run are a little longer than those of the run before.
    """
    found = [
        host_run(
            name,
            run,
            {
                case: (1 + run / 1000) * 1e-3 * (factor.get(case, 1.0) if isinstance(factor, dict) else factor)
                for case in cases
            },
            **(facts or {}).get(name, {}),
        )
        for run in range(1, runs + 1)
        for name, factor in hosts.items()
    ]
    content = {"schema": SCHEMA, "expected": list(expected or hosts), "words": [], "links": None, **header}
    return FleetFile(Path("fleet.jsonl"), content, found)


def with_links(file, factors, runs=10):
    """The same with links between all hosts; `factors` has those of pairs that take longer."""
    hosts = file.hosts
    for run in range(1, runs + 1):
        for i, a in enumerate(hosts):
            for b in hosts[i + 1 :]:
                seconds = 1e-2 * factors.get((a, b), 1.0) * (1 + run / 1000)
                text = "all_reduce n=4194304 ranks=2 forward f32 mpich threads=1"
                file.links.append(((a, b), samples.measured(text=text, seconds=seconds, round_number=run)))
    return file
