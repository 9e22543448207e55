"""Cycles of SCALE-Sim: `COMPUTE_REPORT.csv`, whose rows have the numbers of the rows of the topology.

`Total Cycles` has the cycles that wait for memory, if the configuration counts them, and not the first loading of the
operands.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import ClassVar

from deepbench.core.errors import BadInput
from deepbench.formats._simulated import SimulatorFormat

TOTAL = "Total Cycles"


class ScaleSimReport(SimulatorFormat):
    name = "SCALE-Sim"
    about = "COMPUTE_REPORT.csv"
    suffixes: ClassVar[tuple[str, ...]] = ("COMPUTE_REPORT.csv",)

    def matches(self, text: str) -> bool:
        return text.startswith("LayerID,") and TOTAL in text.partition("\n")[0]

    def cycles(self, texts: Mapping[str, str], layers: list[str]) -> dict[str, float]:
        if len(texts) != 1:
            raise BadInput(f"{self.name}: there are {len(texts)} reports, and layers have only numbers; name one")
        (text,) = texts.values()
        head, *rows = csv.reader(text.splitlines(), skipinitialspace=True)
        column, found = head.index(TOTAL), dict[str, float]()
        for row in rows:
            if (number := int(row[0])) >= len(layers) or number < 0:
                raise BadInput(
                    f"{self.name}: the report has a layer {number}, and counts.json has {len(layers)} layers; "
                    "they are not of the same export"
                )
            found[layers[number]] = float(row[column])
        return found


FORMAT = ScaleSimReport()
