"""A small package of published kernel times, whose every time follows from a formula.

Two GPUs have tables of all families and of two frameworks. A time is

    START_S + max(operations / (0.8 · peak), bytes / (0.8 · bandwidth))

with the operations and bytes that are counted here, row by row, and not by the code that is tested.
"""

import functools
import itertools
import sys

import pyarrow as pa
from pyarrow import parquet

START_S = 5e-6
SHARE = 0.8

# How much longer each framework takes.
FRAMEWORKS = {"trtllm": 1.0, "vllm": 1.1}
VERSIONS = {"trtllm": "1.3.0rc20", "vllm": "0.24.0"}

SHEETS = {
    "h100_sxm": {"mem_bw": 3.35e12, "mem_capacity": 85899345920, "bf16": 989e12, "fp8": 1978e12, "link": 450e9},
    "l40s": {"mem_bw": 864e9, "mem_capacity": 48 * 2**30, "bf16": 362e12, "fp8": 733e12, "link": 32e9},
}


def sheet_text(facts):
    """A data sheet in YAML, as the package has them."""
    return f"""# A comment.
data_dir: data
gpu:
  mem_bw: {facts["mem_bw"]:.0f} # bytes per second
  mem_capacity: {facts["mem_capacity"]}
  bfloat16_tc_flops: {facts["bf16"]:.0f}
  int8_tc_flops: {facts["fp8"]:.0f}
  fp8_tc_flops: {facts["fp8"]:.0f}
  power: 700
node:
  num_gpus_per_node: 8
  intra_node_bw: {facts["link"]:.0f}
misc:
  nccl_mem:
    1: 0
  nccl_version: '2.27.3'
"""


def write(root, machine, place, rows, **options):
    """A table of rows at `family/framework/version/stem`; a column that only some rows have is an error."""
    path = root / "data" / machine / f"{place}_perf.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows))
    parquet.write_table(table, path, **options)
    return path


def write_sheet(root, machine, facts=None):
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{machine}.yaml"
    path.write_text(sheet_text(facts or SHEETS["h100_sxm"]))
    return path


def time_ms(machine, flop, size, factor=1.0, precision="bf16"):
    facts = SHEETS[machine]
    peak = facts[precision]
    return 1e3 * factor * (START_S + max(flop / (SHARE * peak), size / (SHARE * facts["mem_bw"])))


# ---- rows: what the columns are called, and the formula

POWERS = [2**i for i in range(14)]  # 1 to 8192
WIDTHS = (512, 1024, 2048, 4096, 8192)


def gemm(machine, factor):
    for m, n, k, (kind, size) in itertools.product(POWERS, WIDTHS, WIDTHS, (("bfloat16", 2), ("fp8", 1))):
        traffic = size * (n * k + m * k) + 2 * m * n
        ms = time_ms(machine, 2 * m * n * k, traffic, factor, "fp8" if size == 1 else "bf16")
        yield {"gemm_dtype": kind, "m": m, "n": n, "k": k, "kernel_source": "a", "latency": ms}


def context_attention(machine, factor):
    sizes = itertools.product((1, 4), POWERS[5:], (8, 16, 32), (1, 8), (64, 128))
    for batch, length, heads, kv_heads, head in sizes:
        flop = 4 * batch * heads * head * length * (length + 1) / 2
        traffic = 4 * batch * head * length * (heads + kv_heads)
        yield {
            "batch_size": batch,
            "isl": length,
            "num_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head,
            "attn_dtype": "bfloat16",
            "kv_cache_dtype": "bfloat16",
            "latency": time_ms(machine, flop, traffic, factor),
        }


def generation_attention(machine, factor):
    sizes = itertools.product((1, 4, 16, 64), POWERS[5:], (8, 16, 32), (1, 8), (64, 128))
    for batch, length, heads, kv_heads, head in sizes:
        traffic = 4 * batch * head * (heads + length * kv_heads)
        yield {
            "batch_size": batch,
            "isl": 1,
            "step": length - 1,
            "num_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head,
            "attn_dtype": "bfloat16",
            "kv_cache_dtype": "bfloat16",
            "window_size": 0,
            "latency": time_ms(machine, 4 * batch * heads * head * length, traffic, factor),
        }


# (hidden, inner, experts per token, experts)
LAYERS_OF_EXPERTS = ((2048, 768, 8, 128), (2048, 1408, 6, 64))


def moe(machine, factor):
    divisions = ((1, 1), (2, 1), (1, 2), (8, 1), (1, 8))
    sizes = itertools.product(POWERS, LAYERS_OF_EXPERTS, divisions, (("bfloat16", 2), ("fp8", 1)))
    for tokens, (hidden, inner, active, experts), (tensor, parallel), (kind, size) in sizes:
        rows, local = tokens * active / parallel, experts / parallel
        traffic = size * 3 * hidden * inner / tensor * min(local, rows) + 4 * rows * hidden
        flop = 6 * rows * hidden * inner / tensor
        yield {
            "num_tokens": tokens,
            "hidden_size": hidden,
            "inter_size": inner,
            "topk": active,
            "num_experts": experts,
            "moe_tp_size": tensor,
            "moe_ep_size": parallel,
            "moe_dtype": kind,
            "distribution": "power_law_1.01",
            "latency": time_ms(machine, flop, traffic, factor, "fp8" if size == 1 else "bf16"),
        }


def exchange_ms(machine, size, ranks, factor=1.0):
    return 1e3 * factor * (START_S + size * (ranks - 1) / ranks / (SHARE * SHEETS[machine]["link"]))


