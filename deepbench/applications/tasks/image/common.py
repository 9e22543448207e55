"""What all versions of image recognition share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepbench.applications.training.application import Rung

# Of the pixels, from 0 to 255.
MEAN, SCALE = 73.0, 90.0

CLASSES = 10
SMOOTHING = 0.05
"""The share of the wanted probability that all classes have together."""
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
WARM_UP = 0.2


def blocks(rung: Rung) -> list[tuple[int, int, int]]:
    """Channels in, channels out and stride of each residual block."""
    widths, count = rung.settings["widths"], rung.settings["blocks"]
    found = [(widths[0], widths[0], 1)] * count
    for before, width in pairwise(widths):
        found += [(before, width, 2), *[(width, width, 1)] * (count - 1)]
    return found


def grade(labels: NDArray[np.integer[Any]], tests: Sequence[int], answers: Sequence[int]) -> float:
    """The share of right answers."""
    return float(np.mean(np.array(answers) == labels[list(tests)]))
