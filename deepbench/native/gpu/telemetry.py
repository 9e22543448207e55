"""What the card says of itself through NVML or AMD SMI: clocks, throttling, power, temperature, energy, processes."""

from __future__ import annotations

import ctypes
import os
import re
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import LibraryError, Unavailable, Unsupported

if TYPE_CHECKING:
    from deepbench.native.gpu.device import Gpu


class Sensors:
    """One card's sensors. Every number is None where the card does not tell it."""

    def __init__(self, gpu: Gpu, card: Any) -> None:
        self._gpu, self._card = gpu, card

    @classmethod
    def find(cls, gpu: Gpu) -> Any:
        """The library's word for this card; raises where there is none."""
        raise NotImplementedError

    def conditions(self) -> dict[str, Any]:
        """The state of the card now."""
        return {
            "clock_mhz": self.clock_mhz(),
            "memory_clock_mhz": self.memory_clock_mhz(),
            "limited_by": self.limited_by(),
            "watts": self.watts(),
            "celsius": self.celsius(),
            "other_processes": self.other_processes(),
        }

    def clock_mhz(self) -> float | None:
        """Of the multiprocessors."""
        raise NotImplementedError

    def memory_clock_mhz(self) -> float | None:
        """Of the memory."""
        raise NotImplementedError

    def limited_by(self) -> list[str] | None:
        """Why clocks are lower than they could be."""
        raise NotImplementedError

    def watts(self) -> float | None:
        """What the card draws."""
        raise NotImplementedError

    def celsius(self) -> float | None:
        """Its temperature."""
        raise NotImplementedError

    def other_processes(self) -> int | None:
        """How many processes beside this one compute on it."""
        raise NotImplementedError

    def energy_mj(self) -> float | None:
        """Millijoules since the driver was loaded."""
        raise NotImplementedError

    def highest_clock_mhz(self) -> float | None:
        """The highest clock of the multiprocessors."""
        raise NotImplementedError

    def driver_version(self) -> str | None:
        """The driver as its makers number it."""
        return None

    def _status(self, name: str, *arguments: Any) -> int | None:
        """What a function returns; None where this driver has no such function."""
        try:
            status: int = self._gpu.function(name)(*arguments)
        except Unsupported:
            return None
        return status


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


