"""The kinds of result files: how each is recognized, what its files have, and where its class of results is.

This is the only list of kinds. `deepbench.load` opens a file with the class of its kind, and the methods of this class
(`api/results.py`) say how such a file is summarized, shown, compared, gated and drawn. Verbs therefore never ask what
kind a file is. A wing adds a kind with one entry here and one class; nothing else in the main house names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

Header = Mapping[str, Any]
"""The first line of a file. It may come from anyone, so a kind asks it with `get`."""


def _plan(header: Header) -> Mapping[str, Any]:
    plan = header.get("plan")
    return plan if isinstance(plan, Mapping) else {}


@dataclass(frozen=True)
class Kind:
    """One kind of result file."""

    name: str
    noun: str
    """What its files have, for messages: `trained applications`."""
    resumed_by: str | None
    """The verb that continues such files where they stop; None if they are measured again instead."""
    results: str
    """Its class of results, as `module:class`. It is imported when a file of this kind is opened."""
    is_header: Callable[[Header], bool] = field(repr=False)
    """Whether a file that begins with this header is of this kind."""

    def results_class(self) -> type[Any]:
        """The class that reads, shows and compares files of this kind: a subclass of `api.results.FileResults`."""
        module, _, name = self.results.partition(":")
        found: type[Any] = getattr(import_module(module), name)
        return found


FLEET = Kind(
    "fleet",
    "results of many hosts",
    None,
    "deepbench.fleets.results:FleetResults",
    lambda header: header.get("schema") == "deepbench-fleet/1",
)
TRAINING = Kind(
    "training",
    "trained applications",
    "train",
    "deepbench.applications.results:TrainingResults",
    lambda header: _plan(header).get("mode") == "training",
)
SERVING = Kind(
    "serving",
    "models that answered queries",
    None,
    "deepbench.applications.results:ServingResults",
    lambda header: bool(_plan(header).get("training")),
)
PREDICTION = Kind(
    "prediction",
    "kernels of a network and its step",
    "run",
    "deepbench.networks.results:PredictionResults",
    lambda header: _plan(header).get("mode") == "steps",
)
KERNELS = Kind("kernels", "kernels", "run", "deepbench.api.results:Results", lambda header: True)

KINDS = (FLEET, TRAINING, SERVING, PREDICTION, KERNELS)
"""In the order in which a header is asked: a file of kernels is what none of the others is."""


def kind_of_header(header: Header) -> Kind:
    """The kind of the file that begins with this header."""
    return next(kind for kind in KINDS if kind.is_header(header))


def wing(name: str) -> ModuleType:
    """The door of a wing, `networks`, `applications` or `fleets`: its module `api`.

    The main house imports nothing of a wing. It goes through this door where a person asked for what is behind it.
    """
    return import_module(f"deepbench.{name}.api")
