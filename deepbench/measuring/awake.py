"""A clock for time limits that leaves out the time in which this process did not run.

A process may be stopped (SIGSTOP, a frozen container) or its machine suspended. Libraries did not run then either, so
no limit may blame them. Whoever waits under a limit waits in short steps: a step that ends much later than it should
shows such a gap.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

# The longest step. It is as long as possible, because a kernel may be timed meanwhile.
STEP_S = 5.0

# A step is at most this share of the limit, and a gap takes one step off it.
MOST_OF_LIMIT = 0.25

# On a busy machine a process may run so much later than it wanted to.
LATE_S = 1.0

_gaps_s = 0.0


def now() -> float:
    """Seconds of a clock that stands still in such gaps."""
    return time.monotonic() - _gaps_s


def step(left_s: float, limit_s: float) -> float:
    """How long to wait at once where so much of a limit is left; not negative."""
    return max(0.0, min(left_s, STEP_S, MOST_OF_LIMIT * limit_s))


@contextmanager
def waiting(most_s: float) -> Iterator[None]:
    """Around a wait of at most so many seconds: what it takes longer does not count."""
    global _gaps_s
    begin = time.monotonic()
    try:
        yield
    finally:
        late_s = time.monotonic() - begin - most_s
        if late_s > LATE_S:
            _gaps_s += late_s
