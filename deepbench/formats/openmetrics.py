"""OpenMetrics text for Prometheus: one gauge per number, with the case as labels. `core/exposition.py` writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepbench.core.exposition import Gauge, Labels, exposition
from deepbench.formats import Export, ExportFormat, ExportOptions
from deepbench.results.exported import ExportedCase, ExportedFile

METRICS: dict[str, tuple[str, Callable[[ExportedCase], float | None]]] = {
    "deepbench_case_seconds": ("Time of one call; an upper bound where it is disturbed.", lambda case: case.time_s),
    "deepbench_case_low_seconds": ("Lower end of the 95 % confidence interval.", lambda case: case.low_s),
    "deepbench_case_high_seconds": ("Upper end of the 95 % confidence interval.", lambda case: case.high_s),
    "deepbench_case_disturbed": (
        "1 if other programs disturbed the measurement.",
        lambda case: None if case.time_s is None else int(case.disturbed),
    ),
    "deepbench_case_ok": ("1 if the case has a checked result.", lambda case: int(case.status == "ok")),
}


class OpenMetrics(ExportFormat):
    """Gauges of every case."""

    name = "openmetrics"
    about = "Prometheus, as OpenMetrics text"
    suffix = ".prom"

    def write_results(self, files: Sequence[ExportedFile], options: ExportOptions) -> Export:
        """The text. Cases without a time have `deepbench_case_ok` only."""
        (file,) = files
        cases = [(_labels(case, file), case) for case in file.cases]
        gauges = [
            Gauge(name, meaning, [(labels, value(case)) for labels, case in cases])
            for name, (meaning, value) in METRICS.items()
        ]
        return Export({"": exposition(gauges)})


def _labels(case: ExportedCase, file: ExportedFile) -> Labels:
    found = {
        "case": case.text,
        "operation": case.operation,
        "precision": case.precision,
        "backend": case.backend,
        "version": case.version,
        "device": case.device,
        "machine": file.machine,
        "host": file.host,
    }
    return {name: value for name, value in found.items() if value}


FORMAT = OpenMetrics()
