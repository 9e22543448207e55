"""Times of simulators and of models: they are imported or computed, so this library never runs."""

from __future__ import annotations

from typing import Any

from deepbench.core.backend import Backend, Mark, marks_of_every_op
from deepbench.core.case import Case
from deepbench.core.devices import SIMULATED
from deepbench.core.errors import Unavailable
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays

REMEDY = "deepbench estimate models the time of a case; deepbench import reads the cycles of a simulator"


class Simulated(Backend):
    name = SIMULATED
    title = "simulated"
    device = SIMULATED
    default = False
    computes = False

    def open(self) -> dict[str, Any]:
        raise Unavailable("simulated hardware cannot run anything here", REMEDY)

    def marks(self) -> list[Mark]:
        return marks_of_every_op()

    def prepare(self, case: Case, arrays: Arrays) -> Kernel:
        raise Unavailable("simulated hardware cannot run anything here", REMEDY)


BACKEND = Simulated()
