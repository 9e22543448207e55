"""What a family of tables says about itself: its columns, the work of its rows, and our case for each row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.gpus.package import RawColumns
from deepbench.gpus.sheet import Sheet

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Kernels = Mapping[str, "Array"]
"""Kernels of a family: an array of whole numbers for each of its `keys`."""


@dataclass(frozen=True)
class KernelWork:
    """What kernels compute, by kernel."""

    flop: Array
    bytes: Array
    """Least bytes that are read and written."""
    precision: Array
    """The type that is multiplied, as an index of `PRECISIONS`."""


PRECISIONS = ("bf16", "f8e4m3", "nvfp4", "i8")


class Family(ABC):
    """Tables whose rows mean the same."""

    name: str
    """The name that `published show --op` takes."""
    title: str
    stems: tuple[str, ...]
    """Names of the files, without their ending."""
    integers: Mapping[str, int | None]
    """Columns of the files, as `package.read` takes them."""
    texts: Mapping[str, str | None]
    keys: tuple[str, ...]
    """What identifies a kernel: sizes, and codes of types."""
    sweep: str
    """The size in which neighbours are compared: the others are equal."""
    smooth: bool = False
    """Whether a time between two of the table, which differ in the swept size alone, lies on the line between them."""
    aligned: tuple[str, ...] = ()
    """Sizes for which libraries choose other kernels where 8 does not divide them."""
    groups: tuple[str, ...] = ()
    """Keys whose values have a model of their own."""
    categories: tuple[str, ...] = ()
    """Keys that are names and no sizes."""

    @abstractmethod
    def kernels(self, columns: RawColumns, stem: str) -> dict[str, Array]:
        """The keys of all rows; a row that no operation of ours is like has -1 in its first key."""

    def line(self, kernels: Kernels) -> list[Array]:
        """What is equal in kernels that differ in the swept size alone. With queries, as many keys are added."""
        if self.sweep == "queries":
            others = [kernels[name] for name in self.keys if name not in ("queries", "keys")]
            return [*others, kernels["keys"] - kernels["queries"]]
        return [kernels[name] for name in self.keys if name != self.sweep]

    @abstractmethod
    def work(self, kernels: Kernels) -> KernelWork:
        """Arithmetic and traffic."""

    def least_bytes(self, kernels: Kernels) -> Array:
        """Bytes that a kernel reads and writes for certain; a time that is too short for these cannot be."""
        return self.work(kernels).bytes

    @abstractmethod
    def case(self, kernel: Mapping[str, int]) -> str | None:
        """The text of our case, without library; None where no operation of ours is like it."""

    def features(self, kernels: Kernels, sheet: Sheet) -> list[Array]:
        """What the time depends on, besides sizes, arithmetic and traffic."""
        return []

    def precision_name(self, kernel: Mapping[str, int]) -> str:
        """What a table for people shows as the type."""
        return ""
