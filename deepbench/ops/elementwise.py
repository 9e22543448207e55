"""Elementwise: one function of the elements at the same position of one to three vectors of `n` elements.

    relu            y = max(a, 0)                        relu6     y = min(max(a, 0), 6)
    gelu            y = a · Φ(a), with the normal distribution Φ(a) = (1 + erf(a/√2))/2
    gelu_tanh       y = a · (1 + tanh(√(2/π) · (a + 0.044715 · a³)))/2, an approximation of gelu
    silu            y = a · sigmoid(a)                   elu       y = a for a > 0, else exp(a) - 1
    sigmoid         y = 1/(1 + exp(-a))                  tanh      y = tanh(a)
    add             y = a + b                            multiply  y = a · b
    multiply_add    y = a · b + c                        add_relu  y = max(a + b, 0)
    hardtanh        y = min(max(a, -1), 1)               swiglu    y = silu(a) · b
    geglu           y = gelu(a) · b                      geglu_tanh  y = gelu_tanh(a) · b

(Hendrycks and Gimpel, "Gaussian error linear units", 2016; Shazeer, "GLU variants improve transformer", 2020.)
Networks clip at other numbers, too, such as Deep Speech 2 at 0 and 20: the work is that of hardtanh.

The backward pass has the gradient `dy` of y and what frameworks keep from the forward pass: for relu, sigmoid, tanh and
add_relu its `result`, else the inputs. It computes the gradients `da` and `db` that differ from
dy: `da` of add_relu is that of b, too, and the gradient of c is dy. `add` has no backward pass. Everything has the type
of the data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import Unsupported
from deepbench.core.parts import Expected, PartsOp, Tensor, blocks, elements_of
from deepbench.core.precision import Precision
from deepbench.core.problem import BaseProblem, choice, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# Inputs are up to this large, so that functions are checked where they saturate. A power of two: exact in every type.
LARGEST = 8.0

# Checking an element takes as long as so many multiply-adds; every element of vectors up to 2 million is checked.
CHECK_WORK = 32


@dataclass(frozen=True)
class ElementwiseKind:
    """What a function reads and writes."""

    inputs: tuple[str, ...]
    kept: tuple[str, ...]
    """What the backward pass reads, besides dy."""
    gradients: tuple[str, ...]
    flop: int
    """Per element; exp, erf and tanh count as one operation each."""
    backward_flop: int


KINDS = {
    "relu": ElementwiseKind(("a",), ("result",), ("da",), 1, 1),
    "relu6": ElementwiseKind(("a",), ("a",), ("da",), 2, 2),
    "gelu": ElementwiseKind(("a",), ("a",), ("da",), 5, 11),
    "gelu_tanh": ElementwiseKind(("a",), ("a",), ("da",), 9, 16),
    "silu": ElementwiseKind(("a",), ("a",), ("da",), 3, 8),
    "elu": ElementwiseKind(("a",), ("a",), ("da",), 2, 2),
    "sigmoid": ElementwiseKind(("a",), ("result",), ("da",), 3, 3),
    "tanh": ElementwiseKind(("a",), ("result",), ("da",), 1, 3),
    "add": ElementwiseKind(("a", "b"), (), (), 1, 0),
    "multiply": ElementwiseKind(("a", "b"), ("a", "b"), ("da", "db"), 1, 2),
    "multiply_add": ElementwiseKind(("a", "b", "c"), ("a", "b"), ("da", "db"), 2, 2),
    "add_relu": ElementwiseKind(("a", "b"), ("result",), ("da",), 2, 1),
    "swiglu": ElementwiseKind(("a", "b"), ("a", "b"), ("da", "db"), 4, 10),
    "hardtanh": ElementwiseKind(("a",), ("a",), ("da",), 2, 2),
    "geglu": ElementwiseKind(("a", "b"), ("a", "b"), ("da", "db"), 6, 14),
    "geglu_tanh": ElementwiseKind(("a", "b"), ("a", "b"), ("da", "db"), 10, 19),
}


@dataclass(frozen=True)
class Elementwise(BaseProblem):
    """Vectors of `n` elements."""

    kind: str = choice(*KINDS)
    n: int = size()


class ElementwiseOp(PartsOp):
    name = "elementwise"
    Problem = Elementwise
    directions = ("forward", "backward")
    outputs = ("y", "da", "db")
    sweep_field = "n"
    smoke = (
        *(Elementwise(kind, n) for kind, n in zip(KINDS, itertools.count(1, 691), strict=False)),
        Elementwise("gelu", 1),
        Elementwise("swiglu", 20011),
    )

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are computed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def result_type(self, case: Case) -> str:
        """Results have the type of the data."""
        return case.precision.data

    def names(self, case: Case) -> tuple[str, ...]:
        """The arrays of this direction, inputs first."""
        kind = KINDS[case.problem.kind]
        return (*kind.inputs, "y") if case.direction == "forward" else (*kind.kept, "dy", *kind.gradients)

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """All have `n` elements."""
        return {name: Tensor((case.problem.n,), case.precision.data) for name in self.names(case)}

    def operands(self, case: Case) -> Arrays:
        """Refuses the backward pass of `add`, which computes nothing."""
        if case.direction == "backward" and not KINDS[case.problem.kind].gradients:
            raise Unsupported(f"the gradients of {case.problem.kind} are dy itself, so there is nothing to compute")
        return super().operands(case)

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Numbers up to `LARGEST`; `result` is what a forward pass would store."""
        import numpy as np

        super().fill(case, name, array, stream)
        array *= array.dtype.type(LARGEST)
        if name == "result":
            for start in range(0, array.size, 2**20):
                part = array[start : start + 2**20]
                part[...] = FORWARD[case.problem.kind](*2 * [part.astype(np.float64) / 2]).value

    def free_inputs(self, case: Case) -> tuple[str, ...]:
        """All inputs of the forward pass."""
        return KINDS[case.problem.kind].inputs if case.direction == "forward" else ()

    def parts(self, case: Case) -> int:
        """Blocks of elements."""
        return blocks(case.problem.n)

    def check_work(self, case: Case) -> int:
        """More than counted FLOP: the float64 functions are slow."""
        return int(CHECK_WORK * case.problem.n)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """docs/formulas.md derives the tolerances."""
        import numpy as np

        from deepbench.core.tolerance import F16_SMALL, TOLERANCE_UNITS, storage_error

        kind, at = KINDS[case.problem.kind], elements_of(parts, case.problem.n)
        forward = case.direction == "forward"
        read = kind.inputs if forward else (*kind.kept, "dy")
        values = [arrays[name][at].astype(np.float64) for name in read]
        found = (FORWARD if forward else BACKWARD)[case.problem.kind](*values)
        results = found if isinstance(found, tuple) else (found,)
        unit = TOLERANCE_UNITS * case.precision.roundoff
        for name, result in zip(("y",) if forward else kind.gradients, results, strict=True):
            tolerance = unit * result.scale + F16_SMALL * (case.precision.name == "f16")
            if result.between is not None:
                tolerance = tolerance + storage_error(self.result_type(case), result.between)
            yield Expected(name, arrays[name][at], result.value, tolerance)

    def flop(self, case: Case) -> int:
        """See `KINDS`."""
        kind = KINDS[case.problem.kind]
        return int((kind.flop if case.direction == "forward" else kind.backward_flop) * case.problem.n)

    def smallest(self, case: Case) -> BaseProblem:
        """One element."""
        smallest: BaseProblem = replace(case.problem, n=1)
        return smallest

    def title(self, problem: Any) -> str:
        """`gelu of 1048576`."""
        return f"{problem.kind} of {problem.n}"


