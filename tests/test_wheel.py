"""The wheel: built from the source distribution, installed in a new environment, used outside the checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import PurePath

import pytest

import deepbench
from tests.conftest import ROOT, records_of

pytestmark = pytest.mark.wheel


def run(*words, cwd):
    """The standard output of a command that neither finds the checkout nor fails."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("build", reason="build is not installed: pip install build")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def programs(wheel):
    """The folder of programs of a new environment that holds the wheel and what it requires."""
    run(sys.executable, "-m", "venv", wheel.parent / "env", cwd=wheel.parent)
    programs = wheel.parent / "env" / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", wheel, cwd=wheel.parent)
    return programs


def test_the_wheel_holds_every_file_of_the_package(wheel):
    files = {PurePath(name) for name in zipfile.ZipFile(wheel).namelist()}
    package = {path.relative_to(ROOT) for path in (ROOT / "deepbench").rglob("*") if path.is_file()}
    expected = {path for path in package if path.suffix not in (".pyc", ".so")}

    assert {"deepbench/py.typed"} <= {str(path) for path in expected}
    assert set() == expected - files
    compiled = [path for path in files if path.suffix == ".so"]
    sources = [path for path in package if path.suffix == ".c"]
    assert len(sources) == len(compiled) or shutil.which("cc") is None, compiled


def test_one_wheel_serves_every_python(wheel):
    assert re.fullmatch(r"deepbench_kernels-[\d.]+-py3-none-linux_\w+\.whl", wheel.name)
    compiled = [PurePath(name).name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    assert all(re.fullmatch(r"_[a-z_]+\.so", name) for name in compiled), compiled


def test_the_installed_command_measures_a_case(programs, tmp_path):
    text = "gemm m=64 n=32 k=100 f32 openblas"
    run(programs / "deepbench", "run", text, "--quick", "-o", "out.jsonl", cwd=tmp_path)
    (record,) = records_of(tmp_path / "out.jsonl")

    assert "ok" == record["status"], record["reason"]
    assert "native" == record["measurement"]["loop"] or shutil.which("cc") is None
    (row,) = json.loads(run(programs / "deepbench", "show", "out.jsonl", "--json", cwd=tmp_path))["cases"]
    assert "ok" == row["status"]


def test_the_check_of_an_installation_finds_nothing(programs, tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    assert "measured and checked: " in run(programs / "python", ROOT / "packaging" / "check_installed.py", cwd=tmp_path)


def test_the_installed_package_can_be_imported(programs, tmp_path):
    code = "import deepbench; print(deepbench.__version__, deepbench.__file__)"
    version, path = run(programs / "python", "-c", code, cwd=tmp_path).split()

    assert deepbench.__version__ == version
    assert PurePath(path).is_relative_to(programs.parent)
