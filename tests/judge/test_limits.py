"""Peaks, bandwidths and call times; which limit a case is closest to."""

import pytest

from deepbench.judge import limits
from deepbench.judge.limits import Limits
from deepbench.results import summary
from deepbench.results.file import ResultFile
from tests.help import samples

MACHINE = {
    "caches": [
        {"level": 1, "bytes": 2**15, "shared_by": "0"},
        {"level": 2, "bytes": 2**19, "shared_by": "0"},
        {"level": 3, "bytes": 2**25, "shared_by": "0-3"},
    ]
}


def line(**values):
    return {"threads": 1, "at": "2026-11-21T00:00:00+00:00", "case": "a probe", **values}


CALL = "gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32 mkl threads=1"

# 100 GB/s from the first level, 50, 20, and 10 from memory; an answer of MKL takes a microsecond.
LINES = [
    *(
        line(what="memory", device="cpu", kind="read", bytes=size, bytes_per_s=rate, seconds=1e-3)
        for size, rate in ((2**14, 1e11), (2**18, 5e10), (2**24, 2e10), (2**29, 1e10))
    ),
    line(what="call", backend="mkl", library="MKL 1", seconds=1e-6, case=CALL),
]
PEAK = samples.peak(1e12)


def nearest(text, seconds, more=(), peaks=(PEAK,), lines=LINES, machine=MACHINE):
    records = [samples.measured(seconds=s, text=t) for t, s in [(text, seconds), *more]]
    summaries = summary.summarize(records)
    return learned([*lines, *peaks], summaries, machine).nearest(summaries[0])


def learned(lines, summaries, machine=MACHINE):
    header = {**samples.header(), "machine": machine}
    return limits.of_file(ResultFile("mine.jsonl", header, limits=list(lines)), summaries)


GEMM = "gemm m={} n={} k={} a_t=0 b_t=0 forward f32 mkl threads=1{}"


def test_work_that_a_library_may_skip_is_not_part_of_the_share():
    """Of 49 places of this filter nine see the image, the others its padding: five times the rate of anything else."""
    padded = "conv n=2 c=2048 h=7 w=7 k=512 r=1 s=1 pad_h=3 pad_w=3 stride_h=2 stride_w=2 forward f32 onednn threads=1"
    (s,) = summary.summarize([samples.measured("onednn", 1e-3, text=padded)])
    peak = s.flop_per_s * 9 / 49

    assert 1 == pytest.approx(learned([samples.peak(peak)], [s]).nearest(s).share)


def test_a_large_product_is_compute_bound():
    limit = nearest(GEMM.format(1024, 1024, 1024, ""), 4e-3)  # 2.1 ms at a TFLOP/s, 1.3 ms of memory

    assert "compute" == limit.name
    assert 2 * 1024**3 / 1e12 / 4e-3 == pytest.approx(limit.share, rel=0.01)
    assert 2 * 1024**3 / (4 * 4 * 1024**2) == pytest.approx(limit.intensity)
    assert "compute 54 %, L1 42 %" in limit.evidence


@pytest.mark.parametrize(("side", "level"), [(60, "L1"), (250, "L2"), (2000, "L3"), (20000, "memory")])
def test_a_matrix_times_a_vector_is_bound_by_the_level_that_holds_it(side, level):
    """The time is 1.5 times that of reading at the level's rate."""
    rate = {"L1": 1e11, "L2": 5e10, "L3": 2e10, "memory": 1e10}[level]
    limit = nearest(GEMM.format(side, 1, side, ""), 1.5 * 4 * side * side / rate, lines=LINES[:-1])

    assert level == limit.name
    assert 1 / 1.5 == pytest.approx(limit.share, abs=0.05)


def test_a_limit_that_explains_less_than_half_of_the_time_is_not_named():
    limit = nearest(GEMM.format(1024, 1024, 1024, ""), 5 * 2 * 1024**3 / 1e12, lines=LINES[:-1])

    assert ("unexplained", "compute") == (limit.name, limit.nearest)
    assert "unexplained (compute 20 %)" == str(limit)


PRODUCT = GEMM.format(1024, 1024, 1024, "")
AT_PEAK_S = 2 * 1024**3 / 1e12


