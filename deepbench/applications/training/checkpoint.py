"""Checkpoints: arrays and plain values by name in one file, without a framework. Reading one executes nothing in it.

A file is an uncompressed archive of NumPy arrays. The first of them has JSON in it: the plain values, and the name and
the type of each array, because NumPy's format has no bfloat16.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy knows bfloat16 from here on)
import numpy as np

from deepbench.core.errors import BadInput


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state, as a whole or not at all. Values are arrays, or what JSON carries."""
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    values = {name: value for name, value in state.items() if name not in arrays}
    types = [[name, array.dtype.name] for name, array in arrays.items()]
    content = json.dumps({"values": values, "arrays": types}).encode()
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        np.savez(file, np.frombuffer(content, np.uint8), *map(_bits, arrays.values()))
        file.flush()
        os.fsync(file.fileno())  # or a power failure could leave an empty file under the new name
    draft.replace(path)


def read(path: Path, content: bytes | None = None) -> dict[str, Any]:
    """What was written; `BadInput` for a file that cannot be read. `content`: of the file, where it is elsewhere."""
    try:
        stream = path.open("rb") if content is None else io.BytesIO(content)
        with stream as opened, np.load(opened, allow_pickle=False) as file:
            first, *others = (file[f"arr_{i}"] for i in range(len(file.files)))  # as NumPy names arrays without a name
            described = json.loads(first.tobytes())
            pairs = zip(described["arrays"], others, strict=True)
            arrays = {name: array.view(kind) for (name, kind), array in pairs}
            return {**described["values"], **arrays}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise BadInput(f"the checkpoint {path} cannot be read: {error}; train the run again") from None


def _bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same array in a type that NumPy's format has; `TypeError` for objects, which it would pickle."""
    if array.dtype.hasobject:
        raise TypeError("a checkpoint has no arrays of objects")
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array
