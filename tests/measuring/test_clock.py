"""Warm-up, samples and the reasons to stop, on a clock that ticks by script."""

import dataclasses
import itertools
import os
import subprocess
import sys
import time

import pytest

from deepbench.measuring.clock import Evidence, Sample, SystemClock, measure_kernel, take_sample
from deepbench.plan.modes import QUICK, Rules
from deepbench.results import summary

pytestmark = pytest.mark.alone


class ScriptedClock:
    """Each call takes the next of `call_times` (the last one repeats); CPU time is wall time."""

    turn = 1

    def __init__(self, *call_times, switches_every=0):
        self.times = itertools.chain(call_times, itertools.repeat(call_times[-1]))
        self.elapsed = 0.0
        self.calls = 0
        self.switches = 0
        self.samples = 0
        self.switches_every = switches_every

    def run(self, calls):
        took = sum(next(self.times) for _ in range(calls))
        self.elapsed += took
        self.calls += calls
        self.samples += 1
        if self.switches_every and self.samples % self.switches_every == 0:
            self.switches += 1
        return round(took * 1e9)

    def evidence(self):
        return Evidence({0: round(self.elapsed * 1e9)}, self.switches, 0.0)

    def now(self):
        return self.elapsed


def run(clock, rules=None, is_typical=True):
    first = take_sample(clock, 1)
    return measure_kernel(clock, rules or Rules(), first, "native", is_typical)


def test_a_steady_kernel_is_sure_as_soon_as_the_rules_allow():
    found = run(ScriptedClock(100e-6))

    assert "sure" == found["stopped"]
    assert {100e-6} == set(found["samples_s"])
    assert Rules.least_samples <= len(found["samples_s"])
    assert Rules.least_s <= sum(found["samples_s"]) * found["calls_per_sample"] < 2 * Rules.least_s


def test_a_sample_lasts_about_one_and_a_half_milliseconds():
    assert 15 == run(ScriptedClock(100e-6))["calls_per_sample"]
    assert 1500 == run(ScriptedClock(1e-6))["calls_per_sample"]
    assert 1 == run(ScriptedClock(10e-3))["calls_per_sample"]


def test_a_long_kernel_is_sampled_once_and_warmed_by_its_first_call():
    clock = ScriptedClock(2.0)
    found = run(clock)

    assert ("time", 1, 0, 2) == (found["stopped"], len(found["samples_s"]), found["warm_up_calls"], clock.calls)


def test_the_first_call_is_kept_apart():
    found = run(ScriptedClock(50e-3, 1e-3))

    assert 50e-3 == found["first_call_s"]
    assert {1e-3} == set(found["samples_s"])


def test_warm_up_goes_on_until_flat():
    falling = [1e-3 * (1 + 0.5 * 0.8**i) for i in range(30)]
    found = run(ScriptedClock(*falling, 1e-3), Rules(warm_up_s=1.0))

    assert found["warm_up_calls"] >= 10
    assert max(found["samples_s"]) < 1.05e-3


def test_a_first_call_that_is_slow_because_the_library_loads_does_not_end_the_warm_up():
    found = run(ScriptedClock(70e-3, 0.4e-3))

    assert 4 == found["calls_per_sample"]
    assert found["warm_up_calls"] > 5


def test_a_thread_that_ends_takes_its_time_along_and_none_is_negative():
    class Ending(ScriptedClock):
        def evidence(self):
            spent = round(self.elapsed * 1e9)
            return Evidence({0: spent, 7: 10**12} if spent == 0 else {0: spent}, 0, 0.0)

    assert 1e-3 == take_sample(Ending(1e-3), 1).cpu_s


def test_warm_up_is_bounded():
    restless = [1e-3, 2e-3] * 5000
    found = run(ScriptedClock(*restless))

    assert found["warm_up_s"] < 2 * Rules.warm_up_s


def test_a_kernel_that_never_settles_is_unstable_or_out_of_time():
    import random

    generator = random.Random(1)
    times = [generator.choice((1e-3, 3e-3)) for _ in range(20000)]

    assert run(ScriptedClock(*times))["stopped"] == "time"
    assert run(ScriptedClock(*times), Rules(most_s=1e3))["stopped"] == "unstable"


def test_disturbed_samples_do_not_count_for_the_stop():
    found = run(ScriptedClock(2e-3, switches_every=2))

    assert "sure" == found["stopped"]
    assert 0 < sum(found["involuntary_switches"]) <= len(found["samples_s"])


def test_in_a_quick_run_a_long_first_call_is_the_only_sample():
    clock = ScriptedClock(3.0)
    found = run(clock, QUICK.rules)

    assert ("first_call", [3.0], 1) == (found["stopped"], found["samples_s"], clock.calls)
    assert [3.0] == found["cpu_s"]


