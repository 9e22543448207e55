"""`context_attention` and `generation_attention`: causal attention of prompts, and of one query per sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deepbench.gpus.families.family import PRECISIONS, Family, Kernels, KernelWork
from deepbench.gpus.package import RawColumns

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

BF16, FP8 = 0, 1
TYPES = {"bfloat16": BF16, "fp8": FP8}
BYTES = (2.0, 1.0)

SIZES = {"batch_size": None, "isl": None, "num_heads": None, "num_key_value_heads": None, "head_dim": None}


def type_and_cache(kernel: Mapping[str, int]) -> str:
    """`bfloat16`, or `bfloat16, cache fp8` where the types differ."""
    own, cache = (list(TYPES)[kernel[name]] for name in ("type", "cache"))
    return own if own == cache else f"{own}, cache {cache}"


class ContextAttention(Family):
    """Tables of causal attention of prompts."""

    name = "attention"
    title = "attention of prompts"
    stems = ("context_attention",)
    integers = {**SIZES, "step": 0, "window_size": 0}  # noqa: RUF012
    texts = {"attn_dtype": None, "kv_cache_dtype": None, "kernel_source": ""}  # noqa: RUF012
    keys = ("batch", "heads", "kv_heads", "head_size", "queries", "keys", "window", "type", "cache")
    sweep = "queries"
    aligned = ("head_size",)
    smooth = True
    categories = ("type", "cache")

    def kernels(self, columns: RawColumns, stem: str) -> dict[str, Array]:
        """`step` keys were computed before; a window that holds all keys is none."""
        import numpy as np

        raw = columns.integers
        keys = raw["isl"] + raw["step"]
        types = [columns.words[name].mapped(TYPES) for name in ("attn_dtype", "kv_cache_dtype")]
        window = np.where((raw["window_size"] >= keys) | (raw["window_size"] < 0), 0, raw["window_size"])
        kv_heads = np.where(raw["num_key_value_heads"] > 0, raw["num_key_value_heads"], raw["num_heads"])
        return {
            "batch": np.where(np.minimum(*types) < 0, -1, raw["batch_size"]),
            "heads": raw["num_heads"],
            "kv_heads": kv_heads,
            "head_size": raw["head_dim"],
            "queries": raw["isl"],
            "keys": keys,
            "window": window,
            "type": types[0],
            "cache": types[1],
        }

    def work(self, kernels: Kernels) -> KernelWork:
        """Four operations per visible pair and number of a head; queries, results and visible keys and values once."""
        import numpy as np

        b, h, kv, d, queries, keys, window = (kernels[name].astype(float) for name in self.keys[:7])
        window = np.where(window > 0, window, keys)
        full = np.clip(queries - np.maximum(0.0, window - (keys - queries)), 0, queries)
        growing = queries - full
        start = keys - queries
        pairs = full * window + growing * start + growing * (growing + 1) / 2
        cached = np.array(BYTES)[kernels["cache"]]
        size = 4 * b * h * d * queries + 2 * cached * b * kv * d * np.minimum(keys, window + queries)
        is_8 = np.maximum(kernels["type"], kernels["cache"])
        precision = np.where(is_8 > 0, PRECISIONS.index("f8e4m3"), PRECISIONS.index("bf16"))
        return KernelWork(4 * b * h * d * np.maximum(pairs, 1), size, precision)

    def case(self, kernel: Mapping[str, int]) -> str | None:
        """With the type of the cache as a setting; tables whose queries have 8 bits are like no case of ours."""
        if kernel["type"] == FP8:
            return None
        window = f" window={kernel['window']}" if kernel["window"] else ""
        cache = " cache_type=f8e4m3" if kernel["cache"] == FP8 else ""
        sizes = " ".join(f"{name}={kernel[name]}" for name in ("batch", "heads", "kv_heads", "queries", "keys"))
        return f"attention {sizes} head_size={kernel['head_size']} mask=causal{window} bf16{cache}"

    def precision_name(self, kernel: Mapping[str, int]) -> str:
        """The type of the queries, and of the cache where it differs."""
        return type_and_cache(kernel)


class DecodeAttention(ContextAttention):
    """Tables of attention with one query."""

    name = "attention_decode"
    title = "attention of decoding"
    stems = ("generation_attention",)
    sweep = "keys"
    smooth = True

    def work(self, kernels: Kernels) -> KernelWork:
        """The same with one query, which is multiplied in 16 bits."""
        import numpy as np

        found = super().work(kernels)
        return KernelWork(found.flop, found.bytes, np.zeros_like(found.precision))


class EncoderAttention(ContextAttention):
    """Tables of attention without a mask."""

    name = "attention_encoder"
    title = "attention of encoders"
    stems = ("encoder_attention",)
    integers = {"batch_size": None, "isl": None, "num_heads": None, "head_dim": None}  # noqa: RUF012
    texts = {"attn_dtype": None, "kernel_source": ""}  # noqa: RUF012

    def kernels(self, columns: RawColumns, stem: str) -> dict[str, Array]:
        """Every query sees every key, and each head has keys of its own."""
        raw = columns.integers
        same = {"num_key_value_heads": raw["num_heads"], "step": raw["isl"] * 0, "window_size": raw["isl"] * 0}
        words = {**columns.words, "kv_cache_dtype": columns.words["attn_dtype"]}
        return super().kernels(RawColumns({**raw, **same}, words, columns.seconds), stem)

    def work(self, kernels: Kernels) -> KernelWork:
        """All pairs."""
        b, h, _, d, queries, keys = (kernels[name].astype(float) for name in self.keys[:6])
        found = super().work(kernels)
        return KernelWork(4 * b * h * d * queries * keys, found.bytes, found.precision)

    def case(self, kernel: Mapping[str, int]) -> str | None:
        """Without a mask."""
        text = super().case(kernel)
        return text.replace("mask=causal", "mask=none") if text else None


FAMILIES = (ContextAttention(), DecodeAttention(), EncoderAttention())
