"""What a conformance report concludes from records."""

import pytest

from deepbench.judge.conformance import ending_of, judge
from deepbench.results.file import read_results
from tests.help import samples

TEXT = "gemm m=64 n=32 k=16 a_t=0 b_t=0 forward {precision} pjrt threads=1 device=pjrt:chip"
PRODUCT = "gemm m=1000 n=1000 k=1000 a_t=0 b_t=0 forward {precision} pjrt threads=1 device=pjrt:chip"
FLOP = 2e9
ADD = "elementwise kind=add n={n} forward f32 pjrt threads=1 device=pjrt:chip"


def queue(**values):
    found = {"slope_s": 1e-3, "loop_s": None, "enqueue_s": 2e-6, "empty_s": 3e-6, "off_line": 0.0}
    return {**found, "fetch_growth": 0.0, "refused": None, **values}


def right(text=TEXT, precision="f32", seconds=1e-3, clock="slope", alone_s=(1e-3, 2e-3, 9e-3), **of_queue):
    record = samples.measured("pjrt", seconds, text=text.format(precision=precision))
    record["measurement"]["device"] = {
        **{"clock": clock, "fallback": None, "host_call_s": list(alone_s), "before": None, "after": None},
        "queue": queue(**of_queue),
    }
    record["library"]["device"] = "Chip 7"
    record["notes"] = {"implementation": "dot", "computes_in": "f32"}
    return record


def ended(status, reason="because", text=TEXT, precision="f32", before=None, after=None, measurement=None):
    record = right(text, precision)
    record |= {"status": status, "reason": reason, "check": {"before": before, "after": after}}
    record["measurement"] = record["measurement"] if measurement else None
    return record


@pytest.fixture
def judged(tmp_path):
    def use(records, planned=(), **peaks):
        header = samples.header([*dict.fromkeys([*(r["case"] for r in records), *planned])])
        return judge(read_results(samples.write(tmp_path / "r.jsonl", records, header)), peaks)

    return use


PASSED, FAILED = samples.check(), samples.check(False)


@pytest.mark.parametrize(
    ("record", "ending"),
    [
        (right(), "right"),
        (ended("unsupported"), "refused"),
        (ended("unavailable"), "missing"),
        (ended("crashed"), "crashed"),
        (ended("timeout"), "timeout"),
        (ended("out_of_memory"), "out_of_memory"),
        (ended("interrupted"), "interrupted"),
        # An input that changed: nothing could be compared.
        (ended("wrong"), "wrong"),
        (ended("wrong", before=FAILED), "wrong"),
        (ended("wrong", before=PASSED, after=FAILED, measurement=True), "wrong"),
        # Calls that were left out: the check after timing compared nothing, and says so.
        (ended("wrong", before=PASSED, measurement=True), "wrong"),
        # A clock fault ends the worker before there is a measurement.
        (ended("wrong", before=PASSED), "untimed"),
        # A rate above the measured peak.
        (ended("wrong", before=PASSED, after=PASSED, measurement=True), "untimed"),
    ],
)
def test_how_a_case_ended(record, ending):
    assert ending == ending_of(record)


def test_a_first_call_above_the_peak_has_one_check_and_is_right():
    record = ended("wrong", before=PASSED, measurement=True)
    record["measurement"]["stopped"] = "first_call"

    assert "untimed" == ending_of(record)


def test_cases_are_counted_by_operation_and_precision(judged):
    softmax = "softmax rows=4 columns=8 forward f32 pjrt threads=1 device=pjrt:chip"
    found = judged([right(), right(PRODUCT), ended("unsupported", precision="bf16"), ended("wrong", text=softmax)])

    counts = {(c.op, c.precision): (len(c.of("right")), len(c.cases)) for c in found.cells}
    assert {("gemm", "f32"): (2, 2), ("gemm", "bf16"): (0, 1), ("softmax", "f32"): (0, 1)} == counts
    assert ["dot in f32"] == found.cells[0].ran
    assert 4 == found.planned
    assert found.is_broken


def test_what_was_planned_and_not_measured_is_counted_apart(judged):
    found = judged([right()], planned=[PRODUCT.format(precision="f32")])

    assert (2, 1) == (found.planned, len(found.cases))
    assert not found.is_broken


def test_refusing_everything_is_no_success(judged):
    assert judged([ended("unsupported")]).is_broken
    assert not judged([ended("unsupported"), right(PRODUCT)]).is_broken
    assert not judged([ended("out_of_memory"), right(PRODUCT)]).is_broken


