"""Which limits a run measures, what it takes from earlier runs, and rates above the measured peak."""

from datetime import UTC, datetime

import pytest

from deepbench.core.case import parse_case
from deepbench.judge.limits import Limits
from deepbench.machine import remembered
from deepbench.measuring import probes
from deepbench.measuring.probes import Prober
from deepbench.results.schema import schema_error
from tests.help import samples

MACHINE = {"cpu": "a CPU"}


def line(**values):
    return {"threads": 1, "at": "2026-11-21T00:00:00+00:00", "case": "a probe", **values}


def test_a_run_on_a_device_measures_its_memory():
    case = parse_case("gemm m=64 n=64 k=64 forward f32 cublas threads=1")
    copies = [p for p in probes.probes_for([case], ["cublas", "cudart", "mkl", "loops"]) if p.what == "memory"]

    texts = [c.text for p in copies for c in p.cases]
    assert [f"memory kind=copy n={n} forward f32 cudart threads=1" for n in (2**27, 2**24 * 9)] == texts


CHOSEN = [parse_case("gemm m=9 n=9 k=9 a_t=0 b_t=0 forward f16 mkl threads=2")]


def lines_of(needed, **values):
    """A line for each probe, as if it had been measured."""
    lines = []
    for p in needed:
        fields = (
            {"precision": p.cases[0].precision.name, "device": "cpu", "flop_per_s": 1e9} if p.what == "compute" else {}
        )
        lines.append(line(what=p.what, case=p.cases[0].text, seconds=1.0, **fields, **values) | {"threads": 2})
    return lines


def test_only_unknown_limits_are_measured():
    needed = probes.probes_for(CHOSEN, ["mkl", "loops"])
    known = lines_of(needed)
    old = lines_of(needed, disturbed=True)
    new = [{**limit, "at": datetime.now(UTC).isoformat()} for limit in old]

    assert [("compute", "f32"), ("compute", "f16")] == [p.key[:2] for p in needed if p.what == "compute"]
    assert len(probes.COARSE) + 2 == sum(p.what != "compute" for p in needed)
    assert [] == probes.missing(needed, known, [])
    main_memory = [p for p in needed if p.key == ("memory", probes.memory_probe("read", 2**29, 2).cases[0].text)]
    assert [*needed[:2], *main_memory] == probes.missing(needed, [], known)  # these are new for each file
    now = [{**limit, "at": datetime.now(UTC).isoformat()} for limit in known]
    assert needed[:2] == probes.missing(needed, [], now)  # memory was measured within the hour
    assert 1 == len(main_memory)
    assert needed[2:] == probes.missing(needed, old, [])
    assert [] == probes.missing(needed, new, [])


def test_a_budget_leaves_no_time_for_other_probes_than_those_of_peaks():
    needed = probes.probes_for(CHOSEN, ["mkl", "loops"])
    always = [p for p in needed if p.is_for_every_file]  # peaks and the bandwidth of main memory
    others_s = probes.PROBE_S * (len(needed) - len(always))

    assert always == probes.missing(needed, [], [], 0.9 * others_s / probes.MOST_OF_BUDGET)
    assert needed == probes.missing(needed, [], [], 1.1 * others_s / probes.MOST_OF_BUDGET)


def test_backends_that_do_not_compute_need_no_limits():
    case = parse_case("gemm m=9 n=9 k=9 i8 forward null threads=1")

    assert [] == probes.probes_for([case], ["mkl", "loops"])


def test_only_libraries_that_compute_set_the_peak():
    libraries = ["mkl", "null", "openblas"]

    assert {"mkl", "openblas"} == {c.backend for c in probes.compute_probe("f32", "cpu", 2, libraries).cases}
    assert {"mkl"} == {c.backend for c in probes.compute_probe("f16", "cpu", 2, libraries).cases}


