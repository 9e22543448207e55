"""Two builds of a library as one word: wheels, folders, files and versions."""

import stat
import zipfile
from pathlib import Path

import pytest

from deepbench.core.errors import BadInput
from deepbench.measuring import builds
from deepbench.measuring.sides import Side
from deepbench.plan.cases import Choices


def wheel(path, **files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return path


@pytest.mark.parametrize("text", ["threads=1,2", "backend=mkl,onednn", "OPENBLAS_CORETYPE=a,b", "weights=plain,packed"])
def test_what_names_no_library_is_left_to_the_other_sides(text):
    assert builds.builds(text) is None
    with builds.sides(text) as (a, b):
        assert isinstance(a, Side)
        assert a != b


def test_wheels_are_unpacked_and_gone_afterwards(tmp_path):
    old = wheel(tmp_path / "old.whl", openblas__libopenblas="old")
    new = wheel(tmp_path / "new.whl", openblas__libopenblas="new")
    with builds.sides(f"openblas={old},{new}") as (a, b):
        folders = [Path(side.environment["DEEPBENCH_OPENBLAS_PATH"]) for side in (a, b)]
        assert ["old", "new"] == [(f / "openblas" / "libopenblas").read_text() for f in folders]
        assert "openblas old.whl" == a.words
    assert not any(f.exists() for f in folders)


def test_folders_and_files_are_used_where_they_are(tmp_path):
    (tmp_path / "build").mkdir()
    (tmp_path / "lib.so").write_text("x")
    with builds.sides(f"onednn={tmp_path / 'build'},{tmp_path / 'lib.so'}") as (a, b):
        assert {"DEEPBENCH_ONEDNN_PATH": str(tmp_path / "build")} == a.environment
        assert {"DEEPBENCH_ONEDNN_PATH": str(tmp_path / "lib.so")} == b.environment
    assert (tmp_path / "lib.so").exists()


def test_builds_of_a_library_measure_this_library_unless_others_are_named():
    assert ("openblas",) == builds.of_library("openblas==1,2", Choices()).backends
    assert ("mkl",) == builds.of_library("openblas==1,2", Choices(backends=("mkl",))).backends
    assert Choices() == builds.of_library("threads=1,2", Choices())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("openblas=/a,/a", "two different builds"),
        ("openblas=/a", "two different builds"),
        ("openblas==1,2,3", "two different builds"),
        ("openblas=/no/such,/no/other", "does not exist; wanted a wheel, a folder or a library file"),
        ("openblas==1.0;rm -rf x,2", "wants versions such as 0.3.30"),
        ("openblas==--pre,2", "wants versions such as 0.3.30"),
        ("openblas==https://x/y.whl,2", "wants versions such as 0.3.30"),
        ("reference=/a,/b", "cannot be loaded from a path"),
        ("pjrt==1,2", "is in no package of its own"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(text, reason):
    with pytest.raises(BadInput, match=reason), builds.sides(text):
        pass


def hostile(path, kind):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        if kind == "outside":
            archive.writestr("../outside", "x")
        elif kind == "absolute":
            archive.writestr("/tmp/outside", "x")
        elif kind == "link":
            info = zipfile.ZipInfo("link")
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, "/etc/passwd")
        elif kind == "bomb":
            archive.writestr("bomb", b"\0" * 2**24)
        elif kind == "many":
            for n in range(40):
                archive.writestr(f"f{n}", "")
    if kind == "none":
        path.write_bytes(b"no zip")
    return path


@pytest.mark.parametrize("kind", ["outside", "absolute", "link", "bomb", "many", "none"])
def test_hostile_wheels_write_nothing_outside(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(builds, "MOST_BYTES", 2**20)
    monkeypatch.setattr(builds, "MOST_FILES", 20)
    good = wheel(tmp_path / "good.whl", a="x")
    bad = hostile(tmp_path / "bad.whl", kind)
    before = {p.name for p in tmp_path.iterdir()}
    with pytest.raises(BadInput, match=r"no wheel|no library|unpacked"), builds.sides(f"openblas={good},{bad}"):
        pass
    assert before == {p.name for p in tmp_path.iterdir()}
    assert not Path("/tmp/outside").exists()


def test_a_member_that_has_more_than_it_says_ends_the_unpacking(tmp_path, monkeypatch):
    """The directory of the archive lies: it says that a member has one byte."""
    path = hostile(tmp_path / "bad.whl", "bomb")
    data = path.read_bytes()
    size = (2**24).to_bytes(4, "little")
    path.write_bytes(data.replace(size, (1).to_bytes(4, "little")))
    monkeypatch.setattr(builds, "MOST_BYTES", 2**20)
    with pytest.raises(BadInput):
        builds.unpacked(path, tmp_path / "out")
    assert sum(f.stat().st_size for f in (tmp_path / "out").rglob("*") if f.is_file()) <= 2**21


@pytest.mark.programs
def test_a_version_that_does_not_exist_is_one_sentence(monkeypatch, tmp_path):
    """pip without an index, so nothing is downloaded."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(BadInput, match=r"cannot install scipy-openblas64==0\.0\.1\.\*: ERROR"):
        builds.installed(builds.find_backend("openblas"), "0.0.1", tmp_path / "x")
