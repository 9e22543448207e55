"""Other operating systems, other processors, and GPUs that a run does not measure."""

import os
import platform
import shutil
import subprocess
import sys

import pytest

from deepbench.api.measuring import measure_limits, selftest
from deepbench.core.errors import BadInput
from deepbench.machine import describe, doctor, system
from deepbench.machine.system import accelerators, allowed_cpus, emulator, require_measurable
from deepbench.native import library
from tests.conftest import ROOT
from tests.help.command import run_here


@pytest.fixture
def freebsd(monkeypatch):
    for name in ("sched_getaffinity", "sched_setaffinity"):
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(sys, "platform", "freebsd14")
    monkeypatch.setattr(platform, "system", lambda: "FreeBSD")


def test_where_nothing_can_be_measured_a_sentence_says_what_works(freebsd, tmp_path):
    with pytest.raises(BadInput, match=r"measuring needs Linux, and this is FreeBSD; .* can be shown"):
        require_measurable()
    for measure in (lambda: measure_limits(1), selftest):
        with pytest.raises(BadInput, match="measuring needs Linux"):
            measure()
    done = run_here(["run", "gemm", "m=8", "n=8", "k=8", "--quick", "-o", str(tmp_path / "x.jsonl")])

    assert (64, 1) == (done.code, len(done.errors.splitlines()))
    assert not (tmp_path / "x.jsonl").exists()


def elf(machine, is_big=False):
    """The first bytes of a program for a machine of this number."""
    order = "big" if is_big else "little"
    return b"\x7fELF\x02" + (b"\x02" if is_big else b"\x01") + bytes(10) + bytes(2) + machine.to_bytes(2, order)


X86_32, X86, ARM_32, ARM, S390X = 3, 62, 40, 183, 22


@pytest.mark.parametrize(
    ("machine", "name", "header", "wanted"),
    [
        ("x86_64", "python3.12", elf(X86), None),
        ("aarch64", "python3.12", elf(ARM), None),
        ("aarch64", "python3.12", elf(ARM_32), None),  # a 32-bit system on a 64-bit kernel, as on a Raspberry Pi
        ("x86_64", "python3.12", elf(X86_32), None),
        ("s390x", "python3.12", elf(S390X, is_big=True), None),
        ("aarch64", "qemu-aarch64-static", elf(X86), "qemu-aarch64-static"),
        ("x86_64", "qemu-x86_64", elf(X86), "qemu-x86_64"),
        ("x86_64", "rosetta", elf(ARM), "rosetta"),
        ("x86_64", "FEXInterpreter", elf(ARM), "FEXInterpreter"),
        ("unknown", "python3.12", elf(ARM), None),
        ("x86_64", "python3.12", b"", None),
        ("x86_64", "python3.12", b"#!/bin/sh\n" * 2, None),
    ],
)
def test_an_emulator_is_the_program_that_really_runs(tmp_path, monkeypatch, machine, name, header, wanted):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    (tmp_path / name).write_bytes(header)
    (tmp_path / "exe").symlink_to(tmp_path / name)

    assert wanted == emulator(tmp_path / "exe")
    assert emulator(tmp_path / "nothing") is None


def test_emulated_times_are_refused_and_answers_are_checked(monkeypatch, tmp_path):
    monkeypatch.setattr(system, "emulator", lambda: "qemu-aarch64")
    output = tmp_path / "x.jsonl"
    done = run_here(["run", "gemm", "m=8", "n=8", "k=8", "--quick", "-o", str(output)])

    assert (64, 1) == (done.code, len(done.errors.splitlines()))
    assert "measuring needs a real" in done.errors
    assert "qemu-aarch64 emulates one here" in done.errors
    assert not output.exists()


@pytest.mark.programs
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="qemu-x86_64 is missing: apt install qemu-user")
def test_a_real_emulator_is_noticed():
    command = ["qemu-x86_64", "-cpu", "max", sys.executable, "-c"]
    code = "from deepbench.machine.system import emulator; print(emulator())"
    done = subprocess.run([*command, code], capture_output=True, text=True, cwd=ROOT)

    assert "qemu-x86_64\n" == done.stdout
    assert emulator() is None or describe.describe_machine()["emulated"] == emulator()


def test_without_affinity_all_cpus_are_allowed(freebsd):
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


@pytest.mark.parametrize(
    ("pattern", "file"),
    [
        ("x/lib/libscipy_openblas64_*.so*", "x/lib/libscipy_openblas64_.dylib"),
        ("libggml/lib*/libggml-cpu.so*", "libggml/lib/libggml-cpu.0.20.2.dylib"),
        ("executorch/lib/libbackend.so", "executorch/lib/libbackend.dylib"),
    ],
)
def test_libraries_of_macos_have_names_of_their_own(tmp_path, monkeypatch, pattern, file):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(library, "roots", lambda: [str(tmp_path)])
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()

    assert [str((tmp_path / file).resolve())] == library.candidates("DEEPBENCH_X_PATH", [pattern])
    assert ["/System/A"] == library.candidates("DEEPBENCH_X_PATH", ["/System/A"])


def test_a_variable_may_name_the_folder_of_a_library(tmp_path, monkeypatch):
    for version in ("0.3.9", "0.3.27"):
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / f"libx.so.{version}").touch()
    monkeypatch.setenv("DEEPBENCH_X_PATH", str(tmp_path))

    assert (
        str((tmp_path / "lib" / "libx.so.0.3.27").resolve()) == library.candidates("DEEPBENCH_X_PATH", ["libx.so*"])[0]
    )
