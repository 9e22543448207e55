"""Does one command on a Slurm allocation name the slowed node of four, and none of four equal ones?

python benchmarks/fleet_slurm.py [SLOWED [EQUAL]]      as root, with Slurm installed; default: 10 and 20 trials

The nodes are network namespaces of this machine with a slurmd each (tests/hosts/slurm.py), and are measured in turn. On
the slowed node, a library waits after each product of matrices for a ninth of the time that the product took: that node
has 90 % of the speed of the others. A trial has ten runs of three processes each. Prints after how many runs, five or
more, each node was first named. A node of an equal fleet that is named after any of them is a false one.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from deepbench.fleets.file import read_fleet
from deepbench.fleets.judge import judge
from tests.hosts.slurm import SlurmLab, missing

ROOT = Path(__file__).parent.parent

LEAST_RUNS, RUNS = 5, 10

# Without these, a run has no peak of the machine to probe.
NO_LIBRARIES = {f"DEEPBENCH_{name}_PATH": "/no/such/library.so" for name in ("AOCL", "MKL", "ONEDNN", "OPENBLAS")}

CASE = "gemm m=512 n=512 k=512 f32 own threads=1"

LIBRARY = f"""
import os, socket, sys, time
sys.path.insert(0, {str(ROOT)!r})
from tests.help.liars import Honest

SLOWED = socket.gethostname() == os.environ.get("DEEPBENCH_TEST_SLOWED")

class Own(Honest):
    name = title = "own"

    def execute(self, case, arrays):
        begin = time.perf_counter()
        super().execute(case, arrays)
        end = time.perf_counter()
        while SLOWED and time.perf_counter() - end < (end - begin) / 9:
            pass

BACKEND = Own()
"""


def trial(cluster: SlurmLab, name: str, slowed: str) -> tuple[dict[str, int], str]:
    """After how many runs each node was first named, of those that were; and all nodes after the last run."""
    words = ["fleet", CASE, "--one-by-one", "--links", "none", "--runs", str(RUNS), "--rounds", "3", "-o", name]
    command = ["salloc", "--quiet", "--exclusive", "-N4", sys.executable, "-m", "deepbench", *words]
    variables = {"PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": str(cluster.folder / "plugins"), **NO_LIBRARIES}
    start = time.monotonic()
    process = cluster.start(command, **variables, DEEPBENCH_TEST_SLOWED=slowed)
    text = process.communicate()[0]
    took = f"{time.monotonic() - start:.0f} s"
    file = read_fleet(cluster.folder / name)
    runs = list(file.runs)
    if {r.status for r in runs} != {"ok"} or len(runs) != 4 * RUNS:
        raise RuntimeError(f"the fleet is not complete:\n{text}")
    named: dict[str, int] = {}
    for number in range(LEAST_RUNS, RUNS + 1):
        file.runs = [r for r in runs if r.run <= number]
        verdicts = judge(file).hosts
        for verdict in verdicts:
            if verdict.is_slow:
                named.setdefault(verdict.host, number)
    last = [f"{v.host} {v.overall.ratio:.3f} p {v.overall.p:.1g}" for v in verdicts if v.overall is not None]
    return named, f"{took}; {', '.join(last)}"


def main(slowed_trials: int, equal_trials: int) -> int:
    """All trials in random order; 1 if the target is missed: 9 of 10 slowed nodes found, and no false name."""
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    draw = random.Random(1)
    trials = ["slowed"] * slowed_trials + ["equal"] * equal_trials
    draw.shuffle(trials)
    found, false = [], 0
    with SlurmLab() as cluster:
        (cluster.folder / "plugins" / "backends").mkdir(parents=True)
        (cluster.folder / "plugins" / "backends" / "own.py").write_text(LIBRARY)
        for number, kind in enumerate(trials):
            slowed = draw.choice(cluster.names) if kind == "slowed" else "none"
            named, details = trial(cluster, f"trial{number}.jsonl", slowed)
            if kind == "slowed" and slowed in named:
                found.append(named[slowed])
            false += len(named.keys() - {slowed})
            print(f"{number:3} {kind:6} {slowed:4} named after runs: {named or 'none'}; {details}", flush=True)
    print(f"the slowed node was named in {len(found)} of {slowed_trials} trials, after {sorted(found)} runs")
    print(f"false names: {false} in {len(trials)} trials, of which {equal_trials} had equal nodes")
    return int(len(found) < 0.9 * slowed_trials or false > 0)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(numbers + [10, 20][len(numbers) :])))
