"""Result files that several tests of the command start from; each is measured once."""

import shutil

import pytest

from tests.conftest import run_command


@pytest.fixture(scope="session")
def _null_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("null")
    words = ("run", "gemm m=3 n=4 k=5", "gemm m=6 n=7 k=8", "--backend", "null", "--quick", "-o", "out.jsonl")
    done = run_command(folder, *words)
    assert 0 == done.returncode, done.stderr
    return folder / "out.jsonl"


@pytest.fixture
def null_file(_null_file, tmp_path):
    """`out.jsonl`: two matrix products on `null`, one round. Complete, so that resuming it measures nothing."""
    return shutil.copy(_null_file, tmp_path / "out.jsonl")
