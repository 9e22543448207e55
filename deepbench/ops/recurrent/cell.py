"""One time step of a recurrent cell in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deepbench.ops.recurrent.problem import STATE_SCALE, STATE_SHIFT, resets_after, weights_scale

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays


class Cell:
    """A cell with its weights as values: `w` (G, H) or None, `r` (H, G·H) and `b` (biases, H)."""

    def __init__(self, case: Case, arrays: Arrays) -> None:
        self.problem = case.problem
        self.is_float = bool(case.precision.roundoff)
        self.resets_after = resets_after(case)
        hidden, gates = case.problem.hidden, case.problem.gates
        scale = 1.0 if self.is_float else weights_scale(case)
        self.w = arrays["w"].astype(np.float64).reshape(gates, hidden) / scale if "w" in arrays else None
        self.r = arrays["r"].astype(np.float64).reshape(hidden, gates * hidden)
        self.r /= scale
        self.b = arrays["b"].astype(np.float64)
        self._largest_column: float | None = None

    def state(self, stored: Array) -> Array:
        """The values of stored states."""
        values = stored.astype(np.float64)
        return values if self.is_float else (values - STATE_SHIFT) / STATE_SCALE

    def rounded(self, h: Array) -> Array:
        """States as the next step reads them. Only rounding to 8 bits is too large to ignore."""
        if self.is_float:
            return h
        return (np.clip(np.rint(h * STATE_SCALE + STATE_SHIFT), 0, 255) - STATE_SHIFT) / STATE_SCALE

    def magnitude(self, h: Array) -> Array:
        """Size of the sums in a step, for each row of `h`: 1 + |h| times the largest column norm of r."""
        if self._largest_column is None:
            self._largest_column = float(np.sqrt(np.einsum("ij,ij->j", self.r, self.r).max()))
        magnitude: Array = 1 + self._largest_column * np.linalg.norm(h, axis=-1)
        return magnitude

    def step(self, x: Array, h: Array, c: Array | None) -> tuple[Array, Arrays]:
        """The next state, and the intermediate results that the gradients need.

        `x` (rows, 1 or H) as stored; `h` and, for an LSTM, `c` (rows, H).
        """
        gates, hidden = self.problem.gates, self.problem.hidden
        x = x if self.is_float else self.state(x)
        from_x = (x[:, None, :] if self.w is None else x[:, :, None] * self.w) + self.b[:gates]  # (rows, G, H)
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


def _sigmoid(a: Array) -> Array:
    result: Array = 0.5 * (1 + np.tanh(0.5 * a))
    return result
