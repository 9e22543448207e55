"""Checkpoints keep every type, and reading one executes nothing."""

import pickle

import ml_dtypes
import numpy as np
import pytest

from deepbench.applications.training import checkpoint
from deepbench.core.errors import BadInput


def test_arrays_and_values_are_read_as_they_were_written(tmp_path):
    state = {
        "a/b.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "narrow": np.array([1.0, 1.0078125, -0.0, np.inf], ml_dtypes.bfloat16),
        "scalar": np.array(7, np.int64),
        "narrow scalar": np.array(3.0, ml_dtypes.bfloat16),
        "empty": np.zeros((0, 2), np.uint8),
        "file": np.array([True, False]),
        "steps": 12,
        "words": ["a", None, 0.5],
    }
    checkpoint.write(tmp_path / "0.npz", state)
    found = checkpoint.read(tmp_path / "0.npz")

    assert ["0.npz"] == [path.name for path in tmp_path.iterdir()]
    assert set(state) == set(found)
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            assert (value.dtype, value.shape) == (found[name].dtype, found[name].shape)
            assert value.tobytes() == found[name].tobytes()
        else:
            assert value == found[name]


def test_an_array_of_objects_is_not_written(tmp_path):
    with pytest.raises(TypeError, match="no arrays of objects"):
        checkpoint.write(tmp_path / "0.npz", {"a": np.array([{}], object)})


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def archive(path, *arrays, **named):
    with path.open("wb") as file:
        np.savez(file, *arrays, **named)


CONTENTS = {
    "missing": lambda path: None,
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("hello"),
    "pickle": lambda path: path.write_bytes(pickle.dumps({"a": 1})),
    "other archive": lambda path: archive(path, a=np.ones(3)),
    "one array too many": lambda path: archive(path, np.frombuffer(b'{"values": {}, "arrays": []}', np.uint8), [1]),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_another_file_is_refused(tmp_path, name):
    CONTENTS[name](tmp_path / "0.npz")

    with pytest.raises(BadInput, match=r"cannot be read.*train the run again"):
        checkpoint.read(tmp_path / "0.npz")


def test_a_part_of_a_checkpoint_is_refused(tmp_path):
    checkpoint.write(tmp_path / "0.npz", {"a": np.ones(100)})
    content = (tmp_path / "0.npz").read_bytes()
    (tmp_path / "0.npz").write_bytes(content[: len(content) // 2])

    with pytest.raises(BadInput, match="cannot be read"):
        checkpoint.read(tmp_path / "0.npz")


def test_nothing_in_a_checkpoint_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = np.frombuffer(b'{"values": {}, "arrays": [["a", "object"]]}', np.uint8)
    archive(tmp_path / "0.npz", content, np.array([Trap("trap")], object))

    with pytest.raises(BadInput, match="cannot be read"):
        checkpoint.read(tmp_path / "0.npz")
    assert not (tmp_path / "trap").exists()
