"""Sizes of recurrent layers, and the shapes and types of their arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepbench.core.errors import Unsupported
from deepbench.core.problem import BaseProblem, choice, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

GATES = {"vanilla": 1, "lstm": 4, "gru": 3}

# Gradients that each direction computes.
DATA, WEIGHTS = ("dx", "dh0", "dc0"), ("dw", "dr", "db", "dw_deep")
GRADIENTS = {"backward": DATA + WEIGHTS, "backward_data": DATA, "backward_weights": WEIGHTS}

# Arrays that begin with axes for the layer and the direction of time.
PER_LAYER = ("h0", "c0", "r", "b", "dh0", "dc0", "dr", "db")

# The rows of the batch repeat after this many. The reference computes only these, and every other row must equal its
# distinct row, so every element is checked at the cost of a few rows. Odd, so that the blocks of rows in which
# libraries work are not multiples of it.
DISTINCT_ROWS = 5
LARGE_MULTIPLY_ADDS = 2**31

# A stack of more layers than any network here has is a typing error.
MOST_LAYERS = 100

# 8-bit states: u = rint(127·value + 128) for values in (-1, 1).
STATE_SCALE, STATE_SHIFT = 127.0, 128.0


@dataclass(frozen=True)
class Recurrent(BaseProblem):
    """Sizes of one layer or of a stack.

    `input_size` is the width of the first layer's input. 1, the default, stands for a recurrence without its input
    projection. `bidirectional` is 1 if every layer has a second direction of time.
    """

    cell: str = choice("vanilla", "lstm", "gru")
    hidden: int = size()
    batch: int = size()
    timesteps: int = size()
    input_size: int = size(default=1, omit_default=True)
    layers: int = size(default=1, most=MOST_LAYERS, omit_default=True)
    bidirectional: int = size(default=0, least=0, most=1, omit_default=True)

    @property
    def gates(self) -> int:
        """1, 4 or 3."""
        return GATES[self.cell]

    @property
    def time_directions(self) -> int:
        """1, or 2 if the layers are bidirectional."""
        return 1 + self.bidirectional

    @property
    def output_size(self) -> int:
        """Width of y: the states of all directions of time side by side."""
        return self.time_directions * self.hidden

    @property
    def is_recurrence_only(self) -> bool:
        """Whether this is the original's layer: the projection of its input does not count, and may be skipped."""
        return self.input_size == 1 and self.layers == 1 and not self.bidirectional

    def width(self, layer: int) -> int:
        """Width of a layer's input; layers are counted from 0."""
        return self.output_size if layer else self.input_size

    def counted_width(self, layer: int) -> int:
        """The same, or 0 where the projection of the input does not count."""
        return 0 if layer == 0 and self.input_size == 1 else self.width(layer)

    @property
    def products(self) -> int:
        """Multiply-adds that count, of all layers in one time step of one row."""
        widths = sum(self.hidden + self.counted_width(layer) for layer in range(self.layers))
        return self.gates * self.output_size * widths

    @property
    def distinct_rows(self) -> int:
        """Number of distinct rows in the batch."""
        return min(self.batch, DISTINCT_ROWS)

    @property
    def is_large(self) -> bool:
        """Whether the reference needs a second or more per row."""
        per_step = self.gates * self.hidden * (self.hidden + self.counted_width(self.layers - 1))
        return self.timesteps * per_step > LARGE_MULTIPLY_ADDS


def resets_after(case: Case) -> bool:
    """Whether this is a GRU that resets after its product, and so has one bias more than gates."""
    return bool(case.problem.cell == "gru" and case.settings["gru_reset"] == "after")


def skips_input(case: Case) -> bool:
    """Whether x is added to the gates as it is; only layers without another kind of input can do this."""
    return bool(case.settings["input"] == "skip" and case.problem.is_recurrence_only)


def weights_scale(case: Case) -> float:
    """Factor of 8-bit weights that gives `r` a spectral radius of about 1, as for floats."""
    return 8.9 * math.sqrt(case.problem.hidden)  # 8.9: root mean square of the s8 values in core/operands.py


def layout(case: Case) -> dict[str, tuple[tuple[int, ...], str]]:
    """The arrays of a direction, inputs first: name → shape and type."""
    p, types = case.problem, case.precision
    t, n, h, g, layers, ways = p.timesteps, p.batch, p.hidden, p.gates, p.layers, p.time_directions
    # oneDNN stores cell states and biases as f32, except in f16.
    wide = "f16" if types.name == "f16" else "f32"
    skip = skips_input(case)
    deep = {"w_deep": ((layers - 1, ways, p.output_size, g, h), types.weights)} if layers > 1 else {}
    inputs: dict[str, tuple[tuple[int, ...], str]] = {
        "x": ((t, n, h if skip else p.input_size), types.data),
        "h0": ((layers, ways, n, h), types.data),
        **({"c0": ((layers, ways, n, h), wide)} if p.cell == "lstm" else {}),
        **({} if skip else {"w": ((ways, p.input_size, g, h), types.weights)}),
        "r": ((layers, ways, h, g, h), types.weights),
        "b": ((layers, ways, g + resets_after(case), h), wide),
        **deep,
    }
    y = {"y": ((t, n, p.output_size), types.data)}
    if case.direction == "forward":
        return {**inputs, **y}
    computed = GRADIENTS[case.direction]
    gradients = {f"d{name}": (shape, "f32") for name, (shape, _) in inputs.items() if f"d{name}" in computed}
    return {**inputs, "dy": (y["y"][0], "f32"), **y, **gradients}


def layer_arrays(case: Case, arrays: Arrays, layer: int, way: int) -> Arrays:
    """The arrays of one layer in one direction of time, by the names and in the shapes of a single layer.

    They are views. x, y and their gradients are left out, because directions of time share them.
    """
    own = {name: arrays[name][layer, way] for name in PER_LAYER if name in arrays}
    for name in ("w", "dw"):
        if layer and f"{name}_deep" in arrays:
            own[name] = arrays[f"{name}_deep"][layer - 1, way]
        elif not layer and name in arrays:
            own[name] = arrays[name][way]
    return own


def single_layer(case: Case, arrays: Arrays, library: str) -> Arrays:
    """The arrays in the shapes of a single layer, for kernels that serve one layer in one direction of time.

    `Unsupported` for other layers names the `library`.
    """
    if case.problem.layers > 1 or case.problem.bidirectional:
        raise Unsupported(
            f"our kernels of {library} have one layer in one direction of time; choose layers=1 bidirectional=0"
        )
    return {**arrays, **layer_arrays(case, arrays, 0, 0)}