@dataclass(frozen=True)
class ElementwiseResult:
    """A result in float64, and what its error is proportional to."""

    value: Array
    scale: Array
    """The result is wrong by at most some roundoffs of this."""
    between: Array | None = None
    """A value that a library may store in the type of the data before the result is computed from it."""


def _erf(x: Array) -> Array:
    import numpy as np

    return np.fromiter(map(math.erf, x.tolist()), np.float64, x.size)


def _sigmoid(x: Array) -> Array:
    import numpy as np

    y: Array = 1 / (1 + np.exp(-x))
    return y


def _relu(a: Array, *_: Array) -> ElementwiseResult:
    import numpy as np

    return ElementwiseResult(np.maximum(a, 0), np.zeros_like(a))


def _relu6(a: Array) -> ElementwiseResult:
    import numpy as np

    return ElementwiseResult(np.clip(a, 0, 6), np.zeros_like(a))


def _gelu(a: Array) -> ElementwiseResult:
    return ElementwiseResult(a * (1 + _erf(a / math.sqrt(2))) / 2, abs(a))


def _gelu_tanh(a: Array) -> ElementwiseResult:
    import numpy as np

    return ElementwiseResult(a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))) / 2, abs(a))


def _silu(a: Array) -> ElementwiseResult:
    y = a * _sigmoid(a)
    return ElementwiseResult(y, abs(y))


