"""Compare the outputs of recurrent layers with float64.

Libraries return the states of the last layer only, so those of the layers below come from the reference. The errors of
a library in these layers reach the last one: cells contract errors, so each layer adds its own to the tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from deepbench.core.op import AnswerComparison
from deepbench.core.operands import generator
from deepbench.core.precision import STORAGE_ROUNDOFF
from deepbench.core.tolerance import sum_roundoff
from deepbench.ops.recurrent.cell import Cell, values_of
from deepbench.ops.recurrent.problem import STATE_SCALE, STATE_SHIFT, Recurrent, layer_arrays
from deepbench.ops.recurrent.reference import (
    Gradients,
    ReferenceLayer,
    backpropagate_layers,
    run_layers,
    run_single_steps,
    run_steps,
    sum_over_ways,
)

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# In large layers, the first row is computed at all time steps and the other distinct rows at this many.
SAMPLED_STEPS = 64

# Error of one step, in units of the roundoff times the size of the sums; σ and tanh of libraries add some units.
STEP_UNITS = 64.0
# Cells contract, so errors decay: all steps together have at most this many times the error of one.
CHAIN = 8.0
# For 16-bit results: the few roundings in a step, relative to the largest state.
STORED_UNITS = 8.0
# For 8-bit results: rounding is half a unit; a state close to a tie may be rounded differently, and affect later ones.
STEP_8_BIT, CHAIN_8_BIT = 1.5, 4.0
# Gradients: errors of all steps forward and then backward.
GRADIENT_UNITS = 512.0
# Gradients of weights where steps store 16 bits: in units of the root mean square error (`errors_of_matrix`). The
# errors of several layers are independent, so they add like the root of their number.
GRADIENT_ERRORS = 10.0
# Up to this many multiply-adds dr is computed in full; beyond, in sums of this many rows with random signs. The errors
# of a sum add like the root of their sum of squares. No safety factor: the error of each row is a bound already.
FULL_CHECK_MULTIPLY_ADDS = 2**28
BLOCK = 16


def compare(case: Case, arrays: Arrays) -> Iterator[AnswerComparison]:
    """See `RecurrentOp.compare`."""
    p, rows, last = case.problem, case.problem.distinct_rows, case.problem.layers - 1
    stack = run_layers(case, arrays, rows, last)
    x = stack[-1].output() if stack else values_of(case, arrays["x"][:, :rows])
    top = ReferenceLayer(x, [Cell(case, arrays, last, way) for way in range(p.time_directions)], [])
    # The steps of vanilla cells and GRUs are checked one by one, each from the library's own previous state. An LSTM's
    # are not, because libraries do not return its cell states.
    compared = []
    for cell in top.cells:
        y = cell.in_order(cell.own_part(arrays["y"][:, :rows]))
        if p.cell == "lstm":
            states = run_steps(case, cell.in_order(x), cell)
            compared.append(
                _compare_states("every step from the first", case, y, states.y, states.magnitude, is_chain=True)
            )
        else:
            compared.append(_compare_single_steps(case, y, cell.in_order(x), cell))
            if case.direction != "forward":
                states = run_single_steps(cell.in_order(x), values_of(case, y), cell)
        if case.direction != "forward":
            top.states.append(states)
    yield _joined(compared)
    covers = arrays["y"].size
    if p.is_large and p.cell != "lstm":
        covers = p.output_size * sum(len(s) * n for s, n in zip(_steps_of_rows(p), _row_counts(p), strict=True))
    yield from _compare_repeated_rows(case, arrays["y"], covers)
    if case.direction != "forward":
        yield from _compare_gradients(case, arrays, [*stack, top])


def _joined(compared: list[AnswerComparison]) -> AnswerComparison:
    """The comparisons of both directions of time as one."""
    first = compared[0]
    got, want, tolerance = (
        np.concatenate([getattr(c, name).reshape(-1) for c in compared]) for name in ("got", "want", "tolerance")
    )
    return AnswerComparison(first.how, got, want, tolerance, sum(c.covers for c in compared), first.of, first.output)


def _compare_states(
    how: str, case: Case, got: Array, want: Array, magnitude: Array, is_chain: bool
) -> AnswerComparison:
    p = case.problem
    is_chain |= p.layers > 1
    if case.precision.roundoff:
        tolerance = STEP_UNITS * (CHAIN if is_chain else 1.0) * _roundoff(case) * magnitude[..., None]
        tolerance = p.layers * (tolerance + STORED_UNITS * STORAGE_ROUNDOFF[case.precision.data] * (1 + np.abs(want)))
    else:
        want = np.clip(want * STATE_SCALE + STATE_SHIFT, 0, 255)
        tolerance = np.full(want.shape, p.layers * (CHAIN_8_BIT if is_chain else STEP_8_BIT))
    of = p.timesteps * p.batch * p.output_size
    return AnswerComparison(how, got.astype(np.float64), want, tolerance, got.size, of, "y")


def _compare_single_steps(case: Case, y: Array, x: Array, cell: Cell) -> AnswerComparison:
    """Each step of the distinct rows from the library's previous state; only some steps in large layers.

    `y` (T, rows, H) as stored and `x` (T, rows, width) are in the order of the cell's steps.
    """
    p, steps = case.problem, _steps_of_rows(case.problem)
    row = np.repeat(np.arange(p.distinct_rows), [len(s) for s in steps])
    step = np.concatenate(steps)
    before = np.where((step == 0)[:, None], cell.h0[row], values_of(case, y[step - 1, row]))
    with np.errstate(invalid="ignore"):
        h, _ = cell.step(cell.project(x[step, row]), before, None)
        magnitude = cell.magnitude(before, x[step, row])
    how = "steps from the one before" if p.is_large else "every step from the one before"
    return _compare_states(how, case, y[step, row], h, magnitude, is_chain=False)


def _compare_repeated_rows(case: Case, y: Array, covers: int) -> Iterator[AnswerComparison]:
    """Every other row with its distinct row, some time steps at a time.

    `covers`: number of elements that have been compared with float64, directly or through their distinct row.
    """
    p = case.problem
    steps_at_once = max(1, 2**24 // (p.batch * p.output_size))
    for start in range(0, p.timesteps if p.batch > p.distinct_rows else 0, steps_at_once):
        part = y[start : start + steps_at_once]
        want = np.take(part, np.arange(p.distinct_rows, p.batch) % p.distinct_rows, axis=1).astype(np.float64)
        if case.precision.roundoff:
            sums = STEP_UNITS * CHAIN * _roundoff(case) * np.sqrt(p.hidden + p.counted_width(p.layers - 1))
            tolerance = p.layers * (sums + STORED_UNITS * STORAGE_ROUNDOFF[case.precision.data] * (1 + np.abs(want)))
        else:
            tolerance = np.full(want.shape, p.layers * CHAIN_8_BIT)
        got = part[:, p.distinct_rows :].astype(np.float64)
        yield AnswerComparison("every repeated row", got, want, tolerance, covers, y.size, "y")


def _compare_gradients(case: Case, arrays: Arrays, stack: list[ReferenceLayer]) -> Iterator[AnswerComparison]:
    """The gradients of every layer in each direction of time, and dx."""
    p = case.problem
    for number, both in backpropagate_layers(case, arrays, stack, p.distinct_rows):
        cells = stack[number].cells
        for cell, gradients in zip(cells, both, strict=True):
            outputs = layer_arrays(case, arrays, number, cell.way)
            for name in ("dh0", "dc0"):
                if name in outputs:
                    found = gradients.of_data[name], gradients.size_of_data[name]
                    yield _compare_data(case, name, outputs[name], *found, arrays[name].size)
            if "dr" in outputs:
                yield from _compare_weights(case, arrays, outputs, gradients, number)
        if number == 0 and "dx" in arrays:
            want, sizes = (
                sum_over_ways(cells, [getattr(g, of)["dx"] for g in both]) for of in ("of_data", "size_of_data")
            )
            yield _compare_data(case, "dx", arrays["dx"], want, sizes, arrays["dx"].size)


def _compare_data(case: Case, name: str, got: Array, distinct: Array, sizes: Array, of: int) -> AnswerComparison:
    """The gradient of x or of an initial state, row by row."""
    p, stored = case.problem, STORAGE_ROUNDOFF[case.precision.data]
    unit = p.layers * (GRADIENT_UNITS * _roundoff(case) + STORED_UNITS * stored * 8 / np.sqrt(p.gates * p.hidden))
    source, axis = np.arange(p.batch) % p.distinct_rows, distinct.ndim - 2
    want = np.take(distinct, source, axis=axis)
    tolerance = np.take(np.broadcast_to(unit * sizes, distinct.shape), source, axis=axis) + 4 * stored * np.abs(want)
    return AnswerComparison(f"every element of {name}", got.astype(np.float64), want, tolerance, of, of, name)


def _compare_weights(
    case: Case, arrays: Arrays, outputs: Arrays, gradients: Gradients, number: int
) -> Iterator[AnswerComparison]:
    """The gradients of the weights of one layer in one direction of time: in sums over rows of a large matrix.

    `outputs` are those of this layer; `arrays` has those of all.
    """
    p, stored = case.problem, STORAGE_ROUNDOFF[case.precision.data]
    counts = np.array(_row_counts(p), np.float64)
    sums = GRADIENT_UNITS * _roundoff(case)
    # Steps that store 16 bits: the error is followed through the steps. Else only the sums have errors.
    follows = gradients.variance is not None
    unit = p.layers * (sums if follows else sums + STORED_UNITS * stored * 8 / np.sqrt(p.timesteps * p.batch))
    of_gates = gradients.size_of_gates(counts)
    want = gradients.of_biases(counts)
    tolerance = unit * np.sqrt(p.timesteps * counts.sum()) * of_gates + 4 * stored * np.abs(want)
    if follows:
        tolerance = tolerance + np.sqrt(p.layers) * GRADIENT_ERRORS * gradients.errors_of_biases(counts, stored)
    of = arrays["db"].size
    yield AnswerComparison("every element of db", outputs["db"].astype(np.float64), want, tolerance, of, of, "db")
    for name in gradients.matrices:
        flat = outputs[f"d{name}"].reshape(len(outputs[f"d{name}"]), -1)
        weights = _row_combinations(p, len(flat))
        with np.errstate(invalid="ignore"):
            got, squares = np.zeros((2, len(weights), flat.shape[1]))
            for start in range(0, len(flat), 256):
                strip, columns = flat[start : start + 256].astype(np.float64), weights[:, start : start + 256]
                got += columns @ strip
                squares += columns**2 @ strip**2
            want = gradients.of_matrix(name, counts, weights).reshape(len(weights), -1)
            before = np.sqrt(weights**2 @ gradients.size_of_rows(name, counts) ** 2)
            gates = of_gates[[gate for _, gate in gradients.factors(name)]].reshape(-1)
            tolerance = unit * np.outer(before, gates) + 4 * stored * np.sqrt(squares)
            if follows:
                errors = gradients.errors_of_matrix(name, counts, stored, weights).reshape(len(weights), -1)
                tolerance = tolerance + np.sqrt(p.layers) * GRADIENT_ERRORS * errors
        output = f"d{name}_deep" if name == "w" and number else f"d{name}"
        how = f"every element of {output}" + (f" in a sum of {BLOCK}" if len(weights) < len(flat) else "")
        yield AnswerComparison(how, got, want, tolerance, arrays[output].size, arrays[output].size, output)


def _row_combinations(p: Recurrent, rows: int) -> Array:
    """Weights with which rows of dw or dr are combined: every row alone, or blocks of rows with random signs."""
    if p.timesteps * p.distinct_rows * p.gates * p.hidden * rows <= FULL_CHECK_MULTIPLY_ADDS:
        return np.eye(rows)
    signs = generator(stream=7).integers(0, 1, rows, endpoint=True) * 2.0 - 1.0
    weights = np.zeros((-(-rows // BLOCK), rows))
    weights[np.arange(rows) // BLOCK, np.arange(rows)] = signs
    return weights


def _row_counts(p: Recurrent) -> list[int]:
    """How often each distinct row occurs in the batch."""
    return [len(range(row, p.batch, p.distinct_rows)) for row in range(p.distinct_rows)]


def _steps_of_rows(p: Recurrent) -> list[Array]:
    """The time steps at which each distinct row is computed."""
    choices = generator(stream=8)
    steps = [np.arange(p.timesteps)]
    for _ in range(1, p.distinct_rows):
        sampled = np.r_[0, p.timesteps - 1, choices.integers(0, p.timesteps, SAMPLED_STEPS)]
        steps.append(np.unique(sampled) if p.is_large else np.arange(p.timesteps))
    return steps


def _roundoff(case: Case) -> float:
    """Roundoff of the sums: over hidden units and inputs, and for weight gradients over steps and rows."""
    p = case.problem
    widths = [p.hidden, *filter(None, map(p.counted_width, range(p.layers)))]
    return sum_roundoff(
        case.precision, min(*widths, p.timesteps * p.batch) if case.direction != "forward" else min(widths)
    )
