"""Op: the mathematics of one operation, independent of libraries and clocks.

A new operation is one file (or folder) in `ops/` that ends in `OP = MyOp()`. It needs no registration and runs at once
on the `reference` backend. `ops/gemm.py` is a good example.

Functions that compute import NumPy themselves, so that `deepbench list` and `--help` start quickly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from deepbench.core import registry

if TYPE_CHECKING:
    import numpy as np

    from deepbench.core.case import Case
    from deepbench.core.lowering import MatrixProduct
    from deepbench.core.precision import Precision
    from deepbench.core.problem import BaseProblem

Array: TypeAlias = "np.ndarray[Any, Any]"
Arrays: TypeAlias = "dict[str, Array]"

# Precisions that libraries support only in matrix products.
FLOATS_8 = ("f8e4m3", "f8e5m2")
# 4-bit floats with scales, in layers only.
FLOATS_4 = ("nvfp4",)


@dataclass(frozen=True)
class AnswerComparison:
    """Results of a kernel (`got`) next to those of the float64 reference (`want`).

    `tolerance` is absolute; all three arrays have one shape. `how` says what was compared. Of the `of` elements of the
    output, `covers` contribute to this comparison. `output` names the array if there are several.
    """

    how: str
    got: Array
    want: Array
    tolerance: Array
    covers: int
    of: int
    output: str = ""


class Op(ABC):
    """One operation. Subclass it, and end the file with `OP = MyOp()`."""

    name: ClassVar[str]
    Problem: ClassVar[type[BaseProblem]]
    directions: ClassVar[tuple[str, ...]] = ("forward",)
    settings: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Options besides sizes, for example `{"beta": ("1", "0")}`. The first value is the default."""
    outputs: ClassVar[tuple[str, ...]]
    """Names of the arrays that a kernel writes."""
    weights: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays with a layer's parameters; `cache=weights` keeps these out of the caches."""
    variants: ClassVar[tuple[str, ...]] = ()
    """Settings that choose how a library does the same work, such as its algorithm. Cases that differ only in these
    compete; the fastest is the library's result."""
    rare_settings: ClassVar[tuple[str, ...]] = ()
    """Settings of which a library has only the default, unless the mark of its method names them."""
    specializes: ClassVar[str | None] = None
    """An operation with the same fields, which a list of problems means unless it is named after this one."""
    sweep_field: ClassVar[str | None] = None
    """The size in which problems of one family differ, such as the batch size: the x-axis of charts."""
    is_group: ClassVar[bool] = False
    """Whether several ranks take part, one process each (see `collective.py`). The problem then has `ranks`."""
    saves_flop: ClassVar[bool] = False
    """Whether an algorithm in use executes fewer operations than `flop` counts; `least_flop` then says how few."""
    smoke: ClassVar[tuple[BaseProblem, ...]]
    """A few tiny problems, some with odd sizes; the tests run them on every library."""
    probes: ClassVar[tuple[BaseProblem, ...]] = ()
    """Problems that run close to peak and so measure the machine's peak rate."""
    device_probes: ClassVar[tuple[BaseProblem, ...]] = ()
    """The same for accelerators, which need larger problems."""

    def defect(self) -> str | None:
        """Why this operation cannot be used: the first attribute that is missing or wrong."""
        types: dict[str, type | tuple[type, ...]] = {
            **dict.fromkeys(("directions", "outputs", "weights", "variants", "rare_settings"), tuple),
            **{"Problem": type, "settings": dict, "sweep_field": (str, NoneType), "is_group": bool},
        }
        if wrong := registry.wrong_attribute(self, types):
            return wrong
        from deepbench.core.problem import BaseProblem

        problem: Any = self.Problem
        is_problem = issubclass(problem, BaseProblem) and is_dataclass(problem)
        if not is_problem:
            return f"Problem must be a frozen dataclass that derives from BaseProblem, found {problem.__name__}"
        plain = [f.name for f in fields(problem) if not {"least", "words"} & set(f.metadata)]
        if plain:
            return f"the field {plain[0]} of Problem must be made with size() or choice()"
        for name in ("smoke", "probes", "device_probes"):
            problems: object = getattr(self, name, None)
            if not isinstance(problems, tuple) or not all(isinstance(p, problem) for p in problems):
                return f"{name} must be a tuple of {problem.__name__} objects"
        return None

    def allows(self, direction: str, precision: Precision) -> bool:
        """Whether this combination exists. By default, gradients need floats; short ones are for products."""
        is_narrow = precision.name in (*FLOATS_8, *FLOATS_4)
        return not is_narrow and (direction == self.directions[0] or bool(precision.roundoff))

    @abstractmethod
    def operand_bytes(self, case: Case) -> int:
        """Bytes of all arrays that `operands` will allocate."""

    def workspace_bytes(self, case: Case) -> int:
        """Bytes that a library or the check needs in addition to the operands, if substantial."""
        return 0

    @abstractmethod
    def operands(self, case: Case) -> Arrays:
        """Allocate and fill all arrays, with the same bits every time. Outputs are reset."""

    def reset(self, case: Case, arrays: Arrays) -> None:
        """Prepare the outputs for a kernel: by default poison that it must overwrite, else initial values."""
        from deepbench.core.operands import poison

        for name in self.outputs:
            if name in arrays:
                poison(arrays[name])

    @abstractmethod
    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """All outputs in float64 as they should be after `reset` and one call, shaped like the stored outputs."""

    @abstractmethod
    def compare(self, case: Case, arrays: Arrays) -> Iterator[AnswerComparison]:
        """Compare the outputs after `reset` and one call with float64.

        Large problems are checked by samples and projections, because a full reference takes too long.
        """

    def quantization_error(self, case: Case, arrays: Arrays) -> float | None:
        """How far the outputs are from those of the weights before quantization, as a share.

        The root mean square of the difference over that of the results, of the elements that are compared one by one.
        None where weights are not quantized.
        """
        return None

    @abstractmethod
    def flop(self, case: Case) -> int:
        """Floating-point (or integer) operations per call; a multiply-add counts as two."""

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Least bytes that cross the border of a memory level that holds `capacity` bytes, per call.

        The call is one of many with the same operands, so nothing crosses if all of them stay in the level. None: of
        no such level, as in the record; then by default every array crosses once.
        """
        return 0 if self.stays_in(case, capacity) else self.operand_bytes(case)

    def stays_in(self, case: Case, capacity: int | None) -> bool:
        """Whether all operands stay in a level that holds `capacity` bytes from one call to the next."""
        return capacity is not None and self.operand_bytes(case) <= capacity

    def gathers(self, case: Case) -> int:
        """Numbers that a call reads one by one, at positions that other data decide."""
        return 0

    def steps(self, case: Case) -> int:
        """Steps that depend on each other, so that all threads wait for each other after each."""
        return 1

    def smallest(self, case: Case) -> BaseProblem:
        """The smallest problem of the same kind: what a call of it takes is the fixed cost of a call."""
        return min(self.smoke, key=lambda problem: sum(v for v in vars(problem).values() if isinstance(v, int)))

    def result_type(self, case: Case) -> str:
        """The type in which outputs are stored."""
        return case.precision.result

    def other_flop(self, case: Case) -> dict[str, int]:
        """Operation counts by other conventions, such as `original` where DeepBench counted differently."""
        return {}

    def facts(self, case: Case) -> dict[str, Any]:
        """Further values for backends and for the record, such as the scale of 8-bit results."""
        return {}

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """Settings without effect here. They are left at their default, so that equal work has one text."""
        return ()

    def is_idempotent(self, case: Case) -> bool:
        """Whether repeated calls leave the same outputs as one call, so that outputs can be checked after timing."""
        return True

    def calls_in(self, case: Case, arrays: Arrays) -> float | None:
        """How many calls the outputs contain since `reset`, where every call adds the same to them.

        None where the outputs do not tell.
        """
        return None

    def free_inputs(self, case: Case) -> tuple[str, ...]:
        """Inputs whose numbers may change places between two calls: the outputs then follow, and nothing else.

        After timing they do, to find a library that keeps the result of an earlier call with the same array.
        """
        return ()

    def least_flop(self, case: Case) -> float:
        """Operations that no algorithm in use avoids; a rate computed from these cannot exceed the peak."""
        return float(self.flop(case))

    def algorithm_flop(self, case: Case, algorithm: str) -> float:
        """Operations that the algorithm which a library says it used does not avoid; by default `least_flop`."""
        return self.least_flop(case)

    def baselines(self, case: Case) -> tuple[str, ...]:
        """Texts of cases to compare with in the same run, such as the dense product for a sparse one."""
        return ()

    def components(self, case: Case) -> dict[Case, int]:
        """Cases on the same library that do the same work piece by piece, and how often each; none by default.

        Their times add up to what the work costs without an operation that does it as a whole.
        """
        return {}

    def matrix_products(self, case: Case) -> tuple[MatrixProduct, ...]:
        """Products of matrices with the same multiply-adds, for programs that know nothing else; none by default.

        What lies between them, such as a softmax, is not in them. Where a mask hides results, or padding is
        multiplied, they have more multiply-adds than `flop` counts.
        """
        return ()

    def expected_s(self, case: Case, flop_per_s: float, bytes_per_s: float) -> float:
        """Approximate seconds per call at these rates, for estimates of the remaining time."""
        return max(self.flop(case) / flop_per_s, self.traffic_bytes(case) / bytes_per_s)

    def title(self, problem: Any) -> str:
        """The problem as tables show it."""
        return str(problem.text)


def all_ops() -> dict[str, Op]:
    """All operations by name."""
    return registry.registered("ops")


def known_op(name: str) -> Op | None:
    """The operation with this name, or None; no other is loaded."""
    op: Op | None = registry.get("ops", name)
    return op


def find_op(name: str) -> Op:
    """The operation with this name; `BadInput` if there is none."""
    op: Op = registry.find("ops", name)
    return op
