"""nvbench: JSON of `--json`, version 1. Its axes become sizes by `--case "gemm m={M} n={N} k={K} f32 cublas"`.

Every value is a text with a type; times are seconds. The mean of batched launches comes first, which is what the
original DeepBench measured too; else the median or mean of isolated ones.
"""

from __future__ import annotations

import math
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.formats import Format, Found, Given, Imported, filled, json_object

TAGS = (
    *("nv/batch/time/gpu/mean", "nv/cold/time/gpu/median", "nv/cold/time/gpu/mean"),
    *("nv/cpu_only/time/cpu/median", "nv/cpu_only/time/cpu/mean", "nv/cold/time/cpu/mean"),
)


class Nvbench(Format):
    name = "nvbench"
    about = "JSON of --json"

    def sniff(self, text: str) -> bool:
        return text.lstrip()[:1] == "{" and '"benchmarks"' in text and '"states"' in text

    def read(self, text: str, given: Given) -> Imported:
        value = json_object(text, self.name)
        if not isinstance(value.get("meta"), dict):
            raise BadInput("nvbench: no meta; files of 2021 are not read")
        states = [(b, s) for b in _list(value, "benchmarks") for s in _list(b, "states")]
        card = states[0][1].get("device") if states else None
        named = next((d.get("name") for d in _list(value, "devices") if d.get("id") == card), None)
        imported = Imported(self.name, {"name": "timed by nvbench"}, {"host": None, "cpu": named})
        for benchmark, state in states:
            self._add(imported, benchmark, state, card, given)
        return imported

    def _add(
        self, imported: Imported, benchmark: dict[str, Any], state: dict[str, Any], card: Any, given: Given
    ) -> None:
        title = f"{benchmark.get('name')} {state.get('name') or ''}".strip()
        if state.get("device") != card:
            imported.left_out.append(f"{title}: of another card than the first; a file of its own keeps them apart")
            return
        axes = {str(a.get("name")): str(a.get("value")) for a in _list(state, "axis_values")}
        case, reason = filled(given, str(benchmark.get("name")), axes)
        if case is None:
            imported.left_out.append(f"{title}: {reason}")
            return
        summaries = {s.get("tag"): s for s in _list(state, "summaries")}
        tag = next((t for t in TAGS if _value(summaries.get(t)) is not None), None)
        seconds = _value(summaries.get(tag))
        why = (
            str(state.get("skip_reason") or "nvbench skipped it") if state.get("is_skipped") else "nvbench has no time"
        )
        notes = {"their_tag": tag} if tag else {}
        imported.found.append(Found(case, [[seconds]] if seconds else [], notes, None if seconds else why))


def _list(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """What is null when it is empty."""
    found = value.get(name)
    return [x for x in found if isinstance(x, dict)] if isinstance(found, list) else []


def _value(summary: dict[str, Any] | None) -> float | None:
    for entry in _list(summary or {}, "data"):
        if entry.get("name") == "value":
            try:
                number = float(str(entry.get("value")))
            except ValueError:
                return None
            return number if math.isfinite(number) and number > 0 else None
    return None


FORMAT = Nvbench()
