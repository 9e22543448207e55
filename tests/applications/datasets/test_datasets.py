"""Data sets are found, verified and unpacked; what a package has besides is left alone."""

import hashlib
import io
import lzma
import re
import tarfile
import zipfile

import pytest

from deepbench.applications import datasets
from deepbench.applications.datasets import Dataset, MissingData, Package, UserFolder, digest_of, find, install, members
from deepbench.core.errors import Unavailable

TEXT, TEXT_NAME = b"numbers", "usr/share/letters/a.txt"


def digest(content=TEXT, name=TEXT_NAME):
    line = f"{hashlib.sha256(content).hexdigest()}  {name}\n"
    return hashlib.sha256(line.encode()).hexdigest()


class Letters(Dataset):
    name = "letters"
    title = "Letters"
    about = "a file"
    licence = "public domain"
    packages = (Package("debian", "letters", "1.0", 100, "0" * 64),)
    files = ("usr/share/letters/*.txt",)
    digest = digest()

    def load(self, folder):
        return (folder / TEXT_NAME).read_bytes()


@pytest.fixture
def own(monkeypatch, tmp_path):
    monkeypatch.setenv("DEEPBENCH_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def deb(path, files, data="data.tar.xz"):
    """A Debian package: an `ar` archive with a compressed tar archive."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", data: lzma.compress(tar.getvalue())}
    path.write_bytes(b"!<arch>\n")
    with path.open("ab") as file:
        for name, content in parts.items():
            file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode())
            file.write(content + b"\n" * (len(content) % 2))
    return path


def wheel(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.fixture
def package(monkeypatch, tmp_path):
    """What a download gives; the test chooses. It is the package that was expected, unless the test says otherwise."""

    def given(path, is_expected=True):
        monkeypatch.setattr(datasets, "_download", lambda *_: path)
        if is_expected:
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            monkeypatch.setattr(Letters, "packages", (Package("debian", "letters", "1.0", 100, sha256),))

    return given


def test_what_is_missing_says_how_to_get_it(own):
    with pytest.raises(
        MissingData, match=r"not on this machine; install it with deepbench data letters, or .* apt install"
    ):
        find(Letters())


@pytest.mark.parametrize("kind", ["deb", "whl"])
def test_a_package_is_downloaded_unpacked_and_found_again(own, package, tmp_path, kind):
    make = {"deb": deb, "whl": wheel}[kind]
    package(make(tmp_path / f"letters.{kind}", {TEXT_NAME: TEXT, "usr/bin/program": b"not wanted"}))
    said = []

    found = install(Letters(), said.append)

    assert found.load() == TEXT
    assert find(Letters()).folder == own / "letters"
    assert [path for path in own.rglob("*") if path.is_file()] == [own / "letters" / TEXT_NAME]
    assert said == ["downloading Debian's letters, 0.0 MB"]


def test_other_bytes_than_expected_are_refused(own, package, tmp_path):
    package(deb(tmp_path / "letters.deb", {TEXT_NAME: b"other"}))

    with pytest.raises(MissingData, match="has other files than expected"):
        install(Letters(), print)
    assert not list(own.rglob("*.txt"))


def test_a_file_that_was_changed_later_is_noticed(own, package, tmp_path):
    package(deb(tmp_path / "letters.deb", {TEXT_NAME: TEXT}))
    install(Letters(), print)
    (own / "letters" / TEXT_NAME).write_bytes(b"changed")

    with pytest.raises(MissingData, match="do not have the expected checksum"):
        find(Letters())
    assert install(Letters(), print).load() == TEXT


@pytest.mark.parametrize("name", ["../../usr/share/letters/a.txt", "usr/share/letters/../../../a.txt"])
def test_no_file_leaves_its_folder(own, package, tmp_path, name):
    package(wheel(tmp_path / "letters.whl", {name: TEXT}))

    with pytest.raises(MissingData):
        install(Letters(), print)
    assert not list(tmp_path.rglob("*.txt"))


def member(name, size, content=b""):
    """Of an `ar` archive; `size` as its header says it."""
    return f"{name:<16}{'0' * 32}{size:<10}`\n".encode() + content


def cut_off(path):
    """A package whose files are cut off, as a download may be."""
    content = lzma.compress(bytes(100_000))[:-20]
    path.write_bytes(b"!<arch>\n" + member("data.tar.xz", len(content), content))


def compressed_tar(path):
    content = lzma.compress(b"no archive" * 100)
    path.write_bytes(b"!<arch>\n" + member("data.tar.xz", len(content), content))


def changed_wheel(path, at, value, size=1):
    """A wheel with other bytes behind this signature."""
    content = bytearray(wheel(path, {TEXT_NAME: TEXT * 1000}).read_bytes())
    signature, offset = at
    start = content.index(signature) + offset
    content[start : start + size] = value
    path.write_bytes(content)


LOCAL, CENTRAL = b"PK\3\4", b"PK\1\2"
DAMAGED = {
    "no archive": (lambda path: path.write_bytes(b"no archive"), "no Debian package"),
    "nothing in it": (lambda path: path.write_bytes(b"!<arch>\n"), "it has no files"),
    "other compression": (
        lambda path: path.write_bytes(b"!<arch>\n" + member("data.tar.zst", 4, b"zzzz")),
        "not in data.tar.xz",
    ),
    "no compression": (lambda path: path.write_bytes(b"!<arch>\n" + member("data.tar.xz", 4, b"zzzz")), "is damaged"),
    "no header": (lambda path: path.write_bytes(b"!<arch>\n" + b"x" * 60), "is damaged"),
    "a negative size": (lambda path: path.write_bytes(b"!<arch>\n" + member("a", -60)), "has the size '-60'"),
    "cut off": (cut_off, "is damaged: Compressed file ended before"),
    "no tar": (compressed_tar, "is damaged"),
    "wheel: no archive": (lambda path: path.write_bytes(b"PK"), "is damaged: File is not a zip file"),
    "wheel: encrypted": (lambda path: changed_wheel(path, (CENTRAL, 8), b"\1"), "is damaged: .*encrypted"),
    "wheel: unknown method": (lambda path: changed_wheel(path, (CENTRAL, 10), b"\x63"), "compression method"),
    "wheel: deflate": (
        lambda path: changed_wheel(path, (CENTRAL, 10), b"\x08"),
        "is damaged",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_package_is_a_sentence(own, package, tmp_path, name):
    make, words = DAMAGED[name]
    path = tmp_path / (
        "letters.whl" if "wheel" in name or name in ("encrypted", "unknown method", "deflate") else "a.deb"
    )
    make(path)
    package(path)

    with pytest.raises(MissingData, match=f"{words}.*; try again"):
        install(Letters(), print)
    assert [] == list(own.iterdir())


def test_a_download_that_is_not_the_package_is_not_unpacked(own, package, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "_unpack", None)
    package(deb(tmp_path / "letters.deb", {TEXT_NAME: TEXT}), is_expected=False)

    with pytest.raises(MissingData, match=r"has \d+ bytes with the checksum \w{12}…, wanted 100 bytes with 0{12}…"):
        install(Letters(), print)


def test_what_is_not_of_the_data_set_is_not_even_decompressed(own, package, tmp_path):
    path = tmp_path / "letters.whl"
    wheel(path, {TEXT_NAME: TEXT, "zz": b"y" * 1000})
    content = bytearray(path.read_bytes())
    content[content.rindex(CENTRAL) + 10] = 99  # an unknown method of compression
    path.write_bytes(content)
    package(path)

    assert TEXT == install(Letters(), print).load()


def test_a_package_that_unpacks_to_too_much_is_refused(own, package, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "MOST_BYTES", 1000)
    package(wheel(tmp_path / "letters.whl", {f"usr/share/letters/{i}.txt": b"x" * 600 for i in range(3)}))

    with pytest.raises(MissingData, match="unpacks to more than 1000 bytes"):
        install(Letters(), print)


def test_a_folder_that_cannot_be_written_is_a_sentence(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DEEPBENCH_DATA", str(tmp_path / "file"))

    with pytest.raises(MissingData, match="set DEEPBENCH_DATA to another folder"):
        install(Letters(), print)


def test_every_data_set_says_what_it_is():
    for name, dataset in datasets.datasets().items():
        assert name == dataset.name
        assert dataset.licence
        assert len(dataset.digest) == 64 or isinstance(dataset, UserFolder)
        assert all(package.kind == "pypi" or package.place.endswith(".deb") for package in dataset.packages)
        assert all(re.fullmatch("[0-9a-f]{64}", package.sha256) for package in dataset.packages)


@pytest.mark.parametrize("name", sorted(datasets.datasets()))
def test_what_is_here_can_be_loaded(name):
    try:
        found = find(datasets.find_dataset(name))
    except MissingData as missing:
        pytest.skip(str(missing))

    assert found.bytes > 10**6
    try:
        loaded = found.load()
    except Unavailable as error:
        pytest.skip(str(error))
    assert len(loaded) > 1


def test_the_checksum_does_not_depend_on_the_order(tmp_path):
    for name in "ba":
        (tmp_path / name).write_text(name)
    paths = [tmp_path / "a", tmp_path / "b"]

    assert digest_of(tmp_path, paths) == digest_of(tmp_path, paths[::-1])
    assert members(Letters(), tmp_path) == []
