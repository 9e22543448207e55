"""`nccl`, `oneccl` and `custom_allreduce`: exchanges between the GPUs of a node.

`message_size` counts elements. It is that of the larger side: all that an all-gather gives, or a reduce-scatter takes.
Rows of frameworks that were timed with the launch by the host (`eager`) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deepbench.gpus.families.family import Family, Kernels, KernelWork
from deepbench.gpus.package import RawColumns

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
THEIRS = {"all_reduce": 0, "all_gather": 1, "reduce_scatter": 2, "alltoall": 3}
BYTES = {"half": 2, "bfloat16": 2, "int8": 1, "float": 4}


class Collectives(Family):
    """Tables of exchanges."""

    name = "collectives"
    title = "exchanges between GPUs"
    stems = ("nccl", "oneccl", "custom_allreduce")
    integers = {"num_gpus": None, "message_size": None}  # noqa: RUF012
    texts = {"op_name": "all_reduce", "nccl_dtype": "", "allreduce_dtype": "", "kernel_source": "", "backend": ""}  # noqa: RUF012
    keys = ("op", "ranks", "bytes")
    sweep = "bytes"
    smooth = True
    categories = ("op",)

    def kernels(self, columns: RawColumns, stem: str) -> dict[str, Array]:
        """Bytes of the larger side."""
        import numpy as np

        op = columns.words["op_name"].mapped(THEIRS)
        sizes = np.maximum(
            columns.words["nccl_dtype"].mapped(BYTES, 0), columns.words["allreduce_dtype"].mapped(BYTES, 0)
        )
        backend = columns.words["backend"]
        is_eager = backend.mapped({name: 1 for name in backend.values if "eager" in name}, 0)
        return {
            "op": np.where((sizes > 0) & (is_eager == 0), op, -1),
            "ranks": columns.integers["num_gpus"],
            "bytes": np.minimum(columns.integers["message_size"], 2**50) * sizes,
        }

    def work(self, kernels: Kernels) -> KernelWork:
        """The bytes that each GPU sends, twice for an all-reduce, counted as traffic of its memory."""
        import numpy as np

        ranks, size = kernels["ranks"].astype(float), kernels["bytes"].astype(float)
        sent = size * (ranks - 1) / ranks * np.where(kernels["op"] == 0, 2.0, 1.0)
        return KernelWork(np.zeros(len(ranks)), sent, np.zeros(len(ranks), np.int64))

    def case(self, kernel: Mapping[str, int]) -> str | None:
        """In 16 bits, with as many numbers as have the same bytes."""
        op = OPS[kernel["op"]]
        n, ranks = kernel["bytes"] // 2, kernel["ranks"]
        is_whole = kernel["bytes"] % 2 == 0 and (op == "all_reduce" or n % ranks == 0)
        return f"{op} n={n} bf16 ranks={ranks}" if is_whole else None

    def precision_name(self, kernel: Mapping[str, int]) -> str:
        """By bytes, so none."""
        return ""


FAMILIES = (Collectives(),)
