"""What the operating system is, and which accelerators it shows; without any library."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from deepbench.core.errors import BadInput

# Of a Linux machine: a folder for each NVIDIA GPU, and one for each processor that AMD's driver knows.
NVIDIA, AMD = Path("proc/driver/nvidia/gpus"), Path("sys/class/kfd/kfd/topology/nodes")


def allowed_cpus() -> set[int]:
    """The numbers of the CPUs that this process may use; all of them where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def require_measurable() -> None:
    """`BadInput` where nothing can be measured: on other systems, and where an emulator translates this program."""
    if not sys.platform.startswith(("linux", "darwin")):
        raise BadInput(f"measuring needs Linux, {_this_is()}")
    if (name := emulator()) is not None:
        raise BadInput(
            f"measuring needs a real {platform.machine()} processor, and {name} emulates one here, so that times would "
            "be those of the emulator; deepbench run --once checks an answer without a clock"
        )


def require_linux(what: str) -> None:
    """`require_measurable` for what uses more of Linux than measuring: `BadInput` also on macOS."""
    if not sys.platform.startswith("linux"):
        raise BadInput(f"{what} needs Linux, {_this_is()}")
    require_measurable()


def _this_is() -> str:
    return (
        f"and this is {platform.system() or sys.platform}; files of other machines can be shown, compared, ranked and "
        "reported here (deepbench show, compare, rank, whatif, report, site)"
    )


# The number of each processor in the header of an ELF file (elf.h).
ELF_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21, "s390x": 22, "i686": 3, "armv7l": 40}


def emulator(executable: Path = Path("/proc/thread-self/exe")) -> str | None:
    """The program that translates the instructions of this one, such as `qemu-aarch64`; None if there is none.

    Emulators of one process (QEMU, Rosetta, FEX, Box64) answer for /proc/self/exe themselves, but not for that of the
    thread, where the kernel shows the program that really runs. It is an emulator if it is for another processor, or if
    its name begins with `qemu-`. An emulated whole machine leaves no trace there, so it is not found.
    """
    if sys.platform == "darwin":
        return "Rosetta" if _is_translated_by_macos() else None
    try:
        name = os.path.basename(os.readlink(executable))
        with executable.open("rb") as file:
            header = file.read(20)
    except OSError:
        return None
    number = int.from_bytes(header[18:20], "big" if header[5:6] == b"\2" else "little")
    wanted = ELF_MACHINES.get(platform.machine())
    is_other = header[:4] == b"\x7fELF" and wanted is not None and number != wanted and not _runs_in_32_bits(number)
    return name if is_other or name.startswith("qemu-") else None


def _runs_in_32_bits(number: int) -> bool:
    """A 32-bit program on a 64-bit kernel of the same family, which needs no emulator."""
    return {"x86_64": 3, "aarch64": 40}.get(platform.machine()) == number


def _is_translated_by_macos() -> bool:
    """Apple's documented question for Rosetta: `sysctl.proc_translated` is 1."""
    value, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    try:
        answer = ctypes.CDLL(None).sysctlbyname(
            b"sysctl.proc_translated", ctypes.byref(value), ctypes.byref(size), None, 0
        )
    except AttributeError:
        return False
    return answer == 0 and value.value == 1


@dataclass(frozen=True)
class Accelerators:
    """The GPUs of one maker."""

    names: tuple[str, ...]
    """One per GPU."""
    device: str
    """How `--device` calls them."""

    def __str__(self) -> str:
        name = " and ".join(dict.fromkeys(self.names))
        return name if len(self.names) == 1 else f"{len(self.names)} × {name}"


def accelerators(root: Path = Path("/")) -> list[Accelerators]:
    """The GPUs whose drivers are loaded, by their files; nothing where there is none."""
    nvidia = [_model(folder / "information") for folder in _folders(root / NVIDIA)]
    amd = [folder for folder in _folders(root / AMD) if _has_simd_units(folder / "properties")]
    found = [Accelerators(tuple(nvidia), "cuda"), Accelerators(("AMD GPU",) * len(amd), "hip")]
    return [group for group in found if group.names]


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _model(path: Path) -> str:
    match = re.search(r"^Model:\s*(.+)$", _text(path), re.MULTILINE)
    return match[1].strip() if match else "NVIDIA GPU"


def _has_simd_units(path: Path) -> bool:
    """CPUs are nodes, too, and have none."""
    match = re.search(r"^simd_count (\d+)$", _text(path), re.MULTILINE)
    return match is not None and int(match[1]) > 0
