"""A GPU as kernels and records see it: timers, clocks, power, and facts about the hardware."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

from deepbench.native.gpu import telemetry
from deepbench.native.gpu.runtime import Runtime
from deepbench.native.gpu.timing import EventTimer, GroupTimer
from deepbench.native.gpu.vendor import Cuda


class Gpu(Runtime):
    """One GPU; implements `core.kernel.Device`."""

    on_host = False

    def in_turn(self, others: Sequence[Any]) -> Gpu:
        """Itself: its stream holds the calls of all kernels."""
        return self

    def timer(self, enqueue: Callable[[int], int], calls: int) -> EventTimer:
        """A timer on the GPU's clock for `enqueue(repeats)`, which makes `calls` calls per repeat."""
        return EventTimer(self, self.sensors, enqueue, calls)

    def each_timer(self, kernel: Any) -> GroupTimer:
        """A timer for the calls of a group's kernel, after its barrier."""
        return GroupTimer([self, *kernel.others], kernel)

    @cached_property
    def sensors(self) -> telemetry.Sensors | None:
        """Clocks, power and temperature; None if they cannot be read."""
        return telemetry.sensors(self)

    def conditions(self) -> dict[str, Any] | None:
        """Clocks, throttling, power, temperature and other processes now; None if they cannot be read."""
        return None if self.sensors is None else self.sensors.conditions()

    def warnings(self, seen: dict[str, Any]) -> list[tuple[str, str]]:
        """Code and sentence of each reason to doubt a measurement; `seen` is its `device` field."""
        warnings = telemetry.warnings(seen["before"], seen["after"], seen["during"])
        if seen["fallback"] is not None:
            warnings.append(("plain_clock", f"times of short kernels include launching: {seen['fallback']}"))
        return warnings

    # ---- facts

    @property
    def cache_bytes(self) -> int | None:
        """Bytes of the L2 cache."""
        return self.attribute("L2_BYTES") or None

    def attribute(self, name: str) -> int | None:
        """A device attribute by its name in `vendor.py`; None if the GPU does not have it."""
        value, number = ctypes.c_int(), getattr(self.vendor, name)
        failed = self.function("cudaDeviceGetAttribute")(ctypes.byref(value), number, self.number)
        return None if failed else value.value

    def facts(self) -> dict[str, Any]:
        """The GPU's part of a record."""
        clock, processors = self.attribute("CLOCK_KHZ"), self.attribute("PROCESSORS")
        capability = (self.attribute("CAPABILITY_MAJOR") or 0, self.attribute("CAPABILITY_MINOR") or 0)
        sensors = self.sensors
        boost = (sensors and sensors.clock_mhz("highest")) or (clock or 0) / 1000
        lanes = self.vendor.F32_LANES.get(capability)
        peak = 2.0 * lanes * processors * boost * 1e6 if lanes and processors and boost else None
        memory_clock, bus = self.attribute("MEMORY_CLOCK_KHZ"), self.attribute("MEMORY_BUS_BITS")
        return {
            "vendor": self.vendor.maker,
            "name": self._text("cuDeviceGetName", 256),
            "capability": "{}.{}".format(*capability),
            "processors": processors,
            "clock_mhz": boost or None,
            "memory_bytes": self.memory_info()[1],
            # GPU memory makes two transfers per clock.
            "memory_bytes_per_s": 2e3 * memory_clock * bus / 8 if memory_clock and bus else None,
            "cache_bytes": self.cache_bytes,
            "peak_f32_flop_per_s": peak,
            "bus_id": self.bus_id,
            "cards": self.count,
            "runtime": self._version("cudaRuntimeGetVersion"),
            "driver": (sensors and sensors.driver_version()) or self._version("cudaDriverGetVersion"),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES", os.environ.get("HIP_VISIBLE_DEVICES")),
            "tf32_override": os.environ.get("NVIDIA_TF32_OVERRIDE"),
        }

    def _text(self, name: str, size: int) -> str | None:
        text = ctypes.create_string_buffer(size)
        return None if self.function(name)(text, size, self.number) else text.value.decode(errors="replace")

    def _version(self, name: str) -> str | None:
        """`13000` → `13.0`; None if the function fails."""
        value = ctypes.c_int()
        failed = self.function(name)(ctypes.byref(value))
        return None if failed else self.vendor.runtime_version(value.value)


@cache
def open_gpu(vendor: Cuda, number: int = 0) -> Gpu:
    """A GPU of this process; `Unavailable` says what is missing."""
    return Gpu(vendor, number)