@pytest.mark.parametrize("share", [1.05, 1.64, 2.06])
def test_a_case_that_is_faster_than_its_limit_has_no_share_of_it(share):
    limit = nearest(PRODUCT, AT_PEAK_S / share, lines=LINES[:-1])

    assert (None, "compute", "unknown") == (limit.share, limit.nearest, limit.name)
    assert "compute unknown (the probe was slower than the case)" in limit.evidence
    assert "%" not in str(limit)


def test_a_case_that_is_as_fast_as_its_limit_has_all_of_it():
    limit = nearest(PRODUCT, AT_PEAK_S / 1.01, lines=LINES[:-1])

    assert (1.0, "compute") == (limit.share, limit.name)


@pytest.mark.parametrize("share", [0.6, 0.9, 2.06])
def test_a_peak_that_other_programs_disturbed_gives_no_share(share):
    limit = nearest(PRODUCT, AT_PEAK_S / share, peaks=[{**PEAK, "disturbed": True}], lines=LINES[:-1])

    assert (None, "compute", "unknown") == (limit.share, limit.nearest, limit.name)
    assert "compute unknown (other programs disturbed the probe)" in limit.evidence
    # One probe that was left alone is enough.
    quiet = nearest(PRODUCT, AT_PEAK_S / 0.6, peaks=[{**PEAK, "disturbed": True}, PEAK], lines=LINES[:-1])
    assert ("compute", 0.6) == (quiet.name, pytest.approx(quiet.share, rel=1e-2))


def test_a_limit_that_is_too_low_can_still_explain_too_little():
    limit = nearest(PRODUCT, AT_PEAK_S / 0.2, peaks=[{**PEAK, "disturbed": True}], lines=LINES[:1])

    assert (None, "unexplained") == (limit.share, limit.name)
    assert "compute at most 20 % (other programs disturbed the probe)" in limit.evidence


def test_a_limit_above_one_that_is_too_low_is_trusted():
    """The matrix is read from memory at 80 % of its rate; arithmetic explains less, even at a peak that is too low."""
    disturbed = [{**samples.peak(1e10), "disturbed": True}]
    limit = nearest(GEMM.format(20000, 1, 20000, ""), 1.25 * 4 * 20000**2 / 1e10, peaks=disturbed)

    assert ("memory", 0.8) == (limit.name, pytest.approx(limit.share, abs=0.01))
    assert "compute at most" in limit.evidence


def test_cold_data_come_from_memory_however_small():
    limit = nearest(GEMM.format(300, 1, 300, " cache=cold"), 8 * 300 * 300 / 1e10)

    assert "memory" == limit.name


def test_a_tiny_product_is_bound_by_call_overhead():
    limit = nearest(GEMM.format(8, 8, 8, ""), 1.5e-6)

    assert "latency" == limit.name
    assert "call overhead 67 %" in limit.evidence


def test_threads_that_gain_nothing_are_reported():
    text = "gemm m=64 n=64 k=640 a_t=0 b_t=0 forward f32 mkl threads=2"
    two = [{**entry, "threads": 2} for entry in LINES[:-1]]
    peaks = [samples.peak(2e11, threads=2)]
    more = [(text.replace("threads=2", "threads=1"), 55e-6)]

    assert "parallelism" == nearest(text, 50e-6, more, peaks, two).name
    assert "1 thread is 10.0 % slower" in nearest(text, 50e-6, more, peaks, two).evidence
    assert "compute" == nearest(text, 30e-6, more, peaks, two).name


def test_threads_that_gain_nothing_explain_what_no_other_limit_does():
    text = "gemm m=64 n=64 k=640 a_t=0 b_t=0 forward f32 mkl threads=2"
    two = [{**entry, "threads": 2} for entry in LINES[:-1]]
    peaks = [samples.peak(2e11, threads=2)]
    asked = line(what="threads", case=text.replace("threads=2", "threads=1"), backend="mkl", library="MKL 1")

    def limit(seconds_with_one, **values):
        return nearest(text, 100e-6, (), peaks, [*two, {**asked, "seconds": seconds_with_one, **values}])

    assert ("unexplained", "compute") == (limit(160e-6).name, limit(160e-6).nearest)
    assert "parallelism 70 %" == str(limit(130e-6))
    assert "serial part 70 %" in limit(130e-6).evidence
    assert "parallelism 100 %" == str(limit(50e-6))
    assert "(fewer threads are faster)" in limit(50e-6).evidence
    assert "unexplained" == limit(130e-6, disturbed=True).name


