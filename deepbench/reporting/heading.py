"""What was measured on and with, in words: machine, card, libraries. It stands above every table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from deepbench.core import units, variables
from deepbench.machine import microarchitecture

if TYPE_CHECKING:
    from deepbench.results.file import ResultFile

Line = tuple[str, str]
"""A label and a text."""


def heading(file: ResultFile, environment: Mapping[str, str] | None = None) -> Iterator[Line]:
    """Machine, libraries and the variables that change them: a reader of a log must know which library it was.

    `environment` is that of a session which has not measured yet.
    """
    from deepbench.reporting.limits import library_name

    header = file.header
    yield from machine_lines(header["machine"])
    used = {word for planned in header["plan"]["cases"] for word in planned["case"].split()}
    cards = [a["library"].get("card") for n, a in header["libraries"].items() if n in used and "library" in a]
    if card := next((c for c in cards if isinstance(c, dict)), None):
        yield "GPU", card_text(card)
    for name, answer in header["libraries"].items():
        if name in used:
            yield from library_lines(library_name(name), answer)
    if chosen := file.chosen_variables | variables.chosen(environment or {}):
        text = ", ".join(f"{name}={value}" for name, value in chosen.items())
        yield "variables", f"{text}: set outside DeepBench; they may change what libraries do"


def machine_lines(machine: Mapping[str, Any]) -> Iterator[Line]:
    """CPU, cores, memory and system; then the instructions."""
    about, instructions = machine_texts(machine)
    yield "machine", about
    if instructions:
        yield "", instructions


def machine_texts(machine: Mapping[str, Any]) -> tuple[str, str]:
    """CPU, cores, memory and system; and the instructions that decide which kernels libraries choose."""
    cores, hypervisor = machine.get("cores_allowed"), machine.get("hypervisor")
    instructions = [i for i in machine.get("instructions") or [] if re.match(r"avx|amx|sve|sme|asimd|bf16|i8mm", i)]
    if "sve" in instructions and machine.get("sve_bits"):
        instructions.append(f"(SVE vectors of {machine['sve_bits']} bits)")
    core = microarchitecture.of_machine(machine)
    parts = [
        machine.get("name"),
        machine.get("cpu"),
        None if str(core) in str(machine.get("cpu")) else core,
        f"emulated by {machine['emulated']}" if machine.get("emulated") else None,
        {True: "virtual machine", False: "not virtual"}.get(hypervisor) if isinstance(hypervisor, bool) else None,
        f"{cores} core{'s' if cores != 1 else ''}" if cores else None,
        units.data_bytes(machine["memory_bytes"]) if machine.get("memory_bytes") else None,
        machine.get("system"),
        "a system on which DeepBench was never tried" if str(machine.get("system")).startswith("macOS") else None,
    ]
    return ", ".join(str(p) for p in parts if p) or "unknown", " ".join(instructions)


def library_lines(title: str, answer: Mapping[str, Any]) -> Iterator[Line]:
    """Version and path of a library, or why it is missing and what to do."""
    if "library" in answer:
        library = answer["library"]
        about = ", ".join(filter(None, (library["version"], threading_text(library), library.get("device"))))
        yield title, f"{about}  {library['path'] or ''}".strip() or str(library["name"])
    else:
        missing = answer["unavailable"]
        yield title, f"not found: {missing['reason']}"
        yield "", f"to fix: {missing['remedy']}"


def threading_text(library: Mapping[str, Any]) -> str | None:
    """How a library uses threads."""
    return "one thread" if library.get("threading") == "none" else library.get("threading")


def card_name(card: Mapping[str, Any]) -> str:
    """Maker and name of a GPU. Some drivers begin the name with the maker."""
    vendor, name = str(card.get("vendor")), str(card.get("name"))
    return name if name.startswith(vendor) else f"{vendor} {name}"


def card_text(card: Mapping[str, Any]) -> str:
    """Name, size and driver of a GPU."""
    processors, memory, driver = (card.get(name) for name in ("processors", "memory_bytes", "driver"))
    parts = [
        card_name(card),
        f"{processors} multiprocessors" if processors is not None else None,
        units.data_bytes(memory) if memory is not None else None,
        f"driver {driver}" if driver is not None else None,
    ]
    return ", ".join(filter(None, parts))
