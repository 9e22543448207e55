"""Compare the outputs of a kernel with the float64 reference, and find inputs that it changed."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from deepbench.core.errors import Unavailable

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import AnswerComparison, Arrays, Op
    from deepbench.results.record import Check


# A result that is further from the one before quantization is plainly wrong, and quantization is not why.
MOST_QUANTIZATION_ERROR = 1e6


@dataclass(frozen=True)
class Verdict:
    """The worst comparison of one check."""

    passed: bool
    how: str
    error: float | None
    """Largest |got - want| in units of the tolerance; None if it is infinite or not a number."""
    got: float | None
    want: float | None
    covers: int
    of: int
    quantization_error: float | None = None
    """The difference from the result of the weights before quantization, as a share; None where none are quantized."""

    @property
    def fields(self) -> Check:
        """As a record stores it."""
        fields = vars(self).copy()
        if self.quantization_error is None:
            del fields["quantization_error"]
        return cast("Check", fields)

    @property
    def sentence(self) -> str:
        """What a failed check found, as a sentence."""
        if self.got is None:
            error = "not a number"
        elif self.error is None:
            error = "no error is allowed"
        else:
            error = f"error {self.error:.3g} times the tolerance"
        got, want = ("NaN or infinity" if x is None else f"{x:.7g}" for x in (self.got, self.want))
        return f"{self.how}: found {got}, wanted {want}, {error}"


def check(op: Op, case: Case, arrays: Arrays) -> Verdict:
    """The verdict on the outputs after `op.reset` and one call; `Unavailable` where the reference would be wrong."""
    require_right_products()
    error = op.quantization_error(case, arrays)
    is_known = error is not None and error <= MOST_QUANTIZATION_ERROR
    return replace(verdict_of(op.compare(case, arrays)), quantization_error=_finite(error) if is_known else None)


@cache
def require_right_products() -> None:
    """`Unavailable` where NumPy multiplies matrices wrongly: with such a reference every right answer would be wrong.

    Its BLAS chooses kernels by the processor, and that of an uncommon one may be wrong: OpenBLAS 0.3.34 is, where the
    vectors of Arm's SME have 256 bits. The other product is NumPy's own loop. Numbers are small integers, so both are
    exact.
    """
    a, b = (np.arange(rows * columns, dtype=np.float64).reshape(rows, columns) % 7 - 3 for rows, columns in PRODUCT)
    wanted = np.einsum("ij,jk->ik", a, b)
    with np.errstate(all="ignore"):
        is_right = np.array_equal(a @ b, wanted) and np.array_equal(b.T @ a.T, wanted.T)
    if not is_right:
        raise Unavailable(
            f"NumPy {np.__version__} multiplies matrices wrongly on this processor, so no answer can be checked",
            "let its OpenBLAS use other kernels, such as OPENBLAS_CORETYPE=NEOVERSEN1, or install another NumPy",
        )


PRODUCT = (33, 37), (37, 35)
"""Sizes of two matrices for which every BLAS uses its kernels for large ones and those for the rest."""


def verdict_of(comparisons: Iterable[AnswerComparison]) -> Verdict:
    """The worst of these comparisons."""
    coverage: dict[str, tuple[int, int]] = {}
    verdicts = []
    for comparison in comparisons:
        verdicts.append(_judge(comparison))
        before = coverage.get(comparison.output, (0, 0))
        coverage[comparison.output] = max(before, (comparison.covers, comparison.of))
    worst = next((v for v in verdicts if not v.passed), None) or max(verdicts, key=lambda v: v.error or 0.0)
    how = worst.how if not worst.passed else " and ".join(dict.fromkeys(v.how for v in verdicts))
    covers, of = (sum(pair[i] for pair in coverage.values()) for i in (0, 1))
    errors = [v.error for v in verdicts]
    largest = None if None in errors else max(filter(None, errors), default=0.0)
    return Verdict(worst.passed, how, largest, worst.got, worst.want, covers, of)


def fingerprint(op: Op, arrays: Arrays) -> dict[str, int]:
    """A checksum of every input, to find a kernel that changes one."""
    return {name: _checksum(array) for name, array in arrays.items() if name not in op.outputs}


def fingerprint_of_outputs(op: Op, arrays: Arrays) -> tuple[int, ...]:
    """A checksum of every output: equal ones have been checked if one of them has."""
    return tuple(_checksum(arrays[name]) for name in op.outputs if name in arrays)


def _checksum(array: Any) -> int:
    """The sum of all 8-byte words, which is as fast as memory, and a CRC of the bytes after them."""
    content = array.reshape(-1).view(np.uint8)
    end = content.size // 8 * 8
    words = int(np.add.reduce(content[:end].view(np.uint64), dtype=np.uint64))
    return words ^ zlib.crc32(content[end:])


def _judge(comparison: AnswerComparison) -> Verdict:
    got, want = comparison.got.reshape(-1), comparison.want.reshape(-1)
    tolerance = comparison.tolerance.reshape(-1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        difference = np.abs(got - want)
        ratio = np.where(difference == 0, 0.0, difference / tolerance)
        # Not `difference > tolerance`, which is false for NaN.
        fails = ~(difference <= tolerance)
        worst = int(np.argmax(np.where(np.isnan(ratio), np.inf, ratio)))
    return Verdict(
        passed=not fails.any(),
        how=comparison.how,
        error=_finite(ratio[worst]),
        got=_finite(got[worst]),
        want=_finite(want[worst]),
        covers=comparison.covers,
        of=comparison.of,
    )


def _finite(value: Any) -> float | None:
    return float(f"{float(value):.7g}") if np.isfinite(value) else None
