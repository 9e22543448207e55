"""Sizes of a recurrent layer, and the shapes and types of its arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepbench.core.problem import BaseProblem, choice, size

if TYPE_CHECKING:
    from deepbench.core.case import Case

GATES = {"vanilla": 1, "lstm": 4, "gru": 3}

# Gradients that each direction computes.
DATA, WEIGHTS = ("dx", "dh0", "dc0"), ("dw", "dr", "db")
GRADIENTS = {"backward": DATA + WEIGHTS, "backward_data": DATA, "backward_weights": WEIGHTS}

# The rows of the batch repeat after this many. The reference computes only these, and every other row must equal its
# distinct row, so every element is checked at the cost of a few rows. Odd, so that the blocks of rows in which
# libraries work are not multiples of it.
DISTINCT_ROWS = 5
LARGE_MULTIPLY_ADDS = 2**31

# 8-bit states: u = rint(127·value + 128) for values in (-1, 1).
STATE_SCALE, STATE_SHIFT = 127.0, 128.0


@dataclass(frozen=True)
class Recurrent(BaseProblem):
    """Sizes of one layer."""

    cell: str = choice("vanilla", "lstm", "gru")
    hidden: int = size()
    batch: int = size()
    timesteps: int = size()

    @property
    def gates(self) -> int:
        """1, 4 or 3."""
        return GATES[self.cell]

    @property
    def distinct_rows(self) -> int:
        """Number of distinct rows in the batch."""
        return min(self.batch, DISTINCT_ROWS)

    @property
    def is_large(self) -> bool:
        """Whether the reference needs a second or more per row."""
        return self.timesteps * self.gates * self.hidden**2 > LARGE_MULTIPLY_ADDS


def resets_after(case: Case) -> bool:
    """Whether this is a GRU that resets after its product, and so has one bias more than gates."""
    return bool(case.problem.cell == "gru" and case.settings["gru_reset"] == "after")


def weights_scale(case: Case) -> float:
    """Factor of 8-bit weights that gives `r` a spectral radius of about 1, as for floats."""
    return 8.9 * math.sqrt(case.problem.hidden)  # 8.9: root mean square of the s8 values in core/operands.py


def layout(case: Case) -> dict[str, tuple[tuple[int, ...], str]]:
    """The arrays of a direction, inputs first: name → shape and type."""
    p, types = case.problem, case.precision
    t, n, h, g = p.timesteps, p.batch, p.hidden, p.gates
    # oneDNN stores cell states and biases as f32, except in f16.
    wide = "f16" if types.name == "f16" else "f32"
    skip = case.settings["input"] == "skip"
    inputs: dict[str, tuple[tuple[int, ...], str]] = {
        "x": ((t, n, h if skip else 1), types.data),
        "h0": ((n, h), types.data),
        **({"c0": ((n, h), wide)} if p.cell == "lstm" else {}),
        **({} if skip else {"w": ((1, g, h), types.weights)}),
        "r": ((h, g, h), types.weights),
        "b": ((g + resets_after(case), h), wide),
    }
    y = {"y": ((t, n, h), types.data)}
    if case.direction == "forward":
        return {**inputs, **y}
    computed = GRADIENTS[case.direction]
    gradients = {f"d{name}": (shape, "f32") for name, (shape, _) in inputs.items() if f"d{name}" in computed}
    return {**inputs, "dy": ((t, n, h), "f32"), **y, **gradients}
