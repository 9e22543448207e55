"""Texts of kernels, which readers of networks make from sizes, and what a text says."""

from __future__ import annotations

from collections.abc import Mapping

from deepbench.core.case import Case, check_settings, parse_pattern
from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from deepbench.core.precision import PRECISIONS, find_precision
from deepbench.core.problem import make_problem


def kernel_text(
    op: str, sizes: Mapping[str, int | str], precision: str | None, direction: str = "forward", **settings: str
) -> str:
    """The text of a case without library and threads. `BadInput` if it is none of ours.

    Settings at their default, and those without effect here, are left out.
    """
    operation = find_op(op)
    types = PRECISIONS.get(precision or "")
    if types is None or not operation.allows(direction, types):
        raise BadInput(f"{op} has no precision {precision} in the direction {direction}")
    # Frameworks also give whole numbers of NumPy.
    problem = make_problem(operation, {n: v if isinstance(v, str) else int(v) for n, v in sizes.items()})
    unused = operation.unused_settings(problem, direction, types)
    stated = [f"{n}={v}" for n, v in sorted(settings.items()) if n not in unused and v != operation.settings[n][0]]
    return " ".join([op, problem.text, direction, types.name, *stated])


def case_of(kernel: str) -> Case:
    """A case with the text of a kernel, on our reference; forward and f32 unless the text says otherwise."""
    p = parse_pattern(kernel)
    operation = find_op(p.op)
    direction, precision = p.direction or operation.directions[0], find_precision(p.precision or "f32")
    return Case(p.op, p.problem, direction, precision, "reference", 1, check_settings(p.op, dict(p.settings)))


def flop_of(kernel: str) -> int:
    """FLOP of one call."""
    case = case_of(kernel)
    return case.operation.flop(case)


def bytes_of(kernel: str) -> int:
    """Bytes that one call reads and writes, each array once."""
    case = case_of(kernel)
    return case.operation.traffic_bytes(case)
