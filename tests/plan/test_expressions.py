"""The arithmetic of model files."""

import pytest

from deepbench.core.errors import BadInput
from deepbench.plan.expressions import evaluate

VALUES = {"in": 3, "batch": 8, "heads": 32, "kv_heads": 4, "none": 0, "M": 7, "K_2": 10}


def value_of(name):
    if name not in VALUES:
        raise BadInput(f"{name!r} is unknown")
    return VALUES[name]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("17", 17),
        ("batch", 8),
        ("batch*(heads+2*kv_heads)", 320),
        ("heads - kv_heads - 1", 27),
        ("2*batch/3", 5),
        ("2*(batch/3)", 4),
        ("1-batch*2", -15),
        ("(((batch)))", 8),
        ("(in+007)*in", 30),
        ("M*K_2 + M", 77),
    ],
)
def test_products_bind_more_than_sums_and_quotients_are_rounded_down(text, value):
    assert value == evaluate(text, value_of)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "batch*",
            "*batch",
            "(batch",
            "batch)",
            "batch heads",
            "2batch)",
            "batch**2",
            "batch//2",
            "-batch",
            "batch * * 2",
            "()",
        ),
        *(
            "1.5",
            "0x10",
            "batch;1",
            "__import__('os')",
            "batch.real",
            "batch[0]",
            "batch(1)",
            "é",
            "9" * 19 + "*",
            "1" * 201,
            "1_000",
            "batch,1",
        ),
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(BadInput, match="expression"):
        evaluate(text, value_of)


def test_unknown_names_division_by_zero_and_huge_values_are_refused():
    with pytest.raises(BadInput, match="'width' is unknown"):
        evaluate("2*width", value_of)
    with pytest.raises(BadInput, match="divides by 0"):
        evaluate("batch/none", value_of)
    with pytest.raises(BadInput, match="larger than"):
        evaluate("*".join(["999999999999999999"] * 8), value_of)
    with pytest.raises(BadInput, match="wanted an expression"):
        evaluate("(" * 150, value_of)


def test_a_chain_of_long_expressions_needs_no_stack():
    def chain(name):
        depth = int(name[1:])
        return 1 if depth == 20 else evaluate(f"a{depth + 1}" + "-0" * 90, chain)

    assert 1 == evaluate("a0" + "-0" * 90, chain)
