"""`gdn`: the convolution and the recurrence of a gated delta net (Yang et al., 2024), for prompts and for one token.

Heads are those of one GPU; each has 128 numbers. We have no operation for the recurrence, so no row is a case of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deepbench.gpus.families.family import Family, Kernels, KernelWork
from deepbench.gpus.package import RawColumns

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

SIZE, TAPS = 128, 4
CONVOLUTION, RECURRENCE = 0, 1


class Delta(Family):
    """Tables of gated delta nets."""

    name = "delta"
    title = "gated delta nets"
    stems = ("gdn",)
    integers = {  # noqa: RUF012
        **dict.fromkeys(("batch_size", "seq_len", "num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim"), None)
    }
    texts = {"kernel_source": None, "phase": None}  # noqa: RUF012
    keys = ("batch", "length", "key_heads", "value_heads", "part", "decoding")
    sweep = "batch"
    smooth = True
    categories = ("part", "decoding")

    def kernels(self, columns: RawColumns, stem: str) -> dict[str, Array]:
        """`part` is the convolution or the recurrence."""
        import numpy as np

        raw, source = columns.integers, columns.words["kernel_source"]
        part = source.mapped({name: CONVOLUTION if "conv" in name else RECURRENCE for name in source.values})
        decoding = columns.words["phase"].mapped({"context": 0, "generation": 1})
        known = (raw["head_k_dim"] == SIZE) & (raw["head_v_dim"] == SIZE) & (decoding >= 0)
        return {
            "batch": np.where(known, raw["batch_size"], -1),
            "length": raw["seq_len"],
            "key_heads": raw["num_k_heads"],
            "value_heads": raw["num_v_heads"],
            "part": part,
            "decoding": decoding,
        }

    def work(self, kernels: Kernels) -> KernelWork:
        """Inputs and results once, in 16 bits; the recurrence also reads and writes its state, and updates it twice."""
        import numpy as np

        batch, length, keys, values = (kernels[name].astype(float) for name in self.keys[:4])
        channels = (2 * keys + values) * SIZE
        is_state = kernels["part"] == RECURRENCE
        state = values * SIZE * SIZE
        flop = np.where(is_state, 6 * batch * length * state, 2 * TAPS * batch * length * channels)
        size = 4 * batch * length * channels + np.where(is_state, 4 * batch * state, 0.0)
        return KernelWork(flop, size, np.zeros(len(batch), np.int64))

    def case(self, kernel: Mapping[str, int]) -> str | None:
        """We have no such operation."""
        return None

    def precision_name(self, kernel: Mapping[str, int]) -> str:
        """Not stated."""
        return ""


FAMILIES = (Delta(),)
