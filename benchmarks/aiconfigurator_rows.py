"""Print what NVIDIA's AIConfigurator predicts for the measured servers that its own package lists.

These are the rows of its `systems/silicon_sample.csv` that serve prompts and decoding on the same GPUs (mode "agg").

Environment: Python 3.11 or later with `pip install aiconfigurator==0.12.0 aiconfigurator-core==0.12.0`.
It needs no GPU and no network: the package holds the tables of measured kernels and the models' configurations.
Run: `python benchmarks/aiconfigurator_rows.py > predictions.jsonl`. It takes a few minutes on one core.

Each line of the output is a JSON object. Times are in milliseconds.
An answer has `id`, `ttft_ms` (time to first token), `tpot_ms` (time per output token), `version_used`
(the version of the framework whose tables were read), `formats` (the number formats that AIConfigurator used),
`formats_from` ("row" or "checkpoint") and `kv_cache_full` (true where it warns that the requests do not fit into the
key-value cache at once). A row that AIConfigurator refuses has `id` and `error`.

Choices, the same as in the accuracy test of AIConfigurator's repository (`tools/accuracy_regression_testing`):
- `batch_size` of the row is the argument `batch_size`: the requests of one rank of data-parallel attention.
- The formats of matrix products and experts are those of the row. Where the row has none, and always for attention
  and the key-value cache, AIConfigurator reads them from the model's configuration.
- No row's version of its framework has tables in this release, so AIConfigurator's default version answers.
- The token budget of a step, the memory fraction and everything else stay at their defaults.

Choices of this script, where that test needs a download or fails:
- A model whose configuration is not in the package gets one of the same architecture and size (`SAME_ARCHITECTURE`).
- Where the row's formats have no tables, but the model's published weights have the row's precision (`PUBLISHED`),
  the formats are those of these weights. AIConfigurator's importer of such rows does so for gpt-oss.
- A parallel size of 0 or none counts as not given: 1 for attention, the rest of the GPUs for experts.
"""

import argparse
import csv
import importlib.resources
import json
import logging

from aiconfigurator.cli.api import cli_estimate
from aiconfigurator.sdk.errors import PerfDataNotAvailableError
from aiconfigurator.sdk.perf_database import get_latest_database_version

# A model of the rows and its precision ("" is any) -> the configuration in the package, the key-value cache's format.
# NVIDIA's quantized checkpoints declare an 8-bit cache; None leaves the format to AIConfigurator.
SAME_ARCHITECTURE = {
    ("meta-llama/Llama-3.1-70B", ""): ("meta-llama/Meta-Llama-3.1-70B", None),
    ("meta-llama/Llama-3.1-8B-Instruct", ""): ("meta-llama/Meta-Llama-3.1-8B", None),
    ("nvidia/Llama-3.1-8B-Instruct-FP8", ""): ("meta-llama/Meta-Llama-3.1-8B", "fp8"),
    ("nvidia/Qwen3-32B-NVFP4", ""): ("Qwen/Qwen3-32B", "fp8"),
    ("nvidia/DeepSeek-R1-NVFP4", ""): ("nvidia/DeepSeek-V3.1-NVFP4", None),
    ("zhipuai/GLM-5", "fp8"): ("zai-org/GLM-5-FP8", None),
    ("zhipuai/GLM-5", "fp4"): ("nvidia/GLM-5-NVFP4", None),
}
# The models and precisions of the rows for which the configuration in the package describes the same formats.
PUBLISHED = {
    ("MiniMaxAI/MiniMax-M2.5", "fp8"),
    ("deepseek-ai/DeepSeek-R1", "fp8"),
    ("deepseek-ai/DeepSeek-V3", "fp8"),
    ("moonshotai/Kimi-K2.5", "int4"),
    ("openai/gpt-oss-120b", "fp4"),
    ("openai/gpt-oss-120b", "fp8"),
}
SIZES = ("batch_size", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")


def arguments(row: dict[str, str]) -> dict[str, str | int | None]:
    """The arguments of AIConfigurator's estimate for a row, but the framework's version."""
    model = row["model_path"]
    keys = [key for key in ((model, ""), (model, row["precision"])) if key in SAME_ARCHITECTURE]
    path, cache = SAME_ARCHITECTURE[keys[0]] if keys else (model, None)
    return {
        "model_path": path,
        "system_name": row["system"],
        "backend_name": row["backend"],
        "isl": int(row["isl"]),
        "osl": int(row["osl"]),
        "gemm_quant_mode": row["gemm_quant_mode"] or None,
        "moe_quant_mode": row["moe_quant_mode"] or None,
        "kvcache_quant_mode": cache,
        **{size: int(row[size]) for size in SIZES if row[size] and int(row[size]) > 0},
    }


def answer(row: dict[str, str], version: str | None) -> dict[str, object]:
    """AIConfigurator's prediction for a row from the tables of a framework's version, or its refusal."""
    wanted, formats_from = arguments(row) | {"backend_version": version}, "row"
    try:
        try:
            estimate = cli_estimate(**wanted)
        except PerfDataNotAvailableError:
            if (row["model_path"], row["precision"]) not in PUBLISHED:
                raise
            estimate = cli_estimate(**wanted | {"gemm_quant_mode": None, "moe_quant_mode": None})
            formats_from = "checkpoint"
    except Exception as problem:  # whatever AIConfigurator raises is its answer to this row
        sentence = " ".join(str(problem).split()).split(" at /")[0]  # without the folder of the tables
        return {"id": row["id"], "error": f"{type(problem).__name__}: {sentence[:400]}"}
    return {
        "id": row["id"],
        "ttft_ms": float(estimate.ttft),
        "tpot_ms": float(estimate.tpot),
        "version_used": estimate.backend_version,
        "formats": {part: estimate.raw[part] for part in ("gemm", "moe", "kvcache", "fmha")},
        "formats_from": formats_from,
        "kv_cache_full": estimate.kv_cache_warning is not None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="only rows whose model has this text in its name")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # it warns once per row and file
    table = importlib.resources.files("aiconfigurator_core") / "systems" / "silicon_sample.csv"
    with table.open(newline="") as text:
        rows = [row for row in csv.DictReader(text) if row["mode"] == "agg" and options.model in row["model_path"]]
    versions: dict[tuple[str, str], str | None] = {}
    # Rows of one system and framework follow each other: AIConfigurator keeps the tables that it has loaded.
    for row in sorted(rows, key=lambda row: (row["system"], row["backend"], row["model_path"])):
        server = (row["system"], row["backend"])
        if server not in versions:  # the look-up reads hundreds of files
            versions[server] = get_latest_database_version(*server)
        print(json.dumps(answer(row, versions[server])), flush=True)


if __name__ == "__main__":
    main()
