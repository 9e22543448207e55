"""A predicted step as terms: nothing is lost, and what is not known is counted."""

import pytest

from deepbench.core.times import Time
from deepbench.networks.predictions.predict import MODEL_ERROR, predict
from deepbench.networks.what_if import effects
from deepbench.networks.what_if.knobs import Change
from deepbench.networks.what_if.step_terms import OTHERS, OVERHEAD, application_of, with_overhead
from tests.networks.test_predict import CAPACITY, GEMM, RELU, Known, call, trace
from tests.networks.test_time_model import HARDWARE

CALLS = [
    *(call(GEMM, [0], [1], 10), call(GEMM, [0], [1], 10), call(RELU, [1], [1], 8000)),
    *(call(None, [1], [1], 12 * 2**12), call(None, [1], [1], 12 * 2**12)),
]
SECONDS = {("gemm", "hot"): 1e-3, ("elementwise", "hot"): 1e-5}


def prediction(seconds=SECONDS, disturbed=(), overhead_s=2e-6):
    overhead = Time(overhead_s, overhead_s, overhead_s) if overhead_s else None
    return predict(trace(CALLS, (10, 10), 3), Known(seconds, disturbed), "torch", 1, CAPACITY, overhead)


def test_the_terms_add_up_to_the_predicted_step():
    step = prediction()
    application = application_of(step)

    assert step.time.seconds == pytest.approx(application.seconds)
    low_s = sum(t.count * t.low_s for t in application.terms)
    assert step.time.low_s == pytest.approx(low_s - MODEL_ERROR * application.seconds)
    assert {} == application.remarks
    counts = {t.label: t.count for t in application.terms}
    assert (2, 2, 8) == (counts["gemm 64 × 32 × 16 NN"], counts[OTHERS], counts[OVERHEAD])
    assert [True] == [t.is_overhead for t in application.terms if t.label == OVERHEAD]


def test_what_has_no_time_or_a_disturbed_one_is_left_out_and_counted():
    missing = application_of(prediction({("elementwise", "hot"): 1e-5}))
    disturbed = application_of(prediction(disturbed=("gemm",)))

    assert {"without a time": 1} == missing.remarks
    assert {"left out because other programs disturbed their times": 1} == disturbed.remarks
    for application in (missing, disturbed):
        assert len(application.terms) == application.kernels - 1
        assert not [t for t in application.terms if t.label.startswith("gemm")]


def test_operators_with_the_price_of_disturbed_additions_are_left_out_and_counted():
    application = application_of(prediction(disturbed=("addition",)))

    assert OTHERS not in {term.label for term in application.terms}
    assert {"left out because other programs disturbed their times": 1} == application.remarks
    assert len(application.terms) + 1 == application.kernels


def test_a_chain_of_operators_is_known_by_its_bytes():
    chain = trace([call(RELU, [0], [0], 8000, operators=4)], (10, 10))
    (term,) = application_of(predict(chain, Known(SECONDS), "torch", 1, CAPACITY, None)).terms

    assert (None, 8000, False) == (term.case, term.bytes, term.is_overhead)


def test_the_overhead_of_operators_is_a_knob():
    step = prediction()
    hardware, application = with_overhead(HARDWARE, step), application_of(step)
    model = effects.model_of([application], hardware)
    half = effects.what_if(application, model, Change.parse("overhead.operator_s/2"))

    assert 2e-6 == pytest.approx(hardware.overhead.operator_s)
    assert application.seconds - 8 * 1e-6 == pytest.approx(half.after_s)
    assert "overhead.operator_s" in {s.knob for s in effects.sensitivity(application, model)}
    assert HARDWARE is with_overhead(HARDWARE, prediction(overhead_s=None))
