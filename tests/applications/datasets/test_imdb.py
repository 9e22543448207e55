"""Reviews of IMDB: a folder of the user, which a test makes in small."""

import pytest

from deepbench.applications.datasets import MissingData, find
from deepbench.applications.datasets.imdb import DATASET
from deepbench.core.errors import BadInput


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPBENCH_IMDB", str(tmp_path))
    for part in ("train", "test"):
        for label in ("pos", "neg"):
            (tmp_path / part / label).mkdir(parents=True)
            (tmp_path / part / label / "0_9.txt").write_text(f"A film,<br />{part} {label}.")
    return tmp_path


def test_reviews_have_the_label_of_their_folder(folder):
    train, test = find(DATASET).load()

    assert [("A film, train neg.", 0), ("A film, train pos.", 1)] == train
    assert ["A film, test neg.", "A film, test pos."] == [review.text for review in test]


def test_what_is_no_review_is_a_sentence(folder):
    (folder / "test" / "neg" / "1_1.txt").write_bytes(b"a" * (2**20 + 1))

    with pytest.raises(BadInput, match=r"1_1\.txt has 1048577 bytes, and at most 1048576 are read; expected a review"):
        find(DATASET).load()


def test_what_is_missing_is_a_sentence(folder, monkeypatch):
    (folder / "test" / "pos" / "0_9.txt").unlink()
    with pytest.raises(MissingData, match="lacks files of the data set imdb; set DEEPBENCH_IMDB to a folder with"):
        find(DATASET)
    monkeypatch.delenv("DEEPBENCH_IMDB")
    with pytest.raises(MissingData, match=r"set DEEPBENCH_IMDB to a folder with train/neg/\*\.txt, train/pos"):
        find(DATASET)
