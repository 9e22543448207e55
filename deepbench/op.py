"""What an op is: the mathematics of one operation, with no library and no clock.

A new op is one file in `ops/` that ends in `OP = MyOp()`. It is found by being there and runs at once on the
`reference` backend. `ops/gemm.py` is the one to read first.

NumPy is imported inside the functions that compute, so that `deepbench list` and `--help` start at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from deepbench import discover
from deepbench.errors import BadInput

if TYPE_CHECKING:
    import numpy as np

    from deepbench.case import Case
    from deepbench.precision import Precision

    Arrays = dict[str, np.ndarray[Any, Any]]

# Precisions that libraries have for matrix products, and for nothing else.
FLOATS_8 = ("f8e4m3", "f8e5m2")

# The largest size a problem may state: vendors' interfaces count in signed 32-bit integers.
LARGEST_SIZE = 2**31 - 1


def size(default: int | None = None, least: int = 1, most: int = LARGEST_SIZE, quiet: bool = False) -> Any:
    """A field of a Problem: a whole number from `least` to `most`, `default` where it may be left out.

    A `quiet` field is left out of the problem's text at its default.
    """
    metadata = {"least": least, "most": most, "quiet": quiet}
    if default is None:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def choice(*words: str, default: str | None = None) -> Any:
    """A field of a Problem that is one of these words; with a `default` it is left out of the text there."""
    if default is None:
        return dataclasses.field(metadata={"words": words})
    return dataclasses.field(default=default, metadata={"words": words, "quiet": True})


_FIELDS: dict[Any, tuple[dataclasses.Field[Any], ...]] = {}


def fields_of(problem: Any) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a class of Problem; asked again and again for files of many cases."""
    if problem not in _FIELDS:
        _FIELDS[problem] = dataclasses.fields(problem)
    return _FIELDS[problem]


@dataclass(frozen=True)
class BaseProblem:
    """Base of the frozen dataclasses, one an op, that hold sizes and structure in the field's letters.

    Checks itself when made: every field is a whole number within the bounds its `size` gives, or a word of its
    `choice`.
    """

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            if words := field.metadata.get("words"):
                if value not in words:
                    raise BadInput(f"{field.name} is one of {', '.join(words)}, found {_short(value)}")
                continue
            least, most = field.metadata["least"], field.metadata["most"]
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise BadInput(f"{field.name} must be a whole number from {least} to {most}, found {_short(value)}")

    @property
    def values(self) -> dict[str, int | str]:
        """Field names and values, in the order they are written."""
        return {f.name: getattr(self, f.name) for f in fields_of(type(self))}

    @property
    def text(self) -> str:
        """`m=2 n=3 k=4 a_t=0 b_t=0`."""
        quiet = {f.name: f.default for f in fields_of(type(self)) if f.metadata.get("quiet")}
        return " ".join(f"{n}={v}" for n, v in self.values.items() if n not in quiet or v != quiet[n])


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
    ways: ClassVar[tuple[str, ...]] = ()
    """Settings that say how a library does the same work, such as its algorithm: cases that differ in them alone are
    rivals, and the fastest is the library's answer."""
    varies: ClassVar[str | None] = None
    """The size that problems of one family differ in, such as the batch: rates are drawn against it."""
    group: ClassVar[bool] = False
    """Whether one process a rank takes part (`collective.py`); then the problem has `ranks`."""
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

    def work_bytes(self, case: Case) -> int:
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

    def idle_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """Settings that change nothing here, so that equal work has one text."""
        return ()

    def overwrites(self, case: Case) -> bool:
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


def make_problem(op: Op, values: Mapping[str, int | str]) -> BaseProblem:
    """The op's Problem from field names and values; `BadInput` for unknown and missing fields."""
    fields = {f.name: f for f in fields_of(op.Problem)}
    unknown = [name for name in values if name not in fields]
    if unknown:
        raise BadInput(f"{op.name} has no field {unknown[0]!r}; its fields are {', '.join(fields)}")
    missing = [name for name in required_fields(op) if name not in values]
    if missing:
        raise BadInput(f"{op.name} needs {', '.join(missing)}; write for example {missing[0]}=1024")
    make: Callable[..., BaseProblem] = op.Problem
    return make(**values)


def required_fields(op: Op) -> list[str]:
    """The fields of the op's Problem that have no default."""
    fields = fields_of(op.Problem)
    return [f.name for f in fields if f.default is dataclasses.MISSING]


@cache
def all_ops() -> dict[str, Op]:
    """Every op by its name."""
    return discover.named("ops", "OP")


def find(name: str) -> Op:
    """The op of that name; `BadInput` for any other word."""
    try:
        return all_ops()[name]
    except KeyError:
        raise BadInput(f"unknown op {_short(name)}; there are {', '.join(all_ops())}") from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
