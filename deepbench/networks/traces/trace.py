"""A trace: the operators that a framework runs for one forward pass or one training step, in their order.

An operator is a kernel of ours, such as a product, or another one of which only the bytes are known. Each has the
buffers that it reads and writes. So a trace says how often each kernel is called, and how many other bytes a step
touches before a kernel finds its inputs again.

`suite_text` writes a trace as a suite: a model like those of `suites/`, which `deepbench run` measures, with the order
of the operators in a table of its own, which `parse_trace` reads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from deepbench.core.case import parse_pattern
from deepbench.core.errors import BadInput, shorten
from deepbench.core.files import replacing
from deepbench.core.json_lines import printable
from deepbench.networks.traces.memory import Memory, memory_of
from deepbench.plan.models import MOST_LINES, MOST_TRACE_BYTES, TRACE, require_text

# A step with more of them is not one of a network: those of large models have 10,000 calls. Predictions take some 8 s.
MOST_CALLS = 100_000
MOST_BUFFERS = 100_000
MOST_USES = 400_000  # of buffers, which calls read and write

# Views, and the operators that one call stands for, which are only counted.
MOST_OPERATORS = 1_000_000
MOST_BYTES = 2**60

# What the files of traced suites end in.
SUFFIX = ".suite"

# How the phases of a traced suite are called.
FORWARD, TRAIN = "inference", "train"


@dataclass(frozen=True)
class TracedCall:
    """An operator that a framework ran, or one of the kernels of which it consists."""

    operator: str
    """The framework's name of it."""
    kernel: str | None
    """The text of a case without library and threads; None: no operation of ours."""
    where: str
    """The module of the network that called it."""
    reads: tuple[int, ...]
    """Numbers of buffers."""
    writes: tuple[int, ...]
    bytes: int
    """Read and written, each tensor once."""
    operators: int = 1
    """How many operators the framework ran: none for the second kernel of one, many for a chain that computes what the
    kernel does."""


