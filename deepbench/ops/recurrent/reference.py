"""All time steps of a recurrent layer and their gradients, in float64, for the first rows of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deepbench.ops.recurrent.cell import Cell
from deepbench.ops.recurrent.problem import STATE_SCALE, STATE_SHIFT

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays


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
            before = self.reset if gate == self.recurrent[-1] and self.reset is not None else self.h
            left = before if weights is None else before @ weights.T
            flat = (left * counts[:, None]).reshape(-1, left.shape[-1])
            parts.append(flat.T @ self.gates[:, :, gate].reshape(len(flat), -1))
        return np.stack(parts, axis=1)

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
    """Gradients through all steps, from the last to the first."""
    p, hidden = case.problem, case.problem.hidden
    gates = np.empty((p.timesteps, rows, len(cell.b), hidden))
    reset = np.empty((p.timesteps, rows, hidden)) if p.cell == "gru" and not cell.resets_after else None
    dh, dc = np.zeros((2, rows, hidden))
    recurrent = (0, 1, 3) if cell.resets_after else tuple(range(p.gates))
    transposed = np.ascontiguousarray(cell.r.T)
    with np.errstate(invalid="ignore", over="ignore"):
        for t in reversed(range(p.timesteps)):
            s = states.steps[t]
            dh = dh + arrays["dy"][t, :rows].astype(np.float64)
            if p.cell == "vanilla":
                gates[t, :, 0] = dh * (states.y[t] > 0)
                dh = gates[t, :, 0] @ transposed
            elif p.cell == "lstm":
                tanh_c = np.tanh(s["next_c"])
                dc = dc + dh * s["o"] * (1 - tanh_c**2)
                gates[t, :, 0] = dc * s["g"] * s["i"] * (1 - s["i"])
                gates[t, :, 1] = dc * s["c"] * s["f"] * (1 - s["f"])
                gates[t, :, 2] = dc * s["i"] * (1 - s["g"] ** 2)
                gates[t, :, 3] = dh * tanh_c * s["o"] * (1 - s["o"])
                dh, dc = gates[t].reshape(rows, -1) @ transposed, dc * s["f"]
            else:
                u, r, g = s["u"], s["r"], s["g"]
                dg = dh * (1 - u) * (1 - g**2)
                gates[t, :, 0] = dh * (s["h"] - g) * u * (1 - u)
                gates[t, :, 2] = dg
                if reset is None:
                    gates[t, :, 1] = dg * s["inner"] * r * (1 - r)
                    gates[t, :, 3] = dg * r
                    dh = dh * u + gates[t][:, recurrent].reshape(rows, -1) @ transposed
                else:
                    d_reset = dg @ transposed[2 * hidden :]
                    gates[t, :, 1] = d_reset * s["h"] * r * (1 - r)
                    reset[t] = s["reset"]
                    dh = dh * u + d_reset * r + gates[t, :, :2].reshape(rows, -1) @ transposed[: 2 * hidden]
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
    return Gradients(of_data, sizes, x, before, reset, gates, recurrent, cell.w is not None)
