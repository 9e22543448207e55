"""Measured deployments: servers of language models whose time to the first token and per output token was published."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from deepbench.core.errors import BadInput, shorten
from deepbench.core.files import read_regular
from deepbench.core.json_lines import printable
from deepbench.gpus import package
from deepbench.gpus.serving.steps import FORMATS, ServedFormat, format_of_server

NAME = "silicon_sample.csv"
MOST_BYTES = 64 * 2**20
MOST_ROWS = 200_000

# Models of the rows, and our suites with their kernels.
SUITES = {
    "MiniMaxAI/MiniMax-M2.5": "llm/minimax_m25",
    "Qwen/Qwen3-235B-A22B-FP8": "llm/qwen3_235b_a22b",
    "Qwen/Qwen3-32B": "llm/qwen3_32b",
    "nvidia/Qwen3-32B-NVFP4": "llm/qwen3_32b",
    "Qwen/Qwen3.5-397B-A17B": "llm/qwen35_397b_a17b",
    "deepseek-ai/DeepSeek-R1": "mlperf/deepseek_v3_r1",
    "deepseek-ai/DeepSeek-V3": "mlperf/deepseek_v3_r1",
    "nvidia/DeepSeek-R1-NVFP4": "mlperf/deepseek_v3_r1",
    "nvidia/DeepSeek-V3.1-NVFP4": "mlperf/deepseek_v3_r1",
    "meta-llama/Llama-3.1-70B": "llm/llama31_70b",
    "meta-llama/Llama-3.1-8B-Instruct": "mlperf/llama31_8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "mlperf/llama31_8b",
    "moonshotai/Kimi-K2.5": "llm/kimi_k25",
    "openai/gpt-oss-120b": "mlperf/gpt_oss_120b",
    "zhipuai/GLM-5": "llm/glm5",
}

# Models whose published weights in 8 bits have scales for blocks; others have one per tensor.
IN_BLOCKS = (
    *("MiniMaxAI/MiniMax-M2.5", "Qwen/Qwen3-235B-A22B-FP8", "Qwen/Qwen3.5-397B-A17B", "zhipuai/GLM-5"),
    *("deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3"),
)

# Sources of rows whose requests have random lengths: InferenceX draws them between 80 % and 100 %.
_VARIED = re.compile(r"db-dump/|source_file=20\d\d-|source_file=[a-z0-9.-]*gap-analysis")

DIVISIONS = ("tensor", "data", "expert", "expert_tensor")


@dataclass(frozen=True)
class Deployment:
    """A server of a model, and what was measured of it."""

    name: str
    model: str
    suite: str
    machine: str
    framework: str
    precision: str
    batch: int
    """Requests at the same time on each group of data-parallel attention."""
    prompt: int
    output: int
    """Tokens of a request."""
    tensor: int
    data: int
    expert: int
    expert_tensor: int
    first_token_s: float
    token_s: float
    is_varied: bool
    """Whether the lengths of requests vary; otherwise all are equal, so that they begin and end together."""
    is_corrected: bool = False
    """Whether the table states other sizes of the groups than its devices allow."""

    @property
    def devices(self) -> int:
        """GPUs."""
        return self.tensor * self.data

    @property
    def parameters(self) -> tuple[tuple[str, int], ...]:
        """How the suite is divided."""
        return tuple((name, getattr(self, name)) for name in DIVISIONS)

    @property
    def format(self) -> ServedFormat:
        """The types, by the precision of the row and the published weights."""
        return format_of(self.model, self.precision, self.framework, self.machine)


def format_of(model: str, precision: str, framework: str, machine: str) -> ServedFormat:
    """In which types a server computes a model whose row states this precision."""
    name = {"fp4": "nvfp4", "int4": "int4", "bf16": "bf16", "fp8": "fp8"}.get(precision, precision)
    if name == "fp8" and model in IN_BLOCKS:
        name = "fp8_block"
    if model == "openai/gpt-oss-120b":
        name = "mxfp4"
    if name not in FORMATS:
        raise BadInput(f"wanted the precision fp8, fp4, int4 or bf16, found {shorten(printable(precision))}")
    return format_of_server(name, framework, machine)


@cache
def deployments() -> tuple[Deployment, ...]:
    """The rows that serve prompts and decoding on the same GPUs, of models that we have."""
    path = package.require_folder() / NAME
    named = printable(str(path))
    text = read_regular(path, MOST_BYTES, "a list of deployments").decode("utf-8", "replace")
    reader = csv.DictReader(io.StringIO(text), restval="")
    wanted = {"id", "mode", "model_path", "system", "backend", "precision", "isl", "osl", "batch_size", "tp_size"}
    found, number = [], 0
    try:
        if missing := sorted(wanted - set(reader.fieldnames or ())):
            raise BadInput(f"{named} has no column {missing[0]}; a list of deployments has {', '.join(sorted(wanted))}")
        for number, row in enumerate(reader, 1):
            if number > MOST_ROWS:
                raise BadInput(f"{named} has more than {MOST_ROWS} rows")
            is_ours = row["mode"] == "agg" and row["model_path"] in SUITES and package.is_machine(row["system"])
            if is_ours and (one := _deployment(row)) is not None:
                found.append(one)
    except csv.Error as error:
        raise BadInput(f"{named}: row {number + 1} is no CSV: {error}") from None
    return tuple(found)


def _deployment(row: Mapping[str, str]) -> Deployment | None:
    """A row; None for one with a size that is missing, or with GPUs of several servers."""
    sizes = {name: _whole(row.get(name)) for name in ("batch_size", "isl", "osl", "tp_size")}
    times = [_number(row.get(name)) for name in ("silicon_ttft_ms", "silicon_tpot_ms")]
    if None in sizes.values() or None in times:
        return None
    tensor, data = sizes["tp_size"] or 1, _whole(row.get("attention_dp_size")) or 1
    expert_tensor, expert = _whole(row.get("moe_tp_size")) or 1, _whole(row.get("moe_ep_size")) or 1
    batch, is_corrected = sizes["batch_size"] or 1, False
    per_node = 4 if row["system"].startswith("gb") else 8
    if tensor * data > per_node:
        # One node of 4 or 8 GPUs with experts over all of them was listed with the square of its size.
        size = max(expert, expert_tensor) if expert == expert_tensor else tensor
        if row["system"].startswith("gb") or size > per_node or size * size != tensor * data:
            return None
        whole = _concurrency(row) or batch * data
        tensor, data = (1, size) if data > 1 and tensor == 1 else (size, 1)
        batch, expert, expert_tensor, is_corrected = max(1, whole // data), size, 1, True
    if expert * expert_tensor != tensor * data:
        expert, expert_tensor = (
            (expert, tensor * data // expert) if (tensor * data) % expert == 0 else (1, tensor * data)
        )
    if "Llama" in row["model_path"] or row["model_path"].endswith(("Qwen3-32B", "Qwen3-32B-NVFP4")):
        expert = expert_tensor = 1
    return Deployment(
        name=printable(row["id"])[:200],
        model=row["model_path"],
        suite=SUITES[row["model_path"]],
        machine=row["system"].lower(),
        framework=printable(row["backend"])[:64],
        precision=printable(row["precision"])[:16] or "bf16",
        batch=batch,
        prompt=sizes["isl"] or 1,
        output=sizes["osl"] or 1,
        tensor=tensor,
        data=data,
        expert=expert,
        expert_tensor=expert_tensor,
        first_token_s=(times[0] or 0.0) * 1e-3,
        token_s=(times[1] or 0.0) * 1e-3,
        is_varied=bool(_VARIED.match(row.get("silicon_data_source") or "")),
        is_corrected=is_corrected,
    )


def _concurrency(row: Mapping[str, str]) -> int | None:
    found = re.search(r"silicon_concurrency=(\d{1,7})\b", row.get("silicon_data_source") or "")
    return int(found[1]) if found else None


def _whole(text: str | None) -> int | None:
    value = _number(text)
    return int(value) if value is not None and value == int(value) and value < 2**31 else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < 1e12 else None
