"""Totals of applications: their sums, intervals and energy, from handmade records and from published results."""

import pytest

from deepbench.judge import totals
from deepbench.plan.suites import read_suite
from deepbench.results import published
from deepbench.results.summary import summarize
from tests.help import samples


def ocr(seconds=1e-3, rounds=2, precision="i8"):
    """OCR on servers, in several processes, so that intervals are across processes."""
    made = []
    for number in range(1, rounds + 1):
        made += [{**r, "round": number} for r in samples.ocr(precision, seconds * (1 + 0.02 * number))]
    return made


def total_of(records):
    (total,) = totals.of_summaries(summarize(records))
    return total


def test_the_interval_of_a_total_goes_from_the_sum_of_low_ends_to_the_sum_of_high_ends():
    records = ocr(rounds=5)
    estimates = [s.estimate for s in summarize(records)]
    total = total_of(records)

    assert (4, 4, 0, 0) == (total.kernels, total.measured, total.disturbed, total.single_process)
    assert sum(e.time_s for e in estimates) == pytest.approx(total.time_s)
    assert sum(e.low_s for e in estimates) == pytest.approx(total.low_s)
    assert sum(e.high_s for e in estimates) == pytest.approx(total.high_s)
    assert total.low_s < total.time_s < total.high_s
    assert total.is_ranked


def test_kernels_of_one_process_are_counted_because_their_intervals_are_too_narrow():
    assert 4 == total_of(samples.ocr()).single_process


def test_one_kernel_without_an_interval_leaves_the_total_without_one():
    first, *others = ocr(rounds=1)
    first["measurement"] = {**first["measurement"], "samples_s": first["measurement"]["samples_s"][:1]}
    for name in ("cpu_s", "involuntary_switches", "steal_s"):
        first["measurement"][name] = first["measurement"][name][:1]
    total = total_of([first, *others])

    assert total.time_s is not None
    assert (None, None, None) == (total.low_s, total.high_s, total.half_width)


def test_a_total_exists_only_where_every_kernel_has_a_time():
    total = total_of(ocr()[:3])

    assert (None, None, None, None) == (total.time_s, total.low_s, total.high_s, total.joules)
    assert (3, 4) == (total.measured, total.kernels)
    assert total.sum_s == pytest.approx(3 * 1.02e-3, rel=0.01)
    assert not total.is_ranked


def test_a_total_with_a_disturbed_time_is_no_competitor():
    first, *others = samples.ocr()
    noisy = {**samples.disturbed(text=first["case"]), "sources": first["sources"]}
    total = total_of([noisy, *others])

    assert total.time_s is not None
    assert (1, False) == (total.disturbed, total.is_ranked)


def test_energy_is_a_sum_where_every_kernel_has_it():
    def with_energy(record, joules):
        window = {"joules_per_call": joules, "valid": True}
        return {**record, "measurement": {**record["measurement"], "energy": window}}

    records = samples.ocr()
    assert total_of([with_energy(r, 0.5) for r in records]).joules == pytest.approx(2.0)
    assert total_of([*(with_energy(r, 0.5) for r in records[:3]), records[3]]).joules is None


def test_a_kernel_of_a_model_counts_as_often_as_a_pass_calls_it():
    name = "llm/llama32_1b:phase=decode,batch=8"
    entries = [e for e in read_suite(name) if e.pattern.op == "gemm"]
    texts = [f"gemm {e.pattern.problem.text} forward f32 mkl threads=1" for e in entries]
    records = [
        {**samples.measured(text=text, seconds=1e-3, round_number=number), "sources": [e.source]}
        for number in range(1, 6)
        for text, e in zip(texts, entries, strict=True)
    ]
    total = total_of(records)

    assert [16, 16, 16, 16, 1] == [e.source["count"] for e in entries]
    assert "Llama 3.2 1B, decode, batch 8" == total.application
    assert total.sum_s == pytest.approx(65e-3, rel=0.01)
    assert total.by_op_s["gemm"] == pytest.approx(65e-3, rel=0.01)
    assert (None, None) == (total.time_s, total.low_s)  # attention and others are missing
    assert total.measured == 5 < total.kernels


def test_a_total_of_every_kernel_of_a_model_has_an_interval_of_all_its_calls():
    name = "mlperf/ncf:phase=inference"
    entries = read_suite(name)
    records = []
    for number in range(1, 6):
        for e in entries:
            text = f"{e.pattern.op} {e.pattern.problem.text} forward f32 reference threads=1"
            seconds = 1e-3 * (1 + 0.02 * number)
            records.append({**samples.measured(text=text, seconds=seconds, round_number=number), "sources": [e.source]})
    for record in records:
        record["sources"][0]["count"] = 10
    total = total_of(records)

    assert (len(entries), len(entries)) == (total.kernels, total.measured)
    assert total.time_s == pytest.approx(10 * len(entries) * 1.06e-3, rel=0.02)
    assert total.low_s < total.time_s < total.high_s
    assert total.high_s < 1.2 * total.time_s


def test_suites_of_other_versions_have_the_kernels_of_their_file():
    records = [{**r, "sources": [{**r["sources"][0], "suite": "mlperf/newer:phase=train"}]} for r in samples.ocr()]
    other = [{**r, "sources": [{**r["sources"][0], "suite": "llm/gpt2:phase=dream"}]} for r in samples.ocr()]

    assert (4, 4) == (total_of(records).kernels, total_of(other).kernels)


def test_training_of_a_model_needs_16_bits():
    records = [{**r, "sources": [{**r["sources"][0], "suite": "mlperf/newer:phase=train"}]} for r in samples.ocr()]

    assert total_of(records).below_minimum
    assert not total_of(samples.ocr()).below_minimum


def test_published_totals_have_no_interval_and_only_whole_ones_have_a_time():
    found = {(t.suite, t.application, t.precision): t for t in totals.of_summaries(published.summaries("AMD MI25"))}
    whole = found["deepbench/train", "OCR", "f32"]
    part = found["deepbench/train", "Machine Translation", "f32"]

    assert (11, 11) == (whole.kernels, whole.measured)
    assert whole.time_s == whole.sum_s == pytest.approx(1.643e-3)
    assert (None, None) == (whole.low_s, whole.high_s)
    assert (None, 12, 24) == (part.time_s, part.measured, part.kernels)


@pytest.mark.parametrize(
    ("suite", "precision", "bits", "is_below"),
    [
        ("deepbench/server", "i8", 8, False),
        ("deepbench/train", "i8", 8, True),
        ("deepbench/server", "f16f16", 16, True),
        ("deepbench/train", "f16", 16, False),
        ("deepbench/train", "tf32", 19, False),
        ("deepbench/server", "fp4 of another program", None, False),
    ],
)
def test_a_total_knows_its_width_and_whether_it_meets_the_minimum(suite, precision, bits, is_below):
    total = totals.Total("OCR", suite, precision, 1, 4, 4, 0, 0, 1.0, 1.0, None, None, None, {})

    assert (bits, is_below) == (total.bits, total.below_minimum is not None)
    assert (bits, total.below_minimum) == (total.values()["bits"], total.values()["below_minimum"])
