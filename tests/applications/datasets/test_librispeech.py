"""LibriSpeech: a folder of the user, which a test makes in small."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from deepbench.applications.datasets import MissingData, find
from deepbench.applications.datasets.librispeech import DATASET
from deepbench.core.errors import BadInput, Unavailable

NAMES = {"train-clean-100": "19-198", "train-other-500": "20-205", "test-clean": "61-70968"}


def spoken(folder, chapter, part, count=2):
    """A chapter with so many sentences; sounds are written by the test."""
    place = folder / part / chapter.replace("-", "/")
    place.mkdir(parents=True)
    for number in range(count):
        (place / f"{chapter}-{number:04}.flac").touch()
    lines = [f"{chapter}-{number:04} SENTENCE {'AB'[number]}\n" for number in range(count)]
    (place / f"{chapter}.trans.txt").write_text("".join(lines))
    return place


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPBENCH_LIBRISPEECH", str(tmp_path))
    for part, chapter in NAMES.items():
        spoken(tmp_path, chapter, part)
    return tmp_path


@pytest.fixture
def library(monkeypatch):
    """In place of soundfile: it says what it was asked for."""
    fake = SimpleNamespace(sound=np.zeros(160, np.float32), rate=16_000, asked=[])

    def read(file, dtype):
        fake.asked.append((Path(f"/proc/self/fd/{file.fileno()}").readlink().name, dtype))
        if isinstance(fake.sound, Exception):
            raise fake.sound
        return fake.sound, fake.rate

    monkeypatch.setitem(sys.modules, "soundfile", SimpleNamespace(read=read))
    return fake


def test_sentences_are_found_and_sounds_read_later(folder, library):
    train, test = find(DATASET).load()

    assert ["19-198-0000", "19-198-0001", "20-205-0000", "20-205-0001"] == [u.name for u in train]
    assert ["SENTENCE A", "SENTENCE B"] == [u.text for u in test]
    assert [] == library.asked
    assert 160 == len(test[1].sound)
    assert [("61-70968-0001.flac", "float32")] == library.asked


@pytest.mark.parametrize(
    ("sound", "rate", "words"),
    [
        (
            RuntimeError("unknown format"),
            16_000,
            r"0000\.flac of the data set librispeech cannot be read: unknown format",
        ),
        (OSError("gone"), 16_000, "cannot be read: gone"),
        (np.zeros(160, np.float32), 8_000, "has 8000 samples per second"),
        (np.zeros((160, 2), np.float32), 16_000, "more than one channel"),
    ],
)
def test_a_damaged_sound_is_a_sentence(folder, library, sound, rate, words):
    _, test = find(DATASET).load()
    library.sound, library.rate = sound, rate

    with pytest.raises(BadInput, match=words):
        _ = test[0].sound


@pytest.mark.parametrize("make", [lambda path: None, os.mkfifo])
def test_a_sound_that_is_no_file_is_a_sentence(folder, library, make):
    _, test = find(DATASET).load()
    test[0].path.unlink()
    make(test[0].path)

    with pytest.raises(BadInput, match=r"0000\.flac (does not exist|is not a regular file); expected a sound of"):
        _ = test[0].sound


@pytest.mark.parametrize("line", ["61-70968-0000", "../a NAME OF ANOTHER FOLDER"])
def test_damaged_texts_are_a_sentence(folder, library, line):
    (folder / "test-clean" / "61" / "70968" / "61-70968.trans.txt").write_text(line + "\n")

    with pytest.raises(BadInput, match=r"61-70968\.trans\.txt has the line .* and not a name and a text"):
        find(DATASET).load()


def test_flac_is_read(folder):
    soundfile = pytest.importorskip("soundfile")
    wave = np.sin(np.arange(1600) / 9).astype(np.float32) / 2
    soundfile.write(folder / "test-clean" / "61" / "70968" / "61-70968-0000.flac", wave, 16_000)

    _, test = find(DATASET).load()

    assert np.allclose(wave, test[0].sound, atol=1e-4)
    with pytest.raises(BadInput, match="cannot be read"):
        _ = test[1].sound


def test_what_is_missing_is_a_sentence(folder, library, monkeypatch):
    for path in folder.glob("test-clean/*/*/*.txt"):
        path.unlink()
    with pytest.raises(
        MissingData, match="lacks files of the data set librispeech; set DEEPBENCH_LIBRISPEECH to a folder"
    ):
        find(DATASET)
    monkeypatch.delenv("DEEPBENCH_LIBRISPEECH")
    with pytest.raises(MissingData, match=r"set DEEPBENCH_LIBRISPEECH to a folder with train-\*/<reader>/<chapter>"):
        find(DATASET)


def test_without_soundfile_the_error_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)

    with pytest.raises(Unavailable, match="pip install soundfile"):
        find(DATASET).load()
