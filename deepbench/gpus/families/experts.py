"""`moe`: the experts of a layer: both products of each, the activation, conversions and the permutation of tokens.

The tokens are those of all GPUs that share the experts, and the time is that of the busiest GPU, which has
experts / expert_parallel of them, each with inner / tensor columns. The router and the exchange of tokens between GPUs
are not included (docs/gpu-tables.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deepbench.gpus.families.family import PRECISIONS, Family, Kernels, KernelWork
from deepbench.gpus.package import RawColumns

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

TYPES = ("bfloat16", "fp8", "fp8_block", "nvfp4", "int4_wo", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8", "int8_wo", "w4afp8")
MULTIPLIED = ("bf16", "f8e4m3", "f8e4m3", "nvfp4", "bf16", "bf16", "f8e4m3", "bf16", "f8e4m3")
WEIGHT_BYTES = (2.0, 1.0, 1.0, 0.5625, 0.5156, 0.53125, 0.53125, 1.0, 0.5156)

# Shares of tokens per expert: equal, or following a power law with this exponent.
ROUTINGS = ("balanced", "power_law_1.01", "power_law_1.2")

# Sizes (hidden, inner) of models whose experts have no gate: two matrices per expert instead of three.
WITHOUT_GATE = {(2688, 1856), (4096, 2688), (2048, 5120), (8192, 5120), (1024, 2688)}

# With a power law, at least this share of the experts gets a token that equal shares would reach: 0.79 to 0.81 of 222
# experts in simulated draws for 64 tokens of DeepSeek-V3, with a margin because the tables do not state their law.
LEAST_HIT = 0.65


class Experts(Family):
    """Tables of layers of experts."""

    name = "experts"
    title = "layers of experts"
    stems = ("moe",)
    integers = {  # noqa: RUF012
        **dict.fromkeys(("num_tokens", "hidden_size", "inter_size", "topk", "num_experts"), None),
        **{"moe_tp_size": None, "moe_ep_size": None},
    }
    texts = {"moe_dtype": None, "distribution": "balanced", "kernel_source": ""}  # noqa: RUF012
    keys = ("tokens", "hidden", "inner", "active", "experts", "tensor", "expert_parallel", "type", "routing")
    sweep = "tokens"
    smooth = True
    aligned = ("hidden", "inner")
    groups = ("type",)
    categories = ("type", "routing")

    def kernels(self, columns: RawColumns, stem: str) -> dict[str, Array]:
        """Sizes as in the table."""
        import numpy as np

        raw = columns.integers
        kind = columns.words["moe_dtype"].mapped({name: i for i, name in enumerate(TYPES)})
        routing = columns.words["distribution"].mapped({name: i for i, name in enumerate(ROUTINGS)})
        # With grouped routing, half of the experts of this model got no token in these tables.
        ours = np.minimum(kind, routing)
        faulty = (routing == 0) & (raw["num_experts"] == 256) & (raw["hidden_size"] == 7168)
        return {
            "tokens": np.where((ours < 0) | faulty, -1, raw["num_tokens"]),
            "hidden": raw["hidden_size"],
            "inner": raw["inter_size"],
            "active": raw["topk"],
            "experts": raw["num_experts"],
            "tensor": raw["moe_tp_size"],
            "expert_parallel": raw["moe_ep_size"],
            "type": kind,
            "routing": routing,
        }

    def work(self, kernels: Kernels) -> KernelWork:
        """Of the mean GPU; experts that get no token by chance are not read."""
        import numpy as np

        tokens, hidden, inner, active, experts, tensor, parallel = (
            kernels[name].astype(float) for name in self.keys[:7]
        )
        kind = kernels["type"]
        pairs = np.unique(np.stack([kernels["hidden"], kernels["inner"]]), axis=1).T.tolist()
        matrices = np.full(len(tokens), 3.0)
        for pair in pairs:
            if tuple(pair) in WITHOUT_GATE:
                matrices[(kernels["hidden"] == pair[0]) & (kernels["inner"] == pair[1])] = 2.0
        rows, local = tokens * active / parallel, experts / parallel
        hit = local * (1 - np.exp(-rows / local))
        size = matrices * hidden * inner / tensor
        traffic = np.array(WEIGHT_BYTES)[kind] * size * hit + 4 * rows * hidden
        return KernelWork(2 * size * rows, traffic, np.array([PRECISIONS.index(name) for name in MULTIPLIED])[kind])

    def least_bytes(self, kernels: Kernels) -> Array:
        """With a power law, fewer experts get a token than with equal shares; how many is not stated."""
        import numpy as np

        found: Array = self.work(kernels).bytes * np.where(kernels["routing"] > 0, LEAST_HIT, 1.0)
        return found

    def features(self, kernels: Kernels, sheet: Any) -> list[Array]:
        """Rows per expert and per GPU."""
        import numpy as np

        tokens, _, inner, active, experts, tensor, parallel = (kernels[name].astype(float) for name in self.keys[:7])
        return [np.log2(tokens * active / experts), np.log2(tokens * active / parallel), np.log2(inner / tensor)]

    def case(self, kernel: Mapping[str, int]) -> str | None:
        """The first product of the layer, which is a part of the time: see docs/gpu-tables.md."""
        return None

    def precision_name(self, kernel: Mapping[str, int]) -> str:
        """The table's own word, and how tokens are routed."""
        return f"{TYPES[kernel['type']]}, {ROUTINGS[kernel['routing']]}"


FAMILIES = (Experts(),)
