"""All time steps of recurrent layers and their gradients, in float64, for the first rows of the batch.

Each layer is computed as one or two single layers, one for each direction of time. Arrays of a single layer are in the
order of its steps: in the second direction of time they begin with the last time step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deepbench.core.precision import STORAGE_ROUNDOFF
from deepbench.ops.recurrent.cell import Cell, values_of
from deepbench.ops.recurrent.problem import STATE_SCALE, STATE_SHIFT, layer_arrays

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# Errors of sums over steps are estimated from about this many rows of dr in layers that are too large for all rows.
SAMPLED_ROWS = 64
# Of the values that a sum over steps takes, so many are computed; the others are taken to be as large as the next one.
PARTIAL_SUMS = 64

# Steps whose inputs are projected together, which reads the weights once.
STEPS_AT_ONCE = 64

# Error of computing one stored value of a step from others, in units of the roundoff.
ROUNDINGS = 1.0
# Half the distance of the smallest numbers of a type, which have fewer bits: below 2^-14 in f16, never reached in bf16.
SMALLEST_STEP = {"f16": 2.0**-25, "bf16": 0.0}


@dataclass
class States:
    """Hidden states y (T, rows, H), intermediate results of each step, and sizes of sums (T, rows)."""

    y: Array
    steps: list[Arrays]
    magnitude: Array


@dataclass
class ReferenceLayer:
    """A layer of a stack: its input x (T, rows, width), and a cell with its states for each direction of time."""

    x: Array
    cells: list[Cell]
    states: list[States]

    def output(self) -> Array:
        """The states of all directions of time side by side, (T, rows, H or 2·H), as the next layer reads them."""
        both = zip(self.cells, self.states, strict=True)
        return np.concatenate([cell.rounded(cell.in_order(states.y)) for cell, states in both], axis=-1)


def reference(case: Case, arrays: Arrays) -> Arrays:
    """All outputs of this direction."""
    p, rows = case.problem, case.problem.batch
    stack = run_layers(case, arrays, rows, p.layers)
    outputs = {"y": stack[-1].output()}
    if not case.precision.roundoff:
        outputs["y"] = np.clip(np.rint(outputs["y"] * STATE_SCALE + STATE_SHIFT), 0, 255)
    if case.direction == "forward":
        return outputs
    computed = {name: np.zeros(array.shape) for name, array in arrays.items() if name[0] == "d" and name != "dy"}
    ones = np.ones(rows)
    for number, gradients in backpropagate_layers(case, arrays, stack, rows):
        of_layer = np.zeros(stack[number].x.shape)
        for cell, found in zip(stack[number].cells, gradients, strict=True):
            targets = layer_arrays(case, computed, number, cell.way)
            values = {**found.of_data, "db": found.of_biases(ones)}
            values |= {f"d{name}": found.of_matrix(name, ones) for name in found.matrices}
            of_layer += cell.in_order(values.pop("dx"))
            for name, value in values.items():
                if name in targets:
                    targets[name][...] = value
        if number == 0 and "dx" in computed:
            computed["dx"] = of_layer
    return {**outputs, **computed}


def run_layers(case: Case, arrays: Arrays, rows: int, count: int) -> list[ReferenceLayer]:
    """The first `count` layers, each from the output of the one before."""
    p = case.problem
    x, stack = values_of(case, arrays["x"][:, :rows]), list[ReferenceLayer]()
    for number in range(count):
        cells = [Cell(case, arrays, number, way) for way in range(p.time_directions)]
        stack.append(ReferenceLayer(x, cells, [run_steps(case, cell.in_order(x), cell) for cell in cells]))
        x = stack[-1].output()
    return stack


def run_steps(case: Case, x: Array, cell: Cell) -> States:
    """All steps, each from the reference's previous state. The rows are as many as x (T, rows, width) has."""
    p, rows = case.problem, x.shape[1]
    h = cell.h0[:rows]
    c = None if cell.c0 is None else cell.c0[:rows]
    y, magnitude = np.empty((p.timesteps, rows, p.hidden)), np.empty((p.timesteps, rows))
    steps = []
    for t in range(p.timesteps):
        if t % STEPS_AT_ONCE == 0:
            projected = cell.project(x[t : t + STEPS_AT_ONCE])
        magnitude[t] = cell.magnitude(h, x[t])
        y[t], intermediates = cell.step(projected[t % STEPS_AT_ONCE], h, c)
        h, c = cell.rounded(y[t]), intermediates.get("next_c")
        if case.direction != "forward":
            steps.append(intermediates)
    return States(y, steps, magnitude)


