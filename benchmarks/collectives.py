"""All-reduce of ours against plain C on the same MPI: the same barrier, the same call, the slowest rank of each.

In every process both take samples in turn, on the same buffers. Printed are the medians over processes, and the ratio
ours / plain with its interval over them.

Run: python benchmarks/collectives.py [PROCESSES]     needs mpi4py, mpich and a C compiler
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from deepbench.core import stats, units
from deepbench.core.backend import find_backend
from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.native import callloop, mpi

HERE = Path(__file__).parent
SIZES = (2, 256, 100_000, 1_000_000, 4_194_304)
RANKS, SAMPLES, SAMPLE_S = 2, 60, 1.5e-3


def build(folder: str) -> str:
    """Compile the C loop with the MPI's own compiler."""
    compiler = os.path.join(os.path.dirname(mpi.find(mpi.MPICH).mpiexec), "mpicc")
    path = f"{folder}/plain.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(HERE / "plain_allreduce.c"), "-o", path], check=True)
    return path


def one_rank(n: int, path: str) -> None:
    """Rank 0 prints both medians in seconds."""
    c = parse_case(f"all_reduce n={n} ranks={RANKS} forward f32 mpich threads=1")
    library: Any = find_backend("mpich")
    library.open()
    library.world = library.mpi.initialize("multiple", RANKS)
    rank = library.world.rank
    operation: Any = find_op("all_reduce")
    arrays = operation.rank_operands(c, rank, integers=False)
    operation.reset_rank(c, rank, arrays)
    each = callloop.each_timer(library.prepare(c, arrays))
    assert each.kind == "native", "no compiled loop; install with a C compiler"
    function = ctypes.CDLL(path).plain_allreduce

    def plain(calls: int) -> list[int]:
        times = (ctypes.c_int64 * calls)()
        send, receive = (ctypes.c_void_p(arrays[x].ctypes.data) for x in ("send", "receive"))
        function(send, receive, n, calls, times)
        return list(times)

    def sample(timer: Any, calls: int) -> float:
        """Mean over calls of the slowest rank."""
        times = np.array(timer(calls))
        slowest = np.empty_like(times)
        library.world.Allreduce(times, slowest, op=library.mpi.MPI.MAX)
        return float(slowest.mean()) / 1e9

    for timer in (each, plain) * 5:
        sample(timer, 20)
    calls = max(1, round(SAMPLE_S / sample(plain, 20)))
    calls = library.world.bcast(calls)
    found: dict[Any, list[float]] = {each: [], plain: []}
    for i in range(SAMPLES):
        for timer in ((each, plain), (plain, each))[i % 2]:
            found[timer].append(sample(timer, calls))
    if rank == 0:
        print(median(found[each]), median(found[plain]), flush=True)
    library.mpi.MPI.Finalize()


def main() -> None:
    """Print a row a size."""
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"{'floats':>9}  {'ours':>9}  {'plain C':>9}  ours − plain  ours / plain")
    with tempfile.TemporaryDirectory() as folder:
        path, found = build(folder), mpi.find(mpi.MPICH)
        for n in SIZES:
            words = [found.mpiexec, "-n", str(RANKS), sys.executable, __file__, "--rank", str(n), path]
            pairs = []
            for _ in range(processes):
                done = subprocess.run(words, check=True, capture_output=True, text=True)
                pairs.append(tuple(map(float, done.stdout.split())))
            ratios = sorted(a / b for a, b in pairs)
            low, high = stats.median_interval(ratios) or (ratios[0], ratios[-1])
            a, b = median(a for a, _ in pairs), median(b for _, b in pairs)
            difference = median(a - b for a, b in pairs) * 1e6
            interval = f"{median(ratios):.3f} ({low:.3f} to {high:.3f})"
            print(f"{n:9}  {units.seconds(a):>9}  {units.seconds(b):>9}  {difference:+9.2f} µs  {interval}")


if __name__ == "__main__":
    if "--rank" in sys.argv:
        one_rank(int(sys.argv[2]), sys.argv[3])
    else:
        main()
