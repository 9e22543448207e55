"""What packages DeepBench agrees with the project: the recipe of conda, the container file and the wheels."""

import re
import subprocess
import sys
import tomllib
import types
from pathlib import PurePosixPath

import pytest
import yaml

from deepbench.core.version import VERSION
from deepbench.native import library
from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGING = ROOT / "packaging"
RECIPE = yaml.safe_load((PACKAGING / "conda" / "recipe.yaml").read_text())

# What conda-forge calls packages of the Python index.
NAMES = {"ml-dtypes": "ml_dtypes", "fastjsonschema": "python-fastjsonschema", "scipy-openblas64": "libopenblas"}
NAMES |= {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def least(requirement):
    """`numpy>=1.26,<3; marker` → the name on conda-forge, and the least version."""
    name, version = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
    return NAMES.get(name, name).lower(), version


def test_the_recipe_of_conda_agrees_with_the_project():
    project = PROJECT["project"]
    assert VERSION == RECIPE["context"]["version"]
    assert project["name"] == RECIPE["package"]["name"]
    assert project["description"] == RECIPE["about"]["summary"]
    assert project["license"] == RECIPE["about"]["license"]
    assert project["license-files"] == RECIPE["about"]["license_file"]
    scripts = [f"{name} = {function}" for name, function in project["scripts"].items()]
    assert scripts == RECIPE["build"]["python"]["entry_points"]
    assert "setuptools >=77" in RECIPE["requirements"]["host"]
    assert ["setuptools>=77"] == PROJECT["build-system"]["requires"]

    wanted = {least(r) for r in project["dependencies"] if not r.startswith("onednn-cpu-gomp")}
    found = {tuple(r.split(" >=")) for r in RECIPE["requirements"]["run"] if r != "python"}
    assert wanted == found - {("onednn-cpu-omp", "3.2,<4")}
    # No dependency of conda says which Python is the oldest: pip refuses an older one.
    assert ">=3.11" == project["requires-python"]


def test_the_extras_in_the_recipe_of_conda_have_the_versions_of_the_project():
    extras = {
        least(r) for requirements in PROJECT["project"]["optional-dependencies"].values()
        for r in requirements if re.match(r"[\w-]+>=", r)
    }  # fmt: skip
    found = {tuple(r.split(" >=")) for r in RECIPE["requirements"]["run_constraints"]}
    assert len(found) > 5
    assert found <= extras


def test_files_that_the_recipe_of_conda_names_exist():
    for name in [*RECIPE["about"]["license_file"], *RECIPE["tests"][1]["files"]["source"]]:
        assert (ROOT / name).is_file(), name
    assert ROOT == (PACKAGING / "conda" / RECIPE["source"]["path"]).resolve()


def instructions(path):
    """The lines of a container file as (instruction, words), with continued lines joined."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def test_the_container_file_is_sound():
    found = instructions(PACKAGING / "Containerfile")
    images = [words.split()[0] for name, words in found if name == "FROM"]
    assert 2 == len(images)
    for image in images:  # a supported Python
        version = re.fullmatch(r"docker\.io/library/python:(\d+\.\d+)-slim", image)[1]
        assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]
    *_, user = (words for name, words in found if name == "USER")
    assert user.isdecimal()
    assert int(user) > 0
    assert 'ENTRYPOINT ["deepbench"]' in [" ".join(line) for line in found]
    copied = [word for name, words in found if name == "COPY" for word in words.split()[:-1] if "--from" not in words]
    assert {"pyproject.toml", "setup.py", "deepbench", PROJECT["project"]["readme"], "LICENSE"} == set(copied)
    for name in copied:
        assert (ROOT / name).exists(), name


def test_one_wheel_serves_every_python():
    table = PROJECT["tool"]["cibuildwheel"]
    tested = {re.match(r"cp(\d)(\d+)-manylinux_\*$", name).groups() for name in table["build"]}
    supported = re.findall(r"Python :: (3)\.(\d+)", " ".join(PROJECT["project"]["classifiers"]))
    assert {supported[0], supported[-1]} == tested  # built with the oldest, also tested with the newest
    script = table["test-command"].removeprefix("python {project}/")
    assert (ROOT / script).is_file()


@pytest.mark.programs
def test_the_check_of_an_installation_finds_a_library_that_does_not_load(tmp_path):
    """A copy of the package without compiled libraries, and one in which a library is damaged."""
    (tmp_path / "deepbench").mkdir()
    for path in (ROOT / "deepbench").iterdir():
        if path.name not in ("native", "__pycache__"):
            (tmp_path / "deepbench" / path.name).symlink_to(path)
    native = tmp_path / "deepbench" / "native"
    native.mkdir()
    for path in (ROOT / "deepbench" / "native").iterdir():
        if path.suffix != ".so" and path.name != "__pycache__":
            (native / path.name).symlink_to(path)
    (native / "_memory.so").write_bytes(b"\x7fELF" + bytes(60))
    words = [sys.executable, "-P", str(PACKAGING / "check_installed.py"), "--load-only"]
    done = subprocess.run(words, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True)
    assert 1 == done.returncode
    assert "not loaded: " in done.stdout
    assert {"callloop", "memory"} <= set(re.findall(r"\w+", done.stdout.partition("not loaded: ")[2]))
    assert "" == done.stderr


def test_a_library_is_preferred_to_one_of_an_older_checkout(monkeypatch, tmp_path):
    loaded = []

    def load(path):
        loaded.append(PurePosixPath(path).name)
        if path.endswith("_loop.so"):
            raise OSError
        return path

    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    monkeypatch.setattr(library, "ctypes", types.SimpleNamespace(CDLL=load))
    for name in ("_loop.cpython-311-x86_64-linux-gnu.so", "_loop.so", "_loops.so"):
        (tmp_path / name).touch()
    assert str(tmp_path / "_loop.cpython-311-x86_64-linux-gnu.so") == library.compiled("loop")
    assert ["_loop.so", "_loop.cpython-311-x86_64-linux-gnu.so"] == loaded


def test_the_runtime_of_openmp_in_a_wheel_is_found_beside_the_package(monkeypatch, tmp_path):
    assert library.own_openmp() is None  # in a checkout
    monkeypatch.setattr(library, "__file__", str(tmp_path / "deepbench" / "native" / "library.py"))
    file = tmp_path / "deepbench_kernels.libs" / "libgomp-0a1b2c3d.so.1.0.0"
    file.parent.mkdir()
    file.touch()
    assert str(file) == library.own_openmp()
