"""Go: a network learns by playing against itself, with the search of Gumbel AlphaZero (Danihelka and others, 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepbench.applications.training.application import Application, Metric, Rung, Setup

if TYPE_CHECKING:
    from deepbench.applications.tasks.go.task import GoTask


# A round is so many games and training steps; training uses the positions of the last rounds. `considered` and
# `sharpness` belong to the search.
SETTINGS = {"games": 128, "steps": 24, "rounds": 6, "considered": 8, "sharpness": 4.0, "rate": 3e-3}


class Go(Application):
    """The share of games that it wins against GNU Go, from fixed openings and with both colours."""

    name = "go"
    title = "Go"
    metric = Metric("games won against GNU Go")
    answer_metric = Metric("moves as GNU Go")
    outside_steps = "the games of self-play"
    datasets = ("gnugo",)
    rungs = {  # noqa: RUF012  (ClassVar in Application)
        "mini": Rung(
            "5 × 5 points; a residual network of 5 convolutions with 32 filters",
            batch=512,
            samples=512 * 24 * 64,
            every=512 * 24 * 8,
            target=0.30,
            settings={**SETTINGS, "edge": 5, "positions": 2, "filters": 32, "blocks": 2, "komi": 0.5},
        ),
        "small": Rung(
            "6 × 6 points; a residual network of 7 convolutions with 48 filters",
            batch=512,
            samples=512 * 32 * 64,
            every=512 * 32 * 8,
            target=0.15,
            settings={
                **SETTINGS, "edge": 6, "positions": 4, "filters": 48, "blocks": 3, "komi": 4.5, "games": 256,
                "steps": 32,
            },
        ),
        "full": Rung(
            "9 × 9 points; 17 planes, and a residual network of 19 convolutions with 32 filters, as in 2018",
            batch=512,
            samples=512 * 32 * 2000,
            every=512 * 32 * 100,
            target=0.5,
            settings={
                **SETTINGS, "edge": 9, "positions": 8, "filters": 32, "blocks": 9, "komi": 6.5, "games": 64,
                "steps": 32, "rounds": 16,
            },
        ),
    }  # fmt: skip

    def torch_task(self, setup: Setup, rung: Rung, data: list[Any]) -> GoTask:
        from deepbench.applications.tasks.go.task import GoTask

        return GoTask(setup, rung, data[0])


APPLICATION = Go()
