"""Several predicted steps of one network: for the values of an argument, or on numbers of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepbench.core.words import count
from deepbench.judge.devices import DeviceScaling
from deepbench.networks.predictions import devices
from deepbench.networks.predictions.predict import Prediction
from deepbench.networks.reporting import predictions
from deepbench.networks.reporting.predictions import Predicted
from deepbench.reporting import steps
from deepbench.reporting.output import Report, json_text
from deepbench.reporting.table import Table
from deepbench.results.summary import Summary


@dataclass(frozen=True, repr=False)
class PredictedSweep(Predicted):
    """One step for each value of an argument; `time` and `prediction` are of the first."""

    name: str = ""
    """The argument, such as `batch`."""
    swept: tuple[int, ...] = ()
    """Its values."""

    @property
    def labels(self) -> list[str]:
        """The name of each step."""
        return [f"{self.name} {value}" for value in self.swept] if len(self.swept) > 1 else super().labels

    def table(self) -> Table:
        """Time, throughput and latency by value."""
        return predictions.sweep_table(self.name, list(zip(self.swept, self.forecast.predictions, strict=True)))

    @property
    def _short(self) -> Table:
        return self.table()

    def report(self, by: str = "kernel", full: bool = False) -> Report:
        """What `deepbench predict --sweep` prints."""
        return self._report(self.table())

    def summary(self) -> list[tuple[str, str]]:
        """None: the table has everything."""
        return []


@dataclass(frozen=True, repr=False)
class PredictedDevices(Predicted):
    """A training step on numbers of devices; `time` and `prediction` are of one device."""

    devices: tuple[int, ...] = ()
    strong: bool = False
    """Whether the devices divide one batch."""
    summaries: Sequence[Summary] = ()
    """Of the results, which have the all-reduces."""

    @property
    def labels(self) -> list[str]:
        """The name of each step that was predicted."""
        return [count(n, "device") for n in self.devices] if len(self.forecast.predictions) > 1 else super().labels

    @property
    def scaling(self) -> DeviceScaling:
        """The step on each number of devices."""
        each: Sequence[Prediction] = self.forecast.predictions
        each = each if self.strong else [self.prediction] * len(self.devices)
        return devices.of_predictions(list(zip(self.devices, each, strict=True)), self.summaries, self.strong)

    def table(self) -> Table:
        """One row per number of devices."""
        return steps.table([self.scaling])

    @property
    def _short(self) -> Table:
        return self.table()

    def report(self, by: str = "kernel", full: bool = False) -> Report:
        """What `deepbench predict --devices` prints."""
        forms = Report.of_table(self.table()).forms
        return Report(self.table().print, {**forms, "json": lambda: json_text(self.scaling.values())})

    def summary(self) -> list[tuple[str, str]]:
        """None: the table has everything."""
        return []
