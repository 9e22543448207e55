"""C = A·B for each matrix of a batch, as in `gemm`."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import FLOATS

SERVES = {"forward": (*FLOATS, "i8", "f8e4m3", "f8e5m2")}


def forward(case: Case, arrays: Values) -> Values:
    """One product with a batch."""
    axes = ([1 if case.problem.b_t else 2], [2 if case.problem.a_t else 1])
    return {"c": arrays["b"].dot(arrays["a"], axes, arrays["c"].kind, batch=[0])}