@pytest.mark.parametrize(
    ("conversion_s", "name", "share"),
    [(None, "unexplained", 0.4), (0.3e-3, "compute", 0.7), (0.5e-3, "conversion", 0.9), (2e-3, "unexplained", 0.4)],
)
def test_layout_conversions_within_a_call_add_to_the_limits_of_its_kernel(conversion_s, name, share):
    """A convolution of 0.4 ms at the peak rate that takes a millisecond; longer than the call makes no sense."""
    text = "conv n=1 c=256 h=14 w=14 k=1024 r=1 s=1 forward f32 onednn threads=1"
    record = samples.measured("onednn", 1e-3, text=text)
    record["notes"] |= {} if conversion_s is None else {"conversion_s": conversion_s}
    (s,) = summary.summarize([record])
    limit = learned([samples.peak(record["flop"] / 0.4e-3)], [s]).nearest(s)

    assert name == limit.name, limit.evidence
    assert pytest.approx(share, rel=1e-3) == limit.share


def on_a_card(text, seconds, cache_bytes=50 * 2**20):
    record = samples.measured("cublas", seconds, text=text)
    return {**record, "library": {**record["library"], "card": {"cache_bytes": cache_bytes}}}


COPY = line(what="memory", device="cuda", kind="copy", bytes=limits.DEVICE_BYTES, bytes_per_s=2e12, seconds=5e-4)
CARD_PEAK = {**samples.peak(5e13), "device": "cuda"}


@pytest.mark.parametrize(("n", "name"), [(1, "memory"), (4096, "compute")])
def test_a_device_has_a_memory_limit(n, name):
    """A matrix-vector product of 256 MiB of weights takes 134 µs at 2 TB/s."""
    text = f"gemm m=8192 n={n} k=8192 a_t=0 b_t=0 forward f32 cublas threads=1"
    best = max((8192 * 8192 + 2 * 8192 * n) * 4 / 2e12, 2 * 8192 * 8192 * n / 5e13)
    summaries = summary.summarize([on_a_card(text, best / 0.9)])
    limit = learned([COPY, CARD_PEAK], summaries, {}).nearest(summaries[0])

    assert name == limit.name, limit.evidence
    assert pytest.approx(0.9, abs=0.02) == limit.share


@pytest.mark.parametrize("cache_bytes", [2**30, None])
def test_data_that_the_cache_of_a_device_may_hold_have_no_memory_limit(cache_bytes):
    text = "gemm m=8192 n=1 k=8192 a_t=0 b_t=0 forward f32 cublas threads=1"
    summaries = summary.summarize([on_a_card(text, 2e-4, cache_bytes)])
    limit = learned([COPY, CARD_PEAK], summaries, {}).nearest(summaries[0])

    assert limits.UNEXPLAINED == limit.name
    assert "memory" not in limit.evidence


def test_where_memory_is_the_limit_more_threads_cannot_help():
    text = GEMM.format(20000, 1, 20000, "").replace("threads=1", "threads=2")
    two = [{**entry, "threads": 2} for entry in LINES[:-1]]
    alone = (text.replace("threads=2", "threads=1"), 0.2)

    assert "memory" == nearest(text, 0.2, [alone], [samples.peak(2e12, threads=2)], two).name


@pytest.mark.parametrize(("slowdown", "share"), [(2.0, 0.0), (1.5, 0.5), (1.0, 1.0), (0.5, 1.5)])
def test_amdahls_law(slowdown, share):
    assert share == pytest.approx(limits.serial_share(slowdown, 1, 2))


LSTM = "recurrent cell=lstm hidden={} batch=1 timesteps={} forward f32 onednn threads=1"


@pytest.mark.parametrize(("hidden", "level"), [(128, "L2"), (512, "L3"), (2048, "memory")])
def test_a_recurrent_layer_reads_its_weights_in_every_step_from_the_level_that_holds_them(hidden, level):
    rate = {"L2": 5e10, "L3": 2e10, "memory": 1e10}[level]
    limit = nearest(LSTM.format(hidden, 50), 1.25 * 50 * 16 * hidden**2 / rate)

    assert level == limit.name
    assert 0.8 == pytest.approx(limit.share, abs=0.05)


