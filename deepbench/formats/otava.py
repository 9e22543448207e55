"""Apache Otava: a table with one row per result file and one column per case, and the configuration that names it.

Format: https://otava.apache.org/docs/csv/. Otava needs ten or more files before it can find a change. A metric that
its configuration names in a list is taken for one of which more is better, so the metrics are an object here.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from deepbench.formats import Export, ExportFormat, ExportOptions
from deepbench.results.exported import ExportedFile

# Columns before those of the cases.
ATTRIBUTES = ("file", "machine", "commit")


class Otava(ExportFormat):
    """Seconds per call of every case that all files have. Writes NAME.csv and NAME.yaml."""

    name = "otava"
    about = "Apache Otava, CSV with its YAML"
    suffix = ""
    takes_several = True

    def write_results(self, files: Sequence[ExportedFile], options: ExportOptions) -> Export:
        """Two files. Otava has no missing values, so what one file lacks is left out."""
        export = Export({})
        ordered = sorted(files, key=lambda file: file.started)
        times = [dict(self._times(file, export)) for file in ordered]
        counts = Counter(text for of_file in times for text in of_file)
        everywhere = [text for text, count in counts.items() if count == len(times)]
        for text in counts.keys() - set(everywhere):
            export.left_out.append(f"{text}: not every file has a time of it that counts")
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["time", *ATTRIBUTES, *everywhere])
        for file, of_file in zip(ordered, times, strict=True):
            facts = [file.started, file.name, file.machine, options.commit or ""]
            writer.writerow([*facts, *(f"{of_file[text]:.7g}" for text in everywhere)])
        export.texts = {
            ".csv": table.getvalue(),
            ".yaml": json.dumps(_configuration(f"{options.output}.csv", everywhere), indent=1) + "\n",
        }
        return export

    def _times(self, file: ExportedFile, export: Export) -> list[tuple[str, float]]:
        return [(case.text, time_s) for case, time_s in self.certain(file, export)]


def _configuration(file: str, cases: Sequence[str]) -> dict[str, Any]:
    """As JSON, which YAML contains: texts of cases need no other quotes."""
    metrics = {text: {"column": text, "direction": -1, "scale": 1} for text in cases}
    test = {"type": "csv", "file": file, "time_column": "time", "attributes": [*ATTRIBUTES], "metrics": metrics}
    return {"tests": {"deepbench": test}}


FORMAT = Otava()
