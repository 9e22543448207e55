"""Libraries that exist, or are wrong, on other machines only: NVPL, Accelerate, PyTorch."""

import platform
import sys
from types import SimpleNamespace

import pytest

from deepbench.backends.torch import products
from deepbench.core.backend import all_backends, find_backend
from deepbench.core.case import parse_case
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.machine import describe
from deepbench.native import library


def on(monkeypatch, system, machine):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    names = ("mkl", "aocl", "nvpl", "accelerate", "openblas")
    return {name for name in names if find_backend(name).is_default_on("cpu")}


@pytest.mark.parametrize(
    ("system", "machine", "wanted"),
    [
        ("linux", "x86_64", {"mkl", "aocl", "openblas"}),
        ("linux", "aarch64", {"nvpl", "openblas"}),
        ("darwin", "arm64", {"accelerate", "openblas"}),
        ("linux", "riscv64", {"openblas"}),
    ],
)
def test_runs_use_the_libraries_of_their_platform(monkeypatch, system, machine, wanted):
    assert wanted == on(monkeypatch, system, machine)


def test_a_library_of_another_platform_says_so(monkeypatch):
    on(monkeypatch, "linux", "riscv64")
    for name in ("nvpl", "accelerate"):
        with pytest.raises(Unavailable) as caught:
            find_backend(name).open()
        assert "OpenBLAS" in caught.value.remedy


def test_nvpl_is_refused_where_it_would_end_the_process(monkeypatch):
    on(monkeypatch, "linux", "aarch64")
    monkeypatch.setattr(describe, "instructions", lambda: ["asimd"])

    with pytest.raises(Unavailable, match="needs Armv8"):
        find_backend("nvpl").open()


def test_nvpl_is_looked_for_where_its_wheel_has_it(monkeypatch):
    on(monkeypatch, "linux", "aarch64")
    monkeypatch.setattr(describe, "instructions", lambda: ["asimd", "atomics"])
    asked = []
    monkeypatch.setattr(library, "candidates", lambda variable, patterns: asked.append((variable, patterns)) or [])

    with pytest.raises(Unavailable, match="pip install nvpl-blas"):
        find_backend("nvpl").open()
    assert "DEEPBENCH_NVPL_PATH" == asked[0][0]
    assert "nvpl/lib/libnvpl_blas_ilp64_gomp.so*" in asked[0][1]


@pytest.mark.parametrize(
    ("machine", "precision", "k", "reason"),
    [
        ("aarch64", "f32", 33, "8 bits on Arm only with k a multiple of 16"),
        ("arm64", "f16", 40, "8 bits on Arm only with k a multiple of 16"),
        ("x86_64", "bf16", 33, "8 bits and bf16 only with k a multiple of 16"),
        ("x86_64", "f32", 33, None),
        ("aarch64", "f32", 32, None),
    ],
)
def test_products_of_pytorch_that_would_be_wrong_on_arm_are_refused(monkeypatch, machine, precision, k, reason):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    case = parse_case(f"weight_only_gemm m=19 n=5 k={k} group={k} bits=8 forward {precision} torch threads=1")
    tensors = {"a": None, "b": SimpleNamespace(device=SimpleNamespace(type="cpu")), "c": None, "scales": [None]}

    def kernel():
        return products.weight_only(None, tensors, {}, case)

    if reason is None:
        assert kernel().notes["implementation"] == "_weight_int8pack_mm"
    else:
        with pytest.raises(Unsupported, match=reason):
            kernel()


def test_platforms_are_named_as_wheels_name_them():
    for backend in all_backends().values():
        for text in backend.platforms:
            assert text in ("linux-x86_64", "linux-aarch64", "darwin-arm64", "darwin-x86_64")
