"""IREE: that programs are compiled for this CPU, what they multiply with, and how it is missing."""

import os
import re
import sys

import numpy as np
import pytest

from deepbench.backends import iree
from deepbench.core.backend import find_backend
from deepbench.core.case import parse_case
from deepbench.core.errors import LibraryError, Unavailable, Unsupported
from deepbench.machine import describe
from deepbench.measuring.heat import measure_case
from deepbench.plan.modes import Rules

pytestmark = pytest.mark.programs

SHORT = Rules(least_samples=2, least_s=0.0, most_s=0.002, warm_up_s=0.001)
HOST = "--iree-llvmcpu-target-cpu=host"


@pytest.fixture(scope="module")
def backend():
    """The opened library."""
    found = find_backend("iree")
    try:
        found.open()
    except Unavailable as error:
        pytest.skip(str(error))
    return found


@pytest.mark.parametrize("module", ["iree.runtime", "iree.compiler"])
def test_without_it_the_remedy_is_named(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(Unavailable, match=r"^IREE not found \(.*\); pip install iree-base-compiler iree-base-runtime$"):
        find_backend("iree").open()


@pytest.mark.parametrize("module", ["", 'cpu = "", cpu_features = ""', 'cpu = "generic"'])
def test_code_for_no_particular_processor_is_refused(module):
    with pytest.raises(Unsupported, match="no particular processor"):
        iree.target(module)


def test_what_the_compiler_does_by_default_would_be_refused(backend, monkeypatch):
    monkeypatch.setattr(iree, "FLAGS", tuple(flag for flag in iree.FLAGS if flag != HOST))
    module = backend._compile(iree.SMALLEST, "--compile-to=preprocessing").decode(errors="replace")

    with pytest.raises(Unsupported, match="no particular processor"):
        iree.target(module)


@pytest.mark.parametrize(
    ("assembly", "found"),
    [
        ("\tvdpbf16ps\t%zmm1, %zmm2\n\tvdpbf16ps\t%zmm1\n\tvfmadd231ps\t%zmm0\n", "vdpbf16ps"),
        ("\tvfmadd231ps\t%zmm1, %zmm2\n", "vfmadd231ps"),
        ("\tbfmmla\tv0.4s, v1.8h, v2.8h\n", "bfmmla"),
        ("\taddq\t%rax, %rbx\n.vfmadd231ps:\n", "no vector instruction"),
    ],
)
def test_the_instruction_that_multiplies_is_named(assembly, found):
    assert found == iree.instruction(assembly)


@pytest.mark.parametrize(("kind", "wanted"), [("f32", r"vfmadd\d+ps"), ("bf16", "vdpbf16ps")])
def test_a_record_says_with_what_and_for_which_processor(backend, kind, wanted):
    if not {"f32": {"avx512f", "avx2"}, "bf16": {"avx512_bf16"}}[kind] & set(describe.instructions()):
        pytest.skip(f"this CPU has no instructions for {kind}")
    text = f"gemm m=64 n=48 k=32 a_t=1 b_t=0 forward {kind} iree threads=1"
    record = measure_case(parse_case(text), 1, SHORT, 60.0)

    assert "ok" == record["status"], record["reason"]
    assert re.fullmatch(rf"{wanted} for {backend.target}", record["notes"]["implementation"])
    assert 0 < record["notes"]["compile_s"] < 60
    assert ("IREE", False) == (record["library_title"], record["framework"])
    assert backend.target == record["library"]["cpu_kernels"]
    assert HOST.removeprefix("--iree-") in record["library"]["build"].split()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_program_adds_to_c_in_place_with_the_threads_of_the_case(backend, threads):
    case = parse_case(f"gemm m=130 n=67 k=99 forward f32 iree threads={threads}")
    arrays = case.operation.operands(case)
    before, others = arrays["c"].copy(), len(os.listdir("/proc/self/task"))
    kernel = backend.prepare(case, arrays)
    for _ in range(3):
        kernel.run()

    product = arrays["b"].astype(float) @ arrays["a"].astype(float)
    assert np.abs(arrays["c"] - before - 3 * product).max() < 1e-3
    assert threads == 1 or len(os.listdir("/proc/self/task")) >= others + threads


def test_what_the_compiler_says_is_the_reason(backend):
    with pytest.raises(LibraryError, match=r"IREE: iree-compile returned \d+ \(.*nothing"):
        backend._compile("nothing")


def test_packed_weights_are_refused(backend):
    record = measure_case(parse_case("gemm m=8 n=8 k=8 forward f32 iree threads=1 weights=packed"), 1, SHORT, 60.0)

    assert "unsupported" == record["status"]
    assert "chooses the layout of its operands itself" in record["reason"]