def _elu(a: Array) -> ElementwiseResult:
    import numpy as np

    # exp(a) - 1 cancels near 0, and is rounded far from it: both errors are relative to 1.
    return ElementwiseResult(np.where(a > 0, a, np.expm1(np.minimum(a, 0))), np.where(a > 0, 0.0, 1.0))


def _sigmoid_result(a: Array, *_: Array) -> ElementwiseResult:
    y = _sigmoid(a)
    return ElementwiseResult(y, y)


def _tanh(a: Array, *_: Array) -> ElementwiseResult:
    import numpy as np

    y = np.tanh(a)
    return ElementwiseResult(y, abs(y))


def _add(a: Array, b: Array) -> ElementwiseResult:
    return ElementwiseResult(a + b, abs(a + b))


def _multiply(a: Array, b: Array) -> ElementwiseResult:
    return ElementwiseResult(a * b, abs(a * b))


def _multiply_add(a: Array, b: Array, c: Array) -> ElementwiseResult:
    return ElementwiseResult(a * b + c, abs(a * b) + abs(c), a * b)


def _add_relu(a: Array, b: Array) -> ElementwiseResult:
    import numpy as np

    return ElementwiseResult(np.maximum(a + b, 0), abs(a + b), a + b)


def _swiglu(a: Array, b: Array) -> ElementwiseResult:
    y = a * _sigmoid(a) * b
    return ElementwiseResult(y, abs(y), y)


def _hardtanh(a: Array) -> ElementwiseResult:
    import numpy as np

    return ElementwiseResult(np.clip(a, -1, 1), np.zeros_like(a))


def _geglu(a: Array, b: Array) -> ElementwiseResult:
    return _times(_gelu(a), b)


def _geglu_tanh(a: Array, b: Array) -> ElementwiseResult:
    return _times(_gelu_tanh(a), b)


def _times(gate: ElementwiseResult, b: Array) -> ElementwiseResult:
    """A product whose first factor a library may store."""
    y = gate.value * b
    return ElementwiseResult(y, gate.scale * abs(b), y)


FORWARD: dict[str, Callable[..., ElementwiseResult]] = {
    "relu": _relu,
    "relu6": _relu6,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "elu": _elu,
    "sigmoid": _sigmoid_result,
    "tanh": _tanh,
    "add": _add,
    "multiply": _multiply,
    "multiply_add": _multiply_add,
    "add_relu": _add_relu,
    "swiglu": _swiglu,
    "hardtanh": _hardtanh,
    "geglu": _geglu,
    "geglu_tanh": _geglu_tanh,
}


def _relu_gradient(y: Array, dy: Array) -> ElementwiseResult:
    return ElementwiseResult(dy * (y > 0), 0 * dy)


