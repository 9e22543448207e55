"""Operations whose result consists of parts that can be computed one by one: rows, images, attention heads.

A subclass lists its arrays and computes what some of the parts should be. Everything else follows from these two: the
operands, their bytes, the reference, and the check, which covers every part of a small problem and a sample of a large
one.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepbench.core.op import AnswerComparison, Op
from deepbench.core.precision import BITS

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# Up to this much work (FLOP, or elements of the largest array if there are more), every part is checked.
FULL_CHECK_WORK = 2**26

# Of a larger problem, the first and the last part are checked, and as many random ones as this much work allows.
LEAST_SAMPLED = 6

# Elements that are looked at together: 8 MiB of them in float64.
STRIP = 2**20

# The part of a long vector: so many elements.
BLOCK = 4096


@dataclass(frozen=True)
class Tensor:
    """An array of a case as it is stored."""

    shape: tuple[int, ...]
    type_name: str
    """One of `BITS` in `core/precision.py`."""

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The number of bytes; types of less than a byte are packed."""
        return -(-self.size * BITS[self.type_name] // 8)


@dataclass(frozen=True)
class Expected:
    """What some elements of an output should be."""

    output: str
    got: Array
    """The elements of the stored array, in any type."""
    want: Array
    """The same in float64. For all parts it has the shape of the stored array."""
    tolerance: Array
    """Absolute, without the rounding of storing the output."""


class TensorsOp(Op):
    """An operation that lists its arrays (`tensors`). The operands and their bytes follow."""

    @abstractmethod
    def tensors(self, case: Case) -> dict[str, Tensor]:
        """All arrays of this direction, inputs first. Those that `outputs` names are written."""

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Write the contents of an input: by default random numbers. `stream` differs between the inputs."""
        from deepbench.core import operands

        tensor = self.tensors(case)[name]
        array[...] = operands.random(tensor.shape, tensor.type_name, stream)

    def operand_bytes(self, case: Case) -> int:
        """Bytes of all arrays of this direction."""
        return sum(tensor.bytes for tensor in self.tensors(case).values())

    def free_inputs(self, case: Case) -> tuple[str, ...]:
        """Of the forward pass all random inputs but weights, which libraries may convert ahead."""
        if case.direction != self.directions[0] or type(self).fill is not TensorsOp.fill:
            return ()
        return tuple(name for name in self.tensors(case) if name not in (*self.outputs, *self.weights))

    def operands(self, case: Case) -> Arrays:
        """The arrays that `tensors` lists."""
        from deepbench.core import operands

        arrays = {}
        for stream, (name, tensor) in enumerate(self.tensors(case).items()):
            arrays[name] = operands.empty(tensor.shape, tensor.type_name)
            if name not in self.outputs:
                self.fill(case, name, arrays[name], stream)
        self.reset(case, arrays)
        return arrays


class PartsOp(TensorsOp):
    """An operation that lists its arrays (`tensors`) and can compute each of its parts (`expected`)."""

    @abstractmethod
    def parts(self, case: Case) -> int:
        """How many parts the result has."""

    @abstractmethod
    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """What the parts with these numbers should be, for each output. Outputs without parts are computed whole."""

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """All parts of all outputs."""
        import numpy as np

        return {e.output: e.want for e in self.expected(case, arrays, np.arange(self.parts(case)))}

    def compare(self, case: Case, arrays: Arrays) -> Iterator[AnswerComparison]:
        """Every part of a small problem. Of a large one a sample, and that every element is a finite number."""
        import numpy as np

        from deepbench.core.tolerance import storage_error

        count, chosen = self.parts(case), self._sample(case)
        for e in self.expected(case, arrays, chosen):
            tolerance = e.tolerance + storage_error(self.tensors(case)[e.output].type_name, e.want)
            total = arrays[e.output].size
            how = "every element" if e.want.size == total else f"{chosen.size} of {count} parts"
            yield AnswerComparison(how, e.got.astype(np.float64), e.want, tolerance, e.want.size, total, e.output)
            if e.want.size < total:
                yield finite(arrays[e.output], e.output)

    def check_work(self, case: Case) -> int:
        """The work of checking every part: FLOP, or elements of the largest array if there are more."""
        return max(self.flop(case), *(tensor.size for tensor in self.tensors(case).values()))

    def _sample(self, case: Case) -> Array:
        """The numbers of the parts to check, in ascending order."""
        import numpy as np

        from deepbench.core.operands import generator

        count, work = self.parts(case), self.check_work(case)
        if work <= FULL_CHECK_WORK:
            return np.arange(count)
        sampled = max(LEAST_SAMPLED, int(FULL_CHECK_WORK / work * count))
        return np.unique([0, count - 1, *generator(stream=99).integers(0, count, sampled)])


def blocks(length: int) -> int:
    """How many parts of `BLOCK` elements a vector of this length has; the last one may be shorter."""
    return -(-length // BLOCK)


def elements_of(parts: Array, length: int) -> Array:
    """The positions of all elements of these blocks of a vector."""
    import numpy as np

    positions = (parts[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)
    within: Array = positions[positions < length]
    return within


def expected_distinct(draws: int, choices: int) -> int:
    """How many different ones of so many choices this many uniform draws hit, on average."""
    return round(-choices * math.expm1(draws * math.log1p(-1 / choices))) if choices > 1 else min(draws, choices)


def finite(array: Array, output: str) -> AnswerComparison:
    """How many elements of each strip are not finite numbers: none should be."""
    import numpy as np

    flat = array.reshape(-1)
    starts = range(0, flat.size, STRIP)
    found = np.array([np.count_nonzero(~np.isfinite(flat[i : i + STRIP].astype(np.float32))) for i in starts], float)
    nothing = np.zeros_like(found)
    return AnswerComparison("every element is finite", found, nothing, nothing + 0.5, 0, array.size, output)
