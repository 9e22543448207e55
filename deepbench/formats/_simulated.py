"""Results of simulators: cycles of the layers that `deepbench export` wrote, as times of the problems.

A problem takes as long as its layers together, each as often as counts.json says, at the clock that the user gives. A
simulator knows products only, so what a case does besides (bias, softmax, gates) is not in its time.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from deepbench.core.devices import SIMULATED
from deepbench.core.errors import BadInput
from deepbench.formats import Format, ImportedCase, ImportedFile, ImportOptions
from deepbench.formats._counts import CountedProblem, counted_problems

# More cycles than any simulator can count, and problems with more layers than any export has.
MOST_CYCLES, MOST_LAYERS = 1e18, 100_000


class SimulatorFormat(Format):
    """Results of one simulator. Subclass it, and end the file with `FORMAT = MyFormat()`."""

    uses: ClassVar[tuple[str, ...]] = ("problems", "clock")

    @abstractmethod
    def cycles(self, texts: Mapping[str, str], layers: list[str]) -> dict[str, float]:
        """Cycles of layers by name. `texts` are the files by path, `layers` the names in the order of the export."""

    def read(self, text: str, options: ImportOptions) -> ImportedFile:
        """A single file."""
        return self.read_files({options.path: text}, options)

    def read_files(self, texts: Mapping[str, str], options: ImportOptions) -> ImportedFile:
        """The problems whose layers have cycles."""
        if options.problems is None:
            raise BadInput(
                f"{self.name} knows layers and not problems; name the counts.json that deepbench export wrote with "
                "the layers: --problems counts.json"
            )
        if options.clock_hz is None:
            raise BadInput(f"{self.name} gives cycles; say how many there are in a second: --clock 1GHz")
        problems = list(counted_problems(options.problems))
        layers = [name for problem in problems for name in problem.layers]
        if len(layers) > MOST_LAYERS:
            raise BadInput(f"--problems: there are {len(layers)} layers; at most {MOST_LAYERS} are imported at once")
        cycles = {name: n for name, n in self.cycles(texts, layers).items() if 0 < n <= MOST_CYCLES}
        found = ImportedFile(self.name, options.library or self.name, cpu=options.machine)
        found.facts["clock_hz"] = f"{options.clock_hz:g}"
        for problem in problems:
            found.cases.append(_imported(problem, cycles, options.clock_hz, self.name))
        if unknown := len(cycles.keys() - set(layers)):
            found.left_out.append(f"{unknown} layers that counts.json does not have")
        return found


def _imported(problem: CountedProblem, cycles: Mapping[str, float], clock_hz: float, program: str) -> ImportedCase:
    text = f"{problem.text} {SIMULATED} threads=1"
    missing = [name for name in problem.layers if name not in cycles]
    if missing:
        reason = f"{program} gives no cycles of {missing[0]}"
        return ImportedCase(text, [], reason=reason, sources=problem.sources)
    total = math.fsum(times * cycles[name] for name, times in problem.layers.items())
    return ImportedCase(text, [[total / clock_hz]], {"cycles": total}, sources=problem.sources)


def layer_of(path: str, layers: set[str]) -> str | None:
    """The layer that a file is about: a part of its path is called after it, up to the first dot."""
    return next((stem for part in reversed(path.split("/")) if (stem := part.partition(".")[0]) in layers), None)
