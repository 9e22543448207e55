"""Two files with trained applications: which is faster, and what a gate says."""

import math

import pytest

from deepbench.applications.judge.trained import runs_of, trained
from deepbench.applications.judge.training_pairs import differences, gate, pairs
from deepbench.judge import gate as gates
from tests.help.trained import seeds, write


@pytest.fixture
def sides(tmp_path):
    def make(first, second):
        files = [write(tmp_path / f"{name}.jsonl", runs) for name, runs in (("a", first), ("b", second))]
        return [trained(runs_of(file)) for file in files]

    return make


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        (seeds(5, chunk_s=10.0), "same"),
        (seeds(5, chunk_s=12.0), "slower"),
        (seeds(5, chunk_s=8.0), "faster"),
        (seeds(5, shift=-0.1), "failed"),
        (seeds(1, chunk_s=12.0), "undecided"),
    ],
)
def test_the_verdict_follows_the_time_to_the_target(sides, second, verdict):
    (pair,), left = pairs(*sides(seeds(5), second), margin=0.02)

    assert (verdict, []) == (pair.verdict, left)


def test_samples_of_the_same_seeds_are_compared_seed_by_seed(sides):
    """Seeds differ by some percent here, the two sides by none: the paired interval has no width."""
    (pair,), _ = pairs(*sides(seeds(5), seeds(5, chunk_s=12.0)), margin=0.02)

    assert (1.0, 1.0, 1.0) == (pair.samples.value, pair.samples.low, pair.samples.high)
    assert pair.time.value == pytest.approx(1.2, rel=0.01)
    (unpaired,), _ = pairs(*sides(seeds(5), seeds(6)), margin=0.02)
    assert unpaired.samples.low < 1 < unpaired.samples.high


def test_a_difference_of_quality_is_found(sides):
    (worse,), _ = pairs(*sides(seeds(5), seeds(5, shift=-0.015)), margin=0.02)
    (same,), _ = pairs(*sides(seeds(5), seeds(5)), margin=0.02)
    (alone,), _ = pairs(*sides(seeds(1), seeds(1)), margin=0.02)

    assert (True, False, None) == (worse.quality_differs, same.quality_differs, alone.quality_differs)


def test_setups_meet_the_one_most_like_them(sides):
    first = seeds(2, precision="f32") + seeds(2, precision="bf16")
    second = seeds(2, precision="bf16", framework="jax") + seeds(2, precision="f32", framework="jax")
    found, left = pairs(*sides(first, second + seeds(2, application="speech")), margin=0.02)

    assert [("f32", "f32"), ("bf16", "bf16")] == [
        (p.first.setup["precision"], p.second.setup["precision"]) for p in found
    ]
    assert ["speech, rung mini: only in the second file"] == left


def test_other_targets_are_no_pair(sides):
    found, left = pairs(*sides(seeds(2), seeds(2, target=0.8)), margin=0.02)

    assert [] == found
    assert [
        "image, rung mini, target 0.9: only in the first file",
        "image, rung mini, target 0.8: only in the second file",
    ] == left


def test_what_else_differs_is_named(tmp_path):
    first = write(tmp_path / "a.jsonl", seeds(1))
    second = write(tmp_path / "b.jsonl", seeds(1), machine={"host": "there", "cpu": "Other CPU"})
    for event in second.training:
        if "start" in event:
            event["start"] = {**event["start"], "device": "A GPU", "versions": {"torch": "2.14.1"}, "environment": {}}

    assert [
        "processor: Test CPU → Other CPU",
        "torch: 2.13.0 → 2.14.1",
        "OMP_WAIT_POLICY: passive → not set",
        "GPU: not set → A GPU",
    ] == differences(first, second)
    assert [] == differences(first, first)


def test_a_change_of_the_machine_from_session_to_session_is_part_of_the_interval(sides):
    both = sides(seeds(5), seeds(5, chunk_s=10.7))
    (alone,), _ = pairs(*both, margin=0.02)
    (drifting,), _ = pairs(*both, margin=0.02, drift=0.055)

    assert ("slower", "undecided") == (alone.verdict, drifting.verdict)
    assert drifting.time.high / drifting.time.value == pytest.approx(math.exp(1.96 * math.sqrt(2) * 0.055), rel=0.01)
    assert gates.CANNOT_TELL == gate(*both, margin=0.02, drift=0.055).verdict


