"""Named limits are causes: changing what a limit depends on changes the time, and changing something else does not.

With real libraries on one thread. Other programs only add time, so each ratio is that of the fastest samples of both
sides over several heats, in which the sides take turns. The margins lie between the ratios that two different limits
would give, such as 1 and 0.5.
"""

import pytest

from deepbench.core.case import parse_case
from deepbench.judge import limits
from deepbench.machine import describe
from deepbench.measuring import probes
from deepbench.measuring.heat import Rival, measure_case, measure_heat
from deepbench.measuring.session import open_libraries
from deepbench.plan.modes import DEFAULT, PROBE
from deepbench.results import summary

pytestmark = pytest.mark.long

ATTEMPTS, TIMEOUT_S = 3, 60.0
LIBRARIES = ("mkl", "onednn", "openblas")

GEMM = "gemm m={} n={} k={} forward f32 {} threads=1"
LSTM = "recurrent cell=lstm hidden={} batch=1 timesteps={} forward f32 onednn threads=1"


@pytest.fixture(scope="module")
def available():
    answers = open_libraries([*LIBRARIES, "loops"])
    return [name for name, answer in answers.items() if "library" in answer]


@pytest.fixture(scope="module")
def libraries(available):
    found = [name for name in LIBRARIES if name in available]
    if not found or "loops" not in available:
        pytest.skip("needs the C loops and one of MKL, oneDNN and OpenBLAS")
    return found


@pytest.fixture(scope="module")
def known(available, libraries):
    """The limits of one thread."""
    cases = [parse_case(GEMM.format(8, 8, 8, name)) for name in libraries]
    cases += [parse_case(LSTM.format(1, steps)) for steps in (1, 2)] if "onednn" in available else []
    needed = probes.probes_for(cases, available, limits.COARSE)
    lines = [line for p in needed if (line := p.measure(lambda case: measure_case(case, 1, PROBE, TIMEOUT_S)))]
    # On a machine that is always busy every probe is disturbed. Here the fastest sample of one thread is good enough.
    return limits.Limits([{**line, "disturbed": False} for line in lines], describe.describe_machine())


def record_of(text):
    return measure_case(parse_case(text), 1, DEFAULT.rules, TIMEOUT_S)


def fastest(libraries, template):
    """The library that is near a limit: a slow one on this CPU, such as MKL on some, is near none."""
    return min(libraries, key=lambda library: min(record_of(template(library))["measurement"]["samples_s"]))


def shortest(text):
    """Seconds of the shortest sample of several processes."""
    return min(min(record_of(text)["measurement"]["samples_s"]) for _ in range(ATTEMPTS))


def name(known, text):
    """The limit of a case, by the shortest time of several processes."""
    summaries = [summary.summarize([record_of(text)])[0] for _ in range(ATTEMPTS)]
    return known.nearest(min(summaries, key=lambda s: s.time_s)).name


def ratio(text, base):
    """Time of `text` over that of `base`: the fastest sample of each side over all heats."""
    fastest = [[], []]
    for number in range(1, ATTEMPTS + 1):
        records = measure_heat([Rival(parse_case(t)) for t in (text, base)], number, DEFAULT.rules, TIMEOUT_S)
        assert ["ok", "ok"] == [r["status"] for r in records], [r["reason"] for r in records]
        for samples, record in zip(fastest, records, strict=True):
            samples.append(min(record["measurement"]["samples_s"]))
    return min(fastest[0]) / min(fastest[1])


def test_a_bandwidth_bound_product_depends_on_bytes_and_not_on_arithmetic(known, libraries):
    """A is transposed: libraries then multiply by one and by two columns in the same way."""
    library = fastest(libraries, lambda name: GEMM.format(8192, 2, 8192, name) + " a_t=1")
    base = GEMM.format(8192, 2, 8192, library) + " a_t=1"
    half_the_arithmetic = GEMM.format(8192, 1, 8192, library) + " a_t=1"
    half_of_both = GEMM.format(8192, 2, 4096, library) + " a_t=1"

    # Of the bandwidth of the C loops, measured here without the limits: they must not decide what they are tested on.
    share = shortest(f"memory kind=read n={8192 * 8192} forward f32 loops threads=1") / shortest(base)
    if share < 0.6:
        pytest.skip(
            f"wanted a library with 60 % of the memory bandwidth, found {share:.0%} ({library}); 50 % has a name"
        )
    assert "memory" == name(known, base)
    assert ratio(half_the_arithmetic, base) > 0.75
    assert ratio(half_of_both, base) < 0.7


def test_a_compute_bound_product_depends_on_arithmetic_and_not_on_bytes(known, libraries):
    library = fastest(libraries, lambda name: GEMM.format(1024, 128, 1024, name))
    base = GEMM.format(1024, 128, 1024, library)
    half_the_arithmetic = GEMM.format(1024, 64, 1024, library)  # with 14 % fewer bytes
    fewer_bytes = GEMM.format(512, 256, 1024, library)  # 27 % fewer, with the same arithmetic

    assert "compute" == name(known, base)
    assert ratio(half_the_arithmetic, base) < 0.7
    assert 0.75 < ratio(fewer_bytes, base) < 1.33


def test_a_latency_bound_product_keeps_its_time_when_its_size_doubles(known, libraries):
    library = libraries[0]
    base = GEMM.format(1, 1, 1, library)

    assert "latency" == name(known, base)
    assert 0.6 < ratio(GEMM.format(2, 1, 1, library), base) < 1.5
    assert 0.6 < ratio(GEMM.format(1, 1, 2, library), base) < 1.5


def test_a_layer_bound_by_its_steps_depends_on_their_number_and_not_on_its_size(known, available):
    if "onednn" not in available:
        pytest.skip("needs oneDNN")
    base = LSTM.format(1, 32)

    assert "latency" == name(known, base)
    assert "latency" == name(known, LSTM.format(2, 64))
    assert 0.6 < ratio(LSTM.format(2, 32), base) < 1.5
    assert 1.5 < ratio(LSTM.format(1, 64), base) < 2.6
