"""The same scenarios under LoadGen, the program of MLPerf that asks models and takes the times."""

from __future__ import annotations

import importlib.util
import queue
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepbench.applications.training.scenarios import AnsweringModel
from deepbench.core.errors import Unavailable
from deepbench.results.record import Scenario

NAMES: dict[Scenario, str] = {
    "single": "SingleStream",
    "multi": "MultiStream",
    "offline": "Offline",
    "server": "Server",
}


def require() -> None:
    """`Unavailable` where LoadGen is not installed."""
    if importlib.util.find_spec("mlperf_loadgen") is None:
        raise Unavailable("LoadGen is not installed", "install it: pip install mlcommons-loadgen")


def run(
    model: AnsweringModel, scenario: Scenario, batch: int, seconds: float, rate: float, latency_s: float
) -> dict[str, str]:
    """Run a scenario under LoadGen; what its summary says, by its names.

    Args:
        model: answers.
        scenario: which.
        batch: samples that the model gets at once.
        seconds: that the run takes at least.
        rate: of `server`, queries per second; of `offline`, samples per second that are expected.
        latency_s: of `server`, the bound of the 99th percentile; of `single` and `multi`, what is expected of a query.
    """
    import mlperf_loadgen as lg

    settings = lg.TestSettings()
    settings.scenario = getattr(lg.TestScenario, NAMES[scenario])
    settings.mode = lg.TestMode.PerformanceOnly
    settings.min_duration_ms = round(1000 * seconds)
    settings.min_query_count = 1
    if scenario == "single":
        settings.single_stream_expected_latency_ns = round(1e9 * latency_s)
    elif scenario == "multi":
        settings.multi_stream_expected_latency_ns = round(1e9 * latency_s)
        settings.multi_stream_samples_per_query = batch
    elif scenario == "offline":
        settings.offline_expected_qps = rate
    else:
        settings.server_target_qps = rate
        settings.server_target_latency_ns = round(1e9 * latency_s)
        settings.server_target_latency_percentile = 0.99
    with tempfile.TemporaryDirectory() as folder:
        logs = lg.LogSettings()
        logs.log_output.outdir = folder
        logs.log_output.copy_summary_to_stdout = False
        waiting: queue.Queue[Any] = queue.Queue()
        failed: list[Exception] = []
        thread = threading.Thread(target=_answer_queued, args=(model, batch, waiting, failed, lg), daemon=True)
        thread.start()

        def issue(asked: Sequence[Any]) -> None:
            if scenario in ("single", "multi"):
                _answer(model, asked, lg)
            else:
                for sample in asked:
                    waiting.put(sample)

        system = lg.ConstructSUT(issue, lambda: None)
        samples = lg.ConstructQSL(model.tests, model.tests, lambda _: None, lambda _: None)
        lg.StartTestWithLogSettings(system, samples, settings, logs)
        waiting.put(None)
        thread.join()
        if failed:
            raise failed[0]
        lg.DestroyQSL(samples)
        lg.DestroySUT(system)
        return summary_of((Path(folder) / "mlperf_log_summary.txt").read_text())


def summary_of(text: str) -> dict[str, str]:
    """The lines `name : value` of LoadGen's summary, up to the settings of the test."""
    lines = text.partition("Test Parameters Used")[0].splitlines()
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _answer(model: AnsweringModel, asked: Sequence[Any], lg: Any) -> None:
    model.timed([sample.index for sample in asked])
    _complete(asked, lg)


def _complete(asked: Sequence[Any], lg: Any) -> None:
    lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0) for sample in asked])


def _answer_queued(
    model: AnsweringModel, batch: int, waiting: queue.Queue[Any], failed: list[Exception], lg: Any
) -> None:
    """Answer what waits, up to a batch at once, until None comes. LoadGen waits for all, also behind an exception."""
    while (sample := waiting.get()) is not None:
        asked = [sample]
        while len(asked) < batch and not waiting.empty():  # LoadGen puts None only when all have been answered
            asked.append(waiting.get())
        if failed:
            _complete(asked, lg)
            continue
        try:
            _answer(model, asked, lg)
        except Exception as error:
            failed.append(error)
            _complete(asked, lg)
