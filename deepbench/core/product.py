"""Matrix products: what dense and sparse ones share."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from deepbench.core.op import Op
from deepbench.core.precision import SIXTEEN_BITS

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.precision import Precision
    from deepbench.core.tolerance import InitialC


class ProductOp(Op):
    """C = A·B + C with a dense m × n matrix C, and the settings `beta` and `result`."""

    sweep_field = "n"
    outputs = ("c",)

    @abstractmethod
    def matrix_bytes(self, case: Case) -> tuple[int, int, int]:
        """Bytes of A, B and C as stored."""

    def operand_bytes(self, case: Case) -> int:
        """Bytes of A, B and C as stored."""
        return sum(self.matrix_bytes(case))

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """A and B are read once; C is written once and, with beta = 1, read once too."""
        a, b, c = self.matrix_bytes(case)
        return 0 if self.stays_in(case, capacity) else a + b + c * (2 if case.settings["beta"] == "1" else 1)

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """Only results of 16-bit floats can be stored in two types."""
        return () if precision.name in SIXTEEN_BITS else ("result",)

    def result_type(self, case: Case) -> str:
        """`result=wide`: the type of the accumulation; `narrow`: 16 bits for 16-bit floats."""
        narrow = case.settings["result"] == "narrow" and case.precision.name in SIXTEEN_BITS
        return case.precision.data if narrow else case.precision.result

    def is_idempotent(self, case: Case) -> bool:
        """With beta = 1 every call adds to C."""
        return case.settings["beta"] == "0"

    def initial_c(self, case: Case) -> InitialC:
        """The contents of C before a product."""
        from deepbench.core.tolerance import InitialC

        return InitialC.make(case.problem.m, case.problem.n, case.settings["beta"])
