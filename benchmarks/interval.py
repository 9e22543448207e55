"""Where the reach of the interval between processes comes from: a simulation, printed as the table in `stats.py`.

For n normal numbers, the 95 % quantile of |lower quartile - its long-run value| / spread.
Run: python benchmarks/interval.py
"""

from __future__ import annotations

import numpy as np

from deepbench.core import stats

SETS = 400_000


def reach(n: int, generator: np.random.Generator) -> float:
    """The factor for n numbers."""
    values = np.sort(generator.standard_normal((SETS, n)), axis=1)
    quartile = np.quantile(values, 0.25, axis=1)
    spread = values[:, n // 2 if n > 3 else -1] - values[:, 0]
    return float(np.quantile(np.abs(quartile - quartile.mean()) / spread, 0.95))


def main() -> None:
    """Print n, the simulated factor, and the one in the program."""
    generator = np.random.default_rng(1)
    for n, known in stats.HALF_WIDTH_95.items():
        print(f"{n:3}  simulated {reach(n, generator):.2f}  in stats.py {known:.2f}")


if __name__ == "__main__":
    main()
