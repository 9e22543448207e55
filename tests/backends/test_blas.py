"""Libraries with a BLAS interface that exist on other machines only: NVPL and Accelerate."""

import platform
import sys

import pytest

from deepbench.core.backend import all_backends, find_backend
from deepbench.core.errors import Unavailable
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


def test_platforms_are_named_as_wheels_name_them():
    for backend in all_backends().values():
        for text in backend.platforms:
            assert text in ("linux-x86_64", "linux-aarch64", "darwin-arm64", "darwin-x86_64")
