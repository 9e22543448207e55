"""nvbench: the JSON of `--json`, version 1. `--case "gemm m={M} n={N} k={K} f32 cublas"` makes cases of its axes.

Every value is a text with a type; times are seconds. The mean of batched launches is preferred, because the original
DeepBench measured in this way; otherwise it is the median or mean of isolated launches.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from deepbench.core.errors import shorten
from deepbench.formats import Format, ImportedCase, ImportedFile, ImportOptions, case_text, json_object

MOST_OF_FACT = 200

TAGS = (
    *("nv/batch/time/gpu/mean", "nv/cold/time/gpu/median", "nv/cold/time/gpu/mean"),
    *("nv/cpu_only/time/cpu/median", "nv/cpu_only/time/cpu/mean", "nv/cold/time/cpu/mean"),
)


class Nvbench(Format):
    name = "nvbench"
    about = "JSON of --json"
    uses = ("case",)

    def matches(self, text: str) -> bool:
        return text.lstrip()[:1] == "{" and '"benchmarks"' in text and '"states"' in text

    def read(self, text: str, options: ImportOptions) -> ImportedFile:
        content = json_object(text, self.name)
        states = [(b, s) for b in _list(content, "benchmarks") for s in _list(b, "states")]
        first_device = states[0][1].get("device") if states else None
        name = _device(content, first_device).get("name")
        imported = ImportedFile(self.name, "timed by nvbench", cpu=name, facts=_facts(content, first_device))
        for benchmark, state in states:
            title = f"{benchmark.get('name')} {state.get('name') or ''}".strip()
            axes = {str(a.get("name")): str(a.get("value")) for a in _list(state, "axis_values")}
            text_, reason = case_text(options, str(benchmark.get("name")), axes)
            if state.get("device") != first_device:
                imported.left_out.append(f"{title}: not on the first device; write one file per device")
            elif text_ is None:
                imported.left_out.append(f"{title}: {reason}")
            else:
                imported.cases.append(replace(_imported_case(text_, state), name=title))
        return imported


def _device(content: dict[str, Any], number: Any) -> dict[str, Any]:
    return next((d for d in _list(content, "devices") if d.get("id") == number), {})


def _facts(content: dict[str, Any], device: Any) -> dict[str, str]:
    """What may explain a difference, by its name in a header."""
    version = content.get("meta")
    for name in ("version", "nvbench", "string"):
        version = version.get(name) if isinstance(version, dict) else None
    own = _device(content, device)
    found = {
        "program": f"nvbench {version}" if version else None,
        "ecc": own.get("ecc_state"),
        "device_clock": own.get("sm_default_clock_rate"),
    }
    return {name: shorten(str(value), MOST_OF_FACT) for name, value in found.items() if value is not None}


def _imported_case(text: str, state: dict[str, Any]) -> ImportedCase:
    times = {summary.get("tag"): _seconds(summary) for summary in _list(state, "summaries")}
    tag = next((t for t in TAGS if times.get(t)), None)
    if tag is not None:
        return ImportedCase(text, [[times[tag] or 0.0]], {"their_tag": tag})
    skipped = str(state.get("skip_reason") or "nvbench skipped it")
    return ImportedCase(text, [], {}, skipped if state.get("is_skipped") else "nvbench gives no time")


def _list(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects, which is null if it is empty."""
    items = value.get(name)
    return [x for x in items if isinstance(x, dict)] if isinstance(items, list) else []


def _seconds(summary: dict[str, Any]) -> float | None:
    for entry in _list(summary, "data"):
        if entry.get("name") == "value":
            try:
                number = float(str(entry.get("value")))
            except ValueError:
                return None
            return number if math.isfinite(number) and number > 0 else None
    return None


FORMAT = Nvbench()