@dataclass(frozen=True, repr=False)
class Trace:
    """The operators of one step in their order."""

    title: str
    source: str
    """Where the network comes from, and what ran it."""
    is_training: bool
    """Whether it is a training step; otherwise it is a forward pass."""
    calls: tuple[TracedCall, ...]
    buffers: tuple[int, ...]
    """Bytes of each buffer. Memory that a framework uses again is one buffer."""
    views: int
    """Operators that only return other views of a buffer: they cost time, but move no bytes."""
    parameters: int | None
    """Of the network; None: unknown."""
    notes: tuple[str, ...] = ()
    """What the trace leaves out, and how its kernels differ from what ran."""
    recorded_memory: Memory | None = None
    """Of a framework that uses memory again for other arrays: what the arrays themselves need."""

    @cached_property
    def memory(self) -> Memory | None:
        """What the step needs; None where its buffers are unknown."""
        if not self.buffers:
            return None
        return self.recorded_memory or memory_of(((call.reads, call.writes) for call in self.calls), self.buffers)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How often each kernel is called."""
        return Counter(call.kernel for call in self.calls if call.kernel is not None)

    @cached_property
    def others(self) -> tuple[TracedCall, ...]:
        """The operators that are no operation of ours."""
        return tuple(call for call in self.calls if call.kernel is None)

    @property
    def operators(self) -> int:
        """How often the framework is called, views included."""
        return sum(call.operators for call in self.calls) + self.views

    @property
    def phase(self) -> str:
        """What the step is, in words."""
        return "training step" if self.is_training else "forward pass"

    def save(self, path: str | Path) -> None:
        """Write a suite that `deepbench run` measures; its name ends in `.suite`. A file that exists is replaced."""
        if Path(path).suffix.lower() != SUFFIX:
            raise BadInput(f"a suite of a trace ends in {SUFFIX}, such as my{SUFFIX}; found {shorten(str(path))!r}")
        content = suite_text(self).encode()
        sizes = (("bytes", len(content), MOST_TRACE_BYTES), ("kernels", len(self.counts), MOST_LINES))
        for what, size, most in sizes:
            if size > most:
                raise BadInput(
                    f"the suite of this trace would have {size} {what}, and at most {most} are read; "
                    "trace a smaller network, or fewer steps"
                )
        with replacing(Path(path)) as file:
            file.write_bytes(content)

    def __repr__(self) -> str:
        calls = f"{len(self.calls)} calls of {len(self.counts)} kernels and others"
        return f"<Trace of {printable(self.title)}: a {self.phase}, {calls}>"

    @cached_property
    def reuse_distances(self) -> tuple[Mapping[int, int], ...]:
        """For each call and each of its buffers: the bytes of other buffers touched since its last use.

        The step is repeated, so a buffer was last used in the step before at the latest. Each buffer counts once (its
        stack distance).
        """
        return tuple(reuse_distances(self.calls, self.buffers))


def reuse_distances(calls: Sequence[TracedCall], sizes: Sequence[int]) -> Iterator[dict[int, int]]:
    """See `Trace.reuse_distances`. Takes n · log n for n uses of buffers."""
    uses = [tuple(dict.fromkeys((*call.reads, *call.writes))) for call in calls]
    total = sum(map(len, uses))
    tree = _SumTree(2 * total)
    last: dict[int, int] = {}
    now = 0
    for repetition in range(2):
        for buffers in uses:
            found = {}
            for buffer in buffers:
                before = last.get(buffer)
                if before is not None:
                    found[buffer] = tree.sum_after(before)
            for buffer in buffers:
                before = last.get(buffer)
                if before is not None:
                    tree.add(before, -sizes[buffer])
                tree.add(now, sizes[buffer])
                last[buffer] = now
                now += 1
            if repetition:
                yield found


class _SumTree:
    """Sums of numbers behind a position (a Fenwick tree)."""

    def __init__(self, length: int) -> None:
        self.sums = [0] * (length + 1)
        self.total = 0

    def add(self, position: int, value: int) -> None:
        self.total += value
        position += 1
        while position < len(self.sums):
            self.sums[position] += value
            position += position & -position

    def sum_after(self, position: int) -> int:
        """The sum of all numbers at later positions."""
        before, position = 0, position + 1
        while position:
            before += self.sums[position]
            position -= position & -position
        return self.total - before


# ---- as a suite


def suite_text(trace: Trace) -> str:
    """The trace as a suite in TOML: its kernels with counts and places, then its operators in their order."""
    lines: dict[str, tuple[int, Counter[str]]] = {}
    for call in trace.calls:
        if call.kernel is not None:
            _, places = lines.setdefault(call.kernel, (len(lines), Counter()))
            places[general_place(call.where)] += 1
    kernels = [f"{kernel} count={sum(places.values())}{_comment(places)}" for kernel, (_, places) in lines.items()]
    sites = list(dict.fromkeys(call.where for call in trace.calls))
    operators = list(dict.fromkeys(call.operator for call in trace.calls))
    of_place, of_operator = ({name: i for i, name in enumerate(names)} for names in (sites, operators))
    calls = []
    for call in trace.calls:
        kernel = "-" if call.kernel is None else str(lines[call.kernel][0])
        words = [kernel, str(of_operator[call.operator]), str(of_place[call.where]), str(call.operators)]
        buffers = [",".join(map(str, numbers)) or "-" for numbers in (call.reads, call.writes)]
        calls.append(" ".join([*words, str(call.bytes), *buffers]))
    memory = trace.recorded_memory
    return "\n".join(
        [
            f"title = {quoted(trace.title)}",
            f"source = {quoted(trace.source)}",
            'unit = "step"',
            "",
            "[sizes]",
            *([] if trace.parameters is None else [f"parameters = {trace.parameters}"]),
            "",
            f"[phases.{TRAIN if trace.is_training else FORWARD}]",
            "",
            "[kernels]",
            'all = """',
            *kernels,
            '"""',
            "",
            "# The calls in their order. Of each: the number of its kernel (- if it is no operation of DeepBench), of",
            "# its operator and of its place, how many operators ran, bytes moved, and buffers read and written.",
            f"[{TRACE}]",
            f"views = {trace.views}",
            *([f"notes = [{', '.join(map(quoted, trace.notes))}]"] if trace.notes else []),
            *([] if memory is None else [f"memory = [{memory.kept}, {memory.temporary}]"]),
            f"buffers = {quoted(' '.join(map(str, trace.buffers)))}",
            f"operators = [{', '.join(map(quoted, operators))}]",
            f"places = [{', '.join(map(quoted, sites))}]",
            'calls = """',
            *calls,
            '"""',
            "",
        ]
    )


def parse_trace(table: Mapping[str, Any], named: str) -> Trace:
    """The trace of a suite that `suite_text` wrote, from its TOML; `BadInput` says what is wrong."""
    own = table.get(TRACE)
    if not isinstance(own, Mapping):
        raise BadInput(f"{named} has no table {TRACE}; wanted a suite that deepbench trace wrote")
    texts = require_text(table.get("kernels", {}).get("all", ""), "all", named).splitlines()
    lines = [line for line in texts if line.partition("#")[0].strip()]
    kernels = [_without_count(line) for line in lines]
    if len(kernels) > MOST_LINES:
        raise BadInput(f"{named} has {len(kernels)} kernels; a model has at most {MOST_LINES}")
    for kernel in kernels:
        parse_pattern(kernel)
    sizes = require_text(own.get("buffers", ""), "buffers", named).split()
    buffers = tuple(_number(word, MOST_BYTES, named) for word in sizes)
    operators, places = (_texts(own.get(name), name, named) for name in ("operators", "places"))
    views = own.get("views", 0)
    texts = require_text(own.get("calls", ""), "calls", named).splitlines()
    require_few(len(texts), len(buffers), sum(text.count(",") for text in texts), named)
    if not isinstance(views, int) or not 0 <= views <= MOST_OPERATORS:
        raise BadInput(f"{named}: views must be a whole number up to {MOST_OPERATORS}, found {shorten(repr(views))}")
    calls = []
    counts = Counter[int]()
    for text in texts:
        if (match := _CALL.fullmatch(text)) is None:
            raise _wrong_call(text, named)
        kernel, operator, place, count, moved, reads, writes = match.groups()
        number = None if kernel == "-" else _number(kernel, len(kernels) - 1, named)
        if number is not None:
            counts[number] += 1
        calls.append(
            TracedCall(
                operators[_number(operator, len(operators) - 1, named)],
                None if number is None else kernels[number],
                places[_number(place, len(places) - 1, named)],
                _numbers(reads, len(buffers) - 1, named),
                _numbers(writes, len(buffers) - 1, named),
                _number(moved, MOST_BYTES, named),
                _number(count, MOST_OPERATORS, named),
            )
        )
    for number, line in enumerate(lines):
        _check_count(line, counts[number], named)
    parameters = table.get("sizes", {}).get("parameters")
    return Trace(
        title=require_text(table.get("title", named), "title", named),
        source=require_text(table.get("source", ""), "source", named),
        is_training=TRAIN in table.get("phases", {}),
        calls=tuple(calls),
        buffers=buffers,
        views=views,
        parameters=parameters if isinstance(parameters, int) else None,
        notes=tuple(map(printable, _texts(own.get("notes", []), "notes", named))),
        recorded_memory=_memory(own["memory"], named) if "memory" in own else None,
    )


