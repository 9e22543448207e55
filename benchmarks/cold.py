"""Is cold cold here? Matrix times vector, limited by memory, with hot and with cold caches, in one interleaved run.

The matrix of the first row is far larger than all caches: even hot, it comes from memory at the memory's rate.
Cold rates of matrices that would fit into a cache must not exceed it, and hot ones should.
Run: python benchmarks/cold.py
"""

from __future__ import annotations

from deepbench.core import stats, units
from deepbench.core.case import Case
from deepbench.core.op import find_op
from deepbench.core.precision import find_precision
from deepbench.machine import describe
from deepbench.measuring.heat import measure_case
from deepbench.ops.gemm import Gemm
from deepbench.plan.modes import DEFAULT
from deepbench.results import summary

ROUNDS = 5


def rate(setting: str, problem: Gemm, threads: int) -> float:
    """Bytes a second of the least traffic, from one fresh process."""
    chosen = () if setting == "hot" else (("cache", setting),)
    c = Case("gemm", problem, "forward", find_precision("f32"), "onednn", threads, chosen)
    record = measure_case(c, 1, DEFAULT.rules, 120.0)
    assert record["status"] == "ok", record["reason"]
    return float(find_op("gemm").traffic_bytes(c) / summary.process_number(record["measurement"]).time_s)


def main() -> None:
    """A row a size of the matrix."""
    threads = describe.default_threads()
    caches = describe.cache_bytes() or 64 * 2**20
    sizes = [4 * caches, caches // 4, caches // 32]
    problems = [Gemm(m=round((size / 4) ** 0.5), n=1, k=round((size / 4) ** 0.5)) for size in sizes]
    found: dict[tuple[Gemm, str], list[float]] = {(p, s): [] for p in problems for s in ("hot", "cold", "weights")}
    for _ in range(ROUNDS):
        for problem, setting in found:
            found[problem, setting].append(rate(setting, problem, threads))
    # Rates: the upper quartile is the lower quartile of times.
    best = {key: -stats.lower_quartile([-r for r in rates]) for key, rates in found.items()}
    memory = best[problems[0], "hot"]
    print(f"all caches together: {units.data_bytes(caches)}; memory: {memory / 1e9:.1f} GB/s")
    for p in problems:
        hot, cold, weights = (best[p, s] / 1e9 for s in ("hot", "cold", "weights"))
        size = units.data_bytes(4 * p.m * p.k)
        print(
            f"matrix {size:>9}: hot {hot:6.1f} GB/s, cold {cold:6.1f}, weights {weights:6.1f}; "
            f"hot/cold {hot / cold:.2f}, cold/memory {cold * 1e9 / memory:.2f}"
        )


if __name__ == "__main__":
    main()
