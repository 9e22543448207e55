"""Optimizer: one step that updates `n` parameters p from their gradients g and the state of the optimizer.

    sgd      v = 0.9 · v + g                 p = p - rate · v                       with momentum
    adam     m = β₁ · m + (1 - β₁) · g       v = β₂ · v + (1 - β₂) · g²
             p = p - rate · (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε)
    adamw    the same after p = p - rate · 0.01 · p

(Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.) rate = 2⁻⁶,
β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸ and t = 10. Each call changes p and the state, so calls are not idempotent: the check
follows a single one. All arrays have the type of the data; `v` of Adam is never negative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deepbench.core.parts import Expected, PartsOp, Tensor, blocks, elements_of
from deepbench.core.precision import Precision
from deepbench.core.problem import BaseProblem, choice, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# A large rate, so that a wrong step is visible next to the rounding of the parameters.
RATE, MOMENTUM = 2.0**-6, 0.9
BETA1, BETA2, EPSILON, STEP = 0.9, 0.999, 1e-8, 10
DECAY = 0.01

# Checking an element takes as long as so many multiply-adds.
CHECK_WORK = 32


@dataclass(frozen=True)
class Optimizer(BaseProblem):
    """A step of `n` parameters."""

    kind: str = choice("sgd", "adam", "adamw")
    n: int = size()


class OptimizerOp(PartsOp):
    name = "optimizer"
    Problem = Optimizer
    outputs = ("p", "m", "v")
    sweep_field = "n"
    smoke = (Optimizer("adam", 1), Optimizer("sgd", 1003), Optimizer("adamw", 4100), Optimizer("adam", 20011))

    def allows(self, direction: str, precision: Precision) -> bool:
        """f32, or everything in bf16."""
        return precision.name in ("f32", "bf16")

    def result_type(self, case: Case) -> str:
        """Parameters and state have the type of the data."""
        return case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`g`, and what a step reads and writes: `p`, `v` and, for Adam, `m`."""
        names = ("g", "p", "v") if case.problem.kind == "sgd" else ("g", "p", "m", "v")
        return dict.fromkeys(names, Tensor((case.problem.n,), case.precision.data))

    def reset(self, case: Case, arrays: Arrays) -> None:
        """The parameters and the state before the step."""
        for stream, name in enumerate(self.outputs, start=10):
            if name in arrays:
                self.fill(case, name, arrays[name], stream)

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Random numbers; `v` of Adam, a mean of squares, is positive."""
        import numpy as np

        super().fill(case, name, array, stream)
        if name == "v" and case.problem.kind != "sgd":
            np.abs(array, out=array)

    def is_idempotent(self, case: Case) -> bool:
        """Each call is a further step."""
        return False

    def parts(self, case: Case) -> int:
        """Blocks of elements."""
        return blocks(case.problem.n)

    def check_work(self, case: Case) -> int:
        """More than counted FLOP: several arrays are computed in float64."""
        return int(CHECK_WORK * case.problem.n)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """docs/formulas.md derives the tolerances."""
        import numpy as np

        from deepbench.core import operands
        from deepbench.core.tolerance import TOLERANCE_UNITS, storage_error

        at, kind = elements_of(parts, case.problem.n), case.problem.kind
        unit = TOLERANCE_UNITS * case.precision.roundoff
        names = [name for name in self.outputs if name in arrays]
        before = {name: operands.empty(arrays[name].shape, case.precision.data) for name in names}
        self.reset(case, before)
        g = arrays["g"][at].astype(np.float64)
        p, v = (before[name][at].astype(np.float64) for name in ("p", "v"))
        if kind == "sgd":
            new_v = MOMENTUM * v + g
            change = RATE * new_v
            rounded = storage_error(case.precision.data, MOMENTUM * v)
            yield Expected("v", arrays["v"][at], new_v, unit * (abs(v) + abs(g)) + rounded)
            spread = RATE * (abs(v) + abs(g))
        else:
            m = before["m"][at].astype(np.float64)
            new_m, new_v = BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g**2
            size_m = BETA1 * abs(m) + (1 - BETA1) * abs(g)
            yield Expected("m", arrays["m"][at], new_m, unit * size_m)
            yield Expected("v", arrays["v"][at], new_v, unit * new_v)
            scale = RATE / (1 - BETA1**STEP) / (np.sqrt(new_v / (1 - BETA2**STEP)) + EPSILON)
            change, spread = scale * new_m, scale * size_m
            if kind == "adamw":
                p = p * (1 - RATE * DECAY)
        between = storage_error(case.precision.data, spread) + storage_error(case.precision.data, p) * (kind == "adamw")
        yield Expected("p", arrays["p"][at], p - change, unit * (abs(p) + spread) + between)

    def flop(self, case: Case) -> int:
        """Per parameter: sgd 4; adam 13 (m 3, v 4, p 6, with the square root as one operation); adamw 14."""
        return int({"sgd": 4, "adam": 13, "adamw": 14}[case.problem.kind] * case.problem.n)

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Gradients are read; parameters and state are read and written."""
        tensors = self.tensors(case)
        written = sum(tensor.bytes for name, tensor in tensors.items() if name in self.outputs)
        return 0 if self.stays_in(case, capacity) else self.operand_bytes(case) + written

    def facts(self, case: Case) -> dict[str, Any]:
        """The numbers of the formulas."""
        if case.problem.kind == "sgd":
            return {"rate": RATE, "momentum": MOMENTUM}
        decay = DECAY if case.problem.kind == "adamw" else 0.0
        return {"rate": RATE, "beta1": BETA1, "beta2": BETA2, "epsilon": EPSILON, "step": STEP, "decay": decay}

    def workspace_bytes(self, case: Case) -> int:
        """The check needs the parameters and the state as they were before the step."""
        return self.operand_bytes(case)

    def smallest(self, case: Case) -> BaseProblem:
        """One parameter."""
        smallest: BaseProblem = replace(case.problem, n=1)
        return smallest

    def title(self, problem: Any) -> str:
        """`adam of 25557032`."""
        return f"{problem.kind} of {problem.n}"


OP = OptimizerOp()
