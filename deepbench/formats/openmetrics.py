"""OpenMetrics text for Prometheus: one gauge per number, with the case as labels.

Format: https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md, section "Text format". A text
file for the node exporter's textfile collector has the same form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from deepbench.formats import Export, ExportFormat, ExportOptions
from deepbench.results.exported import ExportedCase, ExportedFile

METRICS = {
    "deepbench_case_seconds": "Time of one call; an upper bound where it is disturbed.",
    "deepbench_case_low_seconds": "Lower end of the 95 % confidence interval.",
    "deepbench_case_high_seconds": "Upper end of the 95 % confidence interval.",
    "deepbench_case_disturbed": "1 if other programs disturbed the measurement.",
    "deepbench_case_ok": "1 if the case has a checked result.",
}


class OpenMetrics(ExportFormat):
    """Gauges of every case, and the moment of the run."""

    name = "openmetrics"
    about = "Prometheus, as OpenMetrics text"
    suffix = ".prom"

    def write_results(self, files: Sequence[ExportedFile], options: ExportOptions) -> Export:
        """The text. Cases without a time have `deepbench_case_ok` only."""
        (file,), export = files, Export({})
        lines: list[str] = []
        for name, about in METRICS.items():
            lines += [f"# TYPE {name} gauge"]
            lines += [f"# UNIT {name} seconds"] if name.endswith("_seconds") else []
            lines += [f"# HELP {name} {about}", *_samples(name, file)]
        export.texts[""] = "\n".join([*lines, "# EOF"]) + "\n"
        return export


def _samples(name: str, file: ExportedFile) -> Iterator[str]:
    for case in file.cases:
        value = {
            "deepbench_case_seconds": case.time_s,
            "deepbench_case_low_seconds": case.low_s,
            "deepbench_case_high_seconds": case.high_s,
            "deepbench_case_disturbed": None if case.time_s is None else float(case.disturbed),
            "deepbench_case_ok": float(case.status == "ok"),
        }[name]
        if value is not None:
            yield f"{name}{{{labels(_labels(case, file))}}} {value:.9g}"


def _labels(case: ExportedCase, file: ExportedFile) -> Mapping[str, str | None]:
    return {
        "case": case.text,
        "operation": case.operation,
        "precision": case.precision,
        "backend": case.backend,
        "version": case.version,
        "device": case.device,
        "machine": file.machine,
        "host": file.host,
    }


def labels(values: Mapping[str, str | None]) -> str:
    """Labels as the format writes them; backslashes, quotes and ends of lines are escaped."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in values.items() if value)


def escaped(text: str) -> str:
    """The value of a label."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


FORMAT = OpenMetrics()
