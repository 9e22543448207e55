"""FLOP, bytes and other counts against values that were computed without DeepBench.

`tests/data/counts.csv` has them, each with how it was computed: by enumerating what an operation does on a small
problem, or in closed form from the published configuration of a network.
"""

import csv
from functools import cache
from pathlib import Path

import pytest

from deepbench.core.case import Case, check_settings, parse_case
from deepbench.core.precision import find_precision
from deepbench.plan.suites import pass_of, read_suite

ROWS = list(csv.DictReader((Path(__file__).parents[1] / "data" / "counts.csv").read_text().splitlines()))

PRODUCTS = ("gemm", "batched_gemm", "grouped_gemm", "attention", "conv", "recurrent")


def group_of(row):
    """The operation, or the folder of the suite."""
    return row["what"].split()[0].split("/")[0]


@cache
def products_of(suite):
    """(count, case, whether it is a gradient) of each product of a pass."""
    found = []
    for e in read_suite(suite):
        p = e.pattern
        if p.op in PRODUCTS:
            settings = check_settings(p.op, e.stated)
            case = Case(p.op, p.problem, p.direction, find_precision("f32"), "reference", 1, settings)
            is_gradient = p.direction != "forward" or "gradient" in (e.source["label"] or "")
            found.append((e.source["count"], case, is_gradient))
    return found


def cache_numbers(p):
    """What attention reads of a cache."""
    return p.batch * p.kv_heads * (p.keys - p.first_key(p.keys)) * (p.head_size + p.width)


def of_suite(name, quantity):
    if quantity == "parameters":
        return pass_of(name).weights
    products = products_of(name)
    if quantity == "cache_bytes":
        return 2 * sum(count * cache_numbers(case.problem) for count, case, _ in products if case.op == "attention")
    return sum(
        count * case.operation.flop(case)
        for count, case, is_gradient in products
        if quantity == "products_flop" or not is_gradient
    )


def of_case(text, quantity):
    case = parse_case(f"{text} reference threads=1")
    op = case.operation
    if quantity == "bus_factor":
        return op.bus_factor(case.problem)
    if quantity in ("flop", "traffic_bytes", "operand_bytes"):
        return getattr(op, quantity)(case)
    return op.other_flop(case)[quantity]


@pytest.mark.parametrize("group", sorted({group_of(row) for row in ROWS}))
def test_counts_are_those_computed_independently(group):
    wrong = []
    for row in ROWS:
        if group_of(row) == group:
            count = of_suite if "/" in row["what"] else of_case
            found = count(row["what"], row["quantity"])
            if found != pytest.approx(float(row["value"]), rel=1e-12):
                wrong.append(f"{row['what']}: {row['quantity']} is {found}, wanted {row['value']} ({row['how']})")

    assert [] == wrong
