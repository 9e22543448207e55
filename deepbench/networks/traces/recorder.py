"""Gathers the operators and buffers of a trace, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from deepbench.core.errors import BadInput
from deepbench.core.words import count
from deepbench.networks.traces.memory import memory_of
from deepbench.networks.traces.trace import MOST_CALLS, Trace, TracedCall, require_few


@dataclass
class Recorder:
    """The calls and buffers of a trace so far."""

    calls: list[TracedCall] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Bytes of each buffer."""
    views: int = 0
    parts: dict[int, list[int]] = field(default_factory=dict)
    """Buffers that are used piece by piece, too: their pieces, which are buffers as well."""
    places: dict[int, int] = field(default_factory=dict)
    """Buffers that lie in the memory of an earlier one that is no longer used: its number. They are one buffer of the
    trace, but not of the memory that the step needs, because where a framework puts an array differs by run."""
    made: dict[int, int] | None = None
    """Buffers that the step allocated, each with the number of calls before it; None: unknown."""

    notes: Counter[str] = field(default_factory=Counter)
    """How calls differ from their kernels, each with the number of calls."""
    remarks: dict[str, None] = field(default_factory=dict)
    """What else is to be known, such as what was left out; each once."""

    def buffer(self, size: int) -> int:
        """A new buffer of so many bytes."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def call(
        self,
        operator: str,
        kernel: str | None,
        where: str,
        reads: Iterable[int],
        writes: Iterable[int],
        moved: int,
        operators: int = 1,
    ) -> None:
        """Record an operator, or a kernel of one; see `TracedCall`."""
        if len(self.calls) == MOST_CALLS:
            raise BadInput(f"the network calls more than {MOST_CALLS} operators; trace a smaller one, or fewer steps")
        self.calls.append(TracedCall(operator, kernel, where, tuple(reads), tuple(writes), moved, operators))

    def trace(self, title: str, source: str, is_training: bool, parameters: int | None) -> Trace:
        """The trace with the buffers that are used, in the order of their first use."""
        uses_of_arrays = ((self._pieces(call.reads), self._pieces(call.writes)) for call in self.calls)
        memory = None if self.made is None else memory_of(uses_of_arrays, self.sizes, self.made)
        sizes = list(self.sizes)
        for buffer, place in self.places.items():
            sizes[place] = max(sizes[place], sizes[buffer])
        numbers: dict[int, int] = {}
        calls = []
        for call in self.calls:
            reads, writes = (
                tuple(dict.fromkeys(self._number(n, numbers) for n in self._pieces(group)))
                for group in (call.reads, call.writes)
            )
            if (reads, writes) != (call.reads, call.writes):
                call = replace(call, reads=reads, writes=writes)
            calls.append(call)
        uses = sum(len(call.reads) + len(call.writes) for call in calls)
        require_few(len(calls), len(numbers), uses, "the network")
        return Trace(
            title=title,
            source=source,
            is_training=is_training,
            calls=tuple(calls),
            buffers=tuple(sizes[n] for n in numbers),
            views=self.views,
            parameters=parameters,
            notes=(*self.remarks, *(f"{count(n, 'call')}: {note}" for note, n in self.notes.items())),
            recorded_memory=memory,
        )

    def _number(self, buffer: int, numbers: dict[int, int]) -> int:
        """The number in the trace of the memory of a buffer."""
        return numbers.setdefault(self.places.get(buffer, buffer), len(numbers))

    def _pieces(self, buffers: Iterable[int]) -> Iterable[int]:
        for buffer in buffers:
            if buffer in self.parts:
                yield from self._pieces(self.parts[buffer])
            else:
                yield buffer
