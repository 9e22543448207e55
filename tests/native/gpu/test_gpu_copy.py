"""Copies within the memory of a GPU through the fake runtimes of both vendors."""

import pytest

from deepbench.core.case import parse_case
from deepbench.judge import limits
from deepbench.measuring import probes


@pytest.mark.parametrize(("backend", "version"), [("cudart", "13.0"), ("hiprt", "6.3.42134")])
def test_a_copy_is_checked_and_timed(gpu, backend, version):
    record = gpu(f"memory kind=copy n=1002 forward f32 {backend} threads=1")

    assert ("ok", None) == (record["status"], record["reason"])
    assert version == record["library"]["version"] == record["library"]["card"]["runtime"]
    assert 8 * 1002 == record["traffic_bytes"]


def test_other_kinds_are_unsupported(gpu):
    record = gpu("memory kind=triad n=1002 forward f32 cudart threads=1")

    assert "unsupported" == record["status"]
    assert "choose kind=copy" in record["reason"]


def test_the_probe_of_a_devices_memory_gives_a_limit(gpu, monkeypatch):
    for module in (limits, probes):
        monkeypatch.setattr(module, "DEVICE_BYTES", 2**20)
    probe = probes.copy_probes("cudart")[0]
    line = probe.measure(lambda case: gpu(case.text))
    known = limits.Limits([line])

    assert ("cuda", "copy", 2**20) == (line["device"], line["kind"], line["bytes"])
    assert line["bytes_per_s"] == known.dram(1, "cuda")
    assert known.dram(1, "hip") is known.dram(1) is None
    assert {"memory": line["bytes_per_s"]} == known.levels(1, "cuda")


def test_the_case_of_the_probe_parses():
    sizes = [8 * parse_case(probe.cases[0].text).problem.n for probe in probes.copy_probes("hiprt")]

    assert limits.DEVICE_BYTES == min(sizes)
    assert len(sizes) > 1
