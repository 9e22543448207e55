"""Whole cases next to the sum of their parts: the sum, the ratio, and where both are withheld."""

import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.reporting import components
from deepbench.results.summary import summarize
from tests.help import samples

LAYER = "recurrent cell=lstm hidden=8 batch=2 timesteps=3 input_size=5 {direction} f32 {{backend}} threads=1"
NARROW = "recurrent cell=lstm hidden=8 batch=2 timesteps=3 {direction} f32 {{backend}} threads=1"
PROJECTION = "gemm m=32 n=6 k=5 a_t=0 b_t=0 forward f32 {backend} threads=1 beta=0"


def found(*records):
    return components.table(summarize(records))


def whole(seconds, direction="forward", **options):
    return samples.measured("onednn", seconds, text=LAYER.format(direction=direction), **options)


def narrow(seconds, make=samples.measured, **options):
    return make("onednn", seconds, text=NARROW.format(direction="forward"), **options)


def projection(seconds, backend="onednn", **options):
    return samples.measured(backend, seconds, text=PROJECTION, **options)


def test_a_layer_is_compared_with_its_projection_and_its_recurrence():
    (row,) = found(whole(4e-3), projection(2e-3), narrow(3e-3)).rows

    assert 5e-3 == pytest.approx(row["sum"], rel=1e-3)
    assert 0.8 == pytest.approx(row["ratio"], rel=1e-3)
    assert row["lacks"] is None
    assert "gemm 32 × 6 × 5 NN 2.00 ms + recurrent LSTM 8, batch 2, 3 steps 3.00 ms" == row["parts"]


def test_parts_of_a_stack_count_as_often_as_they_occur():
    sizes = "recurrent cell=gru hidden=8 batch=2 timesteps=3 input_size=5 layers=3 bidirectional=1"
    case = parse_case(f"{sizes} forward f32 onednn threads=2 pin=cores weights=packed")

    parts = {part.text: count for part, count in find_op("recurrent").components(case).items()}

    how = "forward f32 onednn threads=2"
    assert {
        f"gemm m=24 n=6 k=5 a_t=0 b_t=0 {how} beta=0 pin=cores weights=packed": 2,
        f"gemm m=24 n=6 k=16 a_t=0 b_t=0 {how} beta=0 pin=cores weights=packed": 4,
        f"recurrent cell=gru hidden=8 batch=2 timesteps=3 {how} pin=cores weights=packed": 6,
    } == parts


@pytest.mark.parametrize("direction", ["forward", "backward", "backward_data", "backward_weights"])
@pytest.mark.parametrize("sizes", ["input_size=5", "input_size=5 layers=2 bidirectional=1", "layers=3"])
def test_the_work_of_the_parts_is_that_of_the_whole(direction, sizes):
    case = parse_case(f"recurrent cell=lstm hidden=8 batch=2 timesteps=3 {sizes} {direction} f32 cudnn threads=1")
    op = find_op("recurrent")

    of_parts = sum(count * find_op(part.op).flop(part) for part, count in op.components(case).items())

    assert op.flop(case) == of_parts


def test_the_product_of_a_linear_layer_and_its_activation():
    op = find_op("linear")
    plain, gelu = (
        parse_case(f"linear m=4 n=5 k=6 forward bf16 torch threads=1{activation}")
        for activation in ("", " activation=gelu")
    )
    product = "gemm m=4 n=5 k=6 a_t=0 b_t=0 forward bf16 torch threads=1 beta=0 result=narrow"

    assert [product] == [part.text for part in op.components(plain)]
    texts = [product, "elementwise kind=gelu n=20 forward bf16 torch threads=1"]
    assert texts == [part.text for part in op.components(gelu)]


def test_a_recurrence_has_no_parts():
    assert not found(narrow(3e-3)).rows


def test_a_missing_part_is_named_and_withholds_sum_and_ratio():
    view = found(whole(4e-3), narrow(3e-3), projection(2e-3, backend="mkl"))

    (row,) = view.rows
    assert (None, None) == (row["sum"], row["ratio"])
    missing = "gemm m=32 n=6 k=5 a_t=0 b_t=0 forward f32 onednn threads=1 beta=0"
    assert f"not in this file: {missing}" == row["lacks"]
    assert any("--with-parts" in note for note in view.notes)


def test_a_wrong_part_is_not_added():
    (row,) = found(whole(4e-3), narrow(3e-3), projection(2e-3, status="wrong")).rows

    assert (None, None) == (row["sum"], row["ratio"])
    assert row["lacks"].startswith("wrong: gemm m=32")


def test_a_disturbed_part_is_not_added():
    (row,) = found(whole(4e-3), narrow(3e-3, samples.disturbed), projection(2e-3)).rows

    assert (None, None) == (row["sum"], row["ratio"])
    assert row["lacks"].startswith("disturbed: recurrent cell=lstm hidden=8")


def test_a_disturbed_whole_has_no_time_and_no_ratio():
    layer = samples.disturbed("onednn", 4e-3, text=LAYER.format(direction="forward"))
    (row,) = found(layer, narrow(3e-3), projection(2e-3)).rows

    assert (None, None) == (row["time"], row["ratio"])
    assert 5e-3 == pytest.approx(row["sum"], rel=1e-3)
    assert "the whole is disturbed" == row["lacks"]


def test_the_interval_has_all_ratios_that_the_times_allow():
    def rounds(make, *seconds):
        return [make(s, round_number=i) for i, s in enumerate(seconds, 1)]

    records = [*rounds(whole, 4e-3, 4.04e-3), *rounds(projection, 2e-3, 2.1e-3), *rounds(narrow, 3e-3, 3.2e-3)]
    layer, product, recurrence = summaries = summarize(records)

    (row,) = components.table(summaries).rows

    assert row["low"] < row["ratio"] < row["high"]
    low = layer.estimate.low_s / (product.estimate.high_s + recurrence.estimate.high_s)
    assert low == pytest.approx(row["low"])
    assert (row["high"] - row["low"]) / 2 / row["ratio"] == pytest.approx(row["±"])


def test_times_of_one_process_have_no_interval():
    (row,) = found(whole(4e-3), projection(2e-3), narrow(3e-3)).rows

    assert (None, None, None) == (row["±"], row["low"], row["high"])


def test_a_case_of_an_operation_that_does_not_exist_here_has_no_row():
    strange = {**whole(4e-3), "case": "dance steps=4 forward f32 onednn threads=1"}

    assert not found(strange).rows
