"""When the tokens of a server come: the kernels of its steps, a small queueing model, and constants of frameworks.

A server answers `batch` requests at the same time, on each group of data-parallel attention; when one ends, the next
begins. A request has `prompt` and `output` tokens. As many run as the memory holds keys and values for: r of them.

    time per output token  =  D + (r / output) · P + overheads
    time to first token    =  P · (1 + waiting) + D + overheads

D is the step that decodes one token of r requests, with keys of half of the output, and P the step of one prompt. While
a request decodes `output` tokens, about r other prompts are computed between its steps. D and P are sums of kernels by
kind. Each kind has a factor, and there are overheads per step, per call, per request, and per product whose inputs are
converted (docs/serving.md lists them all).

Factors and overheads are fitted to measured deployments: first to all, then to those of a framework, then to those of a
framework with the same type of layers, where each fit stays near the one before (ridge regression). They minimise about
the mean absolute logarithm of predicted over measured (iteratively reweighted least squares).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.gpus.serving.deployments import Deployment
from deepbench.gpus.serving.steps import Held, ServedFormat, StepTime, held, parts_of, step_times
from deepbench.gpus.sheet import sheet

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# Of the memory of a GPU: the share that servers use, and what they need besides weights, keys and values.
USED_MEMORY, WORK_BYTES = 0.9, 2e9

# Random lengths of requests lie between 80 % and 100 % of what is stated.
MEAN_OF_VARIED = 0.9

KINDS = {
    "layers": ("linear", "latent_products"),
    "attention": ("attention", "attention_decode", "latent_attention", "latent_attention_decode", "delta"),
    "experts": ("experts",),
    "exchanges": ("collectives",),
    "other": ("other operators",),
}


@dataclass(frozen=True)
class ServerSetup:
    """A server: a model on GPUs, and its load."""

    suite: str
    machine: str
    framework: str
    format: ServedFormat
    batch: int
    prompt: int
    output: int
    tensor: int = 1
    data: int = 1
    expert: int = 1
    expert_tensor: int = 1
    is_varied: bool = True

    @property
    def devices(self) -> int:
        """GPUs."""
        return self.tensor * self.data

    @property
    def division(self) -> tuple[tuple[str, int], ...]:
        """The parameters of the suite that divide the model."""
        return tuple((name, getattr(self, name)) for name in ("tensor", "data", "expert", "expert_tensor"))

    @property
    def held(self) -> Held:
        """What it takes of the memory of a GPU."""
        return held(self.suite, self.division, self.format)

    @property
    def room_bytes(self) -> float:
        """Memory of a GPU for keys and values; negative where the weights do not fit."""
        memory = sheet(self.machine).memory_bytes or 0.0
        return USED_MEMORY * memory - self.held.weights - WORK_BYTES

    @property
    def lengths(self) -> tuple[int, int]:
        """The mean prompt and output."""
        share = MEAN_OF_VARIED if self.is_varied else 1.0
        return max(1, int(self.prompt * share)), max(1, int(self.output * share))

    @property
    def running(self) -> int:
        """How many requests run at the same time on a group."""
        prompt, output = self.lengths
        return max(1, min(self.batch, int(self.room_bytes / max(1.0, self.held.cached * (prompt + output / 2)))))

    @classmethod
    def of(cls, row: Deployment) -> ServerSetup:
        """The server of a measured deployment."""
        return cls(
            row.suite,
            row.machine,
            row.framework,
            row.format,
            row.batch,
            row.prompt,
            row.output,
            row.tensor,
            row.data,
            row.expert,
            row.expert_tensor,
            row.is_varied,
        )


@dataclass(frozen=True)
class Steps:
    """The two steps of a server."""

    setup: ServerSetup
    decode: StepTime
    prompt: StepTime


def steps_of(setups: Sequence[ServerSetup]) -> list[Steps]:
    """The times of the steps of servers. `BadInput` for a model that cannot be divided so."""
    found: dict[int, Steps] = {}
    groups: dict[tuple[str, str], list[int]] = {}
    for i, setup in enumerate(setups):
        groups.setdefault((setup.machine, setup.framework), []).append(i)
    for (machine, framework), members in groups.items():
        plans = []
        for i in members:
            s = setups[i]
            prompt, output = s.lengths
            decoding = (*s.division, ("batch", s.running), ("context", prompt + output // 2))
            plans.append(parts_of(s.suite, "decode", decoding, s.format))
            plans.append(parts_of(s.suite, "prefill", (*s.division, ("batch", 1), ("context", prompt)), s.format))
        times = step_times(plans, machine, framework)
        for number, i in enumerate(members):
            found[i] = Steps(setups[i], times[2 * number], times[2 * number + 1])
    return [found[i] for i in range(len(setups))]


# ---- columns of the regression


@dataclass(frozen=True)
class ServerTerm:
    """One factor or overhead: what it multiplies, what it is without any measurement, and how far it may be from it."""

    name: str
    unit: str
    prior: float
    width: float
    least: float


TOKEN_TERMS = (
    *(ServerTerm(f"decoding: {kind}", "times", 1.0, 0.3, 0.2) for kind in KINDS),
    *(ServerTerm(f"prompts: {kind}", "times", 1.0, 0.3, 0.2) for kind in KINDS),
    ServerTerm("prompts of equal lengths", "times", 0.0, 0.5, -0.8),
    ServerTerm("step", "ms", 0.0, 1.0, 0.0),
    ServerTerm("kernel", "µs", 0.0, 1.0, 0.0),
    ServerTerm("product with conversion", "µs", 0.0, 5.0, -20.0),
    ServerTerm("request in a step", "µs", 0.0, 5.0, 0.0),
    ServerTerm("prompt among steps", "ms", 0.0, 3.0, 0.0),
    ServerTerm("layer of experts", "µs", 0.0, 20.0, -200.0),
)
FIRST_TERMS = (
    ServerTerm("prompt", "times", 1.0, 1.0, 0.0),
    ServerTerm("step", "times", 1.0, 3.0, 0.0),
    ServerTerm("prompts of equal lengths", "times", 0.3, 0.3, 0.0),
    ServerTerm("request", "ms", 10.0, 30.0, 0.0),
    ServerTerm("other request", "ms", 0.0, 1.0, 0.0),
    ServerTerm("waiting prompts", "times", 0.2, 1.0, 0.0),
)


def token_columns(steps: Sequence[Steps]) -> Array:
    """What the terms of the time per output token multiply, in seconds: a row for each server."""
    import numpy as np

    rows = []
    for s in steps:
        running, output = s.setup.running, s.setup.lengths[1]
        decode, prompt = _by_kind(s.decode), _by_kind(s.prompt)
        prompts = running / output
        calls = s.decode.calls
        products = sum(calls.get(name, 0) for name in KINDS["layers"])
        converted = products if s.setup.format.layers != "bfloat16" else 0
        rows.append(
            [
                *decode,
                *(prompts * seconds for seconds in prompt),
                0.0 if s.setup.is_varied else prompts * sum(prompt),
                1e-3,
                1e-6 * sum(calls.values()),
                1e-6 * converted,
                1e-6 * running,
                1e-3 * prompts,
                1e-6 * calls.get("experts", 0),
            ]
        )
    return np.array(rows)


def first_columns(steps: Sequence[Steps]) -> Array:
    """The same of the time to the first token."""
    import numpy as np

    rows = []
    for s in steps:
        running, prompt = s.setup.running, s.prompt.total_s
        together = 0.0 if s.setup.is_varied else running * prompt
        rows.append([prompt, s.decode.total_s, together, 1e-3, 1e-3 * running, running**0.5 * prompt])
    return np.array(rows)


def _by_kind(step: StepTime) -> list[float]:
    return [sum(step.seconds.get(name, 0.0) for name in names) for names in KINDS.values()]


# ---- fitting


def regression(columns: Array, seconds: Array, terms: Sequence[ServerTerm], prior: Array, ridge: float) -> Array:
    """The constants nearest to the prior that explain the measured times, each at least its least value."""
    import numpy as np

    share = columns / seconds[:, None]
    count = len(seconds)
    widths, least = (np.array([getattr(term, name) for term in terms]) for name in ("width", "least"))
    pull = ridge / widths**2
    weights, found = np.ones(count), prior.copy()
    for _ in range(25):
        weighted = share * weights[:, None]
        matrix = weighted.T @ share / count + np.diag(pull)
        right = weighted.sum(axis=0) / count + pull * prior
        free = np.ones(len(terms), bool)
        for _ in terms:
            found = np.where(free, found, least)
            rest = right[free] - matrix[np.ix_(free, ~free)] @ found[~free]
            found[free] = np.linalg.solve(matrix[np.ix_(free, free)], rest)
            below = free & (found < least - 1e-12)
            if not below.any():
                break
            free &= ~below
        fitted = share @ found
        weights = 1 / np.maximum(np.abs(fitted - 1), 0.04) / np.maximum(fitted, 0.2)
    return found


TOKEN_RIDGE, FIRST_RIDGE = 0.2, 0.02
LEAST_ROWS = 20


@dataclass(frozen=True)
class ServerConstants:
    """Constants by framework, and by framework and type of layers; an empty name stands for all."""

    token: dict[str, list[float]]
    first: dict[str, list[float]]
    token_interval: tuple[float, float] = (0.5, 2.0)
    """The time may be so many times the predicted one: 95 % of the groups that took no part in a fit are within."""
    first_interval: tuple[float, float] = (0.3, 3.0)
    source: str = ""
    """What it was fitted to."""
    machines: tuple[str, ...] = ()
    """The GPUs of these deployments."""

    def constants(self, what: dict[str, list[float]], setup: ServerSetup) -> list[float]:
        """Those of a server: of its framework and type, else of its framework, else of all."""
        names = (f"{setup.framework} {setup.format.layers}", setup.framework, "")
        return next(what[name] for name in names if name in what)

    def token_s(self, steps: Sequence[Steps]) -> Array:
        """Predicted times per output token."""
        return self._products(self.token, token_columns(steps), steps)

    def first_s(self, steps: Sequence[Steps]) -> Array:
        """Predicted times to the first token."""
        return self._products(self.first, first_columns(steps), steps)

    def _products(self, what: dict[str, list[float]], rows: Array, steps: Sequence[Steps]) -> Array:
        import numpy as np

        known = np.array([self.constants(what, s.setup) for s in steps])
        found: Array = (rows * known).sum(axis=1)
        return found


def fit(steps: Sequence[Steps], token_s: Array, first_s: Array, source: str = "") -> ServerConstants:
    """The constants of measured servers."""
    token = _levels(steps, token_columns(steps), token_s, TOKEN_TERMS, TOKEN_RIDGE, True)
    first = _levels(steps, first_columns(steps), first_s, FIRST_TERMS, FIRST_RIDGE, False)
    return ServerConstants(token, first, source=source)


def _levels(
    steps: Sequence[Steps], columns: Array, seconds: Array, terms: Sequence[ServerTerm], ridge: float, by_type: bool
) -> dict[str, list[float]]:
    import numpy as np

    prior = np.array([term.prior for term in terms])
    found = {"": regression(columns, seconds, terms, prior, ridge)}
    frameworks = np.array([s.setup.framework for s in steps])
    types = np.array([s.setup.format.layers for s in steps])
    for framework in dict.fromkeys(frameworks.tolist()):
        own = frameworks == framework
        if own.sum() < LEAST_ROWS:
            continue
        found[framework] = regression(columns[own], seconds[own], terms, found[""], ridge)
        for kind in dict.fromkeys(types[own].tolist()) if by_type else ():
            rows = own & (types == kind)
            if rows.sum() >= LEAST_ROWS:
                name = f"{framework} {kind}"
                found[name] = regression(columns[rows], seconds[rows], terms, found[framework], 3 * ridge)
    return {name: [round(float(value), 6) for value in values] for name, values in found.items()}


# ---- held-out groups


@dataclass(frozen=True)
class HeldOutServers:
    """Predictions of rows whose group took no part in the fit, with intervals from the errors of other groups."""

    token_s: Array
    first_s: Array
    token_interval: tuple[Array, Array]
    first_interval: tuple[Array, Array]


def held_out(steps: Sequence[Steps], token_s: Array, first_s: Array, groups: Sequence[str]) -> HeldOutServers:
    """Predict each group with constants that are fitted to all others."""
    import numpy as np

    names = np.array(groups)
    token, first = np.full(len(steps), np.nan), np.full(len(steps), np.nan)
    for name in dict.fromkeys(groups):
        out = names == name
        rest = [s for s, is_out in zip(steps, out, strict=True) if not is_out]
        own = [s for s, is_out in zip(steps, out, strict=True) if is_out]
        constants = fit(rest, token_s[~out], first_s[~out])
        token[out], first[out] = constants.token_s(own), constants.first_s(own)
    ends = [_intervals(names, predicted, measured) for predicted, measured in ((token, token_s), (first, first_s))]
    return HeldOutServers(token, first, ends[0], ends[1])


def _intervals(names: Array, predicted: Array, measured: Array) -> tuple[Array, Array]:
    """Ends for each row: quantiles of measured over predicted of all other groups."""
    import numpy as np

    ratio = measured / predicted
    low, high = np.full(len(names), np.nan), np.full(len(names), np.nan)
    for name in dict.fromkeys(names.tolist()):
        out = names == name
        low[out], high[out] = quantiles(names[~out], ratio[~out])
    return predicted * low, predicted * high


def quantiles(names: Array, ratio: Array) -> tuple[float, float]:
    """The 2.5 % and 97.5 % quantiles of ratios, where a group counts by the root of its rows."""
    import numpy as np

    _, index, counts = np.unique(names, return_inverse=True, return_counts=True)
    weights = 1.0 / counts[index.ravel()] ** 0.5
    order = np.argsort(ratio)
    reached = np.cumsum(weights[order]) / weights.sum()
    low, high = (float(ratio[order][np.searchsorted(reached, share)]) for share in (0.025, 0.975))
    return low, high


# ---- predictions


@dataclass(frozen=True)
class PredictedServer:
    """What is predicted of a server."""

    setup: ServerSetup
    steps: Steps
    token_s: float
    token_interval: tuple[float, float]
    first_s: float
    first_interval: tuple[float, float]

    @property
    def fits(self) -> bool:
        """Whether weights, and keys and values of one request, fit into the memory."""
        prompt, output = self.setup.lengths
        return self.setup.room_bytes > self.setup.held.cached * (prompt + output)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of all requests."""
        s = self.setup
        output = s.lengths[1]
        whole = self.first_s + (output - 1) * self.token_s
        return s.running * s.data * output / whole

    @property
    def tokens_interval(self) -> tuple[float, float]:
        """The ends of the same."""
        ends = []
        for first, token in zip(reversed(self.first_interval), reversed(self.token_interval), strict=True):
            ends.append(replace(self, first_s=first, token_s=token).tokens_per_s)
        return ends[0], ends[1]

    @property
    def tokens_per_s_and_device(self) -> float:
        """Output tokens per second and GPU."""
        return self.tokens_per_s / self.setup.devices

    def cost(self, price_per_h: float) -> float:
        """Of a million output tokens, where a GPU costs so much per hour."""
        return price_per_h / 3600 * 1e6 / self.tokens_per_s_and_device