def test_load_of_other_programs_excuses_one_side(sides):
    def busy(trained_sides, number):
        for run in trained_sides[number][0].runs:
            for one in run.evaluations:
                one.event["other_cpus"] = 1.0
        for run in trained_sides[1 - number][0].runs:
            for one in run.evaluations:
                one.event["other_cpus"] = 0.0
        return trained_sides

    slower = seeds(5), seeds(5, chunk_s=12.0)
    assert ["slower", "undecided"] == [pairs(*busy(sides(*slower), n), 0.02)[0][0].verdict for n in (0, 1)]
    assert [gates.REGRESSION, gates.CANNOT_TELL] == [gate(*busy(sides(*slower), n), 0.02).verdict for n in (0, 1)]
    faster = seeds(5), seeds(5, chunk_s=8.0)
    assert ["undecided", "faster"] == [pairs(*busy(sides(*faster), n), 0.02)[0][0].verdict for n in (0, 1)]
    assert [gates.CANNOT_TELL, gates.PASSED] == [gate(*busy(sides(*faster), n), 0.02).verdict for n in (0, 1)]


@pytest.mark.parametrize(
    "last",
    [
        {"qualities": (0.1, 0.2, 0.3, 0.4)},
        {"qualities": (), "end": "crashed", "reason": "killed"},
        {"qualities": (0.1,), "end": "diverged", "reason": "nan"},
    ],
)
def test_an_application_that_no_seed_trains_any_more_is_a_regression(sides, last):
    """Also among seven, where three seeds that miss the target could be chance."""
    names = [f"app{n}" for n in range(7)]
    first = [run for name in names for run in seeds(3, application=name)]
    second = [*first[:-3], *(({"seed": s, "application": names[-1]}, last) for s in range(3))]
    outcome = gate(*sides(first, second), margin=0.05)

    assert gates.REGRESSION == outcome.verdict
    assert "reached its target in 0 of 3 runs" in outcome.of(gates.REGRESSION)[0].reason


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        (seeds(5, chunk_s=10.0), gates.PASSED),
        (seeds(5, chunk_s=8.0), gates.PASSED),
        (seeds(5, chunk_s=12.0), gates.REGRESSION),
        (seeds(5, shift=-0.1), gates.REGRESSION),
        (seeds(1), gates.CANNOT_TELL),
        (seeds(5, application="speech"), gates.CANNOT_TELL),
    ],
)
def test_the_gate_fails_on_longer_times_and_missed_targets(sides, second, verdict):
    assert verdict == gate(*sides(seeds(5), second), margin=0.05).verdict


def test_settings_that_are_equal_meet_first(sides):
    found, left = pairs(
        *sides(seeds(2, batch=128) + seeds(2, batch=256), seeds(2, batch=256) + seeds(2, batch=512)), margin=0.02
    )

    assert [(128, 512), (256, 256)] == [(p.first.setup["batch"], p.second.setup["batch"]) for p in found]
    assert [] == left


def test_a_gate_compares_equal_settings_only(sides):
    outcome = gate(*sides(seeds(5, batch=128), seeds(5, batch=256, chunk_s=20.0)), margin=0.05)

    assert gates.CANNOT_TELL == outcome.verdict


def test_other_settings_of_the_rung_are_another_task(sides):
    found, left = pairs(*sides(seeds(2), seeds(2, settings={"rate": 0.2})), margin=0.02)

    assert [] == found
    assert "image, rung mini, other settings: only in the first file" == left[0]


@pytest.mark.parametrize(
    "last", [{"qualities": (0.1,), "end": None}, {"qualities": (), "end": "unavailable", "reason": "no data"}]
)
def test_a_run_that_did_not_train_is_no_regression(sides, last):
    outcome = gate(*sides(seeds(3), [*seeds(2), ({"seed": 2}, last)]), margin=0.05)

    assert gates.CANNOT_TELL == outcome.verdict


def test_one_seed_that_misses_the_target_may_be_chance(sides):
    (pair,), _ = pairs(*sides(seeds(5), [*seeds(4), ({"seed": 4}, {"qualities": (0.1, 0.2, 0.3, 0.4)})]), margin=0.02)

    assert "undecided" == pair.verdict