def test_dependent_steps_cost_their_share_of_the_smallest_layer():
    call = line(what="call", backend="onednn", library="oneDNN 3", seconds=64e-6, case=LSTM.format(1, 32))
    limit = nearest(LSTM.format(16, 100), 250e-6, lines=[*LINES, call])

    assert "latency 80 %" == str(limit)
    assert "call overhead 80 % (100 steps)" in limit.evidence
    disturbed = {**call, "disturbed": True}
    assert "unexplained" == nearest(LSTM.format(16, 100), 250e-6, lines=[*LINES, disturbed]).name


def test_evidence_says_that_only_disturbed_probes_of_memory_are_known():
    lines = [{**entry, "disturbed": True} for entry in LINES[:-1]]
    limit = nearest(GEMM.format(2000, 1, 2000, ""), 1e-3, lines=lines)

    assert ("unknown", "L3", None) == (limit.name, limit.nearest, limit.share)
    assert "L3 unknown (other programs disturbed the probe)" in limit.evidence
    assert "disturbed" not in nearest(GEMM.format(60, 1, 60, ""), 1e-6).evidence


def test_threads_wait_for_each_other_in_every_step():
    text = LSTM.format(64, 100).replace("threads=1", "threads=2")
    start = line(
        what="memory", device="cpu", kind="read", bytes=256, bytes_per_s=1e9, seconds=2e-6, case="memory kind=read n=64"
    )
    lines = [{**entry, "threads": 2} for entry in [*LINES, start]]

    assert "latency 80 %" == str(nearest(text, 250e-6, peaks=(), lines=lines))
    assert "(100 starts of 2 threads)" in nearest(text, 250e-6, peaks=(), lines=lines).evidence
    # In less than this time, the threads cannot have waited for each other in every step.
    assert "latency" != nearest(text, 190e-6, peaks=(), lines=lines).nearest


@pytest.mark.parametrize(("switches", "crowded"), [(10, False), (200, True)])
def test_a_long_first_call_that_was_stopped_often_was_not_alone(switches, crowded):
    record = samples.measured(seconds=1.0)
    record["measurement"] |= {"samples_s": [1.0], "involuntary_switches": [switches], "stopped": "first_call"}

    assert crowded == limits.is_crowded(record)


def test_gathers_are_slower_than_reading():
    text = "sparse_gemm m=1000 n=4 k=1000 sparsity=90 forward f32 mkl threads=1"  # 400,000 gathers
    gather = line(what="memory", device="cpu", kind="gather", bytes=2**14, bytes_per_s=8e9, seconds=1e-3)
    limit = nearest(text, 500e-6, lines=[*LINES, gather])

    assert ("L1", 0.8) == (limit.name, pytest.approx(limit.share, abs=0.01))
    assert "L1 80 % (gathers)" in limit.evidence
    assert "unexplained" == nearest(text, 500e-6).name


def test_a_direct_convolution_is_judged_by_the_products_that_it_makes():
    text = "conv n=8 c=64 h=56 w=56 k=64 r=3 s=3 pad_h=1 pad_w=1 forward f32 onednn threads=1"
    record = samples.measured("onednn", 20e-3, text=text)
    direct = {**record, "notes": {"algorithm": "direct"}}
    limit_of = lambda r: learned([samples.peak(2e11)], s := summary.summarize([r])).nearest(s[0])  # noqa: E731

    assert limit_of(direct).share == pytest.approx(4 * limit_of(record).share)
    assert "(direct algorithm)" in limit_of(direct).evidence


def test_a_record_of_an_unknown_operation_is_judged_by_what_it_states():
    record = samples.measured(seconds=1.25e-3, text=GEMM.format(20000, 1, 1, ""))
    record |= {"case": "unknown x=1", "op": "unknown", "traffic_bytes": 2**27, "least_flop": None, "flop": 0}
    (s,) = summary.summarize([record])

    assert "memory" == learned([*LINES, PEAK], [s]).nearest(s).nearest


