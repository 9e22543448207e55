"""Recurrent layers: one layer in one direction of time; vanilla (ReLU), LSTM or GRU.

The recurrence is what counts; the projection of the input does not, so x_t has width 1 (see docs/method.md). With
hidden size H, batch N, T time steps and G gates, all arrays are row-major:

    x (T, N, 1), h0 (N, H), c0 (N, H; LSTM)          input and initial state
    w (1, G, H), r (H, G, H), b (G or G + 1, H)      weights for x and h, indexed [from, gate, to], and biases
    y (T, N, H)                                      all hidden states
    dy, dx, dw, dr, db, dh0, dc0                     gradients, shaped like their variables

`backward` computes all gradients. `backward_data` computes dx, dh0 and dc0, and `backward_weights` dw, dr and db, in
libraries that separate them. With `input=skip`, which the original requested from cuDNN, x has the shape of y, is added
to every gate unchanged, and there is no w.

    vanilla  h = max(0, a), a = x·w + h'·r + b                                   h', c': previous time step
    LSTM     i, f, o = σ(a_i), σ(a_f), σ(a_o); c = f·c' + i·tanh(a_g); h = o·tanh(c)
    GRU      u, r = σ(a_u), σ(a_r); g = tanh(x·w_g + b_g + r·(h'·r_g + b_h)); h = u·h' + (1 − u)·g

Gates are in the order i, f, g, o and u, r, g. By default the GRU resets after its product, as in cuDNN, PyTorch and
oneDNN's `lbr_gru`. With `gru_reset=before` it is Cho's original, g = tanh(x·w_g + (r·h')·r_g + b_g), without b_h. In
8 bits, h, x and y are u8 (value = (u − 128)/127) and weights are s8.

Hochreiter and Schmidhuber, "Long short-term memory", 1997; Cho et al., "Learning phrase representations", 2014.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from deepbench.core.op import Comparison, Op
from deepbench.core.precision import BITS
from deepbench.ops.recurrent.problem import STATE_SCALE, STATE_SHIFT, Recurrent, layout, weights_scale

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays
    from deepbench.core.precision import Precision

SMALLEST_F16 = 2.0**-14  # the smallest normal number

# Steps of the smallest layer: with this many, the cost of a call beside its steps hardly matters.
SMALLEST_STEPS = 32


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
        """`gru_reset` is for GRUs only; a backward pass always belongs to training."""
        reset = () if problem.cell == "gru" else ("gru_reset",)
        return (*reset, "mode") if direction != "forward" else reset

    def allows(self, direction: str, precision: Precision) -> bool:
        """8-bit states are u8, and for inference only."""
        return precision.name != "i8" and super().allows(direction, precision)

    def operand_bytes(self, case: Case) -> int:
        """Bytes of all arrays of this direction."""
        return sum(math.prod(shape) * BITS[kind] // 8 for shape, kind in layout(case).values())

    def workspace_bytes(self, case: Case) -> int:
        """Gates and states of every step that a library keeps for the backward pass, and float64 data of the check."""
        p = case.problem
        is_training = case.direction != "forward" or case.settings["mode"] == "training"
        steps = p.timesteps if is_training else 2
        library = 4 * steps * p.batch * (p.gates + 2) * p.hidden
        check = p.gates * p.hidden**2 + (2 * p.gates + 8) * p.timesteps * p.distinct_rows * p.hidden
        return int(library + 8 * check)

    def operands(self, case: Case) -> Arrays:
        """The arrays listed at the top of this file.

        `r` is scaled to a spectral radius of about 1, so that states neither vanish nor overflow.
        """
        import numpy as np

        from deepbench.core import operands

        arrays = {}
        for stream, (name, (shape, kind)) in enumerate(layout(case).items()):
            arrays[name] = operands.empty(shape, kind)
            if name in ("x", "h0", "c0", "dy"):
                arrays[name][...] = self._repeated_rows(case, shape, kind, stream)
            elif name not in self.outputs:
                arrays[name][...] = operands.draw(arrays[name].size, kind, stream).reshape(shape)
        if case.precision.roundoff:
            r = arrays["r"]
            np.multiply(r, np.sqrt(3 / case.problem.hidden), out=r, casting="unsafe")
            r[np.abs(r) < SMALLEST_F16] = SMALLEST_F16
        self.reset(case, arrays)
        return arrays

    def _repeated_rows(self, case: Case, shape: tuple[int, ...], kind: str, stream: int) -> Array:
        """Random values in which the rows of the batch repeat after `distinct_rows`."""
        import numpy as np

        from deepbench.core import operands

        p, axis = case.problem, len(shape) - 2
        distinct = (*shape[:axis], p.distinct_rows, shape[-1])
        values = operands.random(distinct, kind if kind != "u8" else "f32", stream)
        if kind == "u8":
            values = np.rint(values * STATE_SCALE + STATE_SHIFT)
        rows: Array = np.take(values, np.arange(p.batch) % p.distinct_rows, axis=axis)
        return rows

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """All outputs of this direction."""
        from deepbench.ops.recurrent.reference import reference

        return reference(case, arrays)

    def compare(self, case: Case, arrays: Arrays) -> Iterator[Comparison]:
        """Distinct rows with the reference, all other rows with these, and weight gradients in sums."""
        from deepbench.ops.recurrent.check import compare

        return compare(case, arrays)

    def flop(self, case: Case) -> int:
        """2·G·T·N·H² for the forward pass and the same for each half of the backward pass: recurrent products only.

        This is the original's count for training. It deliberately excludes pointwise operations.
        """
        p = case.problem
        return int(2 * p.gates * p.timesteps * p.batch * p.hidden**2 * _passes(case))

    def other_flop(self, case: Case) -> dict[str, int]:
        """`original_inference`: with T·N·H more, as published for vanilla cells and for servers.

        `with_input`: with the products of x and w, whose time is measured, too.
        """
        p, passes = case.problem, _passes(case)
        from_input = 2 * p.gates * p.timesteps * p.batch * p.hidden if case.settings["input"] == "narrow" else 0
        return {
            "original_inference": self.flop(case) + passes * p.timesteps * p.batch * p.hidden,
            "with_input": self.flop(case) + passes * from_input,
        }

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Every array once, and the recurrent weights again in every further step if they do not stay in the level.

        The gradient of the weights needs no further reading: it is one product over all steps.
        """
        if self.stays_in(case, capacity):
            return 0
        p, every = case.problem, self.operand_bytes(case)
        recurrent = p.gates * p.hidden**2 * BITS[case.precision.weights] // 8
        if capacity is None or recurrent <= capacity:
            return every
        return int(every + (self.steps(case) - 1) * recurrent)

    def steps(self, case: Case) -> int:
        """Each time step needs the state of the one before. The gradient of the weights alone needs no order."""
        return 1 if case.direction == "backward_weights" else int(case.problem.timesteps)

    def smallest(self, case: Case) -> Recurrent:
        """Hidden size 1 and batch 1. Some steps if the layer has several, so that the cost of a step is known."""
        p = case.problem
        return Recurrent(p.cell, 1, 1, 1 if p.timesteps == 1 else SMALLEST_STEPS)

    def expected_s(self, case: Case, flop_per_s: float, bytes_per_s: float) -> float:
        """Weights that fit no cache are read at every step, not once as in `traffic_bytes`; assumes half of them."""
        p = case.problem
        read = _passes(case) * p.timesteps * p.gates * p.hidden**2 * BITS[case.precision.weights] // 8
        return float(
            max(self.flop(case) / flop_per_s, read / (2 * bytes_per_s), self.traffic_bytes(case) / bytes_per_s)
        )

    def result_type(self, case: Case) -> str:
        """States have the type of the data, because the next step reads them; gradients are f32."""
        return "f32" if case.direction != "forward" else case.precision.data

    def title(self, problem: Any) -> str:
        """`LSTM 512, batch 16, 25 steps`."""
        p = problem
        name = p.cell if p.cell == "vanilla" else p.cell.upper()
        return f"{name} {p.hidden}, batch {p.batch}, {p.timesteps} step{'s' if p.timesteps != 1 else ''}"

    def facts(self, case: Case) -> dict[str, Any]:
        """For 8 bits: u8 state = state_scale · value + state_shift, s8 weight = weights_scale · value."""
        if case.precision.roundoff:
            return {}
        return {"state_scale": STATE_SCALE, "state_shift": STATE_SHIFT, "weights_scale": weights_scale(case)}


def _passes(case: Case) -> int:
    """Work relative to the forward pass."""
    return 2 if case.direction == "backward" else 1


OP = RecurrentOp()
