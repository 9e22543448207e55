"""Operations as texts in StableHLO, the language of XLA's compilers: what PJRT and IREE compile and run.

One file per operation has the precisions that it `SERVES` in each direction, and one function per direction, with the
name of the direction, such as `forward(case, arrays)`. It gets the arrays of the operation as values (`_values.py`),
calculates with them, and returns the value of each output. `HloProgram` makes texts of it. They return the outputs in
the place of arguments: so no memory is allocated, and an execution whose outputs are arguments of the next cannot begin
before the one before has ended.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from deepbench.core.backend import Mark
from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.native.stablehlo._values import FLOATS, HloLines, HloValue, tensor

Values: TypeAlias = "Mapping[str, HloValue]"
Write: TypeAlias = "Callable[[Case, Values], Values]"

# How XLA is told that an output replaces an argument.
ALIASED = "tf.aliasing_output = {} : i32"


@dataclass(frozen=True)
class HloText:
    """One operation: what it serves, and the function that writes each direction."""

    marks: tuple[Mark, ...]
    directions: Mapping[str, Write]


@cache
def texts() -> dict[str, HloText]:
    """Every operation that has a file here, by name."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {
        name: HloText(
            tuple(Mark(name, kinds, (way,), getattr(module, "RARE", ())) for way, kinds in module.SERVES.items()),
            {way: getattr(module, way) for way in module.SERVES},
        )
        for name, module in modules.items()
    }


def element_of(array: Any) -> str:
    """The type of the elements of an array, as in `ELEMENTS`."""
    from deepbench.core.precision import type_name

    return {"int64": "s64", "int32": "s32"}.get(array.dtype.name) or type_name(array.dtype)


def refuse(condition: bool, reason: str) -> None:
    """`Unsupported` with this reason."""
    if condition:
        raise Unsupported(reason)


@dataclass(frozen=True)
class HloProgram:
    """The calculation of a case, and the shape and the type of each array."""

    arrays: Mapping[str, tuple[tuple[int, ...], str]]
    """In the order of the arguments: inputs, then outputs."""
    outputs: list[str]
    body: Callable[[Values], Values]

    @property
    def types(self) -> dict[str, str]:
        """Of every array, in the order of the arguments."""
        return {name: tensor(*array) for name, array in self.arrays.items()}

    def whole(self, place: str = ALIASED) -> str:
        """One call; `place` is the attribute of the argument that an output replaces."""
        values = self._arguments()
        return self._text(self.body(values), values, place)

    def loop(self, turns: int) -> str:
        """So many calls, one after the other.

        Each turn gets an operand from the turn before, so that a compiler cannot compute once for all turns: the first
        element is replaced by that of the result if the latter is not a number, which it always is. And all operands
        and results pass a barrier together, so that no part of the work leaves the loop, such as a conversion of
        another operand.
        """
        values = self._arguments()

        def turn(_: HloValue, before: list[HloValue]) -> list[HloValue]:
            named = dict(zip(values, before, strict=True))
            after = {**named, **self.body(named)}
            return before[0].lines.kept([*_fed_back(after, self.outputs).values()])

        lines = next(iter(values.values())).lines
        after = lines.repeat(turns, [*values.values()], turn)
        return self._text(dict(zip(values, after, strict=True)), values)

    def _arguments(self) -> dict[str, HloValue]:
        lines = HloLines()
        return {name: lines.argument(name, *array) for name, array in self.arrays.items()}

    def _text(self, results: Values, values: Values, place: str = ALIASED) -> str:
        kinds = self.types
        places = {name: f" {{{place.format(i)}}}" for i, name in enumerate(self.outputs)}
        arguments = ", ".join(f"%{name}: {kind}{places.get(name, '')}" for name, kind in kinds.items())
        returned, names = ", ".join(kinds[name] for name in self.outputs), [results[name].name for name in self.outputs]
        lines = "\n".join(next(iter(values.values())).lines.text)
        head = f"func.func public @main({arguments}) -> ({returned}) {{"
        return f"{head}\n{lines}\nreturn {', '.join(names)} : {returned}\n}}\n"


def program(case: Case, arrays: Mapping[str, Any]) -> HloProgram:
    """The program of a case that its operation `SERVES`; `Unsupported` where the text does not know a setting."""
    if case.settings.get("weights") == "packed":
        raise Unsupported("a compiled program chooses the layout of its operands itself; choose weights=plain")
    write = texts()[case.op].directions[case.direction]
    shapes = {name: (array.shape, element_of(array)) for name, array in arrays.items()}
    lines = HloLines()
    results = write(case, {name: lines.argument(name, *array) for name, array in shapes.items()})
    wrong = {name: value.type for name, value in results.items() if value.type != tensor(*shapes[name])}
    if wrong:
        raise TypeError(f"the text of {case.op} has results of other types than its arrays: {wrong}")
    outputs = [name for name in shapes if name in results]
    order = [*(name for name in shapes if name not in results), *outputs]
    return HloProgram({name: shapes[name] for name in order}, outputs, lambda values: write(case, values))


def _fed_back(values: Values, outputs: Sequence[str]) -> dict[str, HloValue]:
    """The values with the first floating-point input changed if the result is not a number."""
    floats = [name for name, value in values.items() if value.kind in FLOATS and value.shape]
    inputs, results = ([n for n in floats if (n in outputs) == is_output] for is_output in (False, True))
    if not inputs or not results:
        return dict(values)
    target, source = values[inputs[0]], values[results[0]]
    new, old = (_first(value) for value in (source, target))
    new = new.reshape(*old.shape).to(target.kind)
    zero = target.lines.constant(0, (), "s32")
    return {**values, inputs[0]: target.put(zero, new.compare("NE", new).choose(new, old))}


def _first(value: HloValue) -> HloValue:
    """The first element, with all axes."""
    for axis in range(len(value.shape)):
        value = value.part(axis, 0, 1)
    return value


EMPTY_SIZE = 16
_EMPTY = f"tensor<{EMPTY_SIZE}x{EMPTY_SIZE}xf32>"
EMPTY = f"""func.func public @main(%y: {_EMPTY}, %x: {_EMPTY} {{tf.aliasing_output = 0 : i32}}) -> {_EMPTY} {{
  %one = stablehlo.constant dense<1.0> : {_EMPTY}
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({_EMPTY}, {_EMPTY}) -> {_EMPTY}
  %1 = stablehlo.add %0, %one : {_EMPTY}
  return %1 : {_EMPTY}
}}
"""
"""x·y + 1 for a small unit matrix y: next to no work, and it counts how often it ran.

It multiplies because some interfaces run a program without products at once, in the thread that gives the order: that
would not be what a call costs by itself.
"""


def first_element(kind: str) -> str:
    """A program that returns the first element of an array, which it leaves as it is."""
    *sizes, element = kind.removeprefix("tensor<").removesuffix(">").split("x")
    one, slices = f"tensor<{'1x' * len(sizes)}{element}>", ", ".join(["0:1"] * len(sizes))
    return f"""func.func public @main(%x: {kind}) -> {one} {{
  %0 = stablehlo.slice %x [{slices}] : ({kind}) -> {one}
  return %0 : {one}
}}
"""
