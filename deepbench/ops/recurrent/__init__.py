"""Recurrent layers: vanilla (ReLU), LSTM or GRU; one layer or a stack, in one or both directions of time.

By default one layer in one direction of time, and the recurrence is what counts: x_t has width 1, and its projection
does not count (see docs/method.md). `input_size` gives x a real width, and then the projection counts. With hidden size
H, batch N, T time steps, G gates, input width I, L layers and D directions of time, all arrays are row-major:

    x (T, N, I), h0 (L, D, N, H), c0 (L, D, N, H; LSTM)      input and initial state
    w (D, I, G, H), w_deep (L - 1, D, D·H, G, H)             weights for x and for the layers above, [from, gate, to]
    r (L, D, H, G, H), b (L, D, G or G + 1, H)               weights for h, and biases
    y (T, N, D·H)                                            all hidden states of the last layer
    dy, dx, dw, dw_deep, dr, db, dh0, dc0                    gradients, shaped like their variables

The second direction of time of a bidirectional layer begins with the last step, and step t of its result is next to
that of the first direction: y_t = [forward h_t, backward h_t]. The next layer reads both.

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
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import Unsupported
from deepbench.core.lowering import MatrixProduct
from deepbench.core.op import AnswerComparison, Op
from deepbench.core.precision import BITS
from deepbench.ops.recurrent.problem import (
    STATE_SCALE,
    STATE_SHIFT,
    Recurrent,
    layout,
    skips_input,
    weights_scale,
)

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
    outputs = ("y", "dx", "dw", "dr", "db", "dh0", "dc0", "dw_deep")
    weights = ("w", "r", "b", "w_deep")
    smoke = (
        Recurrent("vanilla", 1, 1, 1),
        Recurrent("vanilla", 35, 3, 7),
        Recurrent("lstm", 32, 2, 5),
        Recurrent("lstm", 17, 9, 3),
        Recurrent("gru", 16, 1, 12),
        Recurrent("vanilla", 19, 7, 6, input_size=23, bidirectional=1),
        Recurrent("lstm", 16, 6, 5, input_size=16, layers=3),
        Recurrent("lstm", 21, 3, 4, input_size=34, layers=2, bidirectional=1),
        Recurrent("gru", 13, 6, 5, input_size=40, layers=2, bidirectional=1),
        Recurrent("gru", 45, 6, 4),
    )

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """`gru_reset` is for GRUs, `input` for the original's layers; a backward pass always belongs to training."""
        unused = [] if problem.cell == "gru" else ["gru_reset"]
        unused += [] if problem.is_recurrence_only else ["input"]
        unused += ["mode"] if direction != "forward" else []
        return tuple(unused)

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
        states = (2 * p.gates + 8) * p.timesteps * p.distinct_rows * p.hidden
        # The check keeps the weights of all layers; those of an input of width 1 do not matter.
        return int(p.layers * p.time_directions * (library + 8 * states) + 8 * p.products)

    def operands(self, case: Case) -> Arrays:
        """The arrays listed at the top of this file.

        `r` is scaled to a spectral radius of about 1, so that states neither vanish nor overflow. `w` is scaled so that
        an input of any width adds as much to the sums of a gate as one of width 1. Refuses gradients of stacked vanilla
        cells: where the state of a lower layer is nearly 0, the smallest rounding error decides its gradient, and
        libraries do not return these states.
        """
        import numpy as np

        p = case.problem
        if p.cell == "vanilla" and p.layers > 1 and case.direction != "forward":
            raise Unsupported("gradients of stacked vanilla cells cannot be checked; choose layers=1, cell=lstm or gru")

        from deepbench.core import operands

        arrays = {}
        for stream, (name, (shape, kind)) in enumerate(layout(case).items()):
            arrays[name] = operands.empty(shape, kind)
            if name in ("x", "h0", "c0", "dy"):
                arrays[name][...] = self._repeated_rows(case, shape, kind, stream)
            elif name not in self.outputs:
                arrays[name][...] = operands.draw(arrays[name].size, kind, stream).reshape(shape)
        if case.precision.roundoff:
            for name, factor in (("r", 3 / p.hidden), ("w", 1 / p.input_size), ("w_deep", 1 / p.output_size)):
                if name in arrays and factor != 1:
                    values = arrays[name]
                    np.multiply(values, np.sqrt(factor), out=values, casting="unsafe")
                    values[np.abs(values) < SMALLEST_F16] = SMALLEST_F16
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

    def compare(self, case: Case, arrays: Arrays) -> Iterator[AnswerComparison]:
        """Distinct rows with the reference, all other rows with these, and weight gradients in sums."""
        from deepbench.ops.recurrent.check import compare

        return compare(case, arrays)

    def flop(self, case: Case) -> int:
        """2·T·N products of each layer and direction of time, (H + width)·G·H, for the forward pass.

        The same for each half of the backward pass. The width is that of the layer's input. It is 0 for an input of
        width 1, which gives the original's count for training, 2·G·T·N·H²: recurrent products only. Pointwise
        operations are deliberately not counted.
        """
        p = case.problem
        return int(2 * p.timesteps * p.batch * p.products * _passes(case))

    def other_flop(self, case: Case) -> dict[str, int]:
        """Counts by other conventions, which differ for the original's layers and for all others.

        `original_inference`: with T·N·H more, as published for vanilla cells and for servers.
        `with_input`: with the products of x and w, whose time is measured, too.
        `recurrent_only`: without the projections of the inputs.
        """
        p, passes = case.problem, _passes(case)
        if not p.is_recurrence_only:
            recurrent = p.layers * p.gates * p.output_size * p.hidden
            return {"recurrent_only": 2 * p.timesteps * p.batch * recurrent * passes}
        from_input = 0 if skips_input(case) else 2 * p.gates * p.timesteps * p.batch * p.hidden
        return {
            "original_inference": self.flop(case) + passes * p.timesteps * p.batch * p.hidden,
            "with_input": self.flop(case) + passes * from_input,
        }

    def matrix_products(self, case: Case) -> tuple[MatrixProduct, ...]:
        """Of each layer, the projection of its input where that counts, and the recurrence in `timesteps` steps.

        In the backward pass, the gradients of both; those of the weights need no steps.
        """
        p = case.problem
        gates, rows = p.gates * p.hidden, p.batch * p.timesteps
        ways, products = p.time_directions, []
        for layer in range(p.layers):
            width, name = p.counted_width(layer), f"layer{layer + 1}_" if p.layers > 1 else ""
            if case.direction == "forward":
                products += [MatrixProduct(f"{name}input", rows, gates, width, ways)] * bool(width)
                products.append(MatrixProduct(f"{name}recurrence", p.batch, gates, p.hidden, ways, p.timesteps))
            if case.direction in ("backward", "backward_data"):
                products += [MatrixProduct(f"{name}input_data", rows, width, gates, ways)] * bool(width)
                step = MatrixProduct(f"{name}recurrence_data", p.batch, p.hidden, gates, ways, p.timesteps)
                products.append(step)
            if case.direction in ("backward", "backward_weights"):
                products += [MatrixProduct(f"{name}input_weights", width, gates, rows, ways)] * bool(width)
                products.append(MatrixProduct(f"{name}recurrence_weights", p.hidden, gates, rows, ways))
        return tuple(products)

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Every array once, and recurrent weights again in every further step if they do not stay in the level.

        A layer in one direction of time needs only its own. The states between layers may stay in the level. The
        gradient of the weights needs no further reading: it is one product over all steps.
        """
        if self.stays_in(case, capacity):
            return 0
        p, every = case.problem, self.operand_bytes(case)
        recurrent = p.gates * p.hidden**2 * BITS[case.precision.weights] // 8
        if capacity is None or recurrent <= capacity or case.direction == "backward_weights":
            return every
        return int(every + p.layers * p.time_directions * (p.timesteps - 1) * recurrent)

    def steps(self, case: Case) -> int:
        """Each time step needs the state of the one before, and that of the layer below.

        A layer in both directions of time needs all steps of the layer below. The gradient of the weights alone needs
        no order.
        """
        p = case.problem
        if case.direction == "backward_weights":
            return 1
        return int(p.layers * p.timesteps if p.bidirectional else p.timesteps + p.layers - 1)

    def smallest(self, case: Case) -> Recurrent:
        """Hidden size 1 and batch 1. Some steps if the layer has several, so that the cost of a step is known."""
        p: Recurrent = case.problem
        return replace(p, hidden=1, batch=1, timesteps=1 if p.timesteps == 1 else SMALLEST_STEPS, input_size=1)

    def components(self, case: Case) -> dict[Case, int]:
        """The projections of the inputs as products, and the recurrence of each layer in each direction of time.

        In the backward pass, the gradients of a product are products. None for a layer that is a recurrence only.
        """
        from deepbench.ops.gemm import component

        p = case.problem
        if p.is_recurrence_only:
            return {}
        found: dict[Case, int] = {}
        gates, rows = p.gates * p.hidden, p.batch * p.timesteps
        for width in filter(None, map(p.counted_width, range(p.layers))):
            products = {
                "forward": [component(case, gates, rows, width)],
                "backward_data": [component(case, width, rows, gates, a_t=1)],
                "backward_weights": [component(case, gates, width, rows, b_t=1)],
            }
            products["backward"] = products["backward_data"] + products["backward_weights"]
            for product in products[case.direction]:
                found[product] = found.get(product, 0) + p.time_directions
        recurrence = replace(p, input_size=1, layers=1, bidirectional=0)
        return {**found, replace(case, problem=recurrence): p.layers * p.time_directions}

    def expected_s(self, case: Case, flop_per_s: float, bytes_per_s: float) -> float:
        """Weights that fit no cache are read at every step, not once as in `traffic_bytes`; assumes half of them."""
        p = case.problem
        weights = p.layers * p.gates * p.output_size * p.hidden * BITS[case.precision.weights] // 8
        read = _passes(case) * p.timesteps * weights
        return float(
            max(self.flop(case) / flop_per_s, read / (2 * bytes_per_s), self.traffic_bytes(case) / bytes_per_s)
        )

    def result_type(self, case: Case) -> str:
        """States have the type of the data, because the next step reads them; gradients are f32."""
        return "f32" if case.direction != "forward" else case.precision.data

    def title(self, problem: Any) -> str:
        """`LSTM 512, batch 16, 25 steps`, or `2 bidirectional LSTM 240 → 512, batch 16, 25 steps`."""
        p = problem
        name = p.cell if p.cell == "vanilla" else p.cell.upper()
        name = f"bidirectional {name}" if p.bidirectional else name
        name = f"{p.layers} {name}" if p.layers > 1 else name
        name = f"{name} {p.input_size} →" if p.input_size > 1 else name
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
