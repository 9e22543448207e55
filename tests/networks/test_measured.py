"""The real step in turn with kernels: which steps count, and how fast the machine was next to each kernel."""

import pytest

from deepbench.core.case import parse_case
from deepbench.core.errors import DeepBenchError
from deepbench.core.times import Time
from deepbench.machine import describe
from deepbench.measuring import launch
from deepbench.measuring.clock import Sample
from deepbench.measuring.session import Options, Session
from deepbench.networks.predictions import runner
from deepbench.networks.predictions.forecast import forecast
from deepbench.networks.predictions.measured import StepTimes, planned
from deepbench.networks.predictions.predict import Speed, needs
from deepbench.networks.predictions.runner import OVERHEAD, Runner, StepRequest
from deepbench.networks.reporting.predictions import Predicted, faster_kernels
from deepbench.networks.traces.trace import Trace, TracedCall
from deepbench.plan.cases import Planned
from deepbench.results.file import read_results
from tests.help import predicted, samples

pytestmark = pytest.mark.programs

GEMM = "gemm m=64 n=32 k=16 a_t=0 b_t=0 forward f32 beta=0"


def steps(*slices, after=None):
    return StepTimes([[Sample(s, s, 0, 0.0) for s in times] for times in slices], list(after or range(len(slices))))


def test_the_time_of_a_step_is_the_median_of_its_slices():
    found = steps([0.1, 0.3, 0.2], [0.4], [0.1])

    assert found.seconds == pytest.approx(0.2)
    assert found.time.low_s is None  # too few slices


def test_the_interval_is_that_of_the_median():
    found = steps(*([0.1 + 0.001 * i] for i in range(21))).time

    assert found.seconds == pytest.approx(0.110)
    assert 0.100 < found.low_s < 0.110 < found.high_s < 0.120


def test_disturbed_steps_do_not_count():
    clean, waited = Sample(0.1, 0.1, 0, 0.0), Sample(0.3, 0.1, 40, 0.0)
    found = StepTimes([[clean, waited, clean], [waited], [clean] * 4], [0, 1, 2])

    assert found.seconds == pytest.approx(0.1)
    assert found.speeds("ab") == {"a": Speed(), "b": Speed()}


def test_a_kernel_is_compared_with_the_steps_next_to_it():
    """The machine was half as fast while b was measured."""
    found = steps([0.1], [0.2], [0.2], [0.1], [0.1], [0.1], after=[0, 1, 2, 3, 4, 5])

    speeds = found.speeds("abcde")

    assert speeds["b"].factor == pytest.approx(0.5)
    assert speeds["a"].factor == speeds["c"].factor == pytest.approx(0.1 / 0.15)
    assert (speeds["a"].low, speeds["a"].high) == pytest.approx((0.5, 1.0))
    assert speeds["d"].factor == speeds["e"].factor == pytest.approx(1.0)
    assert [speeds[name].is_same for name in "abcde"] == [False, False, False, True, True]


def test_next_to_disturbed_steps_the_speed_is_that_of_any_step():
    fast, slow, waited = Sample(0.1, 0.1, 0, 0.0), Sample(0.2, 0.2, 0, 0.0), Sample(0.3, 0.1, 40, 0.0)
    found = StepTimes([[fast] * 4, [waited], [waited], [slow] * 4, [fast] * 4], [0, 1, 2, 3, 4])

    assert found.speeds("ab")["b"] == Speed(1.0, pytest.approx(0.5), pytest.approx(1.0))


def test_a_step_of_which_most_slices_were_disturbed_is_an_upper_bound():
    clean, waited = Sample(0.1, 0.1, 0, 0.0), Sample(0.3, 0.1, 40, 0.0)

    assert StepTimes([[clean] * 4, [waited], [waited]], [0, 1, 2]).time == Time.at_most(0.1)
    assert not StepTimes([[clean] * 4, [clean], [waited]], [0, 1, 2]).time.is_bound


# ---- a machine whose speed changes while a step and its kernels take turns


def measured_in_turn(path, slowness):
    """The file of a machine that needs `slowness(share of the time that has passed)` times the usual time."""
    trace, made = predicted.network(), {r["case"]: r for r in predicted.kernels()}
    lines = []
    for number, record in enumerate(made.values()):
        times = slowness(number / len(made))
        lines.append(predicted.step(2.4e-3 * times))
        usual_s = 1e-3 if record["case"].startswith("gemm") else 1e-5
        lines.append(samples.measured(text=record["case"], seconds=usual_s * times, backend="torch"))
    samples.write(path, [*lines, predicted.step(2.4e-3 * slowness(1.0))])
    return Predicted(forecast([trace], [read_results(path)]))