def run_single_steps(x: Array, y: Array, cell: Cell) -> States:
    """All steps, each from the library's previous state in `y` (T, rows, H); computed as one product."""
    timesteps, rows, hidden = y.shape
    before = np.concatenate([cell.h0[:rows][None], y[:-1]]).reshape(-1, hidden)
    with np.errstate(invalid="ignore", over="ignore"):  # poison is NaN, and must remain visible in the result
        flat = x.reshape(timesteps * rows, -1)
        _, results = cell.step(cell.project(flat), before, None)
        by_step = {name: values.reshape(timesteps, rows, -1) for name, values in results.items()}
        steps = [{name: values[t] for name, values in by_step.items()} for t in range(timesteps)]
        return States(y, steps, cell.magnitude(before, flat).reshape(timesteps, rows))


@dataclass
class Gradients:
    """Data gradients of each row; weight gradients as sums over rows, each row counted as often as `counts` says."""

    of_data: Arrays
    size_of_data: Arrays
    """Norms to which the tolerance of data gradients is relative."""
    x: Array
    """(T, rows, width): the input of each step."""
    h: Array
    """(T, rows, H): the state before each step."""
    reset: Array | None
    """(T, rows, H): what the last gate of a GRU multiplies, if that is not h."""
    gates: Array
    """(T, rows, biases, H): gradients of the sums in each gate; the last one of a GRU is that of h'·r_g + b_h."""
    variance: Array | None
    """Shaped like `gates`: mean square of their errors, if all steps store 16 bits; None if they store f32."""
    variance_of_dx: Array | None
    """Shaped like `x`: the same of dx."""
    recurrent: tuple[int, ...]
    """Indices of the gates of r in `gates`; those of w are the first ones."""
    has_w: bool

    @property
    def matrices(self) -> tuple[str, ...]:
        """The weights that have gradients."""
        return ("w", "r") if self.has_w else ("r",)

    def factors(self, name: str) -> list[tuple[Array, int]]:
        """For each gate of w or r: what multiplies the rows of its matrix in each step, and its index in `gates`."""
        if name == "w":
            return [(self.x, gate) for gate in range(len(self.recurrent))]
        return [(self._multiplied_by(gate), gate) for gate in self.recurrent]

    def of_biases(self, counts: Array) -> Array:
        """db."""
        gradient: Array = np.einsum("tngh,n->gh", self.gates, counts)
        return gradient

    def of_matrix(self, name: str, counts: Array, weights: Array | None = None) -> Array:
        """dw or dr, or combinations of its rows with `weights` (combinations, rows)."""
        parts = []
        for before, gate in self.factors(name):
            left = before if weights is None else before @ weights.T
            flat = (left * counts[:, None]).reshape(-1, left.shape[-1])
            parts.append(flat.T @ self.gates[:, :, gate].reshape(len(flat), -1))
        return np.stack(parts, axis=1)

    def errors_of_biases(self, counts: Array, roundoff: float) -> Array:
        """Root mean square of the errors of db; see `errors_of_matrix`."""
        assert self.variance is not None, "the caller has asked for 16 bits"
        ones = np.ones((*self.gates.shape[:2], 1))
        propagated = np.einsum("tngh,n->gh", self.variance, counts**2)
        running = self._running_squares(ones, counts, range(len(propagated)))[0]
        errors: Array = np.sqrt(propagated + roundoff**2 * running)
        return errors

    def errors_of_matrix(self, name: str, counts: Array, roundoff: float, weights: Array) -> Array:
        """Root mean square of the errors of combinations of rows of dw or dr, where all steps store 16 bits.

        Errors of the gates' gradients add with random signs; equal rows of the batch have equal errors, which add in
        full. A sum over steps may be stored in 16 bits after every step, from the last one to the first, and each of
        its values is rounded: PyTorch's autograd adds the gradients of the steps like this.
        """
        assert self.variance is not None, "the caller has asked for 16 bits"
        squares, rows = counts**2, weights.shape[1]
        sample = np.arange(rows) if len(weights) == rows else np.arange(0, rows, max(1, rows // SAMPLED_ROWS))
        parts = []
        for before, gate in self.factors(name):
            left = (before**2 @ (weights**2).T) * squares[:, None]
            flat = left.reshape(-1, len(weights))
            propagated = flat.T @ self.variance[:, :, gate].reshape(len(flat), -1)
            running = self._running_squares(before[:, :, sample], counts, [gate])[:, 0]
            if len(weights) < rows:  # per square of a row of the factor, which differs between rows
                size = np.einsum("tnh,n->h", before**2, counts)
                share = running.sum(axis=0) / max(float(size[sample].sum()), np.finfo(float).tiny)
                # Where the terms of a sum have one sign more often than not, its own values are larger than usual.
                own = self._running_squares(before @ weights.T, counts, [gate])[:, 0]
                running = np.maximum(np.outer(weights**2 @ size, share), own)
            parts.append(propagated + roundoff**2 * running)
        errors: Array = np.sqrt(np.stack(parts, axis=1))
        return errors

    def _running_squares(self, left: Array, counts: Array, gates: Iterable[int]) -> Array:
        """Sums of the squares of all values that a sum over steps takes, from the last step on: (left, gates, H)."""
        gates, steps = list(gates), len(left)
        total, squares = np.zeros((2, left.shape[-1], len(gates) * self.gates.shape[-1]))
        at_once = -(-steps // PARTIAL_SUMS)
        for end in range(steps, 0, -at_once):
            part = slice(max(0, end - at_once), end)
            flat = (left[part] * counts[:, None]).reshape(-1, left.shape[-1])
            total += flat.T @ self.gates[part][:, :, gates].reshape(len(flat), -1)
            squares += (part.stop - part.start) * total**2
        sums: Array = squares.reshape(left.shape[-1], len(gates), -1)
        return sums

    def _multiplied_by(self, gate: int) -> Array:
        """What multiplies the rows of r in this gate: the state before each step, or what a GRU has reset of it."""
        return self.reset if gate == self.recurrent[-1] and self.reset is not None else self.h

    def size_of_gates(self, counts: Array) -> Array:
        """Norms over all steps and rows (biases, H), to which the tolerance of weight gradients is relative."""
        size: Array = np.sqrt((self.gates**2 * counts[None, :, None, None]).sum(axis=(0, 1)))
        return size

    def size_of_rows(self, name: str, counts: Array) -> Array:
        """The same of what multiplies the rows of w or r."""
        before = self.x if name == "w" else self.h
        size: Array = np.sqrt((before**2 * counts[:, None]).sum(axis=(0, 1)))
        return size


def backpropagate_layers(
    case: Case, arrays: Arrays, stack: list[ReferenceLayer], rows: int
) -> Iterator[tuple[int, list[Gradients]]]:
    """Numbers of the layers from the last to the first, each with the gradients of its directions of time."""
    dy, variance = arrays["dy"][:, :rows].astype(np.float64), None
    for number in reversed(range(len(stack))):
        layer = stack[number]
        both = []
        for cell, states in zip(layer.cells, layer.states, strict=True):
            own_variance = None if variance is None else cell.in_order(cell.own_part(variance))
            own_dy = cell.in_order(cell.own_part(dy))
            both.append(backpropagate(case, own_dy, own_variance, cell.in_order(layer.x), states, cell))
        yield number, both
        dy = sum_over_ways(layer.cells, [g.of_data["dx"] for g in both])
        known = [g.variance_of_dx for g in both if g.variance_of_dx is not None]
        variance = sum_over_ways(layer.cells, known) if known else None


def sum_over_ways(cells: list[Cell], values: list[Array]) -> Array:
    """The sum of what each direction of time has, each in the order of its steps; in the order of time."""
    total: Array = sum(cell.in_order(v) for cell, v in zip(cells, values, strict=True))  # type: ignore[assignment]
    return total


def backpropagate(
    case: Case, dy: Array, variance_of_dy: Array | None, x: Array, states: States, cell: Cell
) -> Gradients:
    """Gradients through all steps, from the last to the first; and, where steps store 16 bits, their errors.

    `dy` (T, rows, H); `variance_of_dy` is the mean square of its errors, None if it has none.
    """
    p, hidden, rows = case.problem, case.problem.hidden, dy.shape[1]
    gates = np.empty((p.timesteps, rows, len(cell.b), hidden))
    reset = np.empty((p.timesteps, rows, hidden)) if p.cell == "gru" and not cell.resets_after else None
    dh, dc = np.zeros((2, rows, hidden))
    recurrent = (0, 1, 3) if cell.resets_after else tuple(range(p.gates))
    transposed = np.ascontiguousarray(cell.r.T)
    errors = _Errors.of(case, gates, transposed, recurrent)
    with np.errstate(invalid="ignore", over="ignore"):
        for t in reversed(range(p.timesteps)):
            s = states.steps[t]
            dh = dh + dy[t]
            if errors and variance_of_dy is not None:
                errors.dh += variance_of_dy[t]
            # Every gradient of a gate is a factor times dh or, in an LSTM, times dc.
            of_dh: dict[int, Array] = {}
            of_dc: dict[int, Array] = {}
            keeps: Array | float = 0.0
            if p.cell == "vanilla":
                of_dh = {0: (states.y[t] > 0) * 1.0}
            elif p.cell == "lstm":
                tanh_c = np.tanh(s["next_c"])
                of_dh = {3: tanh_c * s["o"] * (1 - s["o"])}
                of_dc = {
                    0: s["g"] * s["i"] * (1 - s["i"]),
                    1: s["c"] * s["f"] * (1 - s["f"]),
                    2: s["i"] * (1 - s["g"] ** 2),
                }
                from_h = s["o"] * (1 - tanh_c**2)
                if errors:
                    errors.to_cell(from_h, dc, dh)
                dc = dc + dh * from_h
            else:
                u, r, g = s["u"], s["r"], s["g"]
                of_g = (1 - u) * (1 - g**2)
                of_dh, keeps = {0: (s["h"] - g) * u * (1 - u), 2: of_g}, u
                if reset is None:
                    of_dh |= {1: of_g * s["inner"] * r * (1 - r), 3: of_g * r}
            for gate, factor in of_dh.items():
                gates[t, :, gate] = dh * factor
            for gate, factor in of_dc.items():
                gates[t, :, gate] = dc * factor
            if reset is not None:
                d_reset = gates[t, :, 2] @ transposed[2 * hidden :]
                gates[t, :, 1] = d_reset * s["h"] * s["r"] * (1 - s["r"])
                reset[t] = s["reset"]
                dh = dh * keeps + d_reset * s["r"] + gates[t, :, :2].reshape(rows, -1) @ transposed[: 2 * hidden]
                continue
            before, dh = dh, dh * keeps + gates[t][:, recurrent].reshape(rows, -1) @ transposed
            if errors:
                errors.step(t, of_dh, of_dc, keeps, before)
            if p.cell == "lstm":
                dc = dc * s["f"]
                if errors:
                    errors.dc *= s["f"] ** 2
    from_x = gates[:, :, : p.gates]
    # A data gradient contains the errors of all later steps, which decay.
    norms = np.linalg.norm(gates.reshape(p.timesteps, rows, -1), axis=-1, keepdims=True)
    largest = np.maximum.accumulate(norms[::-1], axis=0)[::-1]
    variance_of_dx = None
    if cell.w is None:
        dx, dx_size = from_x.sum(axis=2), largest
    else:
        flat = from_x.reshape(p.timesteps, rows, -1)
        dx, dx_size = flat @ cell.w.T, largest * np.linalg.norm(cell.w, axis=1)
        if errors and p.layers > 1:
            of_gates = errors.gates[:, :, : p.gates].reshape(p.timesteps, rows, -1)
            variance_of_dx = of_gates @ np.square(cell.w.T) + errors.rounding(dx)
    of_data = {"dx": dx, "dh0": dh, **({"dc0": dc} if p.cell == "lstm" else {})}
    sizes = {"dx": dx_size, "dh0": largest[0], "dc0": largest[0]}
    before = np.concatenate([cell.h0[:rows][None], states.y[:-1]])
    variance = errors.gates if errors else None
    has_w = cell.w is not None
    return Gradients(of_data, sizes, x, before, reset, gates, variance, variance_of_dx, recurrent, has_w)


class _Errors:
    """Mean squares of the errors of all gradients, where every step stores its results in 16 bits.

    Rounding adds an error with a random sign to each stored value. It travels back through the steps as gradients do,
    so mean squares travel with the squares of the same factors and weights.
    """

    def __init__(
        self, roundoff: float, least: float, gates: Array, transposed: Array, recurrent: tuple[int, ...]
    ) -> None:
        self._square, self._least = (ROUNDINGS * roundoff) ** 2, least**2
        self._of_gates, self._recurrent = gates, recurrent
        self._weights = transposed**2
        self.gates = np.zeros(gates.shape)
        self.dh, self.dc = np.zeros((2, gates.shape[1], gates.shape[-1]))

    @classmethod
    def of(cls, case: Case, gates: Array, transposed: Array, recurrent: tuple[int, ...]) -> _Errors | None:
        """None if steps store f32. Where a GRU resets before its product, the caller uses the cruder bound."""
        roundoff = STORAGE_ROUNDOFF[case.precision.data]
        before = case.problem.cell == "gru" and len(recurrent) == gates.shape[2]
        return (
            None
            if not roundoff or before
            else cls(roundoff, SMALLEST_STEP[case.precision.data], gates, transposed, recurrent)
        )

    def rounding(self, values: Array) -> Array:
        """Of values that are computed from rounded ones: relative to each, and to a typical one of its row."""
        typical = np.mean(values**2, axis=-1, keepdims=True)
        rounding: Array = self._square * (values**2 + typical) + self._least
        return rounding

    def to_cell(self, factor: Array, dc: Array, dh: Array) -> None:
        """The gradient of an LSTM's cell receives `factor` times that of its state."""
        self.dc = self.dc + (self.dh + self.rounding(dh)) * factor**2 + self.rounding(dc + dh * factor)

    def step(self, t: int, of_dh: dict[int, Array], of_dc: dict[int, Array], keeps: Array | float, dh: Array) -> None:
        """One step back; `dh` is the gradient of the state that the step left."""
        of_h = self.dh + self.rounding(dh)
        for gate, factor in of_dh.items():
            self.gates[t, :, gate] = of_h * factor**2 + self.rounding(self._of_gates[t, :, gate])
        for gate, factor in of_dc.items():
            self.gates[t, :, gate] = self.dc * factor**2 + self.rounding(self._of_gates[t, :, gate])
        back = self.gates[t][:, self._recurrent].reshape(len(dh), -1) @ self._weights
        self.dh = of_h * np.square(keeps) + back
