"""All time steps of a recurrent layer and their gradients, in float64, for the first rows of the batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deepbench.core.precision import STORAGE_ROUNDOFF
from deepbench.ops.recurrent.cell import Cell
from deepbench.ops.recurrent.problem import STATE_SCALE, STATE_SHIFT

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# Errors of sums over steps are estimated from about this many rows of dr in layers that are too large for all rows.
SAMPLED_ROWS = 64
# Of the values that a sum over steps takes, so many are computed; the others are taken to be as large as the next one.
PARTIAL_SUMS = 64

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


def reference(case: Case, arrays: Arrays) -> Arrays:
    """All outputs of this direction."""
    rows = case.problem.batch
    cell = Cell(case, arrays)
    states = run_steps(case, arrays, rows, cell)
    y = states.y if cell.is_float else states.y * STATE_SCALE + STATE_SHIFT
    if case.direction == "forward":
        return {"y": y if cell.is_float else np.clip(np.rint(y), 0, 255)}
    gradients = backpropagate(case, arrays, states, rows, cell)
    ones = np.ones(rows)
    outputs = {"y": y, **gradients.of_data, **gradients.of_weights(ones), "dr": gradients.of_recurrent(ones)}
    return {name: outputs[name] for name in arrays if name in outputs}


def run_steps(case: Case, arrays: Arrays, rows: int, cell: Cell) -> States:
    """All steps, each from the reference's previous state."""
    p = case.problem
    h = cell.state(arrays["h0"][:rows])
    c = arrays["c0"][:rows].astype(np.float64) if p.cell == "lstm" else None
    y, magnitude = np.empty((p.timesteps, rows, p.hidden)), np.empty((p.timesteps, rows))
    steps = []
    for t in range(p.timesteps):
        magnitude[t] = cell.magnitude(h)
        y[t], intermediates = cell.step(arrays["x"][t, :rows].astype(np.float64), h, c)
        h, c = cell.rounded(y[t]), intermediates.get("next_c")
        if case.direction != "forward":
            steps.append(intermediates)
    return States(y, steps, magnitude)


def run_single_steps(arrays: Arrays, y: Array, cell: Cell) -> States:
    """All steps, each from the library's previous state in `y` (T, rows, H); computed as one product."""
    timesteps, rows, hidden = y.shape
    y = cell.state(y)
    before = np.concatenate([cell.state(arrays["h0"][:rows])[None], y[:-1]]).reshape(-1, hidden)
    with np.errstate(invalid="ignore", over="ignore"):  # poison is NaN, and must remain visible in the result
        _, results = cell.step(arrays["x"][:, :rows].astype(np.float64).reshape(timesteps * rows, -1), before, None)
        by_step = {name: values.reshape(timesteps, rows, -1) for name, values in results.items()}
        steps = [{name: values[t] for name, values in by_step.items()} for t in range(timesteps)]
        return States(y, steps, cell.magnitude(before).reshape(timesteps, rows))


