"""What XLA's compilers made of a program: its instructions, from a serialized HLO module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from deepbench.native.protobuf import fields

# Instructions that multiply, whatever else a program has. A program without any tells nothing of its loop.
HEAVY = ("dot", "convolution", "custom-call")


def what_ran(program: bytes) -> str | None:
    """The instructions of an optimized program that are not bookkeeping, such as `dot` or `custom-call __cublas$gemm`.

    None if the program is empty or damaged.
    """
    module = _Module.of(program)
    if module is None:
        return None
    silent = ("parameter", "tuple", "get-tuple-element", "constant", "bitcast")
    words = [words for code, words, _ in module.computations.get(module.entry, ()) if code not in silent]
    return ", ".join(f"{word} ×{n}" if n > 1 else word for word, n in Counter(words).items()) or "nothing"


def keeps_loop(program: bytes) -> bool | None:
    """Whether what multiplies is inside the loop of an optimized program; None if it has nothing that multiplies."""
    module = _Module.of(program)
    if module is None:
        return None
    entry = module.computations.get(module.entry, ())
    inside = {code for op, _, calls in entry if op == "while" for c in calls for code in module.reached(c)}
    outside = {op for op, _, _ in entry} | {
        code for op, _, calls in entry if op != "while" for c in calls for code in module.reached(c)
    }
    if inside & {*HEAVY}:
        return True
    return False if outside & {*HEAVY} else None


class _Module:
    """An HLO module: number of a computation → operation, words and called computations of each instruction."""

    def __init__(self, module: bytes) -> None:
        self.entry, self.computations = 0, dict[int, list[tuple[str, str, tuple[int, ...]]]]()
        for number, value in fields(module):
            if number == 6 and isinstance(value, int):
                self.entry = value
            elif number == 3 and isinstance(value, bytes):
                parts = list(fields(value))
                own = next((v for n, v in parts if n == 5 and isinstance(v, int)), 0)
                self.computations[own] = [_instruction(v) for n, v in parts if n == 2 and isinstance(v, bytes)]

    @classmethod
    def of(cls, program: bytes) -> _Module | None:
        """A module with its configuration, or None."""
        try:
            module = next((v for n, v in fields(program) if n == 1 and isinstance(v, bytes)), b"")
            return cls(module) if module else None
        except ValueError:
            return None

    def reached(self, computation: int, seen: frozenset[int] = frozenset()) -> Iterator[str]:
        """The operations of a computation and of all that it calls."""
        for code, _, calls in self.computations.get(computation, ()):
            yield code
            for called in calls:
                if called not in seen:
                    yield from self.reached(called, seen | {computation})


def _instruction(message: bytes) -> tuple[str, str, tuple[int, ...]]:
    texts: dict[int, str] = {}
    calls: list[int] = []
    for number, value in fields(message):
        if isinstance(value, bytes) and number in (2, 11, 28):
            texts[number] = value.decode(errors="replace")
        elif number == 38:
            calls += [value] if isinstance(value, int) else _packed(value)
    words = " ".join(filter(None, (texts.get(2, ""), texts.get(28, ""), texts.get(11, ""))))
    return texts.get(2, ""), words, tuple(calls)


def _packed(content: bytes) -> list[int]:
    """Packed varints: each is the value of a field whose key was left out."""
    numbers, value, shift = [], 0, 0
    for byte in content:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    return numbers
