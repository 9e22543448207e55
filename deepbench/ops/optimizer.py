"""Optimizer: one step that updates `n` parameters p from their gradients g and the state of the optimizer.

    sgd      v = 0.9 · v + g                 p = p - rate · v                       with momentum
    adam     m = β₁ · m + (1 - β₁) · g       v = β₂ · v + (1 - β₂) · g²
             p = p - rate · (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε)
    adamw    the same after p = p - rate · 0.01 · p
    lamb     m and v as Adam     r = (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε) + 0.01 · p
             p = p - rate · (|p| / |r|) · r                        with Euclidean norms
    adagrad  v = v + g²                      p = p - rate · g / (√v + ε)

(Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled weight decay regularization", 2019; You et al., "Large
batch optimization for deep learning", 2020; Duchi et al., "Adaptive subgradient methods", 2011.) rate = 2⁻⁶, β₁ = 0.9,
β₂ = 0.999, ε = 10⁻⁸ and t = 10. The `n` parameters of LAMB are one layer, with one ratio of norms. Each call changes p
and the state, so calls are not idempotent: the check follows a single one. All arrays have the type of the data; `v` is
never negative, except that of sgd.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deepbench.core.parts import STRIP, Expected, PartsOp, Tensor, blocks, elements_of
from deepbench.core.precision import Precision
from deepbench.core.problem import BaseProblem, choice, size
from deepbench.core.rows import growth_of_squares

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# A large rate, so that a wrong step is visible next to the rounding of the parameters.
RATE, MOMENTUM = 2.0**-6, 0.9
BETA1, BETA2, EPSILON, STEP = 0.9, 0.999, 1e-8, 10
DECAY = 0.01

# Floating-point operations per parameter. A square root counts as one.
FLOP = {"sgd": 4, "adam": 13, "adamw": 14, "lamb": 20, "adagrad": 7}

# What a step reads and writes.
STATE = {"sgd": ("p", "v"), "adagrad": ("p", "v"), **dict.fromkeys(("adam", "adamw", "lamb"), ("p", "m", "v"))}

# Checking an element takes as long as so many multiply-adds.
CHECK_WORK = 32


@dataclass(frozen=True)
class Optimizer(BaseProblem):
    """A step of `n` parameters."""

    kind: str = choice(*FLOP)
    n: int = size()


class OptimizerOp(PartsOp):
    name = "optimizer"
    Problem = Optimizer
    outputs = ("p", "m", "v")
    sweep_field = "n"
    smoke = (
        Optimizer("adam", 1),
        Optimizer("sgd", 1003),
        Optimizer("adamw", 4100),
        Optimizer("adam", 20011),
        Optimizer("lamb", 1),
        Optimizer("adagrad", 2003),
        Optimizer("lamb", 10007),
    )

    def allows(self, direction: str, precision: Precision) -> bool:
        """f32, or everything in bf16."""
        return precision.name in ("f32", "bf16")

    def result_type(self, case: Case) -> str:
        """Parameters and state have the type of the data."""
        return case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`g`, and what a step reads and writes: `p`, `v` and, for Adam and LAMB, `m`."""
        names = ("g", *STATE[case.problem.kind])
        return dict.fromkeys(names, Tensor((case.problem.n,), case.precision.data))

    def reset(self, case: Case, arrays: Arrays) -> None:
        """The parameters and the state before the step."""
        for stream, name in enumerate(self.outputs, start=10):
            if name in arrays:
                self.fill(case, name, arrays[name], stream)

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Random numbers; `v` of all but sgd, which has squares, is positive."""
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
        unit, data = TOLERANCE_UNITS * case.precision.roundoff, case.precision.data
        names = [name for name in self.outputs if name in arrays]
        before = {name: operands.empty(arrays[name].shape, data) for name in names}
        self.reset(case, before)

        def values_at(where: Any) -> dict[str, Array]:
            """The numbers before the step, in float64."""
            return {name: a[where].astype(np.float64) for name, a in {**before, "g": arrays["g"]}.items()}

        step = OptimizerStep.of(kind, values_at(at))
        p, change, spread = step.p, step.change, step.spread
        for name, new in step.state.items():
            between = storage_error(data, MOMENTUM * before[name][at].astype(np.float64)) if kind == "sgd" else 0.0
            yield Expected(name, arrays[name][at], new.value, unit * new.size + between)
        if kind == "lamb":
            strips = [slice(i, i + STRIP) for i in range(0, case.problem.n, STRIP)]
            squares = [
                [(x**2).sum() for x in (s.p, s.change)] for s in (OptimizerStep.of(kind, values_at(i)) for i in strips)
            ]
            of_p, of_r = np.sum(squares, axis=0)
            ratio = RATE * math.sqrt(of_p / of_r)
            # Both sums of squares are wrong by a share of the same size, and a ratio of their roots by no more.
            change, spread = ratio * change, ratio * (spread + growth_of_squares(case.problem.n) * abs(change))
        between = storage_error(data, spread) + storage_error(data, p) * (kind == "adamw")
        yield Expected("p", arrays["p"][at], p - change, unit * (abs(p) + spread) + between)

    def flop(self, case: Case) -> int:
        """See `FLOP`. adam: m 3, v 4, p 6. lamb: m 3, v 4, r 7, the norms 4, p 2. adagrad: v 2, p 5."""
        return int(FLOP[case.problem.kind] * case.problem.n)

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Gradients are read; parameters and state are read and written.

        The second pass of LAMB, after the norms, reads again what of parameters and state does not fit into the level.
        """
        tensors = self.tensors(case)
        written = sum(tensor.bytes for name, tensor in tensors.items() if name in self.outputs)
        if self.stays_in(case, capacity):
            return 0
        again = max(0, written - capacity) if case.problem.kind == "lamb" and capacity is not None else 0
        return self.operand_bytes(case) + written + again

    def facts(self, case: Case) -> dict[str, Any]:
        """The numbers of the formulas."""
        kind = case.problem.kind
        if kind == "sgd":
            return {"rate": RATE, "momentum": MOMENTUM}
        if kind == "adagrad":
            return {"rate": RATE, "epsilon": EPSILON}
        decay = 0.0 if kind == "adam" else DECAY
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


