"""How often does `deepbench fleet --check` accuse a healthy host, and does it find one at 90 % of its speed?

python benchmarks/fleet_check.py                     simulated hosts, two minutes
python benchmarks/fleet_check.py MINUTES FILE        this machine, measured for so long; FILE keeps the times, and if
                                                     it exists, they are taken from it

Simulated: hosts and runs vary by as much as each row says. In the worst case of it, no disturbed process is seen to be
disturbed. Measured: this machine stands for all hosts. A pseudo-host is a piece of time, and a check is another.
"""

import json
import math
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from deepbench.core.case import parse_case
from deepbench.fleets.examination import LEAST_UNDISTURBED, is_busy
from deepbench.fleets.reference import MOST_ROUNDS, HostReference, MachineType, ReferenceKernel
from deepbench.machine import describe
from deepbench.measuring.heat import measure_case
from deepbench.plan.modes import DEFAULT
from deepbench.results.summary import process_time_s

THREADS = describe.default_threads()
CASES = [
    parse_case(text)
    for text in (
        f"gemm m=512 n=512 k=512 forward f32 openblas threads={THREADS}",
        "gemm m=512 n=256 k=512 forward f32 openblas threads=1",
        f"gemm m=4096 n=1 k=4096 forward f32 openblas threads={THREADS}",
        f"conv n=2 c=64 h=28 w=28 k=64 r=3 s=3 pad_h=1 pad_w=1 forward f32 onednn threads={THREADS}",
    )
]
TEXTS = [case.text for case in CASES]
MACHINE = MachineType("a CPU", THREADS, None, 2**34)
RUNS, HOSTS = 5, (3, 6, 12, 40)


def reference_of(times: list[list[list[float]]]) -> HostReference:
    """A reference from times by kernel, host and run."""
    kernels = [
        ReferenceKernel(case, 1.0, tuple(map(tuple, of_host))) for case, of_host in zip(CASES, times, strict=True)
    ]
    return HostReference(MACHINE, {}, {}, "default", kernels)


# ---- simulated

# Standard deviations: of hosts in each of the four kernels, and of runs. Then: the share of time in which something
# without a trace slows processes, by a third on average and for five processes on average.
MODELS = {
    "hosts 1 %, runs 1 %": ((0.01,) * 4, 0.01, 0.0),
    "hosts 3 %, runs 1 %": ((0.03,) * 4, 0.01, 0.0),
    "hosts 1 %, runs 4 %": ((0.01,) * 4, 0.04, 0.0),
    "hosts 0.3 % and 4 %": ((0.003, 0.003, 0.003, 0.04), 0.01, 0.0),
    "hosts 1 %, bursts": ((0.01,) * 4, 0.01, 0.05),
}
REFERENCES, CHECKS, SLOW = 250, 200, 1 / 0.9


class Host:
    """A simulated host: how long its kernels take."""

    def __init__(self, rng: random.Random, model: tuple[tuple[float, ...], float, float], slower: float = 1.0) -> None:
        spreads, self.run_spread, self.bursts = model
        common = rng.gauss(0, 1)  # what makes a host slow slows all of its kernels, more or less
        self.levels = [math.log(slower) + s * (0.8 * common + 0.6 * rng.gauss(0, 1)) for s in spreads]
        self.rng, self.burst_left, self.burst = rng, 0, 0.0

    def run(self) -> list[float]:
        """A time of each kernel."""
        times = []
        for level in self.levels:
            if self.burst_left == 0 and self.bursts and self.rng.random() < self.bursts / 5:
                self.burst_left, self.burst = 1 + int(self.rng.expovariate(1 / 5)), self.rng.expovariate(3)
            times.append(math.exp(level + self.rng.gauss(0, self.run_spread) + (self.burst_left > 0) * self.burst))
            self.burst_left = max(0, self.burst_left - 1)
        return times

    def look(self) -> dict[str, list[float]]:
        """The times of one look."""
        runs = [self.run() for _ in range(MOST_ROUNDS)]
        return {text: [run[i] for run in runs] for i, text in enumerate(TEXTS)}


