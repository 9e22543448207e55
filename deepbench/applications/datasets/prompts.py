"""Telephone prompts of one English voice (Allison Smith), each with its text."""

from __future__ import annotations

import gzip
import wave
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepbench.applications.datasets import Dataset, Package

SOUNDS = "usr/share/asterisk/sounds/en_US_f_Allison"
TEXTS = "usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz"

RATE = 8000
"""Samples per second."""


class Prompt(NamedTuple):
    """What was said, and how it sounds."""

    name: str
    text: str
    sound: NDArray[np.float32]
    """From −1 to 1, `RATE` samples per second."""


class Prompts(Dataset):
    """The core sounds of Asterisk."""

    name = "prompts"
    title = "Asterisk prompts"
    about = "550 telephone prompts of one voice with their texts, 24 minutes"
    licence = "CC-BY-SA-3.0, Allison Smith and Digium"
    packages = (
        Package(
            "debian",
            "asterisk-core-sounds-en-wav",
            "1.6.1-1",
            18_272_864,
            "2be3ea287d83299d143815fa804f11179a75b7affd4a758b98b55f5afc18a35d",
            "asterisk-core-sounds",
        ),
        Package(
            "debian",
            "asterisk-core-sounds-en",
            "1.6.1-1",
            22_844,
            "973e797d28e37fa6ca3c0a9d6fa717e77cf1268ae916bf09fd3503113cdffa50",
            "asterisk-core-sounds",
        ),
    )
    files = (f"{SOUNDS}/*.wav", f"{SOUNDS}/*/*.wav", TEXTS)
    digest = "e9b8447a17d11e0b05e2ef186a93f04231e590f7d8b7dab8f1b33736738cd9f7"

    def load(self, folder: Path) -> list[Prompt]:
        """All prompts that have a text, by name."""
        found = []
        for name, text in sorted(
            _texts(gzip.decompress((folder / TEXTS).read_bytes()).decode("utf-8", "replace")).items()
        ):
            path = folder / SOUNDS / f"{name}.wav"
            if path.is_file():
                found.append(Prompt(name, text, _sound(path)))
        return found


def _texts(lines: str) -> dict[str, str]:
    """`activated: Activated.`; lines that begin with a semicolon are comments."""
    pairs = (line.split(":", 1) for line in lines.splitlines() if ":" in line and not line.startswith(";"))
    return {name.strip(): text.strip() for name, text in pairs}


def _sound(path: Path) -> NDArray[np.float32]:
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return samples.astype(np.float32) / np.float32(32768)


DATASET = Prompts()