class Busy(ScriptedClock):
    """Another program interrupts each of the first calls every five milliseconds; later it is quiet."""

    def __init__(self, *call_times, disturbed):
        super().__init__(*call_times)
        self.disturbed = disturbed

    def run(self, calls):
        before_s, began = self.elapsed, self.calls
        nanoseconds = super().run(calls)
        if began < self.disturbed:
            self.switches += round((self.elapsed - before_s) / 5e-3)
        return nanoseconds


def test_a_disturbed_first_call_does_not_count_and_a_second_one_decides():
    found = run(Busy(0.3, 0.9e-3, disturbed=1), QUICK.rules)

    assert "first_call" != found["stopped"]
    assert {0.9e-3} == set(found["samples_s"])
    assert 2 == found["calls_per_sample"]  # it was warmed up: samples are as long as usual
    long = run(Busy(0.3, 0.31, disturbed=1), QUICK.rules)
    assert ([0.31], 1) == (long["samples_s"], long["warm_up_calls"])


def test_a_first_call_that_loaded_a_library_does_not_count():
    found = run(ScriptedClock(0.3, 0.26), QUICK.rules, is_typical=False)

    assert ("time", [0.26]) == (found["stopped"], found["samples_s"])


@pytest.mark.parametrize("disturbed", [2, 3])
def test_a_disturbed_sample_is_not_the_only_one(disturbed):
    # As on a busy machine: 69.5 ms instead of 0.9 ms for the first calls.
    found = run(Busy(*[69.5e-3] * disturbed, 0.9e-3, disturbed=disturbed), QUICK.rules)

    assert 0.9e-3 == pytest.approx(summary.process_number(found).time_s)
    assert not summary.process_number(found).disturbed


def test_a_disturbed_kernel_is_repeated_for_a_bounded_time_and_then_marked():
    found = run(Busy(69.5e-3, disturbed=10**6), QUICK.rules)

    spent_s = sum(found["samples_s"])
    assert QUICK.rules.patience * QUICK.rules.most_s <= spent_s < 2 * QUICK.rules.patience * QUICK.rules.most_s
    assert summary.process_number({**found, "other_cpus": 0.9}).disturbed
    # Where no other program ran, the threads of the library yielded.
    assert not summary.process_number({**found, "other_cpus": 0.0}).disturbed


def test_a_single_sample_that_differs_from_the_first_call_is_repeated():
    rules = dataclasses.replace(QUICK.rules, most_s=0.1)

    assert [0.2, 0.1, 0.1] == run(ScriptedClock(0.1, 0.2, 0.1), rules)["samples_s"]
    assert [0.11] == run(ScriptedClock(0.1, 0.11, 0.1), rules)["samples_s"]


def test_of_a_library_that_loads_in_its_first_call_a_second_one_decides():
    rules = dataclasses.replace(QUICK.rules, first_call_counts_s=None)

    assert {2e-3} == set(run(ScriptedClock(2.0, 2e-3), rules)["samples_s"])
    assert [3.0] == run(ScriptedClock(4.0, 3.0), rules)["samples_s"]


def test_a_clock_that_does_not_advance_gives_no_endless_rate():
    class Frozen(ScriptedClock):
        def run(self, calls):
            super().run(calls)
            return 0

    assert Sample(1e-9, 1e-6, 0, 0.0) == take_sample(Frozen(1e-6), 1)


def test_calls_are_counted_where_buffers_take_turns():
    class Turning(ScriptedClock):
        turn = 5

        def run(self, turns):
            return super().run(5 * turns)

    found = run(Turning(20e-6))

    assert 75 == found["calls_per_sample"]
    assert {20e-6} == set(found["samples_s"])
    assert "sure" == found["stopped"]


def test_a_sleep_is_no_wait_for_a_cpu_and_a_busy_cpu_is():
    clock, sleep = SystemClock(lambda calls: time.sleep(0.1) or 100_000_000), [sys.executable, "-c", "while True: pass"]
    if clock.evidence().queued_ns is None:
        pytest.skip("this system does not tell how long threads wait for a CPU")
    slept = take_sample(clock, 1)

    assert slept.queued_s < 0.05
    (cpu, *_), allowed = os.sched_getaffinity(0), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        busy = subprocess.Popen(["taskset", "-c", str(cpu), *sleep])
        clock = SystemClock(lambda calls: spin(0.3))
        waited = take_sample(clock, 1)
    finally:
        os.sched_setaffinity(0, allowed)
        busy.kill()
        busy.wait()

    assert waited.queued_s > 0.03
    assert waited.queued_s + waited.cpu_s == pytest.approx(0.3, abs=0.1)


def spin(seconds):
    """Nanoseconds of using a CPU for so long."""
    begin = time.perf_counter_ns()
    while time.perf_counter_ns() < begin + seconds * 1e9:
        pass
    return time.perf_counter_ns() - begin


def test_the_real_clock_reads_evidence_that_grows():
    clock = SystemClock(lambda calls: 1)
    before = clock.evidence()
    sum(range(100_000))
    after = clock.evidence()

    assert sum(after[0].values()) > sum(before[0].values())
    assert after[1] >= before[1]
