"""The door of the applications: train them, let their models answer, find their data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.api.measuring import shown, temporary_path
from deepbench.applications.results import TrainingResults
from deepbench.machine import describe

if TYPE_CHECKING:
    from deepbench.applications.training.application import Framework
    from deepbench.applications.training.session import TrainingSession
    from deepbench.measuring.session import Progress


def train(
    applications: str | Iterable[str],
    *,
    rung: str = "mini",
    seeds: int = 5,
    framework: Framework = "torch",
    device: str = "cpu",
    precision: str = "f32",
    ranks: int = 1,
    threads: int | None = None,
    batch: int | None = None,
    output: str | Path | None = None,
    progress: bool | Progress = False,
) -> TrainingResults:
    """Train applications with several seeds each, every run in a process of its own, and keep all events in a file.

    Args:
        applications: one name, or several, such as `image`; `docs/applications.md` lists them.
        rung: the size, such as `mini` or `small`.
        seeds: how many runs of each.
        framework: `torch` or `jax`.
        device: `cpu` or `cuda`.
        precision: `f32` or `bf16`.
        ranks: processes that share each batch.
        threads: of each rank; by default all cores, shared by the ranks.
        batch: samples of a step, in place of those of the rung.
        output: the result file, which must not exist; by default a file in the folder for temporary files.
        progress: True shows a progress bar; a function is called with a `Step` several times per second.

    Raises `BadInput` for words that cannot be used. Missing data, a crash or a loss that diverges raise nothing: the
    run says so. `Results.trained` has the runs, `Results.table()` what they say together.
    """
    from deepbench.applications.training.application import Setup
    from deepbench.applications.training.session import TrainingSession, resolved

    count = threads or max(1, describe.default_threads() // ranks)
    names = [applications] if isinstance(applications, str) else list(dict.fromkeys(applications))
    setups = [
        resolved(Setup(name, rung, framework, device, precision, ranks, count, seed, batch))
        for seed in range(seeds)
        for name in names
    ]
    path = Path(output) if output is not None else temporary_path()
    with TrainingSession.create(path, setups) as session:
        return run_training(session, progress)


def run_training(session: TrainingSession, progress: bool | Progress) -> TrainingResults:
    """Train everything a session plans."""
    from deepbench.applications.reporting.training import quality_text
    from deepbench.core import units
    from deepbench.measuring.session import Step

    with shown(progress) as show:

        def tell(at: Any) -> None:
            share = units.percent(at.samples / at.setup["samples"])
            words = [f"{at.setup['application']}, seed {at.setup['seed']}", share]
            if at.quality is not None:  # the value first: 80 columns cut off the name of the metric
                words.append(f"{quality_text(at.setup, at.quality)} {at.setup['metric']}")
            show(Step(", ".join(words), at.run, at.runs, at.left_s))

        session.run(tell)
    return TrainingResults(session.file)
