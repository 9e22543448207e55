"""How often does the verdict on a simulated fleet name a healthy host, and how many runs find a host at 90 %?

python benchmarks/fleet_verdict.py [FLEETS]

Times are 1 plus exponential noise, as interference only adds time. The first host takes longer where `slow` is above 1.
Runs follow as in a session: five, and up to thirty while the verdict needs more.
"""

import random
import sys
from collections import Counter

from deepbench.core import stats
from deepbench.judge import outliers

KERNELS, LEAST_RUNS, MOST_RUNS = 4, 5, 30


def fleet(rng: random.Random, hosts: int, noise: float, slow: float) -> tuple[int, set[int], set[int]]:
    """The number of runs, the hosts that are slow, and those that are undecided."""
    times = {kernel: {host: [] for host in range(hosts)} for kernel in range(KERNELS)}
    for run in range(1, MOST_RUNS + 1):
        for of_kernel in times.values():
            for host, values in of_kernel.items():
                values.append((1.0 if host else slow) * (1 + rng.expovariate(1 / noise)))
        if run < LEAST_RUNS:
            continue
        overall = outliers.deviations(outliers.combined_times(times), outliers.KERNEL_RATIO)
        parts = {
            (kernel, host): s
            for kernel, of_kernel in times.items()
            for host, s in outliers.deviations(of_kernel, outliers.KERNEL_RATIO, hosts * KERNELS).items()
        }
        p_values = stats.holm({name: s.p for name, s in parts.items()})
        found = [*overall.items(), *((name[1], s.corrected(p_values[name])) for name, s in parts.items())]
        named = {host for host, s in found if s.slower}
        undecided = {host for host, s in found if s.undecided} - named
        if not any(host not in named and (host in undecided or s.open) for host, s in overall.items()):
            break
    return run, named, undecided


def main(fleets: int) -> None:
    """One line per kind of fleet."""
    for hosts, noise, slow in ((4, 0.01, 1), (4, 0.05, 1), (16, 0.02, 1), (4, 0.02, 1 / 0.9), (4, 0.05, 1 / 0.9)):
        rng, runs, found = random.Random(5), [], Counter()
        for _ in range(fleets):
            number, named, undecided = fleet(rng, hosts, noise, slow)
            runs.append(number)
            wrong = named - ({0} if slow > 1 else set())
            found.update({"names a healthy host": bool(wrong), "finds the slow one": 0 in named and slow > 1})
            found.update({"undecided": bool(undecided and not named)})
        runs.sort()
        shown = ", ".join(f"{what} {number}" for what, number in found.items())
        print(f"{hosts:2} hosts, noise {noise:.0%}, slow {slow:.2f}: {shown} of {fleets}; ", end="")
        print(f"runs: median {runs[fleets // 2]}, most {runs[-1]}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
