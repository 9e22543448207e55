"""Fully connected layer: C = f(A·B + bias), a GEMM with what follows it.

A (m × k) holds the weights of m outputs, B (k × n) has a column of k inputs for each of n tokens. `bias` has one
number for each output, and f is the setting `activation`:

    none: z      relu: max(z, 0)      gelu: z · Φ(z), with the distribution function Φ      silu: z / (1 + exp(-z))

Arrays as frameworks store them: `a` (m, k), `b` (n, k), `bias` (m), `c` (n, m). `bias` and `c` have the type of the
data, and bf16 where that is a float of 8 or 4 bits.

With `scales=block`, 8-bit floats have scales of f32, as in DeepSeek-V3 (2024): an element of A is a[i, j] ·
a_scales[i / 128, j / 128], and one of B is b[t, j] · b_scales[t, j / 128], with quotients rounded down. The last block
of a row or column may be smaller. Quantizing B is not part of the operation.

In `nvfp4` (NVIDIA, 2025), `a` (m, ⌈k/2⌉) and `b` (n, ⌈k/2⌉) are bytes with two floats of 4 bits, the lower half first,
whose values are in `FP4`. 16 of them along k have a scale of f8e4m3, in `a_scales` (m, ⌈k/16⌉) and `b_scales`
(n, ⌈k/16⌉), and each matrix has one of f32: an element of A is a[i, j] · a_scales[i, j / 16] · a_scale[0].

GELU is the exact one (Hendrycks, Gimpel, "Gaussian error linear units", 2016), not the approximation by tanh.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.lowering import MatrixProduct
from deepbench.core.op import FLOATS_4, FLOATS_8
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
# The same along k of both in `nvfp4`.
BLOCK_4 = 16

# The values of the 16 floats of 4 bits: a sign, 2 bits of exponent and 1 of significand.
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


@dataclass(frozen=True)
class BlockScaled:
    """A matrix whose numbers have a scale for each block of `rows` × `columns`; in float64, a part at a time."""

    stored: Array
    scales: Array
    rows: int
    columns: int
    shape: tuple[int, int]
    """Rows and columns. Bytes with two numbers have half as many columns."""
    whole: float = 1.0
    """By which all numbers are multiplied, too."""

    def __getitem__(self, index: Any) -> Array:
        import numpy as np

        chosen = index if isinstance(index, tuple) else (index, slice(None))
        i, j = (np.arange(size)[part] for size, part in zip(self.shape, chosen, strict=True))
        if self.stored.dtype == np.uint8:
            values = np.array(FP4)[self.stored[i][:, j // 2] >> 4 * (j % 2) & 15]
        else:
            values = self.stored[i][:, j].astype(np.float64)
        scales = self.scales[i // self.rows][:, j // self.columns].astype(np.float64)
        scaled: Array = values * scales * self.whole
        return scaled


@dataclass(frozen=True)
class Transposed:
    """The transposed matrix of another one."""

    of: Matrix

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.of.shape[::-1]

    def __getitem__(self, index: Any) -> Array:
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        return self.of[columns, rows].T


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
    weights = ("a", "a_scales", "a_scale", "bias")
    smoke = (Linear(1, 1, 1), Linear(7, 3, 9), Linear(35, 1, 64), Linear(48, 33, 65))

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32; of those of 8 and 4 bits the types that models have."""
        return precision.name in ("f32", "bf16", "f16", "f8e4m3", *FLOATS_4)

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """Only 8-bit floats have the choice."""
        return () if precision.name in FLOATS_8 else ("scales",)

    def result_type(self, case: Case) -> str:
        """The type of the data; bf16 of floats of 8 or 4 bits."""
        return "bf16" if case.precision.name in (*FLOATS_8, *FLOATS_4) else case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """The arrays listed at the top of this file."""
        p, kind, stored = case.problem, case.precision.data, self.result_type(case)
        matrices = {"a": Tensor((p.m, p.k), kind), "b": Tensor((p.n, p.k), kind)}
        if case.precision.name in FLOATS_4:
            pairs, along_k = -(-p.k // 2), -(-p.k // BLOCK_4)
            matrices = {"a": Tensor((p.m, pairs), "u8"), "b": Tensor((p.n, pairs), "u8")}
            matrices |= {"a_scales": Tensor((p.m, along_k), "f8e4m3"), "b_scales": Tensor((p.n, along_k), "f8e4m3")}
            matrices |= {"a_scale": Tensor((1,), "f32"), "b_scale": Tensor((1,), "f32")}
        elif case.settings["scales"] == "block":
            along_m, along_k = -(-p.m // BLOCK), -(-p.k // BLOCK)
            matrices["a_scales"] = Tensor((along_m, along_k), "f32")
            matrices["b_scales"] = Tensor((p.n, along_k), "f32")
        bias = {"bias": Tensor((p.m,), stored)} if case.settings["bias"] == "yes" else {}
        return {**matrices, **bias, "c": Tensor((p.n, p.m), stored)}

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Random numbers other than 0, and scales from 1/4 to 1."""
        from deepbench.core import operands

        choices, count = operands.generator(stream), min(array.size, operands.TILE)
        if "scale" in name:
            operands.repeat((0.25 + 0.75 * choices.random(count)).astype(array.dtype), array)
        elif case.precision.name in FLOATS_4 and name in ("a", "b"):
            low, high = choices.integers(1, 8, (2, count)) + 8 * choices.integers(0, 2, (2, count))
            operands.repeat((low + 16 * high).astype(array.dtype), array)
        else:
            super().fill(case, name, array, stream)

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
            p, is_4_bits = case.problem, case.precision.name in FLOATS_4
            rows, columns = (1, BLOCK_4) if is_4_bits else (BLOCK, BLOCK)
            of_a, of_b = (float(arrays[name][0]) if is_4_bits else 1.0 for name in ("a_scale", "b_scale"))
            left = Transposed(BlockScaled(arrays["a"], arrays["a_scales"], rows, columns, (p.m, p.k), of_a))
            right = BlockScaled(arrays["b"], arrays["b_scales"], 1, columns, (p.n, p.k), of_b)
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

    def matrix_products(self, case: Case) -> tuple[MatrixProduct, ...]:
        """The product; a row for each of n tokens."""
        p = case.problem
        return (MatrixProduct("", p.n, p.m, p.k),)

    def components(self, case: Case) -> dict[Case, int]:
        """The product, and the activation of every element. No case adds a bias alone, so it is in neither.

        None of floats of 8 or 4 bits: no case has their product with scales, or an activation of their result.
        """
        if case.precision.name in (*FLOATS_8, *FLOATS_4):
            return {}
        from deepbench.core.case import RUN_SETTINGS
        from deepbench.ops.elementwise import Elementwise
        from deepbench.ops.gemm import component

        p, kind = case.problem, case.settings["activation"]
        found = {component(case, p.m, p.n, p.k): 1}
        if kind != "none":
            how = tuple((name, value) for name, value in case.overrides if name in RUN_SETTINGS)
            problem = Elementwise(kind, p.m * p.n)
            part = dataclasses.replace(case, op="elementwise", problem=problem, direction="forward", overrides=how)
            found[part] = 1
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
