"""The progress bar: it draws on a terminal, prints lines elsewhere, and only when it is called."""

import io
import re
from dataclasses import dataclass

import pytest
from rich.console import Console

from deepbench.reporting import progress


@dataclass
class Step:
    text: str
    done: int = 0
    total: int | None = None
    left_s: float | None = None
    notice: str | None = None


@pytest.fixture
def clock(monkeypatch):
    """The time that the bar sees."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_elsewhere_it_prints_the_estimate_once_and_a_line_every_30_seconds(clock):
    text = io.StringIO()
    with progress.Bar(Console(file=text, width=100)) as bar:
        for second in range(0, 70, 10):
            clock[0] = second
            bar(Step("a case", second // 10, 10, 100.0 - second))

    assert ["estimated  1 min 40 s", "4 of 10 done, 1 min 00 s left: a case"] == text.getvalue().splitlines()


def test_without_an_estimate_the_time_left_follows_from_the_steps_so_far(clock):
    text = io.StringIO()
    with progress.Bar(Console(file=text, width=100)) as bar:
        bar(Step("probe"))
        clock[0] = 40.0
        bar(Step("a case", 4, 8))

        clock[0] = 80.0
        bar(Step("another case", 6, 8))

    assert ["4 of 8 done, measuring: a case", "6 of 8 done, 40 s left: another case"] == text.getvalue().splitlines()


def test_steps_of_another_kind_have_a_time_of_their_own(clock):
    text = io.StringIO()
    with progress.Bar(Console(file=text, width=100)) as bar:
        bar(Step("a case", 0, 8, 1000.0))
        clock[0] = 1000.0
        bar(Step("a question", 0, 100))
        clock[0] = 1040.0
        bar(Step("a question", 20, 100))

    assert "20 of 100 done, 2 min 40 s left: a question" == text.getvalue().splitlines()[-1]


def test_equally_many_steps_that_begin_again_have_a_time_of_their_own(clock):
    text = io.StringIO()
    with progress.Bar(Console(file=text, width=100)) as bar:
        bar(Step("old with old", 0, 8))
        clock[0] = 1000.0
        bar(Step("old with old", 7, 8))
        bar(Step("old with new", 0, 8))
        clock[0] = 1040.0
        bar(Step("old with new", 2, 8))

    assert "2 of 8 done, 2 min 00 s left: old with new" == text.getvalue().splitlines()[-1]


def test_on_a_terminal_it_shows_the_step_and_the_total_may_change():
    text = io.StringIO()
    with progress.Bar(Console(file=text, width=100, force_terminal=True)) as bar:
        bar(Step("probe"))
        bar(Step("gemm [red]m=1", 1, 4))
        bar(Step("gemm m=2", 2, 6))

    assert "gemm [red]m=1" in text.getvalue()
    assert "1/4" in text.getvalue()
    assert "2/6" in text.getvalue()


def test_a_long_case_fits_on_one_line_of_80_columns():
    text = io.StringIO()
    with progress.Bar(Console(file=text, width=80, force_terminal=True, color_system=None)) as bar:
        bar(Step("conv n=16 c=512 h=14 w=14 k=512 r=3 s=3 pad_h=1 pad_w=1 backward_weights f32 onednn", 12, 345, 200.0))
    frames = re.split(r"[\r\n]", re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", text.getvalue()))
    shown = next(frame for frame in frames if "12/345" in frame)

    assert max(map(len, frames)) <= 80
    assert "3 min 20 s left" in shown
    assert "conv n=16" in shown