@dataclass
class Gradients:
    """Data gradients of each row; weight gradients as sums over rows, each row counted as often as `counts` says."""

    of_data: Arrays
    size_of_data: Arrays
    """Norms to which the tolerance of data gradients is relative."""
    x: Array
    h: Array
    """(T, rows, H): the state before each step."""
    reset: Array | None
    """(T, rows, H): what the last gate of a GRU multiplies, if that is not h."""
    gates: Array
    """(T, rows, biases, H): gradients of the sums in each gate; the last one of a GRU is that of h'·r_g + b_h."""
    variance: Array | None
    """Shaped like `gates`: mean square of their errors, if all steps store 16 bits; None if they store f32."""
    recurrent: tuple[int, ...]
    """Indices of the gates of r in `gates`; those of w are the first ones."""
    has_w: bool

    def of_weights(self, counts: Array) -> Arrays:
        """db, and dw if there is a w."""
        db = np.einsum("tngh,n->gh", self.gates, counts)
        if not self.has_w:
            return {"db": db}
        return {"dw": np.einsum("tnx,tngh,n->xgh", self.x, self.gates[:, :, : len(self.recurrent)], counts), "db": db}

    def of_recurrent(self, counts: Array, weights: Array | None = None) -> Array:
        """dr, or combinations of its rows with `weights` (combinations, H)."""
        parts = []
        for gate in self.recurrent:
            before = self._multiplied_by(gate)
            left = before if weights is None else before @ weights.T
            flat = (left * counts[:, None]).reshape(-1, left.shape[-1])
            parts.append(flat.T @ self.gates[:, :, gate].reshape(len(flat), -1))
        return np.stack(parts, axis=1)

    def errors_of_weights(self, counts: Array, roundoff: float, weights: Array) -> Arrays:
        """Root mean square of the errors of dw, db and combinations of rows of dr, where all steps store 16 bits.

        Errors of the gates' gradients add with random signs; equal rows of the batch have equal errors, which add in
        full. A sum over steps may be stored in 16 bits after every step, from the last one to the first, and each of
        its values is rounded: PyTorch's autograd adds the gradients of the steps like this.
        """
        assert self.variance is not None, "the caller has asked for 16 bits"
        squares = counts**2
        ones = np.ones((*self.x.shape[:2], 1))
        of_db = np.einsum("tngh,n->gh", self.variance, squares)
        errors = {"db": np.sqrt(of_db + roundoff**2 * self._running_squares(ones, counts, range(len(of_db)))[0])}
        if self.has_w:
            gates = range(len(self.recurrent))
            of_dw = np.einsum("tnx,tngh,n->xgh", self.x**2, self.variance[:, :, : len(gates)], squares)
            errors["dw"] = np.sqrt(of_dw + roundoff**2 * self._running_squares(self.x, counts, gates))
        rows = weights.shape[1]
        sample = np.arange(rows) if len(weights) == rows else np.arange(0, rows, max(1, rows // SAMPLED_ROWS))
        parts = []
        for gate in self.recurrent:
            before = self._multiplied_by(gate)
            left = (before**2 @ (weights**2).T) * squares[:, None]
            propagated = left.reshape(-1, len(weights)).T @ self.variance[:, :, gate].reshape(-1, rows)
            running = self._running_squares(before[:, :, sample], counts, [gate])[:, 0]
            if len(weights) < rows:  # per square of a row of h, which differs between rows
                size = np.einsum("tnh,n->h", before**2, counts)
                share = running.sum(axis=0) / max(float(size[sample].sum()), np.finfo(float).tiny)
                # Where the terms of a sum have one sign more often than not, its own values are larger than usual.
                own = self._running_squares(before @ weights.T, counts, [gate])[:, 0]
                running = np.maximum(np.outer(weights**2 @ size, share), own)
            parts.append(propagated + roundoff**2 * running)
        errors["dr"] = np.sqrt(np.stack(parts, axis=1))
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

    def sizes(self, counts: Array) -> Arrays:
        """Norms over all steps and rows, to which the tolerance of weight gradients is relative."""
        db = np.sqrt((self.gates**2 * counts[None, :, None, None]).sum(axis=(0, 1)))
        x = np.sqrt((self.x**2 * counts[:, None]).sum())
        return {
            "dw": x * db[: len(self.recurrent)],
            "db": np.sqrt(self.gates.shape[0] * counts.sum()) * db,
            "recurrent_gates": db[list(self.recurrent)],
            "h": np.sqrt((self.h**2 * counts[:, None]).sum(axis=(0, 1))),
        }


def backpropagate(case: Case, arrays: Arrays, states: States, rows: int, cell: Cell) -> Gradients:
    """Gradients through all steps, from the last to the first; and, where steps store 16 bits, their errors."""
    p, hidden = case.problem, case.problem.hidden
    gates = np.empty((p.timesteps, rows, len(cell.b), hidden))
    reset = np.empty((p.timesteps, rows, hidden)) if p.cell == "gru" and not cell.resets_after else None
    dh, dc = np.zeros((2, rows, hidden))
    recurrent = (0, 1, 3) if cell.resets_after else tuple(range(p.gates))
    transposed = np.ascontiguousarray(cell.r.T)
    errors = _Errors.of(case, gates, transposed, recurrent)
    with np.errstate(invalid="ignore", over="ignore"):
        for t in reversed(range(p.timesteps)):
            s = states.steps[t]
            dh = dh + arrays["dy"][t, :rows].astype(np.float64)
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
    if cell.w is None:
        dx, dx_size = from_x.sum(axis=2), largest
    else:
        dx = np.einsum("tngh,gh->tn", from_x, cell.w)[..., None]
        dx_size = largest * np.linalg.norm(cell.w)
    of_data = {"dx": dx, "dh0": dh, **({"dc0": dc} if p.cell == "lstm" else {})}
    state_size = largest[0] * cell.magnitude(dh * 0)[:, None]
    sizes = {"dx": dx_size, "dh0": state_size, "dc0": state_size}
    before = np.concatenate([cell.state(arrays["h0"][:rows])[None], states.y[:-1]])
    x = arrays["x"][:, :rows].astype(np.float64)
    variance = errors.gates if errors else None
    return Gradients(of_data, sizes, x, before, reset, gates, variance, recurrent, cell.w is not None)


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
        self._dh, self.dc = np.zeros((2, gates.shape[1], gates.shape[-1]))

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

    def _rounding(self, values: Array) -> Array:
        """Of values that are computed from rounded ones: relative to each, and to a typical one of its row."""
        typical = np.mean(values**2, axis=-1, keepdims=True)
        rounding: Array = self._square * (values**2 + typical) + self._least
        return rounding

    def to_cell(self, factor: Array, dc: Array, dh: Array) -> None:
        """The gradient of an LSTM's cell receives `factor` times that of its state."""
        self.dc = self.dc + (self._dh + self._rounding(dh)) * factor**2 + self._rounding(dc + dh * factor)

    def step(self, t: int, of_dh: dict[int, Array], of_dc: dict[int, Array], keeps: Array | float, dh: Array) -> None:
        """One step back; `dh` is the gradient of the state that the step left."""
        of_h = self._dh + self._rounding(dh)
        for gate, factor in of_dh.items():
            self.gates[t, :, gate] = of_h * factor**2 + self._rounding(self._of_gates[t, :, gate])
        for gate, factor in of_dc.items():
            self.gates[t, :, gate] = self.dc * factor**2 + self._rounding(self._of_gates[t, :, gate])
        back = self.gates[t][:, self._recurrent].reshape(len(dh), -1) @ self._weights
        self._dh = of_h * np.square(keeps) + back
