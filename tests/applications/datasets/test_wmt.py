"""Sentences of WMT: a folder of the user, which a test makes in small."""

import pytest

from deepbench.applications.datasets import MissingData, find
from deepbench.applications.datasets.wmt import DATASET
from deepbench.core.errors import BadInput

TEXTS = {
    "train.de": "Guten Tag .\n\nJa\u2028doch\n",
    "train.en": "Good day .\nNobody said this .\nOh yes\n",
    "test.de": "Nein",
    "test.en": "No",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPBENCH_WMT", str(tmp_path))
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def test_equal_lines_are_pairs(folder):
    train, test = find(DATASET).load()

    assert [("Guten Tag .", "Good day ."), ("Ja\u2028doch", "Oh yes")] == train
    assert [("Nein", "No")] == test


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("train.en", "Good day .\nOh yes\n", r"train\.de has 3 lines, and train\.en has 2"),
        ("test.de", "", r"test\.de has 0 lines, and test\.en has 1"),
        ("test.de", "\n", r"test\.de and test\.en have no sentences"),
    ],
)
def test_files_that_do_not_fit_are_a_sentence(folder, name, text, words):
    (folder / name).write_text(text)

    with pytest.raises(BadInput, match=words):
        find(DATASET).load()


def test_what_is_missing_is_a_sentence(folder, monkeypatch):
    (folder / "test.en").unlink()
    with pytest.raises(MissingData, match="lacks files of the data set wmt; set DEEPBENCH_WMT to a folder with"):
        find(DATASET)
    monkeypatch.delenv("DEEPBENCH_WMT")
    with pytest.raises(
        MissingData, match=r"set DEEPBENCH_WMT to a folder with train\.de, train\.en, test\.de, test\.en"
    ):
        find(DATASET)
