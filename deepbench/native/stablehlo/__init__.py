"""Operations as texts in StableHLO, the language of XLA's compilers: what PJRT and IREE compile and run.

One file per operation has a function `body(case)`, which returns the lines of its program. In them `%a` is the array
`a` of the operation, row-major, and `%a.type` stands for its type, such as `tensor<4x8xf32>`. `finish` makes a whole
program of it, which returns the outputs in the place of arguments: so no memory is allocated, and an execution whose
outputs are arguments of the next cannot begin before the one before has ended.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from deepbench.core.backend import Mark
from deepbench.core.case import Case
from deepbench.core.errors import Unsupported

# Types of elements in texts.
ELEMENTS = {
    **{"s8": "i8", "u8": "ui8", "s32": "i32", "s64": "i64", "f16": "f16", "bf16": "bf16", "f32": "f32"},
    **{"f64": "f64", "f8e4m3": "f8E4M3FN", "f8e5m2": "f8E5M2"},
}
FLOATS = ("f32", "bf16", "f16")

# How XLA is told that an output replaces an argument.
ALIASED = "tf.aliasing_output = {} : i32"


@dataclass(frozen=True)
class Body:
    """The lines of a program, and the name of the value of each output."""

    lines: str
    results: Mapping[str, str]
    """Output → its value in the lines, such as `{"c": "%0"}`."""


@dataclass(frozen=True)
class OperationText:
    """One operation: what it serves, and the function that writes its body."""

    marks: tuple[Mark, ...]
    body: Callable[[Case], Body]


@cache
def texts() -> dict[str, OperationText]:
    """Every operation that has a file here, by name."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {
        name: OperationText(tuple(Mark(name, kinds, (way,)) for way, kinds in module.SERVES.items()), module.body)
        for name, module in modules.items()
    }