@pytest.mark.parametrize("status", ["wrong", "crashed", "timeout"])
def test_a_failure_among_many_right_ones_counts(judged, status):
    assert judged([ended(status), right(PRODUCT)]).is_broken


def test_how_wrong_is_in_tolerances_and_the_worst_check_counts(judged):
    far = {**FAILED, "error": 337.0}
    wrong = ended("wrong", before=far)
    nothing = ended("wrong", before={**FAILED, "error": None}, text=PRODUCT)
    first, second = judged([wrong, nothing]).cases

    assert 337.0 == first.error
    assert second.error is None


def test_reasons_are_listed_once_with_their_cases(judged):
    records = [ended("unsupported", "no", precision=p) for p in ("f32", "bf16", "f16")]
    found = judged([*records, ended("crashed", "no", text=PRODUCT)])

    assert [("refused", "no", 3), ("crashed", "no", 1)] == [(r.ending, r.reason, len(r.cases)) for r in found.reasons]


# ---- rates


def test_the_highest_rate_of_each_precision_has_its_interval_and_clock(judged):
    records = [right(PRODUCT, "f32", 2e-3), right(TEXT, "f32"), right(PRODUCT, "bf16", 1e-3, "loop")]
    f32, bf16 = judged(records).rates

    assert ("f32", "slope", "loop") == (f32.what, f32.clock, bf16.clock)
    assert FLOP / 2e-3 == pytest.approx(f32.per_s, rel=0.01)
    assert f32.low < f32.per_s < f32.high
    assert f32.peak is f32.share is None
    assert not f32.is_impossible


def test_a_share_needs_a_peak_and_above_it_is_impossible(judged):
    records = [right(PRODUCT, "f32", 2e-3), right(PRODUCT, "bf16", 1e-3)]
    f32, bf16 = judged(records, f32=2e12, bf16=1e12).rates

    assert 0.5 == pytest.approx(f32.share, rel=0.01)
    assert not f32.is_impossible
    assert 2 == pytest.approx(bf16.share, rel=0.01)
    assert bf16.is_impossible
    assert not judged(records, bf16=1e12).is_broken  # it may be the peak that is wrong


def test_a_library_may_know_the_peak_of_its_card_and_a_stated_one_wins(judged):
    record = right(PRODUCT, "f32", 2e-3)
    record["library"]["card"] = {"peak_f32_flop_per_s": 4e12, "memory_bytes_per_s": 1e12}

    assert (4e12, False) == (judged([record]).rates[0].peak, judged([record]).rates[0].is_stated)
    assert (2e12, True) == (judged([record], f32=2e12).rates[0].peak, judged([record], f32=2e12).rates[0].is_stated)


@pytest.mark.parametrize("peak", ["1e12", True, -1, None, [], 1e300])
def test_a_peak_that_is_none_is_ignored(judged, peak):
    record = right(ADD.format(n=2**25))
    record["library"]["card"] = {"memory_bytes_per_s": peak}

    assert judged([record]).rates[0].share is None


def test_a_wrong_result_has_no_rate(judged):
    wrong = ended("wrong", text=PRODUCT, before=PASSED, after=FAILED, measurement=True)

    assert () == judged([wrong]).rates


def test_bandwidth_is_that_of_large_arrays(judged):
    small, large = right(ADD.format(n=1000), seconds=1e-9), right(ADD.format(n=2**25), seconds=1e-3)
    (rate,) = judged([small, large], memory=1e12).rates

    assert "memory" == rate.what
    assert 3 * 2**27 / 1e-3 == pytest.approx(rate.per_s, rel=0.01)
    assert 0.4 == pytest.approx(rate.share, rel=0.02)


# ---- the host and the head


def test_what_calls_cost_the_host(judged):
    records = [right(enqueue_s=2e-6), right(PRODUCT, enqueue_s=4e-6, empty_s=None, alone_s=(1e-6, 5e-4, 1e-3))]
    (cost,) = judged(records).host

    assert (3e-6, 3e-6, 5e-4) == pytest.approx((cost.enqueue_s, cost.empty_s, cost.alone_s))
    assert records[1]["case"] == cost.alone_case


def test_on_a_cpu_nothing_is_said_of_the_host(judged):
    assert () == judged([samples.measured()]).host


def test_the_head_names_device_and_library_without_their_folder(judged):
    facts = judged([right()]).facts

    assert ["pjrt:chip"] == facts["devices"]
    assert ("Chip 7", "pjrt.so") == (facts["libraries"]["pjrt"]["calls_itself"], facts["libraries"]["pjrt"]["file"])
    assert ("here", "deepbench test") == (facts["host"], facts["tool"])
