"""Other operating systems, other processors, and GPUs that a run does not measure."""

import os
import platform
import sys

import pytest

from deepbench.api.measuring import measure_limits, selftest
from deepbench.core.errors import BadInput
from deepbench.machine import describe, doctor
from deepbench.machine.system import accelerators, allowed_cpus, require_linux
from deepbench.native import library
from tests.help.command import run_here


@pytest.fixture
def macos(monkeypatch):
    for name in ("sched_getaffinity", "sched_setaffinity"):
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")


def test_where_nothing_can_be_measured_a_sentence_says_what_works(macos, tmp_path):
    with pytest.raises(BadInput, match=r"measuring needs Linux, and this is Darwin; .* can be shown"):
        require_linux()
    for measure in (lambda: measure_limits(1), selftest):
        with pytest.raises(BadInput, match="measuring needs Linux"):
            measure()
    done = run_here(["run", "gemm", "m=8", "n=8", "k=8", "--quick", "-o", str(tmp_path / "x.jsonl")])

    assert (64, 1) == (done.code, len(done.errors.splitlines()))
    assert not (tmp_path / "x.jsonl").exists()


def test_without_affinity_all_cpus_are_allowed(macos):
    assert set(range(os.cpu_count())) == allowed_cpus()
    assert describe.describe_machine()["cpus_allowed"]
    assert doctor.LoadWatch().load(0.0).cpus == os.cpu_count()
    assert 0 == run_here(["list", "gemm", "m=8", "n=8", "k=8", "--backend", "openblas"]).code


def test_gpus_are_found_by_the_files_of_their_drivers(tmp_path):
    nvidia = tmp_path / "proc/driver/nvidia/gpus"
    for number in range(2):
        (nvidia / f"0000:0{number}:00.0").mkdir(parents=True)
        (nvidia / f"0000:0{number}:00.0" / "information").write_text("Model: \t\t NVIDIA X1\nIRQ:   1\n")
    for number, units in enumerate((0, 304)):
        (tmp_path / f"sys/class/kfd/kfd/topology/nodes/{number}").mkdir(parents=True)
        (tmp_path / f"sys/class/kfd/kfd/topology/nodes/{number}/properties").write_text(
            f"cpu_cores 1\nsimd_count {units}\n"
        )
    found = accelerators(tmp_path)

    assert [("2 × NVIDIA X1", "cuda"), ("AMD GPU", "hip")] == [(str(group), group.device) for group in found]
    assert [] == accelerators(tmp_path / "nothing")


@pytest.mark.parametrize(("machine", "wanted"), [("x86_64", "here"), ("AMD64", "here"), ("aarch64", "there")])
def test_a_remedy_is_one_for_this_processor(monkeypatch, machine, wanted):
    monkeypatch.setattr(platform, "machine", lambda: machine)

    assert wanted == library.remedy("here", "there")


def test_a_variable_may_name_the_folder_of_a_library(tmp_path, monkeypatch):
    for version in ("0.3.9", "0.3.27"):
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / f"libx.so.{version}").touch()
    monkeypatch.setenv("DEEPBENCH_X_PATH", str(tmp_path))

    assert (
        str((tmp_path / "lib" / "libx.so.0.3.27").resolve()) == library.candidates("DEEPBENCH_X_PATH", ["libx.so*"])[0]
    )