def _memory(value: object, named: str) -> Memory:
    numbers = value if isinstance(value, list) else []
    if len(numbers) != 2 or not all(type(n) is int and 0 <= n <= MOST_BYTES for n in numbers):
        wanted = f"two whole numbers up to {MOST_BYTES}, the bytes that are kept and the temporary ones"
        raise BadInput(f"{named}: memory must be {wanted}; found {shorten(printable(repr(value)))}")
    return Memory(*numbers)


def require_few(calls: int, buffers: int, uses: int, named: str) -> None:
    """`BadInput` where a step has more than one of a network."""
    for what, found, most in (("calls", calls, MOST_CALLS), ("buffers", buffers, MOST_BUFFERS)):
        if found > most:
            raise BadInput(
                f"{named} has {found} {what}; a trace has at most {most}; trace a smaller one, or fewer steps"
            )
    if uses > MOST_USES:
        raise BadInput(f"the calls of {named} read and write {uses} buffers; a trace has at most {MOST_USES} such uses")


def _check_count(line: str, calls: int, named: str) -> None:
    """`BadInput` where a kernel has another count than the calls of the trace: its two halves contradict each other."""
    stated = [word for word in line.partition("#")[0].split() if word.startswith("count=")] or ["count=1"]
    if stated != [f"count={calls}"]:
        raise BadInput(
            f"{named}: the table {TRACE} calls {shorten(_without_count(line))!r} {calls} times, and the line of this "
            f"kernel says {shorten(' '.join(stated))}; write the suite again with deepbench trace"
        )


def general_place(place: str) -> str:
    """`layers.*.attention` for `layers.3.attention`, so that equal layers are one place."""
    return re.sub(r"(?<![A-Za-z_0-9])[0-9]+(?![A-Za-z_0-9])", "*", place)


def _comment(places: Counter[str]) -> str:
    # Neither the end of a line nor that of the text, and no escape.
    named = [printable(place).replace("\\", "/").replace('"', "'") for place, _ in places.most_common() if place]
    if not named:
        return ""
    more = f" and {len(named) - 1} more places" if len(named) > 2 else f" and {named[1]}" if len(named) > 1 else ""
    return f" # {named[0]}{more}"


def quoted(text: str) -> str:
    """A string of TOML."""
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _without_count(line: str) -> str:
    words = line.partition("#")[0].split()
    return " ".join(word for word in words if not word.startswith("count="))


# A call: its kernel or none, four numbers, and the buffers that it reads and writes, or none.
_CALL = re.compile(r"(N|-) (N) (N) (N) (N) (N(?:,N)*|-) (N(?:,N)*|-)".replace("N", "[0-9]{1,19}"))
_NUMBERS = re.compile(r"[0-9]{1,19}(?:,[0-9]{1,19})*|-")


def _wrong_call(text: str, named: str) -> BadInput:
    """What is wrong with a line that is no call."""
    words = text.split()
    if wrong := [word for word in words if not _NUMBERS.fullmatch(word)]:
        return BadInput(f"{named}: wanted a whole number of at most 19 digits, found {shorten(wrong[0])!r}")
    return BadInput(f"{named}: wanted seven words for a call, found {shorten(text)!r}")


def _number(word: str, most: int, named: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) < 20 and int(word) <= most):
        raise BadInput(f"{named}: wanted a whole number up to {most}, found {shorten(word)!r}")
    return int(word)


def _numbers(word: str, most: int, named: str) -> tuple[int, ...]:
    numbers = () if word == "-" else tuple(map(int, word.split(",")))
    if numbers and max(numbers) > most:
        raise BadInput(f"{named}: wanted whole numbers up to {most}, found {shorten(word)!r}")
    return numbers


def _texts(value: object, name: str, named: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise BadInput(f"{named}: {name} must be a list of texts")
    return value