class Nvml(Sensors):
    """NVIDIA's cards."""

    @classmethod
    def find(cls, gpu: Gpu) -> Any:
        found = ctypes.c_void_p()
        gpu.call("nvmlInit_v2")
        gpu.call("nvmlDeviceGetHandleByPciBusId_v2", gpu.bus_id.encode(), ctypes.byref(found))
        return found

    def clock_mhz(self) -> float | None:
        return self._read("nvmlDeviceGetClockInfo", ctypes.c_uint, CLOCK_SM)

    def memory_clock_mhz(self) -> float | None:
        return self._read("nvmlDeviceGetClockInfo", ctypes.c_uint, CLOCK_MEMORY)

    def limited_by(self) -> list[str] | None:
        reasons = self._read("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_uint64)
        return None if reasons is None else [text for bit, text in REASONS.items() if reasons & bit]

    def watts(self) -> float | None:
        power = self._read("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        return None if power is None else power / 1000

    def celsius(self) -> float | None:
        return self._read("nvmlDeviceGetTemperature", ctypes.c_uint, TEMPERATURE_GPU)

    def energy_mj(self) -> float | None:
        return self._read("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_uint64)

    def highest_clock_mhz(self) -> float | None:
        return self._read("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, CLOCK_SM)

    def driver_version(self) -> str | None:
        text = ctypes.create_string_buffer(96)
        status = self._status("nvmlSystemGetDriverVersion", text, len(text))
        return None if status != 0 else text.value.decode(errors="replace")

    def other_processes(self) -> int | None:
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
        status = self._status("nvmlDeviceGetComputeRunningProcesses_v3", self._card, ctypes.byref(count), table)
        if status != 0:
            return count.value - 1 if status == MORE_PROCESSES else None
        pids = {table[i].pid for i in range(count.value)}
        # Inside a container the numbers are those of the host, and ours is not among them: then one of them is us.
        return len(pids - {os.getpid()}) - (0 if os.getpid() in pids or not pids else 1)

    def _read(self, name: str, kind: Any, *arguments: Any) -> int | None:
        value = kind()
        status = self._status(name, self._card, *arguments, ctypes.byref(value))
        return int(value.value) if status == 0 else None


# amdsmi.h of ROCm 6 and 7
AMD_GPUS = 2
CLK_TYPE_GFX, CLK_TYPE_MEM = 0, 4
TEMPERATURE_HOTSPOT, TEMPERATURE_CURRENT = 1, 0
OUT_OF_RESOURCES = 15
NOTHING = 0xFFFFFFFF
"""What AMD SMI writes where it knows nothing."""


class AmdSmi(Sensors):
    """AMD's cards. Why clocks are low is not asked: that call watches the card for a tenth of a second."""

    @classmethod
    def find(cls, gpu: Gpu) -> Any:
        found = ctypes.c_void_p()
        gpu.call("amdsmi_init", AMD_GPUS)
        gpu.call("amdsmi_get_processor_handle_from_bdf", _bus_number(gpu.bus_id), ctypes.byref(found))
        return found

    def clock_mhz(self) -> float | None:
        return self._clock(CLK_TYPE_GFX, 0)

    def memory_clock_mhz(self) -> float | None:
        return self._clock(CLK_TYPE_MEM, 0)

    def highest_clock_mhz(self) -> float | None:
        return self._clock(CLK_TYPE_GFX, 2)

    def limited_by(self) -> list[str] | None:
        return None

    def watts(self) -> float | None:
        """The first eight bytes are the socket's power (ROCm 7), or the current and the average power (ROCm 6)."""
        table = (ctypes.c_uint32 * 256)()
        if self._status("amdsmi_get_power_info", self._card, table) != 0:
            return None
        known = [value for value in table[:2] if value not in (0, NOTHING)]
        return float(known[0]) if known else None

    def celsius(self) -> float | None:
        value = ctypes.c_int64()
        sensor = TEMPERATURE_HOTSPOT, TEMPERATURE_CURRENT
        status = self._status("amdsmi_get_temp_metric", self._card, *sensor, ctypes.byref(value))
        return value.value if status == 0 else None

    def other_processes(self) -> int | None:
        count = ctypes.c_uint32()
        status = self._status("amdsmi_get_gpu_process_list", self._card, ctypes.byref(count), None)
        return max(0, count.value - 1) if status in (0, OUT_OF_RESOURCES) else None

    def energy_mj(self) -> float | None:
        count, microjoules, stamp = ctypes.c_uint64(), ctypes.c_float(), ctypes.c_uint64()
        addresses = ctypes.byref(count), ctypes.byref(microjoules), ctypes.byref(stamp)
        status = self._status("amdsmi_get_energy_count", self._card, *addresses)
        return count.value * microjoules.value / 1000 if status == 0 else None

    def _clock(self, kind: int, position: int) -> float | None:
        """Of the numbers that the structure begins with: now, lowest, highest."""
        table = (ctypes.c_uint32 * 64)()
        status = self._status("amdsmi_get_clock_info", self._card, kind, table)
        return None if status != 0 or table[position] == NOTHING else table[position]


def _bus_number(bus_id: str) -> int:
    """`0000:3B:00.0` as 48 bits of domain, 8 of bus, 5 of device and 3 of function."""
    domain, bus, device, function = (int(part, 16) for part in re.split("[:.]", bus_id))
    return domain << 16 | bus << 8 | device << 3 | function


def sensors(gpu: Gpu) -> Sensors | None:
    """The sensors of this card, None where their library is not here or does not know it."""
    for kind in (Nvml, AmdSmi):
        try:
            return kind(gpu, kind.find(gpu))
        except (Unavailable, Unsupported, LibraryError):
            continue
    return None


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
