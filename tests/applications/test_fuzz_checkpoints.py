"""Checkpoints and models with random changes: each is read as it was, or refused with a sentence, soon and in little
memory. `DEEPBENCH_FUZZ=100000 pytest -m long` tries so many.
"""

import io
import json
import os
import random
import resource
import struct
import time
import zipfile
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from deepbench.applications.training import checkpoint, worker
from deepbench.core.errors import BadInput

FEW, MANY = 600, int(os.environ.get("DEEPBENCH_FUZZ", "100000"))

# Of each file. It takes some milliseconds, and less memory than the file has; machines may be busy.
MOST_CPU_S, MOST_BYTES = 2.0, 2**28

SAMPLES = 320
STATE = {
    "model/weight": np.arange(120, dtype=np.float32).reshape(2, 3, 20),
    "model/narrow": np.arange(9, dtype=np.float32).astype(ml_dtypes.bfloat16),
    "model/turned": np.asfortranarray(np.arange(24, dtype=np.int64).reshape(4, 6)),
    "optimizer/0/step": np.array(12.0, np.float32),
    "optimizer/0/mean": np.zeros((2, 0), np.float64),
    "optimizer/1/flag": np.array([True, False]),
    "optimizer/1/rate": 0.5,
    "samples": SAMPLES,
}

# Numbers that overflow sums, signs and memory.
NUMBERS = (0, 1, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
SIGNATURES = (b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"\x93NUMPY")


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """A checkpoint as training writes it."""
    path = tmp_path_factory.mktemp("fuzz") / "0.npz"
    checkpoint.write(path, STATE)
    return path.read_bytes()


# ---- changes that keep no checksum right: what is read after them must be what was written


def flip_bits(chance, content):
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 30))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def set_bytes(chance, content):
    at, size = chance.randrange(len(content)), chance.choice((1, 2, 4, 8, 64))
    return content[:at] + chance.choice((bytes(size), b"\xff" * size, chance.randbytes(size))) + content[at + size :]


def set_number(chance, content):
    kind, number = chance.choice("HLQ"), chance.choice(NUMBERS)
    number &= 2 ** (8 * struct.calcsize(f"<{kind}")) - 1
    at = chance.randrange(len(content) - 8)
    return content[:at] + struct.pack(f"<{kind}", number) + content[at + struct.calcsize(f"<{kind}") :]


def set_number_near_signature(chance, content):
    """In the head of a member, of its place in the directory, or of an array."""
    at = content.find(chance.choice(SIGNATURES), chance.randrange(len(content)))
    part = content[at : at + 60] if at >= 0 else b""
    return (
        content[:at] + set_number(chance, part) + content[at + 60 :] if len(part) > 8 else set_number(chance, content)
    )


def cut(chance, content):
    return content[: chance.randrange(len(content))]


def remove(chance, content):
    at = chance.randrange(len(content))
    return content[:at] + content[at + chance.choice((1, 2, 30, 500)) :]


def insert(chance, content):
    at = chance.randrange(len(content))
    return content[:at] + chance.randbytes(chance.choice((1, 2, 30, 500))) + content[at:]


def repeat(chance, content):
    at, to = sorted(chance.randrange(len(content)) for _ in range(2))
    return content[:to] + content[at:to] * chance.choice((1, 2, 20)) + content[to:]


DAMAGES = (flip_bits, set_bytes, set_number, set_number_near_signature, cut, remove, insert, repeat)


# ---- files that are put together by hand, with the right checksums: what is read may be anything that JSON has


def strange_json(chance):
    """The JSON of a checkpoint, with something strange in it."""
    names = [[name, "float32"] for name in ("a", "b", "a")]
    deep = chance.choice((10, 1000, 1030, 200_000))
    values = {"samples": chance.choice((SAMPLES, 0, -1, 10**30, "", None, [], 1.5, True))}
    texts = (
        json.dumps({"values": values, "arrays": names[: chance.randrange(4)]}),
        json.dumps({"values": values, "arrays": chance.choice(([[1, 2]], [["a"]], [["a", "object"]], {}, None, "ab"))}),
        json.dumps(chance.choice(([], {}, None, 1, "x", {"values": [], "arrays": []}))),
        f'{{"values": {"[" * deep}{"]" * deep}, "arrays": []}}',
        '{"values": {"a": NaN, "b": 1e999}, "arrays": []}',
        f'{{"values": {{"n": {"9" * deep}}}, "arrays": []}}',
        f'{{"values": {{"{chr(0xFFFD) * deep}": 1}}, "arrays": []}}',
    )
    return chance.choice(texts).encode("utf-8", "surrogatepass")


