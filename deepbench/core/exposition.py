"""Gauges as text for Prometheus, valid in both formats: Prometheus 0.0.4 and OpenMetrics 1.0.

The latter wants `# EOF` at the end, which is a comment in the former. Samples have no timestamps: the textfile
collector of the node exporter refuses them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from deepbench.core.files import replacing

Labels = Mapping[str, str]


class Gauge(NamedTuple):
    """One number of several things."""

    name: str
    meaning: str
    """A sentence without anything to escape."""
    values: Iterable[tuple[Labels, float | None]]
    """What has no value, or none that is finite, has no sample."""


def exposition(gauges: Iterable[Gauge]) -> str:
    """The text of gauges: name, meaning, and each value with its labels."""
    lines = []
    for name, meaning, values in gauges:
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
        for labels, value in values:
            if value is not None and math.isfinite(value):
                words = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
                lines.append(f"{name}{{{words}}} {value!r}" if words else f"{name} {value!r}")
    return "\n".join([*lines, "# EOF", ""])


def write(path: Path, gauges: Iterable[Gauge]) -> None:
    """Write the text as a whole or not at all: the collector may read it at any time. `BadInput` where it cannot."""
    text = exposition(gauges)
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8", errors="replace")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
