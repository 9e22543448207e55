"""One step of an optimizer, in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values

SERVES = {"forward": ("f32", "bf16")}


def forward(case: Case, arrays: Values) -> Values:
    """As the operation has it."""
    kind, facts = case.problem.kind, case.operation.facts(case)
    rate, epsilon, decay = facts["rate"], facts.get("epsilon"), facts.get("decay", 0)
    p, g, v = (arrays[name].to("f32") for name in "pgv")
    if kind == "sgd":
        state = {"v": v * facts["momentum"] + g}
        change = state["v"] * rate
    elif kind == "adagrad":
        state = {"v": v + g * g}
        change = g * rate / (state["v"].apply("sqrt") + epsilon)
    else:
        beta1, beta2, step = facts["beta1"], facts["beta2"], facts["step"]
        m = arrays["m"].to("f32") * beta1 + g * (1 - beta1)
        state = {"m": m, "v": v * beta2 + g * g * (1 - beta2)}
        change = m / (1 - beta1**step) / ((state["v"] / (1 - beta2**step)).apply("sqrt") + epsilon)
        if kind == "lamb":
            change = change + p * decay
            change = change * ((p * p).sum(0) / (change * change).sum(0)).apply("sqrt")
        change = change * rate
        p = p * (1 - rate * decay) if kind == "adamw" else p
    return {name: value.to(arrays[name].kind) for name, value in {"p": p - change, **state}.items()}
