"""Compare the outputs of a recurrent layer with float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from deepbench.core.op import Comparison
from deepbench.core.operands import generator
from deepbench.core.precision import STORAGE_ROUNDOFF
from deepbench.core.tolerance import sum_roundoff
from deepbench.ops.recurrent.cell import Cell
from deepbench.ops.recurrent.problem import STATE_SCALE, STATE_SHIFT, Recurrent
from deepbench.ops.recurrent.reference import Gradients, backpropagate, run_single_steps, run_steps

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
# Gradients of weights where steps store 16 bits: in units of the root mean square error (`errors_of_weights`).
GRADIENT_ERRORS = 10.0
# Up to this many multiply-adds dr is computed in full; beyond, in sums of this many rows with random signs. The errors
# of a sum add like the root of their sum of squares. No safety factor: the error of each row is a bound already.
FULL_CHECK_MULTIPLY_ADDS = 2**28
BLOCK = 16


def compare(case: Case, arrays: Arrays) -> Iterator[Comparison]:
    """See `RecurrentOp.compare`."""
    p, y = case.problem, arrays["y"]
    distinct, covers = y[:, : p.distinct_rows], y.size
    cell = Cell(case, arrays)
    # The steps of vanilla cells and GRUs are checked one by one, each from the library's own previous state. An LSTM's
    # are not, because libraries do not return its cell states.
    if p.cell == "lstm":
        states = run_steps(case, arrays, p.distinct_rows, cell)
        yield _compare_states("every step from the first", case, distinct, states.y, states.magnitude, is_chain=True)
    else:
        yield _compare_single_steps(case, arrays, cell)
        if p.is_large:
            covers = p.hidden * sum(len(s) * n for s, n in zip(_steps_of_rows(p), _row_counts(p), strict=True))
    yield from _compare_repeated_rows(case, y, covers)
    if case.direction != "forward":
        if p.cell != "lstm":
            states = run_single_steps(arrays, distinct, cell)
        yield from _compare_gradients(case, arrays, backpropagate(case, arrays, states, p.distinct_rows, cell))


def _compare_states(how: str, case: Case, got: Array, want: Array, magnitude: Array, is_chain: bool) -> Comparison:
    if case.precision.roundoff:
        tolerance = STEP_UNITS * (CHAIN if is_chain else 1.0) * _roundoff(case) * magnitude[..., None]
        tolerance = tolerance + STORED_UNITS * STORAGE_ROUNDOFF[case.precision.data] * (1 + np.abs(want))
    else:
        want = np.clip(want * STATE_SCALE + STATE_SHIFT, 0, 255)
        tolerance = np.full(want.shape, CHAIN_8_BIT if is_chain else STEP_8_BIT)
    p = case.problem
    of = p.timesteps * p.batch * p.hidden
    return Comparison(how, got.astype(np.float64), want, tolerance, got.size, of, "y")


def _compare_single_steps(case: Case, arrays: Arrays, cell: Cell) -> Comparison:
    """Each step of the distinct rows from the library's previous state; only some steps in large layers."""
    p, y, steps = case.problem, arrays["y"], _steps_of_rows(case.problem)
    row = np.repeat(np.arange(p.distinct_rows), [len(s) for s in steps])
    step = np.concatenate(steps)
    before = cell.state(np.where((step == 0)[:, None], arrays["h0"][row], y[step - 1, row]))
    with np.errstate(invalid="ignore"):
        h, _ = cell.step(arrays["x"][step, row].astype(np.float64), before, None)
        magnitude = cell.magnitude(before)
    how = "steps from the one before" if p.is_large else "every step from the one before"
    return _compare_states(how, case, y[step, row], h, magnitude, is_chain=False)


