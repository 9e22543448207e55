"""What follows from the seed of a run and from its samples so far, the same in every framework.

A run that is resumed after an evaluation goes on exactly like one that was not interrupted, and two frameworks train on
the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

# Of a batch to the usual one, as far as the learning rate grows with it.
MOST_RATIO = 16.0


class Order:
    """The examples of each batch: every example once per epoch, in an order that follows from the seed."""

    def __init__(self, seed: int, examples: int, batch: int) -> None:
        self._seed, self._examples, self._batch = seed, examples, batch
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def batch(self, samples: int) -> NDArray[np.int64]:
        """The indices of the batch that follows so many samples."""
        found = np.empty(0, np.int64)
        while len(found) < self._batch:
            epoch, at = divmod(samples + len(found), self._examples)
            if epoch != self._epoch:
                chance = np.random.Generator(np.random.PCG64(np.random.SeedSequence((self._seed, 0, epoch))))
                self._epoch, self._order = epoch, chance.permutation(self._examples)
            found = np.concatenate([found, self._order[at : at + self._batch - len(found)]])
        return found


def random_seed(seed: int, samples: int, rank: int = 0) -> int:
    """The seed of random numbers after so many samples; each rank has its own."""
    return int(np.random.SeedSequence((seed, 1, samples, *([rank] if rank else []))).generate_state(1)[0])


def rate_factor(batch: int, usual: int, is_sgd: bool) -> float:
    """A factor of the learning rate: the ratio of the batches for SGD (Goyal and others, 2017), else its root.

    Beyond 16 times the usual batch it stays, because larger rates diverge.
    """
    ratio = min(batch / usual, MOST_RATIO)
    return ratio if is_sgd else math.sqrt(ratio)


def warm_up_then_zero(share: float) -> Callable[[float], float]:
    """A factor that rises from 0 during a share of the run and then falls to 0, both linearly."""
    return lambda over: min((over + 1e-3) / share, (1.0 - over) / (1.0 - share))
