"""What a predicted step consists of, by kind and by layer; what other libraries would save; which batch is enough."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deepbench.networks.predictions.predict import KernelShare, Prediction
from deepbench.networks.traces.trace import Trace, general_place

# The groups of kernels, by operation.
GROUPS = {
    **dict.fromkeys(("gemm", "linear", "batched_gemm", "grouped_gemm", "weight_only_gemm"), "products"),
    **dict.fromkeys(("conv",), "convolution"),
    **dict.fromkeys(("recurrent",), "recurrent layers"),
    **dict.fromkeys(("attention",), "attention"),
    **dict.fromkeys(("batch_norm", "layer_norm", "rms_norm", "group_norm", "softmax"), "normalization"),
    **dict.fromkeys(("embedding_bag",), "embeddings"),
    **dict.fromkeys(("optimizer",), "optimizer"),
}

# Of positions of a list in one title: those of a network with layers of several kinds in turn have some ten.
MOST_RANGES = 20

REST, OTHERS, OVERHEAD = "other kernels", "other operators", "overhead"


def groups(prediction: Prediction) -> dict[str, float]:
    """Seconds by group of kernels, the longest first; other operators and overhead come last."""
    found: dict[str, float] = {}
    for part in prediction.parts:
        if part.time is not None:
            name = GROUPS.get(part.need.kernel.split()[0], REST)
            found[name] = found.get(name, 0.0) + part.time.seconds
    ordered = dict(sorted(found.items(), key=lambda item: -item[1]))
    if prediction.others is not None:
        ordered[OTHERS] = prediction.others.seconds
    if prediction.overhead is not None:
        ordered[OVERHEAD] = prediction.overhead.seconds
    return ordered


@dataclass
class LayerPart:
    """Calls of one operation at one place of a layer; equal layers are one."""

    name: str
    calls: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Layer:
    """A layer of the network, or all equal ones."""

    name: str
    parts: tuple[LayerPart, ...]
    """The longest first."""

    @property
    def calls(self) -> int:
        """Of all its parts."""
        return sum(part.calls for part in self.parts)

    @property
    def seconds(self) -> float:
        """Of all its parts."""
        return sum(part.seconds for part in self.parts)


def layers(prediction: Prediction) -> list[Layer]:
    """The time of a step by layer, the longest first.

    A layer has its kernels, its other operators by their bytes, and the overhead of its operators.
    """
    p, trace = prediction, prediction.trace
    of_kernel = {part.need.kernel: part.time.seconds / part.need.count for part in p.parts if part.time}
    other_bytes = sum(call.bytes for call in trace.others) or 1
    overhead = p.overhead.seconds / (trace.operators or 1) if p.overhead else 0.0
    found: dict[str, dict[str, LayerPart]] = {}
    names = _layers(trace)
    for call in trace.calls:
        if call.kernel is not None:
            seconds = of_kernel.get(call.kernel, 0.0)
        else:
            seconds = p.others.seconds * call.bytes / other_bytes if p.others else 0.0
        layer, rest = names[call.where]
        name = f"{rest} {call.kernel.split()[0] if call.kernel else OTHERS}".strip()
        part = found.setdefault(layer, {}).setdefault(name, LayerPart(name))
        part.calls += 1
        part.seconds += seconds + overhead * call.operators
    made = [Layer(name, tuple(sorted(of.values(), key=lambda part: -part.seconds))) for name, of in found.items()]
    return sorted(made, key=lambda layer: -layer.seconds)


def _layers(trace: Trace) -> dict[str, tuple[str, str]]:
    """For each place of a trace: its layer, and the place in it. Without a number, the first name is the layer.

    A number is the position in a list. Positions are one layer if they run the same operation at the same place in it;
    `layers.*` are all positions of a list, and `net.0` and `net.1–12` are some. A list without a
    name has its positions, too.
    """
    split = {call.where: _split(call.where) for call in trace.calls}
    lists: dict[str, dict[int, set[tuple[str, str]]]] = {}
    for call in trace.calls:
        owner, position, rest = split[call.where]
        if position is not None:
            runs = lists.setdefault(owner, {}).setdefault(position, set())
            runs |= {(rest, call.kernel.split()[0])} if call.kernel else set()
    titles = {owner: _titles(positions, owner != "") for owner, positions in lists.items()}
    found = {}
    for place, (owner, position, rest) in split.items():
        words = [*([owner] if owner else []), *([] if position is None else [titles[owner][position]])]
        found[place] = (".".join(words) or "(no module)", rest)
    return found


def _split(place: str) -> tuple[str, int | None, str]:
    """The list that a place is in, the position in it, and the place there; without a number, the first name."""
    words = place.split(".") if place else []
    at = next((i for i, word in enumerate(words) if word.isascii() and word.isdecimal() and len(word) < 10), None)
    if at is None:
        return general_place(".".join(words[:1])), None, general_place(".".join(words[1:]))
    return ".".join(words[:at]), int(words[at]), general_place(".".join(words[at + 1 :]))


def _titles(positions: Mapping[int, set[tuple[str, str]]], has_name: bool) -> dict[int, str]:
    """What the positions of a list are called, those that run the same operation alike."""
    before = {position: position for position in positions}
    """Another position of the same kind; the first of a kind has itself."""

    def first(position: int) -> int:
        while before[position] != position:
            before[position] = before[before[position]]
            position = before[position]
        return position

    with_run: dict[tuple[str, str] | None, int] = {}
    for position, runs in sorted(positions.items()):
        for run in runs or (None,):
            a, b = first(position), first(with_run.setdefault(run, position))
            before[max(a, b)] = min(a, b)
    kinds: dict[int, list[int]] = {}
    for position in sorted(positions):
        kinds.setdefault(first(position), []).append(position)
    if has_name and len(kinds) == 1 and len(positions) > 1:
        return dict.fromkeys(positions, "*")
    titles = {kind: _ranges(members) for kind, members in kinds.items()}
    return {position: titles[first(position)] for position in positions}


def _ranges(numbers: Sequence[int]) -> str:
    """`0, 2–5`; the first ones of many."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs[:MOST_RANGES]]
    return ", ".join([*shown, "…"] if len(runs) > MOST_RANGES else shown)


