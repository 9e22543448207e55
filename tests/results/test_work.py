"""Which cases compete."""

import pytest

from deepbench.core.case import parse_case
from deepbench.results.record import make_record
from deepbench.results.work import Work, by_case
from tests.help import samples

GEMM = "gemm m=2 n=3 k=4 a_t=0 b_t=0 forward f32 {} threads={}"
REDUCE = "all_reduce n=8 ranks=2 forward f32 {} threads=1{}"


def record(text):
    return make_record(parse_case(text), 1, "ok")


@pytest.mark.parametrize(
    ("one", "other", "compete"),
    [
        (GEMM.format("mkl", 1), GEMM.format("openblas", 1), True),
        (GEMM.format("mkl", 1), GEMM.format("mkl", 2), False),
        (GEMM.format("mkl", 1), GEMM.format("mkl", 1) + " beta=0", False),
        (GEMM.format("mkl", 1), GEMM.format("mkl", 1).replace("f32", "bf16"), False),
        (GEMM.format("mkl", 1), GEMM.format("mkl", 1).replace("n=3", "n=5"), False),
        (GEMM.format("mkl", 1), GEMM.format("cublas", 1), False),
        (REDUCE.format("mpich", ""), REDUCE.format("mpich", " algorithm=ring"), True),
        (REDUCE.format("mpich", " algorithm=ring"), REDUCE.format("openmpi", " algorithm=linear"), True),
        (REDUCE.format("mpich", ""), REDUCE.format("mpich", " place=in"), False),
    ],
)
def test_cases_with_equal_work_compete(one, other, compete):
    a, b = record(one), record(other)

    assert compete == (Work.of(a) == Work.of(b))
    assert Work.on_library(a) != Work.on_library(b)


@pytest.mark.parametrize(
    "text",
    [
        GEMM.format("mkl", 2) + " beta=0 cache=cold",
        REDUCE.format("mpich", " algorithm=ring"),
        "conv n=1 c=2 h=8 w=8 k=3 r=3 s=3 pad_h=1 backward_data f32 mkl threads=1 layout=any",
    ],
)
def test_a_record_and_its_case_are_the_same_work(text):
    case = parse_case(text)

    assert Work.of_case(case) == Work.on_library(record(text))
    assert case.text == Work.of_case(case).text


def test_a_setting_that_did_not_exist_yet_is_at_its_default():
    new = record(GEMM.format("mkl", 1))
    old = {**new, "settings": {n: v for n, v in new["settings"].items() if n != "cache"}}

    assert Work.of(old) == Work.of(new)
    assert Work.of(old) != Work.of(record(GEMM.format("mkl", 1) + " cache=cold"))


def test_what_is_left_out_may_differ():
    one, other = record(GEMM.format("mkl", 1) + " beta=0"), record(GEMM.format("openblas", 2).replace("n=3", "n=5"))
    names = ("backend", "threads", "beta", "n")

    assert Work.on_library(one).without(*names) == Work.on_library(other).without(*names)
    assert "gemm m=2 k=4 a_t=0 b_t=0 forward f32" == Work.on_library(one).without(*names).text
    assert Work.on_library(one).without(*names[1:]) != Work.on_library(other).without(*names[1:])


def test_records_are_grouped_by_case_in_the_order_of_the_file():
    records = [samples.measured("mkl"), samples.measured("onednn"), samples.measured("mkl", round_number=2)]
    interrupted = samples.failed("interrupted", "stopped", "openblas")

    groups = by_case([interrupted, *records])

    assert [[records[0], records[2]], [records[1]]] == list(groups.values())
    assert [records[0]["case"], records[1]["case"]] == list(groups)