def test_a_machine_that_is_slower_for_a_while_widens_the_interval(tmp_path):
    """The products are measured first, so a machine that is twice as slow at first is slower for them."""
    quiet = measured_in_turn(tmp_path / "a.jsonl", lambda passed: 1.0 + 0.03 * (int(passed * 100) % 2))
    slow = measured_in_turn(tmp_path / "b.jsonl", lambda passed: 2.0 if passed < 0.3 else 1.0)

    assert quiet.time.half_width < 0.1
    assert not quiet.time.is_uneven
    assert quiet.error is not None
    assert "uneven" not in dict(quiet.summary())
    assert "uneven" not in str(quiet)
    assert slow.time.seconds == pytest.approx(quiet.time.seconds, rel=0.1)
    assert slow.time.high_s >= 2 * slow.time.seconds * 0.8
    assert slow.error is None
    assert "longer or shorter next to them than usual, so the interval is wider" in dict(slow.summary())["uneven"]
    assert "withheld" in dict(slow.summary())["error"]
    assert any("withheld" in line for line in faster_kernels(slow.prediction))
    assert "measured, uneven" in str(slow)


def test_a_machine_that_is_slower_from_the_middle_on_is_uneven(tmp_path):
    found = measured_in_turn(tmp_path / "a.jsonl", lambda passed: 1.0 if passed < 0.5 else 2.0)

    assert found.time.is_uneven
    assert found.time.half_width > 0.15
    assert found.error is None


def test_what_is_measured_is_each_case_once():
    call = TracedCall("aten.mm", GEMM, "", (0,), (1,), 1)
    trace = Trace("net", "", False, (call, call), (10, 10), 0, None)
    cases = [p.case for p in planned(needs(trace, "torch", 1, 1000), "torch", 1)]

    assert len(cases) == len(set(cases))
    assert [c.op for c in cases].count("gemm") == 1
    assert sum(c.op == "elementwise" for c in cases) == len(cases) - 1


@pytest.mark.parametrize(("mode", "keeps"), [("steps", True), ("quick", False)])
def test_kernels_of_steps_keep_freed_memory_as_the_step_does(tmp_path, mode, keeps):
    cases = [Planned(parse_case(f"{GEMM} loops threads=1"), [])]
    path = tmp_path / "a.jsonl"
    for opened in (lambda: Session.create(path, cases, Options(mode)), lambda: Session.resume(path)):
        with opened() as session:
            assert keeps == (launch.KEEPS_MEMORY.items() <= session.environment.items())


# ---- the process that runs steps


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def program(tmp_path, text):
    path = tmp_path / "net.py"
    path.write_text(f"import os, sys, time, torch\n{text}")
    return StepRequest(f"{path}:build")


def test_steps_of_a_program_that_prints(torch, tmp_path):
    request = program(
        tmp_path, "def build():\n    print('hello')\n    return lambda: (print('step'), time.sleep(0.01))\n"
    )

    with Runner(request) as running:
        first, second = running.samples(0.05), running.samples(0.0, least=3)

    assert len(first) >= 2
    assert len(second) == 3
    assert all(0.01 <= sample.call_s < 1 for sample in [*first, *second])


def test_the_network_that_measures_the_overhead(torch):
    with Runner(StepRequest(OVERHEAD, is_training=True)) as running:
        found = running.samples(0.0, least=5)

    assert len(found) == 5  # how many run in a time depends on the caches that are evicted before each
    assert 0 < min(sample.call_s for sample in found) < 0.05


def test_the_code_of_that_network_is_evicted_from_the_caches(torch, monkeypatch):
    monkeypatch.setattr(describe, "cache_bytes", lambda: 10**6)
    _, evict = runner._prepare(StepRequest(OVERHEAD))

    assert evict() == 500_000  # numbers of 4 bytes, each of them read: twice the caches


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def build(): return 3\n", "wanted a network and its inputs"),
        ("def build(): raise ValueError('no weights')\n", "no weights"),
        ("def build(): return lambda: os._exit(3)\n", "the program of the network ended"),
        ("def build(): return lambda: 1 / 0\n", "division by zero"),
    ],
)
def test_a_program_that_fails_is_named(torch, tmp_path, text, words):
    with pytest.raises(DeepBenchError, match=words), Runner(program(tmp_path, text)):
        pass
