"""Removes what libraries leave behind: their processes end without destructors or are killed, so nobody else does it.

Only files that a process of ours has provably made are removed. They appeared in /dev/shm after we began, belong to our
user, and the process has them mapped or their name has its number.

A parent that is killed cannot remove anything. Its folder has a journal, which the parent locks as long as it lives.
The next run finds the lock gone, and removes the folder and what the journal lists.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

SHARED_MEMORY = Path("/dev/shm")
PREFIX, JOURNAL = "deepbench-", ".journal"

# No journal is longer, unless somebody else has written it.
LARGEST_JOURNAL_BYTES = 2**20

# Processes that were killed may create files for a moment longer.
LAST_FILES_S = 1.0


def shared_memory() -> frozenset[str]:
    """The names of all files of shared memory."""
    with contextlib.suppress(OSError):
        return frozenset(os.listdir(SHARED_MEMORY))
    return frozenset()


def made_by(pid: int, before: Collection[str]) -> dict[str, int]:
    """The files of shared memory that a process which still runs has made, with their inodes.

    `before` has the names that were there when it started.
    """
    maps = b""
    with contextlib.suppress(OSError):
        maps = Path(f"/proc/{pid}/maps").read_bytes()
    pattern = rb" " + re.escape(os.fsencode(SHARED_MEMORY)) + rb"/([^/\n]+)$"
    mapped = {os.fsdecode(name) for name in re.findall(pattern, maps, re.MULTILINE)}
    return _ours((mapped | {_registration(pid)}) - set(before))


def remove(files: Mapping[str, int]) -> None:
    """Remove these files of shared memory, unless others have taken their names."""
    for name, inode in _ours(files).items():
        if inode == files[name]:
            with contextlib.suppress(OSError):
                (SHARED_MEMORY / name).unlink()


def _registration(pid: int) -> str:
    """The name under which Intel's and LLVM's OpenMP runtimes register themselves."""
    return f"__KMP_REGISTERED_LIB_{pid}_{os.getuid()}"


def _ours(names: Collection[str]) -> dict[str, int]:
    """Those that are regular files of this user, with their inodes."""
    found = {}
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            facts = os.lstat(SHARED_MEMORY / name)
            if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid():
                found[name] = facts.st_ino
    return found


class Scratch:
    """A folder for temporary files, and a list of what processes make elsewhere. Made by `scratch`."""

    def __init__(self, folder: Path, journal: IO[str]) -> None:
        self.folder = folder
        self._journal = journal
        self._before = shared_memory()
        self._pids: set[int] = set()
        self._files: dict[str, int] = {}

    def add(self, pid: int) -> None:
        """A process has been started that may register itself under its number."""
        if pid not in self._pids and _registration(pid) not in self._before:
            self._pids.add(pid)
            self._write({"pid": pid})

    def look(self, pid: int) -> None:
        """Note the shared memory that this process, which still runs, has made."""
        self.add(pid)
        new = {name: inode for name, inode in made_by(pid, self._before).items() if self._files.get(name) != inode}
        if new:
            self._files |= new
            self._write({"files": new})

    def clean(self) -> None:
        """Remove everything. The processes have ended."""
        remove(self._files)
        remove(_ours({_registration(pid) for pid in self._pids}))
        _remove_folder(self.folder)

    def _write(self, line: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # a full disk: the journal only matters if this process is killed
            self._journal.write(json.dumps(line) + "\n")
            self._journal.flush()


@contextlib.contextmanager
def scratch() -> Iterator[Scratch]:
    """A `Scratch` that is removed at the end, when all processes that were added to it must have ended."""
    _remove_abandoned(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    draft = folder / f"{JOURNAL}.new"
    with open(draft, "x", encoding="utf-8") as journal:
        # Some network file systems have no locks. Then the journal has no name by which another run could find it.
        with contextlib.suppress(OSError):
            fcntl.flock(journal, fcntl.LOCK_EX)
            draft.replace(folder / JOURNAL)  # others look at it only under this name, when it is locked
        found = Scratch(folder, journal)
        found._write({"place": _place()})
        try:
            yield found
        finally:
            found.clean()


def _place() -> list[Any]:
    """Where and when process numbers have the same meaning: the boot, and the namespace of process numbers."""
    boot = namespace = None
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.stat("/proc/self/ns/pid").st_ino
    return [boot, namespace]


# ---- what runs that were killed have left


@cache
def _remove_abandoned(parent: str) -> None:
    """Remove the folders of runs that were killed, and what their journals list. Once per process."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _is_private_folder(entry):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(Path(entry.path))


def _is_private_folder(entry: os.DirEntry[str]) -> bool:
    """Whether this is a folder into which no other user can have written."""
    with contextlib.suppress(OSError):
        facts = entry.stat(follow_symlinks=False)
        return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077
    return False


def _remove_if_abandoned(folder: Path) -> None:
    """`OSError` where the folder has no journal, or where its owner lives and holds the lock."""
    descriptor = os.open(folder / JOURNAL, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, encoding="utf-8", errors="replace") as journal:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return
        fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lines = []
        for text in journal.read(LARGEST_JOURNAL_BYTES).splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                lines.append(json.loads(text))
        entries = [line for line in lines if isinstance(line, dict)]
        if {"place": _place()} in entries:
            pids = {entry["pid"] for entry in entries if isinstance(entry.get("pid"), int)}
            if any(_runs(pid) for pid in pids if _ours({_registration(pid)})):
                return  # a worker that is just ending, or another process with the same number
            remove(_ours({_registration(pid) for pid in pids}))
            for files in (entry.get("files") for entry in entries):
                if isinstance(files, dict):
                    remove({name: inode for name, inode in files.items() if "/" not in name})
        _remove_folder(folder)


def _runs(pid: int) -> bool:
    """Whether this process exists and has not ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return False


def _remove_folder(folder: Path) -> None:
    """Remove a folder, its journal last: a folder that stays is removed by the next run."""
    deadline = time.monotonic() + LAST_FILES_S
    while True:
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.name != JOURNAL:
                    os.unlink(entry.path)
            if os.listdir(folder) in ([JOURNAL], []):
                (folder / JOURNAL).unlink(missing_ok=True)
                folder.rmdir()
                return
        if time.monotonic() > deadline or not folder.exists():
            return
        time.sleep(0.02)
