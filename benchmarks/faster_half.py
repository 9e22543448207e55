"""The distribution of the difference between two sides' faster halves: prints the table in `stats.py`.

python benchmarks/faster_half.py [SETS]

Of n normal numbers on each side the lower half (n // 2 + 1) counts. T is the difference of their means over its
standard error, as if they were all there were. It is that of Student, times a scale, with fewer degrees of freedom:
both are fitted to the simulated 5 % and 0.1 % points.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from deepbench.core import stats


def quantiles(n: int, sets: int) -> tuple[float, float, float]:
    """Points of |T| that chance exceeds in 5, 1 and 0.1 % of sets."""
    rng, half = np.random.default_rng(n), n // 2 + 1
    sides = np.sort(rng.standard_normal((2, sets, n)), axis=2)[:, :, :half]
    means, variances = sides.mean(axis=2), sides.var(axis=2, ddof=1)
    t = np.abs(means[1] - means[0]) / np.sqrt(variances.sum(axis=0) / half)
    return tuple(float(q) for q in np.quantile(t, (0.95, 0.99, 0.999)))


def fitted(q05: float, q001: float) -> tuple[float, float]:
    """Scale and degrees of freedom of a Student's t with these points."""
    low, high = 0.3, 200.0
    for _ in range(60):
        middle = (low * high) ** 0.5
        ratio = stats.t_critical(middle, 0.999) / stats.t_critical(middle, 0.95)
        low, high = (middle, high) if ratio > q001 / q05 else (low, middle)
    return q05 / stats.t_critical(high, 0.95), high


def main(sets: int) -> None:
    """A line a number of processes."""
    for n in range(2, 21):
        q05, q01, q001 = quantiles(n, sets)
        scale, freedom = fitted(q05, q001)
        print(
            f"{n}: ({scale:.3f}, {freedom:.2f}),  "
            f"# 1 %: {q01:.2f}, fitted {scale * stats.t_critical(freedom, 0.99):.2f}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
