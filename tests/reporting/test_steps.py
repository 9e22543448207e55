"""Training steps on more and more devices: sums of handmade kernel times and all-reduces, and what is withheld."""

import pytest

from deepbench.core.errors import BadInput
from deepbench.judge import groups, suite_devices
from deepbench.plan.suites import read_suite
from deepbench.reporting import steps
from deepbench.results.summary import summarize
from tests.help import samples
from tests.help.samples import all_reduce

MODEL, GRADIENTS = samples.TRAINED, samples.GRADIENTS


def calls():
    """How many calls of kernels a step has; the same on any number of devices."""
    return sum(e.source["count"] for e in read_suite(f"{MODEL}:phase=train,devices=1"))


def scaling_of(*records):
    (found,) = suite_devices.of_summaries(summarize([r for some in records for r in some]))
    return found


def test_a_step_is_the_kernels_of_its_part_of_the_batch_and_then_the_all_reduce():
    found = scaling_of(samples.kernels_of_steps(4, 1, 2), all_reduce(2, 2e-3), all_reduce(4, 3e-3))
    one, two, four = found.steps

    assert [1, 2, 4] == [s.devices for s in found.steps]
    assert [128, 128, 128] == [s.batch for s in found.steps]
    assert "Sentiment CNN, train, batch 128, f32, 1 thread" == found.title
    assert one.all_reduce is None
    assert one.one_after_the_other == one.overlapped == one.one_device
    assert one.one_device.seconds == pytest.approx(calls() * 1.02e-3, rel=0.01)
    assert four.one_device.seconds == pytest.approx(
        ((calls() - 1) / 4 + 1) * 1.02e-3, rel=0.01
    )  # the optimizer in full
    assert four.one_after_the_other.seconds == pytest.approx(four.one_device.seconds + 3.03e-3, rel=0.01)
    assert four.overlapped.seconds == pytest.approx(max(four.one_device.seconds, four.all_reduce.time.seconds))
    assert ("measured", "MPICH", "f32") == (four.all_reduce.how, four.all_reduce.about, four.all_reduce.precision)
    assert two.one_device.low_s < two.one_device.seconds < two.one_device.high_s
    for end in ("low_s", "high_s"):
        ends = getattr(two.one_device, end), getattr(two.all_reduce.time, end)
        assert getattr(two.one_after_the_other, end) == pytest.approx(sum(ends))
        assert getattr(two.overlapped, end) == pytest.approx(max(ends))


def test_speed_up_and_efficiency_are_relative_to_the_fewest_devices():
    found = scaling_of(samples.kernels_of_steps(2, 4), all_reduce(2, 2e-3), all_reduce(4, 3e-3))
    two, four = found.steps
    ratio = found.speed_up(four)

    assert two is found.first
    assert 1.0 == found.speed_up(two).low == found.speed_up(two).value == found.speed_up(two).high  # to itself
    assert 1.0 == found.efficiency(two)
    assert ratio.value == pytest.approx(two.one_after_the_other.seconds / four.one_after_the_other.seconds)
    assert found.efficiency(four) == pytest.approx(ratio.value / 2)
    assert ratio.low < ratio.value < ratio.high
    assert ratio.low == pytest.approx(two.one_after_the_other.low_s / four.one_after_the_other.high_s)


def test_a_missing_kernel_withholds_the_step_and_says_so():
    first, *others = samples.kernels_of_steps(1, 2, rounds=1)
    one, two = scaling_of([first, *others[:-1]], all_reduce(2, 2e-3)).steps
    listed = len([e for e in read_suite(f"{MODEL}:phase=train,devices=2") if e.pattern.op != "all_reduce"])

    assert one.withheld is None
    assert (None, None) == (two.one_after_the_other, two.overlapped)
    assert f"1 of {listed} kernels have no time" == two.withheld


def test_a_missing_all_reduce_withholds_the_step_and_says_what_to_measure():
    found = scaling_of(samples.kernels_of_steps(1, 2))

    assert found.steps[1].one_after_the_other is None
    assert "no all-reduce of 7346176 elements over 2 ranks in f32; measure it" in found.steps[1].withheld
    assert found.speed_up(found.steps[1]) is None


def points(ranks, n):
    """What a ring of such latency and bandwidth takes."""
    return 2 * (ranks - 1) * 5e-6 + 2 * (ranks - 1) / ranks * 4 * n * 2e-10


def test_a_larger_all_reduce_is_predicted_and_labelled_with_the_errors_of_published_ones():
    known = [all_reduce(r, points(r, n) / 1.01, n) for r in (2, 4) for n in (100_000, 1_000_000, GRADIENTS)]
    found = scaling_of(samples.kernels_of_steps(1, 4, 8), *known)
    _, four, eight = found.steps

    assert ["measured", "predicted"] == [s.all_reduce.how for s in (four, eight)]
    assert eight.all_reduce.time.seconds == pytest.approx(points(8, GRADIENTS), rel=0.02)
    low, high = groups.range_of_errors()
    time = eight.all_reduce.time
    assert 0.9 < low < 1.1 < 2 < high < 5  # these models are too optimistic
    assert (time.low_s, time.high_s) == pytest.approx((low * time.seconds, high * time.seconds), rel=0.01)
    assert "model ring of up to 4 ranks, off by up to" in eight.all_reduce.about
    text = " ".join(steps.table([found]).notes)
    assert "predicted by a model" in text
    assert "not a measured step" in text


