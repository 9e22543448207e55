"""What a page shows at first in *Which machine?*; its readers can change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepbench.judge.ranking import machine_named, titles_named


@dataclass(frozen=True)
class Preset:
    """What the person who writes a page chose."""

    machines: Sequence[str] = ()
    """Published machines that are ticked, besides the files."""
    application: str | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    """Of an hour, by a name of a machine."""

    @property
    def words(self) -> list[str]:
        """What was chosen, for messages."""
        chosen = [f"--application {self.application}"] if self.application is not None else []
        return [*chosen, *(f"--price {name}" for name in self.prices)]

    def values(self, files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """For the scripts: names as the page has them; `BadInput` for names that it lacks. A price ticks a machine."""
        here = [file["name"] for file in files]
        published = dict.fromkeys(m["name"] for file in files for m in file["first"]["machines"])
        names = [*here, *(name for name in published if name not in here)]
        prices = {machine_named(names, name): price for name, price in self.prices.items()}
        titles: list[str] = []
        if self.application is not None:
            totals = [t for f in files for m in (f, *f["first"]["machines"]) for t in m["applications"]]
            known = {f"{t['application']} ({t['suite'].removeprefix('deepbench/')})": t["application"] for t in totals}
            titles = titles_named(known, self.application)
        return {"machines": [*self.machines, *prices], "titles": titles, "prices": prices}
