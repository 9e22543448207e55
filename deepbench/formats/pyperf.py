"""pyperf: the JSON of `-o`, version 1.0. A benchmark is a case if its name is one, or with `--case`.

Values are seconds per call. Every run is a process of its own.
"""

from __future__ import annotations

import math
from typing import Any

from deepbench.core.errors import BadInput, shorten
from deepbench.formats import Format, ImportedCase, ImportedFile, ImportOptions, case_text, json_object

# pyperf itself writes about thirty.
MOST_METADATA = 1000

# Metadata that may explain a difference, by their names in a header.
FACTS = {
    **{"python": "python_version", "timer": "timer", "kernel": "platform", "cpu_config": "cpu_config"},
    **{"aslr": "aslr", "compiler": "python_compiler"},
}
MOST_OF_FACT = 200


class Pyperf(Format):
    name = "pyperf"
    about = "JSON of -o"
    uses = ("case",)

    def matches(self, text: str) -> bool:
        return text.lstrip()[:1] == "{" and '"benchmarks"' in text and '"runs"' in text

    def read(self, text: str, options: ImportOptions) -> ImportedFile:
        content = json_object(text, self.name)
        if content.get("version") != "1.0":
            raise BadInput("pyperf: the file does not have version 1.0; convert it with python -m pyperf convert")
        imported = ImportedFile(self.name, "timed by pyperf")
        for benchmark in content.get("benchmarks") or []:
            if isinstance(benchmark, dict):
                self._add(imported, benchmark, {**_metadata(content), **_metadata(benchmark)}, options)
        return imported

    def _add(
        self, imported: ImportedFile, benchmark: dict[str, Any], metadata: dict[str, Any], options: ImportOptions
    ) -> None:
        processes = []
        for run in benchmark.get("runs") or []:
            if isinstance(run, dict):
                metadata |= _metadata(run)
                values = run.get("values") or []  # calibration runs have none
                processes.append([v for v in values if isinstance(v, int | float) and math.isfinite(v) and v > 0])
        name = str(metadata.get("name") or "")
        if metadata.get("unit", "second") != "second":
            imported.left_out.append(f"{name}: measured in {metadata['unit']}, not in seconds")
            return
        imported.host, imported.cpu = metadata.get("hostname"), metadata.get("cpu_model_name")
        imported.facts |= {
            fact: shorten(str(metadata[name]), MOST_OF_FACT) for fact, name in FACTS.items() if metadata.get(name)
        }
        text, reason = case_text(options, name, {k: str(v) for k, v in metadata.items()})
        if text is None:
            imported.left_out.append(f"{name or 'a benchmark without a name'}: {reason}")
            return
        processes = [samples for samples in processes if samples]
        without = None if processes else "pyperf gives no values"
        imported.cases.append(ImportedCase(text, processes, {}, without, name=name))


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        return {}
    if len(metadata) > MOST_METADATA:
        raise BadInput(f"pyperf: {len(metadata)} entries of metadata; a benchmark has at most {MOST_METADATA}")
    return metadata


FORMAT = Pyperf()
