"""Clocks, throttling, power, temperature, energy and other processes of a GPU, through NVML or AMD SMI."""

from __future__ import annotations

import ctypes
import os
import re
from abc import ABC, abstractmethod
from statistics import median
from typing import Any

from deepbench.core.errors import LibraryError, Unavailable, Unsupported
from deepbench.native.gpu.runtime import Runtime


class Sensors(ABC):
    """The sensors of one GPU. Every value is None if the GPU does not report it."""

    def __init__(self, gpu: Runtime) -> None:
        self._gpu = gpu
        self._device = self._find()

    @abstractmethod
    def _find(self) -> ctypes.c_void_p:
        """The management library's handle of this GPU; raises if there is none."""

    def conditions(self) -> dict[str, Any]:
        """The state of the GPU now."""
        return {
            "clock_mhz": self.clock_mhz("now"),
            "memory_clock_mhz": self.clock_mhz("memory"),
            "limited_by": self.limited_by(),
            "watts": self.watts(),
            "celsius": self.celsius(),
            "other_processes": self.other_processes(),
        }

    @abstractmethod
    def clock_mhz(self, which: str) -> float | None:
        """The clock of the multiprocessors, `now` or the `highest`, or of the `memory`."""

    def limited_by(self) -> list[str] | None:
        """Reasons why the clocks are lower than they could be."""
        return None

    @abstractmethod
    def watts(self) -> float | None:
        """Power."""

    @abstractmethod
    def celsius(self) -> float | None:
        """Temperature."""

    @abstractmethod
    def other_processes(self) -> int | None:
        """Number of other processes that compute on this GPU."""

    @abstractmethod
    def energy_mj(self) -> float | None:
        """Millijoules since the driver was loaded."""

    def driver_version(self) -> str | None:
        """Version of the driver."""
        return None

    def _status(self, name: str, *arguments: Any) -> int | None:
        """The status that a function returns; None if this driver does not have the function."""
        try:
            status: int = self._gpu.function(name)(*arguments)
        except Unsupported:
            return None
        return status


# nvml.h. NVML_CLOCK_SM is 1, NVML_CLOCK_MEM is 2.
NVML_CLOCKS = {
    "now": ("nvmlDeviceGetClockInfo", ctypes.c_uint, 1),
    "highest": ("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, 1),
    "memory": ("nvmlDeviceGetClockInfo", ctypes.c_uint, 2),
}
TEMPERATURE_GPU = 0
MORE_PROCESSES = 7  # NVML_ERROR_INSUFFICIENT_SIZE: the count is set
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
# No reason to doubt a time: the GPU has no work at that moment.
HARMLESS = {"idle", "application clocks", "display clocks"}


class Nvml(Sensors):
    """GPUs of NVIDIA."""

    def _find(self) -> ctypes.c_void_p:
        gpu, device = self._gpu, ctypes.c_void_p()
        gpu.call("nvmlInit_v2")
        gpu.call("nvmlDeviceGetHandleByPciBusId_v2", gpu.bus_id.encode(), ctypes.byref(device))
        return device

    def clock_mhz(self, which: str) -> float | None:
        return self._read(*NVML_CLOCKS[which])

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

    def driver_version(self) -> str | None:
        text = ctypes.create_string_buffer(96)
        status = self._status("nvmlSystemGetDriverVersion", text, len(text))
        return text.value.decode(errors="replace") if status == 0 else None

    def other_processes(self) -> int | None:
        class GpuProcess(ctypes.Structure):
            # nvmlProcessInfo_v2_t
            _fields_ = (
                ("pid", ctypes.c_uint),
                ("memory", ctypes.c_ulonglong),
                ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint),
            )

        most = 256
        table, count = (GpuProcess * most)(), ctypes.c_uint(most)
        status = self._status("nvmlDeviceGetComputeRunningProcesses_v3", self._device, ctypes.byref(count), table)
        if status != 0:
            return count.value - 1 if status == MORE_PROCESSES else None
        pids = {table[i].pid for i in range(count.value)}
        # In a container these are process numbers of the host, without our own: then one of them is this process.
        return len(pids - {os.getpid()}) - (0 if os.getpid() in pids or not pids else 1)

    def _read(self, name: str, kind: Any, *arguments: Any) -> int | None:
        value = kind()
        status = self._status(name, self._device, *arguments, ctypes.byref(value))
        return int(value.value) if status == 0 else None


# amdsmi.h of ROCm 6 and 7
AMD_GPUS = 2
# Kind (AMDSMI_CLK_TYPE_GFX or _MEM), and position in a structure that begins with current, lowest, highest.
AMD_CLOCKS = {"now": (0, 0), "highest": (0, 2), "memory": (4, 0)}
TEMPERATURE_HOTSPOT, TEMPERATURE_CURRENT = 1, 0
OUT_OF_RESOURCES = 15
UNKNOWN = 0xFFFFFFFF
"""What AMD SMI stores for an unknown value."""


