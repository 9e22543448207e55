"""Cycles of ZigZag 3: a folder of results, with a file `LAYER_complete.json` for each layer.

The latency of a layer is computing with its stalls, and loading the first and storing the last data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from deepbench.formats import json_object
from deepbench.formats._simulated import SimulatorFormat

SUFFIX = "_complete.json"

PARTS = ("data_onloading", "computation", "data_offloading")


class ZigZagResults(SimulatorFormat):
    name = "ZigZag"
    about = f"*{SUFFIX}"
    suffixes: ClassVar[tuple[str, ...]] = (SUFFIX,)

    def matches(self, text: str) -> bool:
        return all(f'"{part}"' in text for part in PARTS)

    def cycles(self, texts: Mapping[str, str], layers: list[str]) -> dict[str, float]:
        known, found = set(layers), dict[str, float]()
        for path, text in texts.items():
            layer = path.rpartition("/")[2].removesuffix(SUFFIX)
            if layer in known:
                latency = json_object(text, self.name)["outputs"]["latency"]
                found[layer] = float(sum(float(latency[part]) for part in PARTS))
        return found


FORMAT = ZigZagResults()