@cache
def shipped() -> ServerConstants:
    """The constants that come with this program, fitted by benchmarks/deployments.py."""
    text = resources.files("deepbench").joinpath("gpus", "serving", "constants.json").read_text(encoding="utf-8")
    kept = json.loads(text)
    return ServerConstants(
        kept["token"],
        kept["first"],
        tuple(kept["token_interval"]),
        tuple(kept["first_interval"]),
        kept["source"],
        tuple(kept["machines"]),
    )


def predict(setups: Iterable[ServerSetup], constants: ServerConstants | None = None) -> list[PredictedServer]:
    """Predict servers. `BadInput` where a model cannot be divided as wanted, or has a kernel without any time."""
    import numpy as np

    found = []
    known = constants or shipped()
    for steps in steps_of(list(setups)):
        missing = [name for step in (steps.decode, steps.prompt) for name, s in step.seconds.items() if np.isnan(s)]
        if missing:
            raise BadInput(
                f"{sheet(steps.setup.machine).title} has no published times of {missing[0].replace('_', ' ')} "
                f"in this format ({steps.setup.format.text}); choose another --precision"
            )
        token, first = float(known.token_s([steps])[0]), float(known.first_s([steps])[0])
        low, high = known.token_interval
        first_low, first_high = known.first_interval
        found.append(
            PredictedServer(
                steps.setup, steps, token, (token * low, token * high), first, (first * first_low, first * first_high)
            )
        )
    return found
