"""Calls of our own loops in `elementwise.c`: operations that the memory limits, in f32."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import Unavailable, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.native import library

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays


def prepare(case: Case, arrays: Arrays) -> Kernel:
    """The kernel of any of these operations."""
    loops = library.compiled("elementwise")
    if loops is None:
        raise Unavailable("the C loops are not built", "install gcc, then install DeepBench again")
    loops.deepbench_threads.restype = ctypes.c_int64
    if loops.deepbench_threads() != case.threads:
        raise Unsupported("the C loops were built without OpenMP, so they have one thread; choose threads=1")
    return OPERATIONS[case.op](loops, case, arrays)


def _elementwise(loops: Any, case: Case, arrays: Arrays) -> Kernel:
    """`elementwise.c` has functions of three vectors: those that are missing are the first one again."""
    outputs = case.operation.outputs
    read, written = ([a for n, a in arrays.items() if (n in outputs) == kind] for kind in (False, True))
    name = f"deepbench_{case.problem.kind}" + "_backward" * (case.direction == "backward")
    inputs = [*read, read[0], read[0]][:3]
    return Kernel(calls=(Call(loops[name], *inputs, *written, case.problem.n),))


def _dropout(loops: Any, case: Case, arrays: Arrays) -> Kernel:
    p = case.problem
    return Kernel(calls=(Call(loops.deepbench_dropout, arrays["a"], arrays["y"], p.n, p.percent),))


def _reduction(loops: Any, case: Case, arrays: Arrays) -> Kernel:
    p = case.problem
    if p.kind != "sum":
        raise Unsupported("the C loops have sums only; choose kind=sum")
    return Kernel(calls=(Call(loops[f"deepbench_sum_{p.axis}"], arrays["x"], arrays["y"], p.rows, p.columns),))


def _embedding_bag(loops: Any, case: Case, arrays: Arrays) -> Kernel:
    p = case.problem
    if case.direction == "backward":
        named = (arrays[name] for name in ("dy", "indices", "offsets", "dtable"))
        sizes = (ctypes.c_int64 * 2)(p.rows, p.dim)
        return Kernel(calls=(Call(loops.deepbench_embedding_bag_backward, *named, p.bags, p.bag, sizes),))
    named = (arrays[name] for name in ("table", "indices", "offsets", "y"))
    floats = p.dim if case.precision.data == "f32" else floats_of_copied_row(p.dim, only_copies=p.bag == 1)
    return Kernel(calls=(Call(loops.deepbench_embedding_bag, *named, p.bags, p.bag, floats),))


def floats_of_copied_row(numbers: int, only_copies: bool) -> int:
    """How many floats are as long as a row of so many 16-bit numbers, where rows are copied and nothing is added."""
    if not only_copies:
        raise Unsupported("the C loops add rows in f32 only; in 16 bits they copy rows")
    if numbers % 2:
        raise Unsupported("the C loops copy 16-bit numbers in pairs; choose rows of an even length")
    return numbers // 2


def _optimizer(loops: Any, case: Case, arrays: Arrays) -> Kernel:
    from deepbench.core.operands import full

    kind, n, of = case.problem.kind, case.problem.n, case.operation.facts(case)
    factors: tuple[float, ...]
    rest: list[Any] = []
    if kind in ("sgd", "adagrad"):
        factors = (of["rate"], of["momentum" if kind == "sgd" else "epsilon"])
    else:
        beta1, beta2, step = of["beta1"], of["beta2"], of["step"]
        betas, corrections = (
            (beta1, 1 - beta1, beta2, 1 - beta2),
            (1 / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)),
        )
        if kind == "lamb":
            factors = (*betas, *corrections, of["epsilon"], of["decay"], of["rate"])
            rest = [full((2 * case.threads, 2), "f32", 0.0)]  # two doubles for each thread
        else:
            rate, keep = of["rate"] * corrections[0], 1 - of["rate"] * of["decay"]
            factors = (*betas, rate, corrections[1], of["epsilon"], keep)
    function = loops["deepbench_adam" if kind == "adamw" else f"deepbench_{kind}"]
    call = Call(function, *arrays.values(), n, (ctypes.c_float * len(factors))(*factors), *rest)
    return Kernel(calls=(call,))


def _ctc(loops: Any, case: Case, arrays: Arrays) -> Kernel:
    from deepbench.core.operands import empty

    p = case.problem
    states = 2 * p.labels + 1
    alpha, sizes = empty((p.batch, p.time, states), "f32"), (ctypes.c_int64 * 4)(p.batch, p.time, p.labels, p.classes)
    inputs = [arrays[name] for name in ("log_probabilities", "transcripts", "steps", "lengths")]
    loss = arrays["loss"] if case.direction == "forward" else empty((p.batch,), "f32")
    forward = Call(loops.deepbench_ctc, *inputs, loss, alpha, sizes)
    if case.direction == "forward":
        return Kernel(calls=(forward,), notes={"workspace_bytes": alpha.nbytes})
    loops.deepbench_ctc(*map(ctypes.c_void_p, forward.words))  # the backward pass has what a forward pass leaves
    row = empty((p.batch, 2, states), "f32")
    gradients = (arrays["dloss"], arrays["gradient"])
    call = Call(loops.deepbench_ctc_backward, *inputs, loss, alpha, *gradients, row, sizes)
    return Kernel(calls=(call,), notes={"workspace_bytes": alpha.nbytes + row.nbytes})


OPERATIONS: dict[str, Callable[[Any, Case, Arrays], Kernel]] = {
    "elementwise": _elementwise,
    "dropout": _dropout,
    "reduction": _reduction,
    "embedding_bag": _embedding_bag,
    "optimizer": _optimizer,
    "ctc": _ctc,
}
