"""What a predicted step consists of, by kind and by layer; what other libraries would save; which batch is enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deepbench.networks.predictions.predict import KernelShare, Prediction
from deepbench.networks.traces.trace import general_place

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
    for call in trace.calls:
        if call.kernel is not None:
            seconds = of_kernel.get(call.kernel, 0.0)
        else:
            seconds = p.others.seconds * call.bytes / other_bytes if p.others else 0.0
        layer, rest = _layer(general_place(call.where))
        name = f"{rest} {call.kernel.split()[0] if call.kernel else OTHERS}".strip()
        part = found.setdefault(layer, {}).setdefault(name, LayerPart(name))
        part.calls += 1
        part.seconds += seconds + overhead * call.operators
    made = [Layer(name, tuple(sorted(of.values(), key=lambda part: -part.seconds))) for name, of in found.items()]
    return sorted(made, key=lambda layer: -layer.seconds)


def _layer(place: str) -> tuple[str, str]:
    """A layer, and the place in it: up to the number of the layer, or else the first name."""
    words = place.split(".") if place else ["(no module)"]
    end = words.index("*") + 1 if "*" in words else 1
    return ".".join(words[:end]), ".".join(words[end:])


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
    """Seconds of a kernel that was measured and not disturbed; others are never the faster one."""
    return part.time.seconds if part.time and part.how == "measured" and not part.disturbed else math.inf


# A batch is large enough where its throughput is this share of the highest.
KNEE = 0.9


def knee_of(points: Sequence[tuple[int, float]]) -> int | None:
    """The smallest batch with 90 % of the highest throughput; None for fewer than three."""
    if len(points) < 3:
        return None
    highest = max(value / seconds for value, seconds in points)
    return next(value for value, seconds in sorted(points) if value / seconds >= KNEE * highest)
