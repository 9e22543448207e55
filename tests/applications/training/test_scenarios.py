"""Scenarios with a model whose time is known, on a clock that only it moves."""

import statistics

import pytest

from deepbench.applications.judge.serving import lowest_rate, percentile_bound, poisson_arrivals
from deepbench.applications.training import scenarios
from deepbench.applications.training.scenarios import AnsweringModel


class Moved:
    """A clock that stands still while nothing happens."""

    def __init__(self):
        self.at = 0.0

    def now(self):
        return self.at

    def wait_until(self, at):
        self.at = max(self.at, at)


def model_of(seconds, tests=100):
    """A model that takes `seconds(batch)` and answers with the numbers of the examples."""
    clock = Moved()

    def answer(tests):
        clock.at += seconds(len(tests))
        return list(tests)

    return AnsweringModel(answer, tests, clock=clock)


def test_a_query_waits_from_its_own_arrival_on():
    """The model stops for a second once: a hundred queries arrive meanwhile, and all of them are late."""
    calls = [0]

    def seconds(_):
        calls[0] += 1
        return 1.0 if calls[0] == 200 else 1e-3

    arrivals = [i / 100 for i in range(500)]
    found, late = scenarios.on_schedule(model_of(seconds), arrivals, [0] * 500, 1, 0.1, 500)

    assert abs(late - 100) <= 15
    assert 1.0 == pytest.approx(max(found["latency_s"]), abs=0.01)
    assert 0.5 == pytest.approx(statistics.median(x for x in found["latency_s"] if x > 0.01), abs=0.1)


def test_queries_that_wait_are_answered_together():
    model = model_of(lambda batch: 0.010)
    found, late = scenarios.on_schedule(model, [0.0, 0.001, 0.002, 0.003, 0.5], [1, 2, 3, 4, 5], 3, 1.0, 5)

    assert [0.010, 0.019, 0.018, 0.017, 0.010] == pytest.approx(found["latency_s"])
    assert 0 == late
    assert [1, 2, 3, 4, 5] == model.asked == model.answers


def test_a_probe_ends_when_it_is_lost():
    found, late = scenarios.on_schedule(model_of(lambda _: 1.0), [0.0] * 1000, [0] * 1000, 1, 0.5, 3)

    assert 4 == late == len(found["latency_s"])


@pytest.mark.parametrize("batch", [1, 16])
def test_the_highest_rate_is_that_of_the_queue(batch):
    """Against Lindley's recursion (1952) where there are no batches, and against the capacity where there are."""
    service = 0.002
    model = model_of(lambda count: service if batch > 1 else service * count)
    capacity = batch / service
    probes, best = scenarios.highest_rate(model, batch, capacity, 0.02, 60.0)
    kept = max(p["rate"] for p in probes if p["is_kept"])
    missed = min(p["rate"] for p in probes if not p["is_kept"])

    assert best is not None
    assert percentile_bound(best["latency_s"], 0.99, best.get("faster", 0)) <= 0.02
    assert kept < missed < 1.06 * kept
    if batch == 1:
        assert waits(0.9 * kept, service) < 0.02 < waits(1.15 * missed, service)
    else:
        assert 0.7 * capacity < kept < capacity


def waits(rate, service):
    """The 99th percentile of waiting and service in a long queue with equal services."""
    arrivals, free, latencies = poisson_arrivals(rate, 200_000, 99), 0.0, []
    for at in arrivals:
        free = max(free, at) + service
        latencies.append(free - at)
    return sorted(latencies)[198_000]


@pytest.mark.parametrize("seconds", [0.7, 1.1, 3.3, 9.9, 10.0])
def test_a_slow_model_is_tried_at_the_lowest_rate_that_can_be_judged(seconds):
    """It serves that rate, and not the one where the search begins."""
    rate = lowest_rate(seconds / 2)
    probes, best = scenarios.highest_rate(model_of(lambda count: count / rate / 4), 1, 4 * rate, 6 / rate, seconds)

    assert best is not None
    assert probes[0]["rate"] > rate


def test_a_probe_of_a_fast_model_has_not_more_queries_than_fit():
    probes, _ = scenarios.highest_rate(model_of(lambda count: 1e-8 * count), 128, 1e8, 1e-3, 10.0)

    assert probes
    assert max(probe["queries"] for probe in probes) <= scenarios.MOST_ARRIVALS


def test_no_rate_keeps_a_bound_below_the_latency():
    probes, best = scenarios.highest_rate(model_of(lambda _: 0.02), 4, 200.0, 0.01, 60.0)

    assert best is None
    assert probes
    assert not any(p["is_kept"] for p in probes)


def test_a_rate_is_not_judged_by_a_run_that_is_too_short():
    assert ([], None) == scenarios.highest_rate(model_of(lambda _: 1.0), 1, 1.0, 10.0, 60.0)


def test_queries_one_after_another_take_their_time_and_are_kept():
    model = model_of(lambda count: 0.01 * count, tests=7)
    found = scenarios.one_after_another(model, 8, 4.0)

    assert [0.08] * 50 == pytest.approx(found["latency_s"])
    assert 4.0 == pytest.approx(found["seconds"])
    assert 400 == len(model.asked)
    assert set(range(7)) == set(model.asked)
    assert model.asked == model.answers


def test_batches_end_where_they_take_too_long():
    fast = scenarios.by_batch(model_of(lambda count: 1e-3), 12, 6.0)
    slow = scenarios.by_batch(model_of(lambda count: count**2 * 0.1), 64, 6.0)

    assert [1, 2, 4, 8, 12] == [found["batch"] for found in fast]
    assert [1, 2] == [found["batch"] for found in slow][:2]
    assert slow[-1]["batch"] < 64
    assert all(len(found["latency_s"]) >= 2 for found in slow)


def test_offline_answers_every_example_once_in_a_pass():
    model = model_of(lambda count: 0.1, tests=10)
    passes = scenarios.offline(model, 4, 0.5)

    assert [0.3, 0.3] == pytest.approx(passes)
    assert list(range(10)) == sorted(model.asked[:10]) == sorted(model.asked[10:])
    assert model.asked[:10] != model.asked[10:]


def test_a_sample_that_repeats_is_compared_with_new_ones():
    clock, seen = Moved(), set()

    def answer(tests):
        clock.at += 0.001 if seen.issuperset(tests) else 0.01
        seen.update(tests)
        return list(tests)

    found = scenarios.repeats(AnsweringModel(answer, 50, clock=clock), 9.0)

    assert [0.01] * 49 == pytest.approx(found["different_s"])
    assert [0.001] * 49 == pytest.approx(found["repeated_s"])
