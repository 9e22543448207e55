"""Logs of training runs in the MLLOG format (MLCommons), which the parser of `mlperf-logging` reads.

Everything comes from the result file. A log ends with the first evaluation that reaches the target, as the clock of
MLPerf does; the result file has the rest of the curve. Times follow from the seconds of training and of evaluation, so
that a run that was interrupted has no pause; checkpoints are no part of them. The values of `submission_…` are ours:
these are not submissions to MLPerf, and its checker knows no application of this name.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from deepbench.applications.judge.trained import Run, runs_of
from deepbench.core.errors import BadInput
from deepbench.core.files import replacing
from deepbench.results.file import ResultFile

TOKEN = ":::MLLOG"
NAMESPACE = "deepbench"

PRECISIONS = {"f32": "fp32", "bf16": "bf16", "f16": "fp16"}


class _Log:
    def __init__(self, file: str) -> None:
        self._file = file
        self.lines: list[str] = []

    def add(self, at: datetime, key: str, value: Any, event: str = "POINT_IN_TIME", **metadata: Any) -> None:
        line = {
            "namespace": NAMESPACE,
            "time_ms": round(at.timestamp() * 1000),
            "event_type": event,
            "key": key,
            "value": value,
            "metadata": {"file": self._file, "lineno": None, **metadata},
        }
        self.lines.append(f"{TOKEN} {json.dumps(line)}")

    def start(self, at: datetime, name: str, **metadata: Any) -> None:
        self.add(at, f"{name}_start", None, "INTERVAL_START", **metadata)

    def stop(self, at: datetime, name: str, **metadata: Any) -> None:
        self.add(at, f"{name}_stop", None, "INTERVAL_END", **metadata)


def lines(file: ResultFile, run: Run) -> list[str]:
    """The log of one run; empty where no process of it was ready."""
    if not run.starts:
        return []
    log, setup, first = _Log(file.path.name), run.setup, run.starts[0]
    ready = run.started[0]
    begin = ready - timedelta(seconds=first["load_s"] + first["initialise_s"])
    log.start(begin, "init")
    for key, value in {
        "cache_clear": False,
        "submission_benchmark": setup["application"],
        "submission_org": "unknown",
        "submission_division": "open",
        "submission_status": "onprem",
        "submission_platform": first.get("device") or file.header["machine"].get("cpu") or "unknown",
        "seed": setup["seed"],
        "global_batch_size": setup["batch"],
        "gradient_accumulation_steps": 1,
        "train_samples": first["examples"],
        "eval_samples": first["tests"],
        "lowest_numerical_precision_in_linear": PRECISIONS[setup["precision"]],
        "lowest_numerical_precision_in_attn": PRECISIONS[setup["precision"]],
        "lowest_numerical_precision_in_comm": "fp32",
        "tensor_parallelism": 1,
        "pipeline_parallelism": 1,
        "context_parallelism": 1,
        "expert_parallelism": 1,
        "micro_batch_size": setup["batch"] // setup["ranks"],
        "config_filename": file.path.name,
        "opt_name": first.get("optimizer"),
        "opt_base_learning_rate": first.get("learning_rate"),
        "target_accuracy": setup["target"],
        "deepbench_setup": setup,
        "deepbench_versions": {"deepbench": file.header["tool"], **first["versions"]},
        "deepbench_environment": first.get("environment"),
        "deepbench_machine": file.header["machine"],
        "deepbench_command": file.header["command"],
        "deepbench_parameters": first["parameters"],
    }.items():
        log.add(begin, key, value)
    log.stop(ready, "init")
    log.start(ready, "run")
    before, samples, reached = ready, 0, False
    for point, evaluation in zip(run.points, run.evaluations, strict=True):
        evaluated = before + timedelta(seconds=evaluation.event["train_s"])
        ended = evaluated + timedelta(seconds=point.evaluate_s)
        log.start(before, "block", samples_count=samples)
        samples = point.samples
        log.stop(evaluated, "block", samples_count=samples)
        log.start(evaluated, "eval", samples_count=samples)
        log.add(ended, "eval_accuracy", point.quality, samples_count=samples, metric=setup["metric"])
        log.stop(ended, "eval", samples_count=samples)
        before, reached = ended, run.samples_to_target is not None and samples >= run.samples_to_target
        if reached:
            break
    status = "success" if reached else "aborted"
    log.stop(before, "run", status=status, samples_count=samples, processes=len(run.starts))
    return log.lines


def write(file: ResultFile, folder: Path) -> list[Path]:
    """One log per run below a folder, named after its setup; `BadInput` where it cannot be written."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, run in enumerate(runs_of(file)):
            if found := lines(file, run):
                path = folder / f"{number:03}-{run.setup['application']}-{run.setup['rung']}-{run.setup['seed']}.log"
                with replacing(path, ours=True) as draft:
                    draft.write_text("\n".join(found) + "\n")
                written.append(path)
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror or error}") from None
    return written
