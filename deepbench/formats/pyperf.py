"""pyperf: JSON of `-o`, version 1.0. A benchmark is read as a case where its name is one, or with `--case`.

Values are seconds a call already; every run is a process of its own, which we keep.
"""

from __future__ import annotations

import math
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.formats import Format, Found, Given, Imported, filled, json_object


class Pyperf(Format):
    name = "pyperf"
    about = "JSON of -o"

    def sniff(self, text: str) -> bool:
        return text.lstrip()[:1] == "{" and '"benchmarks"' in text and '"runs"' in text

    def read(self, text: str, given: Given) -> Imported:
        value = json_object(text, self.name)
        if value.get("version") != "1.0":
            raise BadInput("pyperf: wanted version 1.0; convert older files with python -m pyperf convert")
        common = _facts(value)
        imported = Imported(self.name, {"name": "timed by pyperf"}, {"host": None, "cpu": None})
        for benchmark in value.get("benchmarks") or []:
            if not isinstance(benchmark, dict):
                continue
            facts = {**common, **_facts(benchmark)}
            processes = []
            for run in benchmark.get("runs") or []:
                if not isinstance(run, dict):
                    continue
                facts = {**facts, **_facts(run)}
                values = [
                    v for v in run.get("values") or [] if isinstance(v, int | float) and math.isfinite(v) and v > 0
                ]
                if values:  # a run without them calibrates
                    processes.append(values)
            name = str(facts.get("name") or "")
            if facts.get("unit", "second") != "second":
                imported.left_out.append(f"{name}: measured in {facts['unit']}, not in seconds")
                continue
            imported.machine = {"host": facts.get("hostname"), "cpu": facts.get("cpu_model_name")}
            case, reason = filled(given, name, {k: str(v) for k, v in facts.items()})
            if case is None:
                imported.left_out.append(f"{name or 'a benchmark without a name'}: {reason}")
            else:
                imported.found.append(Found(case, processes, {}, None if processes else "pyperf has no values of it"))
        return imported


def _facts(value: dict[str, Any]) -> dict[str, Any]:
    found = value.get("metadata")
    return found if isinstance(found, dict) else {}


FORMAT = Pyperf()