@dataclass(frozen=True)
class LibraryGain:
    """What the kernels of another library would save in a step."""

    library: str
    kernels: int
    """How many of its kernels are faster."""
    saved_s: float


def gains(prediction: Prediction, alternatives: Sequence[Prediction]) -> list[LibraryGain]:
    """Of each library with faster kernels, the one that saves most first. Disturbed times do not count.

    A kernel is taken from the library in which it is the fastest, so the savings add up.
    """
    own = {part.need.kernel: _sound_s(part) for part in prediction.parts}
    found: dict[str, list[float]] = {}
    for kernel, (library, part) in _faster(prediction, alternatives).items():
        found.setdefault(library, []).append(own[kernel] - _sound_s(part))
    return sorted(
        (LibraryGain(name, len(saved), sum(saved)) for name, saved in found.items()), key=lambda g: -g.saved_s
    )


def fastest(prediction: Prediction, alternatives: Sequence[Prediction]) -> Prediction:
    """The step with every kernel from the library in which it is the fastest."""
    faster = _faster(prediction, alternatives)
    parts = [faster[part.need.kernel][1] if part.need.kernel in faster else part for part in prediction.parts]
    return replace(prediction, parts=tuple(parts))


def _faster(prediction: Prediction, alternatives: Sequence[Prediction]) -> dict[str, tuple[str, KernelShare]]:
    """The fastest other library of each kernel that has one, with its part of the step."""
    best = {part.need.kernel: ("", part) for part in prediction.parts if _sound_s(part) < math.inf}
    for other in alternatives:
        for part in other.parts:
            known = best.get(part.need.kernel)
            if known and _sound_s(part) < _sound_s(known[1]):
                best[part.need.kernel] = (other.library, part)
    return {kernel: (library, part) for kernel, (library, part) in best.items() if library}


def _sound_s(part: KernelShare) -> float:
    """Seconds of a kernel that was measured, not disturbed and not uneven; others are never the faster one."""
    is_sound = part.how == "measured" and not part.disturbed and not part.uneven
    return part.time.seconds if part.time and is_sound else math.inf


# A batch is large enough where its throughput is this share of the highest.
KNEE = 0.9


def knee_of(points: Sequence[tuple[int, float]]) -> int | None:
    """The smallest batch with 90 % of the highest throughput; None for fewer than three."""
    if len(points) < 3:
        return None
    highest = max(value / seconds for value, seconds in points)
    return next(value for value, seconds in sorted(points) if value / seconds >= KNEE * highest)
