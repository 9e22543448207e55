"""COCO: a folder of the user, which a test makes in small."""

import json
import os

import numpy as np
import pytest

from deepbench.applications.datasets import MissingData, find, install
from deepbench.applications.datasets.coco import DATASET
from deepbench.core.errors import BadInput, Unavailable

Image = pytest.importorskip("PIL.Image")

CATEGORIES = [{"id": 7, "name": "train"}, {"id": 2, "name": "bicycle"}]


def note(image, category, box, **more):
    return {"image_id": image, "category_id": category, "bbox": box, "iscrowd": 0, **more}


ANNOTATIONS = {
    "categories": CATEGORIES,
    "images": [
        {"id": 5, "file_name": "five.png", "width": 40, "height": 20},
        {"id": 3, "file_name": "three.png", "width": 10, "height": 10},
    ],
    "annotations": [
        note(5, 7, [10, 5, 20, 10]),
        note(5, 2, [30, 0, 20, 20]),
        note(5, 2, [0, 0, 40, 20], iscrowd=1),
        note(5, 2, [1, 1, 0, 5]),
    ],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Five has a red left half and a blue right one; three has no box."""
    monkeypatch.setenv("DEEPBENCH_COCO", str(tmp_path))
    (tmp_path / "annotations").mkdir()
    five = np.zeros((20, 40, 3), np.uint8)
    five[:, :20, 0], five[:, 20:, 2] = 250, 200
    for name in ("train2017", "val2017"):
        (tmp_path / "annotations" / f"instances_{name}.json").write_text(json.dumps(ANNOTATIONS))
        (tmp_path / name).mkdir()
        Image.fromarray(five).save(tmp_path / name / "five.png")
        Image.fromarray(np.full((10, 10), 60, np.uint8)).save(tmp_path / name / "three.png")
    return tmp_path


def test_boxes_are_shares_and_classes_are_in_the_order_of_their_numbers(folder):
    train, test = find(DATASET).load()

    assert (1, 2) == (len(train), len(test))
    assert [[0.25, 0.25, 0.75, 0.75], [0.75, 0.0, 1.0, 1.0]] == train.boxes[0].tolist()
    assert [1, 0] == train.classes[0].tolist()
    assert (0, 4) == test.boxes[1].shape


def test_pictures_are_stretched_and_regions_cut_out(folder):
    _, test = find(DATASET).load()

    picture, part = test.picture(0), test.picture(0, (0.5, 0.0, 1.0, 1.0))
    assert ((3, 300, 300), np.uint8) == (picture.shape, picture.dtype)
    assert [250, 0, 0] == picture[:, 150, 20].tolist()
    assert [0, 0, 200] == picture[:, 150, 280].tolist() == part[:, 150, 20].tolist()
    assert [60, 60, 60] == test.picture(1)[:, 0, 0].tolist()


def test_what_is_missing_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.delenv("DEEPBENCH_COCO", raising=False)
    words = r"is not on this machine, and cannot be installed; set DEEPBENCH_COCO to a folder with annotations"
    for call in (find, lambda dataset: install(dataset, print)):
        with pytest.raises(MissingData, match=words):
            call(DATASET)

    monkeypatch.setenv("DEEPBENCH_COCO", str(tmp_path))
    with pytest.raises(
        MissingData, match="which lacks files of the data set coco; set DEEPBENCH_COCO to a folder with"
    ):
        find(DATASET)


def test_the_command_says_what_is_missing(deepbench):
    done = deepbench("data", "coco", DEEPBENCH_COCO="")

    assert 1 == done.returncode
    assert "set DEEPBENCH_COCO to a folder with" in done.stderr


def without(name):
    return json.dumps({key: value for key, value in ANNOTATIONS.items() if key != name})


def with_image(**changes):
    return json.dumps({**ANNOTATIONS, "images": [{**ANNOTATIONS["images"][0], **changes}]})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is damaged or no file"),
        ("[1, 2]", "is damaged or no file"),
        (json.dumps(ANNOTATIONS)[:-20], "is damaged or no file"),
        (without("images"), "it lacks 'images'"),
        (json.dumps({**ANNOTATIONS, "annotations": [note(99, 7, [0, 0, 1, 1])]}), "it lacks 99"),
        (json.dumps({**ANNOTATIONS, "annotations": [note(5, 7, [0, 0, 1])]}), "is damaged or no file"),
        (with_image(file_name="../five.png"), "is no name of a file"),
        (with_image(width=0), "has no size"),
    ],
)
def test_damaged_annotations_are_a_sentence(folder, content, words):
    (folder / "annotations" / "instances_val2017.json").write_text(content)

    with pytest.raises(BadInput, match=words) as error:
        find(DATASET).load()
    assert "instances_val2017.json" in str(error.value)


@pytest.mark.parametrize("make", [lambda path: None, os.mkfifo])
def test_a_photograph_that_is_no_file_is_a_sentence(folder, make):
    _, test = find(DATASET).load()
    path = folder / "val2017" / "five.png"
    path.unlink()
    make(path)

    with pytest.raises(BadInput, match=r"five\.png (does not exist|is not a regular file); expected a photograph of"):
        test.picture(0)


@pytest.mark.parametrize("content", [b"", b"no picture", b"half"])
def test_a_damaged_photograph_is_a_sentence(folder, content):
    _, test = find(DATASET).load()
    path = folder / "val2017" / "five.png"
    path.write_bytes(path.read_bytes()[:60] if content == b"half" else content)

    with pytest.raises(BadInput, match=r"five\.png of the data set coco cannot be read"):
        test.picture(0)


def test_without_pillow_the_error_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)

    with pytest.raises(Unavailable, match="pip install Pillow"):
        find(DATASET).load()