@dataclass(frozen=True)
class Sum:
    """A number, and the sum of the sizes of its terms."""

    value: Array
    size: Array


@dataclass(frozen=True)
class OptimizerStep:
    """What a step computes, in float64."""

    state: dict[str, Sum]
    """The new m and v."""
    p: Array
    """The parameters before the change, after the decay of adamw."""
    change: Array
    """What is subtracted from them; of lamb, r."""
    spread: Array
    """The size of the terms of `change`."""

    @classmethod
    def of(cls, kind: str, before: dict[str, Array]) -> OptimizerStep:
        """The step of these parameters from their p, g, v and m."""
        import numpy as np

        p, g, v = (before[name] for name in "pgv")
        if kind == "sgd":
            new = Sum(MOMENTUM * v + g, abs(v) + abs(g))
            return cls({"v": new}, p, RATE * new.value, RATE * new.size)
        if kind == "adagrad":
            new_v = v + g**2
            change = RATE * g / (np.sqrt(new_v) + EPSILON)
            return cls({"v": Sum(new_v, new_v)}, p, change, abs(change))
        new_m = Sum(BETA1 * before["m"] + (1 - BETA1) * g, BETA1 * abs(before["m"]) + (1 - BETA1) * abs(g))
        new_v = BETA2 * v + (1 - BETA2) * g**2
        state = {"m": new_m, "v": Sum(new_v, new_v)}
        scale = 1 / (1 - BETA1**STEP) / (np.sqrt(new_v / (1 - BETA2**STEP)) + EPSILON)
        if kind == "lamb":
            return cls(state, p, scale * new_m.value + DECAY * p, scale * new_m.size + DECAY * abs(p))
        p = p * (1 - RATE * DECAY) if kind == "adamw" else p
        return cls(state, p, RATE * scale * new_m.value, RATE * scale * new_m.size)


OP = OptimizerOp()
