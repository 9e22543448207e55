"""Which cases: filters, and what there is to choose from."""

import pytest

import deepbench
from deepbench.api.filters import Filters, make_choices, suites


def test_a_filter_that_does_not_exist_is_a_wrong_argument():
    with pytest.raises(TypeError, match=r"backend is no filter of cases.*backends"):
        deepbench.cases("quick", backend="mkl")


def test_filters_are_those_of_the_choices():
    given = {
        "ops": "gemm", "backends": ["mkl"], "precisions": "all", "directions": "forward", "applications": "a",
        "threads": 2, "ranks": [2], "device": "cpu", "settings": {"beta": "0"}, "fit": "4GiB", "with_parts": True,
    }  # fmt: skip
    choices = make_choices(**given)

    assert given.keys() == Filters.__annotations__.keys()
    assert ("gemm",) == choices.ops
    assert (2,) == choices.threads
    assert {"beta": ("0",)} == choices.settings
    assert len(choices.precisions) > 5
    assert choices.with_parts


def test_there_are_operations_and_suites_to_look_at():
    assert "gemm" in deepbench.operations()
    by_name = {suite["name"]: suite for suite in suites()}
    assert by_name["deepbench/train"]["problems"] > 100
    assert "decode" in by_name["moe"]["phases"]
