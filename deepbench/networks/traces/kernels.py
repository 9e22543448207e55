"""What readers of networks share: texts of kernels from their sizes, and the operators and buffers of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deepbench.core.case import Case, check_settings, parse_pattern
from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from deepbench.core.precision import PRECISIONS, find_precision
from deepbench.core.problem import make_problem
from deepbench.networks.traces.trace import MOST_BUFFERS, MOST_CALLS, Call, Trace

AXES = ("d", "h", "w")


def kernel_text(
    op: str, sizes: Mapping[str, int | str], precision: str | None, direction: str = "forward", **settings: str
) -> str:
    """The text of a case without library and threads. `BadInput` if it is none of ours.

    Settings at their default, and those without effect here, are left out.
    """
    operation = find_op(op)
    types = PRECISIONS.get(precision or "")
    if types is None or not operation.allows(direction, types):
        raise BadInput(f"{op} has no precision {precision} in the direction {direction}")
    # Frameworks also give whole numbers of NumPy.
    problem = make_problem(operation, {n: v if isinstance(v, str) else int(v) for n, v in sizes.items()})
    unused = operation.unused_settings(problem, direction, types)
    stated = [f"{n}={v}" for n, v in sorted(settings.items()) if n not in unused and v != operation.settings[n][0]]
    return " ".join([op, problem.text, direction, types.name, *stated])


def case_of(kernel: str) -> Case:
    """A case with the text of a kernel, on our reference; forward and f32 unless the text says otherwise."""
    p = parse_pattern(kernel)
    operation = find_op(p.op)
    direction, precision = p.direction or operation.directions[0], find_precision(p.precision or "f32")
    return Case(p.op, p.problem, direction, precision, "reference", 1, check_settings(p.op, dict(p.settings)))


def flop_of(kernel: str) -> int:
    """FLOP of one call."""
    case = case_of(kernel)
    return find_op(case.op).flop(case)


def bytes_of(kernel: str) -> int:
    """Bytes that one call reads and writes, each array once."""
    case = case_of(kernel)
    return find_op(case.op).traffic_bytes(case)


# ---- images


def spatial(prefix: str, values: Sequence[int], empty: int) -> dict[str, int]:
    """`pad_d`, `pad_h` and `pad_w` for the values of one to three axes. One axis is the width."""
    if len(values) > len(AXES):
        raise BadInput(f"an image has at most {len(AXES)} axes, found {len(values)}")
    full = [empty] * (len(AXES) - len(values)) + list(values)
    return {f"{prefix}{name}": value for name, value in zip(AXES, full, strict=True)}


def centered(image: int, window: int, outputs: int, stride: int, dilation: int, low: int) -> tuple[int, int]:
    """Size of an image and its padding at each end, with which a window has so many outputs.

    Frameworks may pad one end (`low`) more than the other. Ours have the same padding at both: where no such padding
    gives these outputs, the image is a pixel larger, or as much smaller as is cut off. So the FLOP are always right.
    """
    least = (outputs - 1) * stride + dilation * (window - 1) + 1 - image
    most = least + stride - 1
    if low >= 0 and least <= 2 * low <= most:
        return image, low
    even = max(0, least + least % 2)
    if even <= most:
        return image, even // 2
    return (image + 1, least // 2) if least > 0 else (image + most, 0)


@dataclass(frozen=True)
class Window:
    """How filters or windows lie in an image: a value for each axis."""

    image: Sequence[int]
    window: Sequence[int]
    outputs: Sequence[int]
    stride: Sequence[int]
    low: Sequence[int]
    """Padding before the first pixel."""
    dilation: Sequence[int]

    def sizes(self) -> dict[str, int]:
        """Fields of a convolution or of pooling."""
        values = (self.image, self.window, self.outputs, self.stride, self.dilation, self.low)
        found = [centered(*axis) for axis in zip(*values, strict=True)]
        window = spatial("", self.window, 1)
        return {
            **spatial("", [image for image, _ in found], 1),
            **{"t": window["d"], "r": window["h"], "s": window["w"]},
            **spatial("pad_", [pad for _, pad in found], 0),
            **spatial("stride_", self.stride, 1),
        }


def conv_text(
    window: Window, counts: Mapping[str, int], precision: str | None, direction: str = "forward", **settings: str
) -> str:
    """The text of a convolution; `counts` are n, c, k and groups."""
    sizes = {**counts, **window.sizes(), **spatial("dilation_", window.dilation, 1)}
    return kernel_text("conv", sizes, precision, direction, **settings)


def pooling_text(
    kind: str, window: Window, counts: Mapping[str, int], precision: str | None, direction: str = "forward", **s: str
) -> str:
    """The text of pooling; `counts` are n and c. `BadInput` for windows with gaps."""
    if any(n != 1 for n in window.dilation):
        raise BadInput("windows with gaps are not supported")
    return kernel_text("pooling", {"kind": kind, **counts, **window.sizes()}, precision, direction, **s)


def reduction_sizes(kind: str, shape: Sequence[int], axes: Sequence[int]) -> dict[str, int | str]:
    """Fields of a reduction of a row-major array. `BadInput` unless the axes are the first or the last ones."""
    chosen = sorted({axis % len(shape) for axis in axes}) if shape else []
    rest = [i for i in range(len(shape)) if i not in chosen]
    over, kept = (_product(shape[i] for i in group) for group in (chosen, rest))
    if chosen and chosen == list(range(len(rest), len(shape))):
        return {"kind": kind, "rows": kept, "columns": over}
    if chosen and chosen == list(range(len(chosen))):
        return {"kind": kind, "rows": over, "columns": kept, "axis": "rows"}
    raise BadInput("a reduction is over the first or the last axes")


def _product(values: Iterable[int]) -> int:
    product = 1
    for value in values:
        product *= value
    return product


# ---- operators and buffers


@dataclass
class Recorder:
    """Gathers the calls and buffers of a trace."""

    calls: list[Call] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    views: int = 0
    parts: dict[int, list[int]] = field(default_factory=dict)
    """Buffers that are used piece by piece, too: their pieces, which are buffers as well."""

    def buffer(self, size: int) -> int:
        """A new buffer of so many bytes."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def call(
        self, operator: str, kernel: str | None, where: str, reads: Iterable[int], writes: Iterable[int], moved: int
    ) -> None:
        """Record an operator."""
        if len(self.calls) == MOST_CALLS:
            raise BadInput(f"the network calls more than {MOST_CALLS} operators; trace a smaller one, or fewer steps")
        self.calls.append(Call(operator, kernel, where, tuple(reads), tuple(writes), moved))

    def trace(self, title: str, source: str, is_training: bool, parameters: int | None) -> Trace:
        """The trace with the buffers that are used, in the order of their first use."""
        numbers: dict[int, int] = {}
        calls = []
        for call in self.calls:
            reads, writes = (
                tuple(dict.fromkeys(numbers.setdefault(n, len(numbers)) for n in self._pieces(group)))
                for group in (call.reads, call.writes)
            )
            if (reads, writes) != (call.reads, call.writes):
                call = replace(call, reads=reads, writes=writes)
            calls.append(call)
        if len(numbers) > MOST_BUFFERS:
            raise BadInput(f"the network has {len(numbers)} buffers; a trace has at most {MOST_BUFFERS}")
        return Trace(
            title=title,
            source=source,
            is_training=is_training,
            calls=tuple(calls),
            buffers=tuple(self.sizes[n] for n in numbers),
            views=self.views,
            parameters=parameters,
        )

    def _pieces(self, buffers: Iterable[int]) -> Iterable[int]:
        for buffer in buffers:
            if buffer in self.parts:
                yield from self._pieces(self.parts[buffer])
            else:
                yield buffer
