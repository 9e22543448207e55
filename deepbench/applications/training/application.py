"""What an application is: a model, data, an optimizer, a metric, and the target that the metric has to reach.

An application has rungs, the same task in several sizes. Every run of a rung trains on the same number of samples and
evaluates after the same numbers of samples, whether or not it has reached the target, so that curves of seeds,
machines and frameworks can be compared point by point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from deepbench.core import registry, units
from deepbench.core.errors import Unsupported

Framework = Literal["torch", "jax"]


@dataclass(frozen=True)
class Metric:
    """What measures the quality of a model."""

    name: str
    """As in `accuracy` or `character error rate`."""
    higher_is_better: bool = True
    is_share: bool = True
    """Whether it is shown in percent."""


def quality_text(value: float | None, is_share: bool) -> str:
    """A value of a metric for people: `89.1 %`, or `58.2`."""
    return units.percent(value, 1) if is_share or value is None else units.significant(value)


@dataclass(frozen=True)
class Rung:
    """One size of an application."""

    about: str
    batch: int
    """Samples of a step, of all ranks together."""
    samples: int
    """How many samples a run trains on; a sample counts as often as it is used."""
    every: int
    """Samples between two evaluations."""
    target: float
    """What the metric has to reach."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Sizes of the model, and constants of the optimizer."""
    datasets: tuple[str, ...] | None = None
    """The data of this rung, where they are not those of the application."""


@dataclass(frozen=True)
class Setup:
    """One run of a rung."""

    application: str
    rung: str
    framework: Framework = "torch"
    device: str = "cpu"
    precision: str = "f32"
    ranks: int = 1
    """Processes that share each batch."""
    threads: int = 1
    """Of each rank."""
    seed: int = 0
    batch: int | None = None
    """In place of that of the rung."""
    samples: int | None = None
    """In place of those of the rung."""


class Task(ABC):
    """A training run in progress, in one framework. The engine calls `step` and `evaluate` in turn."""

    parameters: int
    """Numbers that the optimizer changes."""
    examples: int | None
    """Examples that it is trained on; None where it makes them itself."""
    optimizer_name: str
    """As its framework calls it."""
    learning_rate: float
    """Where the schedule has the factor 1, for the batch of this run."""
    device_name: str | None = None
    """Of the GPU; None on CPUs."""
    tests: int
    """Examples that quality is tested with."""

    @abstractmethod
    def step(self) -> None:
        """Train on the next batch. It may return before the device has finished."""

    @abstractmethod
    def loss(self) -> float:
        """The loss of the last batch; waits for the device."""

    @abstractmethod
    def evaluate(self) -> float:
        """The metric on the test data."""

    @abstractmethod
    def answer(self, tests: Sequence[int]) -> list[Any]:
        """What the model says about these test examples, as JSON carries it: a class, a text, a list."""

    @abstractmethod
    def grade(self, tests: Sequence[int], answers: Sequence[Any]) -> float:
        """The quality of answers by themselves: the metric, or `Application.answer_metric` where there is one."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Everything that `restore` needs to go on exactly like this: NumPy arrays and plain values by name."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any], samples: int) -> None:
        """Go on from a state after so many samples."""


class Application(ABC):
    """One application. Subclass it, and end the file with `APPLICATION = MyApplication()`.

    In a folder, the function `task` of `torch_version.py` or of `jax_version.py` makes a run in this framework, unless
    the class has a method for it.
    """

    name: str
    title: str
    metric: Metric
    answer_metric: Metric | None = None
    """What `Task.grade` gives, where it is not the metric: perplexity needs probabilities, a translation has none."""
    has_equal_samples: bool = False
    """Whether every test example takes the same work: then one that repeats must not be faster."""
    outside_steps: str | None = None
    """What some steps contain besides training, in words: an explained step leaves it out, and the first step of a part
    is not taken for compilation.
    """
    datasets: tuple[str, ...]
    rungs: Mapping[str, Rung]
    frameworks: tuple[Framework, ...] = ("torch",)

    def torch_task(self, setup: Setup, rung: Rung, data: list[Any]) -> Task:
        """A run in PyTorch; `data` has what each data set loads."""
        found: Task = import_module(f"{type(self).__module__}.torch_version").task(setup, rung, data)
        return found

    def jax_task(self, setup: Setup, rung: Rung, data: list[Any]) -> Task:
        """A run in JAX."""
        if "jax" not in self.frameworks:
            raise Unsupported(f"{self.name} has no version in JAX")
        found: Task = import_module(f"{type(self).__module__}.jax_version").task(setup, rung, data)
        return found


def applications() -> Mapping[str, Application]:
    """All applications by name."""
    return registry.registered("applications")


def find_application(name: str) -> Application:
    """An application by its name; `BadInput` for any other word."""
    found: Application = registry.find("applications", name)
    return found