def test_many_more_ranks_than_measured_are_uncertain():
    known = [all_reduce(r, points(r, n), n) for r in (2, 4) for n in (100_000, 1_000_000, GRADIENTS)]
    found = scaling_of(samples.kernels_of_steps(1, 128), *known)

    assert "uncertain" in found.steps[1].all_reduce.about
    assert found.steps[1].all_reduce.time.low_s is None


def test_a_disturbed_time_gives_a_step_but_no_speed_up():
    *others, last = samples.kernels_of_steps(1, 2, rounds=1)
    noisy = {**samples.disturbed(text=last["case"]), "sources": last["sources"]}
    found = scaling_of(others, [noisy], all_reduce(2, 2e-3))
    two = found.steps[1]

    assert two.disturbed
    assert two.one_after_the_other is not None
    assert (None, None) == (found.speed_up(two), found.efficiency(two))
    view = steps.table([found])
    assert [None, "disturbed"] == [row["notes"] for row in view.rows]
    assert "Disturbed by other programs, 2 devices: no speed-up" in " ".join(view.notes)


def test_problems_that_were_made_smaller_are_no_part_of_the_batch():
    found = scaling_of(samples.kernels_of_steps(1, 2, fit=",fit=1MiB"), all_reduce(2, 2e-3))

    assert all("made smaller to fit" in step.withheld for step in found.steps)


def test_kernels_in_bf16_take_gradients_in_f32_where_there_are_no_others_and_say_so():
    records = samples.kernels_of_steps(1, 2, precision="bf16")
    found = scaling_of(records, all_reduce(2, 2e-3))
    own = scaling_of(records, all_reduce(2, 2e-3), all_reduce(2, 1e-3, precision="bf16"))

    assert "f32" == found.steps[1].all_reduce.precision
    assert "measured, f32" == steps.table([found]).rows[1]["how"]
    assert "bf16" == own.steps[1].all_reduce.precision
    assert "measured" == steps.table([own]).rows[1]["how"]


def test_the_table_has_one_row_per_number_of_devices_and_every_value():
    found = scaling_of(samples.kernels_of_steps(1, 2, 4), all_reduce(2, 2e-3, oversubscribed=True))
    view = steps.table([found])
    one, two, four = view.rows

    assert [(1, 128), (2, 64), (4, 32)] == [(r["devices"], r["batch"]) for r in view.rows]
    assert (None, None) == (one["all-reduce"], one["how"])
    assert two["step"] == pytest.approx(two["one device"] + two["all-reduce"])
    assert two["efficiency"] == pytest.approx(two["speed-up"] / 2)
    assert (None, None, "withheld") == (four["step"], four["speed-up"], four["notes"])
    text = " ".join(view.notes)
    assert "Withheld, 4 devices: no all-reduce" in text
    assert "more ranks than cores" in text.lower()
    assert "were on 1 host." in text
    values = found.values()
    assert values[1]["speed_up"]["value"] == two["speed-up"]
    assert values[2]["one_after_the_other"] is None


def test_a_model_is_chosen_by_a_part_of_its_name():
    every = suite_devices.of_summaries(summarize([*samples.kernels_of_steps(1, 2), *all_reduce(2, 2e-3)]))

    assert every == suite_devices.chosen(every, "sentiment") == suite_devices.chosen(every, MODEL)
    with pytest.raises(BadInput, match="names no model of the file; it has mlperf/sentiment_conv"):
        suite_devices.chosen(every, "resnet")
    with pytest.raises(BadInput, match="no training step on stated devices; measure one: deepbench run resnet"):
        suite_devices.chosen([], "resnet")


def test_a_file_without_devices_has_no_steps():
    assert [] == suite_devices.of_summaries(summarize(samples.ocr()))


def test_an_all_reduce_of_another_device_is_not_that_of_the_kernels():
    on_gpus = [{**r, "device": "cuda"} for r in all_reduce(2, 2e-3)]
    found = scaling_of(samples.kernels_of_steps(1, 2), on_gpus)

    assert "no all-reduce" in found.steps[1].withheld or "does not say" in found.steps[1].withheld


def test_intervals_from_one_process_are_said_to_be_too_narrow():
    quick = steps.table([scaling_of(samples.kernels_of_steps(1, rounds=1))])
    default = steps.table([scaling_of(samples.kernels_of_steps(1))])

    assert steps.ONE_PROCESS_EACH in quick.notes
    assert steps.ONE_PROCESS_EACH not in default.notes


@pytest.mark.parametrize("devices", ["9" * 5000, "0", "-1", "two", "²"])
def test_other_names_of_suites_in_a_file_are_no_steps(devices):
    records = [
        {**r, "sources": [{**r["sources"][0], "suite": f"mlperf/other:phase=train,batch=8,devices={devices}"}]}
        for r in samples.ocr()
    ]

    assert [] == suite_devices.of_summaries(summarize(records))


def test_the_all_reduce_of_a_users_own_model_is_that_of_the_file():
    def renamed(record, suite):
        return {**record, "sources": [{**source, "suite": suite} for source in record["sources"]]}

    name = "mine.toml:phase=train,batch=128,devices=2"
    (entry,) = [e for e in read_suite(f"{MODEL}:phase=train,devices=2") if e.pattern.op == "all_reduce"]
    reduced = [{**r, "sources": [entry.source]} for r in all_reduce(2, 2e-3)]
    found = scaling_of([renamed(r, name) for r in [*samples.kernels_of_steps(2), *reduced]])
    alone = scaling_of([renamed(r, name) for r in samples.kernels_of_steps(2)])

    assert found.steps[0].all_reduce.time.seconds == pytest.approx(2e-3, rel=0.03)
    assert "does not say how many gradients" in alone.steps[0].withheld
