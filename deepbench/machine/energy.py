"""Joules that the CPUs have used, as the kernel counts them (Intel's and AMD's RAPL, through /sys/class/powercap).

The counters are of whole sockets, so everything else that runs is in them; they move every millisecond or so, and wrap
around. A window of two seconds makes both small; that nothing else ran cannot be proved, only that nobody was seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

POWERCAP = Path("/sys/class/powercap")

# A window shorter than this would be a reading of the counter's own steps.
LEAST_WINDOW_S = 1.0


class Counters:
    """The sockets' counters; `why_not` says why there are none."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._zones: list[Path] = []
        self.why_not: str | None = None
        zones = [z for z in sorted(folder.glob("intel-rapl:*")) if z.name.count(":") == 1]
        if not zones:
            self.why_not = (
                "this machine has no energy counters (no /sys/class/powercap/intel-rapl:0), as in most guests"
            )
            return
        try:
            for zone in zones:
                if (zone / "name").read_text().startswith("package"):
                    int((zone / "energy_uj").read_text())
                    self._zones.append(zone)
        except PermissionError:
            self.why_not = (
                "energy counters are for root alone: sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
            )
        except (OSError, ValueError) as error:
            self.why_not = f"energy counters cannot be read ({error})"
        if not self._zones and self.why_not is None:
            self.why_not = "no energy counter of a whole CPU"

    def read(self) -> list[int]:
        """Microjoules of each socket."""
        return [int((zone / "energy_uj").read_text()) for zone in self._zones]

    def joules(self, before: list[int], after: list[int]) -> float:
        """Between two readings, of which each counter may have wrapped around once."""
        total = 0
        for zone, one, other in zip(self._zones, before, after, strict=True):
            if other < one:
                other += int((zone / "max_energy_range_uj").read_text())
            total += other - one
        return total / 1e6


def measure_energy(
    turn: Callable[[int], object], turn_s: float, calls_a_turn: int, window_s: float, counters: Counters | None = None
) -> dict[str, Any]:
    """Joules of a call over a window without a pause; `valid`, or the reason why not.

    `turn` makes so many turns of `calls_a_turn` calls, one for each set of buffers; each takes about `turn_s` seconds.
    """
    counters = counters or Counters()
    if counters.why_not is not None:
        return {"joules_per_call": None, "watts": None, "calls": 0, "window_s": 0.0, "valid": counters.why_not}
    batch = max(1, round(0.05 / turn_s))
    before, start, calls = counters.read(), time.perf_counter(), 0
    while time.perf_counter() - start < window_s:
        turn(batch)
        calls += batch * calls_a_turn
    after, seconds = counters.read(), time.perf_counter() - start
    joules = counters.joules(before, after)
    valid: bool | str = True
    if seconds < LEAST_WINDOW_S:
        valid = f"the window of {seconds:.2f} s is too short for the counters"
    elif joules <= 0:
        valid = "the counters did not move"
    return {
        "joules_per_call": joules / calls if joules > 0 else None,
        "watts": joules / seconds if joules > 0 else None,
        "calls": calls,
        "window_s": seconds,
        "valid": valid,
    }
