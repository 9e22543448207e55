"""This machine: what it is, which libraries it has, and what disturbs measurements."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from deepbench.core.precision import MINIMUM
from deepbench.machine.system import Accelerators, accelerators
from deepbench.reporting.heading import card_text, machine_lines, machine_texts, threading_text

if TYPE_CHECKING:
    from deepbench.machine.doctor import Finding
    from deepbench.measuring.devices import Devices

__all__ = [
    "LIBRARIES_OF",
    "MINIMUM",
    "Accelerators",
    "MissingLibraries",
    "Support",
    "accelerators",
    "call_loop",
    "card_text",
    "default_threads",
    "describe_machine",
    "diagnose",
    "find_devices",
    "libraries",
    "machine_lines",
    "machine_texts",
    "missing_groups",
    "precisions",
    "support",
    "threading_text",
]


class Support(TypedDict):
    """Which libraries have a kernel for an operation."""

    op: str
    direction: str
    precision: str
    backends: list[str]


def describe_machine() -> dict[str, Any]:
    """CPU, cores, caches, memory and system, as result files have them."""
    from deepbench.machine import describe

    return describe.describe_machine()


def default_threads() -> int:
    """The number of cores that this process may use."""
    from deepbench.machine import describe

    return describe.default_threads()


def libraries(names: Sequence[str] | None = None) -> dict[str, Any]:
    """For each library, facts about it (`library`), or why it is not here and what to do (`unavailable`).

    Each is loaded in a process of its own. `names`: only these; None: all.
    """
    from deepbench.core.backend import all_backends
    from deepbench.measuring.session import open_libraries

    return open_libraries(list(all_backends()) if names is None else names)


def find_devices() -> Devices:
    """Every device that a library reaches here, and what reaches none. Each is probed in a process of its own."""
    from deepbench.measuring.devices import find_devices as found

    return found()


def call_loop() -> str:
    """`native` if calls are timed by compiled code, else `python`."""
    from deepbench.native import callloop

    return "native" if callloop.native_library() is not None else "python"


def support() -> list[Support]:
    """For each operation, direction and precision: the libraries that have a kernel, read from their marks."""
    from deepbench.core.backend import all_backends
    from deepbench.core.op import all_ops
    from deepbench.core.precision import PRECISIONS

    return [
        {
            "op": op.name,
            "direction": direction,
            "precision": name,
            "backends": [b.name for b in all_backends().values() if b.supports(op.name, name, direction)],
        }
        for op in all_ops().values()
        for direction in op.directions
        for name in PRECISIONS
    ]


def precisions() -> list[dict[str, Any]]:
    """Every precision with its types, and why it does not meet DeepBench's minimum where it does not."""
    from deepbench.core.precision import PRECISIONS

    uses = {"below_minimum_for_training": True, "below_minimum_for_inference": False}
    return [
        {"name": p.name, **p.types(), **{name: p.below_minimum(is_training) for name, is_training in uses.items()}}
        for p in PRECISIONS.values()
    ]


def diagnose() -> list[Finding]:
    """What makes measurements on this machine noisy or slow, and how to fix it. Nothing is changed."""
    from deepbench.core.backend import all_backends
    from deepbench.machine import doctor

    here = libraries([name for name, b in all_backends().items() if b.default and b.exists_here])
    return [*doctor.examine(), doctor.openmp(here)]


# ---- libraries that are missing

# What the libraries of a device are called.
LIBRARIES_OF = {"cpu": "CPU libraries", "cuda": "NVIDIA libraries", "hip": "AMD libraries", "xpu": "Intel libraries"}


def libraries_of(device: str) -> str:
    """What the libraries of a device are called."""
    return LIBRARIES_OF.get(device, f"libraries for {device}")


@dataclass(frozen=True)
class MissingLibraries:
    """Libraries that are missing for one reason."""

    libraries: str
    """What they are, as in `LIBRARIES_OF`."""
    reason: str
    names: tuple[str, ...]
    remedy: str


def missing_groups(missing: Mapping[str, Mapping[str, str]], details: str) -> list[MissingLibraries]:
    """MissingLibraries libraries by device and short reason.

    `missing` has `reason` and `remedy` of each; `details` is the command that prints all of them.
    """
    from deepbench.core.backend import find_backend

    names: dict[tuple[str, str], list[str]] = {}
    for name, answer in missing.items():
        names.setdefault((find_backend(name).device, short_reason(answer["reason"])), []).append(name)
    return [
        MissingLibraries(
            libraries_of(device), reason, tuple(group), one_remedy([missing[name]["remedy"] for name in group], details)
        )
        for (device, reason), group in names.items()
    ]


def short_reason(reason: str) -> str:
    """`MKL not found (looked in …)` → `not installed`. Where something was searched is left to `--verbose`."""
    if (named := re.search(r"(DEEPBENCH_\w+)=", reason)) and os.environ.get(named[1]):
        return f"not found where {named[1]} says"
    if failed := re.match(r"the process that loaded \S+ failed: (.*?)(?: during: .*)?$", reason):
        return f"loading failed: {failed[1]}"
    if no_driver := re.match(r"no (\w+) GPU here: .* not found\b", reason):
        return f"no {no_driver[1]} driver"
    head = reason.partition(" (")[0]
    return "not installed" if head.endswith(" not found") else head


def one_remedy(remedies: Sequence[str], details: str) -> str:
    """What helps all of these libraries in one sentence, if it can be said in one."""
    if len(set(remedies)) == 1:
        return remedies[0]
    # How to name a file in a variable differs from library to library.
    short = list(dict.fromkeys(remedy.partition(", or name ")[0] for remedy in remedies))
    if len(short) == 1:
        return short[0]
    from_index = [m for text in short if (m := re.fullmatch(r"pip install ([\w -]+?)(?: \(.*\))?", text))]
    packages = dict.fromkeys(package for match in from_index for package in match[1].split())
    if not packages:
        return f"each has a remedy of its own: {details}"
    rest = "" if len(from_index) == len(short) else f"; the others have remedies of their own: {details}"
    return f"pip install {' '.join(packages)}{rest}"
