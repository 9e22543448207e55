"""One training step of an application in PyTorch, as a program that can be traced, predicted and measured.

    deepbench trace deepbench/applications/training/step.py:build --train --set application=image

Every step trains on the same batch, so that its kernels are those of the trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TracedStep:
    """Calling it trains on the first batch."""

    task: Any

    @property
    def networks(self) -> tuple[Any, ...]:
        """The modules whose parts the trace names."""
        return (self.task.model,)

    def __call__(self) -> None:
        self.task.rewind()
        self.task.step()
        self.task.loss()


def build(application: str, rung: str = "mini", batch: int | None = None, precision: str = "f32") -> TracedStep:
    """The step of a rung; `batch` in place of that of the rung."""
    from deepbench.applications.training.application import Setup, find_application
    from deepbench.applications.training.torch_task import TorchTask
    from deepbench.applications.training.worker import load_data
    from deepbench.core.errors import Unsupported

    found = find_application(application)
    chosen = found.rungs[rung]
    setup = Setup(application, rung, precision=precision, batch=batch)
    task = found.torch_task(setup, chosen, load_data(found, chosen))
    if not isinstance(task, TorchTask):
        raise Unsupported(f"the step of {application} is not one of a module and an optimizer")
    return TracedStep(task)
