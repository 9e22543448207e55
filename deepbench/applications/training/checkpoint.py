"""Checkpoints: arrays and plain values by name in one file, without a framework. Reading one executes nothing in it.

A file is an uncompressed archive of NumPy arrays. The first of them has JSON in it: the plain values, and the name and
the type of each array, because NumPy's format has no bfloat16.

A file may come from anyone. It is read from its begin to its end as `write` writes it, and every size in it is compared
with what is left of the file before memory is taken. Neither the directory of the archive nor a pickle is looked at.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import ml_dtypes  # noqa: F401  (NumPy knows bfloat16 from here on)
import numpy as np
from numpy.typing import NDArray

from deepbench.core.errors import BadInput
from deepbench.core.files import NotWritten, open_regular
from deepbench.core.json_lines import from_line
from deepbench.machine import describe

# Of a checkpoint. The largest model here needs 3 GB, with everything that its optimizer keeps.
MOST_BYTES = 64 * 2**30

# Of the plain values and the names of arrays.
MOST_JSON_BYTES = 16 * 2**20

# What precedes a file in an archive: signature, flags, method, CRC-32, both sizes, and lengths of the name and of what
# follows it (APPNOTE.TXT of PKWARE, 4.3.7). Sizes that do not fit into 32 bits are in what follows the name.
MEMBER = struct.Struct("<4s2xHH4xLLLHH")
MEMBER_SIGNATURE, DIRECTORY_SIGNATURE = b"PK\3\4", b"PK\1\2"
LONG_SIZE, LONG_SIZES = 0xFFFFFFFF, struct.Struct("<HHQ")

# What precedes the elements of an array: the version 1.0 of NumPy's format, and the length of a text.
ARRAY = struct.Struct("<8sH")
ARRAY_SIGNATURE = b"\x93NUMPY\1\0"
ARRAY_TEXT = re.compile(
    rb"\{'descr': '([<>|][biufc][0-9]{1,2})', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\), \} *\n"
)


def file_name(run: int, samples: int) -> str:
    """The checkpoint of a run after so many samples."""
    return f"{run}.{samples}.npz"


def files_of(folder: Path, run: int) -> dict[Path, int]:
    """The files of a run in a folder of checkpoints, with their samples, and also what killed processes left."""
    names = {path: re.fullmatch(rf"{run}\.([0-9]+)\.(npz|new)", path.name) for path in folder.glob(f"{run}.*")}
    return {path: int(name[1]) for path, name in names.items() if name is not None}


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state, as a whole or not at all. Values are arrays, or what JSON carries.

    `NotWritten` where the system refuses it. The folder has to be private (`make_private_folder`).
    """
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    values = {name: value for name, value in state.items() if name not in arrays}
    types = [[name, array.dtype.name] for name, array in arrays.items()]
    content = json.dumps({"values": values, "arrays": types}).encode()
    draft = path.with_suffix(".new")
    try:
        draft.unlink(missing_ok=True)  # of a process that was killed; where it is a link, the link alone
        with draft.open("xb") as file:  # a file that is new: nothing that was put here is written to
            np.savez(file, np.frombuffer(content, np.uint8), *map(_bits, arrays.values()))
            file.flush()
            os.fsync(file.fileno())  # or a power failure could leave an empty file under the new name
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()  # it takes space on a disk that may be full
        raise NotWritten(path, error) from None


def read(path: Path, content: bytes | None = None) -> dict[str, Any]:
    """What was written; `BadInput` for a file that cannot be read, `MemoryError` where it does not fit into memory.

    `content`: of the file, where it is elsewhere.
    """
    try:
        if content is not None:
            return _state(io.BytesIO(content), len(content))
        with open_regular(path, MOST_BYTES, "a checkpoint or a model that `deepbench train` wrote") as file:
            size = os.fstat(file.fileno()).st_size
            free = describe.memory_available()
            if free is not None and size > free:
                raise MemoryError(f"the checkpoint {path} has {size} bytes, and {free} bytes of memory are free")
            return _state(file, size)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"the checkpoint {path} cannot be read: {reason}") from None


