"""Records of PyTorch's benchmark database, `oss_ci_benchmark_v3`, which its dashboard (HUD) shows.

Format: https://github.com/pytorch/pytorch/wiki/How-to-integrate-with-PyTorch-OSS-benchmark-database. The dashboard
shows the mean of `benchmark_values` with two decimals, so times are microseconds, one per process. It has no field for
an interval or a mark: these are in `extra_info`, whose values are texts. What a version would break (a series is one
backend) is in `dependencies`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from deepbench.formats import Export, ExportFormat, ExportOptions
from deepbench.results.exported import ExportedCase, ExportedFile

DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "i8": "int8"}


class PyTorchHud(ExportFormat):
    """One record per case, with all its processes."""

    name = "pytorch-hud"
    about = "PyTorch's benchmark database, oss_ci_benchmark_v3"
    suffix = ".json"

    def write_results(self, files: Sequence[ExportedFile], options: ExportOptions) -> Export:
        """A JSON list. Disturbed cases say so in `extra_info`."""
        (file,), export = files, Export({})
        records = []
        for case in file.cases:
            if case.time_s is None:
                export.left_out.append(f"{case.text}: {case.reason or case.status}")
            else:
                records.append(_record(file, case, case.time_s, options))
        export.texts[""] = json.dumps(records, indent=1) + "\n"
        return export


def _record(file: ExportedFile, case: ExportedCase, time_s: float, options: ExportOptions) -> dict[str, Any]:
    facts = {
        "unit": "us",
        "time_us": _us(time_s),
        "ci_low_us": _us(case.low_s) if case.low_s is not None else "",
        "ci_high_us": _us(case.high_s) if case.high_s is not None else "",
        "disturbed": str(case.disturbed).lower(),
        "status": case.status,
    }
    branch = {"repo": options.repository or "", "branch": options.branch or "", "sha": options.commit or ""}
    library = {"repo": "", "branch": "", "sha": "", "version": case.version or "", "extra_info": {}}
    return {
        "benchmark": {
            "name": "DeepBench",
            "mode": "training" if case.direction != "forward" else "inference",
            "dtype": DTYPES.get(case.precision, case.precision),
            "extra_info": {
                "device": "cpu" if case.device == "cpu" else case.device,
                "arch": file.machine,
                "threads": str(case.threads),
                "direction": case.direction,
                "started": file.started,
                "tool": file.tool,
                "processes": str(len(case.processes_s)),
            },
        },
        "model": {
            "name": case.text,
            "type": case.operation,
            "backend": case.backend,
            "origins": ["deepbench"],
            "extra_info": {"title": case.title},
        },
        "metric": {
            "name": "latency",
            "benchmark_values": [float(f"{s * 1e6:.7g}") for s in case.processes_s or (time_s,)],
            "target_value": 0.0,
            "extra_info": facts,
        },
        "dependencies": {case.library or case.backend: library}
        | ({options.repository: {**branch, "version": "", "extra_info": {}}} if options.repository else {}),
    }


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.7g}"


FORMAT = PyTorchHud()
