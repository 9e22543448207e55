"""Fully connected layer: C = f(A·B + bias), a GEMM with what follows it.

A (m × k) holds the weights of m outputs, B (k × n) has a column of k inputs for each of n tokens. `bias` has one
number for each output, and f is the setting `activation`:

    none: z      relu: max(z, 0)      gelu: z · Φ(z), with the distribution function Φ      silu: z / (1 + exp(-z))

Arrays as frameworks store them: `a` (m, k), `b` (n, k), `bias` (m), `c` (n, m). `bias` and `c` have the type of the
data, and bf16 where that is an 8-bit float.

With `scales=block`, 8-bit floats have scales of f32, as in DeepSeek-V3 (2024): an element of A is a[i, j] ·
a_scales[i / 128, j / 128], and one of B is b[t, j] · b_scales[t, j / 128], with quotients rounded down. The last block
of a row or column may be smaller. Quantizing B is not part of the operation.

GELU is the exact one (Hendrycks, Gimpel, "Gaussian error linear units", 2016), not the approximation by tanh.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.op import FLOATS_8
from deepbench.core.parts import Tensor
from deepbench.core.precision import Precision
from deepbench.core.problem import BaseProblem, size
from deepbench.core.product import Product, ProductsOp

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays
    from deepbench.core.tolerance import Matrix

# The largest slope of each activation: an error of its argument grows by at most this factor.
SLOPE = {"none": 1.0, "relu": 1.0, "gelu": 1.13, "silu": 1.1}


# Numbers with a common scale: of A along both axes, of B along k.
BLOCK = 128


@dataclass(frozen=True)
class BlockScaled:
    """A matrix whose numbers have a scale for each block of `rows` × `columns`; in float64, a part at a time."""

    stored: Array
    scales: Array
    rows: int
    columns: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return tuple(self.stored.shape)

    def __getitem__(self, index: Any) -> Array:
        import numpy as np

        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        of_row = np.arange(self.shape[0])[rows] // self.rows
        of_column = np.arange(self.shape[1])[columns] // self.columns
        values: Array = self.stored[rows][:, columns].astype(np.float64) * self.scales[of_row][:, of_column]
        return values


@dataclass(frozen=True)
class Linear(BaseProblem):
    """m outputs, n tokens, k inputs."""

    m: int = size()
    n: int = size()
    k: int = size()


class LinearOp(ProductsOp):
    name = "linear"
    Problem = Linear
    specializes = "gemm"
    settings = {  # noqa: RUF012  (ClassVar in Op)
        "activation": ("none", "relu", "gelu", "silu"),
        "bias": ("yes", "no"),
        "weights": ("plain", "packed"),
        "scales": ("none", "block"),
    }
    rare_settings = ("scales",)
    weights = ("a", "a_scales", "bias")
    smoke = (Linear(1, 1, 1), Linear(7, 3, 9), Linear(35, 1, 64), Linear(48, 33, 65))

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32; of those of 8 bits the type that models have."""
        return precision.name in ("f32", "bf16", "f16", "f8e4m3")

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """Only 8-bit floats have scales."""
        return () if precision.name in FLOATS_8 else ("scales",)

    def result_type(self, case: Case) -> str:
        """The type of the data; bf16 of 8-bit floats."""
        return "bf16" if case.precision.name in FLOATS_8 else case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """The arrays listed at the top of this file."""
        p, kind, stored = case.problem, case.precision.data, self.result_type(case)
        matrices = {"a": Tensor((p.m, p.k), kind), "b": Tensor((p.n, p.k), kind)}
        if case.settings["scales"] == "block":
            along_m, along_k = -(-p.m // BLOCK), -(-p.k // BLOCK)
            matrices["a_scales"] = Tensor((along_m, along_k), "f32")
            matrices["b_scales"] = Tensor((p.n, along_k), "f32")
        bias = {"bias": Tensor((p.m,), stored)} if case.settings["bias"] == "yes" else {}
        return {**matrices, **bias, "c": Tensor((p.n, p.m), stored)}

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Random numbers, and scales from 1/4 to 1."""
        if not name.endswith("_scales"):
            super().fill(case, name, array, stream)
            return
        from deepbench.core import operands

        choices, count = operands.generator(stream), min(array.size, operands.TILE)
        operands.repeat((0.25 + 0.75 * choices.random(count)).astype(array.dtype), array)

    def free_inputs(self, case: Case) -> tuple[str, ...]:
        """B: libraries may convert the weights ahead."""
        return ("b",)

    def products(self, case: Case, arrays: Arrays) -> list[Product]:
        """One product, to which the bias is added."""
        import numpy as np

        from deepbench.core.tolerance import InitialC

        initial = None
        if "bias" in arrays:
            initial = InitialC(arrays["bias"].astype(np.float64), np.zeros(case.problem.n), is_added=True)
        left: Matrix = arrays["a"].T
        right: Matrix = arrays["b"]
        if "a_scales" in arrays:
            left = BlockScaled(arrays["a"].T, arrays["a_scales"].T, BLOCK, BLOCK)
            right = BlockScaled(arrays["b"], arrays["b_scales"], 1, BLOCK)
        return [Product(left, right, arrays["c"], initial, self._activated(case))]

    def _activated(self, case: Case) -> Callable[[Array, Array], tuple[Array, Array]] | None:
        """The activation of values and of their tolerance; a library may store the sums in the type of the result."""
        name, kind = case.settings["activation"], self.result_type(case)
        if name == "none":
            return None

        def activated(z: Array, tolerance: Array) -> tuple[Array, Array]:
            import numpy as np

            from deepbench.core.tolerance import TOLERANCE_UNITS, storage_error

            values = activate(name, z)
            # Computing the activation in f32 rounds it, too.
            computed = TOLERANCE_UNITS * case.precision.roundoff * np.abs(z) * (name != "relu")
            return values, SLOPE[name] * (tolerance + storage_error(kind, z)) + computed

        return activated

    def flop(self, case: Case) -> int:
        """2·m·n·k: the product. Bias and activation are not counted."""
        p = case.problem
        return int(2 * p.m * p.n * p.k)

    def components(self, case: Case) -> dict[Case, int]:
        """The product, and the activation of every element. No case adds a bias alone, so it is in neither.

        None of 8-bit floats: no case has their product with scales, or an activation of their result.
        """
        if case.precision.name in FLOATS_8:
            return {}
        from deepbench.core.case import RUN_SETTINGS, Case
        from deepbench.ops.elementwise import Elementwise
        from deepbench.ops.gemm import component

        p, kind = case.problem, case.settings["activation"]
        found = {component(case, p.m, p.n, p.k): 1}
        if kind != "none":
            how = tuple((name, value) for name, value in case.overrides if name in RUN_SETTINGS)
            problem = Elementwise(kind, p.m * p.n)
            found[Case("elementwise", problem, "forward", case.precision, case.backend, case.threads, how)] = 1
        return found

    def title(self, problem: Any) -> str:
        """`4096 × 128 × 1024`: outputs × tokens × inputs."""
        return f"{problem.m} × {problem.n} × {problem.k}"


def activate(name: str, z: Array) -> Array:
    """The activation of each element, in float64."""
    import numpy as np

    if name == "relu":
        return np.maximum(z, 0)
    if name == "gelu":
        result: Array = z * 0.5 * np.vectorize(math.erfc, otypes=[float])(-z / math.sqrt(2))
        return result
    with np.errstate(over="ignore"):  # exp(-z) may be infinite: then the result is 0, as it should be
        return z / (1 + np.exp(-z)) if name == "silu" else z


OP = LinearOp()
