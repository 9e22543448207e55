"""The list of `benchmark-action/github-action-benchmark`, for its tool `customSmallerIsBetter`.

Format: https://github.com/benchmark-action/github-action-benchmark#examples. Its `range` is a text, which charts show
next to a value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from deepbench.formats import Export, ExportFormat, ExportOptions
from deepbench.results.exported import ExportedFile


class GithubActionBenchmark(ExportFormat):
    """One entry per case: microseconds per call, with half the interval."""

    name = "github-action-benchmark"
    about = "github-action-benchmark and Nyrkiö, tool customSmallerIsBetter"
    suffix = ".json"

    def write_results(self, files: Sequence[ExportedFile], options: ExportOptions) -> Export:
        """A JSON list."""
        (file,), export, entries = files, Export({}), []
        for case, time_s in self.certain(file, export):
            entry: dict[str, str | float] = {"name": case.text, "unit": "us", "value": float(f"{time_s * 1e6:.7g}")}
            if case.low_s is not None and case.high_s is not None:
                entry["range"] = f"± {(case.high_s - case.low_s) / 2 * 1e6:.3g}"
            version = f"{case.library or case.backend} {case.version or ''}".strip()
            entry["extra"] = f"{version}; {len(case.processes_s)} processes; {file.machine}"
            entries.append(entry)
        export.texts[""] = json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
        return export


FORMAT = GithubActionBenchmark()
