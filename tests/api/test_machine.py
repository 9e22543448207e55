"""What the API says about a machine."""

from deepbench.api import machine


def test_support_is_read_from_the_marks_of_libraries():
    rows = machine.support()
    (row,) = [r for r in rows if (r["op"], r["direction"], r["precision"]) == ("gemm", "forward", "f32")]

    assert {"mkl", "onednn", "openblas"} <= set(row["backends"])


def test_precisions_say_which_use_they_are_too_small_for():
    by_name = {p["name"]: p for p in machine.precisions()}

    assert by_name["f32"]["below_minimum_for_training"] is None
    assert by_name["i8"]["below_minimum_for_training"]
