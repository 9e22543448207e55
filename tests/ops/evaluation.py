"""Evaluates operations in float32, correctly or wrongly, and checks what comes out."""

import numpy as np

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.measuring.check import check


def verdict_of(text, evaluate):
    """The verdict on `evaluate(problem, arrays)`, which gets arrays in float32 and returns outputs in float32.

    `text` is a case without its library. Outputs are stored in the type of the case.
    """
    case = parse_case(f"{text} reference threads=1")
    op = find_op(case.op)
    arrays = op.operands(case)
    inputs = {name: a.astype(np.float32) if a.dtype.name != "int32" else a for name, a in arrays.items()}
    with np.errstate(all="ignore"):
        results = evaluate(case.problem, inputs)
    for name, values in results.items():
        assert values.dtype == np.float32, name
        arrays[name][...] = values
    return check(op, case, arrays)


def is_right_with_room(text, evaluate):
    """Whether a correct evaluation passes; in f32, with less than half of the tolerance."""
    verdict = verdict_of(text, evaluate)
    return verdict.passed and (" f32" not in text or verdict.error < 0.5)


def is_found(text, evaluate):
    """Whether the check finds that this evaluation is wrong."""
    return not verdict_of(text, evaluate).passed