def test_a_disturbed_time_with_fewer_threads_says_nothing():
    text = "gemm m=64 n=64 k=640 a_t=0 b_t=0 forward f32 mkl threads=2"
    two = [{**entry, "threads": 2} for entry in [*LINES[:-1], samples.peak(2e11)]]
    one = text.replace("threads=2", "threads=1")
    names = []
    for record in (samples.measured(seconds=50e-6, text=one), samples.disturbed(seconds=50e-6, text=one)):
        summaries = summary.summarize([samples.measured(seconds=100e-6, text=text), record])
        names.append(learned(two, summaries).nearest(summaries[0]).name)

    assert ["parallelism", "unexplained"] == names


def test_a_cache_that_is_no_faster_than_memory_does_not_count():
    """A virtual machine may report 480 MB that it cannot use: reads of that size are no faster than memory."""
    machine = {"caches": [*MACHINE["caches"][:2], {"level": 3, "bytes": 480 * 2**20, "shared_by": "0-3"}]}
    limit = nearest(GEMM.format(8000, 1, 8000, ""), 0.05, machine=machine)

    assert "memory" == limit.name


def test_no_limit_is_named_if_none_is_known():
    assert nearest(GEMM.format(64, 64, 64, ""), 1e-3, peaks=(), lines=()) is None
    records = [samples.measured(backend="null", status="unchecked")]
    summaries = summary.summarize(records)
    assert learned([], summaries).nearest(summaries[0]) is None


def test_the_fastest_of_several_probes_counts():
    known = [line(what="call", backend="mkl", library="MKL 1", case="c", seconds=s) for s in (3e-6, 1e-6, 2e-6)]
    known += [samples.peak(rate) for rate in (1e9, 3e9, 2e9)]

    assert [1e-6, 1e-3] == [entry["seconds"] for entry in limits.best(known).values()]
    assert 3e9 == Limits(known).peak("f32", "cpu", 1)


# ---- whether more threads help


def questions(seconds, more=(), lines=LINES, text="gemm m=64 n=64 k=640 a_t=0 b_t=0 forward f32 mkl threads=2"):
    records = [samples.measured(seconds=s, text=t) for t, s in [(text, seconds), *more]]
    summaries = summary.summarize(records)
    two = [{**entry, "threads": 2} for entry in lines]
    known = learned([*two, samples.peak(2e11, threads=2)], summaries)
    return [case.text for case in limits.open_questions(known, summaries)]


def test_only_unexplained_cases_are_measured_with_one_thread():
    one = "gemm m=64 n=64 k=640 a_t=0 b_t=0 forward f32 mkl threads=1"
    other = "gemm m=64 n=64 k=640 a_t=0 b_t=0 forward f32 onednn threads=2"

    assert [one] == questions(100e-6)
    assert [] == questions(30e-6)  # compute explains it
    assert [] == questions(100e-6, [(one, 90e-6)])  # known
    assert [one.replace("mkl", "onednn")] == questions(100e-6, [(other, 90e-6)])  # the fastest library
    assert [] == questions(1.01 * limits.LONGEST_QUESTION_S)


def test_a_result_among_other_programs_says_nothing_about_threads():
    text = "gemm m=64 n=64 k=640 a_t=0 b_t=0 forward f32 mkl threads=2"
    record = samples.measured(seconds=100e-6, text=text)
    record["measurement"]["other_cpus"] = 1.5
    record["process"]["cpus"] = [0, 1]
    asked = line(what="threads", case=text.replace("threads=2", "threads=1"), backend="mkl", library="M", seconds=90e-6)
    lines = [*({**entry, "threads": 2} for entry in LINES), samples.peak(2e11, threads=2)]
    (s,) = summary.summarize([record])

    assert [] == limits.open_questions(learned(lines, [s]), [s])
    limit = learned([*lines, asked], [s]).nearest(s)
    assert "unexplained" == limit.name
    assert "other programs kept CPUs busy" in limit.evidence


def test_no_peak_is_below_that_of_f32():
    peaks = Limits([samples.peak(5e9), samples.peak(1e9, "f16")])

    assert 5e9 == peaks.peak("f16", "cpu", 1)
    assert 5e9 == peaks.peak("i8", "cpu", 1)
    assert peaks.peak("f32", "cpu", 2) is None


def test_results_do_not_raise_the_peak_that_they_are_judged_by():
    record = samples.measured(seconds=2 * 2 * 3 * 4 / 3e9)

    assert 1e9 == learned([samples.peak(1e9)], summary.summarize([record])).peak("f32", "cpu", 1)
