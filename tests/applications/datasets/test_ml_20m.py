"""MovieLens 20M: a file in a folder of the user, which a test makes in small."""

import pytest

from deepbench.applications.datasets import MissingData, find
from deepbench.applications.datasets.ml_20m import DATASET
from deepbench.core.errors import BadInput

HEADER = "userId,movieId,rating,timestamp\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPBENCH_ML20M", str(tmp_path))
    return lambda text: (tmp_path / "ratings.csv").write_text(text)


def test_users_and_films_count_from_0(write):
    write(HEADER + "1,29,3.5,1112486027\n1,2,4.0,1112484676\n7,29,0.5,940000000\n")

    found = find(DATASET).load()

    assert [0, 0, 1] == found.users.tolist()
    assert [1, 0, 1] == found.films.tolist()
    assert [3.5, 4.0, 0.5] == found.stars.tolist()
    assert [1112486027, 1112484676, 940000000] == found.times.tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("user,film\n1,2\n", "the first line of .* is 'user,film' and not userId,movieId,rating,timestamp"),
        (HEADER + "1,29,3.5,11\n1,2,x,12\n", "is damaged"),
        (HEADER + "1,29,3.5,11\n1,2,12\n", "is damaged"),
        (HEADER + "1,29,3.5\n", "has no ratings of four numbers"),
        (HEADER, "has no ratings of four numbers"),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_a_damaged_file_is_a_sentence(write, text, words):
    write(text)

    with pytest.raises(BadInput, match=words):
        find(DATASET).load()


def test_what_is_missing_is_a_sentence(write, monkeypatch):
    with pytest.raises(MissingData, match="lacks files of the data set ml-20m; set DEEPBENCH_ML20M to a folder with"):
        find(DATASET)
    monkeypatch.delenv("DEEPBENCH_ML20M")
    with pytest.raises(MissingData, match=r"set DEEPBENCH_ML20M to a folder with ratings\.csv"):
        find(DATASET)
