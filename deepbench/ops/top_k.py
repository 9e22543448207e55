"""Top k: the k largest numbers of each row with their positions, as a router chooses experts.

With `softmax=yes`, the values are the softmax of the chosen numbers: the weights of the experts in Mixtral, Qwen3 and
gpt-oss. With `sorted=yes`, the largest comes first; with `sorted=no`, in any order. Which of equal numbers is chosen is
open. The backward pass has the gradient `dy` of the values and the positions `chosen` of a forward pass; dx is 0 where
nothing was chosen, and elsewhere dy, or with `softmax=yes` and its results `p`

    p · (dy - sum of p · dy over the chosen numbers)

`x` and `dx` are (rows, columns), everything else (rows, k). Positions are s32; all others have the type of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.core.parts import Expected, PartsOp, Tensor
from deepbench.core.precision import STORAGE_ROUNDOFF, Precision
from deepbench.core.problem import BaseProblem, size
from deepbench.core.rows import TINY, growth_of_squares, strips

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# `x` has numbers up to this size, so that the softmax of the chosen ones is not uniform.
SPREAD = 4.0


@dataclass(frozen=True)
class TopK(BaseProblem):
    """The `k` largest of the `columns` numbers of each of the `rows`."""

    rows: int = size()
    columns: int = size()
    k: int = size()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k > self.columns:
            raise BadInput(f"k must be at most columns={self.columns}, found k={self.k}")


class TopKOp(PartsOp):
    name = "top_k"
    Problem = TopK
    directions = ("forward", "backward")
    settings = {"softmax": ("no", "yes"), "sorted": ("yes", "no")}  # noqa: RUF012  (ClassVar in Op)
    outputs = ("values", "indices", "dx")
    sweep_field = "rows"
    smoke = (TopK(1, 2, 1), TopK(3, 35, 4), TopK(4, 6, 6), TopK(17, 64, 8), TopK(5, 1003, 100))

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are compared in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """One number, and gradients, are the same in any order."""
        return ("sorted",) if direction == "backward" or problem.k == 1 else ()

    def result_type(self, case: Case) -> str:
        """`values` have the type of `x`."""
        return case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`x`, `values` and `indices`; backward `chosen`, `dy` and `dx`, and with a softmax its results `p`."""
        p, kind = case.problem, case.precision.data
        whole, best = Tensor((p.rows, p.columns), kind), Tensor((p.rows, p.k), kind)
        positions = Tensor((p.rows, p.k), "s32")
        if case.direction == "forward":
            return {"x": whole, "values": best, "indices": positions}
        results = {"p": best} if case.settings["softmax"] == "yes" else {}
        return {"chosen": positions, **results, "dy": best, "dx": whole}

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Random numbers; `chosen` are different random positions, and `p` are positive with the sum 1 in each row."""
        import numpy as np

        from deepbench.core.operands import generator

        p = case.problem
        if name == "chosen":
            random = generator(stream)
            step = max(1, 2**20 // p.columns)
            for start in range(0, p.rows, step):
                keys = random.random((min(step, p.rows - start), p.columns), dtype=np.float32)
                array[start : start + step] = keys.argpartition(p.k - 1, axis=1)[:, : p.k]
            return
        super().fill(case, name, array, stream)
        for strip in strips(array):
            if name == "x":
                array[strip] = SPREAD * array[strip].astype(np.float32)
            if name == "p":
                values = np.exp(SPREAD * array[strip].astype(np.float64))
                array[strip] = values / values.sum(axis=1, keepdims=True)

    def parts(self, case: Case) -> int:
        """Rows."""
        return int(case.problem.rows)

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """The positions themselves, where `expected` has the numbers at them."""
        import numpy as np

        wanted = super().reference(case, arrays)
        if case.direction == "forward":
            wanted["indices"] = np.empty(arrays["indices"].shape, np.int64)
            for strip in strips(arrays["x"]):
                order = np.argsort(-arrays["x"][strip].astype(np.float64), axis=1, kind="stable")
                wanted["indices"][strip] = order[:, : case.problem.k]
        return wanted

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """Positions are judged by the numbers at them, so either of two equal numbers is right."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        unit, k = TOLERANCE_UNITS * case.precision.roundoff, case.problem.k
        weighted = case.settings["softmax"] == "yes"
        if case.direction == "backward":
            yield self._gradient(case, arrays, parts, unit)
            return
        x = arrays["x"][parts].astype(np.float64)
        best = -np.sort(np.partition(-x, k - 1, axis=1)[:, :k], axis=1)
        values, found = arrays["values"][parts].astype(np.float64), at_positions(x, arrays["indices"][parts])
        if case.settings["sorted"] == "no":
            order = np.argsort(-found, axis=1, kind="stable")
            values, found = (np.take_along_axis(array, order, axis=1) for array in (values, found))
        want, tolerance = best, np.zeros_like(best)
        if weighted:
            distance = best[:, :1] - best
            want = np.exp(-distance)
            of_sum = growth_of_squares(k) * np.sqrt((want**2).mean(axis=1)) / want.mean(axis=1)
            want /= want.sum(axis=1, keepdims=True)
            # As in ops/softmax.py.
            relative = unit * (1 + distance / 4 + of_sum[:, None]) + STORAGE_ROUNDOFF[case.precision.data]
            tolerance = want * relative + TINY[case.precision.data]
        yield Expected("values", values, want, tolerance)
        yield Expected("indices", found, best, np.zeros_like(best))

    def _gradient(self, case: Case, arrays: Arrays, parts: Array, unit: float) -> Expected:
        import numpy as np

        dy, chosen = arrays["dy"][parts].astype(np.float64), arrays["chosen"][parts]
        want, tolerance = np.zeros((2, parts.size, case.problem.columns))
        error = np.zeros_like(dy)
        if case.settings["softmax"] == "yes":
            p = arrays["p"][parts].astype(np.float64)
            sizes = np.sqrt((p**2).sum(axis=1, keepdims=True) * (dy**2).sum(axis=1, keepdims=True))
            error = unit * p * (np.abs(dy) + sizes) + TINY[case.precision.data]
            dy = p * (dy - (p * dy).sum(axis=1, keepdims=True))
        np.put_along_axis(want, chosen, dy, axis=1)
        np.put_along_axis(tolerance, chosen, error, axis=1)
        return Expected("dx", arrays["dx"][parts], want, tolerance)

    def flop(self, case: Case) -> int:
        """Forward a comparison per number, backward an assignment per choice; the softmax 5, its gradient 4."""
        p = case.problem
        weighted = case.settings["softmax"] == "yes"
        if case.direction == "forward":
            return int(p.rows * (p.columns + 5 * p.k * weighted))
        return int(p.rows * p.k * (4 if weighted else 1))

    def title(self, problem: Any) -> str:
        """`8 of 256, 4096 times`."""
        return f"{problem.k} of {problem.columns}, {problem.rows} time{'s' * (problem.rows > 1)}"


def at_positions(x: Array, positions: Array) -> Array:
    """The numbers of each row at these positions: NaN where a position does not exist or was named before."""
    import numpy as np

    exists = (positions >= 0) & (positions < x.shape[1])
    found: Array = np.take_along_axis(x, np.where(exists, positions, 0).astype(np.int64), axis=1)
    order = np.argsort(positions, axis=1, kind="stable")
    ascending = np.take_along_axis(positions, order, axis=1)
    repeats = np.zeros(positions.shape, bool)
    np.put_along_axis(repeats, order[:, 1:], ascending[:, 1:] == ascending[:, :-1], axis=1)
    found[repeats | ~exists] = np.nan
    return found


OP = TopKOp()
