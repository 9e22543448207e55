"""One time step of a recurrent cell in float64: of one layer in one direction of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deepbench.ops.recurrent.problem import STATE_SCALE, STATE_SHIFT, layer_arrays, resets_after, weights_scale

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays


class Cell:
    """The cell of a layer in a direction of time (`way`: 0 forward, 1 backward), with its weights as values.

    `w` (width, G·H) or None, `r` (H, G·H), `b` (biases, H), and the initial states `h0` and `c0` (N, H) or None.
    """

    def __init__(self, case: Case, arrays: Arrays, layer: int = 0, way: int = 0) -> None:
        self.problem = case.problem
        self.way = way
        self.is_float = bool(case.precision.roundoff)
        self.resets_after = resets_after(case)
        own = layer_arrays(case, arrays, layer, way)
        hidden, gates = case.problem.hidden, case.problem.gates
        scale = 1.0 if self.is_float else weights_scale(case)
        self.w = own["w"].astype(np.float64).reshape(-1, gates * hidden) / scale if "w" in own else None
        self.r = own["r"].astype(np.float64).reshape(hidden, gates * hidden)
        self.r /= scale
        self.b = own["b"].astype(np.float64)
        self.h0 = values_of(case, own["h0"])
        self.c0 = own["c0"].astype(np.float64) if "c0" in own else None
        self._largest_columns: tuple[float, float] | None = None

    def in_order(self, values: Array) -> Array:
        """From the order of time to the order of this cell's steps, or back; time is the first axis."""
        return values[::-1] if self.way else values

    def own_part(self, values: Array) -> Array:
        """Of states of all directions of time side by side, those of this cell."""
        hidden = self.problem.hidden
        return values[..., self.way * hidden : (self.way + 1) * hidden]

    def rounded(self, h: Array) -> Array:
        """States as the next step reads them. Only rounding to 8 bits is too large to ignore."""
        if self.is_float:
            return h
        return (np.clip(np.rint(h * STATE_SCALE + STATE_SHIFT), 0, 255) - STATE_SHIFT) / STATE_SCALE

    def magnitude(self, h: Array, x: Array) -> Array:
        """Size of the sums in a step, for each row: 1 + |h| · the largest column norm of r, and the same for x and w.

        The 1 stands for the bias, and for the product of an input of width 1.
        """
        if self._largest_columns is None:
            self._largest_columns = _largest_column(self.r), _largest_column(self.w)
        of_r, of_w = self._largest_columns
        magnitude: Array = 1 + of_r * np.linalg.norm(h, axis=-1)
        return magnitude + of_w * np.linalg.norm(x, axis=-1) if x.shape[-1] > 1 and of_w else magnitude

    def project(self, x: Array) -> Array:
        """What inputs (…, width) add to the sums of the gates (…, G, H), the bias included."""
        gates, hidden = self.problem.gates, self.problem.hidden
        projected = x[..., None, :] if self.w is None else (x @ self.w).reshape(*x.shape[:-1], gates, hidden)
        from_x: Array = projected + self.b[:gates]
        return from_x

    def step(self, from_x: Array, h: Array, c: Array | None) -> tuple[Array, Arrays]:
        """The next state, and the intermediate results that the gradients need.

        `from_x` (rows, G, H) is projected; `h` and, for an LSTM, `c` (rows, H).
        """
        gates, hidden = self.problem.gates, self.problem.hidden
        if self.problem.cell == "gru" and not self.resets_after:
            from_h = (h @ self.r[:, : 2 * hidden]).reshape(-1, 2, hidden)
            u, r = (_sigmoid(from_x[:, j] + from_h[:, j]) for j in (0, 1))
            reset = self.rounded(r * h)
            g = np.tanh(from_x[:, 2] + reset @ self.r[:, 2 * hidden :])
            return u * h + (1 - u) * g, {"h": h, "u": u, "r": r, "g": g, "reset": reset}
        from_h = (h @ self.r).reshape(-1, gates, hidden)
        if self.problem.cell == "vanilla":
            return np.maximum(from_x[:, 0] + from_h[:, 0], 0), {"h": h}
        if self.problem.cell == "lstm":
            assert c is not None, "an LSTM has a cell state"
            i, f, o = (_sigmoid(from_x[:, j] + from_h[:, j]) for j in (0, 1, 3))
            g = np.tanh(from_x[:, 2] + from_h[:, 2])
            next_c = f * c + i * g
            return o * np.tanh(next_c), {"h": h, "c": c, "i": i, "f": f, "g": g, "o": o, "next_c": next_c}
        u, r = (_sigmoid(from_x[:, j] + from_h[:, j]) for j in (0, 1))
        inner = from_h[:, 2] + self.b[3]
        g = np.tanh(from_x[:, 2] + r * inner)
        return u * h + (1 - u) * g, {"h": h, "u": u, "r": r, "g": g, "inner": inner}


def values_of(case: Case, stored: Array) -> Array:
    """The values of stored inputs and states."""
    values = stored.astype(np.float64)
    return values if case.precision.roundoff else (values - STATE_SHIFT) / STATE_SCALE


def _largest_column(matrix: Array | None) -> float:
    """The largest Euclidean norm of a column; 0 without a matrix."""
    return 0.0 if matrix is None else float(np.sqrt(np.einsum("ij,ij->j", matrix, matrix).max()))


def _sigmoid(a: Array) -> Array:
    result: Array = 0.5 * (1 + np.tanh(0.5 * a))
    return result
