"""Which of several like things is slower than the rest: hosts of a fleet, and the links between them.

Each has been timed several times, in turn with the others, so chance alone would shuffle their times freely. A thing is
slower when the lower quartile of its times lies so high among all times that chance does that less often than `ALPHA`
(a precedence test: Nelson, Technometrics 1963; exact; Holm's correction over all things), *and* when it is slower by a
share that matters. What disturbs a computer only ever adds time, so the low times tell how fast a thing is: a test of
ranks over all times needs several times as many runs here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from deepbench.core import stats

# How often one look at a fleet of equals may accuse any of them; several looks are taken while it is not sure.
ALPHA = 0.001

# By how much one must be slower to matter: kernels, and links.
KERNEL_RATIO, LINK_RATIO = 1.05, 1.15

# A fleet has a spread of its own: of so many things, one must stand out from it too (Iglewicz and Hoaglin, 1993).
LEAST_FOR_SPREAD, MOST_Z = 5, 3.5

# A very uniform fleet would make a tenth of a percent stand out.
LEAST_SPREAD = 0.01


@dataclass(frozen=True)
class Standing:
    """Where one thing stands among the others."""

    ratio: float
    """Its time over the median of the others'."""
    p: float
    """How often chance would put its times as high; of several things together, by Holm's correction."""
    matters: bool
    """Whether it is so much slower that it matters, if it is no chance."""
    high: float | None
    """Upper end of the 95 % interval of the ratio, None with one time."""
    limit: float
    """The ratio that matters."""

    @property
    def slower(self) -> bool:
        """Slow enough to matter, and sure."""
        return self.matters and self.p < ALPHA

    @property
    def undecided(self) -> bool:
        """Slow enough to matter, not yet sure: more runs would tell."""
        return self.matters and self.p >= ALPHA

    @property
    def open(self) -> bool:
        """Neither slower nor shown not to be: more runs would tell."""
        return not self.slower and (self.high is None or self.high > self.limit)

    def corrected(self, p: float) -> Standing:
        """The same, when more was asked."""
        return replace(self, p=max(p, self.p))


def standings(times: Mapping[str, Sequence[float]], ratio: float, correct: bool = True) -> dict[str, Standing]:
    """The standing of each thing by its times; things without times have none, and one alone has nothing to say.

    `correct`: whether chances are corrected here for the number of things; else whoever asks more has to do it.
    """
    timed = {name: list(values) for name, values in times.items() if values}
    if len(timed) < 2:
        return {}
    typical = {name: stats.lower_quartile(values) for name, values in timed.items()}
    rest = {name: median(v for n, v in typical.items() if n != name) for name in typical}
    ratios = {name: t / rest[name] for name, t in typical.items()}
    highs = {name: stats.estimate_time(v, [1.0] * len(v)).high_s for name, v in timed.items()}
    spread = max(LEAST_SPREAD, 1.4826 * median(abs(r - 1) for r in ratios.values()))
    chances = {name: precedence_p(timed[name], _others(timed, name)) for name in timed}
    chances = stats.holm(chances) if correct else chances
    found = {}
    for name, r in ratios.items():
        apart = len(timed) < LEAST_FOR_SPREAD or (r - 1) / spread > MOST_Z
        high = highs[name]
        found[name] = Standing(
            r, chances[name], r > ratio and apart, None if high is None else high / rest[name], ratio
        )
    return found


def precedence_p(ours: Sequence[float], others: Sequence[float]) -> float:
    """How often as many values, drawn at random from all of them, would have a lower quartile as high as `ours`.

    Values below ours' k-th smallest (its lower quartile), of which `ours` has k - 1 or fewer, are drawn without being
    put back: the hypergeometric distribution says how often, exactly.
    """
    n, count = len(ours), len(ours) + len(others)
    k = (n - 1) // 4 + 1
    bound = sorted(ours)[k - 1]
    below = sum(v < bound for v in (*ours, *others))
    draws = sum(math.comb(below, i) * math.comb(count - below, n - i) for i in range(k))
    return draws / math.comb(count, n)


def together(times: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """Of times by kernel and thing: for each run of each thing how long it took, by the geometric mean over kernels.

    A kernel counts as the share of its own middle time, so that long ones do not drown the others; only kernels that
    each thing has in every run are counted.
    """
    names = {name for of_kernel in times.values() for name in of_kernel}
    runs = {name: max(len(k.get(name, ())) for k in times.values()) for name in names}
    whole = [k for k in times.values() if all(len(k.get(name, ())) == runs[name] for name in names)]
    middles = [median(v for values in k.values() for v in values) for k in whole]
    return {
        name: [
            math.exp(sum(math.log(k[name][i] / m) for k, m in zip(whole, middles, strict=True)) / len(whole))
            for i in range(runs[name])
        ]
        for name in sorted(names)
        if whole and runs[name]
    }


def tournament(names: Sequence[str], most_rounds: int | None = None) -> list[list[tuple[str, str]]]:
    """Rounds of disjoint pairs in which everyone meets everyone once (the circle method), or the first so many."""
    circle: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    rounds = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append([(a, b) for a, b in pairs if a is not None and b is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds[:most_rounds]


def _others(timed: Mapping[str, Sequence[float]], name: str) -> list[float]:
    return [v for other, values in timed.items() if other != name for v in values]
