"""Predicts a step from result files, and measures what they lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepbench.core.progress import Progress, no_progress
from deepbench.core.times import Time
from deepbench.judge.limits import Limits
from deepbench.machine import describe
from deepbench.measuring import probes
from deepbench.measuring.session import Options
from deepbench.networks.predictions.measured import StepTimes, measure, overhead_of, planned
from deepbench.networks.predictions.predict import Need, Prediction, Speed, Times, needs, predict
from deepbench.networks.predictions.runner import OVERHEAD, StepRequest
from deepbench.networks.traces.trace import Trace
from deepbench.plan.cases import Planned
from deepbench.results.file import ResultFile
from deepbench.results.record import Limit
from deepbench.results.summary import Summary, summarize


@dataclass(frozen=True)
class Forecast:
    """Predictions of one or several steps, and the step as it was measured in turn with the kernels."""

    predictions: tuple[Prediction, ...]
    measured: Time | None
    """Of the only step, where a file has it."""
    file: Path | None
    """The result file of what was measured; None if the files had everything."""
    alternatives: tuple[Prediction, ...] = ()
    """The first step with the kernels of every other library that has times in the files."""

    @property
    def has_times(self) -> bool:
        """Whether any kernel of the network has a time."""
        return any(part.time is not None for step in self.predictions for part in step.parts)


def capacity(files: Iterable[ResultFile] = ()) -> int:
    """Bytes that the caches of a thread hold: what the machine of the files states, or less if measurements say so.

    Without files, or where they say nothing, those of this machine.
    """
    for file in files:
        known = _known_caches(file.limits, file.header["machine"])
        if known is not None:
            return known
    machine = describe.describe_machine()
    return _known_caches(probes.recall(machine), machine) or describe.GUESSED_CACHE_BYTES


def _known_caches(lines: Sequence[Limit], machine: Mapping[str, Any]) -> int | None:
    stated = sum(c["bytes"] for c in machine.get("caches") or [] if c["level"] > 1)
    measured = Limits(lines).cache_bytes()
    return min((size for size in (stated, measured) if size), default=None)


def forecast(
    traces: Sequence[Trace],
    files: Iterable[ResultFile],
    *,
    library: str = "torch",
    threads: int = 1,
    output: Path | None = None,
    network: StepRequest | None = None,
    options: Options | None = None,
    progress: Progress = no_progress,
) -> Forecast:
    """Predict steps from the kernels in `files`.

    With `output`, what the files lack is measured into this new file first. With a `network` its real step is measured
    in turn with all of its kernels, and the files do not count.
    """
    known = list(files) if network is None else []
    # Tracing needs PyTorch, which takes seconds to import.
    asks = output is not None or any(line["network"] == OVERHEAD for file in known for _, line in file.steps)
    probes = overhead_traces(traces) if library == "torch" and asks else {}
    size = capacity(known)
    written = None
    if output is not None:
        wanted = [need for trace in (*traces, *probes.values()) for need in needs(trace, library, threads, size)]
        missing = lacking(wanted, times_of(known, traces), library, threads)
        lacks_overhead = [
            is_training
            for is_training, probe in probes.items()
            if overhead_of(known, probe, times_of(known, traces), library, threads, size) is None
        ]
        if missing or lacks_overhead:
            real = None if network is None else (traces[0].title, network)
            cases = missing or planned([], library, threads)
            overheads = dict.fromkeys(lacks_overhead, threads)
            known.append(measure(output, cases, options or Options("steps"), progress, real, overheads))
            written = output
    times = times_of(known, traces)
    overheads_s = {t: overhead_of(known, probe, times, library, threads, size) for t, probe in probes.items()}
    found = tuple(predict(t, times, library, threads, size, overheads_s.get(t.is_training)) for t in traces)
    summaries = [s for file in known for s in summarize(file.records, file.order)]
    others = sorted({s.record["backend"] for s in summaries if s.record["threads"] == threads} - {library})
    alternatives = tuple(predict(traces[0], times, other, threads, size, None) for other in others)
    steps = next((steps for file in known if (steps := _steps(file, traces))), None)
    return Forecast(found, steps.time if steps else None, written, alternatives)


def _steps(file: ResultFile, traces: Sequence[Trace]) -> StepTimes | None:
    """The real step in a file: only where one step is predicted."""
    return StepTimes.of(file, traces[0].title, traces[0].is_training) if len(traces) == 1 else None


def times_of(files: Iterable[ResultFile], traces: Sequence[Trace]) -> Times:
    """The times of all cases in files; those next to real steps are relative to these."""
    summaries, speeds = list[Summary](), dict[str, Speed]()
    for file in files:
        summaries += summarize(file.records, file.order)
        if steps := _steps(file, traces):
            speeds |= steps.speeds(record["case"] for record in file.records)
    return Times(summaries, speeds)


def overhead_traces(traces: Sequence[Trace]) -> dict[bool, Trace]:
    """The networks that say what an operator costs besides its kernel, for forward passes and for training.

    None without PyTorch: then the overhead is unknown.
    """
    try:
        import torch
    except ImportError:
        return {}
    from deepbench.networks.predictions.runner import tiny_network
    from deepbench.networks.traces.from_torch import trace_torch
    from deepbench.networks.traces.program import program_of

    found = {}
    for is_training in dict.fromkeys(trace.is_training for trace in traces if trace.buffers):
        tiny = program_of(tiny_network(torch), OVERHEAD, is_training)
        found[is_training] = trace_torch(tiny.run, tiny.modules, OVERHEAD, OVERHEAD, is_training)
    return found


def lacking(wanted: Sequence[Need], times: Times, library: str, threads: int) -> list[Planned]:
    """The cases that have no time yet."""
    return [p for p in planned(wanted, library, threads) if times.of(p.case) is None]
