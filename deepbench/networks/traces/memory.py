"""How much memory a traced step needs, and how many devices hold it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Memory:
    """Bytes of a step: what stays from step to step, and what a step needs besides."""

    kept: int
    """Parameters, the state of the optimizer and inputs: what a step reads before it writes it, or keeps."""
    temporary: int
    """The most that the results of operators take at a time, such as activations and gradients."""

    @property
    def total(self) -> int:
        """Both together."""
        return self.kept + self.temporary

    def devices(self, capacity: int) -> int | None:
        """How many devices of so many bytes hold a step that is divided evenly among them; None without a number.

        Parameters and the state of the optimizer are divided, as in ZeRO (Rajbhandari et al., 2020), and so is the
        batch, and with it the temporary memory. Copies for communication are not counted.
        """
        return math.ceil(self.total / capacity) if capacity > 0 else None


# Numbers of the buffers that a call reads, and of those that it writes.
Use = tuple[Iterable[int], Iterable[int]]


def memory_of(uses: Iterable[Use], sizes: Sequence[int], made: Mapping[int, int] | None = None) -> Memory:
    """Follow buffers of these sizes from their first to their last use by the calls of a step.

    `made` has the buffers that the step allocated, each with the number of the call before which it did. Where that is
    unknown (None), a buffer that is read before it is written holds what the step before, or the program, has left
    there.
    """
    first: dict[int, tuple[int, bool]] = {}
    last: dict[int, int] = {}
    for number, (reads, writes) in enumerate(uses):
        for group, is_read in ((reads, True), (writes, False)):
            for buffer in group:
                first.setdefault(buffer, (number, is_read))
                last[buffer] = number
    if made is not None:
        first = {b: (made.get(b, number), b not in made) for b, (number, _) in first.items()}
    kept = sum(sizes[b] for b, (_, is_kept) in first.items() if is_kept)
    changes: dict[int, int] = {}
    for buffer, (number, is_kept) in first.items():
        if not is_kept:
            changes[number] = changes.get(number, 0) + sizes[buffer]
            changes[last[buffer] + 1] = changes.get(last[buffer] + 1, 0) - sizes[buffer]
    live = most = 0
    for number in sorted(changes):
        live += changes[number]
        most = max(most, live)
    return Memory(kept, most)
