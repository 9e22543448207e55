"""Cycles of Timeloop: `timeloop-model.stats.txt` or `timeloop-mapper.stats.txt`, one for each layer.

Each layer has a folder with its name, or a file that begins with it, such as `gemm_001/timeloop-model.stats.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from deepbench.formats._simulated import SimulatorFormat, layer_of

SUMMARY = "Summary Stats"

_CYCLES = re.compile(r"^Cycles: (\d{1,18})\s*$", re.MULTILINE)


class TimeloopStats(SimulatorFormat):
    name = "Timeloop"
    about = "*.stats.txt"
    suffixes: ClassVar[tuple[str, ...]] = (".stats.txt",)

    def matches(self, text: str) -> bool:
        return f"\n{SUMMARY}\n" in f"\n{text}"

    def cycles(self, texts: Mapping[str, str], layers: list[str]) -> dict[str, float]:
        known, found = set(layers), dict[str, float]()
        for path, text in texts.items():
            layer, cycles = layer_of(path, known), _CYCLES.findall(text.rpartition(SUMMARY)[2])
            if layer is not None and len(cycles) == 1:
                found[layer] = float(cycles[0])
        return found


FORMAT = TimeloopStats()
