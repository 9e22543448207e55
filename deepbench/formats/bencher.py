"""Bencher Metric Format: a JSON object of benchmarks, each with its measures.

Format: https://bencher.dev/docs/reference/bencher-metric-format/. Bencher's built-in measure `latency` is in
nanoseconds. Names of benchmarks have at most 1,024 characters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from deepbench.formats import Export, ExportFormat, ExportOptions
from deepbench.results.exported import ExportedFile

LONGEST_NAME = 1024


class Bencher(ExportFormat):
    """`latency` with its interval, by the text of the case."""

    name = "bencher"
    about = "Bencher, as Bencher Metric Format"
    suffix = ".json"

    def write_results(self, files: Sequence[ExportedFile], options: ExportOptions) -> Export:
        """A JSON object."""
        (file,), export, measures = files, Export({}), {}
        for case, time_s in self.certain(file, export):
            if len(case.text) > LONGEST_NAME:
                export.left_out.append(f"{case.text[:80]}…: Bencher's names have at most {LONGEST_NAME} characters")
                continue
            value = {"value": _ns(time_s)}
            if case.low_s is not None and case.high_s is not None:
                value |= {"lower_value": _ns(case.low_s), "upper_value": _ns(case.high_s)}
            measures[case.text] = {"latency": value}
        export.texts[""] = json.dumps(measures, indent=1) + "\n"
        return export


def _ns(seconds: float) -> float:
    return float(f"{seconds * 1e9:.7g}")


FORMAT = Bencher()