def tensor(shape: tuple[int, ...], kind: str) -> str:
    """The type of an array: `tensor<4x8xf32>`."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{ELEMENTS[kind]}>"


def element_of(array: Any) -> str:
    """The type of the elements of an array, as in `ELEMENTS`."""
    from deepbench.core.precision import type_name

    return {"int64": "s64", "int32": "s32"}.get(array.dtype.name) or type_name(array.dtype)


def refuse(condition: bool, reason: str) -> None:
    """`Unsupported` with this reason."""
    if condition:
        raise Unsupported(reason)


@dataclass(frozen=True)
class ProgramText:
    """A body with the types of its arrays."""

    types: Mapping[str, str]
    """Of every array of the operation, in the order of the arguments: inputs, then outputs."""
    body: Body

    @property
    def outputs(self) -> list[str]:
        return [name for name in self.types if name in self.body.results]

    def whole(self, place: str = ALIASED) -> str:
        """One call; `place` is the attribute of the argument that an output replaces."""
        results = ", ".join(self.body.results[name] for name in self.outputs)
        kinds = ", ".join(self.types[name] for name in self.outputs)
        return f"{self._head(place)}{self._lines()}\n  return {results} : {kinds}\n}}\n"

    def loop(self, turns: int) -> str:
        """So many calls, one after the other.

        Each turn gets its first operand from the turn before, so that a compiler cannot compute once for all turns:
        the first element is replaced by that of the result if the latter is not a number, which it always is.
        """
        names, fed = list(self.types), next(name for name in self.types if name not in self.body.results)
        kinds, carried = [self.types[name] for name in names], ", ".join(f"%{name} = %{name}_in" for name in names)
        after = {name: self.body.results.get(name, f"%{name}") for name in names}
        lines = self._lines() + "\n" + self._feedback(fed, after)
        after[fed] = "%fed"
        values = ", ".join(["%next", *(after[name] for name in names)])
        signature = ", ".join(["tensor<i32>", *kinds])
        returned = [(f"%r#{1 + names.index(name)}", self.types[name]) for name in self.outputs]
        return f"""{self._head(ALIASED, "_in")}
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %turns = stablehlo.constant dense<{turns}> : tensor<i32>
  %r:{1 + len(names)} = stablehlo.while(%turn = %zero, {carried}) : {signature}
  cond {{
    %go = stablehlo.compare LT, %turn, %turns : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
{lines}
    %next = stablehlo.add %turn, %one : tensor<i32>
    stablehlo.return {values} : {signature}
  }}
  return {", ".join(value for value, _ in returned)} : {", ".join(kind for _, kind in returned)}
}}
"""

    def _feedback(self, fed: str, after: Mapping[str, str]) -> str:
        """Lines that make `%fed` of an operand and a result."""
        result = self.outputs[0]
        (rank, element), (result_rank, result_element) = map(_parts, (self.types[fed], self.types[result]))
        both = f"{self.types[fed]}, {self.types[result]}"
        if not (
            element in ("f32", "bf16", "f16") and result_element in ("f32", "bf16", "f16") and rank and result_rank
        ):
            return f"    %fed, %kept = stablehlo.optimization_barrier %{fed}, {after[result]} : {both}"
        first, one = ", ".join(["0:1"] * result_rank), f"tensor<{'1x' * rank}{element}>"
        taken, at = f"tensor<{'1x' * result_rank}{result_element}>", ", ".join(["%zero"] * rank)
        mine = ", ".join(["0:1"] * rank)
        return f"""    %f0 = stablehlo.slice {after[result]} [{first}] : ({self.types[result]}) -> {taken}
    %f1 = stablehlo.reshape %f0 : ({taken}) -> tensor<{"1x" * rank}{result_element}>
    %f2 = stablehlo.convert %f1 : (tensor<{"1x" * rank}{result_element}>) -> {one}
    %f3 = stablehlo.compare NE, %f2, %f2 : ({one}, {one}) -> tensor<{"1x" * rank}i1>
    %f4 = stablehlo.slice %{fed} [{mine}] : ({self.types[fed]}) -> {one}
    %f5 = stablehlo.select %f3, %f2, %f4 : tensor<{"1x" * rank}i1>, {one}
    %fed = stablehlo.dynamic_update_slice %{fed}, %f5, {at} : ({self.types[fed]}, {one}, {
            ", ".join(["tensor<i32>"] * rank)
        }) -> {self.types[fed]}"""

    def _head(self, place: str, suffix: str = "") -> str:
        places = {name: f" {{{place.format(i)}}}" for i, name in enumerate(self.outputs)}
        arguments = ", ".join(f"%{name}{suffix}: {kind}{places.get(name, '')}" for name, kind in self.types.items())
        kinds = ", ".join(self.types[name] for name in self.outputs)
        return f"func.func public @main({arguments}) -> ({kinds}) {{\n"

    def _lines(self) -> str:
        return re.sub(r"%(\w+)\.type", lambda match: self.types[match[1]], self.body.lines)


def program(case: Case, arrays: Mapping[str, Any]) -> ProgramText:
    """The program of a case; `Unsupported` where its operation has no text, or not with these settings."""
    if case.settings.get("weights") == "packed":
        raise Unsupported("a compiled program chooses the layout of its operands itself; choose weights=plain")
    body = texts()[case.op].body(case)
    kinds = {name: tensor(array.shape, element_of(array)) for name, array in arrays.items()}
    inputs = [name for name in kinds if name not in body.results]
    return ProgramText({name: kinds[name] for name in [*inputs, *(n for n in kinds if n in body.results)]}, body)


def _parts(kind: str) -> tuple[int, str]:
    """Rank and element of a type."""
    *sizes, element = kind.removeprefix("tensor<").removesuffix(">").split("x")
    return len(sizes), element


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
    rank, element = _parts(kind)
    one = f"tensor<{'1x' * rank}{element}>"
    slices = ", ".join(["0:1"] * rank)
    return f"""func.func public @main(%x: {kind}) -> {one} {{
  %0 = stablehlo.slice %x [{slices}] : ({kind}) -> {one}
  return %0 : {one}
}}
"""
