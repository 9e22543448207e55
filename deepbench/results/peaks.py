"""The peak rates of a machine, and which records claim a rate above them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deepbench.core import units
from deepbench.results.record import Limit, Record
from deepbench.results.summary import process_time_s

# Any library can multiply smaller types by converting them to f32. For large matrices the conversion costs almost
# nothing, so no peak is below that of f32.
F32 = "f32"

# A rate is compared with the fastest sample of a probe, so it should stay below the peak. The margin allows for clocks
# that rise after the probe, and for shared machines on which a whole probe ran slowly.
MARGIN = 1.25

# The same where other programs disturbed every probe: they may have taken most of its time. A kernel that does not do
# its work is faster by more.
DISTURBED_MARGIN = 4.0

# The same for the theoretical f32 peak of a card, which no clock or reading error exceeds by more.
CARD_MARGIN = 1.02


class Peaks:
    """The highest rate in each precision, on each device, with each number of threads."""

    def __init__(self, limits: Iterable[Limit] = ()) -> None:
        self._rates: dict[tuple[str, str, int], float] = {}
        self._undisturbed: set[tuple[str, str, int]] = set()
        """Where a probe was left alone by other programs."""
        for limit in limits:
            if limit["what"] == "compute":
                disturbed = bool(limit.get("disturbed"))
                self.include(limit["precision"], limit["device"], limit["threads"], limit["flop_per_s"], disturbed)

    def include(self, precision: str, device: str, threads: int, rate: float, disturbed: bool = False) -> None:
        """A rate that was reached; `disturbed`: other programs took time meanwhile."""
        key = precision, device, threads
        self._rates[key] = max(rate, self._rates.get(key, 0.0))
        if not disturbed:
            self._undisturbed.add(key)

    def of(self, precision: str, device: str, threads: int) -> float | None:
        """FLOP/s, at least those of f32 and those that fewer threads reach; None if unknown with this many.

        More threads can leave some idle, so a lower rate is that of a slow library or a disturbed probe, not a limit.
        """
        best = self._best(precision, device, threads)
        return best[0] if best else None

    def threads_of(self, precision: str, device: str, threads: int) -> int | None:
        """The number of threads that reached the rate of `of`: this one, or fewer if they are faster."""
        best = self._best(precision, device, threads)
        return best[1] if best else None

    def _best(self, precision: str, device: str, threads: int) -> tuple[float, int] | None:
        rates = {n: rate for (p, d, n), rate in self._rates.items() if d == device and n <= threads and p == precision}
        for (p, d, n), rate in self._rates.items():
            if p == F32 and d == device and n <= threads:
                rates[n] = max(rate, rates.get(n, 0.0))
        if threads not in rates:
            return None
        return max((rate, n) for n, rate in rates.items())

    def is_disturbed(self, precision: str, device: str, threads: int) -> bool:
        """Whether other programs disturbed every probe, so that the rate of `of` may be too low.

        Of the probes of this precision, or of f32 where there are none: their number of threads must be the same.
        """
        probed = [key for name in (precision, F32) if (key := (name, device, threads)) in self._rates]
        return bool(probed) and probed[0] not in self._undisturbed

    def _margin(self, precision: str, device: str, threads: int) -> float:
        return DISTURBED_MARGIN if self.is_disturbed(precision, device, threads) else MARGIN

    def excess(self, record: Record) -> str | None:
        """Why the rate of a checked record is impossible on this machine; None if it is not."""
        peak = self.of(record["precision"], record["device"], record["threads"])
        rate = _rate_above(record, peak, self._margin(record["precision"], record["device"], record["threads"]))
        if rate is None:
            return None
        fastest = f"measured peak of {units.flop_per_s(peak)} that the fastest library reaches in {record['precision']}"
        why = "the kernel did not do the work, or the clock was wrong"
        return f"{units.flop_per_s(rate)} TFLOP/s is above the {fastest}: {why}"


def excess_over_card(record: Record) -> str | None:
    """Why the rate of a checked record is impossible on its card; None if it is not, or if the card is unknown."""
    facts: Any = record["library"] or {}
    card = facts.get("card") if record["precision"] == F32 else None
    peak = card.get("peak_f32_flop_per_s") if isinstance(card, dict) else None
    rate = _rate_above(record, peak, CARD_MARGIN) if isinstance(peak, int | float) else None
    if rate is None:
        return None
    shown = f"{units.flop_per_s(rate)} TFLOP/s is above the card's f32 peak of {units.flop_per_s(peak)}"
    return f"{shown}: the library multiplied in a lower precision, such as TF32"


def _rate_above(record: Record, peak: float | None, margin: float) -> float | None:
    """The rate of a checked record if it is above the peak by more than the margin.

    It counts the operations that no algorithm avoids. Groups exist to move data and have no peak.
    """
    flop, measurement = record["least_flop"], record["measurement"]
    if record["status"] != "ok" or record["is_group"] or not flop or not measurement or not peak:
        return None
    # The time is at least that of the fastest sample, which is found sooner.
    if flop <= margin * peak * min(measurement["samples_s"]):
        return None
    rate = flop / process_time_s(record)
    return rate if rate > margin * peak else None
