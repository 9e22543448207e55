"""Output files: each is written as a whole or not at all, and none takes the place of a result file."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deepbench.core.errors import BadInput

# The header of a result file or a fleet file, even of a damaged one.
HEADER = re.compile(rb'"schema"\s*:\s*"deepbench(-fleet)?/')
LONGEST_HEADER_BYTES = 1 << 20

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class NotWritten(BadInput):
    """An output cannot be written; nothing has changed."""

    def __init__(self, path: Path, error: OSError) -> None:
        reason = os.strerror(error.errno) if error.errno else str(error)
        remedy = "free some space" if error.errno in FULL_DISK else "choose another name"
        super().__init__(f"cannot write {path}: {reason}; {remedy}")


@contextmanager
def replacing(path: Path, may_be_results: bool = False) -> Iterator[Path]:
    """Yield the path of a draft in the same folder, which takes the place of `path` at the end.

    After an error `path` is as it was. `NotWritten` where it cannot be written, `BadInput` where it is a result file
    and must not be one. A device or a pipe has no content to lose, so it is written directly.
    """
    import shutil
    import tempfile

    try:
        if not may_be_results:
            require_no_results(path)
        if path.exists() and not path.is_file():
            yield path
            return
        target = path.resolve()
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        # A folder of its own: libraries put further files next to the one that they write.
        with tempfile.TemporaryDirectory(".new", ".deepbench-", target.parent, ignore_cleanup_errors=True) as folder:
            draft = Path(folder) / "draft"
            yield draft
            if target.exists():
                shutil.copymode(target, draft)
            draft.replace(target)
    except OSError as error:
        raise NotWritten(path, error) from None


def require_no_results(path: Path) -> None:
    """`BadInput` if an output would replace a result file, under whatever name. It may be an input of the command."""
    with contextlib.suppress(OSError):
        if path.is_file():
            with open(path, "rb") as file:
                first = file.readline(LONGEST_HEADER_BYTES)
            if HEADER.search(first):
                raise BadInput(f"{path} is a result file and would be replaced; choose another name for the output")
