"""Two builds of a library as the two sides of a run: wheels, folders, files, or versions of the package index.

A side names its library with the path variable of the backend, which takes a file or a folder. Wheels are unpacked and
versions installed into folders for temporary files; nothing in a wheel is executed before a worker loads the library.
"""

from __future__ import annotations

import re
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from deepbench.core import registry
from deepbench.core.backend import Backend, find_backend
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.measuring.sides import Side, parse_sides
from deepbench.plan.cases import Choices

# What is unpacked of a wheel. The largest libraries for CPUs have 0.4 GB.
MOST_BYTES, MOST_FILES = 8 * 2**30, 50_000

# A download of some hundred megabytes.
INSTALL_S = 900.0

VERSION = re.compile(r"[0-9]+(\.[0-9]+)*([a-z]+[0-9]+)?")


class Build(NamedTuple):
    """One of the two, as the user named it."""

    backend: Backend
    name: str
    is_version: bool


@contextmanager
def sides(text: str) -> Iterator[tuple[Side, Side]]:
    """The sides of `NAME=ONE,OTHER`, as `parse_sides` reads them, or of two builds of a library.

        openblas=old.whl,new.whl          wheels, folders or files
        openblas==0.3.30,0.3.33           versions, which are installed

    Their folders are removed at the end. `BadInput` says what is wrong with one of them.
    """
    found = builds(text)
    if found is None:
        yield parse_sides(text)
        return
    with tempfile.TemporaryDirectory(prefix="deepbench-builds-", ignore_cleanup_errors=True) as folder:
        paths = [_path(build, Path(folder, f"{side}")) for build, side in zip(found, "ab", strict=True)]
        variable = str(found[0].backend.path_variable)
        a, b = (
            Side(side, environment={variable: str(path)}, build=f"{build.backend.name} {Path(build.name).name}")
            for side, build, path in zip("ab", found, paths, strict=True)
        )
        yield a, b


def of_library(text: str, choices: Choices) -> Choices:
    """The choices of the command line; where they name no library, that of the builds alone."""
    found = builds(text)
    return choices if found is None or choices.backends else replace(choices, backends=(found[0].backend.name,))


def builds(text: str) -> tuple[Build, Build] | None:
    """The builds that the text names; None where it names something else, such as a setting."""
    name, equals, rest = text.partition("=")
    if not equals or name not in registry.names("backends"):
        return None
    is_version, rest = rest.startswith("="), rest.removeprefix("=")
    first, comma, second = rest.partition(",")
    if not comma or not first or not second or "," in second or first == second:
        raise BadInput(f"--ab wants two different builds, such as {name}=old.whl,new.whl, found {shorten(text)}")
    backend = find_backend(name)
    if backend.path_variable is None:
        raise BadInput(f"{backend.title} cannot be loaded from a path, so --ab cannot name builds of it")
    return Build(backend, first, is_version), Build(backend, second, is_version)


def versions_between(backend: Backend, first: str, last: str) -> list[str]:
    """All versions of the package of a library from the first to the last, in order. The package index is asked."""
    if backend.package is None:
        raise BadInput(f"{backend.title} is in no package of its own; name two files or folders instead")
    for version in (first, last):
        if not VERSION.fullmatch(version):
            raise BadInput(f"wanted versions such as 0.3.29..0.3.34, found {shorten(printable(version))}")
    command = [sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check", backend.package]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=INSTALL_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"cannot ask for the versions of {backend.package}: {printable(str(error))[:200]}") from None
    found = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    known = [name for name in found[1].split(", ") if VERSION.fullmatch(name)] if found else []
    low, high = _numbers(first), _numbers(last)
    chosen = [name for name in known if low <= _numbers(name) and _numbers(name)[: len(high)] <= high]
    if len(chosen) < 2:
        some = ", ".join(known[:10]) or "none"
        raise BadInput(f"{backend.package} has {len(chosen)} versions from {first} to {last}; the newest are {some}")
    return sorted(chosen, key=_numbers)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", version))


def _path(build: Build, folder: Path) -> Path:
    """The file or the folder that a side loads."""
    if build.is_version:
        return installed(build.backend, build.name, folder)
    path = Path(build.name).expanduser()
    if not path.exists():
        raise BadInput(f"{shorten(printable(build.name))} does not exist; wanted a wheel, a folder or a library file")
    return unpacked(path, folder) if path.suffix == ".whl" else path.resolve()


def installed(backend: Backend, version: str, folder: Path) -> Path:
    """Install a version of the package of a library, with what it depends on, into a new folder."""
    if backend.package is None:
        raise BadInput(f"{backend.title} is in no package of its own; name two files or folders instead")
    if not VERSION.fullmatch(version):
        raise BadInput(f"--ab {backend.name}== wants versions such as 0.3.30, found {shorten(printable(version))}")
    wanted = f"{backend.package}=={version}.*"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--only-binary", ":all:", "--target", str(folder), wanted]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=INSTALL_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"cannot install {wanted}: {printable(str(error))[:200]}") from None
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), done.stderr.strip())
        raise BadInput(f"cannot install {wanted}: {printable(reason)[:300]}")
    return folder


def unpacked(wheel: Path, folder: Path) -> Path:
    """Unpack a wheel into a new folder: regular files inside it only, and no more than the limits."""
    name = shorten(printable(str(wheel)))
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = archive.infolist()
            if len(members) > MOST_FILES or sum(m.file_size for m in members) > MOST_BYTES:
                raise BadInput(
                    f"{name} has more than {MOST_FILES} files or {MOST_BYTES // 2**30} GiB; it is no library"
                )
            left = MOST_BYTES
            for member in members:
                target = _target(folder, member, name)
                if target is None:
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, open(target, "xb") as copy:
                    while chunk := source.read(min(left, 2**20) + 1):
                        left -= len(chunk)  # a member may have more bytes than it says
                        if left < 0:
                            raise BadInput(f"{name} has more than {MOST_BYTES // 2**30} GiB; it is no library")
                        copy.write(chunk)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise BadInput(f"{name} is no wheel that can be unpacked: {printable(str(error))[:200]}") from None
    return folder


def _target(folder: Path, member: zipfile.ZipInfo, wheel: str) -> Path | None:
    """Where a member goes; None for a folder. `BadInput` if that is outside, or no regular file."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    parts = member.filename.split("/")
    if member.is_dir():
        return None
    if kind not in (0, stat.S_IFREG) or member.filename.startswith("/") or ".." in parts or "\\" in member.filename:
        raise BadInput(f"{wheel} has {shorten(printable(member.filename))}, which no wheel of a library has")
    return folder.joinpath(*filter(None, parts))
