"""FlashInfer-Trace: definitions of kernels, and a trace of each time, in the folders of its data sets.

Format: https://bench.flashinfer.ai/docs/flashinfer-trace. Only kernels whose mathematics its own data sets define are
written: products of a row-major A with a transposed B (`gemm`), and `rmsnorm`. The reference is not timed, and its time
has the format's default, which is 0. There are no solutions: ours are libraries.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deepbench.core.rows import EPSILON
from deepbench.formats import Export, ExportFormat, ExportOptions
from deepbench.results.exported import ExportedCase, ExportedFile

DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "s8": "int8", "s32": "int32"}

Definition = dict[str, Any]

GEMM = """import torch

def run(A, B):
    return torch.matmul(A.to(torch.float32), B.to(torch.float32).T).to(torch.{result})
"""

RMS_NORM = """import torch

def run(hidden_states, weight):
    x = hidden_states.to(torch.float32)
    scale = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + {epsilon})
    return (x * scale * weight.to(torch.float32)).to(torch.{result})
"""


class FlashInferTrace(ExportFormat):
    """A folder with `definitions/`, `workloads/` and `traces/`."""

    name = "flashinfer-trace"
    about = "FlashInfer-Bench, as definitions and traces"
    suffix = ""

    def write_results(self, files: Sequence[ExportedFile], options: ExportOptions) -> Export:
        """One definition per kernel with its fixed sizes, and one line per case."""
        (file,), export = files, Export({})
        lines: dict[str, dict[str, None]] = {}
        for case, time_s in self.certain(file, export):
            write = WRITERS[case.operation][0] if case.operation in WRITERS else None
            # A trace that passed says that its result was checked.
            definition = write(case) if write and case.direction == "forward" and _is_checked(case) else None
            if definition is None:
                export.left_out.append(f"{case.text}: no definition of FlashInfer-Trace computes just this")
                continue
            place = f"{definition['op_type']}/{definition['name']}.json"
            export.texts[f"/definitions/{place}"] = json.dumps(definition, indent=1) + "\n"
            trace = _trace(file, case, time_s, definition)
            workload = {name: trace[name] for name in ("definition", "workload")}
            for folder, line in (("workloads", workload), ("traces", trace)):
                lines.setdefault(f"/{folder}/{place}l", {})[json.dumps(line)] = None  # libraries share a workload
        export.texts |= {path: "".join(f"{line}\n" for line in of_path) for path, of_path in lines.items()}
        return export


def _is_checked(case: ExportedCase) -> bool:
    return case.status == "ok" and case.worst is not None


def _gemm(case: ExportedCase) -> Definition | None:
    p, a, b, c = case.problem, *_dtypes(case, "weights", "data", "result")
    # Our matrices are column-major. What is C (m, n) there is the transposed product in their row-major order.
    if (p.get("a_t"), p.get("b_t"), case.settings.get("beta")) != (1, 0, "0") or not (a and b and c):
        return None
    return {
        "name": f"gemm_{case.precision}_{c}_n{p['m']}_k{p['k']}",
        "op_type": "gemm",
        "description": "C = A · Bᵀ",
        "axes": {"M": {"type": "var"}, "N": _constant(p["m"]), "K": _constant(p["k"])},
        "inputs": {"A": _array("M K", b), "B": _array("N K", a)},
        "outputs": {"C": _array("M N", c)},
        "reference": GEMM.format(result=c),
        "tags": ["source:deepbench"],
    }


def _rms_norm(case: ExportedCase) -> Definition | None:
    p, (x, y) = case.problem, _dtypes(case, "data", "result")
    if not (x and y):
        return None
    return {
        "name": f"rmsnorm_{case.precision}_{y}_h{p['columns']}",
        "op_type": "rmsnorm",
        "description": f"Root mean square normalization, epsilon {EPSILON:g}",
        "axes": {"batch_size": {"type": "var"}, "hidden_size": _constant(p["columns"])},
        "inputs": {"hidden_states": _array("batch_size hidden_size", x), "weight": _array("hidden_size", "float32")},
        "outputs": {"output": _array("batch_size hidden_size", y)},
        "reference": RMS_NORM.format(epsilon=EPSILON, result=y),
        "tags": ["source:deepbench"],
    }


WRITERS: Mapping[str, tuple[Callable[[ExportedCase], Definition | None], Mapping[str, str]]] = {
    "gemm": (_gemm, {"M": "n"}),
    "rms_norm": (_rms_norm, {"batch_size": "rows"}),
}
"""By operation: the definition of a case, and which of our sizes its variable axes are."""


def _dtypes(case: ExportedCase, *names: str) -> list[str | None]:
    return [DTYPES.get(case.types.get(name, "")) for name in names]


def _constant(value: int | str) -> dict[str, Any]:
    return {"type": "const", "value": value}


def _array(axes: str, dtype: str) -> dict[str, Any]:
    return {"shape": axes.split(), "dtype": dtype}


def _trace(file: ExportedFile, case: ExportedCase, time_s: float, definition: Definition) -> dict[str, Any]:
    library = case.library or case.backend
    solution = f"{case.backend}_{case.version or 'unknown'}_threads{case.threads}"
    axes = {axis: case.problem[size] for axis, size in WRITERS[case.operation][1].items()}
    return {
        "definition": definition["name"],
        "workload": {
            "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{definition['name']} {json.dumps(axes)}")),
            "axes": axes,
            "inputs": {name: {"type": "random"} for name in definition["inputs"]},
        },
        "solution": re.sub(r"[^A-Za-z0-9_.-]+", "_", solution),
        "evaluation": {
            "status": "PASSED",
            "log": "",
            "environment": {"hardware": file.machine, "libs": {library: case.version or "unknown"}},
            "timestamp": file.started,
            "correctness": _correctness(case),
            "performance": {"latency_ms": float(f"{time_s * 1e3:.7g}")},
        },
    }


def _correctness(case: ExportedCase) -> dict[str, Any]:
    """The errors of the value that is furthest off in tolerances. Without them, the format would read them as 0."""
    assert case.worst is not None, "such cases are left out"
    got, want = case.worst
    absolute = abs(got - want)
    return {
        "max_absolute_error": absolute,
        "max_relative_error": absolute / abs(want) if want else absolute,
        "extra": {"error_in_tolerances": case.error, "case": case.text},
    }


FORMAT = FlashInferTrace()
