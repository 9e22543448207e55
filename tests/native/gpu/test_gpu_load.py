"""Loads of seconds, one clock for all samples, the median of processes, and GPUs that take one process at a time."""

import random
from statistics import median

import pytest

from deepbench.core import stats
from deepbench.core.case import parse_case
from deepbench.judge import compare
from deepbench.judge.limits import Limits
from deepbench.measuring.heat import Rival, measure_heat
from deepbench.measuring.parent import open_backends
from deepbench.plan.modes import Rules
from deepbench.reporting.sections import sections
from deepbench.results.file import read_results
from deepbench.results.summary import summarize
from tests.help import samples
from tests.native.gpu.conftest import QUICK
from tests.native.gpu.test_gpu_faults import CASE, SMALL, device_of

SUSTAINED = Rules(least_samples=3, least_s=0.0, most_s=0.01, warm_up_s=0.005, sustained_s=0.5)


@pytest.mark.parametrize("backend", ["cublas", "hipblas"])
def test_a_long_load_keeps_clock_power_and_time_of_each_slice(gpu, backend):
    """The fake's clock falls from 900 to 700 MHz after 0.1 s of load, and each call then takes longer."""
    record = gpu(SMALL.replace("cublas", backend), SUSTAINED, FAKE_GPU_POWER_CAP="0.1")
    device = device_of(record)
    load = device["sustained"]

    assert 0.5 <= load["window_s"] < 2.5
    assert len(load["slices"]) >= 3
    assert 900 == load["slices"][0]["clock_mhz"]
    assert 700 == load["slices"][-1]["clock_mhz"]
    assert {250.0} == {s["watts"] for s in load["slices"]}
    assert sorted(s["at_s"] for s in load["slices"]) == [s["at_s"] for s in load["slices"]]
    late = load["slices"][len(load["slices"]) // 2 :]
    assert median(s["call_s"] for s in late) == load["call_s"]
    assert median(s["clock_mhz"] for s in late) == load["clock_mhz"] < 900
    assert load["call_s"] > 1.5 * min(record["measurement"]["samples_s"])
    assert "energy" not in device


def test_one_load_serves_energy_and_time(gpu):
    device = device_of(gpu(CASE, Rules(least_samples=3, most_s=0.01, energy_s=0.2, sustained_s=0.4)))

    assert device["sustained"]["window_s"] == device["energy"]["window_s"] >= 0.4
    assert device["sustained"]["calls"] == device["energy"]["calls"]


def test_the_table_has_the_time_under_load_next_to_the_short_one(gpu, monkeypatch):
    record = gpu(SMALL, SUSTAINED, FAKE_GPU_REASONS="0x4", FAKE_GPU_POWER_CAP="0.0001")
    (summary,) = found = summarize([record])
    text = str(sections(found, Limits()))

    assert summary.sustained_s == record["measurement"]["device"]["sustained"]["call_s"]
    assert 700 == summary.sustained_clock_mhz
    assert "sustained" in text
    assert "sustained: time per call after seconds of load" in text
    assert "throttled" in text


def test_sustained_is_for_gpus(deepbench):
    done = deepbench("run", "gemm m=3 n=4 k=5", "--backend", "null", "--sustained", "-o", "out.jsonl")

    assert 64 == done.returncode
    assert "--sustained loads a GPU" in done.stderr


def test_times_near_a_limit_between_two_clocks_do_not_alternate(gpu):
    """Calls of 50 µs: by the time of the sample before, one clock or the other would be chosen."""
    from deepbench.native.gpu import device

    fake = device.Gpu(device.Cuda())
    timer = fake.timer(lambda repeats: [fake.record(timer._start) for _ in range(repeats)], 1)
    timer(1)
    timer._call_s = 49e-6
    timer.settle()
    timer(4)
    clocks = {timer.clock}
    for call_s in (51e-6, 49e-6, 6e-3):
        timer._call_s = call_s
        timer(4)
        clocks.add(timer.clock)

    assert {"graph"} == clocks


def test_the_clock_is_settled_after_the_warm_up_and_before_the_samples(gpu, monkeypatch):
    from deepbench.measuring import worker
    from deepbench.measuring.launch import Request
    from deepbench.native.gpu import timing
    from tests.backends.test_backends import Parent

    known = []
    monkeypatch.setattr(timing.EventTimer, "settle", lambda timer: known.append(timer._call_s))
    record = worker.measure_alone(Request(parse_case(SMALL), 1, QUICK, 60.0), Parent())

    assert ("ok", None) == (record["status"], record["reason"])
    assert 1 == len(known)
    assert known[0] < 1e-3


# ---- the median of processes


def records(times, device="cuda"):
    made = [samples.measured(round_number=i + 1, seconds=t) for i, t in enumerate(times)]
    clock = {"clock": "graph", "fallback": None} if device == "cuda" else None
    return [{**r, "device": device, "measurement": {**r["measurement"], "device": clock}} for r in made]


def test_on_a_gpu_the_median_of_processes_counts():
    times = [1.0e-3, 1.1e-3, 1.2e-3, 1.3e-3, 1.4e-3]
    (gpu_summary,), (cpu,) = summarize(records(times)), summarize(records(times, "cpu"))

    assert 1.2e-3 == pytest.approx(gpu_summary.time_s, rel=1e-3)
    assert cpu.time_s < 1.15e-3
    assert gpu_summary.estimate.low_s < 1.1e-3
    assert gpu_summary.estimate.high_s > 1.3e-3


def test_its_interval_contains_the_truth_in_95_of_100_cases():
    rng = random.Random(3)
    for n in (2, 3, 5, 10):
        inside = 0
        for _ in range(2000):
            found = stats.estimate_device_time([rng.lognormvariate(0, 0.02) for _ in range(n)], [1.0] * n)
            inside += found.low_s <= 1 <= found.high_s
        assert 0.94 <= inside / 2000 <= 0.995


def test_comparisons_on_a_gpu_use_all_processes():
    """The faster halves are equal, the slower halves are not: on a GPU this is a difference."""
    a = records([1.0e-3, 1.001e-3, 1.002e-3, 1.003e-3, 1.004e-3])
    b = records([1.0e-3, 1.001e-3, 1.002e-3, 1.2e-3, 1.21e-3])
    on_gpu, _ = compare.difference_of_rounds(a, b, False)
    cpu = [[{**r, "measurement": {**r["measurement"], "device": None}} for r in side] for side in (a, b)]
    on_cpu, _ = compare.difference_of_rounds(*cpu, False)

    assert on_gpu.mean > 0.05
    assert abs(on_cpu.mean) < 1e-3
    rng = random.Random(5)
    sides = ([[rng.lognormvariate(0, 0.02) for _ in range(5)] for _ in range(2)] for _ in range(2000))
    alarms = sum(stats.device_difference(x, y).p < 0.05 for x, y in sides)
    assert 0.03 < alarms / 2000 < 0.07


def test_the_load_of_other_programs_explains_no_difference_on_the_clock_of_a_gpu():
    for clock, wanted in (({"clock": "graph", "fallback": None}, None), (None, (0.0, 1.5))):
        sides = [
            summarize(
                [
                    {**r, "measurement": {**r["measurement"], "device": clock, "other_cpus": other}}
                    for r in records([1e-3, 1.01e-3, 1.02e-3])
                ]
            )[0]
            for other in (0.0, 1.5)
        ]
        case = compare.ComparedCase("case", *sides, None, False, None, 0.02)

        assert wanted == case.other_load


# ---- one process at a time


def test_libraries_of_a_gpu_are_opened_one_after_the_other(gpu, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_GPU_EXCLUSIVE", str(tmp_path / "lock"))
    answers = open_backends(["null", "cublas", "cublaslt", "cudart", "reference"], 60.0)

    assert [] == [(n, a["unavailable"]["reason"]) for n, a in answers.items() if "unavailable" in a]


def test_rivals_on_a_gpu_in_exclusive_mode_are_measured_alone(gpu, deepbench, tmp_path):
    words = ("gemm m=8 n=8 k=8", "--device", "cuda", "--backend", "cublas,cublaslt", "--precision", "f32", "--quick")
    environment = {"FAKE_GPU_EXCLUSIVE": str(tmp_path / "lock"), "FAKE_GPU_MEMORY": str(80 * 2**20)}
    done = deepbench("run", *words, "-o", "out.jsonl", **environment)

    assert 0 == done.returncode, done.stderr
    found = read_results(tmp_path / "out.jsonl").records
    assert {"cublas": "ok", "cublaslt": "ok"} == {r["backend"]: r["status"] for r in found}


def test_a_gpu_that_another_process_uses_exclusively_is_unavailable(gpu, tmp_path, monkeypatch):
    import fcntl

    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setenv("FAKE_GPU_EXCLUSIVE", str(tmp_path / "lock"))
        (answer,) = open_backends(["cublas"], 60.0).values()

    assert "the NVIDIA GPU cannot be used" in answer["unavailable"]["reason"]
    assert "exclusive mode" in answer["unavailable"]["remedy"]


def test_collectives_on_one_gpu_are_one_line(gpu, deepbench, tmp_path):
    cases = [f"all_reduce n=1000 ranks={ranks}" for ranks in (2, 3, 4, 8)]
    words = (*cases, "gemm m=8 n=8 k=8", "--backend", "nccl,cublas", "--quick", "-o", "out.jsonl")
    done = deepbench("run", *words, FAKE_GPU_MEMORY=str(80 * 2**20), FAKE_GPU_LOG=str(tmp_path / "log"))

    assert 0 == done.returncode, done.stderr
    lines = [line for line in done.stdout.splitlines() if "each rank needs a GPU of its own" in line]
    assert "NCCL unsupported: each rank needs a GPU of its own, and this machine has 1 GPU (4 cases)" in lines
    assert len(lines) <= 2  # the other one is the summary
    assert "rank " not in (tmp_path / "log").read_text()


def test_rivals_of_a_heat_are_no_other_programs(gpu, monkeypatch):
    """The driver counts the process of a rival, which is stopped meanwhile."""
    monkeypatch.setenv("FAKE_GPU_OTHERS", "1")
    alone = gpu(CASE)
    both = measure_heat(
        [Rival(parse_case(CASE)), Rival(parse_case(CASE.replace("cublas", "cublaslt")))], 1, QUICK, 60.0
    )

    assert "shared_card" in [w["code"] for w in alone["warnings"]]
    assert ["ok", "ok"] == [r["status"] for r in both]
    assert [] == [w for r in both for w in r["warnings"] if w["code"] == "shared_card"]


# ---- hot and cold


def test_hot_and_cold_times_stand_next_to_each_other(gpu, deepbench):
    words = ("gemm m=32 n=8 k=32", "--device", "cuda", "--backend", "cublas", "--set", "cache=hot,cold", "--quick")
    done = deepbench("run", *words, "-o", "out.jsonl", FAKE_GPU_MEMORY=str(80 * 2**20))
    assert 0 == done.returncode, done.stderr
    full = deepbench("show", "out.jsonl", "--full").stdout

    assert "cold: the same with buffers that take turns" in done.stdout
    for text in (done.stdout, full):
        head = next(line for line in text.splitlines() if " cold " in f"{line} ")
        assert head.index("time") < head.index("cold")


# ---- 8-bit suites


def test_8_bit_rows_of_a_suite_say_what_is_required_or_run_packed(gpu, deepbench):
    """Rows of `deepbench/server` have A as stored. The smallest ones of both kinds."""
    lines = deepbench("list", "deepbench/server", "--op", "gemm", "--device", "cuda", "--precision", "f8e4m3,i8",
                      "--backend", "cublaslt", "--set", "weights=plain,packed").stdout.splitlines()  # fmt: skip
    cases = [parse_case(line) for line in lines if line.startswith("gemm ")]
    assert len(cases) >= 200
    divisible = [c for c in cases if c.problem.m % 16 == c.problem.k % 16 == 0 and not c.problem.a_t]
    assert len(divisible) >= 100
    shape = min((c.problem for c in divisible), key=lambda p: (p.m * p.n * p.k, p.m))
    small = f"gemm m={shape.m % 64 + 16} n={min(shape.n, 4)} k={shape.k % 64 + 16} forward"
    plain, packed = (gpu(f"{small} f8e4m3 cublaslt threads=1 {s}") for s in ("", "weights=packed"))

    assert "unsupported" == plain["status"]
    assert plain["reason"].endswith("a_t=1 (or weights=packed), b_t=0, and m and k that are multiples of 16")
    assert "ok" == packed["status"], packed["reason"]
