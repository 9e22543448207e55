"""`context_mla`, `generation_mla`, `mla_bmm`: multi-head latent attention with the sizes of DeepSeek-V3.

Prompts have heads of 192 numbers with values of 128; decoding reads compressed keys and values of 576 numbers that all
heads share. `mla_bmm` multiplies each head by the weights that compress and expand: before (128 → 512) and after
attention (512 → 128).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deepbench.gpus.families.attention import BYTES, FP8, TYPES, type_and_cache
from deepbench.gpus.families.family import PRECISIONS, Family, Kernels, KernelWork
from deepbench.gpus.package import RawColumns

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

PLAIN, ROTARY, VALUE, RANK = 128, 64, 128, 512


class LatentPrompts(Family):
    """Tables of latent attention of prompts."""

    name = "latent_attention"
    title = "latent attention of prompts"
    stems = ("context_mla",)
    integers = {"num_heads": None, "batch_size": None, "isl": None, "step": 0}  # noqa: RUF012
    texts = {"mla_dtype": None, "kv_cache_dtype": None, "kernel_source": ""}  # noqa: RUF012
    keys = ("batch", "heads", "queries", "keys", "type", "cache")
    sweep = "queries"
    smooth = True
    categories = ("type", "cache")

    def kernels(self, columns: RawColumns, stem: str) -> dict[str, Array]:
        """Heads are those of one GPU."""
        import numpy as np

        raw = columns.integers
        types = [columns.words[name].mapped(TYPES) for name in ("mla_dtype", "kv_cache_dtype")]
        return {
            "batch": np.where(np.minimum(*types) < 0, -1, raw["batch_size"]),
            "heads": raw["num_heads"],
            "queries": raw["isl"],
            "keys": raw["isl"] + raw["step"],
            "type": types[0],
            "cache": types[1],
        }

    def work(self, kernels: Kernels) -> KernelWork:
        """Two operations per visible pair, and number of keys and of values."""
        import numpy as np

        b, h, queries, keys = (kernels[name].astype(float) for name in self.keys[:4])
        pairs = queries * (keys - queries) + queries * (queries + 1) / 2
        flop = 2 * b * h * pairs * (PLAIN + ROTARY + VALUE)
        size = 2 * b * h * (queries + keys) * (PLAIN + ROTARY + VALUE)
        return KernelWork(flop, size, _precision(np.maximum(kernels["type"], 0)))

    def case(self, kernel: Mapping[str, int]) -> str | None:
        """Attention with values that are smaller than keys."""
        if FP8 in (kernel["type"], kernel["cache"]):
            return None
        return (
            "attention batch={batch} heads={heads} kv_heads={heads} queries={queries} keys={keys} head_size=192 "
            "value_size=128 mask=causal bf16"
        ).format(**kernel)

    def precision_name(self, kernel: Mapping[str, int]) -> str:
        """The type of the queries, and of the cache where it differs."""
        return type_and_cache(kernel)


class LatentDecoding(LatentPrompts):
    """Tables of latent attention with one query."""

    name = "latent_attention_decode"
    title = "latent attention of decoding"
    stems = ("generation_mla",)
    sweep = "keys"
    smooth = True

    def work(self, kernels: Kernels) -> KernelWork:
        """The compressed keys are read once, and their first numbers are the values."""
        import numpy as np

        b, h, _, keys = (kernels[name].astype(float) for name in self.keys[:4])
        cached = np.array(BYTES)[kernels["cache"]]
        size = cached * b * keys * (RANK + ROTARY) + 2 * b * h * (2 * RANK + ROTARY)
        return KernelWork(2 * b * h * keys * (2 * RANK + ROTARY), size, _precision(np.maximum(kernels["type"], 0)))

    def case(self, kernel: Mapping[str, int]) -> str | None:
        """Our case reads values beside the keys: 1.9 times the bytes; so it is not the same work."""
        return None


class LatentProducts(Family):
    """Tables of products with compressed heads."""

    name = "latent_products"
    title = "products of compressed heads"
    stems = ("mla_bmm",)
    integers = {"num_tokens": None, "num_heads": None}  # noqa: RUF012
    texts = {"bmm_dtype": None, "op_name": None, "kernel_source": ""}  # noqa: RUF012
    keys = ("tokens", "heads", "after", "type")
    sweep = "tokens"
    smooth = True
    categories = ("after", "type")

    def kernels(self, columns: RawColumns, stem: str) -> dict[str, Array]:
        """`after`: whether it follows attention."""
        import numpy as np

        kind = columns.words["bmm_dtype"].mapped(TYPES)
        after = columns.words["op_name"].mapped({"mla_gen_pre": 0, "mla_gen_post": 1})
        tokens = np.where(np.minimum(kind, after) < 0, -1, columns.integers["num_tokens"])
        return {"tokens": tokens, "heads": columns.integers["num_heads"], "after": after, "type": kind}

    def work(self, kernels: Kernels) -> KernelWork:
        """Weights, activations and results once."""
        import numpy as np

        tokens, heads = (kernels[name].astype(float) for name in ("tokens", "heads"))
        flop = 2 * tokens * heads * PLAIN * RANK
        size = np.array(BYTES)[kernels["type"]] * heads * PLAIN * RANK + 2 * tokens * heads * (PLAIN + RANK)
        return KernelWork(flop, size, _precision(kernels["type"]))

    def case(self, kernel: Mapping[str, int]) -> str | None:
        """A product for each head."""
        if kernel["type"] == FP8:
            return None
        n, k = (PLAIN, RANK) if kernel["after"] else (RANK, PLAIN)
        return f"batched_gemm batch={kernel['heads']} m={kernel['tokens']} n={n} k={k} bf16"

    def precision_name(self, kernel: Mapping[str, int]) -> str:
        """The table's own word."""
        return list(TYPES)[kernel["type"]]


def _precision(kind: Array) -> Array:
    import numpy as np

    return np.where(kind > 0, PRECISIONS.index("f8e4m3"), PRECISIONS.index("bf16"))


FAMILIES = (LatentPrompts(), LatentDecoding(), LatentProducts())