def _state(file: IO[bytes], size: int) -> dict[str, Any]:
    """The state in a file of so many bytes; `ValueError` says what is wrong."""
    members = _arrays(file, size)
    text = next(members)
    if text.dtype != np.uint8 or text.ndim != 1:
        raise ValueError("its first array is not the JSON that names the others")
    described = from_line(text.tobytes())
    values, types = (described.get(name) if isinstance(described, dict) else None for name in ("values", "arrays"))
    if not isinstance(values, dict) or not isinstance(types, list):
        raise ValueError("its JSON does not name values and arrays")
    arrays: dict[str, NDArray[Any]] = {}
    for number, array in enumerate(members):
        match types[number : number + 1]:
            case [[str(name), str(kind)]] if name not in values and name not in arrays:
                arrays[name] = _of_type(array, kind)
            case _:
                raise ValueError("its JSON does not name each array once")
    if len(arrays) < len(types):
        raise ValueError("it lacks arrays that its JSON names")
    return {**values, **arrays}


def _arrays(file: IO[bytes], size: int) -> Iterator[NDArray[Any]]:
    """The arrays in a file of so many bytes, in their order; `ValueError` where it is damaged or cut off."""
    number = 0
    while True:
        signature, flags, method, crc, _, length, name_bytes, extra_bytes = MEMBER.unpack(_bytes(file, MEMBER.size))
        if signature == DIRECTORY_SIGNATURE and number:
            return
        is_ours = signature == MEMBER_SIGNATURE and not flags and not method
        if not is_ours or _bytes(file, name_bytes) != b"arr_%d.npy" % number:
            raise ValueError("it is no archive as training writes it")
        extra = _bytes(file, extra_bytes)
        if length == LONG_SIZE and len(extra) >= LONG_SIZES.size:
            length = LONG_SIZES.unpack_from(extra)[2]
        if length > min(size - file.tell(), MOST_BYTES if number else MOST_JSON_BYTES):
            raise ValueError("an array claims more bytes than there are")
        yield _array(file, length, crc)
        number += 1


def _array(file: IO[bytes], length: int, crc: int) -> NDArray[Any]:
    """An array in NumPy's format, of so many bytes with this CRC-32."""
    begin = _bytes(file, ARRAY.size)
    signature, text_bytes = ARRAY.unpack(begin)
    text = _bytes(file, text_bytes)
    found = ARRAY_TEXT.fullmatch(text)
    if signature != ARRAY_SIGNATURE or found is None:
        raise ValueError("it has something that is no array of numbers")
    try:
        kind = np.dtype(found[1].decode())
    except TypeError as error:
        raise ValueError(str(error)) from None
    shape = [int(n) for n in found[3].replace(b" ", b"").split(b",") if n]
    count = math.prod(shape)
    fits = count * kind.itemsize == length - len(begin) - len(text) and max(shape, default=0) <= MOST_BYTES
    if not fits or not kind.isnative:
        raise ValueError("the shape of an array does not fit its bytes")
    array = np.empty(count, kind)
    content = array.view(np.uint8).data
    if file.readinto(content) != array.nbytes:  # type: ignore[attr-defined]
        raise ValueError("it is cut off")
    if zlib.crc32(content, zlib.crc32(text, zlib.crc32(begin))) != crc:
        raise ValueError("its bytes have changed")
    return array.reshape(shape[::-1]).T if found[2] == b"True" else array.reshape(shape)


def _bytes(file: IO[bytes], count: int) -> bytes:
    content = file.read(count)
    if len(content) < count:
        raise ValueError("it is cut off")
    return content


def _of_type(array: NDArray[Any], kind: str) -> NDArray[Any]:
    """The array in the type that the JSON says: its own, or bfloat16."""
    if kind == "bfloat16" and array.dtype == np.uint16:
        return array.view(kind)
    if kind != array.dtype.name:
        raise ValueError(f"an array is {array.dtype.name} and not {kind!r:.40}")
    return array


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """The same array in a type that NumPy's format has; `TypeError` for objects, which it would pickle."""
    if array.dtype.hasobject:
        raise TypeError("a checkpoint has no arrays of objects")
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array