def strange_array(chance):
    """An array in NumPy's format, or nearly."""
    number = chance.choice((0, 1, 2, 2**31, 2**62, 10**19, "9" * 5000, -1))
    shapes = (
        f"({number},)",
        f"({number}, {number})",
        "()",
        "(2,)",
        "(1, 2)",
        f"(0, {number})",
        "(2" + ", 1" * 70 + ")",
    )
    kind = chance.choice(("<f4", "<f8", ">f4", "|b1", "<u2", "|O", "<U9999999999", "<f3", "|V8", "('<f4', (9,))"))
    order = chance.choice(("False", "True", "1"))
    text = chance.choice(
        (
            f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {chance.choice(shapes)}, }}",
            f"{{'descr': [('a', '{kind}')], 'fortran_order': False, 'shape': (1,), }}",
            "(" * 9000,
            "__import__('os').abort()",
            "",
        )
    )
    text = text.encode()[:60_000] + b"\n"
    version = chance.choice((b"\1\0", b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\xff\0"))
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + bytes(chance.choice((0, 1, 4, 8, 16)))


def member(chance, number, content):
    """A file in an archive."""
    method = chance.choice((0, 0, 0, 0, 0, 0, 0, 8, 12, 14, 99))
    flags = chance.choice((0, 0, 0, 0, 0, 0, 0, 1, 8, 0x800))
    crc = zlib.crc32(content) if chance.random() < 0.95 else 0
    size = len(content) if chance.random() < 0.9 else chance.choice(NUMBERS)
    name = b"arr_%d.npy" % number if chance.random() < 0.95 else chance.randbytes(9)
    extra = struct.pack("<HHQQ", 1, 16, size, size)[: chance.choice((0, 4, 20))]
    size = min(size, 2**32 - 1)
    head = struct.pack("<4sHHHHHLLLHH", b"PK\3\4", 45, flags, method, 0, 33, crc, size, size, len(name), len(extra))
    return head + name + extra + content


def by_hand(chance, _):
    text = strange_json(chance)
    first = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(text)},), }}\n".encode()
    first = b"\x93NUMPY\1\0" + struct.pack("<H", len(first)) + first + text
    others = [strange_array(chance) for _ in range(chance.randrange(4))]
    return b"".join(member(chance, i, one) for i, one in enumerate([first, *others])) + b"PK\1\2" + bytes(60)


def by_numpy(chance, _):
    """What other programs write: NumPy's own archives, compressed ones, and archives without arrays."""
    arrays = [np.frombuffer(strange_json(chance), np.uint8), np.ones(2, np.float32), np.array([{}, None], object)]
    file = io.BytesIO()
    which = chance.randrange(4)
    if which == 3:
        with zipfile.ZipFile(file, "w", chance.choice((0, 8, 12, 14))) as archive:
            for name in chance.sample(("arr_0.npy", "arr_1.npy", "../a", "/etc/passwd"), chance.randrange(3)):
                archive.writestr(name, chance.randbytes(50))
        return file.getvalue()
    (np.savez_compressed if which == 2 else np.savez)(file, *arrays[: which + 1 if which < 2 else 3])
    return file.getvalue()


STRANGE = (by_hand, by_hand, by_hand, by_numpy)


class Task:
    """Restores what has its own shapes, and fails as frameworks do."""

    def restore(self, state, samples):
        for name, value in STATE.items():
            if isinstance(value, np.ndarray) and state[name].shape != value.shape:
                raise RuntimeError(f"size mismatch for {name}")


def same(found):
    """Whether this is the state that was written."""
    if set(found) != set(STATE):
        return False
    arrays = {name for name, value in STATE.items() if isinstance(value, np.ndarray)}
    bits = all(found[n].dtype == STATE[n].dtype and found[n].tolist() == STATE[n].tolist() for n in arrays)
    return bits and all(found[n] == STATE[n] for n in set(STATE) - arrays)


def tried(content, number, read):
    """Whether a changed file is refused; which change depends on the number only."""
    chance = random.Random(number)
    change = chance.choice((*DAMAGES, *STRANGE))
    changed = change(chance, content)
    if change in DAMAGES and chance.random() < 0.2:
        changed = chance.choice(DAMAGES)(chance, changed or content)
    begin = time.process_time()
    try:
        found = read(changed)
    except BadInput as error:
        assert "pickle" not in str(error)
        assert len(str(error)) < 1000
        found = None
    assert time.process_time() - begin < MOST_CPU_S, f"number {number} took too long"
    if change in DAMAGES and found is not None:
        assert same(found), f"number {number} is read as something else"
    try:
        worker.restore(Task(), Path("a.npz"), SAMPLES, lambda _: read(changed))
    except BadInput:
        return True
    return False


@pytest.fixture
def little_memory():
    """What this process uses now, and a little more. NumPy and Python then raise `MemoryError`, which is a failure."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def counts(content, count):
    refused = sum(tried(content, n, lambda changed: checkpoint.read("a.npz", changed)) for n in range(count))
    assert 0.5 * count < refused < count, "most changes are noticed, and some change nothing"


@pytest.mark.usefixtures("little_memory")
def test_a_changed_checkpoint_is_read_as_it_was_or_refused(content):
    counts(content, FEW)


@pytest.mark.usefixtures("little_memory")
def test_a_changed_file_is_read_as_it_was_or_refused(content, tmp_path):
    """The same from the disk."""

    def read(changed):
        (tmp_path / "0.npz").write_bytes(changed)
        return checkpoint.read(tmp_path / "0.npz")

    for number in range(10**6, 10**6 + 50):
        tried(content, number, read)


@pytest.mark.usefixtures("little_memory")
def test_every_byte_of_a_checkpoint_counts(content):
    """Each of them is changed once, and each end is cut off."""
    for at in range(len(content)):
        for changed in (content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :], content[:at]):
            try:
                assert same(checkpoint.read("a.npz", changed))
            except BadInput:
                continue


@pytest.mark.long
@pytest.mark.usefixtures("little_memory")
def test_many_changed_checkpoints(content):
    counts(content, MANY)
