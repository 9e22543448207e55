"""The microarchitecture of a CPU, from the numbers by which it identifies itself.

Names of Intel's and AMD's families and models are those of Linux (arch/x86/include/asm/intel-family.h and
arch/x86/kernel/cpu/amd.c), those of Arm's parts are of arch/arm64/include/asm/cputype.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Models of Intel's family 6.
INTEL = {
    "Nehalem": {0x1A, 0x1E, 0x1F, 0x2E},
    "Westmere": {0x25, 0x2C, 0x2F},
    "Sandy Bridge": {0x2A, 0x2D},
    "Ivy Bridge": {0x3A, 0x3E},
    "Haswell": {0x3C, 0x3F, 0x45, 0x46},
    "Broadwell": {0x3D, 0x47, 0x4F, 0x56},
    "Skylake": {0x4E, 0x55, 0x5E},
    "Kaby Lake": {0x8E, 0x9E},
    "Cannon Lake": {0x66},
    "Comet Lake": {0xA5, 0xA6},
    "Ice Lake": {0x6A, 0x6C, 0x7D, 0x7E, 0x9D},
    "Tiger Lake": {0x8C, 0x8D},
    "Rocket Lake": {0xA7},
    "Alder Lake": {0x97, 0x9A},
    "Raptor Lake": {0xB7, 0xBA, 0xBF},
    "Meteor Lake": {0xAA, 0xAC},
    "Arrow Lake": {0xB5, 0xC5, 0xC6},
    "Lunar Lake": {0xBD},
    "Panther Lake": {0xCC},
    "Sapphire Rapids": {0x8F},
    "Emerald Rapids": {0xCF},
    "Granite Rapids": {0xAD, 0xAE},
    "Silvermont": {0x37, 0x4A, 0x4D},
    "Airmont": {0x4C, 0x5A, 0x75},
    "Goldmont": {0x5C, 0x5F},
    "Goldmont Plus": {0x7A},
    "Tremont": {0x86, 0x96, 0x9C},
    "Gracemont": {0xBE},
    "Sierra Forest": {0xAF},
    "Clearwater Forest": {0xDD},
    "Knights Landing": {0x57},
    "Knights Mill": {0x85},
}

# AMD's families with ranges of models.
AMD = {
    0x15: {
        "Bulldozer": [range(0x02)],
        "Piledriver": [range(0x02, 0x03), range(0x10, 0x20)],
        "Steamroller": [range(0x30, 0x40)],
        "Excavator": [range(0x60, 0x80)],
    },
    0x17: {
        "Zen+": [range(0x08, 0x09), range(0x18, 0x19)],
        "Zen": [range(0x30), range(0x50, 0x60)],
        "Zen 2": [range(0x30, 0x50), range(0x60, 0x80), range(0x90, 0x92), range(0x98, 0x99), range(0xA0, 0xB0)],
    },
    0x19: {
        "Zen 3": [range(0x10), range(0x20, 0x60)],
        "Zen 4": [range(0x10, 0x20), range(0x60, 0xB0)],
    },
    0x1A: {
        "Zen 5": [range(0x30), range(0x40, 0x50), range(0x60, 0x80)],
        "Zen 6": [range(0x50, 0x60), range(0x80, 0xB0), range(0xC0, 0xD0)],
    },
}

# Implementer and part.
ARM = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD04): "Cortex-A35",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse N1",
    (0x41, 0xD0D): "Cortex-A77",
    (0x41, 0xD40): "Neoverse V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD44): "Cortex-X1",
    (0x41, 0xD46): "Cortex-A510",
    (0x41, 0xD47): "Cortex-A710",
    (0x41, 0xD48): "Cortex-X2",
    (0x41, 0xD49): "Neoverse N2",
    (0x41, 0xD4D): "Cortex-A715",
    (0x41, 0xD4E): "Cortex-X3",
    (0x41, 0xD4F): "Neoverse V2",
    (0x41, 0xD80): "Cortex-A520",
    (0x41, 0xD81): "Cortex-A720",
    (0x41, 0xD82): "Cortex-X4",
    (0x41, 0xD83): "Neoverse V3AE",
    (0x41, 0xD84): "Neoverse V3",
    (0x41, 0xD85): "Cortex-X925",
    (0x41, 0xD87): "Cortex-A725",
    (0x41, 0xD8E): "Neoverse N3",
    (0x43, 0x0AF): "ThunderX2",
    (0x46, 0x001): "A64FX",
    (0x48, 0xD01): "TaiShan v110",
    (0x4E, 0x004): "Carmel",
    (0x51, 0x001): "Oryon",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1A",
}

ARM_MAKERS = {
    **{0x41: "Arm", 0x42: "Broadcom", 0x43: "Cavium", 0x46: "Fujitsu", 0x48: "HiSilicon", 0x4E: "NVIDIA"},
    **{0x50: "Applied Micro", 0x51: "Qualcomm", 0x53: "Samsung", 0x61: "Apple", 0x6D: "Microsoft", 0xC0: "Ampere"},
}

# Linux calls all of model 0x55 Skylake. Its stepping tells them apart, as that of Kaby Lake does.
BY_STEPPING = {
    0x55: {range(5, 8): "Cascade Lake", range(10, 12): "Cooper Lake"},
    0x8E: {range(10, 16): "Coffee Lake"},
    0x9E: {range(10, 16): "Coffee Lake"},
}

# The first microarchitecture with an instruction set, and all that have it. A virtual machine may show the numbers of
# another CPU than the one that it runs on; instructions cannot be pretended.
FIRST_WITH = {
    "amx_fp16": ("Granite Rapids", {"Granite Rapids"}),
    "amx_tile": ("Sapphire Rapids", {"Sapphire Rapids", "Emerald Rapids", "Granite Rapids"}),
}


def of_machine(machine: Mapping[str, Any]) -> str | None:
    """The microarchitecture that a description of a machine names, or that follows from its numbers; None: unknown."""
    ids = machine.get("cpu_ids")
    recorded = machine.get("microarchitecture")
    found = str(recorded) if recorded else name(ids) if isinstance(ids, Mapping) else None
    if found is None or found in INTEL:
        instructions = machine.get("instructions") or ()
        for instruction, (first, others) in FIRST_WITH.items():
            if instruction in instructions and "Intel" in str(machine.get("cpu")):
                return found if found in others else f"{first} or newer"
    return found


def name(ids: Mapping[str, Any]) -> str | None:
    """The microarchitecture of a CPU with these numbers, named as in /proc/cpuinfo."""
    family, model, stepping = (_number(ids.get(key), 10) for key in ("cpu family", "model", "stepping"))
    if family is None or model is None:
        return _of_arm(ids)
    if family == 6:
        for steppings, known in BY_STEPPING.get(model, {}).items():
            if stepping in steppings:
                return known
        return next((known for known, models in INTEL.items() if model in models), None)
    ranges = AMD.get(family, {}).items()
    return next((known for known, parts in ranges if any(model in part for part in parts)), None)


def core_name(ids: Mapping[str, Any]) -> str | None:
    """Maker and microarchitecture of an Arm core, such as `Arm Neoverse V1`; None if it is another or unknown."""
    implementer, known = _number(ids.get("CPU implementer"), 16), _of_arm(ids)
    maker = None if implementer is None else ARM_MAKERS.get(implementer)
    return f"{maker} {known}" if maker and known else None


def _of_arm(ids: Mapping[str, Any]) -> str | None:
    """Cores of several kinds are all named."""
    implementer = _number(ids.get("CPU implementer"), 16)
    parts = [_number(part, 16) for part in str(ids.get("CPU part") or "").split()]
    names = [ARM.get((implementer, part)) for part in parts if implementer is not None and part is not None]
    return " and ".join(filter(None, names)) if names and None not in names else None


def _number(text: Any, base: int) -> int | None:
    try:
        return int(text, base)
    except (TypeError, ValueError):
        return None
