"""Predicts a step from result files, and measures what they lack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepbench.judge import limits
from deepbench.machine import describe
from deepbench.measure.session import Options, Progress, Session, no_progress
from deepbench.networks.measured import StepTimes, measure_in_turn, overhead_of, planned
from deepbench.networks.predict import Need, Prediction, Time, Times, needs, predict
from deepbench.networks.runner import Request
from deepbench.networks.trace import Trace
from deepbench.plan.cases import Planned
from deepbench.results.file import ResultFile
from deepbench.results.summary import Summary, summarize

# What caches hold where nobody has measured or stated it.
GUESSED_CACHE_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Forecast:
    """Predictions of one or several steps, and the step as it was measured in turn with the kernels."""

    predictions: tuple[Prediction, ...]
    measured: Time | None
    """Of the only step, where it was measured."""
    steps: StepTimes | None
    file: Path | None
    """Where the kernels are that were measured."""


def capacity() -> int:
    """Bytes that the caches of this machine hold: measured on it before, else what it states."""
    measured = limits.Limits(limits.recall(describe.describe_machine())).cache_bytes()
    return measured or describe.cache_bytes() or GUESSED_CACHE_BYTES


def forecast(
    traces: Sequence[Trace],
    files: Iterable[ResultFile],
    *,
    library: str = "torch",
    threads: int = 1,
    output: Path | None = None,
    network: Request | None = None,
    options: Options | None = None,
    progress: Progress = no_progress,
) -> Forecast:
    """Predict steps from the kernels in `files`.

    With `output`, what the files lack is measured into this new file first. With a `network` its real step is measured
    in turn with all of its kernels, and the files do not count.
    """
    size, probes = capacity(), _overhead_traces(traces) if library == "torch" and output is not None else {}
    summaries = [s for file in files for s in summarize(file.records, file.order)] if network is None else []
    times, steps, measured = Times(summaries), None, None
    if output is not None:
        every = [*traces, *probes.values()]
        wanted = [need for trace in every for need in needs(trace, library, threads, size)]
        missing, options = lacking(wanted, times, library, threads), options or Options("quick")
        if missing and network is not None:
            file, steps = measure_in_turn(output, network, missing, options, progress)
            times, measured = Times(summarize(file.records, file.order), steps.speeds(file)), steps.time
        elif missing:
            times = Times(summaries + measure(output, missing, options, progress))
    overheads = {
        is_training: overhead_of(probe, times, library, threads, size) for is_training, probe in probes.items()
    }
    found = (predict(t, times, library, threads, size, overheads.get(t.is_training)) for t in traces)
    return Forecast(tuple(found), measured, steps, output)


def _overhead_traces(traces: Sequence[Trace]) -> dict[bool, Trace]:
    """The networks that say what an operator costs besides its kernel, for forward passes and for training.

    None without PyTorch: then the overhead is unknown.
    """
    try:
        import torch
    except ImportError:
        return {}
    from deepbench.networks.from_torch import trace_torch
    from deepbench.networks.program import program_of
    from deepbench.networks.runner import OVERHEAD, tiny_network

    found = {}
    for is_training in dict.fromkeys(trace.is_training for trace in traces):
        tiny = program_of(tiny_network(torch), OVERHEAD, is_training)
        found[is_training] = trace_torch(tiny.run, tiny.modules, OVERHEAD, OVERHEAD, is_training)
    return found


def lacking(wanted: Sequence[Need], times: Times, library: str, threads: int) -> list[Planned]:
    """The cases that have no time yet."""
    return [p for p in planned(wanted, library, threads) if times.of(p.case) is None]


def measure(path: Path, cases: Sequence[Planned], options: Options, progress: Progress) -> list[Summary]:
    """Measure cases into a new file."""
    with Session.create(path, cases, options) as session:
        session.run(progress, options.begin)
        return summarize(session.file.records, session.file.order)