class AmdSmi(Sensors):
    """GPUs of AMD. `limited_by` is always None: the call that reads it takes a tenth of a second."""

    def _find(self) -> ctypes.c_void_p:
        gpu, device = self._gpu, ctypes.c_void_p()
        gpu.call("amdsmi_init", AMD_GPUS)
        # `0000:3B:00.0` as 48 bits of domain, 8 of bus, 5 of device and 3 of function.
        domain, bus, slot, function = (int(part, 16) for part in re.split("[:.]", gpu.bus_id))
        number = domain << 16 | bus << 8 | slot << 3 | function
        gpu.call("amdsmi_get_processor_handle_from_bdf", number, ctypes.byref(device))
        return device

    def clock_mhz(self, which: str) -> float | None:
        kind, position = AMD_CLOCKS[which]
        table = (ctypes.c_uint32 * 64)()
        status = self._status("amdsmi_get_clock_info", self._device, kind, table)
        return None if status != 0 or table[position] == UNKNOWN else table[position]

    def watts(self) -> float | None:
        """The first eight bytes are the socket's power (ROCm 7), or the current and the average power (ROCm 6)."""
        table = (ctypes.c_uint32 * 256)()
        if self._status("amdsmi_get_power_info", self._device, table) != 0:
            return None
        known = [value for value in table[:2] if value not in (0, UNKNOWN)]
        return float(known[0]) if known else None

    def celsius(self) -> float | None:
        value = ctypes.c_int64()
        sensor = TEMPERATURE_HOTSPOT, TEMPERATURE_CURRENT
        status = self._status("amdsmi_get_temp_metric", self._device, *sensor, ctypes.byref(value))
        return value.value if status == 0 else None

    def other_processes(self) -> int | None:
        count = ctypes.c_uint32()
        status = self._status("amdsmi_get_gpu_process_list", self._device, ctypes.byref(count), None)
        return max(0, count.value - 1) if status in (0, OUT_OF_RESOURCES) else None

    def energy_mj(self) -> float | None:
        count, microjoules, timestamp = ctypes.c_uint64(), ctypes.c_float(), ctypes.c_uint64()
        addresses = ctypes.byref(count), ctypes.byref(microjoules), ctypes.byref(timestamp)
        status = self._status("amdsmi_get_energy_count", self._device, *addresses)
        return count.value * microjoules.value / 1000 if status == 0 else None


class LoadReadings:
    """What the sensors showed while calls ran."""

    def __init__(self) -> None:
        self._clocks: list[float] = []
        self._watts: list[float] = []
        self._limits: set[str] = set()
        self._count = 0
        self.last: tuple[float | None, float | None] = (None, None)
        """Clock and power of the last reading."""

    def add(self, sensors: Sensors) -> None:
        """Read clock, limits and power."""
        self._count += 1
        self.last = clock, watts = sensors.clock_mhz("now"), sensors.watts()
        if clock is not None:
            self._clocks.append(clock)
        if watts is not None:
            self._watts.append(watts)
        self._limits.update(sensors.limited_by() or ())

    def facts(self) -> dict[str, Any] | None:
        """For the record; None if nothing was read."""
        if not self._count:
            return None
        return {
            "readings": self._count,
            "lowest_clock_mhz": min(self._clocks, default=None),
            "clock_mhz": median(self._clocks) if self._clocks else None,
            "limited_by": sorted(self._limits - {"idle"}),
            "watts": max(self._watts, default=None),
        }


def sensors(gpu: Runtime) -> Sensors | None:
    """The sensors of this GPU; None if their library is missing or does not know it."""
    for kind in (Nvml, AmdSmi):
        try:
            return kind(gpu)
        except (Unavailable, Unsupported, LibraryError):
            continue
    return None


def warnings(
    before: dict[str, Any] | None, after: dict[str, Any] | None, during: dict[str, Any] | None
) -> list[tuple[str, str]]:
    """Code and sentence of each problem in the conditions before, after and during a measurement."""
    if before is None or after is None:
        return [("no_telemetry", "clocks and throttling of the GPU cannot be read here")]
    problems = []
    seen = [c for c in (before, during, after) if c is not None]
    limits = sorted({reason for c in seen for reason in c["limited_by"] or ()} - HARMLESS)
    if limits:
        problems.append(("throttled", f"the GPU lowered its clocks: {', '.join(limits)}"))
    if max(before["other_processes"] or 0, after["other_processes"] or 0) > 0:
        problems.append(("shared_card", "other processes used the GPU"))
    return problems
