"""What a prediction takes from files: the size of caches, and times of few samples."""

import pytest

from deepbench.core.case import parse_case
from deepbench.judge.limits import Limits
from deepbench.machine import describe
from deepbench.measuring import probes
from deepbench.networks.predictions.forecast import capacity, times_of
from deepbench.networks.predictions.predict import FEW_SAMPLES
from deepbench.results.file import read_results
from tests.help import samples

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
    found, _ = times_of([file(tmp_path / "a.jsonl", [record])], []).of(parse_case(record["case"]))

    assert (found.low_s, found.high_s) == pytest.approx(
        ((1 - FEW_SAMPLES) * found.seconds, (1 + FEW_SAMPLES) * found.seconds)
    )
