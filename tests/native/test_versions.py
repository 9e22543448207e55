"""The versions of our C loops for older CPUs: the best one is tested as a library, in tests/backends."""

import ctypes
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from deepbench.backends.loops import BACKEND
from deepbench.core.case import parse_case
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.core.op import find_op
from deepbench.machine import describe
from deepbench.measuring.check import check
from deepbench.native import callloop, library

pytestmark = pytest.mark.programs

OPERATIONS = {"attention": "attention", "weight_only_gemm": "weight_only"}


@cache
def built(name, version, folder):
    """The library with the loops of one instruction set only."""
    source = Path(library.__file__).parent / f"{name}.c"
    target = Path(folder) / f"{name}_{version}.so"
    choice = f"-DCALL(name)=name##_{version}"
    flags = ["-O2", "-fopenmp", "-shared", "-fPIC", choice]
    subprocess.run(["gcc", *flags, str(source), "-o", str(target)], check=True, capture_output=True)
    return target


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("version", [pytest.param("plain", marks=pytest.mark.long), "avx2"])
@pytest.mark.parametrize("op", sorted(OPERATIONS))
def test_loops_of_older_cpus_are_right(op, version, precision, tmp_path_factory, monkeypatch):
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    if version == "avx2" and "avx2" not in describe.instructions():
        pytest.skip("needs a CPU with AVX2")
    try:
        BACKEND.open()
    except Unavailable as error:
        pytest.skip(str(error))
    path = built(OPERATIONS[op], version, str(tmp_path_factory.getbasetemp()))
    loops = ctypes.CDLL(str(path), mode=os.RTLD_LOCAL)
    monkeypatch.setattr(library, "compiled", lambda name: loops)
    from deepbench.native import attention

    attention.compiled.cache_clear()
    checked = 0
    for problem in find_op(op).smoke:
        case = parse_case(f"{op} {problem.text} forward {precision} loops threads={BACKEND.threads}")
        operation = find_op(op)
        try:
            arrays = operation.operands(case)
            operation.reset(case, arrays)
            kernel = BACKEND.prepare(case, arrays)
        except Unsupported:
            continue
        timer, _ = callloop.timer(kernel)
        timer(1)
        assert check(operation, case, arrays).passed, case
        checked += 1
    attention.compiled.cache_clear()

    assert checked > 3
