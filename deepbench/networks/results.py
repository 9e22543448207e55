"""A file of `deepbench predict --measure` as a Python object: kernels of a network, and its step next to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepbench.api.results import Results
from deepbench.core.kinds import PREDICTION

if TYPE_CHECKING:
    from deepbench.results.record import NetworkSteps


class PredictionResults(Results):
    """The kernels of networks, which are shown and compared as any others, and the measured steps."""

    kind = PREDICTION

    @property
    def steps(self) -> list[NetworkSteps]:
        """The measured steps of networks, in the order of the file."""
        return [step for _, step in self.file.steps]
