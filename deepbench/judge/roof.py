"""Roofs: the highest rate that any library here reaches, measured by short probes in each precision.

A result above the roof is an error, not a result: the work was not done, or the clock was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, cast

from deepbench.core import units
from deepbench.core.backend import find_backend
from deepbench.core.case import Case, parse_case
from deepbench.core.op import all_ops, find_op
from deepbench.core.precision import PRECISIONS
from deepbench.results.record import Device, Record, Roof
from deepbench.results.summary import process_time_s

# The probe's fastest sample is compared with the median of a case, so a case should stay below by itself. The
# margin is for clocks that rise after the probe, and for shared machines where a whole probe runs slow; a case beyond
# it causes further, longer probes before it is judged.
MARGIN = 1.25

WIDEST = "f32"

# Probes of one precision in so many seconds: a machine that is slow for minutes, because something else runs, makes all
# of them too low, and must not have the last word on what is measured when it is fast again.
MOST_PROBES, PROBES_WITHIN_S = 5, 60.0

Measure = Callable[[Case, int], Record]


# Above the arithmetic peak of a card's multiprocessors by more than clocks and their readings explain.
ABOVE_PEAK = 1.02


class Roofs:
    """The roofs of a run, by precision, device and threads."""

    def __init__(self, known: Iterable[Roof], libraries: Iterable[str]) -> None:
        self._roofs: dict[tuple[str, str, int], list[Roof]] = {}
        self._libraries = list(libraries)
        for roof in known:
            key = (roof["precision"], roof.get("device", "cpu"), roof["threads"])
            self._roofs.setdefault(key, []).append(roof)

    def highest(self, precision: str, device: str, threads: int) -> float | None:
        """FLOP/s, or None where no library could be probed.

        What multiplies f32 can multiply anything smaller by converting it, as libraries do on CPUs without
        instructions for it; with a large matrix that costs next to nothing. So no roof is below that of f32.
        """
        found = [r["flop_per_s"] for p in {precision, WIDEST} for r in self._roofs.get((p, device, threads), [])]
        return max(found, default=None)

    def missing(self, precision: str, device: str, threads: int) -> list[str]:
        """The precisions that must be probed before `highest` means something."""
        return [p for p in dict.fromkeys((WIDEST, precision)) if (p, device, threads) not in self._roofs]

    def _recent(self, key: tuple[str, str, int]) -> int:
        """How many probes of late."""
        now = datetime.now(UTC)
        ages = (now - datetime.fromisoformat(roof["at"]) for roof in self._roofs.get(key, []))
        return sum(age.total_seconds() < PROBES_WITHIN_S for age in ages)

    def probe(self, precision: str, device: str, threads: int, measure: Measure) -> Roof | None:
        """Measure the roof; the line for the result file, or None where no library serves this precision."""
        best: Roof | None = None
        failed = set()
        for case in probe_cases(precision, device, threads, self._libraries):
            if case.backend in failed:
                continue
            record = measure(case, 1)
            if record["status"] == "unsupported":  # another probe may be for it: 8 bits want A transposed on some cards
                continue
            if record["status"] != "ok" or not record["measurement"] or not record["library"]:
                failed.add(case.backend)
                continue
            rate = record["flop"] / min(record["measurement"]["samples_s"])
            if best is None or rate > best["flop_per_s"]:
                library = record["library"]
                best = {
                    "precision": precision,
                    "device": cast(Device, device),
                    "threads": threads,
                    "flop_per_s": float(f"{rate:.6g}"),
                    "case": case.text,
                    "library": f"{library['name']} {library['version']}",
                    "at": datetime.now(UTC).isoformat(timespec="seconds"),
                }
        if best is not None:
            self._roofs.setdefault((precision, device, threads), []).append(best)
        return best

    def judge(self, record: Record, measure: Measure, keep: Callable[[dict[str, Any]], None]) -> Record:
        """The record, turned to `wrong` if its rate is above the roof even after a second probe.

        `keep` receives the line of a second probe.
        """
        if record["status"] != "ok" or find_op(record["op"]).is_group:
            return record
        case = parse_case(record["case"])
        key = (record["precision"], find_backend(case.backend).device, record["threads"])
        rate = find_op(case.op).least_flop(case) / process_time_s(record)
        card: Any = record["library"]["card"] if record["library"] and "card" in record["library"] else None
        peak = (card or {}).get("peak_f32_flop_per_s")
        if peak and record["precision"] == "f32" and rate > ABOVE_PEAK * peak:
            reason = (
                f"{units.flop_per_s(rate)} TFLOP/s is above the card's peak of {units.flop_per_s(peak)} in f32: "
                "a lower precision such as TF32 was multiplied"
            )
            return {**record, "status": "wrong", "reason": reason}
        roof = self.highest(*key)
        if roof is None or rate <= MARGIN * roof:
            return record
        while rate > MARGIN * roof and self._recent(key) < MOST_PROBES:
            known = len(self._roofs.get(key, []))
            for precision in dict.fromkeys((WIDEST, key[0])):
                line = self.probe(precision, *key[1:], measure)
                if line is not None:
                    keep({"roof": line})
            roof = max(roof, self.highest(*key) or 0.0)
            if len(self._roofs.get(key, [])) == known:
                break  # no library can be probed any more
        if rate <= MARGIN * roof:
            return record
        reason = (
            f"{units.flop_per_s(rate)} TFLOP/s is above the roof of {units.flop_per_s(roof)} that the fastest "
            f"library reached here in {record['precision']}: the work was not done, or the clock was wrong"
        )
        return {**record, "status": "wrong", "reason": reason}


def probe_cases(precision: str, device: str, threads: int, libraries: Iterable[str]) -> list[Case]:
    """The probes of every op on every library of the device that serves this precision."""
    found = []
    for op in all_ops().values():
        for name in libraries:
            backend = find_backend(name)
            if backend.device != device or not backend.computes:
                continue
            if backend.supports(op.name, precision, op.directions[0]):
                found += [
                    Case(op.name, problem, op.directions[0], PRECISIONS[precision], name, threads)
                    for problem in (op.probes if device == "cpu" else op.device_probes)
                ]
    return found
