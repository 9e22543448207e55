"""Values of a program in StableHLO. Arithmetic with them writes its lines.

Shapes of operands need not be equal: as in NumPy, sizes of 1 are repeated, and axes in front are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Types of elements in texts.
ELEMENTS = {
    **{"s8": "i8", "u8": "ui8", "s32": "i32", "s64": "i64", "f16": "f16", "bf16": "bf16", "f32": "f32"},
    **{"f64": "f64", "f8e4m3": "f8E4M3FN", "f8e5m2": "f8E5M2", "bool": "i1", "s4": "i4"},
}
FLOATS = ("f32", "bf16", "f16")

# The largest number below all others, by the bits that texts need for it.
LEAST = {"f32": "0xFF800000", "bf16": "0xFF80", "f16": "0xFC00"}


def tensor(shape: Sequence[int], kind: str) -> str:
    """The type of an array: `tensor<4x8xf32>`."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{ELEMENTS[kind]}>"


class HloLines:
    """The lines of a program so far."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self._names = 0

    def name(self) -> str:
        """A new one."""
        self._names += 1
        return f"%{self._names}"

    def argument(self, name: str, shape: Sequence[int], kind: str) -> HloValue:
        """An argument of the program."""
        return HloValue(self, f"%{name}", tuple(shape), kind)

    def write(self, text: str, shape: Sequence[int], kind: str) -> HloValue:
        """The value of this operation."""
        value = HloValue(self, self.name(), tuple(shape), kind)
        self.text.append(f"{value.name} = {text}")
        return value

    def write_many(self, text: str, like: Sequence[HloValue]) -> list[HloValue]:
        """The values of this operation, with the types of others."""
        name = self.name()
        self.text.append(f"{name}:{len(like)} = {text}")
        return [HloValue(self, f"{name}#{i}", value.shape, value.kind) for i, value in enumerate(like)]

    def constant(self, number: float, shape: Sequence[int], kind: str) -> HloValue:
        """A number at every place."""
        text = str(int(number)) if kind not in FLOATS else LEAST[kind] if number == -math.inf else f"{number:.12e}"
        return self.write(f"stablehlo.constant dense<{text}> : {tensor(shape, kind)}", shape, kind)

    def counted(self, shape: Sequence[int], axis: int) -> HloValue:
        """0, 1, 2 … along an axis, in s32."""
        return self.write(f"stablehlo.iota dim = {axis} : {tensor(shape, 's32')}", shape, "s32")

    def repeat(
        self, turns: int, values: Sequence[HloValue], turn: Callable[[HloValue, list[HloValue]], Sequence[HloValue]]
    ) -> list[HloValue]:
        """The values after so many turns. `turn` has the number of the turn and the values before it."""
        first, one, end = (self.constant(n, (), "s32") for n in (0, 1, turns))
        before = [first, *values]
        inner = [HloValue(self, self.name(), value.shape, value.kind) for value in before]
        outside, self.text = self.text, []
        after = [inner[0] + one, *turn(inner[0], inner[1:])]
        block, self.text = self.text, outside
        block.append(f"stablehlo.return {_names(after)} : {_types(after)}")
        head = ", ".join(f"{a.name} = {b.name}" for a, b in zip(inner, before, strict=True))
        go, scalar = self.name(), one.type
        text = f"stablehlo.while({head}) : {_types(inner)}\ncond {{\n"
        text += f"{go} = stablehlo.compare LT, {inner[0].name}, {end.name} : ({scalar}, {scalar}) -> tensor<i1>\n"
        text += f"stablehlo.return {go} : tensor<i1>\n}} do {{\n" + "\n".join(block) + "\n}"
        return self.write_many(text, inner)[1:]

    def function(self, operation: str, kind: str) -> str:
        """A region of an operation that combines two numbers."""
        one, two, result, scalar = self.name(), self.name(), self.name(), tensor((), kind)
        text = f"({{\n^bb0({one}: {scalar}, {two}: {scalar}):\n"
        text += f"{result} = stablehlo.{operation} {one}, {two} : {scalar}\n"
        return text + f"stablehlo.return {result} : {scalar}\n}})"

    def kept(self, values: Sequence[HloValue]) -> list[HloValue]:
        """The same values, of which a compiler may compute none without all others."""
        return self.write_many(f"stablehlo.optimization_barrier {_names(values)} : {_types(values)}", values)


@dataclass(frozen=True)
class HloValue:
    """One value: its name, and the shape and the type of its elements."""

    lines: HloLines
    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def type(self) -> str:
        return tensor(self.shape, self.kind)

    def apply(self, operation: str, *others: HloValue | float) -> HloValue:
        """An operation of elements, such as `maximum`."""
        values = _alike(self, *others)
        return self.lines.write(
            f"stablehlo.{operation} {_names(values)} : {values[0].type}", values[0].shape, self.kind
        )

    def __add__(self, other: HloValue | float) -> HloValue:
        return self.apply("add", other)

    def __sub__(self, other: HloValue | float) -> HloValue:
        return self.apply("subtract", other)

    def __mul__(self, other: HloValue | float) -> HloValue:
        return self.apply("multiply", other)

    def __rsub__(self, number: float) -> HloValue:
        return self * -1 + number

    def __truediv__(self, other: HloValue | float) -> HloValue:
        return self.apply("divide", other)

    def __and__(self, other: HloValue) -> HloValue:
        return self.apply("and", other)

    def erfc(self) -> HloValue:
        """The complement of the error function."""
        return self.lines.write(f"chlo.erfc {self.name} : {self.type} -> {self.type}", self.shape, self.kind)

    def compare(self, how: str, other: HloValue | float) -> HloValue:
        """Whether, such as `GT`."""
        one, two = _alike(self, other)
        text = f"stablehlo.compare {how}, {one.name}, {two.name} : ({one.type}, {two.type}) -> "
        return self.lines.write(text + tensor(one.shape, "bool"), one.shape, "bool")

    def choose(self, yes: HloValue, no: HloValue | float) -> HloValue:
        """`yes` where this is true, else `no`."""
        yes, no, condition = *_alike(yes, no), self.repeated(yes.shape)
        text = f"stablehlo.select {_names((condition, yes, no))} : {condition.type}, {yes.type}"
        return self.lines.write(text, yes.shape, yes.kind)

    def to(self, kind: str) -> HloValue:
        """In another type."""
        if kind == self.kind:
            return self
        return self._reshaped("convert", self.shape, kind=kind)

    def halves(self) -> HloValue:
        """The signed integers of 4 bits in bytes, the lower half of a byte first, along a new axis."""
        return self._reshaped("bitcast_convert", (*self.shape, 2), kind="s4")

    def reshape(self, *shape: int) -> HloValue:
        """In another shape; -1 stands for what is left."""
        if -1 in shape:
            left = math.prod(self.shape) // -math.prod(shape)
            shape = tuple(left if n == -1 else n for n in shape)
        return self if shape == self.shape else self._reshaped("reshape", shape)

    def transpose(self, *axes: int) -> HloValue:
        """With the axes in this order."""
        return self._reshaped("transpose", [self.shape[axis] for axis in axes], f", dims = {list(axes)}")

    def repeated(self, shape: Sequence[int]) -> HloValue:
        """With sizes of 1 repeated, and axes added in front."""
        if tuple(shape) == self.shape:
            return self
        axes = list(range(len(shape) - len(self.shape), len(shape)))
        return self._reshaped("broadcast_in_dim", shape, f", dims = {axes}")

    def reversed(self, *axes: int) -> HloValue:
        """From the last element to the first along these axes."""
        text = f"stablehlo.reverse {self.name}, dims = {list(axes)} : {self.type}"
        return self.lines.write(text, self.shape, self.kind)

    def part(self, axis: int, start: int, end: int, step: int = 1) -> HloValue:
        """Some of an axis."""
        ranges = [f"0:{n}" for n in self.shape]
        ranges[axis] = f"{start}:{end}:{step}"
        shape = list(self.shape)
        shape[axis] = -(-(end - start) // step)
        return self._reshaped("slice", shape, f" [{', '.join(ranges)}]")

    def item(self, *places: int) -> HloValue:
        """What is at these places of the first axes."""
        value = self
        for axis, place in enumerate(places):
            value = value.part(axis, place, place + 1)
        return value.reshape(*self.shape[len(places) :])

    def at(self, place: HloValue) -> HloValue:
        """What is at this place of the first axis."""
        taken = (1, *self.shape[1:])
        places = self._places(place)
        text = f"stablehlo.dynamic_slice {self.name}, {_names(places)}, sizes = {list(taken)} : "
        text += f"({self.type}, {_types(places)}) -> {tensor(taken, self.kind)}"
        return self.lines.write(text, taken, self.kind).reshape(*self.shape[1:])

    def put(self, place: HloValue, value: HloValue) -> HloValue:
        """With this value at a place of the first axis, or at the beginning of all axes."""
        places = self._places(place)
        if len(value.shape) < len(self.shape):
            value = value.reshape(1, *value.shape)
        text = f"stablehlo.dynamic_update_slice {self.name}, {value.name}, {_names(places)} : "
        text += f"({self.type}, {value.type}, {_types(places)}) -> {self.type}"
        return self.lines.write(text, self.shape, self.kind)

    def joined(self, axis: int, *others: HloValue) -> HloValue:
        """With others behind it along an axis."""
        values, shape = (self, *others), list(self.shape)
        if not others:
            return self
        shape[axis] = sum(value.shape[axis] for value in values)
        text = f"stablehlo.concatenate {_names(values)}, dim = {axis} : ({_types(values)}) -> "
        return self.lines.write(text + tensor(shape, self.kind), shape, self.kind)

    def sum(self, *axes: int) -> HloValue:
        """Over these axes, which keep a size of 1."""
        return self._reduced("add", 0, axes)

    def max(self, *axes: int) -> HloValue:
        """Over these axes, which keep a size of 1."""
        return self._reduced("maximum", -math.inf, axes)

    def mean(self, *axes: int) -> HloValue:
        """Over these axes, which keep a size of 1."""
        return self.sum(*axes) / math.prod(self.shape[axis] for axis in axes)

    def dot(
        self, other: HloValue, axes: tuple[Sequence[int], Sequence[int]], kind: str, batch: Sequence[int] = ()
    ) -> HloValue:
        """Sums of products over these axes of both; both begin with the axes of `batch`."""
        mine, others = map(list, axes)
        shape = [self.shape[i] for i in batch]
        shape += [n for i, n in enumerate(self.shape) if i not in (*batch, *mine)]
        shape += [n for i, n in enumerate(other.shape) if i not in (*batch, *others)]
        batching = f"batching_dims = {list(batch)} x {list(batch)}, " if batch else ""
        text = f"stablehlo.dot_general {self.name}, {other.name}, {batching}contracting_dims = {mine} x {others}, "
        text += f"precision = [HIGHEST, HIGHEST] : ({self.type}, {other.type}) -> {tensor(shape, kind)}"
        return self.lines.write(text, shape, kind)

    def rows(self, places: HloValue) -> HloValue:
        """What is at these places of the first axis."""
        shape, one = (*places.shape, *self.shape[1:]), (1, *self.shape[1:])
        rank = len(places.shape)
        numbers = f"offset_dims = {list(range(rank, len(shape)))}, collapsed_slice_dims = [0], start_index_map = [0]"
        text = f'"stablehlo.gather"({self.name}, {places.name}) <{{dimension_numbers = #stablehlo.gather<{numbers}, '
        text += f"index_vector_dim = {rank}>, slice_sizes = array<i64: {', '.join(map(str, one))}>, "
        text += f"indices_are_sorted = false}}> : ({self.type}, {places.type}) -> {tensor(shape, self.kind)}"
        return self.lines.write(text, shape, self.kind)

    def add_rows(self, places: HloValue, values: HloValue) -> HloValue:
        """With values added at these places (one axis) of the first axis."""
        windows = f"update_window_dims = {list(range(1, len(self.shape)))}, inserted_window_dims = [0]"
        numbers = f"{windows}, scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
        text = f'"stablehlo.scatter"({_names((self, places, values))}) <{{indices_are_sorted = false, '
        text += f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, unique_indices = false}}> "
        text += self.lines.function("add", self.kind)
        text += f" : ({_types((self, places, values))}) -> {self.type}"
        return self.lines.write(text, self.shape, self.kind)

    def top(self, k: int) -> tuple[HloValue, HloValue]:
        """The k largest numbers along the last axis, the largest first, and their places."""
        shape = (*self.shape[:-1], k)
        values, places = (HloValue(self.lines, self.lines.name(), shape, kind) for kind in (self.kind, "s32"))
        text = f"chlo.top_k({self.name}, k = {k}) : {self.type} -> ({values.type}, {places.type})"
        self.lines.text.append(f"{values.name}, {places.name} = {text}")
        return values, places

    def _reduced(self, operation: str, start: float, axes: Sequence[int]) -> HloValue:
        initial = self.lines.constant(start, (), self.kind)
        shape = [n for i, n in enumerate(self.shape) if i not in axes]
        text = f"stablehlo.reduce({self.name} init: {initial.name}) applies stablehlo.{operation} across dimensions = "
        text += f"{list(axes)} : ({self.type}, {initial.type}) -> {tensor(shape, self.kind)}"
        kept = (1 if i in axes else n for i, n in enumerate(self.shape))
        return self.lines.write(text, shape, self.kind).reshape(*kept)

    def _reshaped(self, operation: str, shape: Sequence[int], how: str = "", kind: str = "") -> HloValue:
        kind = kind or self.kind
        text = f"stablehlo.{operation} {self.name}{how} : ({self.type}) -> {tensor(shape, kind)}"
        return self.lines.write(text, shape, kind)

    def _places(self, place: HloValue) -> list[HloValue]:
        return [place, *([self.lines.constant(0, (), "s32")] * (len(self.shape) - 1))]


def _alike(first: HloValue, *others: HloValue | float) -> list[HloValue]:
    """Values of one shape; numbers become constants."""
    shapes = [first.shape, *(value.shape for value in others if isinstance(value, HloValue))]
    rank = max(map(len, shapes))
    shape = [max(sizes) for sizes in zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True)]
    made = (v if isinstance(v, HloValue) else first.lines.constant(v, shape, first.kind) for v in others)
    return [value.repeated(shape) for value in (first, *made)]


def _names(values: Sequence[HloValue]) -> str:
    return ", ".join(value.name for value in values)


def _types(values: Sequence[HloValue]) -> str:
    return ", ".join(value.type for value in values)
