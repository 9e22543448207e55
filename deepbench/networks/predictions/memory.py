"""How much memory a traced step needs, and how many devices hold it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from deepbench.networks.traces.trace import Trace


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


def memory_of(trace: Trace) -> Memory | None:
    """Follow the buffers of a trace from their first to their last use; None where its buffers are unknown.

    A buffer that is read before it is written holds what the step before, or the program, has left there.
    """
    if not trace.buffers:
        return None
    first: dict[int, tuple[int, bool]] = {}
    last: dict[int, int] = {}
    for number, call in enumerate(trace.calls):
        for buffer in call.reads:
            first.setdefault(buffer, (number, True))
        for buffer in call.writes:
            first.setdefault(buffer, (number, False))
        for buffer in (*call.reads, *call.writes):
            last[buffer] = number
    kept = sum(trace.buffers[b] for b, (_, is_read) in first.items() if is_read)
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for buffer, (number, is_read) in first.items():
        if not is_read:
            begins[number] = begins.get(number, 0) + trace.buffers[buffer]
            ends[last[buffer]] = ends.get(last[buffer], 0) + trace.buffers[buffer]
    live = most = 0
    for number in range(len(trace.calls)):
        live += begins.get(number, 0)
        most = max(most, live)
        live -= ends.get(number, 0)
    return Memory(kept, most)
