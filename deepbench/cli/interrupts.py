"""Ctrl-C and SIGTERM: the first one ends the command in order, and those that follow do not disturb that."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as in shells

# Ending in order takes less than this. A command that takes longer ends at once when it is interrupted again.
PATIENCE_S = 5.0

# After so long an interrupt is raised again that Python lost.
AGAIN_S = 0.01

_first_s: list[float] = []
"""When the first interrupt came (monotonic clock); empty before."""


def stop(*_: object) -> None:
    """Handle a signal that interrupts the command."""
    now = time.monotonic()
    if not _first_s:
        _first_s.append(now)
        raise KeyboardInterrupt
    if now - _first_s[0] > PATIENCE_S:
        os._exit(EXIT_INTERRUPTED)  # what was measured is in the file, and workers end with this process


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def handled() -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM until the process ends. For the command only: it restores nothing.

    What the command has begun is removed, such as the draft of an output. A shell makes background processes ignore
    Ctrl-C, and so they do here.
    """
    ignored = {number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN}
    sys.unraisablehook = _raise_again
    for number in SIGNALS:
        if number not in ignored:
            signal.signal(number, stop)
    try:
        yield
    finally:  # while Python ends, no handler of Python may run
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        sys.unraisablehook = lambda _: None
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN if number in ignored or _first_s else signal.SIG_DFL)


def _raise_again(ignored: UnraisableHookArgs) -> None:
    """Python drops what is raised while it destroys an object, and prints it. An interrupt must not get lost.

    Anything else, such as a file on a full disk that cannot be closed, would only add a traceback to the sentence that
    says what happened.
    """
    if isinstance(ignored.exc_value, KeyboardInterrupt):
        _first_s.clear()
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
