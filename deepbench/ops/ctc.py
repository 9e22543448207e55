"""Connectionist temporal classification: the loss of a transcript whose alignment to the input is unknown.

The transcript l₁ … l_L becomes s = (0, l₁, 0, l₂, …, l_L, 0), where class 0 is the blank. With the probabilities
y = softmax(x) of each time step, given as `log_probabilities`,

    α(0, 0) = y(0, s₀)      α(0, 1) = y(0, s₁)
    α(t, i) = y(t, sᵢ) · (α(t-1, i) + α(t-1, i-1) + α(t-1, i-2) if sᵢ is neither blank nor sᵢ₋₂)
    loss = -log(α(T-1, 2L) + α(T-1, 2L-1))

(Graves, Fernández, Gomez, Schmidhuber, "Connectionist temporal classification", 2006.) The backward pass has the
gradient `dloss` of each loss and computes that of x, equation 16 of that paper, as warp-ctc, cuDNN and PyTorch do:

    gradient(t, k) = dloss · (y(t, k) - sum of α(t, i)·β(t, i) over sᵢ = k, divided by their sum over all i)

where β is the same recursion from the end, without y(t, sᵢ). Steps after the end of a sequence get 0. Libraries may
keep α from a forward pass before. `log_probabilities` and `gradient` are (time, batch, classes); `transcripts` is
(batch, labels). With `lengths=spread`, sequences have between half and all of the time steps and labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.core.parts import Expected, PartsOp, Tensor, expected_distinct
from deepbench.core.precision import Precision
from deepbench.core.problem import BaseProblem, check_spread, choice, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# The inputs of the softmax are up to this large.
LARGEST = 4.0

BLANK = 0

# Lists of the lengths of sequences: one may have millions of numbers.
MOST_REMEMBERED = 64


@dataclass(frozen=True)
class CTC(BaseProblem):
    """`batch` sequences of `time` steps, transcripts of `labels`, and `classes` including the blank."""

    batch: int = size()
    time: int = size()
    labels: int = size()
    classes: int = size(least=2)
    lengths: str = choice("equal", "spread", default="equal")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_spread(self.lengths, self.batch)
        if self.time < 2 * self.labels - 1:
            raise BadInput(
                f"time must be at least 2 · labels - 1 = {2 * self.labels - 1}, because equal labels in a row need a "
                f"blank between them; found time={self.time}"
            )

    @property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """The time steps and the labels of each sequence; both have the same share of the longest."""
        return _counts(self)

    @property
    def sequences(self) -> Mapping[tuple[int, int], int]:
        """How many sequences have so many time steps and labels."""
        return {(self.time, self.labels): self.batch} if self.lengths == "equal" else Counter(self.counts)

    def total(self, of_sequence: Callable[[int, int], int]) -> int:
        """The sum over all sequences of a function of their time steps and labels."""
        return sum(count * of_sequence(*lengths) for lengths, count in self.sequences.items())


@lru_cache(MOST_REMEMBERED)
def _counts(problem: CTC) -> tuple[tuple[int, int], ...]:
    longest = (problem.time, problem.labels)
    if problem.lengths == "equal" or problem.batch == 1:
        return (longest,) * problem.batch
    import numpy as np

    from deepbench.core.operands import generator

    share = 1 + generator(stream=77).random(problem.batch - 1)
    steps = np.ceil(problem.time * share / 2).astype(int)
    labels = np.maximum(1, problem.labels * share // 2).astype(int)
    return (longest, *zip(steps.tolist(), labels.tolist(), strict=True))


class CTCOp(PartsOp):
    name = "ctc"
    Problem = CTC
    directions = ("forward", "backward")
    outputs = ("loss", "gradient")
    sweep_field = "batch"
    smoke = (CTC(1, 1, 1, 2), CTC(3, 21, 7, 5), CTC(2, 50, 12, 29), CTC(5, 37, 9, 11, "spread"))

    def allows(self, direction: str, precision: Precision) -> bool:
        """f32 only, as in frameworks."""
        return precision.name == "f32"

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`log_probabilities`, `transcripts`, lengths of both, and the loss, or its gradients."""
        p = case.problem
        whole, of_sequence = Tensor((p.time, p.batch, p.classes), "f32"), Tensor((p.batch,), "f32")
        length = Tensor((p.batch,), "s32")
        inputs = {"log_probabilities": whole, "transcripts": Tensor((p.batch, p.labels), "s32")}
        inputs |= {"steps": length, "lengths": length}
        if case.direction == "forward":
            return {**inputs, "loss": of_sequence}
        return {**inputs, "dloss": of_sequence, "gradient": whole}

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Log-probabilities of random numbers; labels and lengths from a fixed seed."""
        import numpy as np

        from deepbench.core.operands import generator

        p = case.problem
        if name == "transcripts":
            array[...] = generator(stream).integers(1, p.classes, array.shape, dtype=np.int32)
        elif name in ("steps", "lengths"):
            array[...] = [steps if name == "steps" else labels for steps, labels in p.counts]
        else:
            super().fill(case, name, array, stream)
            if name == "log_probabilities":
                for step in array:
                    x = step.astype(np.float64) * LARGEST
                    x -= x.max(axis=1, keepdims=True)
                    step[...] = x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    def parts(self, case: Case) -> int:
        """Sequences."""
        return int(case.problem.batch)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """In the logarithms of α and β, in float64; docs/formulas.md derives the tolerances."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        unit = TOLERANCE_UNITS * case.precision.roundoff
        losses, gradients, tolerances = np.zeros(parts.size), [], []
        steps = arrays["steps"][parts].astype(np.float64)
        for at, part in enumerate(parts):
            time, labels = int(arrays["steps"][part]), int(arrays["lengths"][part])
            log_y = arrays["log_probabilities"][:time, part].astype(np.float64)
            states = np.full(2 * labels + 1, BLANK)
            states[1::2] = arrays["transcripts"][part, :labels]
            alpha = forward(log_y, states)
            losses[at] = -np.logaddexp(alpha[-1, -1], alpha[-1, -2])
            if case.direction == "forward":
                continue
            beta = forward(log_y[::-1], states[::-1])[::-1, ::-1] - log_y[:, states]
            share = np.zeros_like(log_y)
            with np.errstate(under="ignore"):
                np.add.at(share.T, states, np.exp(alpha + beta + losses[at]).T)
            y, dloss = np.exp(log_y), float(arrays["dloss"][part])
            error = np.abs(losses[at]) * np.sqrt(time)
            pad = ((0, case.problem.time - time), (0, 0))
            gradients.append(np.pad(dloss * (y - share), pad))
            tolerances.append(np.pad(abs(dloss) * unit * (y + share * (1 + error)), pad))
        if case.direction == "forward":
            yield Expected("loss", arrays["loss"][parts], losses, unit * np.abs(losses) * np.sqrt(steps))
            return
        want, tolerance = np.stack(gradients, axis=1), np.stack(tolerances, axis=1)
        yield Expected("gradient", arrays["gradient"][:, parts], want, tolerance)

    def flop(self, case: Case) -> int:
        """Three per step and state of the recursion: two additions and a product.

        Backward: the same for β, two for α·β and its sum, and two per probability for y and the difference.
        """
        p = case.problem
        states = p.total(lambda steps, labels: steps * (2 * labels + 1))
        if case.direction == "forward":
            return int(3 * states)
        return int(5 * states + 2 * p.total(lambda steps, labels: steps * p.classes))

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Every array once, without padding; but a gradient is written whole.

        The loss needs only the probabilities of the blank and of the labels of a transcript.
        """
        p, tensors = case.problem, self.tensors(case)
        if case.direction == "forward":
            read = p.total(lambda steps, labels: steps * (1 + expected_distinct(labels, p.classes - 1)) + labels)
        else:
            read = p.total(lambda steps, labels: steps * p.classes + labels)
        padded = ("log_probabilities", "transcripts")
        total = 4 * read + sum(tensor.bytes for name, tensor in tensors.items() if name not in padded)
        return 0 if capacity is not None and total <= capacity else int(total)

    def gathers(self, case: Case) -> int:
        """The probabilities of the labels."""
        return int(case.problem.total(lambda steps, labels: steps * labels))

    def title(self, problem: Any) -> str:
        """`8 × 736, 100 labels of 29`: batch × time, labels of classes."""
        p = problem
        return f"{p.batch} × {p.time}, {p.labels} labels of {p.classes}{', spread' * (p.lengths == 'spread')}"


def forward(log_y: Array, states: Array) -> Array:
    """The logarithms of α, shape (time, states)."""
    import numpy as np

    alpha = np.full((log_y.shape[0], states.size), -np.inf)
    alpha[0, :2] = log_y[0, states[:2]]
    skips = np.zeros(states.size, bool)
    skips[2:] = (states[2:] != BLANK) & (states[2:] != states[:-2])
    with np.errstate(under="ignore"):
        for t in range(1, log_y.shape[0]):
            before = alpha[t - 1]
            new = before.copy()
            new[1:] = np.logaddexp(new[1:], before[:-1])
            new[skips] = np.logaddexp(new[skips], before[np.flatnonzero(skips) - 2])
            alpha[t] = new + log_y[t, states]
    return alpha


OP = CTCOp()