def _relu6_gradient(a: Array, dy: Array) -> ElementwiseResult:
    return ElementwiseResult(dy * ((a > 0) & (a < 6)), 0 * dy)


def _gelu_gradient(a: Array, dy: Array) -> ElementwiseResult:
    import numpy as np

    density = np.exp(-(a**2) / 2) / math.sqrt(2 * math.pi)
    return ElementwiseResult(dy * ((1 + _erf(a / math.sqrt(2))) / 2 + a * density), abs(dy))


def _gelu_tanh_gradient(a: Array, dy: Array) -> ElementwiseResult:
    import numpy as np

    root = math.sqrt(2 / math.pi)
    t = np.tanh(root * (a + 0.044715 * a**3))
    slope = root * (1 + 3 * 0.044715 * a**2)
    return ElementwiseResult(dy * ((1 + t) / 2 + a * (1 - t**2) * slope / 2), abs(dy) * (1 + abs(a) * slope / 2))


def _silu_slope(a: Array) -> Array:
    s = _sigmoid(a)
    slope: Array = s * (1 + a * (1 - s))
    return slope


def _silu_gradient(a: Array, dy: Array) -> ElementwiseResult:
    return ElementwiseResult(dy * _silu_slope(a), abs(dy) * (1 + abs(a)))


def _elu_gradient(a: Array, dy: Array) -> ElementwiseResult:
    import numpy as np

    value = dy * np.exp(np.minimum(a, 0))
    return ElementwiseResult(value, abs(value))


def _sigmoid_gradient(y: Array, dy: Array) -> ElementwiseResult:
    value = dy * y * (1 - y)
    return ElementwiseResult(value, abs(dy * y), 2 * value)


def _tanh_gradient(y: Array, dy: Array) -> ElementwiseResult:
    return ElementwiseResult(dy * (1 - y**2), abs(dy))


def _multiply_gradients(a: Array, b: Array, dy: Array) -> tuple[ElementwiseResult, ElementwiseResult]:
    return _multiply(dy, b), _multiply(dy, a)


def _swiglu_gradients(a: Array, b: Array, dy: Array) -> tuple[ElementwiseResult, ElementwiseResult]:
    da, db = dy * b * _silu_slope(a), dy * a * _sigmoid(a)
    return ElementwiseResult(da, abs(dy * b) * (1 + abs(a)), da), ElementwiseResult(db, abs(db), db)


def _hardtanh_gradient(a: Array, dy: Array) -> ElementwiseResult:
    return ElementwiseResult(dy * (abs(a) < 1), 0 * dy)


def _geglu_gradients(a: Array, b: Array, dy: Array) -> tuple[ElementwiseResult, ElementwiseResult]:
    da = _gelu_gradient(a, dy * b)
    return ElementwiseResult(da.value, da.scale, da.value), _times(_gelu(a), dy)


def _geglu_tanh_gradients(a: Array, b: Array, dy: Array) -> tuple[ElementwiseResult, ElementwiseResult]:
    da = _gelu_tanh_gradient(a, dy * b)
    return ElementwiseResult(da.value, da.scale, da.value), _times(_gelu_tanh(a), dy)


BACKWARD: dict[str, Callable[..., ElementwiseResult | tuple[ElementwiseResult, ElementwiseResult]]] = {
    "relu": _relu_gradient,
    "relu6": _relu6_gradient,
    "gelu": _gelu_gradient,
    "gelu_tanh": _gelu_tanh_gradient,
    "silu": _silu_gradient,
    "elu": _elu_gradient,
    "sigmoid": _sigmoid_gradient,
    "tanh": _tanh_gradient,
    "multiply": _multiply_gradients,
    "multiply_add": _multiply_gradients,
    "add_relu": _relu_gradient,
    "swiglu": _swiglu_gradients,
    "hardtanh": _hardtanh_gradient,
    "geglu": _geglu_gradients,
    "geglu_tanh": _geglu_tanh_gradients,
}

OP = ElementwiseOp()
