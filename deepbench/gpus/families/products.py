"""`gemm`: fully connected layers without bias, result in bf16. Their m is tokens, n outputs, k inputs.

With 8 bits and fewer, the time includes the conversion of the activations (docs/gpu-tables.md). Types:

    bfloat16     bf16 · bf16
    fp8          both e4m3, one scale per tensor or per row
    fp8_block    both e4m3, scales for blocks of 128 × 128 weights and of 1 × 128 activations
    nvfp4        both e2m1, scales (e4m3) for blocks of 16
    sq           both 8-bit integers
    int8_wo      bf16 · 8-bit integers
    int4_wo      bf16 · 4-bit integers
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deepbench.gpus.families.family import PRECISIONS, Family, Kernels, KernelWork
from deepbench.gpus.package import RawColumns
from deepbench.gpus.sheet import Sheet

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

TYPES = ("bfloat16", "fp8", "fp8_block", "nvfp4", "sq", "int8_wo", "int4_wo")
MULTIPLIED = ("bf16", "f8e4m3", "f8e4m3", "nvfp4", "i8", "bf16", "bf16")
WEIGHT_BYTES = (2.0, 1.0, 1.0, 0.5625, 1.0, 1.0, 0.5)
DATA_BYTES = (2.0, 1.0, 1.0, 0.5625, 1.0, 2.0, 2.0)

# Our words for a case: operation, precision, settings. Tables do not say how many integers share a scale.
CASES = {
    "bfloat16": "linear m={n} n={m} k={k} bf16 bias=no",
    "fp8": "linear m={n} n={m} k={k} f8e4m3 bias=no",
    "fp8_block": "linear m={n} n={m} k={k} f8e4m3 bias=no scales=block",
    "nvfp4": "linear m={n} n={m} k={k} nvfp4 bias=no",
    "int8_wo": "weight_only_gemm m={n} n={m} k={k} group={k} bits=8 bf16",
    "int4_wo": "weight_only_gemm m={n} n={m} k={k} group=128 bits=4 bf16",
}


class Products(Family):
    """Tables of products."""

    name = "linear"
    title = "fully connected layers"
    stems = ("gemm",)
    integers = {"m": None, "n": None, "k": None}  # noqa: RUF012
    texts = {"gemm_dtype": None, "kernel_source": ""}  # noqa: RUF012
    keys = ("m", "n", "k", "type")
    sweep = "m"
    aligned = ("n", "k")
    groups = ("type",)
    categories = ("type",)

    def kernels(self, columns: RawColumns, stem: str) -> dict[str, Array]:
        """Sizes as in the table."""
        kind = columns.words["gemm_dtype"].mapped({name: i for i, name in enumerate(TYPES)})
        return {**{name: columns.integers[name] for name in "mnk"}, "type": kind}

    def work(self, kernels: Kernels) -> KernelWork:
        """2·m·n·k; weights, activations and result once."""
        import numpy as np

        m, n, k = (kernels[name].astype(float) for name in "mnk")
        kind = kernels["type"]
        size = np.array(WEIGHT_BYTES)[kind] * n * k + np.array(DATA_BYTES)[kind] * m * k + 2 * m * n
        return KernelWork(2 * m * n * k, size, np.array([PRECISIONS.index(name) for name in MULTIPLIED])[kind])

    def features(self, kernels: Kernels, sheet: Sheet) -> list[Array]:
        """Waves of tiles, alignment, and whether the weights stay in the cache."""
        import numpy as np

        m, n, k = (kernels[name].astype(float) for name in "mnk")
        units = sheet.chip.units
        tiles = ((128, 128), (128, 256), (64, 64))
        waves = [np.ceil(m / rows) * np.ceil(n / columns) / units for rows, columns in tiles]
        aligned = np.zeros(len(m))
        for power in (2, 8, 16, 64):
            aligned += kernels["m"] % power == 0
        weights = np.array(WEIGHT_BYTES)[kernels["type"]] * n * k
        return [
            *(np.ceil(wave) / wave for wave in waves),
            np.log2(waves[0]),
            np.ceil(m / 64) * 64 / m,
            aligned,
            np.log2(m * n),
            np.log2(weights / sheet.chip.cache_bytes),
        ]

    def case(self, kernel: Mapping[str, int]) -> str | None:
        """Ours call the outputs m and the tokens n."""
        text = CASES.get(TYPES[kernel["type"]])
        if text is None or (TYPES[kernel["type"]] == "int4_wo" and kernel["k"] % 128):
            return None
        return text.format(**kernel)

    def precision_name(self, kernel: Mapping[str, int]) -> str:
        """The table's own word."""
        return TYPES[kernel["type"]]


FAMILIES = (Products(),)
