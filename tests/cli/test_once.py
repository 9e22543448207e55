"""One call for tools that watch a process: `deepbench run --once`."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from deepbench.core import operands
from deepbench.core.precision import dtype
from tests.conftest import NO_LIBRARIES, ROOT

pytestmark = pytest.mark.programs

GEMM = ("gemm", "m=8", "n=9", "k=10", "f32")


def test_a_right_result_is_said_and_nothing_is_written(deepbench, tmp_path):
    done = deepbench("run", "--once", *GEMM, "reference", "threads=1")

    assert (0, "") == (done.returncode, done.stderr)
    assert "gemm m=8 n=9 k=10 a_t=0 b_t=0 forward f32 reference threads=1: NumPy float64" in done.stdout
    assert "right: every element" in done.stdout
    assert [] == [*tmp_path.iterdir()]


def test_a_real_library_is_called_once_by_compiled_code(deepbench):
    done = deepbench("run", "--once", *GEMM, "openblas", "threads=1")

    assert 0 == done.returncode, done.stderr
    assert "native loop, right" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (GEMM, "--once takes one case, and this names"),
        ((*GEMM, "reference", "-o", "x.jsonl"), "--once makes one call and writes no file"),
        (("all_reduce", "n=8", "ranks=2", "ring"), "all_reduce needs several"),
    ],
)
def test_what_is_not_one_call_is_refused(deepbench, words, sentence):
    done = deepbench("run", "--once", *words)

    assert 64 == done.returncode
    assert sentence in " ".join(done.stderr.split())


def test_a_missing_library_and_a_wrong_region_are_a_sentence(deepbench):
    done = deepbench("run", "--once", *GEMM, "openblas", "threads=1", **NO_LIBRARIES)
    assert 1 == done.returncode
    assert "no/such/library" in done.stdout + done.stderr

    done = deepbench("run", "--once", *GEMM, "reference", "threads=1", DEEPBENCH_REGION_PATH="/no/such.so")
    assert 1 == done.returncode
    assert "name a library with region_begin and region_end" in " ".join((done.stdout + done.stderr).split())


def test_the_call_lies_between_the_marks_of_a_library(deepbench, tmp_path):
    source = tmp_path / "region.c"
    source.write_text(
        "#include <stdio.h>\n"
        'int region_begin(void) { puts("begin"); return fflush(stdout); }\n'
        'int region_end(void) { puts("end"); return fflush(stdout); }\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "region.so", source], check=True)
    done = deepbench(
        "run", "--once", *GEMM, "reference", "threads=1", DEEPBENCH_REGION_PATH=str(tmp_path / "region.so")
    )

    assert ["begin", "end"] == done.stdout.split()[:2]


def test_a_wrong_result_is_found_without_warnings_of_numpy(deepbench, tmp_path):
    """Right products leave flags of divisions by zero behind where BLAS uses Arm's SME."""
    plugins = tmp_path / "backends"
    plugins.mkdir()
    (plugins / "lazy.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.help.liars import Lazy\n"
        "class Own(Lazy):\n    name = title = 'lazy'\n    def prepare(self, case, arrays):\n"
        "        arrays['c'].dtype.type(1) / arrays['c'].dtype.type(0)\n        return super().prepare(case, arrays)\n"
        "BACKEND = Own()\n"
    )
    done = deepbench("run", "--once", *GEMM, "lazy", "threads=1", DEEPBENCH_PLUGINS=str(tmp_path))

    assert 1 == done.returncode
    assert "wrong: " in done.stdout
    assert "Warning" not in done.stderr


UNDER = {
    "valgrind": ["--tool=cachegrind", "--cachegrind-out-file=/dev/null"],
    "perf": ["stat", "-e", "task-clock"],
    "qemu-x86_64": [],
}


@pytest.mark.parametrize("program", UNDER)
@pytest.mark.long
def test_it_works_under_programs_that_watch_a_process(program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed; try apt install valgrind linux-perf qemu-user")
    words = [sys.executable, "-P", "-m", "deepbench", "run", "--once", *GEMM, "openblas", "threads=1"]
    done = subprocess.run([program, *UNDER[program], *words], capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr[-2000:]
    assert "right: every element" in done.stdout


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16", "f8e4m3", "s8", "u8", "s32"])
def test_plain_numbers_have_the_range_of_random_ones(kind):
    plain = operands._plain_numbers(100_000, kind, 3).astype(float)
    random = operands.draw(100_000, kind, 3).astype(float)

    assert dtype(kind) == operands._plain_numbers(4, kind, 3).dtype
    assert not (plain == 0).any()
    assert (random.min(), random.max()) == pytest.approx((plain.min(), plain.max()), rel=1e-2)
    assert abs(plain.mean() - random.mean()) < 0.02 * np.abs(random).max()
    assert random.std() == pytest.approx(plain.std(), rel=0.02)
    assert not np.array_equal(operands._plain_numbers(1000, kind, 3), operands._plain_numbers(1000, kind, 4))
