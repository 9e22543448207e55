"""Opens files that a person or another file names.

Such a name may belong to anything: opening a FIFO waits for a writer, and reading a device may never end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable

# The system returns at once from opening a FIFO, and a terminal does not become that of this process.
SAFELY = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# Characters of a name in a message.
MOST_OF_NAME = 300


def open_regular(path: Path, most_bytes: int, wanted: str) -> IO[bytes]:
    """Open a regular file of at most so many bytes to read it. `wanted` is what it should be, for `BadInput`."""
    name = shorten(printable(str(path)), MOST_OF_NAME)
    try:
        descriptor = os.open(path, os.O_RDONLY | SAFELY)
    except FileNotFoundError:
        raise BadInput(f"{name} does not exist; expected {wanted}") from None
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"cannot read {name}: {text}; expected {wanted}") from None
    facts = os.fstat(descriptor)
    if stat.S_ISREG(facts.st_mode) and facts.st_size <= most_bytes:
        return open(descriptor, "rb")
    os.close(descriptor)
    what = f"has {facts.st_size} bytes, and at most {most_bytes} are read"
    if not stat.S_ISREG(facts.st_mode):
        what = "is a folder" if stat.S_ISDIR(facts.st_mode) else "is not a regular file"
    raise BadInput(f"{name} {what}; expected {wanted}")


def read_regular(path: Path, most_bytes: int, wanted: str) -> bytes:
    """The content of a regular file of at most so many bytes; `BadInput` for anything else."""
    with open_regular(path, most_bytes, wanted) as file:
        try:
            content = file.read(most_bytes + 1)  # the size of a file may be stated as 0, or grow meanwhile
        except OSError as error:
            raise BadInput(f"cannot read {printable(str(path))}: {error.strerror}; expected {wanted}") from None
    if len(content) > most_bytes:
        raise BadInput(f"{printable(str(path))} has more than {most_bytes} bytes; expected {wanted}")
    return content
