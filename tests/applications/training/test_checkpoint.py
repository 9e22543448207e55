"""Checkpoints keep every type, and reading one executes nothing."""

import os
import pickle
import re
import resource
import struct
import zlib

import ml_dtypes
import numpy as np
import pytest

from deepbench.applications.training import checkpoint
from deepbench.core.errors import BadInput
from deepbench.core.files import NotWritten


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


def member(name=b"arr_0.npy", content=b"", flags=0, method=0, crc=None, size=None, extra=b""):
    """A file in an archive; `crc` and `size` in place of its own."""
    crc, size = zlib.crc32(content) if crc is None else crc, len(content) if size is None else size
    head = checkpoint.MEMBER_SIGNATURE + struct.pack("<HHHHH", 45, flags, method, 0, 33)
    return head + struct.pack("<LLLHH", crc, size, size, len(name), len(extra)) + name + extra + content


def array(text, content=b""):
    """In NumPy's format."""
    head = text.encode() + b"\n"
    return checkpoint.ARRAY_SIGNATURE + struct.pack("<H", len(head)) + head + content


def described(text, kind="|u1", content=None, order="False"):
    """The member of an array with this JSON in it."""
    shape = f"({len(text)},)"
    body = array(f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}", content or text)
    return member(content=body)


def second(**named):
    """A checkpoint whose JSON names one array `a`, which is this member."""
    kind = named.pop("kind", "float32")
    text = b'{"values": {}, "arrays": [["a", "%s"]]}' % kind.encode()
    return described(text) + member(b"arr_1.npy", **named) + b"PK\1\2" + bytes(60)


def floats(shape, content=bytes(8), kind="<f4"):
    return array(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}", content)


def test_a_checkpoint_that_is_put_together_by_hand_is_read(tmp_path):
    (tmp_path / "0.npz").write_bytes(second(content=floats("(2,)")))

    assert [0, 0] == checkpoint.read(tmp_path / "0.npz")["a"].tolist()


