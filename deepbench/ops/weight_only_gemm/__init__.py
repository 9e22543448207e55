"""GEMM with quantized weights: C = A·B, where A holds integers of 1 to 8 bits and a scale for each `group` of them.

A is m × k. Its element in row i and column j is q[i, j] · scale[j / group, i], with integers q from -127 to 127 (8
bits), -8 to 7 (4 bits), -2 to 1 (2 bits), or -1 and 1 (1 bit): symmetric quantization with the groups along k, as in
GPTQ and AWQ without zero points. `group=k` is one scale for each output. B (k × n), C (m × n) and the scales have the
type of the data. A library may multiply the integers first or round q · scale to the type of the data; sums are f32.

Arrays as frameworks store them: `a` (m, k) of s8, or (m, k · bits / 8) of bytes with the first integer in the lowest
bits; 2 and 4 bits are in two's complement, and of 1 bit, 0 is -1. `scales` (k / group, m), `b` (n, k), `c` (n, m).

With the setting `format`, A is in a format of llama.cpp instead, whose bytes contain the scales (`formats.py`): `a`
(m, bytes of a row). `bits` and `group` are those of the format. A library may then round B to integers of 8 bits with a
scale for each block, in each call, so the tolerance allows for that.

Weights have a normal distribution before they are quantized (`drawn.py`), so that the result can be compared with that
of the weights before quantization, too: `quantization_error`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput, Unsupported
from deepbench.core.lowering import MatrixProduct
from deepbench.core.parts import Tensor
from deepbench.core.precision import STORAGE_ROUNDOFF, Precision
from deepbench.core.problem import BaseProblem, size
from deepbench.core.product import Product, ProductsOp, checked_blocks
from deepbench.ops.weight_only_gemm import drawn
from deepbench.ops.weight_only_gemm.drawn import FullWeights, unpack
from deepbench.ops.weight_only_gemm.formats import FORMATS, Blocks, WeightFormat

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays
    from deepbench.core.tolerance import Matrix

# With a format: the roundoff of B in units of its largest number. The largest of a block has the integer 127, so an
# error is at most half of 1/127 and on average 1/127/√12. The root mean square of numbers like ours is 1/√3, so errors
# with random signs add to |row of A| · |column of B| · 1/254 / √k. With half of that, `TOLERANCE_UNITS` are 8 standard
# deviations.
ROUNDOFF_8_BITS = 1 / 254 / 2

# Bits of plain integers; 6 are those of a format.
BITS_OF_INTEGERS = (1, 2, 4, 8)


@dataclass(frozen=True)
class WeightOnlyGemm(BaseProblem):
    """Sizes of the product, the number of weights with a common scale, and bits per weight."""

    m: int = size()
    n: int = size()
    k: int = size()
    group: int = size()
    bits: int = size(default=4, least=1, most=8)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits not in (*BITS_OF_INTEGERS, 6):
            raise BadInput(f"bits must be 1, 2, 4, 6 or 8, found {self.bits}")
        if self.k % self.group:
            raise BadInput(f"group must divide k, found group={self.group} and k={self.k}")
        if self.bits in BITS_OF_INTEGERS and self.k % self.per_byte:
            reason = f"k must be a multiple of {self.per_byte}, because {self.per_byte} weights share a byte"
            raise BadInput(f"with bits={self.bits}, {reason}; found k={self.k}")

    @property
    def per_byte(self) -> int:
        """Plain integers in a byte."""
        return 8 // self.bits


@dataclass(frozen=True)
class Dequantized:
    """Aᵀ (k × m) in float64, a block at a time: the whole may be much larger than the stored weights."""

    a: Array
    scales: Array
    p: WeightOnlyGemm

    @property
    def shape(self) -> tuple[int, int]:
        """k and m."""
        return self.p.k, self.p.m

    def __getitem__(self, index: Any) -> Array:
        import numpy as np

        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        start, stop, _ = rows.indices(self.p.k)
        if self.p.bits == 8:
            integers = self.a[columns, start:stop]
        else:
            per = self.p.per_byte
            some = self.a[columns, start // per : -(-stop // per)]
            integers = unpack(some, self.p.bits)[:, start % per :][:, : stop - start]
        first = start // self.p.group
        stored = self.scales[first : -(-stop // self.p.group), columns].astype(np.float64)
        scales = stored[np.arange(start, stop) // self.p.group - first]
        result: Array = integers.T * scales
        return result


class WeightOnlyGemmOp(ProductsOp):
    name = "weight_only_gemm"
    Problem = WeightOnlyGemm
    settings = {"format": ("groups", *FORMATS)}  # noqa: RUF012  (ClassVar in Op)
    rare_settings = ("format",)
    weights = ("a", "scales")
    smoke = (  # tests take every other one, so that each half has numbers of bits and groups of formats
        WeightOnlyGemm(1, 1, 2, 2),
        WeightOnlyGemm(7, 3, 18, 6),
        WeightOnlyGemm(35, 1, 96, 32, bits=8),
        WeightOnlyGemm(19, 5, 33, 33, bits=8),
        WeightOnlyGemm(48, 3, 128, 64),
        WeightOnlyGemm(32, 17, 64, 64, bits=8),
        WeightOnlyGemm(24, 4, 512, 16, bits=6),
        WeightOnlyGemm(41, 5, 256, 32),
        WeightOnlyGemm(33, 9, 1024, 256, bits=2),
        WeightOnlyGemm(37, 6, 1024, 128, bits=1),
        WeightOnlyGemm(5, 3, 24, 12, bits=2),
        WeightOnlyGemm(20, 2, 256, 64, bits=2),
        WeightOnlyGemm(9, 2, 40, 4, bits=1),
        WeightOnlyGemm(18, 4, 512, 16, bits=2),
        WeightOnlyGemm(21, 3, 1056, 96, bits=1),
        WeightOnlyGemm(40, 1, 512, 32, bits=1),
    )

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """None: results have the type of the data."""
        return ()

    def result_type(self, case: Case) -> str:
        """The type of the data."""
        return case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """The arrays listed at the top of this file."""
        p, kind, chosen = case.problem, case.precision.data, stored_format(case)
        if chosen is not None:
            a = Tensor((p.m, p.k // chosen.block * chosen.block_bytes), "u8")
            return {"a": a, "b": Tensor((p.n, p.k), kind), "c": Tensor((p.n, p.m), kind)}
        return {
            "a": Tensor((p.m, p.k), "s8") if p.bits == 8 else Tensor((p.m, p.k // p.per_byte), "u8"),
            "scales": Tensor((p.k // p.group, p.m), kind),
            "b": Tensor((p.n, p.k), kind),
            "c": Tensor((p.n, p.m), kind),
        }

    def operands(self, case: Case) -> Arrays:
        """Refuses sizes that the format does not have."""
        p, name, chosen = case.problem, case.settings["format"], stored_format(case)
        if chosen is None and p.bits == 6:
            raise Unsupported("weights of 6 bits are in a format of their own; choose format=q6_k group=16")
        if chosen is not None and (p.bits, p.group) != (chosen.bits, chosen.group):
            wanted = f"bits={chosen.bits} group={chosen.group}"
            raise Unsupported(f"format={name} has {wanted}, found bits={p.bits} group={p.group}; choose these")
        if chosen is not None and p.k % chosen.block:
            raise Unsupported(f"format={name} has blocks of {chosen.block} weights, so k must be a multiple of it")
        return super().operands(case)

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Weights and scales of a normal distribution, quantized by the rules of `drawn.py` and `formats.py`."""
        import numpy as np

        from deepbench.core import operands

        p, chosen = case.problem, stored_format(case)
        if name == "a" and chosen is not None:
            operands.repeat(chosen.quantized(p.m, p.k)[1].reshape(-1), array)
        elif name == "a":
            integers = drawn.integers_and_scales(*_groups(p), p.bits, case.precision.data)[0].reshape(-1)
            if p.bits < 8:  # bytes may have weights of two groups, so all that begin differently are packed
                integers = drawn.packed(np.resize(integers, min(array.size, integers.size) * p.per_byte), p.bits)
            operands.repeat(integers, array)
        elif name == "scales":
            scales = drawn.integers_and_scales(*_groups(p), p.bits, case.precision.data)[1]
            for group in range(len(array)):
                array[group] = scales[(np.arange(p.m) * len(array) + group) % scales.size]
        else:
            super().fill(case, name, array, stream)

    def full_weights(self, case: Case) -> FullWeights:
        """The weights that were quantized."""
        p, chosen = case.problem, stored_format(case)
        weights = drawn.normal_weights(*_groups(p)) if chosen is None else chosen.quantized(p.m, p.k)[0]
        return FullWeights(weights, p.m, p.k)

    def quantization_error(self, case: Case, arrays: Arrays) -> float | None:
        """|C - F| / |F| over the elements that are compared one by one; F is the product of the full weights.

        |.| is the root of the sum of squares. None where a number is infinite or none.
        """
        import numpy as np

        (product,), full = self.products(case, arrays), self.full_weights(case)
        difference = squares = 0.0
        for block, j, i in checked_blocks([product]):
            want = block.right[j, :].astype(np.float64) @ full[:, i]
            difference += float(np.sum((block.c[j, i].astype(np.float64) - want) ** 2))
            squares += float(np.sum(want**2))
        error = (difference / squares) ** 0.5 if squares else float("inf")
        return error if np.isfinite(error) else None

    def free_inputs(self, case: Case) -> tuple[str, ...]:
        """B: libraries may convert the weights ahead."""
        return ("b",)

    def products(self, case: Case, arrays: Arrays) -> list[Product]:
        """One product, whose weights are dequantized when they are needed."""
        chosen = stored_format(case)
        left: Matrix = (
            Dequantized(arrays["a"], arrays["scales"], case.problem) if chosen is None else Blocks(arrays["a"], chosen)
        )
        return [Product(left, arrays["b"], arrays["c"])]

    def roundoff(self, case: Case) -> float:
        """Weights may be rounded to the type of the data, which adds errors with random signs; see `sum_roundoff`.

        With a format, the data may be rounded to 8 bits instead.
        """
        rounded = STORAGE_ROUNDOFF[case.precision.data] + ROUNDOFF_8_BITS * (stored_format(case) is not None)
        return super().roundoff(case) + float(rounded / case.problem.k**0.5)

    def narrowest_bytes(self, case: Case) -> float:
        """Half a byte, or one; with a format a little more, for the scales."""
        chosen = stored_format(case)
        return float(case.problem.bits / 8) if chosen is None else chosen.block_bytes / chosen.block

    def flop(self, case: Case) -> int:
        """2·m·n·k. Dequantizing is not counted."""
        p = case.problem
        return int(2 * p.m * p.n * p.k)

    def matrix_products(self, case: Case) -> tuple[MatrixProduct, ...]:
        """The product with weights in the type of the data; a row for each of n tokens."""
        p = case.problem
        return (MatrixProduct("", p.n, p.m, p.k),)

    def least_flop(self, case: Case) -> float:
        """None with a format: where integers of 8 bits are multiplied, the peak of the precision is no limit."""
        return float(self.flop(case)) if stored_format(case) is None else 0.0

    def smallest(self, case: Case) -> BaseProblem:
        """One output, one column and one block."""
        chosen = stored_format(case)
        if chosen is None:
            return super().smallest(case)
        return WeightOnlyGemm(1, 1, chosen.block, chosen.group, chosen.bits)

    def title(self, problem: Any) -> str:
        """`4096 × 1 × 4096, 4 bits, groups of 128`."""
        p = problem
        return f"{p.m} × {p.n} × {p.k}, {p.bits} bit{'s' * (p.bits > 1)}, groups of {p.group}"


def _groups(p: WeightOnlyGemm) -> tuple[int, int]:
    """How many groups are drawn, and how many weights each has."""
    return drawn.groups_to_draw(p.m * (p.k // p.group), p.group, p.k // p.group), p.group


def stored_format(case: Case) -> WeightFormat | None:
    """The format of the setting; None for integers with groups of scales."""
    return FORMATS.get(case.settings["format"])


OP = WeightOnlyGemmOp()
