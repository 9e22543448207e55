"""Tables of predicted steps: layers with their parts, gains of other libraries, devices, the knee."""

import time
from dataclasses import replace

import pytest

from deepbench.core import units
from deepbench.core.times import Time
from deepbench.networks.predictions import devices
from deepbench.networks.predictions.breakdown import gains, knee_of
from deepbench.networks.predictions.forecast import Forecast
from deepbench.networks.predictions.predict import KernelShare, Need, Prediction
from deepbench.networks.reporting import predictions
from deepbench.networks.reporting.predictions import Predicted, layer_rows, layer_table
from deepbench.networks.traces.trace import Trace, TracedCall
from deepbench.reporting import steps

GEMM = "gemm m=64 n=32 k=16 a_t=0 b_t=0 forward f32 beta=0"
RELU = "elementwise kind=relu n=1000 forward f32"


def part(kernel, count, seconds, how="measured", disturbed=False):
    time = None if seconds is None else Time(seconds, 0.9 * seconds, 1.1 * seconds)
    time = Time.at_most(seconds) if disturbed else time
    return KernelShare(Need(kernel, count, 0.0, None, None, (), 100, 1), time, how)


def call(kernel, where, moved=100):
    return TracedCall("aten.x", kernel, where, (), (), moved)


def predicted(library="torch", gemm=2e-3, relu=1e-3, calls=None, **changes):
    calls = calls or [
        call(GEMM, "layers.0.first"),
        call(GEMM, "layers.1.first"),
        call(RELU, "head"),
        call(None, "head"),
    ]
    trace = Trace("net", "", True, tuple(calls), (10,), 1, 1000)
    parts = (part(GEMM, 2, gemm), part(RELU, 1, relu))
    made = Prediction(trace, library, 1, parts, Time(5e-4, 4e-4, 6e-4), Time(5e-4, 4e-4, 6e-4))
    return replace(made, **changes)


def test_a_list_of_many_positions_in_turn_is_named_soon_by_the_first_ones():
    """Each position is compared with one of its kind, not with all others."""
    calls = [call((GEMM, RELU)[i % 2], f"net.{i}") for i in range(40_000)]
    begin = time.process_time()
    named = [row["layer"] for row in layer_rows(predicted(calls=calls)) if row["part"] is None]

    evens, odds = (", ".join(map(str, range(first, 40, 2))) for first in (0, 1))
    assert {f"net.{evens}, …", f"net.{odds}, …"} == set(named)
    assert time.process_time() - begin < 4


def test_a_layer_is_the_sum_of_its_parts():
    rows = layer_rows(predicted())
    layers = {row["layer"]: row for row in rows if row["part"] is None}

    assert sum(row["time"] for row in layers.values()) == pytest.approx(4e-3 * (1 - 0.1 * 0.25))  # less one view
    for name, layer in layers.items():
        of_it = [row for row in rows if row["layer"] == name and row["part"] is not None]
        assert layer["time"] == pytest.approx(sum(row["time"] for row in of_it))
        assert layer["calls"] == sum(row["calls"] for row in of_it)
    assert ["layers.*", "head"] == list(layers)
    assert 2 == layers["layers.*"]["calls"]


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (["0", "1.layers.0.fc", "1.layers.1.fc", "2"], ["0", "1", "2"]),  # an embedding, an encoder, and a head
        (["net.0", "net.1.fc", "net.2.fc", "net.3"], ["net.0", "net.1–2", "net.3"]),
        (["layers.0.fc", "layers.1.fc", "fc"], ["fc", "layers.*"]),
        (["layer1.0.fc"], ["layer1.0"]),
        (["0.fc", "1.fc", "2.fc"], ["0–2"]),  # the whole network is a list, which has no name
        (["", "a.b"], ["(no module)", "a"]),
    ],
)
def test_positions_of_a_list_are_one_layer_only_if_they_are_alike(places, names):
    kernels = [GEMM if place.endswith("fc") else RELU for place in places]
    if len(places) == 4:
        kernels[0], kernels[-1] = "softmax rows=4 columns=4 forward f32", RELU
    calls = [call(kernel, place) for kernel, place in zip(kernels, places, strict=True)]

    assert names == sorted({row["layer"] for row in layer_rows(predicted(calls=calls))})


def test_layers_without_all_kernels_say_so():
    lacking = replace(predicted(), parts=(part(GEMM, 2, None, "not measured"), part(RELU, 1, 1e-3)))

    assert "1 kernel has no time, so these sums lack them." in layer_table(lacking).notes


def test_a_kernel_counts_for_the_fastest_of_other_libraries():
    others = [predicted("onednn", gemm=1e-3, relu=3e-3), predicted("mkl", gemm=1.5e-3, relu=0.5e-3)]

    assert [("onednn", 1, pytest.approx(1e-3)), ("mkl", 1, pytest.approx(0.5e-3))] == [
        (g.library, g.kernels, g.saved_s) for g in gains(predicted(), others)
    ]