NO_ARCHIVE, DAMAGED_SHAPE = "no archive as training writes it", "does not fit its bytes"
DEEP = b'{"values": {"a": ' + b"[" * 200_000 + b"]" * 200_000 + b'}, "arrays": []}'
CONTENTS = {
    "empty": (b"", "it is cut off"),
    "text": (b"hello", "it is cut off"),
    "pickle": (pickle.dumps({"a": list(range(100))}), NO_ARCHIVE),
    "only the directory": (b"PK\1\2" + bytes(60), NO_ARCHIVE),
    "a compressed member": (second(content=floats("(2,)"), method=8), NO_ARCHIVE),
    "an encrypted member": (second(content=floats("(2,)"), flags=1), NO_ARCHIVE),
    "another name": (member(b"arr_1.npy"), NO_ARCHIVE),
    "a size beyond the file": (second(content=floats("(2,)"), size=2**31), "claims more bytes than there are"),
    "a huge size": (
        second(content=floats("(2,)"), size=2**32 - 1, extra=struct.pack("<HHQQ", 1, 16, 2**63, 2**63)),
        "claims more bytes than there are",
    ),
    "a huge JSON": (member(content=bytes(checkpoint.MOST_JSON_BYTES + 1)), "claims more bytes than there are"),
    "a huge shape": (second(content=floats(f"({2**62}, {2**62})")), DAMAGED_SHAPE),
    "a huge shape of nothing": (second(content=floats(f"(0, {2**63})", b"")), DAMAGED_SHAPE),
    "a number too long": (second(content=floats(f"({'9' * 5000},)")), "digits"),
    "another shape": (second(content=floats("(3,)")), DAMAGED_SHAPE),
    "another byte order": (second(content=floats("(2,)", kind=">f4")), DAMAGED_SHAPE),
    "objects": (second(content=floats("(1,)", kind="|O")), "no array of numbers"),
    "a type that is none": (second(content=floats("(2,)", kind="<f3")), "f3"),
    "another type": (second(content=floats("(2,)"), kind="int32"), "an array is float32 and not 'int32'"),
    "the type of objects": (second(content=floats("(1,)", kind="<i8"), kind="object"), "is int64 and not 'object'"),
    "another version of the format": (second(content=b"\x93NUMPY\2\0" + bytes(60)), "no array of numbers"),
    "changed bytes": (second(content=floats("(2,)"), crc=0), "its bytes have changed"),
    "no JSON": (described(b"{") + bytes(60), "unexpected end"),
    "a deep JSON": (described(DEEP) + bytes(60), "depth limit"),
    "a list": (described(b"[]") + b"PK\1\2" + bytes(60), "does not name values and arrays"),
    "one array too many": (
        described(b'{"values": {}, "arrays": []}') + member(b"arr_1.npy", floats("(2,)")),
        "does not name each array once",
    ),
    "an array too few": (
        described(b'{"values": {}, "arrays": [["a", "bool"]]}') + b"PK\1\2" + bytes(60),
        "it lacks arrays that its JSON names",
    ),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_another_file_is_refused(tmp_path, name):
    content, reason = CONTENTS[name]
    (tmp_path / "0.npz").write_bytes(content)

    with pytest.raises(BadInput, match=re.escape("0.npz cannot be read: ")) as error:
        checkpoint.read(tmp_path / "0.npz")
    assert reason in str(error.value)
    assert "pickle" not in str(error.value)


def test_an_archive_of_numpy_with_objects_is_refused_without_advice_to_unpickle_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = np.frombuffer(b'{"values": {}, "arrays": [["a", "object"]]}', np.uint8)
    archive(tmp_path / "0.npz", content, np.array([Trap("trap")], object))

    with pytest.raises(BadInput, match="cannot be read: it has something that is no array of numbers"):
        checkpoint.read(tmp_path / "0.npz")
    assert not (tmp_path / "trap").exists()


def test_a_part_of_a_checkpoint_is_refused(tmp_path):
    checkpoint.write(tmp_path / "0.npz", {"a": np.ones(100)})
    content = (tmp_path / "0.npz").read_bytes()
    (tmp_path / "0.npz").write_bytes(content[: len(content) // 2])

    with pytest.raises(BadInput, match="cannot be read"):
        checkpoint.read(tmp_path / "0.npz")


def test_nothing_waits_for_what_is_no_file(tmp_path):
    path = tmp_path / "0.npz"
    with pytest.raises(BadInput, match="does not exist"):
        checkpoint.read(path)
    os.mkfifo(path)
    with pytest.raises(BadInput, match="is not a regular file"):
        checkpoint.read(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(BadInput, match="is not a regular file"):
        checkpoint.read(path)


def test_a_checkpoint_that_does_not_fit_into_memory_is_not_loaded(tmp_path, monkeypatch):
    checkpoint.write(tmp_path / "0.npz", {"a": np.ones(100)})
    monkeypatch.setattr(checkpoint.describe, "memory_available", lambda: 1000)

    with pytest.raises(MemoryError, match=r"has 1[0-9]{3} bytes, and 1000 bytes of memory are free"):
        checkpoint.read(tmp_path / "0.npz")


def test_an_array_in_the_order_of_fortran_keeps_its_elements(tmp_path):
    wanted = np.asfortranarray(np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    checkpoint.write(tmp_path / "0.npz", {"a": wanted})

    assert (wanted == checkpoint.read(tmp_path / "0.npz")["a"]).all()


@pytest.mark.parametrize("name", ["0.new", "0.npz"])
def test_a_link_in_place_of_a_draft_or_a_checkpoint_is_replaced_and_not_followed(tmp_path, name):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / name).symlink_to(tmp_path / "victim")
    checkpoint.write(tmp_path / "folder" / "0.npz", {"a": 1})

    assert "precious" == (tmp_path / "victim").read_text()
    assert {"a": 1} == checkpoint.read(tmp_path / "folder" / "0.npz")
    assert ["0.npz"] == [path.name for path in (tmp_path / "folder").iterdir()]


def test_a_disk_that_is_full_is_named_and_the_earlier_checkpoint_stays(tmp_path):
    checkpoint.write(tmp_path / "0.npz", {"a": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with pytest.raises(NotWritten, match=r"cannot write .*0\.npz: File too large; free some space"):
            checkpoint.write(tmp_path / "0.npz", {"a": np.ones(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert {"a": 1} == checkpoint.read(tmp_path / "0.npz")
    assert ["0.npz"] == [path.name for path in tmp_path.iterdir()]


def test_the_files_of_a_run_are_found(tmp_path):
    for name in ("0.80.npz", "0.160.new", "10.80.npz", "0.npz", "0.x.npz", "0.80.txt"):
        (tmp_path / name).touch()

    assert {"0.80.npz": 80, "0.160.new": 160} == {
        path.name: samples for path, samples in checkpoint.files_of(tmp_path, 0).items()
    }
    assert (tmp_path / checkpoint.file_name(0, 80)).exists()
