"""What the operating system is, and which accelerators it shows; without any library."""

from __future__ import annotations

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


def require_linux() -> None:
    """`BadInput` where nothing can be measured."""
    if not sys.platform.startswith("linux"):
        raise BadInput(
            f"measuring needs Linux, and this is {platform.system() or sys.platform}; files of other machines can be "
            "shown, compared, ranked and reported here (deepbench show, compare, rank, whatif, report, site)"
        )


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
