"""Our memory loops against STREAM's, typed out in C and compiled with all optimizations, in turn in one run.

python benchmarks/stream.py [ROUNDS]      wants gcc
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from deepbench.machine import describe
from deepbench.measuring import probes
from deepbench.measuring.heat import measure_case
from deepbench.plan.modes import DEFAULT

SIZE = 2**29


def main(rounds: int) -> None:
    """A row for each of triad and copy: the best of both sides over all rounds."""
    threads = describe.default_threads()
    best = {name: [0.0, 0.0] for name in ("triad", "copy")}
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "plain_stream")
        source = str(Path(__file__).parent / "plain_stream.c")
        subprocess.run(["gcc", "-O3", "-march=native", "-fopenmp", "-o", program, source], check=True)
        for _ in range(rounds):
            for name, streams in (("triad", 3), ("copy", 2)):
                n = SIZE // (4 * streams)
                words = subprocess.run(
                    [program, str(n)],
                    env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                    check=True,
                    capture_output=True,
                ).stdout.split()
                plain = float(words[0 if name == "triad" else 1])
                probe = probes.memory_probe(name, SIZE, threads)
                line = probe.measure(lambda case: measure_case(case, 1, DEFAULT.rules, 60.0))
                assert line is not None, "the loops are not built"
                assert line["what"] == "memory"
                best[name] = [max(best[name][0], plain), max(best[name][1], line["bytes_per_s"])]
    for name, (plain, ours) in best.items():
        print(f"{name:6} plain C {plain / 1e9:6.2f} GB/s, ours {ours / 1e9:6.2f} GB/s, ours/plain {ours / plain:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
