"""Loss: how far the results of a network are from their targets, as one number: the mean over rows or numbers.

    cross_entropy           -log softmax(x)[target], the mean over rows; a target is the number of a column
    binary_cross_entropy    log(1 + exp(x)) - x · t
    mean_squared_error      (x - t)²
    smooth_l1               d²/2 for |d| < 1, else |d| - 1/2, with d = x - t
    focal                   α · (1 - p)² · -log(p), where p = sigmoid(x) and α = 1/4 for t = 1,
                            and p = 1 - sigmoid(x) and α = 3/4 for t = 0

(Girshick, "Fast R-CNN", 2015, for smooth_l1; Lin et al., "Focal loss for dense object detection", 2017.) The last four
are the mean over all rows · columns numbers; the targets t of binary_cross_entropy and focal are 0 or 1. The backward
pass has the gradient `dloss` of the loss and computes `dx`. Libraries may keep what they like from a forward pass
before, such as the logarithms of the sums of a softmax.

`x`, `dx` and the targets t have the type of the data, numbers of columns are s32, and `loss` is f32. The first row of
`x` is 100 larger, except of mean_squared_error and smooth_l1: exp(100) is not an f32, so a kernel that lets it overflow
fails. `dloss` is proportional to the numbers in the mean, as in training with a scaled loss, so that no gradient
underflows in f16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.core.parts import Expected, PartsOp, Tensor, blocks, elements_of
from deepbench.core.precision import Precision
from deepbench.core.problem import BaseProblem, choice, size
from deepbench.core.rows import TINY, growth_of_squares, strips

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

SPREAD, OFFSET = 4.0, 100.0

# dloss, over the count of the numbers in the mean.
SCALE = 0.75

# Of the focal loss: the weight of examples with t = 1. The exponent of (1 - p) is 2.
ALPHA = 0.25

# Errors of single losses have random signs, so that of their mean is smaller, but for what all have in common: the
# error of an approximated exponential, for example.
MEAN_CANCELS = 4

# Up to so many numbers, the reference of the mean is computed in f64 throughout.
MOST_IN_F64 = 2**22


@dataclass(frozen=True)
class LossKind:
    """How much a loss computes per number; exp and log count as one operation each (docs/formulas.md)."""

    flop: int
    backward_flop: int
    of_logits: bool
    """Whether x is the argument of a softmax or a sigmoid."""


KINDS = {
    "cross_entropy": LossKind(4, 3, True),
    "binary_cross_entropy": LossKind(8, 5, True),
    "mean_squared_error": LossKind(3, 2, False),
    "smooth_l1": LossKind(6, 3, False),
    "focal": LossKind(15, 18, True),
}


@dataclass(frozen=True)
class Loss(BaseProblem):
    """`rows` of results with `columns` numbers each."""

    kind: str = choice(*KINDS)
    rows: int = size()
    columns: int = size(default=1, omit_default=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "cross_entropy" and self.columns < 2:
            raise BadInput("cross_entropy needs at least two columns to choose from; add for example columns=1000")


class LossOp(PartsOp):
    name = "loss"
    Problem = Loss
    directions = ("forward", "backward")
    outputs = ("loss", "dx")
    sweep_field = "rows"
    smoke = (
        Loss("cross_entropy", 1, 2),
        Loss("cross_entropy", 17, 67),
        Loss("cross_entropy", 5, 1003),
        *(Loss(kind, 41, 5) for kind in KINDS if kind != "cross_entropy"),
        Loss("focal", 1),
        Loss("binary_cross_entropy", 9001),
    )

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are added in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def result_type(self, case: Case) -> str:
        """The loss is f32, its gradient has the type of `x`."""
        return "f32" if case.direction == "forward" else case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`x`, `dx` (rows, columns), `target` the same or (rows) columns; `loss` and its gradient are one number."""
        p = case.problem
        whole, one = Tensor((p.rows, p.columns), case.precision.data), Tensor((1,), "f32")
        inputs = {"x": whole, "target": Tensor((p.rows,), "s32") if p.kind == "cross_entropy" else whole}
        return {**inputs, "loss": one} if case.direction == "forward" else {**inputs, "dloss": one, "dx": whole}

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Random numbers, numbers of columns, or zeros and ones; the first row belongs to the wrong class."""
        import numpy as np

        from deepbench.core.operands import generator

        p = case.problem
        if name == "dloss":
            array[...] = SCALE * self._count(case)
        elif p.kind == "cross_entropy" and name == "target":
            array[...] = generator(stream).integers(0, p.columns, p.rows)
        else:
            super().fill(case, name, array, stream)
            for strip in strips(array):
                values = array[strip].astype(np.float32)
                is_class = name == "target" and KINDS[p.kind].of_logits
                array[strip] = values > 0 if is_class else SPREAD * values
            if KINDS[p.kind].of_logits:
                array[0] = array[0].astype(np.float32) + OFFSET if name == "x" else 0

    def _count(self, case: Case) -> int:
        """The numbers in the mean."""
        p = case.problem
        return int(p.rows if p.kind == "cross_entropy" else p.rows * p.columns)

    def parts(self, case: Case) -> int:
        """Rows of a cross entropy, else blocks of numbers. The loss has no parts."""
        count = self._count(case)
        return count if case.problem.kind == "cross_entropy" else blocks(count)

    def check_work(self, case: Case) -> int:
        """More than counted FLOP: the float64 functions are slow."""
        return int(16 * case.problem.rows * case.problem.columns)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """docs/formulas.md derives the tolerances."""
        from deepbench.core.tolerance import TOLERANCE_UNITS

        unit = TOLERANCE_UNITS * case.precision.roundoff
        yield self._loss(case, arrays, unit) if case.direction == "forward" else self._dx(case, arrays, parts, unit)

    def _loss(self, case: Case, arrays: Arrays, unit: float) -> Expected:
        """All numbers, because each is in the mean. Of a large problem, functions are computed in f32 and added in f64.

        Their errors are random, so that of their mean is far below the tolerance.
        """
        import numpy as np

        count, kind = self._count(case), np.float64 if arrays["x"].size <= MOST_IN_F64 else np.float32
        total, squares, errors = 0.0, 0.0, 0.0
        for strip in strips(arrays["x"]):
            x, target = arrays["x"][strip].astype(kind), arrays["target"][strip]
            found = LOSSES[case.problem.kind](x, target if target.dtype == np.int32 else target.astype(kind))
            total += float(found.value.sum(dtype=np.float64))
            squares += float(np.square(found.value).sum(dtype=np.float64))
            errors += float(found.error.sum(dtype=np.float64))
        of_sum = growth_of_squares(count) * math.sqrt(squares / count)
        tolerance = unit / MEAN_CANCELS * (errors / count + of_sum)
        return Expected("loss", arrays["loss"], np.array([total / count]), np.array([tolerance]))

    def _dx(self, case: Case, arrays: Arrays, parts: Array, unit: float) -> Expected:
        import numpy as np

        factor = float(arrays["dloss"][0]) / self._count(case)
        if case.problem.kind == "cross_entropy":
            chosen = {name: arrays[name][parts] for name in ("x", "target", "dx")}
        else:
            at = elements_of(parts, arrays["x"].size)
            chosen = {name: arrays[name].reshape(-1)[at] for name in ("x", "target", "dx")}
        x, target = chosen["x"].astype(np.float64), chosen["target"]
        found = GRADIENTS[case.problem.kind](x, target if target.dtype == np.int32 else target.astype(np.float64))
        tolerance = unit * abs(factor) * found.error + TINY[case.precision.data]
        shape = arrays["dx"].shape if x.size == arrays["dx"].size else x.shape
        return Expected(
            "dx", chosen["dx"].reshape(shape), (factor * found.value).reshape(shape), tolerance.reshape(shape)
        )

    def flop(self, case: Case) -> int:
        """See `KINDS`."""
        p = case.problem
        kind = KINDS[p.kind]
        return int((kind.flop if case.direction == "forward" else kind.backward_flop) * p.rows * p.columns)

    def smallest(self, case: Case) -> BaseProblem:
        """One number, or a choice of two."""
        smallest: BaseProblem = replace(case.problem, rows=1, columns=2 if case.problem.kind == "cross_entropy" else 1)
        return smallest

    def title(self, problem: Any) -> str:
        """`cross_entropy of 8192 × 1024`."""
        return f"{problem.kind} of {problem.rows}{f' × {problem.columns}' * (problem.columns > 1)}"


@dataclass(frozen=True)
class LossResult:
    """Losses or gradients, before the mean, and what their error is proportional to."""

    value: Array
    error: Array
    """The value is wrong by at most some roundoffs of this."""


def _softmax(x: Array) -> tuple[Array, Array, Array, Array, Array]:
    """The largest number of each row, the distances to it, their exponentials, the sums and the errors of the sums."""
    import numpy as np

    largest = x.max(axis=1, keepdims=True)
    distance = largest - x
    e = np.exp(-distance)
    total = e.sum(axis=1, keepdims=True, dtype=np.float64)
    squares = np.square(e).sum(axis=1, keepdims=True, dtype=np.float64)
    of_sum = growth_of_squares(x.shape[1]) * np.sqrt(x.shape[1] * squares) / total
    return largest, distance, e, total, of_sum


def _cross_entropy(x: Array, target: Array) -> LossResult:
    import numpy as np

    largest, _, _, total, of_sum = _softmax(x)
    chosen = np.take_along_axis(x, target[:, None].astype(np.int64), axis=1)
    value = np.log(total) + (largest.astype(np.float64) - chosen)
    return LossResult(value, np.abs(largest) + np.abs(chosen) + np.abs(value) + 1 + of_sum)


def _cross_entropy_gradient(x: Array, target: Array) -> LossResult:
    import numpy as np

    largest, distance, e, total, of_sum = _softmax(x)
    p = e / total
    error = p * (1 + (distance + np.abs(largest) + np.log(total)) / 4 + of_sum)
    rows = np.arange(target.size)
    p[rows, target] -= 1
    error[rows, target] += 1
    return LossResult(p, error)


def _log_sigmoids(x: Array) -> tuple[Array, Array]:
    """-log(sigmoid(x)) and -log(1 - sigmoid(x))."""
    import numpy as np

    small = np.log1p(np.exp(-np.abs(x)))
    return np.maximum(-x, 0) + small, np.maximum(x, 0) + small


def _binary_cross_entropy(x: Array, target: Array) -> LossResult:
    import numpy as np

    right, wrong = _log_sigmoids(x)
    value = np.where(target > 0, right, wrong)
    return LossResult(value, np.abs(x) + value)


def _binary_cross_entropy_gradient(x: Array, target: Array) -> LossResult:
    import numpy as np

    right, _ = _log_sigmoids(x)
    value = np.exp(-right) - target
    return LossResult(value, np.ones_like(value))


def _mean_squared_error(x: Array, target: Array) -> LossResult:
    value = (x - target) ** 2
    return LossResult(value, value)


def _mean_squared_error_gradient(x: Array, target: Array) -> LossResult:
    value = 2 * (x - target)
    return LossResult(value, abs(value))


def _smooth_l1(x: Array, target: Array) -> LossResult:
    import numpy as np

    distance = np.abs(x - target)
    value = np.where(distance < 1, distance**2 / 2, distance - 0.5)
    return LossResult(value, distance)


def _smooth_l1_gradient(x: Array, target: Array) -> LossResult:
    import numpy as np

    value = np.clip(x - target, -1, 1)
    return LossResult(value, np.abs(value))


def _focal(x: Array, target: Array) -> LossResult:
    import numpy as np

    right, wrong = _log_sigmoids(x)
    is_one = target > 0
    loss, other = np.where(is_one, right, wrong), np.where(is_one, wrong, right)
    alpha, miss = np.where(is_one, ALPHA, 1 - ALPHA), np.exp(-other)
    return LossResult(alpha * miss**2 * loss, alpha * miss * (miss * np.abs(x) + loss))


def _focal_gradient(x: Array, target: Array) -> LossResult:
    import numpy as np

    right, wrong = _log_sigmoids(x)
    is_one = target > 0
    loss, other = np.where(is_one, right, wrong), np.where(is_one, wrong, right)
    alpha, miss, hit = np.where(is_one, -ALPHA, 1 - ALPHA), np.exp(-other), np.exp(-loss)
    value = alpha * miss**2 * (2 * hit * loss + miss)
    return LossResult(value, np.abs(alpha) * miss * (1 + loss))


LOSSES: dict[str, Callable[[Array, Array], LossResult]] = {
    "cross_entropy": _cross_entropy,
    "binary_cross_entropy": _binary_cross_entropy,
    "mean_squared_error": _mean_squared_error,
    "smooth_l1": _smooth_l1,
    "focal": _focal,
}

GRADIENTS: dict[str, Callable[[Array, Array], LossResult]] = {
    "cross_entropy": _cross_entropy_gradient,
    "binary_cross_entropy": _binary_cross_entropy_gradient,
    "mean_squared_error": _mean_squared_error_gradient,
    "smooth_l1": _smooth_l1_gradient,
    "focal": _focal_gradient,
}

OP = LossOp()
