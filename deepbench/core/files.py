"""Files that people name: read without waiting for anything, and written as a whole or not at all.

A name may belong to anything: opening a FIFO waits for a writer, and reading a device may never end. An output never
takes the place of a result file.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable

# The system returns at once from opening a FIFO, and a terminal does not become that of this process.
SAFELY = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

GZIP_MAGIC = b"\x1f\x8b"

# What Git LFS leaves in the place of a large file that was not fetched.
LFS_POINTER = b"version https://git-lfs.github.com/spec/"

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


def decompressed(file: IO[bytes], most_bytes: int) -> IO[bytes]:
    """The content of a file, decompressed if it is one of gzip; a reader that ends after `most_bytes` + 1 bytes.

    Reading raises `OSError` if the compressed data are damaged: some kilobytes may claim to be terabytes.
    """
    start = file.read(len(GZIP_MAGIC))
    file.seek(0)
    return cast(IO[bytes], io.BufferedReader(_Gzip(file, most_bytes))) if start == GZIP_MAGIC else file


class _Gzip(io.RawIOBase):
    """Decompresses at most so many bytes and one more."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        import gzip

        self._file, self._left = gzip.GzipFile(fileobj=file), most_bytes + 1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._file.read(min(len(buffer), self._left))
        except (EOFError, zlib.error) as error:
            raise OSError(errno.EIO, f"its compressed data are damaged or cut off ({error})") from None
        self._left -= len(content)
        buffer[: len(content)] = content
        return len(content)


def read_regular(path: Path, most_bytes: int, wanted: str) -> bytes:
    """The content of a regular file of at most so many bytes; `BadInput` for anything else."""
    with open_regular(path, most_bytes, wanted) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size + 1)  # memory for so much is taken at once
            if len(content) > size:  # the size of a file may be stated as 0, or grow meanwhile
                content += file.read(most_bytes + 1 - len(content))
        except OSError as error:
            raise BadInput(f"cannot read {printable(str(path))}: {error.strerror}; expected {wanted}") from None
    if len(content) > most_bytes:
        raise BadInput(f"{printable(str(path))} has more than {most_bytes} bytes; expected {wanted}")
    require_no_pointer(content, path)
    return content


def require_no_pointer(content: bytes, path: Path) -> None:
    """`BadInput` for what Git LFS leaves in the place of a file."""
    if content.startswith(LFS_POINTER):
        raise BadInput(f"{printable(str(path))} is a pointer of Git LFS, not the file itself; fetch it: git lfs pull")


# ---- outputs

# The header of a result file or a fleet file, even of a damaged one.
HEADER = re.compile(rb'"schema"\s*:\s*"deepbench(-fleet)?/')
LONGEST_HEADER_BYTES = 1 << 20

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class NotWritten(BadInput):
    """The system refuses to write a file; what was there before has not changed."""

    def __init__(self, path: Path, error: OSError) -> None:
        reason = os.strerror(error.errno) if error.errno else str(error)
        remedy = "free some space" if error.errno in FULL_DISK else "choose another name"
        super().__init__(f"cannot write {path}: {reason}; {remedy}")


@contextmanager
def replacing(path: Path, ours: bool = False) -> Iterator[Path]:
    """Yield the path of a draft in the same folder, which takes the place of `path` at the end.

    After an error `path` is as it was. `NotWritten` where it cannot be written, `BadInput` where it is a result file
    that it must not replace. A device or a pipe has no content to lose, so it is written directly. A link that a person
    names is followed, and stays. In a folder of ours (`ours`) anything is replaced, and a link itself, because no
    person chose it.
    """
    import shutil
    import tempfile

    try:
        if not ours:
            require_no_results(path)
            if path.exists() and not path.is_file():
                yield path
                return
            if path.is_symlink():
                _require_followed(path)
        target = path if ours else path.resolve()
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        # A folder of its own: libraries put further files next to the one that they write.
        with tempfile.TemporaryDirectory(".new", ".deepbench-", target.parent, ignore_cleanup_errors=True) as folder:
            draft = Path(folder) / "draft"
            yield draft
            if target.exists() and not target.is_symlink():
                shutil.copymode(target, draft)
            draft.replace(target)
    except OSError as error:
        raise NotWritten(path, error) from None


def _require_followed(link: Path) -> None:
    """`OSError` where the system follows no link: that of another user in a folder such as /tmp."""
    with contextlib.suppress(FileNotFoundError):  # of the file behind it, which will be new
        os.close(os.open(link, os.O_WRONLY | SAFELY))


def make_private_folder(path: Path) -> None:
    """Make a folder that only this user can enter, for files of the program itself, or take the one that is there.

    `BadInput` where that is a link, or belongs to another user: they could lead us to write elsewhere.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        facts = path.lstat()
        what = "is not a folder"
        if stat.S_ISLNK(facts.st_mode):
            what = "is a link"
        elif stat.S_ISDIR(facts.st_mode):
            if facts.st_uid == os.geteuid():
                return
            what = "belongs to another user"
        name = shorten(printable(str(path)), MOST_OF_NAME)
        raise BadInput(f"{name} {what}; wanted a folder of yours: remove it, or move it away") from None
    except OSError as error:
        raise NotWritten(path, error) from None


@contextmanager
def new_folder(path: Path, replaces: Callable[[Path], bool] | None = None) -> Iterator[Path]:
    """Yield an empty folder next to `path`, which becomes `path` at the end: with everything in it, or not at all.

    `BadInput` where `path` exists, even as a link, unless `replaces` says of it, a folder, that it may be replaced; and
    where its folder is a link. After an error nothing is left, and what was there before has not changed.
    """
    import tempfile

    name = shorten(printable(str(path)), MOST_OF_NAME)
    made: list[Path] = []
    try:
        if path.parent.is_symlink():
            raise BadInput(f"{shorten(printable(str(path.parent)), MOST_OF_NAME)} is a link; wanted a folder")
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir() or not (replaces and replaces(path))):
            raise BadInput(f"{name} already exists; remove it, or choose another name")
        missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir()
            made.insert(0, folder)
        with tempfile.TemporaryDirectory(".new", ".deepbench-", path.parent, ignore_cleanup_errors=True) as drafts:
            draft, old = Path(drafts) / "draft", Path(drafts) / "old"
            draft.mkdir()
            yield draft
            if os.path.lexists(path):
                path.rename(old)
            try:
                draft.rename(path)
            except OSError:
                if old.exists():
                    old.rename(path)
                raise
        made.clear()
    except OSError as error:
        raise NotWritten(path, error) from None
    finally:
        for folder in made:  # the innermost first
            with contextlib.suppress(OSError):
                folder.rmdir()


def require_no_results(path: Path) -> None:
    """`BadInput` if an output would replace a result file, under whatever name. It may be an input of the command."""
    with contextlib.suppress(OSError):
        if path.is_file():
            with open(path, "rb") as file:
                first = decompressed(file, LONGEST_HEADER_BYTES).readline(LONGEST_HEADER_BYTES)
            if HEADER.search(first):
                raise BadInput(f"{path} is a result file and would be replaced; choose another name for the output")
