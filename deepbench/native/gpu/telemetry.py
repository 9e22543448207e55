"""What the card says of itself through NVML: clocks, throttling, power, temperature, energy, other processes."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

from deepbench.errors import LibraryError, Unavailable, Unsupported

if TYPE_CHECKING:
    from deepbench.native.gpu.device import Gpu

# nvml.h
CLOCK_SM, CLOCK_MEMORY = 1, 2
TEMPERATURE_GPU = 0
MORE_PROCESSES = 7  # NVML_ERROR_INSUFFICIENT_SIZE: the count is filled in
REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}
# Not a reason to distrust a time: the card has nothing to do at that moment.
HARMLESS = {"idle", "application clocks", "display clocks"}


def handle(gpu: Gpu) -> ctypes.c_void_p | None:
    """NVML's word for this card, None where NVML is not here."""
    found = ctypes.c_void_p()
    try:
        gpu.call("nvmlInit_v2")
        gpu.call("nvmlDeviceGetHandleByPciBusId_v2", gpu.bus_id.encode(), ctypes.byref(found))
    except (Unavailable, Unsupported, LibraryError):
        return None
    return found


def conditions(gpu: Gpu) -> dict[str, Any] | None:
    """The state of the card now; None where NVML is not here, and a None for what it does not tell."""
    card = gpu.nvml
    if card is None:
        return None
    reasons = _read(gpu, "nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_uint64, card)
    power = _read(gpu, "nvmlDeviceGetPowerUsage", ctypes.c_uint, card)
    return {
        "clock_mhz": _read(gpu, "nvmlDeviceGetClockInfo", ctypes.c_uint, card, CLOCK_SM),
        "memory_clock_mhz": _read(gpu, "nvmlDeviceGetClockInfo", ctypes.c_uint, card, CLOCK_MEMORY),
        "limited_by": None if reasons is None else [text for bit, text in REASONS.items() if reasons & bit],
        "watts": None if power is None else power / 1000,
        "celsius": _read(gpu, "nvmlDeviceGetTemperature", ctypes.c_uint, card, TEMPERATURE_GPU),
        "other_processes": _other_processes(gpu, card),
    }


def energy_mj(gpu: Gpu) -> int | None:
    """Millijoules since the driver was loaded."""
    card = gpu.nvml
    return None if card is None else _read(gpu, "nvmlDeviceGetTotalEnergyConsumption", ctypes.c_uint64, card)


def highest_clock_mhz(gpu: Gpu) -> float | None:
    """The highest clock of the multiprocessors."""
    card = gpu.nvml
    return None if card is None else _read(gpu, "nvmlDeviceGetMaxClockInfo", ctypes.c_uint, card, CLOCK_SM)


def driver_version(gpu: Gpu) -> str | None:
    """The version of the driver as its makers number it."""
    if gpu.nvml is None:
        return None
    text = ctypes.create_string_buffer(96)
    return None if gpu.function("nvmlSystemGetDriverVersion")(text, len(text)) else text.value.decode(errors="replace")


def warnings(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[tuple[str, str]]:
    """What a reader should know of the conditions of a measurement: code and sentence."""
    if before is None or after is None:
        return [("no_telemetry", "clocks and throttling of the card cannot be read here")]
    found = []
    limits = sorted({r for c in (before, after) for r in c["limited_by"] or ()} - HARMLESS)
    if limits:
        found.append(("throttled", f"the card held its clock down: {', '.join(limits)}"))
    if max(before["other_processes"] or 0, after["other_processes"] or 0) > 0:
        found.append(("shared_card", "other processes computed on the card"))
    return found


def _other_processes(gpu: Gpu, card: ctypes.c_void_p) -> int | None:
    class Process(ctypes.Structure):
        # nvmlProcessInfo_v2_t
        _fields_ = (
            ("pid", ctypes.c_uint),
            ("memory", ctypes.c_ulonglong),
            ("gpu_instance", ctypes.c_uint),
            ("compute_instance", ctypes.c_uint),
        )

    most = 256
    table, count = (Process * most)(), ctypes.c_uint(most)
    try:
        status = gpu.function("nvmlDeviceGetComputeRunningProcesses_v3")(card, ctypes.byref(count), table)
    except Unsupported:  # an older driver
        return None
    if status:
        return count.value - 1 if status == MORE_PROCESSES else None
    pids = {table[i].pid for i in range(count.value)}
    # Inside a container the numbers are those of the host, and ours is not among them: then one of them is us.
    return len(pids - {os.getpid()}) - (0 if os.getpid() in pids or not pids else 1)


def _read(gpu: Gpu, name: str, kind: Any, *arguments: Any) -> int | None:
    value = kind()
    try:
        status = gpu.function(name)(*arguments, ctypes.byref(value))
    except Unsupported:
        return None
    return None if status else int(value.value)