def test_disturbed_and_estimated_times_are_no_gain():
    noisy = replace(
        predicted("mkl"), parts=(part(GEMM, 2, 1e-6, disturbed=True), part(RELU, 1, 1e-6, "from its bytes"))
    )

    assert [] == gains(predicted(), [noisy])
    assert predictions.gain_text(predicted(), [noisy]) is None


def test_python_users_see_a_table():
    found = Predicted(Forecast((predicted(),), Time(4.4e-3, 4.3e-3, 4.5e-3), None))

    assert found.error == pytest.approx(4 / 4.4 - 1)
    assert "predicted  4.00 ms, from" in str(found)
    assert "<table" in found._repr_html_()
    assert "<svg" in found.picture()
    assert found.values()["measured_share"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("points", "knee"),
    [
        ([(1, 1.0), (2, 1.1), (4, 2.0), (8, 3.9)], 4),
        ([(1, 1.0), (2, 2.0), (4, 4.0)], 1),
        ([(1, 1.0), (2, 1.0)], None),
    ],
)
def test_the_knee_is_where_throughput_is_nearly_the_highest(points, knee):
    assert knee == knee_of(points)


def test_devices_without_parameters_or_kernels_are_withheld():
    unknown = replace(predicted(), trace=replace(predicted().trace, parameters=None))
    lacking = replace(predicted(), parts=(part(GEMM, 2, None, "not measured"),))
    found = devices.of_predictions([(2, unknown), (1, lacking)], [], is_strong=True)
    first, second = found.steps

    assert "does not say how many parameters" in first.withheld
    assert "1 kernel has no time" in second.withheld
    assert first.one_after_the_other is None
    assert all(row["step"] is None and row["speed-up"] is None for row in steps.table([found]).rows)


def test_nothing_is_concluded_from_disturbed_kernels():
    good = predicted()
    bad = predicted(parts=(part(GEMM, 2, 1e-3, disturbed=True), part(RELU, 1, 1e-3)))
    step = Time(3e-3, 2.9e-3, 3.1e-3)

    assert good.is_trusted
    assert not bad.is_trusted
    assert "withheld" not in dict(predictions.summary(good, step))["error"]
    assert "withheld" in dict(predictions.summary(bad, step))["error"]
    assert good.error(step) == pytest.approx(good.time.seconds / step.seconds - 1)
    assert bad.error(step) is None
    assert None is predictions.values(bad, step)["error"]
    assert "withheld" in " ".join(predictions.faster_kernels(bad))
    assert "times as fast" in " ".join(predictions.faster_kernels(good))


def test_a_disturbed_step_is_an_upper_bound_without_a_lower_end():
    bad = predicted(parts=(part(GEMM, 2, 1e-3, disturbed=True), part(RELU, 1, 1e-3)))
    (said,) = [text for label, text in predictions.summary(bad, None) if label == "predicted"]
    shown = {row["case"]: row for row in predictions.rows(bad) if "case" in row}

    assert said.startswith(f"{units.at_most(bad.time.high_s)} per step")
    assert "≤ 1" in predictions.table(bad).markdown()
    assert (None, 1e-3) == (shown[GEMM]["low"], shown[GEMM]["high"])
    assert "from" not in said


def test_the_knee_is_that_of_steps_that_are_trusted():
    """Of batch 4 a disturbed step would be so slow that batch 1 looked like the knee."""
    quiet, slow = (predicted(parts=(part(GEMM, 1, s),)) for s in (1e-3, 1.1e-3))
    noisy = predicted(parts=(part(GEMM, 1, 1e-1, disturbed=True),))
    found = predictions.sweep_table("batch", [(1, quiet), (2, quiet), (4, noisy), (8, slow)])

    assert not any("Knee: batch 4" in note for note in found.notes)
    assert any("Knee: batch 8." in note for note in found.notes)
    assert not any("Knee" in n for n in predictions.sweep_table("batch", [(1, quiet), (2, quiet), (4, noisy)]).notes)


def test_what_a_faster_kernel_changes_is_said_where_it_changes_something():
    found = predicted(parts=(part(GEMM, 2, 1e-3), part(RELU, 1, 1e-6)))
    lines = predictions.faster_kernels(found)

    assert any(line.startswith("With all of products 2 times as fast, the step takes 1.") for line in lines), lines
    assert not any("relu" in line or "other kernels" in line for line in lines)
    only_overhead = predicted(parts=(part(RELU, 1, 1e-6),))
    assert ["Even 2 times as fast, no kernel changes the step by more than 1 %."] == predictions.faster_kernels(
        only_overhead
    )
