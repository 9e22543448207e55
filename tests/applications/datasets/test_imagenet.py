"""ImageNet: a folder of the user, which a test makes in small."""

import shutil

import numpy as np
import pytest

from deepbench.applications.datasets import MissingData, find
from deepbench.applications.datasets.imagenet import DATASET, middle, random_part
from deepbench.core.errors import BadInput, Unavailable

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two classes: `ant` with two red photographs and `bee` with a grey one; the first ant has a blue right half."""
    monkeypatch.setenv("DEEPBENCH_IMAGENET", str(tmp_path))
    ant = np.zeros((200, 400, 3), np.uint8)
    ant[:, :, 0] = 250
    halves = ant.copy()
    halves[:, 200:] = [0, 0, 200]
    for part in ("val", "train"):
        for name, pictures in {"bee": [np.full((90, 90), 60, np.uint8)], "ant": [halves, ant]}.items():
            (tmp_path / part / name).mkdir(parents=True)
            for number, pixels in enumerate(pictures):
                Image.fromarray(pixels).save(tmp_path / part / name / f"{number}.JPEG", quality=95)
    return tmp_path


def near(wanted, pixel):
    assert np.allclose(wanted, pixel.astype(int), atol=12), pixel


def test_classes_are_the_sorted_folders(folder):
    train, test = find(DATASET).load()

    assert [0, 0, 1] == train.classes.tolist() == test.classes.tolist()
    assert 3 == len(train) == len(test)
    assert ((3, 224, 224), np.uint8) == (test.picture(2).shape, test.picture(2).dtype)
    near([60, 60, 60], test.picture(2)[:, 100, 100])


def test_the_middle_is_tested_and_parts_are_trained_with(folder):
    train, test = find(DATASET).load()

    whole = test.picture(0)
    near([250, 0, 0], whole[:, 112, 90])
    near([0, 0, 200], whole[:, 112, 134])
    left, mirrored = (train.picture(0, np.array([1.0, 0.5, 0.0, 0.0, mirror])) for mirror in (0.9, 0.1))
    near([250, 0, 0], left[:, 112, 60])
    near([0, 0, 200], left[:, 112, 200])
    assert np.array_equal(left, mirrored[:, :, ::-1])
    near([250, 0, 0], train.picture(0, np.array([0.0, 0.5, 0.0, 0.0, 0.9]))[:, 112, 220])


def test_regions():
    assert (112.5, 12.5, 287.5, 187.5) == middle(400, 200)
    chance = np.random.default_rng(0)
    for _ in range(200):
        chances = chance.random(4)
        left, top, right, bottom = random_part(300, 300, chances)
        assert 0 <= left < right <= 300
        assert 0 <= top < bottom <= 300
        if right - left < 300 and bottom - top < 300:
            assert (right - left) * (bottom - top) / 300**2 == pytest.approx(0.08 + 0.92 * chances[0])
            assert 3 / 4 <= (right - left) / (bottom - top) <= 4 / 3


def test_what_is_missing_or_damaged_is_a_sentence(folder, monkeypatch, tmp_path):
    _, test = find(DATASET).load()
    (folder / "val" / "ant" / "0.JPEG").write_bytes(b"no picture")
    with pytest.raises(BadInput, match=r"0\.JPEG of the data set imagenet cannot be read"):
        test.picture(0)
    (folder / "val" / "cat").mkdir()
    with pytest.raises(BadInput, match=r"train and val in .* have different classes"):
        find(DATASET).load()
    (folder / "val" / "cat").rmdir()
    for path in (folder / "train").glob("*/*"):
        path.unlink()
    with pytest.raises(BadInput, match="has no photographs"):
        find(DATASET).load()
    shutil.rmtree(folder / "train")
    with pytest.raises(BadInput, match=r"cannot read .*train of the data set imagenet"):
        find(DATASET).load()
    shutil.rmtree(folder / "val")
    with pytest.raises(
        MissingData, match="lacks files of the data set imagenet; set DEEPBENCH_IMAGENET to a folder with"
    ):
        find(DATASET)
    monkeypatch.delenv("DEEPBENCH_IMAGENET")
    with pytest.raises(MissingData, match="set DEEPBENCH_IMAGENET to a folder with train/<class>"):
        find(DATASET)


def test_without_pillow_the_error_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)

    with pytest.raises(Unavailable, match="pip install Pillow"):
        find(DATASET).load()
