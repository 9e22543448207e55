"""Energy of the CPUs from the kernel's counters (RAPL of Intel and AMD, through /sys/class/powercap).

The counters cover whole sockets, so they include other programs. They advance about every millisecond and wrap around.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

POWERCAP = Path("/sys/class/powercap")

# In a shorter window, the steps of the counters are too coarse.
LEAST_WINDOW_S = 1.0


class Counters:
    """The counters of all sockets. `why_not` is the reason if there are none."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._zones: list[Path] = []
        self.why_not: str | None = None
        zones = [z for z in sorted(folder.glob("intel-rapl:*")) if z.name.count(":") == 1]
        if not zones:
            missing = "/sys/class/powercap/intel-rapl:0 is missing"
            self.why_not = f"no energy counters ({missing}), as in most virtual machines"
            return
        try:
            for zone in zones:
                if (zone / "name").read_text().startswith("package"):
                    int((zone / "energy_uj").read_text())
                    self._zones.append(zone)
        except PermissionError:
            remedy = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
            self.why_not = f"only root may read the energy counters: {remedy}"
        except (OSError, ValueError) as error:
            self.why_not = f"the energy counters cannot be read ({error})"
        if not self._zones and self.why_not is None:
            self.why_not = "no energy counter covers a whole CPU"

    def read(self) -> list[int]:
        """Microjoules per socket."""
        return [int((zone / "energy_uj").read_text()) for zone in self._zones]

    def joules(self, before: list[int], after: list[int]) -> float:
        """Joules between two readings. Each counter may have wrapped around once."""
        total = 0
        for zone, start, end in zip(self._zones, before, after, strict=True):
            if end < start:
                end += int((zone / "max_energy_range_uj").read_text())
            total += end - start
        return total / 1e6


def measure_energy(
    run: Callable[[int], object],
    repeat_s: float,
    calls_per_repeat: int,
    window_s: float,
    counters: Counters | None = None,
) -> dict[str, Any]:
    """Joules per call over a window without pauses; `valid` is True or the reason why the value is not valid.

    `run(n)` makes n repeats of `calls_per_repeat` calls (one per set of buffers); a repeat takes about `repeat_s`.
    """
    counters = counters or Counters()
    if counters.why_not is not None:
        return {"joules_per_call": None, "watts": None, "calls": 0, "window_s": 0.0, "valid": counters.why_not}
    batch = max(1, round(0.05 / repeat_s))
    before, start, calls = counters.read(), time.perf_counter(), 0
    while time.perf_counter() - start < window_s:
        run(batch)
        calls += batch * calls_per_repeat
    after, seconds = counters.read(), time.perf_counter() - start
    joules = counters.joules(before, after)
    valid: bool | str = True
    if seconds < LEAST_WINDOW_S:
        valid = f"a window of {seconds:.2f} s is too short for the counters"
    elif joules <= 0:
        valid = "the counters did not advance"
    return {
        "joules_per_call": joules / calls if joules > 0 else None,
        "watts": joules / seconds if joules > 0 else None,
        "calls": calls,
        "window_s": seconds,
        "valid": valid,
    }
