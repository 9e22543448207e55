"""Threads: what backends declare about environment variables, and what libraries say about their threads."""

import ctypes
import ctypes.util
import json
import os
import subprocess
import sys

import pytest

from deepbench.core import variables
from deepbench.core.backend import all_backends
from deepbench.measuring import launch
from deepbench.native import library
from tests.conftest import NO_LIBRARIES, records_of

pytestmark = pytest.mark.programs

PLUGIN = '''
import os

from deepbench.core.backend import Backend, kernel
from deepbench.core.kernel import Kernel


class Threaded(Backend):
    """Like a library that reads its thread count from its own variable."""

    name = title = "threaded"
    thread_variables = ("THREADED_NUM_THREADS",)
    override_variables = ("THREADED_AFFINITY",)
    fixed_variables = {"THREADED_DYNAMIC": "no"}
    tuning_variables = ("THREADED_*",)

    def open(self):
        return {"name": self.title, "version": "1.0", "path": None}

    def threads_in_use(self):
        return int(os.environ["THREADED_NUM_THREADS"])

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case, arrays):
        def run():
            a, b, c = (arrays[x] for x in "abc")
            c += (b.T if case.problem.b_t else b) @ (a.T if case.problem.a_t else a)

        return Kernel(run=run, notes={"threads_used": self.threads_in_use()})


BACKEND = Threaded()
'''


def test_one_file_is_enough_for_a_library_with_its_own_thread_variable(deepbench, tmp_path):
    (tmp_path / "backends").mkdir()
    (tmp_path / "backends" / "threaded.py").write_text(PLUGIN)
    done = deepbench(
        *("run", "gemm m=8 n=8 k=8 f32 threaded", "--threads", "2", "--quick", "-o", "out.jsonl"),
        **NO_LIBRARIES,
        DEEPBENCH_PLUGINS=str(tmp_path),
        THREADED_NUM_THREADS="1",
        THREADED_AFFINITY="0",
        THREADED_BLOCK="64",
    )

    assert 0 == done.returncode, done.stderr
    (record,) = records_of(tmp_path / "out.jsonl")
    assert ("ok", 2) == (record["status"], record["notes"]["threads_used"]), record["reason"]
    wanted = {"THREADED_NUM_THREADS": "2", "THREADED_DYNAMIC": "no", "THREADED_BLOCK": "64"}
    assert wanted == {k: v for k, v in record["process"]["environment"].items() if k.startswith("THREADED_")}


LIBRARIES = ["aocl", "ggml", "mkl", "onednn", "onednn_sycl", "openblas", "paddle", "torch", "torch_compiled", "xnnpack"]


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_library_reports_the_threads_of_the_case(name, threads):
    inherited = {**os.environ, "OMP_NUM_THREADS": "7", "MKL_NUM_THREADS": "7", "OPENBLAS_NUM_THREADS": "7"}
    code = (
        "import json; from deepbench.core.backend import find_backend; from deepbench.core.errors import Unavailable\n"
        f"backend = find_backend({name!r})\n"
        "try: backend.open(); print(json.dumps(backend.threads_in_use()))\n"
        "except Unavailable as error: print(json.dumps(str(error)))"
    )
    environment = launch.worker_environment(threads, "none", [], inherited)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    if isinstance(answer, str):
        pytest.skip(answer)

    assert threads == answer


def test_openmp_threads_of_a_library_without_openmp_are_unknown():
    from deepbench.native.library import openmp_threads

    assert openmp_threads(ctypes.CDLL(ctypes.util.find_library("m"))) is None


def test_libraries_that_are_told_by_a_call_get_the_threads_of_the_case(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert 3 == library.threads_of_case()
    for text in ("4,2", "0", "", "all"):  # of a user, where DeepBench has set nothing
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert len(os.sched_getaffinity(0)) == library.threads_of_case()


def test_variables_of_all_libraries_are_known():
    assert {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"} <= set(variables.thread_variables())
    assert {"GOTO_NUM_THREADS", "MKL_THREADING_LAYER", "OMP_PLACES"} <= set(variables.override_variables())
    assert {"OMP_DYNAMIC": "false", "MKL_DYNAMIC": "FALSE"}.items() <= variables.fixed_variables().items()
    names = ["MKL_VERBOSE", "ONEDNN_VERBOSE", "NCCL_ALGO", "I_MPI_PIN", "CUDA_CACHE_MAXSIZE", "CUBLASLT_LOG_LEVEL"]
    assert set(names) == set(variables.tuning(dict.fromkeys([*names, "HOME"], "1")))


def test_path_variables_belong_to_one_library_each():
    paths = [b.path_variable for b in all_backends().values() if b.path_variable is not None]

    assert {"DEEPBENCH_MKL_PATH", "DEEPBENCH_CUBLAS_PATH", "DEEPBENCH_HIPBLAS_PATH"} <= set(paths)
    assert len(set(paths)) == len(paths)
