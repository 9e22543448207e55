"""Fashion-MNIST: small grey pictures of clothes in ten classes (Xiao and others, 2017)."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepbench.applications.datasets import Dataset, Package

PLACE = "usr/share/datasets/fashion-mnist"

IDX_HEADERS = {"idx3": 16, "idx1": 8}


class Pictures(NamedTuple):
    """Pictures of 28 × 28 bytes, and the class of each."""

    train: NDArray[np.uint8]
    """60,000 × 28 × 28."""
    train_classes: NDArray[np.uint8]
    test: NDArray[np.uint8]
    """10,000 × 28 × 28."""
    test_classes: NDArray[np.uint8]


class FashionMnist(Dataset):
    """The files of Zalando, as Debian has them."""

    name = "fashion-mnist"
    title = "Fashion-MNIST"
    about = "70,000 grey pictures of clothes, 28 × 28, in ten classes"
    licence = "MIT, Zalando SE"
    packages = (
        Package(
            "debian",
            "dataset-fashion-mnist",
            "0.0~git20200523.55506a9-1",
            30_900_652,
            "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
        ),
    )
    files = (f"{PLACE}/*-ubyte.gz",)
    digest = "b656ebbff88e74887b545d5a6b12b0790208e6c606fc37b568a10a2b737f62f9"

    def load(self, folder: Path) -> Pictures:
        """All pictures and classes."""

        def read(name: str) -> NDArray[np.uint8]:
            content = gzip.decompress((folder / PLACE / f"{name}-ubyte.gz").read_bytes())
            return np.frombuffer(content, np.uint8, offset=IDX_HEADERS[name[-4:]])

        return Pictures(
            read("train-images-idx3").reshape(-1, 28, 28),
            read("train-labels-idx1"),
            read("t10k-images-idx3").reshape(-1, 28, 28),
            read("t10k-labels-idx1"),
        )


DATASET = FashionMnist()