def test_a_run_measures_what_is_unknown_and_takes_the_rest_from_earlier_runs(tmp_path, monkeypatch):
    monkeypatch.setenv(remembered.STATE, str(tmp_path))
    call = line(what="call", backend="mkl", library="MKL 1", seconds=2e-6)
    call["case"] = "gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32 mkl threads=2"
    probes.remember(MACHINE, call | {"threads": 2})
    probes.remember(MACHINE, samples.peak(9e9, threads=2))
    remembered.remember(MACHINE, "limits", {"what": "no limit"})
    stored, titles = [], []
    known = Limits()
    prober = Prober(known, ["mkl"], probe_at(1e9), stored.append)
    prober.complete(CHOSEN, MACHINE, lambda activity: titles.append(activity.text))

    assert ["peak rate in f32", "peak rate in f16"] == titles
    assert stored == known.lines
    assert [("f32", 1e9), ("f16", 1e9)] == [(k["precision"], k["flop_per_s"]) for k in stored[:2]]
    assert {"call", "compute"} == {k["what"] for k in stored[2:]}
    assert 9e9 == known.peak("f16", "cpu", 2)
    assert 2 == len(probes.recall(MACHINE))  # peaks of this run are not for later ones


def test_the_answer_is_a_limit_of_the_case():
    record = samples.measured(seconds=1e-3)
    found = probes.answer(record)

    assert schema_error({"limit": found}) is None
    assert ("threads", record["case"], 1) == (found["what"], found["case"], found["threads"])
    assert 1e-3 == pytest.approx(found["seconds"], rel=0.01)
    assert probes.answer(samples.failed("crashed", "why")) is None


@pytest.mark.parametrize(("others", "threads", "disturbed"), [(0.1, 2, False), (1.0, 1, False), (1.0, 2, True)])
def test_a_probe_is_disturbed_if_its_threads_cannot_all_run(others, threads, disturbed):
    record = samples.measured(text=f"gemm m=1 n=1 k=1 forward f32 mkl threads={threads}")
    record["measurement"]["other_cpus"] = others
    record["process"]["cpus"] = [0, 1]

    assert disturbed == probes.Probe("call", ()).limit(record)["disturbed"]


# ---- rates above the peak

FLOP = 2 * 2 * 3 * 4


def probe_at(rate):
    def measure(case, rules):
        record = samples.measured(case.backend, text=case.text)
        record["measurement"]["samples_s"] = [record["flop"] / rate] * 10
        return record

    return measure


def judged(rate, peaks, probed, stored):
    """A record at this rate, judged while probes reach `probed`."""
    return Prober(peaks, ["mkl"], probe_at(probed), stored.append).judge(samples.measured(seconds=FLOP / rate))


def test_a_rate_below_the_peak_stays():
    stored = []

    assert "ok" == judged(0.9e9, Limits([samples.peak(1e9)]), 1e9, stored)["status"]
    assert [] == stored


def test_a_rate_above_the_peak_is_wrong_after_further_probes():
    stored = []
    record = judged(3e9, Limits([samples.peak(1e9)]), 1e9, stored)

    assert "wrong" == record["status"]
    assert "above the measured peak" in record["reason"]
    assert probes.MOST_PROBES == len(stored)


def test_probes_of_a_slow_minute_do_not_judge_later_results():
    stored = []

    assert "ok" == judged(3e9, Limits([samples.peak(1e9)] * 10), 2.9e9, stored)["status"]
    assert 1 == len(stored)


def test_weights_that_were_packed_ahead_raise_a_peak_that_was_measured_too_low():
    """What packs within the call may be slower than what the record did."""
    asked, usual = [], probe_at(1e9)

    def measure(case, rules):
        asked.append(case.settings["weights"])
        return probe_at(2.9e9)(case, rules) if asked[-1] == "packed" else usual(case, rules)

    prober = Prober(Limits([samples.peak(1e9)]), ["mkl"], measure, [].append)

    assert "ok" == prober.judge(samples.measured(seconds=FLOP / 3e9))["status"]
    assert {"plain", "packed"} == set(asked)


def test_a_peak_that_was_measured_too_low_is_raised_and_stored():
    stored = []
    peaks = Limits([samples.peak(1e9)])

    assert "ok" == judged(3e9, peaks, 2.9e9, stored)["status"]
    assert 2.9e9 == stored[0]["flop_per_s"] == peaks.peak("f32", "cpu", 1)


def test_the_number_of_probes_is_limited():
    stored = []
    peaks = Limits([samples.peak(1e9)])
    for _ in range(20):
        judged(3e9, peaks, 1e9, stored)

    assert probes.MOST_PROBES == len(stored)


def test_a_rate_above_the_peak_of_all_probes_is_wrong():
    assert "wrong" == judged(3e9, Limits([samples.peak(1e9)]), 1e9, [])["status"]


def test_nothing_is_judged_without_a_peak():
    assert "ok" == judged(1e15, Limits(), 1.0, [])["status"]