def nccl(machine):
    ops = {"all_gather": 1, "reduce_scatter": 1, "alltoall": 1, "all_reduce": 2}
    for op, ranks, power in itertools.product(ops, (2, 4, 8), range(8, 28)):
        ms = exchange_ms(machine, 2 * 2**power * ops[op], ranks)
        yield {"op_name": op, "nccl_dtype": "half", "num_gpus": ranks, "message_size": 2**power, "latency": ms}


def custom_allreduce(machine, factor):
    for ranks, power, (backend, more) in itertools.product(
        (2, 4, 8), range(8, 28), (("vllm_graph", 0.0), ("vllm_eager", 0.04))
    ):
        ms = exchange_ms(machine, 2 * 2 * 2**power, ranks, factor) + more
        yield {
            "allreduce_dtype": "bfloat16",
            "num_gpus": ranks,
            "message_size": 2**power,
            "backend": backend,
            "latency": ms,
        }


def context_mla(machine, factor):
    for batch, length, heads in itertools.product((1, 4), POWERS[5:], (2, 4, 8, 16)):
        flop = 2 * batch * heads * 320 * length * (length + 1) / 2
        ms = time_ms(machine, flop, 2 * batch * heads * 2 * length * 320, factor)
        yield {
            "mla_dtype": "bfloat16",
            "kv_cache_dtype": "bfloat16",
            "num_heads": heads,
            "batch_size": batch,
            "isl": length,
            "tp_size": 1,
            "step": 0,
            "latency": ms,
        }


def generation_mla(machine, factor):
    for batch, length, heads in itertools.product((1, 8, 64), POWERS[5:], (2, 4, 8, 16)):
        flop = 2 * batch * heads * length * (576 + 512)
        ms = time_ms(machine, flop, 2 * batch * (length * 576 + heads * 1088), factor)
        yield {
            "mla_dtype": "bfloat16",
            "kv_cache_dtype": "bfloat16",
            "num_heads": heads,
            "batch_size": batch,
            "isl": 1,
            "tp_size": 1,
            "step": length - 1,
            "latency": ms,
        }


def mla_bmm(machine, factor):
    for tokens, heads, op in itertools.product(POWERS, (2, 4, 8, 16), ("mla_gen_pre", "mla_gen_post")):
        traffic = 2 * heads * 128 * 512 + 2 * tokens * heads * 640
        ms = time_ms(machine, 2 * tokens * heads * 128 * 512, traffic, factor)
        yield {"bmm_dtype": "bfloat16", "num_tokens": tokens, "num_heads": heads, "op_name": op, "latency": ms}


def gdn(machine, factor):
    kinds = (("causal_conv1d_fn", False, "context"), ("chunk_gated_delta_rule", True, "context"))
    for batch, length, (heads, values), (source, is_state, phase) in itertools.product(
        (1, 4), POWERS[5:], ((16, 32), (2, 8)), kinds
    ):
        channels, state = (2 * heads + values) * 128, values * 128 * 128
        flop = 6 * batch * length * state if is_state else 8 * batch * length * channels
        traffic = 4 * batch * length * channels + (4 * batch * state if is_state else 0)
        yield {
            "kernel_source": source,
            "phase": phase,
            "batch_size": batch,
            "seq_len": length,
            "num_k_heads": heads,
            "num_v_heads": values,
            "head_k_dim": 128,
            "head_v_dim": 128,
            "latency": time_ms(machine, flop, traffic, factor),
        }


TABLES = {
    "gemm": ("gemm", gemm),
    "context_attention": ("attention", context_attention),
    "generation_attention": ("attention", generation_attention),
    "moe": ("moe", moe),
    "context_mla": ("mla", context_mla),
    "generation_mla": ("mla", generation_mla),
    "mla_bmm": ("mla_bmm", mla_bmm),
    "gdn": ("linear_attention", gdn),
}

DEPLOYMENT = {
    "id": "one",
    "silicon_data_source": "db-dump/2026-04-27; silicon_concurrency=64",
    "backend": "vllm",
    "model_path": "meta-llama/Llama-3.1-70B",
    "system": "h100_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": "1024",
    "osl": "512",
    "batch_size": "16",
    "tp_size": "8",
    "attention_dp_size": "1",
    "moe_tp_size": "1",
    "moe_ep_size": "1",
    "silicon_ttft_ms": "250",
    "silicon_tpot_ms": "20",
}


def write_deployments(root, *rows, without=()):
    """`silicon_sample.csv` with rows that differ from `DEPLOYMENT` as stated."""
    names = [name for name in DEPLOYMENT if name not in without]
    lines = [names, *([{**DEPLOYMENT, **row}[name] for name in names] for row in rows)]
    root.mkdir(parents=True, exist_ok=True)
    path = root / "silicon_sample.csv"
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    return path


def write_package(root):
    """All of it."""
    for machine, facts in SHEETS.items():
        write_sheet(root, machine, facts)
        for framework, factor in FRAMEWORKS.items():
            for stem, (folder, rows_of) in TABLES.items():
                write(root, machine, f"{folder}/{framework}/{VERSIONS[framework]}/{stem}", rows_of(machine, factor))
        write(root, machine, "comm/nccl/2.27.3/nccl", nccl(machine))
        write(root, machine, "comm/vllm/0.24.0/custom_allreduce", custom_allreduce(machine, 1.2))
        write(root, machine, "mhc/vllm/0.24.0/mhc_module", [{"latency": 1.0}] * 3)
    write_deployments(root, {}, {"id": "two", "batch_size": "32"})
    return root


def forget():
    """Empty all caches of the wing, as if the process had just begun."""
    for name, module in list(sys.modules.items()):
        if name.startswith("deepbench.gpus"):
            for value in vars(module).values():
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()
