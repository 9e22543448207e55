"""LibriSpeech: books that are read aloud in English (Panayotov and others, 2015), in a folder of the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deepbench.applications.datasets import Divided, UserFolder, needed
from deepbench.core.errors import BadInput
from deepbench.core.files import open_regular, read_regular

TRAIN, TEST = "train-*", "test-clean"

RATE = 16_000
"""Samples per second."""

# A chapter's texts have some kilobytes.
MOST_BYTES = 2**24

# A sentence of a minute has 2 megabytes.
MOST_SOUND_BYTES = 2**28


@dataclass(frozen=True)
class Utterance:
    """A sentence, and where its sound is."""

    name: str
    text: str
    path: Path

    @property
    def sound(self) -> NDArray[np.float32]:
        """From −1 to 1, `RATE` samples per second, read when it is asked for; `BadInput` where it is damaged."""
        library = needed("librispeech", "soundfile")
        with open_regular(self.path, MOST_SOUND_BYTES, "a sound of the data set librispeech") as file:
            try:
                samples, rate = library.read(file, dtype="float32")
            except (OSError, RuntimeError) as error:
                raise BadInput(f"the sound {self.path} of the data set librispeech cannot be read: {error}") from None
        if rate != RATE or samples.ndim != 1:
            raise BadInput(f"the sound {self.path} has {rate} samples per second, or more than one channel")
        return np.asarray(samples, np.float32)


class LibriSpeechFolder(UserFolder):
    """The archives of openslr.org/12 as they are unpacked there."""

    name = "librispeech"
    title = "LibriSpeech"
    about = "960 hours of books that many voices read in English, and 5 hours for testing"
    licence = "CC-BY-4.0, Vassil Panayotov and others"
    files = tuple(f"{part}/*/*/*.trans.txt" for part in (TRAIN, TEST))
    variable = "DEEPBENCH_LIBRISPEECH"
    wanted = f"{' and '.join(f'{part}/<reader>/<chapter>/*.trans.txt' for part in (TRAIN, TEST))}, with .flac files"

    def load(self, folder: Path) -> Divided[list[Utterance]]:
        """All sentences, by path; sounds are read later."""
        needed("librispeech", "soundfile")
        return Divided(*(_utterances(folder, part) for part in (TRAIN, TEST)))


def _utterances(folder: Path, part: str) -> list[Utterance]:
    """`1272-128104-0000 MISTER QUILTER IS …`: the name of a file next to it, and the text."""
    found = []
    for path in sorted(folder.glob(f"{part}/*/*/*.trans.txt")):
        for line in read_regular(path, MOST_BYTES, "texts of LibriSpeech").decode("utf-8", "replace").splitlines():
            name, _, text = line.partition(" ")
            if not text or Path(name).name != name:
                raise BadInput(f"{path} has the line {line!r:.80}, and not a name and a text")
            found.append(Utterance(name, text, path.with_name(f"{name}.flac")))
    return found


DATASET = LibriSpeechFolder()
