"""What an op is: the mathematics of one operation, with no library and no clock.

A new op is one file in `ops/` that ends in `OP = MyOp()`. It is found by being there and runs at once on the
`reference` backend. `ops/gemm.py` is the one to read first.

NumPy is imported inside the functions that compute, so that `deepbench list` and `--help` start at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from deepbench.core import registry

if TYPE_CHECKING:
    import numpy as np

    from deepbench.core.case import Case
    from deepbench.core.precision import Precision
    from deepbench.core.problem import BaseProblem

    Arrays = dict[str, np.ndarray[Any, Any]]

# Precisions that libraries have for matrix products, and for nothing else.
FLOATS_8 = ("f8e4m3", "f8e5m2")


@dataclass(frozen=True)
class Comparison:
    """One comparison of what a kernel left with what the float64 reference says.

    `got`, `want` and `tolerance` (absolute) have one shape. `covers` of `of` elements of the output have a part
    in it, so a sampled check says how much it saw. Comparisons of several outputs name them.
    """

    how: str
    got: np.ndarray[Any, Any]
    want: np.ndarray[Any, Any]
    tolerance: np.ndarray[Any, Any]
    covers: int
    of: int
    output: str = ""


class Op:
    """One operation. Subclass, fill in, and end the file with `OP = MyOp()`."""

    name: ClassVar[str]
    Problem: ClassVar[type[BaseProblem]]
    directions: ClassVar[tuple[str, ...]] = ("forward",)
    settings: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Choices beyond sizes, for example `{"beta": ("1", "0")}`; the first value is the default."""
    outputs: ClassVar[tuple[str, ...]]
    """Names of the arrays that a kernel writes."""
    weights: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays that hold a layer's parameters: what `cache=weights` keeps out of the caches."""
    variants: ClassVar[tuple[str, ...]] = ()
    """Settings that say how a library does the same work, such as its algorithm: cases that differ in them alone are
    rivals, and the fastest is the library's answer."""
    sweep_field: ClassVar[str | None] = None
    """The size that problems of one family differ in, such as the batch: rates are drawn against it."""
    is_group: ClassVar[bool] = False
    """Whether several ranks take part, one process each (see `collective.py`). The problem then has `ranks`."""
    has_baselines: ClassVar[bool] = False
    """Whether `baselines` names any cases."""
    saves_flop: ClassVar[bool] = False
    """Whether an algorithm in use executes fewer operations than `flop` counts; `least_flop` then says how few."""
    smoke: ClassVar[tuple[BaseProblem, ...]]
    """A few tiny problems, odd sizes among them: the test suite runs each on every library."""
    probes: ClassVar[tuple[BaseProblem, ...]] = ()
    """Problems that libraries run close to the machine's peak: they measure the roof. Empty: no part in it."""

    device_probes: ClassVar[tuple[BaseProblem, ...]] = ()
    """The same for accelerators, which need larger ones."""

    def allows(self, direction: str, precision: Precision) -> bool:
        """Whether there is such a thing: gradients of integers there are not, and 8-bit floats in products alone."""
        return precision.name not in FLOATS_8 and (direction == self.directions[0] or bool(precision.roundoff))

    def operand_bytes(self, case: Case) -> int:
        """Bytes of all arrays that `operands` will allocate; asked before allocating."""
        raise NotImplementedError

    def workspace_bytes(self, case: Case) -> int:
        """Bytes that a library must keep beside the operands, or the check, where that is much."""
        return 0

    def operands(self, case: Case) -> Arrays:
        """Allocate and fill every array, always with the same bits. Outputs are as `reset` leaves them."""
        raise NotImplementedError

    def reset(self, case: Case, arrays: Arrays) -> None:
        """Put the outputs back to what a kernel must find: initial values, or poison that it must overwrite."""
        raise NotImplementedError

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """Every output in full, in float64, after `reset` and one execution; shaped like the stored outputs."""
        raise NotImplementedError

    def compare(self, case: Case, arrays: Arrays) -> Iterator[Comparison]:
        """Compare the outputs in `arrays`, after `reset` and one execution, with float64.

        A large problem is checked on a sample and on projections, so that nobody waits for a full reference.
        """
        raise NotImplementedError

    def flop(self, case: Case) -> int:
        """Floating-point (or integer) operations of one execution, a multiply-add counted as two."""
        raise NotImplementedError

    def traffic_bytes(self, case: Case) -> int:
        """Least bytes that must move between memory and chip in one execution, each element once."""
        raise NotImplementedError

    def result_type(self, case: Case) -> str:
        """What the outputs are stored as."""
        return case.precision.result

    def other_flop(self, case: Case) -> dict[str, int]:
        """Other counts of the same work by their name, such as `original` where that one differs."""
        return {}

    def facts(self, case: Case) -> dict[str, Any]:
        """What else backends and readers of the record should know, such as the scale of results in 8 bits."""
        return {}

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """Settings that change nothing here, so that equal work has one text."""
        return ()

    def is_idempotent(self, case: Case) -> bool:
        """Whether a call leaves the same outputs however often it is made: then those that timing left are checked."""
        return True

    def least_flop(self, case: Case) -> float:
        """Operations that no algorithm in use avoids: the roof judges by them."""
        return float(self.flop(case))

    def baselines(self, case: Case) -> tuple[str, ...]:
        """Patterns of cases this one is compared with in the same run, such as the dense product of a sparse one."""
        return ()

    def expected_s(self, case: Case, flop_per_s: float, bytes_per_s: float) -> float:
        """Roughly how long a call takes at these rates: for the time left, not for any result."""
        return max(self.flop(case) / flop_per_s, self.traffic_bytes(case) / bytes_per_s)

    def title(self, problem: Any) -> str:
        """The problem as a table shows it."""
        return str(problem.text)


def all_ops() -> dict[str, Op]:
    """Every operation by its name."""
    return registry.registered("ops")


def find_op(name: str) -> Op:
    """The operation with this name; `BadInput` for any other word."""
    op: Op = registry.operation(name)
    return op
