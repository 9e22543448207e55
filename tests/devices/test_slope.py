"""The clock for devices without events finds the time of a call, and every fault of a device that would falsify it."""

import re
from statistics import median

import pytest

from deepbench.core.errors import ClockFault
from deepbench.native.slope import READINGS, QueueDevice, SlopeTimer
from tests.devices.fake import FAULTS, FakeQueue, compiled

SIZES_NS = (2_000, 5_000, 20_000, 100_000, 500_000, 2_000_000, 20_000_000)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("device"))


def measured(queue, sets=1):
    """Seconds per call, the timer, and its facts; or the fault that it found."""
    timer = SlopeTimer(queue)
    timer.once()
    call_ns = queue.library_call_ns if hasattr(queue, "library_call_ns") else 20_000
    repeats = max(1, round(1.5e6 / call_ns))
    for _ in range(2):
        timer(repeats)
    samples = [timer(repeats) / repeats for _ in range(15)]
    try:
        return median(samples), timer, timer.facts(sets)
    except ClockFault as fault:
        return None, timer, str(fault)
    finally:
        queue.close()


def fake(library, call_ns, fault=None, **options):
    queue = FakeQueue(library, call_ns, fault, **options)
    queue.library_call_ns = call_ns
    return queue


@pytest.mark.parametrize("noise", [0, 2_000], ids=["quiet", "noisy"])
@pytest.mark.parametrize("call_ns", SIZES_NS)
def test_the_time_of_a_call_is_found_within_a_percent(library, call_ns, noise):
    time_ns, timer, facts = measured(fake(library, call_ns, noise=noise))
    assert abs(time_ns / call_ns - 1) < 0.01
    assert ("awaited" if call_ns >= 20_000_000 else "slope") == timer.clock == facts["clock"]
    assert facts["queue"]["enqueue_s"] == pytest.approx(150e-9)  # what `fake.c` says
    assert abs(facts["queue"]["fetch_growth"]) < 0.001


@pytest.mark.parametrize("call_ns", SIZES_NS)
@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("waits not", "the wait returns before the calls are done"),
        ("waits early", "the wait returns before the calls are done|does not grow evenly"),
        ("merges pairs", "of 50 calls that add 1, it made 25"),
        ("merges all", "the device does not make every call"),
    ],
)
def test_no_fault_of_the_device_gives_a_number(library, call_ns, fault, found):
    time_ns, _, text = measured(fake(library, call_ns, fault))
    assert time_ns is None, f"{fault} gave {time_ns} ns"
    assert re.search(found, text)


@pytest.mark.parametrize("call_ns", [500_000, 2_000_000, 10_000_000])
def test_calls_that_overlap_are_found(library, call_ns):
    time_ns, _, text = measured(fake(library, call_ns, "overlaps"))
    assert time_ns is None
    assert "overlap" in text or "does not grow evenly" in text


class Disturbed(FakeQueue):
    """Another program runs while so many calls alone are timed, and at no other time."""

    left, calls = 0, 0

    def enqueue(self, calls):
        self.calls = calls
        super().enqueue(calls)

    def elapsed(self, program):
        elapsed = super().elapsed(program)
        if self.calls != 1 or not self.left:
            return elapsed
        self.left -= 1
        return 3 * elapsed


@pytest.mark.parametrize(("disturbed", "accused"), [(READINGS, False), (3 * READINGS, False), (10**6, True)])
def test_a_device_is_doubted_only_if_every_look_says_so(library, disturbed, accused):
    queue = Disturbed(library, 500_000)
    timer = SlopeTimer(queue)
    timer.once()
    timer(3)
    queue.left = disturbed
    try:
        timer.facts(1)
    except ClockFault as fault:
        assert accused, fault
        assert "calls overlap" in str(fault)
    else:
        assert not accused
    finally:
        queue.close()


@pytest.mark.parametrize("call_ns", SIZES_NS)
def test_an_order_that_blocks_while_many_are_under_way_changes_neither_number(library, call_ns):
    time_ns, _, facts = measured(fake(library, call_ns, "blocks"))
    assert abs(time_ns / call_ns - 1) < 0.01
    assert facts["queue"]["enqueue_s"] == pytest.approx(150e-9)


def test_a_loop_that_takes_less_counts_and_both_are_recorded(library):
    time_ns, timer, facts = measured(fake(library, 20_000, gap=8_000, loop=True))
    assert "loop" == timer.clock == facts["clock"]
    assert abs(time_ns / 20_000 - 1) < 0.01
    assert facts["queue"]["loop_s"] == pytest.approx(20e-6, rel=0.01)
    assert facts["queue"]["slope_s"] == pytest.approx(28e-6, rel=0.01)
    assert facts["queue"]["refused"] is None


@pytest.mark.parametrize("kept", [None, True])
@pytest.mark.parametrize("call_ns", [2_000, 5_000, 20_000, 100_000, 400_000])
def test_a_loop_whose_work_was_moved_out_is_refused(library, call_ns, kept):
    time_ns, timer, facts = measured(fake(library, call_ns, "hoists", loop=True, kept=kept))
    assert "slope" == timer.clock
    assert abs(time_ns / call_ns - 1) < 0.01
    assert "does not compute in every turn" in facts["queue"]["refused"]
    assert facts["queue"]["loop_s"] is None
    (warning,) = QueueDevice(FakeQueue(library, 1)).warnings(facts)
    assert "loop_refused" == warning[0]


def test_a_loop_that_the_compiler_says_it_moved_is_refused(library):
    _, timer, facts = measured(fake(library, 20_000, empty_ns=8_000, loop=True, kept=False))
    assert "slope" == timer.clock
    assert "moved" in facts["queue"]["refused"]


def test_a_loop_of_calls_too_short_to_judge_needs_the_program_as_evidence(library):
    """An empty call takes nearly as long, so the times alone cannot show that the loop computes."""
    for kept, clock in ((None, "slope"), (True, "loop")):
        _, timer, facts = measured(fake(library, 2_000, gap=8_000, loop=True, kept=kept))
        assert clock == timer.clock
        assert (facts["queue"]["refused"] is None) == bool(kept)


def test_one_call_is_made_where_one_is_asked_for(library):
    queue = fake(library, 5_000)
    timer = SlopeTimer(queue)
    made = []
    queue.enqueue = lambda calls: made.append(calls)
    timer.once()
    assert [1] == made


def test_kernels_take_turns(library):
    """With cold caches: a turn is a call on each set of buffers."""
    first, second = FakeQueue(library, 20_000), FakeQueue(library, 60_000)
    second.device = first.device
    timer = QueueDevice(first).in_turn([QueueDevice(second)]).timer(lambda repeats: 0, 2)
    timer.once()
    for _ in range(9):
        elapsed = timer(40)
    facts = timer.facts(2)
    assert elapsed / 80 == pytest.approx(20_000, rel=0.01)  # of both, and the device is the same
    assert facts["queue"]["slope_s"] == pytest.approx(20e-6, rel=0.01)


def test_every_fault_of_the_fake_is_tried():
    assert {"waits early", "waits not", "merges pairs", "merges all", "blocks", "hoists", "overlaps"} == {*FAULTS}
