"""A predicted step as an application: its kernels, its other operators and the overhead of the framework as terms."""

from __future__ import annotations

from dataclasses import replace

from deepbench.core.case import Case
from deepbench.networks.predictions.predict import KernelShare, Prediction
from deepbench.networks.what_if.hardware import Hardware
from deepbench.networks.what_if.terms import ModelledApplication, Term

OTHERS, OVERHEAD = "other operators", "overhead of operators"


def application_of(prediction: Prediction) -> ModelledApplication:
    """The terms of a step. Kernels and other operators with a disturbed time, or none, are left out and counted.

    What takes no time at all is no term: nothing divides by it.
    """
    trusted = [part for part in prediction.parts if part.time and part.time.seconds > 0 and not part.disturbed]
    terms = [_term(part) for part in trusted]
    trace = prediction.trace
    others, left_out = len(trace.others), sum(part.disturbed for part in prediction.parts)
    if others and prediction.others is not None and prediction.others.is_bound:
        left_out += 1
    elif others and prediction.others is not None and prediction.others.seconds:
        size = sum(call.bytes for call in trace.others) // others
        one = prediction.others.times(1 / others)
        terms.append(Term(None, OTHERS, others, one.seconds, one.low_s, one.high_s, 0, max(1, size)))
    if prediction.overhead is not None and prediction.overhead.seconds > 0:
        one = prediction.overhead.times(1 / trace.operators)
        terms.append(Term(None, OVERHEAD, trace.operators, one.seconds, one.low_s, one.high_s, 0, 0))
    remarks = {
        "left out because other programs disturbed their times": left_out,
        "without a time": len(prediction.missing),
    }
    kernels = len(terms) + left_out + len(prediction.missing)
    return ModelledApplication(trace.title, terms, {r: n for r, n in remarks.items() if n}, kernels=kernels)


def _term(part: KernelShare) -> Term:
    """All calls of a kernel. It stands for the state of the caches in which most of its bytes are."""
    need, time = part.need, part.time
    assert time is not None, "the caller has checked it"
    one = time.times(1 / need.count)
    case = need.cold if need.cold_share >= 0.5 else need.hot
    # A chain of operators is limited by its bytes, whatever the kernel is that it stands for.
    case = None if need.is_chain else case
    flop = case.operation.flop(case) if case is not None else 0
    return Term(case, _label(case, need.kernel), need.count, one.seconds, one.low_s, one.high_s, flop, need.bytes)


def _label(case: Case | None, kernel: str) -> str:
    if case is None:
        return kernel
    words = [case.op, case.operation.title(case.problem), *[case.direction] * (case.direction != "forward")]
    return " ".join(words)


def with_overhead(hardware: Hardware, prediction: Prediction) -> Hardware:
    """The hardware with the overhead per operator that a prediction knows, so that it is a knob."""
    if prediction.overhead is None or prediction.overhead.seconds <= 0:
        return hardware
    seconds = prediction.overhead.seconds / prediction.trace.operators
    return replace(hardware, overhead=replace(hardware.overhead, operator_s=seconds))
