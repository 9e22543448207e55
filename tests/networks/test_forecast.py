"""What a prediction takes from files: the size of caches, and times of few samples."""

import pytest

from deepbench.core import stats
from deepbench.core.case import parse_case
from deepbench.judge.limits import Limits
from deepbench.machine import describe
from deepbench.measuring import probes
from deepbench.networks.predictions.forecast import capacity, times_of
from deepbench.networks.predictions.measured import overhead_of
from deepbench.networks.predictions.predict import FEW_SAMPLES, predict
from deepbench.networks.predictions.runner import OVERHEAD
from deepbench.networks.traces.trace import Trace, TracedCall
from deepbench.results.file import read_results
from tests.help import predicted, samples
from tests.networks.test_predict import Known

MIB = 2**20
CACHES = [{"level": 1, "bytes": 32 * 2**10}, {"level": 2, "bytes": MIB}, {"level": 3, "bytes": 30 * MIB}]


def file(path, lines=(), caches=None):
    first = samples.header()
    samples.write(path, lines, {**first, "machine": {**first["machine"], "caches": caches}})
    return read_results(path)


@pytest.mark.parametrize(("measured", "known"), [(None, 31 * MIB), (12 * MIB, 12 * MIB), (64 * MIB, 31 * MIB)])
def test_caches_are_as_stated_or_smaller_if_measured(tmp_path, monkeypatch, measured, known):
    """A virtual machine states the cache of the whole processor, of which it has a part."""
    monkeypatch.setattr(Limits, "cache_bytes", lambda _: measured)

    assert known == capacity([file(tmp_path / "a.jsonl", caches=CACHES)])


def test_without_files_caches_are_those_of_this_machine(monkeypatch):
    monkeypatch.setattr(probes, "recall", lambda _: [])
    monkeypatch.setattr(describe, "describe_machine", lambda: {"caches": CACHES})
    assert 31 * MIB == capacity()
    monkeypatch.setattr(describe, "describe_machine", dict)
    assert describe.GUESSED_CACHE_BYTES == capacity()


def test_a_time_of_few_samples_has_a_wide_interval(tmp_path):
    record = samples.measured(seconds=1e-3)
    for name in ("samples_s", "cpu_s", "involuntary_switches", "steal_s"):
        record["measurement"][name] = record["measurement"][name][:2]
    found = times_of([file(tmp_path / "a.jsonl", [record])], []).of(parse_case(record["case"]))

    assert (found.low_s, found.high_s) == pytest.approx(
        ((1 - FEW_SAMPLES) * found.seconds, (1 + FEW_SAMPLES) * found.seconds)
    )


@pytest.mark.parametrize(("kernel_s", "is_bound"), [(1e-4, False), (1e-4, True), (2e-3, False)])
def test_the_overhead_has_the_interval_of_a_median_and_is_never_negative(tmp_path, kernel_s, is_bound):
    """100 samples from 1.00 to 1.99 ms: ranks 40 to 61 bound the median with 95 % certainty."""
    line = predicted.step(1e-3, OVERHEAD, True)
    times = {"samples_s": [1e-3 + 1e-5 * i for i in range(100)], "involuntary_switches": [0] * 100}
    times |= {"cpu_s": times["samples_s"], "steal_s": [0.0] * 100}
    line["step"] |= times
    gemm = TracedCall("aten.mm", predicted.GEMM, "", (0,), (1,), 300)
    trace = Trace(OVERHEAD, "", True, (gemm,), (1, 1), 0, None)
    known = Known({("gemm", "hot"): kernel_s}, ("gemm",) if is_bound else ())
    found = overhead_of([file(tmp_path / "a.jsonl", [line])], trace, known, "torch", 1, 10**6)

    low_s, high_s = stats.median_interval(times["samples_s"])
    kernels = predict(trace, known, "torch", 1, 10**6, None).known
    assert found.seconds == pytest.approx(max(0.0, 1.495e-3 - kernel_s))
    assert found.low_s == pytest.approx(max(0.0, low_s - kernels.high_s))
    assert found.high_s == pytest.approx(max(0.0, high_s - (kernels.low_s or 0.0)))
    assert 0 <= found.low_s <= found.seconds <= found.high_s
