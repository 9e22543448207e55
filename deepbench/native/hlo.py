"""What XLA's compilers made of a program: its instructions, from a serialized HLO module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from deepbench.native.protobuf import fields

# Instructions that multiply, whatever else a program has. A program without any tells nothing of its loop.
HEAVY = ("dot", "convolution", "custom-call")

# Numbers of the types of elements, of those that are multiplied.
ELEMENTS = {2: "s8", 4: "s32", 6: "u8", 10: "f16", 11: "f32", 12: "f64", 16: "bf16", 19: "f8e5m2", 20: "f8e4m3"}


def what_ran(program: bytes) -> str | None:
    """The instructions of an optimized program that are not bookkeeping, such as `dot of f32` or a `custom-call`.

    With the type of what is multiplied, because a compiler may convert it first. None if the program is empty or
    damaged.
    """
    module = _Module.of(program)
    if module is None:
        return None
    silent = ("parameter", "tuple", "get-tuple-element", "constant", "bitcast")
    words = [module.words(i) for i in module.computations.get(module.entry, ()) if i.code not in silent]
    return ", ".join(f"{word} ×{n}" if n > 1 else word for word, n in Counter(words).items()) or "nothing"


def keeps_loop(program: bytes) -> bool | None:
    """Whether what multiplies is inside the loop of an optimized program; None if it has nothing that multiplies."""
    module = _Module.of(program)
    if module is None:
        return None
    entry = module.computations.get(module.entry, ())
    inside = [heavy for i in entry if i.code == "while" for heavy in module.heavy(i)]
    outside = [heavy for i in entry if i.code != "while" for heavy in module.heavy(i)]
    return True if inside else False if outside else None


class _Instruction(NamedTuple):
    code: str
    kind: str
    """Of a fusion or a custom call."""
    element: str
    """The type of its result; empty where it does not matter."""
    number: int
    operands: list[int]
    calls: list[int]
    """The computations that it calls."""


class _Module:
    """An HLO module: number of a computation → its instructions."""

    def __init__(self, module: bytes) -> None:
        self.entry, self.computations = 0, dict[int, list[_Instruction]]()
        for number, value in fields(module):
            if number == 6 and isinstance(value, int):
                self.entry = value
            elif number == 3 and isinstance(value, bytes):
                parts = list(fields(value))
                own = next((v for n, v in parts if n == 5 and isinstance(v, int)), 0)
                self.computations[own] = [_instruction(v) for n, v in parts if n == 2 and isinstance(v, bytes)]
        self._elements = {i.number: i.element for found in self.computations.values() for i in found}

    @classmethod
    def of(cls, program: bytes) -> _Module | None:
        """A module with its configuration, or None."""
        try:
            module = next((v for n, v in fields(program) if n == 1 and isinstance(v, bytes)), b"")
            return cls(module) if module else None
        except ValueError:
            return None

    def words(self, instruction: _Instruction) -> str:
        """An instruction, and what it multiplies."""
        words = f"{instruction.code} {instruction.kind}".strip()
        for heavy in dict.fromkeys(self._multiplies(found) for found in self.heavy(instruction)):
            words += f" of {heavy}" * bool(heavy)
        return words

    def heavy(self, instruction: _Instruction) -> Iterator[_Instruction]:
        """The instructions that multiply in an instruction and all that it calls."""
        seen, left = set[int](), [instruction]
        while left:
            one = left.pop()
            if one.code in HEAVY:
                yield one
            for call in one.calls:
                if call not in seen:
                    seen.add(call)
                    left += self.computations.get(call, [])

    def _multiplies(self, heavy: _Instruction) -> str:
        kinds = (self._elements.get(number, "") for number in heavy.operands[:2])
        return " and ".join(dict.fromkeys(filter(None, kinds)))


def _instruction(message: bytes) -> _Instruction:
    texts: dict[int, str] = {}
    numbers: dict[int, list[int]] = {35: [0], 36: [], 38: []}
    element = ""
    for number, value in fields(message):
        if number in numbers:
            numbers[number] = (
                [value] if isinstance(value, int) and number == 35 else [*numbers[number], *_listed(value)]
            )
        elif isinstance(value, bytes) and number in (2, 11, 28):
            texts[number] = value.decode(errors="replace")
        elif isinstance(value, bytes) and number == 3:
            element = ELEMENTS.get(next((v for n, v in fields(value) if n == 2 and isinstance(v, int)), 0), "")
    kind = " ".join(filter(None, (texts.get(28, ""), texts.get(11, ""))))
    return _Instruction(texts.get(2, ""), kind, element, numbers[35][0], numbers[36], numbers[38])


def _listed(value: int | bytes) -> list[int]:
    return [value] if isinstance(value, int) else _packed(value)


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
