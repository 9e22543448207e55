"""One step of an optimizer, in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.ops.optimizer import BETA1, BETA2, DECAY, EPSILON, MOMENTUM, RATE, STEP

SERVES = {"forward": ("f32", "bf16")}


def body(case: Case, arrays: Values) -> Values:
    """As the operation has it."""
    kind, stored = case.problem.kind, {}
    p, g, v = (arrays[name].to("f32") for name in "pgv")
    if kind == "sgd":
        stored["v"] = v * MOMENTUM + g
        change = stored["v"] * RATE
    elif kind == "adagrad":
        stored["v"] = v + g * g
        change = g * RATE / (stored["v"].apply("sqrt") + EPSILON)
    else:
        stored["m"] = arrays["m"].to("f32") * BETA1 + g * (1 - BETA1)
        stored["v"] = v * BETA2 + g * g * (1 - BETA2)
        root = (stored["v"] / (1 - BETA2**STEP)).apply("sqrt")
        change = stored["m"] / (1 - BETA1**STEP) / (root + EPSILON)
        change = change + p * DECAY if kind == "lamb" else change
        ratio = ((p * p).sum(0) / (change * change).sum(0)).apply("sqrt") if kind == "lamb" else None
        change = change * RATE if ratio is None else change * ratio * RATE
        p = p * (1 - RATE * DECAY) if kind == "adamw" else p
    return {name: value.to(arrays[name].kind) for name, value in {"p": p - change, **stored}.items()}
