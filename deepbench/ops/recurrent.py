"""Recurrent layers: one layer in one direction of time, vanilla (ReLU), LSTM or GRU.

What is measured is the recurrence; the projection of the input does not count, so x_t has width 1 (see docs/method.md).
With hidden size H, batch N, T time steps and G gates, all arrays in row-major order:

    x (T, N, 1), h0 (N, H), c0 (N, H; LSTM)          input and initial state
    w (1, G, H), r (H, G, H), b (G or G + 1, H)      weights from x and from h, indexed [from, gate, to], and biases
    y (T, N, H)                                      every hidden state
    dy, dx, dw, dr, db, dh0, dc0                     gradients, shaped like what they are the gradient of

`backward` is all gradients in one; `backward_data` is dx, dh0 and dc0, `backward_weights` is dw, dr and db, where a
library has them apart. With `input=skip`, as the original asked of cuDNN, x has the shape of y and is added to every
gate as it is; there is no w.

    vanilla  h = max(0, a), a = x·w + h'·r + b                                   h', c': one step earlier
    LSTM     i, f, o = σ(a_i), σ(a_f), σ(a_o); c = f·c' + i·tanh(a_g); h = o·tanh(c)
    GRU      u, r = σ(a_u), σ(a_r); g = tanh(x·w_g + b_g + r·(h'·r_g + b_h)); h = u·h' + (1 − u)·g

Gates are in the order i, f, g, o and u, r, g. The GRU resets after its product, as cuDNN's, PyTorch's and oneDNN's
`lbr_gru` do; with `gru_reset=before` it is Cho's original, g = tanh(x·w_g + (r·h')·r_g + b_g), which has one bias less.
In 8 bits h, x and y are u8 (value = (u − 128)/127) and weights s8.

Hochreiter and Schmidhuber, "Long short-term memory", 1997; Cho et al., "Learning phrase representations", 2014.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.op import Comparison, Op
from deepbench.core.precision import BITS, STORAGE_ROUNDOFF
from deepbench.core.problem import BaseProblem, choice, size

if TYPE_CHECKING:
    import numpy as np

    from deepbench.core.case import Case
    from deepbench.core.op import Arrays
    from deepbench.core.precision import Precision

    Array = np.ndarray[Any, Any]

# By direction: what of the gradients is an output.
DATA, WEIGHTS = ("dx", "dh0", "dc0"), ("dw", "dr", "db")
GRADIENTS = {"backward": DATA + WEIGHTS, "backward_data": DATA, "backward_weights": WEIGHTS}

GATES = {"vanilla": 1, "lstm": 4, "gru": 3}

# Rows of the batch come in so many kinds, which take turns. The reference computes one row of each kind, and every row
# is compared with its kind: so every element is checked at the cost of a few rows.
# Odd, so that no block of rows that a library works on is a multiple of it.
KINDS = 5
LARGE_MULTIPLY_ADDS = 2**31
# Where a row takes long, the first kind is computed at all time steps, the others at some.
SAMPLED_STEPS = 64

# 8-bit values of states in (-1, 1): u = rint(127·value + 128).
STATE_SCALE, STATE_SHIFT = 127.0, 128.0

# Error of one step, in roundoff of the sums times the size of what is added; σ and tanh of libraries add some units.
STEP_UNITS = 64.0
# Cells contract, so errors of earlier steps fade: a chain of steps has some times the error of one.
CHAIN = 8.0
# Results in 16 bits: each of the handful of roundings in a step, relative to the largest state.
STORED_UNITS = 8.0
# In 8 bits: half a step is rounding; a state next to a tie may fall on the other side, and so may those after it.
STEP_8_BIT, CHAIN_8_BIT = 1.5, 4.0
# Gradients: chains forward and then backward.
GRADIENT_UNITS = 512.0
# dr is computed in full up to so many multiply-adds; beyond, in sums of so many rows with random signs. Errors of a sum
# add like their squares; the error of each row is a bound already, so there is no further safety.
FULL_CHECK_MULTIPLY_ADDS = 2**28
BLOCK = 16


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
    def kinds(self) -> int:
        """Different rows in the batch."""
        return min(self.batch, KINDS)

    @property
    def is_large(self) -> bool:
        """Whether a row takes the reference a second or more."""
        return self.timesteps * self.gates * self.hidden**2 > LARGE_MULTIPLY_ADDS


class RecurrentOp(Op):
    name = "recurrent"
    sweep_field = "batch"
    Problem = Recurrent
    directions = ("forward", "backward", "backward_data", "backward_weights")
    settings = {  # noqa: RUF012  (ClassVar in Op)
        "weights": ("plain", "packed"),
        "mode": ("inference", "training"),
        "gru_reset": ("after", "before"),
        "input": ("narrow", "skip"),
    }
    outputs = ("y", "dx", "dw", "dr", "db", "dh0", "dc0")
    weights = ("w", "r", "b")
    smoke = (
        Recurrent("vanilla", 1, 1, 1),
        Recurrent("vanilla", 35, 3, 7),
        Recurrent("lstm", 32, 2, 5),
        Recurrent("lstm", 17, 9, 3),
        Recurrent("gru", 16, 1, 12),
        Recurrent("gru", 45, 6, 4),
    )

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """Only a GRU resets; a backward pass is of training in any case."""
        reset = () if problem.cell == "gru" else ("gru_reset",)
        return (*reset, "mode") if direction != "forward" else reset

    def allows(self, direction: str, precision: Precision) -> bool:
        """8-bit states are u8, for inference."""
        return precision.name != "i8" and super().allows(direction, precision)

    def operand_bytes(self, case: Case) -> int:
        """All arrays of this direction."""
        import math

        return sum(math.prod(shape) * BITS[kind] // 8 for shape, kind in self._layout(case).values())

    def workspace_bytes(self, case: Case) -> int:
        """Gates and states of every step, kept for the backward pass; r and some rows in float64 for the check."""
        p = case.problem
        kept = case.direction != "forward" or case.settings["mode"] == "training"
        steps = p.timesteps if kept else 2
        library = 4 * steps * p.batch * (p.gates + 2) * p.hidden
        check = p.gates * p.hidden**2 + (2 * p.gates + 8) * p.timesteps * p.kinds * p.hidden
        return int(library + 8 * check)

    def operands(self, case: Case) -> Arrays:
        """The arrays named at the top of this file.

        Weights from h are scaled to a spectral radius of about 1, so that states neither die nor overflow: ReLU halves
        the mean square, the input and the bias put it back.
        """
        import numpy as np

        from deepbench.core import operands

        p = case.problem
        made = {}
        for stream, (name, (shape, kind)) in enumerate(self._layout(case).items()):
            made[name] = operands.empty(shape, kind)
            if name in self.outputs:
                continue
            if name in ("x", "h0", "c0", "dy"):
                made[name][...] = self._rows(case, name, stream)
            else:
                made[name][...] = operands.draw(made[name].size, kind, stream).reshape(shape)
        if case.precision.roundoff:
            r = made["r"]
            np.multiply(r, np.sqrt(3 / p.hidden), out=r, casting="unsafe")
            r[np.abs(r) < SMALLEST_F16] = SMALLEST_F16
        self.reset(case, made)
        return made

    def _rows(self, case: Case, name: str, stream: int) -> Array:
        """Values of one of the arrays that have a row for each element of the batch; rows of a kind are equal."""
        import numpy as np

        from deepbench.core import operands

        p = case.problem
        shape, kind = self._layout(case)[name]
        axis = len(shape) - 2
        few = (*shape[:axis], p.kinds, shape[-1])
        values = operands.random(few, kind if kind != "u8" else "f32", stream)
        if kind == "u8":
            values = np.rint(values * STATE_SCALE + STATE_SHIFT)
        rows: Array = np.take(values, np.arange(p.batch) % p.kinds, axis=axis)
        return rows

    def reset(self, case: Case, arrays: Arrays) -> None:
        """Poison: every output is written, none is added to."""
        from deepbench.core.operands import poison

        for name in self.outputs:
            if name in arrays:
                poison(arrays[name])

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """Every output of this direction in full."""
        import numpy as np

        rows = range(case.problem.batch)
        cell = _Cell(case, arrays)
        states = _chain(case, arrays, rows, cell)
        y = states.y * STATE_SCALE + STATE_SHIFT if not case.precision.roundoff else states.y
        if case.direction == "forward":
            return {"y": y if case.precision.roundoff else np.clip(np.rint(y), 0, 255)}
        gradients = _gradients(case, arrays, states, rows, cell)
        ones = np.ones(len(rows))
        found = {"y": y, **gradients.of_data, **gradients.of_weights(ones), "dr": gradients.of_recurrent(ones)}
        return {name: found[name] for name in arrays if name in found}

    def compare(self, case: Case, arrays: Arrays) -> Iterator[Comparison]:
        """Rows of each kind against the reference, every row against its kind, gradients of weights in sums."""
        p, y = case.problem, arrays["y"]
        kinds, of = y[:, : p.kinds], y.size
        # Steps of vanilla cells and GRUs can be checked one by one, each from the state that the library left before
        # it. Not so the LSTM's, whose cell state stays inside.
        cell, covers = _Cell(case, arrays), of
        if p.cell == "lstm":
            states = _chain(case, arrays, range(p.kinds), cell)
            yield self._states("every step from the first", case, kinds, states.y, states.reach, chained=True)
        else:
            yield self._single_steps(case, arrays, cell)
            if p.is_large:
                covers = p.hidden * sum(len(s) * n for s, n in zip(_steps_of_kinds(p), _rows_of_kinds(p), strict=True))
        yield from self._twins(case, y, covers)
        if case.direction != "forward":
            if p.cell != "lstm":
                states = _steps(case, arrays, kinds, cell)
            yield from self._gradients(case, arrays, _gradients(case, arrays, states, range(p.kinds), cell))

    def flop(self, case: Case) -> int:
        """2·G·T·N·H² for the forward pass, as much for each kind of gradient: the recurrent products alone.

        The original's count for training; it leaves pointwise work out on purpose.
        """
        p = case.problem
        once = 2 * p.gates * p.timesteps * p.batch * p.hidden**2
        return int(once * _passes(case))

    def other_flop(self, case: Case) -> dict[str, int]:
        """`original_inference`: the published count for vanilla cells and for servers, with T·N·H more.

        `with_input`: with the products of x and w, which are in the time.
        """
        p = case.problem
        passes = _passes(case)
        from_input = 2 * p.gates * p.timesteps * p.batch * p.hidden if case.settings["input"] == "narrow" else 0
        return {
            "original_inference": self.flop(case) + passes * p.timesteps * p.batch * p.hidden,
            "with_input": self.flop(case) + passes * from_input,
        }

    def traffic_bytes(self, case: Case) -> int:
        """Every array of this direction once; weights that fit no cache are read at every step instead."""
        return self.operand_bytes(case)

    def expected_s(self, case: Case, flop_per_s: float, bytes_per_s: float) -> float:
        """At each step the weights are read again, from memory where they are large."""
        p, passes = case.problem, _passes(case)
        read = passes * p.timesteps * p.gates * p.hidden**2 * BITS[case.precision.weights] // 8
        return float(
            max(self.flop(case) / flop_per_s, read / (2 * bytes_per_s), self.traffic_bytes(case) / bytes_per_s)
        )

    def result_type(self, case: Case) -> str:
        """States are stored as the next step reads them; gradients are f32."""
        return "f32" if case.direction != "forward" else case.precision.data

    def title(self, problem: Any) -> str:
        """`LSTM 512, batch 16, 25 steps`."""
        p = problem
        name = p.cell if p.cell == "vanilla" else p.cell.upper()
        return f"{name} {p.hidden}, batch {p.batch}, {p.timesteps} step{'s' if p.timesteps != 1 else ''}"

    def facts(self, case: Case) -> dict[str, Any]:
        """What 8-bit numbers mean: u8 state = state_scale · value + state_shift, s8 weight = weights_scale · value.

        Values of r then have a spectral radius of about 1, as in floats.
        """
        if case.precision.roundoff:
            return {}
        scale = 8.9 * float(case.problem.hidden) ** 0.5  # 8.9: root mean square of s8 values, see arrays.py
        return {"state_scale": STATE_SCALE, "state_shift": STATE_SHIFT, "weights_scale": scale}

    def biases(self, case: Case) -> int:
        """Rows of `b`: a GRU that resets after its product has one more than gates."""
        extra = case.problem.cell == "gru" and case.settings["gru_reset"] == "after"
        return int(case.problem.gates + extra)

    def _layout(self, case: Case) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name → shape and type, inputs first."""
        p, types = case.problem, case.precision
        t, n, h, g, biases = p.timesteps, p.batch, p.hidden, p.gates, self.biases(case)
        # oneDNN keeps cell states and biases in f32 but for f16.
        wide = "f16" if types.name == "f16" else "f32"
        skip = case.settings["input"] == "skip"
        inputs: dict[str, tuple[tuple[int, ...], str]] = {
            "x": ((t, n, h if skip else 1), types.data),
            "h0": ((n, h), types.data),
            **({"c0": ((n, h), wide)} if p.cell == "lstm" else {}),
            **({} if skip else {"w": ((1, g, h), types.weights)}),
            "r": ((h, g, h), types.weights),
            "b": ((biases, h), wide),
        }
        y = {"y": ((t, n, h), types.data)}
        if case.direction == "forward":
            return {**inputs, **y}
        wanted = GRADIENTS[case.direction]
        gradients = {f"d{name}": (shape, "f32") for name, (shape, _) in inputs.items() if f"d{name}" in wanted}
        return {**inputs, "dy": ((t, n, h), "f32"), **y, **gradients}

    # ---- checking

    def _states(self, how: str, case: Case, got: Array, want: Array, reach: Array, chained: bool) -> Comparison:
        """States that the library left against those that should follow."""
        import numpy as np

        if not case.precision.roundoff:
            want = np.clip(want * STATE_SCALE + STATE_SHIFT, 0, 255)
            tolerance = np.full(want.shape, CHAIN_8_BIT if chained else STEP_8_BIT)
        else:
            tolerance = STEP_UNITS * (CHAIN if chained else 1.0) * _roundoff(case) * reach[..., None]
            tolerance = tolerance + STORED_UNITS * STORAGE_ROUNDOFF[case.precision.data] * (1 + np.abs(want))
        return Comparison(how, got.astype(np.float64), want, tolerance, got.size, _size_of_y(case), "y")

    def _single_steps(self, case: Case, arrays: Arrays, cell: _Cell) -> Comparison:
        """Each step from the state that the library left before it; in large layers of most kinds only some steps."""
        import numpy as np

        p, y, steps = case.problem, arrays["y"], _steps_of_kinds(case.problem)
        kind = np.repeat(np.arange(p.kinds), [len(s) for s in steps])
        step = np.concatenate(steps)
        before = cell.state(np.where((step == 0)[:, None], arrays["h0"][kind], y[step - 1, kind]))
        with np.errstate(invalid="ignore"):
            h, _ = cell.step(arrays["x"][step, kind].astype(np.float64), before, None)
            reach = cell.reach(before)
        how = "steps from the one before" if p.is_large else "every step from the one before"
        return self._states(how, case, y[step, kind], h, reach, chained=False)

    def _twins(self, case: Case, y: Array, covers: int) -> Iterator[Comparison]:
        """Every row of the batch against the first of its kind, some time steps at once.

        `covers`: elements that so have been compared with float64, through the first row of their kind.
        """
        import numpy as np

        p = case.problem
        at_once = max(1, 2**24 // (p.batch * p.hidden))
        for start in range(0, p.timesteps if p.batch > p.kinds else 0, at_once):
            part = y[start : start + at_once]
            want = np.take(part, np.arange(p.kinds, p.batch) % p.kinds, axis=1).astype(np.float64)
            if case.precision.roundoff:
                reach = STEP_UNITS * CHAIN * _roundoff(case) * np.sqrt(p.hidden)
                tolerance = reach + STORED_UNITS * STORAGE_ROUNDOFF[case.precision.data] * (1 + np.abs(want))
            else:
                tolerance = np.full(want.shape, CHAIN_8_BIT)
            got = part[:, p.kinds :].astype(np.float64)
            yield Comparison("every row against its kind", got, want, tolerance, covers, y.size, "y")

    def _gradients(self, case: Case, arrays: Arrays, found: _Gradients) -> Iterator[Comparison]:
        """Gradients of data by row, of weights in sums over rows."""
        import numpy as np

        p = case.problem
        counts = np.bincount(np.arange(p.batch) % p.kinds, minlength=p.kinds).astype(np.float64)
        unit = GRADIENT_UNITS * _roundoff(case)
        unit += STORED_UNITS * STORAGE_ROUNDOFF[case.precision.data] * 8 / np.sqrt(p.gates * p.hidden)
        twin = np.arange(p.batch) % p.kinds
        for name, want in found.of_data.items():
            if name not in arrays:
                continue
            axis = want.ndim - 2
            got, wide = arrays[name].astype(np.float64), np.take(want, twin, axis=axis)
            tolerance = np.take(unit * found.size_of_data[name], twin, axis=axis)
            tolerance = tolerance + 4 * STORAGE_ROUNDOFF[case.precision.data] * np.abs(wide)
            tolerance = np.broadcast_to(tolerance, wide.shape)
            yield Comparison(f"every element of {name}", got, wide, tolerance, wide.size, wide.size, name)
        sizes = found.sizes(counts)
        unit = GRADIENT_UNITS * _roundoff(case)
        unit += STORED_UNITS * STORAGE_ROUNDOFF[case.precision.data] * 8 / np.sqrt(p.timesteps * p.batch)
        if "dr" not in arrays:
            return
        for name, want in found.of_weights(counts).items():
            tolerance = np.broadcast_to(unit * sizes[name], want.shape) + 4 * STORAGE_ROUNDOFF[
                case.precision.data
            ] * np.abs(want)
            got = arrays[name].astype(np.float64)
            yield Comparison(f"every element of {name}", got, want, tolerance, want.size, want.size, name)
        rows = self._rows_of_recurrent(p)
        with np.errstate(invalid="ignore"):
            flat = arrays["dr"].reshape(p.hidden, -1)
            got = np.zeros((len(rows), flat.shape[1]))
            squares = np.zeros_like(got)
            for start in range(0, p.hidden, 256):
                strip = flat[start : start + 256].astype(np.float64)
                got += rows[:, start : start + 256] @ strip
                squares += rows[:, start : start + 256] ** 2 @ strip**2
            want = found.of_recurrent(counts, rows).reshape(len(rows), -1)
            before = np.sqrt(rows**2 @ sizes["h"] ** 2)
            tolerance = unit * np.outer(before, sizes["db_full"].reshape(-1))
            tolerance = tolerance + 4 * STORAGE_ROUNDOFF[case.precision.data] * np.sqrt(squares)
        how = "every element of dr" if len(rows) == p.hidden else f"every element of dr in a sum of {BLOCK}"
        yield Comparison(how, got, want, tolerance, flat.size, flat.size, "dr")

    def _rows_of_recurrent(self, p: Recurrent) -> Array:
        """Weights of sums over the first index of dr: every row alone, or blocks of rows with random signs."""
        import numpy as np

        from deepbench.core.operands import generator

        if p.timesteps * p.kinds * p.gates * p.hidden**2 <= FULL_CHECK_MULTIPLY_ADDS:
            return np.eye(p.hidden)
        signs = generator(stream=7).integers(0, 1, p.hidden, endpoint=True) * 2.0 - 1.0
        rows = np.zeros((-(-p.hidden // BLOCK), p.hidden))
        rows[np.arange(p.hidden) // BLOCK, np.arange(p.hidden)] = signs
        return rows


def _rows_of_kinds(p: Recurrent) -> list[int]:
    """How many rows of the batch are of each kind."""
    return [len(range(kind, p.batch, p.kinds)) for kind in range(p.kinds)]


def _steps_of_kinds(p: Recurrent) -> list[Array]:
    """The time steps at which the reference computes each kind."""
    import numpy as np

    from deepbench.core.operands import generator

    choices = generator(stream=8)
    steps = [np.arange(p.timesteps)]
    for _ in range(1, p.kinds):
        few = np.r_[0, p.timesteps - 1, choices.integers(0, p.timesteps, SAMPLED_STEPS)]
        steps.append(np.unique(few) if p.is_large else np.arange(p.timesteps))
    return steps


def _roundoff(case: Case) -> float:
    """Of sums of this layer: over hidden units, and for gradients of weights over steps and rows."""
    from deepbench.core.tolerance import sum_roundoff

    p = case.problem
    shortest = min(p.hidden, p.timesteps * p.batch) if case.direction != "forward" else p.hidden
    return sum_roundoff(case.precision, shortest)


def _passes(case: Case) -> int:
    """In units of the forward pass."""
    return 2 if case.direction == "backward" else 1


def _size_of_y(case: Case) -> int:
    p = case.problem
    return int(p.timesteps * p.batch * p.hidden)


SMALLEST_F16 = 2.0**-14  # the smallest that is not denormal


# ---- the mathematics, for some rows of the batch, in float64


@dataclass
class _States:
    """A chain of steps: states (T, rows, H), what the gradients need of each step, and the size of what was added."""

    y: Array
    kept: list[dict[str, Array]]
    reach: Array


class _Cell:
    """One step of a cell."""

    def __init__(self, case: Case, arrays: Arrays) -> None:
        import numpy as np

        self.case, self.cell = case, case.problem.cell
        self.exact = bool(case.precision.roundoff)
        hidden, gates = case.problem.hidden, case.problem.gates
        scale = 1.0 if self.exact else OP.facts(case)["weights_scale"]
        self.w = arrays["w"].astype(np.float64).reshape(gates, hidden) / scale if "w" in arrays else None
        self.r = arrays["r"].astype(np.float64).reshape(hidden, gates * hidden)
        self.r /= scale
        self.b = arrays["b"].astype(np.float64)
        self.after = self.cell == "gru" and case.settings["gru_reset"] == "after"
        self._columns: Array | None = None

    def state(self, stored: Array) -> Array:
        """Values of states as they are stored."""
        import numpy as np

        values = stored.astype(np.float64)
        return values if self.exact else (values - STATE_SHIFT) / STATE_SCALE

    def rounded(self, h: Array) -> Array:
        """States as the next step reads them: 8 bits are too few to leave that out."""
        import numpy as np

        if self.exact:
            return h
        return (np.clip(np.rint(h * STATE_SCALE + STATE_SHIFT), 0, 255) - STATE_SHIFT) / STATE_SCALE

    def reach(self, h: Array) -> Array:
        """Size of what is added up in a step, by row: 1 + the largest |column of r| · |h|."""
        import numpy as np

        if self._columns is None:
            self._columns = np.sqrt(np.einsum("ij,ij->j", self.r, self.r).max())
        found: Array = 1 + self._columns * np.linalg.norm(h, axis=-1)
        return found

    def step(self, x: Array, h: Array, c: Array | None) -> tuple[Array, dict[str, Array]]:
        """The next state from x (rows, 1 or H) as stored, h (rows, H) and c, and what the gradients need."""
        import numpy as np

        gates, hidden = self.case.problem.gates, self.case.problem.hidden
        x = x if self.exact else self.state(x)
        from_x = (x[:, None, :] if self.w is None else x[:, :, None] * self.w) + self.b[:gates]  # (rows, G, H)
        if self.cell == "gru" and not self.after:
            return self._step_before(from_x, h)
        from_h = (h @ self.r).reshape(-1, gates, hidden)
        if self.cell == "vanilla":
            a = from_x[:, 0] + from_h[:, 0]
            return np.maximum(a, 0), {"x": x, "h": h}
        if self.cell == "lstm":
            assert c is not None, "an LSTM has a cell state"
            i, f, o = (_sigmoid(from_x[:, j] + from_h[:, j]) for j in (0, 1, 3))
            g = np.tanh(from_x[:, 2] + from_h[:, 2])
            new = f * c + i * g
            return o * np.tanh(new), {"x": x, "h": h, "c": c, "i": i, "f": f, "g": g, "o": o, "new": new}
        u, r = (_sigmoid(from_x[:, j] + from_h[:, j]) for j in (0, 1))
        inner = from_h[:, 2] + self.b[3]
        g = np.tanh(from_x[:, 2] + r * inner)
        return u * h + (1 - u) * g, {"x": x, "h": h, "u": u, "r": r, "g": g, "inner": inner}

    def _step_before(self, from_x: Array, h: Array) -> tuple[Array, dict[str, Array]]:
        """A GRU that resets before its product."""
        import numpy as np

        hidden = self.case.problem.hidden
        from_h = (h @ self.r[:, : 2 * hidden]).reshape(-1, 2, hidden)
        u, r = (_sigmoid(from_x[:, j] + from_h[:, j]) for j in (0, 1))
        reset = self.rounded(r * h)
        g = np.tanh(from_x[:, 2] + reset @ self.r[:, 2 * hidden :])
        return u * h + (1 - u) * g, {"h": h, "u": u, "r": r, "g": g, "reset": reset}


def _sigmoid(a: Array) -> Array:
    import numpy as np

    found: Array = 0.5 * (1 + np.tanh(0.5 * a))
    return found


def _chain(case: Case, arrays: Arrays, rows: range, cell: _Cell) -> _States:
    """All steps of these rows, each from the state before it."""
    import numpy as np

    p = case.problem
    h = cell.state(arrays["h0"][: len(rows)])
    c = arrays["c0"][: len(rows)].astype(np.float64) if p.cell == "lstm" else None
    y, reach = np.empty((p.timesteps, len(rows), p.hidden)), np.empty((p.timesteps, len(rows)))
    kept = []
    for t in range(p.timesteps):
        reach[t] = cell.reach(h)
        y[t], seen = cell.step(arrays["x"][t, : len(rows)].astype(np.float64), h, c)
        h, c = cell.rounded(y[t]), seen.get("new")
        if case.direction != "forward":
            kept.append(seen)
    return _States(y, kept, reach)


def _steps(case: Case, arrays: Arrays, given: Array, cell: _Cell) -> _States:
    """All steps of the first rows, each from the `given` state before it (T, rows, H), in one product."""
    import numpy as np

    steps, rows, hidden = given.shape
    y = cell.state(given)
    before = np.concatenate([cell.state(arrays["h0"][:rows])[None], y[:-1]]).reshape(-1, hidden)
    with np.errstate(invalid="ignore", over="ignore"):  # what was not written is NaN, and must show as such
        _, seen = cell.step(arrays["x"][:, :rows].astype(np.float64).reshape(steps * rows, -1), before, None)
        apart = {name: values.reshape(steps, rows, -1) for name, values in seen.items()}
        kept = [{name: values[t] for name, values in apart.items()} for t in range(steps)]
        return _States(y, kept, cell.reach(before).reshape(steps, rows))


@dataclass
class _Gradients:
    """Gradients of some rows, each row alone; those of weights are sums over rows with the counts of their kinds."""

    of_data: Arrays
    size_of_data: Arrays
    """Norms that the tolerance is relative to."""
    x: Array
    h: Array
    """(T, rows, H): the states before each step."""
    reset: Array | None
    """(T, rows, H): what the last gate of a GRU multiplies, where that is not h."""
    gates: Array
    """(T, rows, biases, H): gradients of what is added up in each gate; the last of a GRU is that of h'·r_g + b_h."""
    recurrent: tuple[int, ...]
    """Which of these belong to the gates of r."""
    has_w: bool
    """False where x is added as it is."""

    def of_weights(self, counts: Array) -> Arrays:
        """dw, where there is a w, and db."""
        import numpy as np

        db = np.einsum("tngh,n->gh", self.gates, counts)
        if not self.has_w:
            return {"db": db}
        gates = self.recurrent if len(self.recurrent) == self.gates.shape[2] else tuple(range(len(self.recurrent)))
        return {"dw": np.einsum("tnx,tngh,n->xgh", self.x, self.gates[:, :, gates], counts), "db": db}

    def of_recurrent(self, counts: Array, rows: Array | None = None) -> Array:
        """dr, or sums over its first index with these weights."""
        import numpy as np

        parts = []
        for place, gate in enumerate(self.recurrent):
            last = place == len(self.recurrent) - 1 and self.reset is not None
            before = self.reset if last and self.reset is not None else self.h
            left = before if rows is None else before @ rows.T
            flat = (left * counts[:, None]).reshape(-1, left.shape[-1])
            parts.append(flat.T @ self.gates[:, :, gate].reshape(len(flat), -1))
        return np.stack(parts, axis=1)

    def sizes(self, counts: Array) -> Arrays:
        """Norms over all steps and rows, which sums of gradients are relative to."""
        import numpy as np

        weight = counts[None, :, None, None]
        db = np.sqrt((self.gates**2 * weight).sum(axis=(0, 1)))
        gates = self.recurrent if len(self.recurrent) == self.gates.shape[2] else tuple(range(len(self.recurrent)))
        x = np.sqrt((self.x**2 * counts[:, None]).sum())
        count = np.sqrt(self.gates.shape[0] * counts.sum())
        return {
            "dw": x * db[list(gates)],
            "db": count * db,
            "db_full": db[list(self.recurrent)],
            "h": np.sqrt((self.h**2 * counts[:, None]).sum(axis=(0, 1))),
        }


def _gradients(case: Case, arrays: Arrays, states: _States, rows: range, cell: _Cell) -> _Gradients:
    """Through all steps from the last to the first."""
    import numpy as np

    p, n = case.problem, len(rows)
    biases = arrays["b"].shape[0]
    gates = np.empty((p.timesteps, n, biases, p.hidden))
    reset = np.empty((p.timesteps, n, p.hidden)) if p.cell == "gru" and not cell.after else None
    dh, dc = np.zeros((2, n, p.hidden))
    recurrent = (0, 1, 3) if cell.after else tuple(range(p.gates))
    back = np.ascontiguousarray(cell.r.T)
    with np.errstate(invalid="ignore", over="ignore"):
        for t in reversed(range(p.timesteps)):
            s = states.kept[t]
            dh = dh + arrays["dy"][t, :n].astype(np.float64)
            if p.cell == "vanilla":
                gates[t, :, 0] = dh * (states.y[t] > 0)
                dh = gates[t, :, 0] @ back
            elif p.cell == "lstm":
                tanh_c = np.tanh(s["new"])
                dc = dc + dh * s["o"] * (1 - tanh_c**2)
                gates[t, :, 0] = dc * s["g"] * s["i"] * (1 - s["i"])
                gates[t, :, 1] = dc * s["c"] * s["f"] * (1 - s["f"])
                gates[t, :, 2] = dc * s["i"] * (1 - s["g"] ** 2)
                gates[t, :, 3] = dh * tanh_c * s["o"] * (1 - s["o"])
                dh, dc = gates[t].reshape(n, -1) @ back, dc * s["f"]
            else:
                u, r, g = s["u"], s["r"], s["g"]
                dg = dh * (1 - u) * (1 - g**2)
                gates[t, :, 0] = dh * (s["h"] - g) * u * (1 - u)
                gates[t, :, 2] = dg
                if cell.after:
                    gates[t, :, 1] = dg * s["inner"] * r * (1 - r)
                    gates[t, :, 3] = dg * r
                    dh = dh * u + gates[t][:, recurrent].reshape(n, -1) @ back
                else:
                    hidden = p.hidden
                    through = dg @ back[2 * hidden :]
                    gates[t, :, 1] = through * s["h"] * r * (1 - r)
                    assert reset is not None, "made above for this cell"
                    reset[t] = s["reset"]
                    dh = dh * u + through * r + gates[t, :, :2].reshape(n, -1) @ back[: 2 * hidden]
    from_x = gates[:, :, : p.gates]
    norms = np.linalg.norm(gates.reshape(p.timesteps, n, -1), axis=-1, keepdims=True)
    largest = np.maximum.accumulate(norms[::-1], axis=0)[::-1]
    if cell.w is None:
        dx, dx_size = from_x.sum(axis=2), largest
    else:
        dx = np.einsum("tngh,gh->tn", from_x, cell.w)[..., None]
        dx_size = largest * np.linalg.norm(cell.w)
    # A gradient of data at one step has the errors of all later ones in it, which fade.
    of_data = {"dx": dx, "dh0": dh, **({"dc0": dc} if p.cell == "lstm" else {})}
    size = {"dx": dx_size, "dh0": largest[0] * cell.reach(dh * 0)[:, None]}
    size["dc0"] = size["dh0"]
    before = np.concatenate([cell.state(arrays["h0"][:n])[None], states.y[:-1]])
    x = arrays["x"][:, :n].astype(np.float64)
    return _Gradients(of_data, size, x, before, reset, gates, recurrent, cell.w is not None)


OP = RecurrentOp()
