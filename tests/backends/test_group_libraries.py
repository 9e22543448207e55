"""Every installed library for groups: results are right and deterministic."""

import pytest

from deepbench.core.backend import all_backends, find_backend
from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.measuring.heat import measure_case
from deepbench.plan.modes import Rules
from deepbench.results.summary import summarize

pytestmark = pytest.mark.programs

SHORT = Rules(least_samples=3, least_s=0.0, most_s=0.01, warm_up_s=0.002)
LIBRARIES = [n for n, b in all_backends().items() if b.device == "cpu" and b.is_group]


@pytest.fixture
def measured(opened):
    def measure(name, text):
        if "unavailable" in opened[name]:
            pytest.skip(f"{name}: {opened[name]['unavailable']['reason']}")
        return measure_case(parse_case(f"{text.format(name)} threads=1"), 1, SHORT, 60.0)

    return measure


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("all_reduce n=1 ranks=2 forward f32 {}", marks=pytest.mark.long),
        pytest.param("all_reduce n=1001 ranks=3 forward f32 {}", marks=pytest.mark.long),
        "all_reduce n=2 ranks=3 forward f32 {} place=in",
        pytest.param("all_reduce n=1000 ranks=2 forward f16 {}", marks=pytest.mark.long),
        "all_reduce n=70000 ranks=4 forward f32 {}",
    ],
)
def test_the_sum_is_right_and_deterministic(measured, name, text):
    record = measured(name, text)

    assert ("ok", None) == (record["status"], record["reason"])
    assert "yes" == record["group"]["deterministic"]


def offered():
    """Every library with every operation and precision that `info --matrix` offers.

    Each needs a group of processes, and libraries combine their functions and data types freely: `make test` runs each
    operation in its first precision.
    """
    found = []
    for name in LIBRARIES:
        for mark in find_backend(name).marks():
            for precision in mark.precisions:
                is_enough = precision == mark.precisions[0]
                found.append(pytest.param(name, mark.op, precision, marks=[] if is_enough else pytest.mark.long))
    return found


@pytest.mark.parametrize(("name", "op", "precision"), offered())
def test_the_matrix_offers_only_what_runs(measured, name, op, precision):
    record = measured(name, f"{op} {find_op(op).smoke[-1].text} forward {precision} {{}}")

    assert ("ok", None) == (record["status"], record["reason"])


@pytest.mark.parametrize("name", LIBRARIES)
def test_sums_of_bf16_are_offered_or_refused_with_a_reason(measured, name):
    record = measured(name, "all_reduce n=1001 ranks=3 forward bf16 {}")

    offered = find_backend(name).supports("all_reduce", "bf16", "forward")
    assert ("ok" if offered else "unsupported") == record["status"], record["reason"]


@pytest.mark.long
@pytest.mark.parametrize("name", LIBRARIES)
def test_every_declared_algorithm(measured, name):
    known = find_backend(name).algorithms.get("all_reduce", {})
    if not known:
        pytest.skip(f"{name} offers no choice of algorithm")
    bits = {}
    for algorithm in known:
        record = measured(name, "all_reduce n=3001 ranks=3 forward f32 {} algorithm=" + algorithm)
        assert ("ok", None) == (record["status"], record["reason"]), algorithm
        bits[algorithm] = record["group"]["hash"]

    assert len(set(bits.values())) > 1, bits  # the setting has an effect: orders of adding differ


@pytest.mark.parametrize("name", LIBRARIES)
def test_an_all_reduce_that_overlaps_with_a_product(measured, name):
    record = measured(name, "all_reduce n=600000 ranks=2 forward f32 {} overlap=gemm")

    if name in ("ring", "oneccl"):
        assert "unsupported" == record["status"]
        return
    assert ("ok", None) == (record["status"], record["reason"])
    assert record["notes"]["all_reduce_alone_s"] > 0
    assert record["notes"]["gemm_alone_s"] > 0
    (summary,) = summarize([record])
    assert summary.hidden < 1.5  # at most all of it, except for noise


@pytest.mark.long
@pytest.mark.parametrize("name", LIBRARIES)
def test_both_thread_levels_give_right_results(measured, name):
    record = measured(name, "all_reduce n=100 ranks=2 forward f32 {} mpi_threads=single")

    assert record["status"] in ("ok", "unsupported"), record["reason"]
