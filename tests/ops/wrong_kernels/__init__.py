"""Kernels in float32, right ones and wrong ones, as data: one module per operation, each with a list `KERNELS`.

`tests/ops/test_wrong_kernels.py` checks that right ones pass with room, and that every wrong one is found.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from unittest import mock

import numpy as np

from deepbench.core import parts, product
from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.core.precision import PRECISIONS
from deepbench.measuring.check import check

# Less than in a run, so that problems of which the check takes a sample are small here.
FULL_CHECK_WORK, FULL_CHECK_ELEMENTS = 2**24, 2**15


@dataclass(frozen=True)
class Kernel:
    """What computes a case, rightly or with one mistake."""

    text: str
    """The case without its library."""
    mistake: str | None
    """What is wrong, in words; None if nothing is."""
    evaluate: Callable
    """Of the case, its arrays in float32 (integers stay) and the mistake: the outputs by name, in float32."""
    how: str = ""
    """Of a right one: how it differs from another right one of the same case."""
    exact: bool = False
    """Whether outputs of this right one are within half of the tolerance before they are stored in fewer bits."""

    @property
    def op(self):
        return self.text.split()[0]

    @property
    def precision(self):
        return next(word for word in self.text.split() if word in PRECISIONS)

    @property
    def id(self):
        return ": ".join(filter(None, (self.text, self.mistake or self.how)))

    def outputs(self, case, arrays):
        inputs = {n: a if np.issubdtype(a.dtype, np.integer) else a.astype(np.float32) for n, a in arrays.items()}
        with np.errstate(all="ignore"):
            return self.evaluate(case, inputs, self.mistake)

    def verdict(self):
        """What the check says of the outputs, in the type of the case."""
        op, case, arrays = operands(self.text)
        arrays = {name: array.copy() for name, array in arrays.items()}
        for name, values in self.outputs(case, arrays).items():
            arrays[name][...] = values
        return checked(op, case, arrays)

    def error(self):
        """The error of the outputs in tolerances, before they are stored in the type of the case."""
        op, case, arrays = operands(self.text)
        return checked(op, case, {**arrays, **self.outputs(case, arrays)}).error


def checked(op, case, arrays):
    with (
        mock.patch.object(parts, "FULL_CHECK_WORK", min(FULL_CHECK_WORK, parts.FULL_CHECK_WORK)),
        mock.patch.object(product, "FULL_CHECK_ELEMENTS", FULL_CHECK_ELEMENTS),
    ):
        return check(op, case, arrays)


def every(op, sizes, ways, evaluate, mistakes=(None,), exact=False):
    """A kernel for each of the sizes, ways such as `forward f32 layout=nhwc`, and mistakes."""
    return [Kernel(f"{op} {size} {way}", m, evaluate, exact=exact) for size in sizes for way in ways for m in mistakes]


@lru_cache(maxsize=1)
def operands(text):
    """Operation, case and operands, which the kernels of one text share."""
    case = parse_case(f"{text} reference threads=1")
    op = find_op(case.op)
    return op, case, op.operands(case)


def of_problem(function, **how):
    """An evaluation by `function(problem, arrays, **how)`, which makes the mistake itself."""
    return partial(_of_problem, function, how)


def _of_problem(function, how, case, arrays, mistake):
    return function(case.problem, arrays, **how)


def told(function):
    """An evaluation by `function(problem, arrays, mistake)`."""
    return lambda case, arrays, mistake: function(case.problem, arrays, mistake)
