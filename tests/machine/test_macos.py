"""What runs on macOS, as far as a program in Python can tell: what Linux alone has is missing (tests/help/macos)."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from deepbench.results.file import read_results
from tests.conftest import ROOT

pytestmark = [
    pytest.mark.programs,
    pytest.mark.process,
    pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler"),
]

# SGEMM without transposition, and with alpha = 1.
SGEMM = """
void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k, const float *alpha,
            const float *a, const int *lda, const float *b, const int *ldb, const float *beta, float *c,
            const int *ldc) {
    for (int j = 0; j < *n; j++)
        for (int i = 0; i < *m; i++) {
            double sum = 0;
            for (int l = 0; l < *k; l++) sum += (double)a[i + l * *lda] * b[l + j * *ldb];
            c[i + j * *ldc] = sum + (*beta ? *beta * c[i + j * *ldc] : 0);
        }
}
"""


@pytest.fixture
def on_macos(tmp_path):
    """Runs the command there. Accelerate is a small library of our own."""
    (tmp_path / "accelerate.c").write_text(SGEMM)
    library = tmp_path / "accelerate.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, tmp_path / "accelerate.c"], check=True)
    environment = {
        **os.environ,
        "DEEPBENCH_FAKE_MACOS": "1",
        "DEEPBENCH_ACCELERATE_PATH": str(library),
        "PYTHONPATH": f"{ROOT / 'tests/help/macos'}{os.pathsep}{ROOT}",
    }

    def run(*words):
        command = [sys.executable, "-m", "deepbench", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)

    return run


def test_accelerate_is_measured_and_checked(on_macos, tmp_path):
    done = on_macos(
        *("run", "gemm", "m=32", "n=8", "k=16", "f32", "accelerate", "threads=1"),
        *("--quick", "--no-limits", "-o", "mac.jsonl"),
    )
    file = read_results(tmp_path / "mac.jsonl")
    (record,) = file.records

    assert (0, "ok") == (done.returncode, record["status"]), done.stderr
    assert "a system on which DeepBench was never tried" in done.stdout + done.stderr
    assert "macOS 14.5" == record["library"]["version"] == file.header["machine"]["system"]
    assert {None} == set(record["measurement"]["steal_s"]) == set(record["measurement"]["queued_s"])
    assert record["measurement"]["samples_s"]


def test_what_needs_linux_says_so(on_macos):
    for words in (
        ["ci", "--ab", "openblas==0.3.30,0.3.33", "quick"],
        ["bisect", "--of", "openblas", "--versions", "0.3.29..0.3.34", "gemm", "m=8", "n=8", "k=8"],
    ):
        done = on_macos(*words)

        assert "needs Linux, and this is Darwin" in done.stderr
        assert "Traceback" not in done.stderr
    group = on_macos("run", "all_reduce", "n=64", "ranks=2", "f32", "ring", "--quick", "--no-limits", "-o", "r.jsonl")
    assert "groups of processes need Linux" in group.stdout + group.stderr


def test_libraries_of_other_systems_are_not_asked_for(on_macos):
    done = on_macos("list", "gemm", "m=8", "n=8", "k=8", "--json")
    chosen = {json.loads(line)["case"].split()[-2] for line in done.stdout.splitlines()}

    assert "accelerate" in chosen
    assert not chosen & {"mkl", "aocl", "nvpl"}
