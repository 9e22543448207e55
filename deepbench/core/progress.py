"""What takes long tells an observer what it does next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Activity:
    """What is measured next, and how much of the work is done."""

    text: str
    done: int = 0
    total: int | None = None
    """None: not known yet."""
    left_s: float | None = None
    notice: str | None = None
    """A sentence that people should read now, once."""


Progress = Callable[[Activity], None]


def no_progress(activity: Activity) -> None:
    """Ignore the progress."""
