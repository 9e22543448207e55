"""Time limits leave out the time in which this process did not run."""

import selectors
import socket
import time
from types import SimpleNamespace

import pytest

from deepbench.measuring import awake, parent, wire


class Clock:
    """Advances by what is waited for, and once by a gap."""

    def __init__(self, gap_s, at):
        self.now_s, self.waits, self._gap_s, self._at = 1000.0, [], gap_s, at

    def monotonic(self):
        return self.now_s

    def wait(self, seconds):
        self.waits.append(seconds)
        self.now_s += seconds + (self._gap_s if len(self.waits) == self._at else 0.0)


@pytest.fixture
def waits(monkeypatch):
    """A connection without messages, on a scripted clock: how long was waited, step by step."""

    def run(timeout_s, gap_s=0.0, at=2):
        clock = Clock(gap_s, at)
        monkeypatch.setattr(awake, "time", clock)
        here, there = socket.socketpair()
        with here, there:
            connection = wire.Connection(SimpleNamespace(settimeout=lambda s: steps.append(s)))

            def read():
                clock.wait(steps[-1])
                raise TimeoutError

            steps = []
            monkeypatch.setattr(connection, "_read", read)
            with pytest.raises(TimeoutError):
                connection.receive(timeout_s)
        return clock.waits

    return run


@pytest.mark.parametrize("timeout_s", [2.0, 20.0, 600.0])
def test_a_gap_takes_a_step_and_no_more_off_a_limit(waits, timeout_s):
    assert timeout_s == pytest.approx(sum(waits(timeout_s)))
    assert timeout_s == pytest.approx(sum(waits(timeout_s, gap_s=30.0)))
    assert max(waits(timeout_s)) <= timeout_s / 4


def test_a_process_that_is_a_little_late_gets_no_more_time(waits):
    assert sum(waits(2.0, gap_s=0.9)) < 2.0


def test_a_library_that_opens_slowly_is_not_blamed_for_a_gap(monkeypatch):
    """All processes stood still for an hour while a library was loaded."""
    clock, real = Clock(3600.0, 1), selectors.DefaultSelector.select
    monkeypatch.setattr(awake, "time", clock)

    def select(self, timeout=None):
        clock.wait(timeout)
        return real(self, 10.0)

    monkeypatch.setattr(selectors.DefaultSelector, "select", select)
    answer = parent.open_backend("null", 20.0)

    assert "library" in answer, answer
    assert clock.monotonic() > 3600.0


def test_the_clock_runs_like_any_other_while_this_process_does():
    begin, own = time.monotonic(), awake.now()
    with awake.waiting(0.05):
        time.sleep(0.05)

    assert awake.now() - own == pytest.approx(time.monotonic() - begin, abs=0.02)