def simulate() -> None:
    """One row per model and number of hosts."""
    print(f"{REFERENCES * CHECKS} checks of healthy hosts for each row, {RUNS} runs of each host of a reference")
    print(f"{'':22} {'hosts':>5} {'accused':>9} {'one look':>9} {'found at 90 %':>14}")
    for name, model in MODELS.items():
        for hosts in HOSTS:
            rng, accused, one_look, found = random.Random(f"{name} {hosts}"), 0, 0, 0
            for _ in range(REFERENCES):
                runs = [[host.run() for _ in range(RUNS)] for host in (Host(rng, model) for _ in range(hosts))]
                reference = reference_of([[[run[i] for run in h] for h in runs] for i in range(len(CASES))])
                for _ in range(CHECKS):
                    host = Host(rng, model)
                    first = host.look()
                    if any(f.is_slow for f in reference.findings(first)):
                        one_look += 1
                        accused += bool(reference.slow_in_both(first, host.look()))
                for _ in range(CHECKS // 20):
                    host = Host(rng, model, SLOW)
                    found += bool(reference.slow_in_both(host.look(), host.look()))
            n, slow = REFERENCES * CHECKS, REFERENCES * (CHECKS // 20)
            shares = f"{100 * accused / n:7.3f} % {100 * one_look / n:7.3f} % {100 * found / slow:12.0f} %"
            print(f"{name:22} {hosts:5} {shares}", flush=True)


# ---- measured

BLOCK, RESAMPLED, PSEUDO_HOSTS = 2 * MOST_ROUNDS, 100_000, 6

Round = dict[str, tuple[float, bool]]
"""By case: seconds per call, and whether other programs disturbed the process."""


def measure(minutes: float) -> list[Round]:
    """Rounds of all kernels, one after the other."""
    ends, rounds, number = time.monotonic() + 60 * minutes, [], 0
    while time.monotonic() < ends:
        number += 1
        records = [measure_case(case, number, DEFAULT.rules, 60.0) for case in random.sample(CASES, len(CASES))]
        wrong = [f"{r['case']}: {r['status']}, {r['reason']}" for r in records if r["status"] != "ok"]
        if wrong:
            sys.exit(f"cannot be measured here: {wrong[0]}")
        rounds.append({r["case"]: (process_time_s(r), is_busy(r)) for r in records})
    return rounds


def look_of(rounds: list[Round]) -> dict[str, list[float]]:
    """The undisturbed times of a look, of kernels with enough of them: those that may accuse a host."""
    found = {text: [r[text][0] for r in rounds if not r[text][1]] for text in TEXTS}
    return {text: times for text, times in found.items() if len(times) >= LEAST_UNDISTURBED}


def is_accused(reference: HostReference, rounds: list[Round], slower: float = 1.0) -> bool:
    """Whether a check that measures these rounds accuses the host; `slower` makes it one that is."""
    looks = [look_of(rounds[:MOST_ROUNDS]), look_of(rounds[MOST_ROUNDS:])]
    looks = [{text: [slower * t for t in times] for text, times in look.items()} for look in looks]
    return bool(reference.slow_in_both(*looks))


def reference_from(blocks: list[list[Round]]) -> HostReference | None:
    """A reference of pseudo-hosts, as it is made from a fleet file: of undisturbed runs, at least two of each host."""
    times = [[[r[text][0] for r in block if not r[text][1]] for block in blocks] for text in TEXTS]
    return reference_of(times) if all(len(t) >= 2 for of_kernel in times for t in of_kernel) else None


def evaluate(rounds: list[Round]) -> None:
    """Disjoint pieces of time first, then pieces that are drawn at random."""
    busy = sum(any(is_busy for _, is_busy in r.values()) for r in rounds)
    print(f"{len(rounds)} rounds of {len(CASES)} kernels; other programs disturbed {busy} of them")
    size = PSEUDO_HOSTS * RUNS
    if len(rounds) < size + 5 * BLOCK:
        sys.exit(f"these are too few rounds: {size + 5 * BLOCK} are needed, so measure longer")
    reference = reference_from([rounds[i : i + RUNS] for i in range(0, size, RUNS)])
    if reference is not None:
        windows = [rounds[i : i + BLOCK] for i in range(size, len(rounds) - BLOCK + 1, BLOCK)]
        accused, found = (sum(is_accused(reference, w, s) for w in windows) for s in (1.0, SLOW))
        print(f"reference of the first {size} rounds, then disjoint checks: {accused} of {len(windows)} accused")
        print(f"the same slowed to 90 %: {found} of {len(windows)} found; limit {1 + reference.detectable():.3f}")
    else:
        print("the first rounds make no reference, because other programs disturbed them")
    rng, accused, found, done = random.Random(1), 0, 0, 0
    while done < RESAMPLED:
        starts = rng.sample(range(len(rounds) // RUNS), PSEUDO_HOSTS)
        reference = reference_from([rounds[i * RUNS : (i + 1) * RUNS] for i in starts])
        if reference is None:
            done += 1  # no reference accuses nobody
            continue
        taken = {number for i in starts for number in range(i * RUNS, (i + 1) * RUNS)}
        for _ in range(20):
            start = rng.randrange(len(rounds) - BLOCK + 1)
            if not taken & set(range(start, start + BLOCK)):
                done += 1
                accused += is_accused(reference, rounds[start : start + BLOCK])
                found += is_accused(reference, rounds[start : start + BLOCK], SLOW)
    print(f"drawn at random, {PSEUDO_HOSTS} pseudo-hosts: {accused} of {done} accused ({100 * accused / done:.3f} %)")
    print(f"the same slowed to 90 %: {100 * found / done:.0f} % found")


def main(words: list[str]) -> None:
    """Simulate, or measure and evaluate."""
    if not words:
        simulate()
        return
    path = Path(words[1]) if len(words) > 1 else None
    if path is not None and path.exists():
        rounds = [{text: (t, busy) for text, (t, busy) in r.items()} for r in json.loads(path.read_text())]
    else:
        rounds = measure(float(words[0]))
        if path is not None:
            path.write_text(json.dumps(rounds))
    evaluate(rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
