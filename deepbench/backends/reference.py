"""NumPy in float64: runs every op by its own reference. Other backends are checked against it; it does not compete."""

from __future__ import annotations

from typing import Any

from deepbench.core.backend import Backend, Mark, marks_of_every_op
from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.product import AddingProductOp


class Reference(Backend):
    name = "reference"
    title = "NumPy float64"
    default = False

    def open(self) -> dict[str, Any]:
        import numpy

        return {"name": self.title, "version": numpy.__version__, "path": numpy.__file__}

    def marks(self) -> list[Mark]:
        return marks_of_every_op()

    def prepare(self, case: Case, arrays: Arrays) -> Kernel:
        op = case.operation
        # A reference is that of the first call. Where every call adds to C, later ones find what earlier ones left.
        adds = isinstance(op, AddingProductOp) and not op.is_idempotent(case)
        initial = arrays["c"].copy() if adds else None

        def run() -> None:
            for name, values in op.reference(case, arrays).items():
                arrays[name][...] = values if initial is None else values - initial + arrays[name]

        return Kernel(run=run, notes={"implementation": "float64"})


BACKEND = Reference()