def _compare_repeated_rows(case: Case, y: Array, covers: int) -> Iterator[Comparison]:
    """Every other row with its distinct row, some time steps at a time.

    `covers`: number of elements that have been compared with float64, directly or through their distinct row.
    """
    p = case.problem
    steps_at_once = max(1, 2**24 // (p.batch * p.hidden))
    for start in range(0, p.timesteps if p.batch > p.distinct_rows else 0, steps_at_once):
        part = y[start : start + steps_at_once]
        want = np.take(part, np.arange(p.distinct_rows, p.batch) % p.distinct_rows, axis=1).astype(np.float64)
        if case.precision.roundoff:
            sums = STEP_UNITS * CHAIN * _roundoff(case) * np.sqrt(p.hidden)
            tolerance = sums + STORED_UNITS * STORAGE_ROUNDOFF[case.precision.data] * (1 + np.abs(want))
        else:
            tolerance = np.full(want.shape, CHAIN_8_BIT)
        got = part[:, p.distinct_rows :].astype(np.float64)
        yield Comparison("every repeated row", got, want, tolerance, covers, y.size, "y")


def _compare_gradients(case: Case, arrays: Arrays, gradients: Gradients) -> Iterator[Comparison]:
    """Data gradients row by row, weight gradients in sums over rows."""
    p, stored = case.problem, STORAGE_ROUNDOFF[case.precision.data]
    sums = GRADIENT_UNITS * _roundoff(case)
    unit = sums + STORED_UNITS * stored * 8 / np.sqrt(p.gates * p.hidden)
    source = np.arange(p.batch) % p.distinct_rows
    for name, distinct in gradients.of_data.items():
        if name in arrays:
            axis = distinct.ndim - 2
            want = np.take(distinct, source, axis=axis)
            tolerance = np.take(unit * gradients.size_of_data[name], source, axis=axis) + 4 * stored * np.abs(want)
            yield _every_element(name, arrays[name], want, tolerance)
    if "dr" not in arrays:
        return
    counts = np.array(_row_counts(p), np.float64)
    sizes, weights = gradients.sizes(counts), _row_combinations(p)
    # Steps that store 16 bits: the error is followed through the steps. Else only the sums have errors.
    errors: Arrays = {}
    if gradients.variance is not None:
        errors = {n: GRADIENT_ERRORS * e for n, e in gradients.errors_of_weights(counts, stored, weights).items()}
        unit = sums
    else:
        unit = sums + STORED_UNITS * stored * 8 / np.sqrt(p.timesteps * p.batch)
    for name, want in gradients.of_weights(counts).items():
        tolerance = unit * sizes[name] + errors.get(name, 0.0) + 4 * stored * np.abs(want)
        yield _every_element(name, arrays[name], want, tolerance)
    with np.errstate(invalid="ignore"):
        flat = arrays["dr"].reshape(p.hidden, -1)
        got, squares = np.zeros((2, len(weights), flat.shape[1]))
        for start in range(0, p.hidden, 256):
            strip, columns = flat[start : start + 256].astype(np.float64), weights[:, start : start + 256]
            got += columns @ strip
            squares += columns**2 @ strip**2
        want = gradients.of_recurrent(counts, weights).reshape(len(weights), -1)
        before = np.sqrt(weights**2 @ sizes["h"] ** 2)
        tolerance = unit * np.outer(before, sizes["recurrent_gates"].reshape(-1)) + 4 * stored * np.sqrt(squares)
        if errors:
            tolerance = tolerance + errors["dr"].reshape(len(weights), -1)
    how = "every element of dr" if len(weights) == p.hidden else f"every element of dr in a sum of {BLOCK}"
    yield Comparison(how, got, want, tolerance, flat.size, flat.size, "dr")


def _every_element(name: str, got: Array, want: Array, tolerance: Array) -> Comparison:
    tolerance = np.broadcast_to(tolerance, want.shape)
    return Comparison(f"every element of {name}", got.astype(np.float64), want, tolerance, want.size, want.size, name)


def _row_combinations(p: Recurrent) -> Array:
    """Weights with which rows of dr are combined: every row alone, or blocks of rows with random signs."""
    if p.timesteps * p.distinct_rows * p.gates * p.hidden**2 <= FULL_CHECK_MULTIPLY_ADDS:
        return np.eye(p.hidden)
    signs = generator(stream=7).integers(0, 1, p.hidden, endpoint=True) * 2.0 - 1.0
    weights = np.zeros((-(-p.hidden // BLOCK), p.hidden))
    weights[np.arange(p.hidden) // BLOCK, np.arange(p.hidden)] = signs
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
    """Roundoff of the sums: over hidden units, and for weight gradients over steps and rows."""
    p = case.problem
    shortest = min(p.hidden, p.timesteps * p.batch) if case.direction != "forward" else p.hidden
    return sum_roundoff(case.precision, shortest)
