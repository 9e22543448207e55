"""How often does a fleet of equal hosts accuse one of them, and is a host at 90 % of a core found?

python benchmarks/fleet.py [FLEETS]      as root: hosts are network namespaces of this machine, measured in turn

Prints one line per fleet. Equal hosts share two cores here, which is far noisier than a cluster.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.hosts.lab import Lab

HOSTS, CASE = 3, "gemm m=1024 n=1024 k=1024 f32 openblas threads=1"


def main(fleets: int) -> None:
    """Equal fleets first, then some with a slow host."""
    for shares in [{}] * fleets + [{"h1": 0.9}] * max(1, fleets // 3):
        with Lab(HOSTS, None, shares) as lab:
            start = time.monotonic()
            words = ["fleet", CASE, "--hostfile", "hosts", "--one-by-one", "--links", "none", "-o", "fleet.jsonl"]
            lab.start([sys.executable, "-m", "deepbench", *words], PYTHONPATH=str(Path.cwd())).communicate()
            shown = [sys.executable, "-m", "deepbench", "show", "fleet.jsonl", "--json"]
            said = json.loads(lab.start(shown, PYTHONPATH=str(Path.cwd())).communicate()[0])
            rows = said["hosts"]
            told = ", ".join(f"{r['time_over_others']:.3f} p {r['p']:.1g} {r['verdict']}" for r in rows)
            kind = "slowed" if shares else "equal"
            took = time.monotonic() - start
            print(f"{kind:7} {rows[0]['runs'].split()[0]:>2} runs {took:4.0f} s  {told}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
