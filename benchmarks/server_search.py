"""How close the scenario `server` comes to the highest rate that really keeps its bound, on models of known speed.

    python benchmarks/server_search.py

Time is simulated, so that a search takes no time. The true rate is the highest one at which at most 1 % of 100,000
queries are late. A search has the seconds of `deepbench serve` by default.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from deepbench.applications.judge.serving import default_bound_s, poisson_arrivals
from deepbench.applications.training import scenarios
from deepbench.applications.training.inference import SECONDS
from deepbench.applications.training.scenarios import AnsweringModel
from deepbench.applications.training.serving_worker import SEARCH_SHARE

SEARCHES = 100

# Seconds of a batch of so many samples, and the largest batch.
MODELS: dict[str, tuple[Callable[[int], float], int]] = {
    "5 ms, one at a time": (lambda count: 5e-3, 1),
    "1 ms, one at a time": (lambda count: 1e-3, 1),
    "2.5 ms + 2.5 ms per sample": (lambda count: 2.5e-3 + 2.5e-3 * count, 128),
    "1 ms + 1 ms per sample": (lambda count: 1e-3 + 1e-3 * count, 128),
    "4 ms + 1 ms per sample": (lambda count: 4e-3 + 1e-3 * count, 128),
    "0.2 ms + 0.05 ms per sample": (lambda count: 2e-4 + 5e-5 * count, 128),
}


class Clock:
    """A clock that moves when a model works, or when somebody waits."""

    at = 0.0

    def now(self) -> float:
        return self.at

    def wait_until(self, at: float) -> None:
        self.at = max(self.at, at)


def model_of(service: Callable[[int], float]) -> AnsweringModel:
    clock = Clock()

    def answer(tests: list[int]) -> list[int]:
        clock.at += service(len(tests))
        return tests

    return AnsweringModel(answer, 1000, clock=clock)


def true_rate(service: Callable[[int], float], batch: int, bound_s: float, capacity: float) -> float:
    low, high = 0.2 * capacity, capacity
    for _ in range(12):
        rate = (low * high) ** 0.5
        arrivals = poisson_arrivals(rate, 100_000, 7)
        _, late = scenarios.on_schedule(model_of(service), arrivals, [0] * len(arrivals), batch, bound_s, 1000)
        low, high = (rate, high) if late <= 1000 else (low, rate)
    return low


def main() -> None:
    print(
        "| time of a batch | largest batch | rate found / true rate, median | 5 % to 95 % | searches without a rate |"
    )
    print("|---|---:|---:|---:|---:|")
    seed = scenarios.SEED
    for name, (service, batch) in MODELS.items():
        bound_s, capacity = default_bound_s(service(1)), batch / service(batch)
        true, found, none = true_rate(service, batch, bound_s, capacity), [], 0
        for search in range(SEARCHES):
            scenarios.SEED = seed + 1000 * search
            probes, best = scenarios.highest_rate(model_of(service), batch, capacity, bound_s, SEARCH_SHARE * SECONDS)
            found += [probes[-1]["rate"] / true] if best else []
            none += best is None
        few = statistics.quantiles(found, n=20)
        print(f"| {name} | {batch} | {statistics.median(found):.2f} | {few[0]:.2f} to {few[-1]:.2f} | {none} |")


if __name__ == "__main__":
    main()
