"""Every library that opens here, on every op, precision and direction it is marked for, against the reference.

One body and a generated list: a new backend or op has its tests when its file exists.
"""

import itertools
import json
import subprocess
import sys

import pytest

from deepbench import backend as backends
from deepbench import op as ops
from deepbench import precision, run, system
from deepbench.case import Case, check_settings, known_settings
from deepbench.measure import Rules
from tests.conftest import ROOT

SHORT = Rules(least_samples=3, least_s=0.001, most_s=0.01, warm_up_s=0.005)


def combinations():
    """One row a backend, op, direction, precision and non-default setting."""
    for name, backend in backends.all_backends().items():
        for mark in backend.marks():
            op = ops.find(mark.op)
            chosen = [{}] + [{n: v} for n, values in op.settings.items() for v in values[1:]]
            for p, d, c in itertools.product(mark.precisions, mark.directions, chosen):
                yield pytest.param(name, op.name, d, p, c, id="-".join([name, op.name, d, p, *c]))


@pytest.fixture(scope="session")
def opened():
    """Which libraries are here; the answers of `open`."""
    return {name: run.open_backend(name, 60.0) for name in backends.all_backends()}


@pytest.mark.parametrize(("name", "op_name", "direction", "precision_name", "chosen"), list(combinations()))
def test_a_library_gives_the_right_answer(opened, name, op_name, direction, precision_name, chosen):
    if "unavailable" in opened[name]:
        pytest.skip(f"{name}: {opened[name]['unavailable']['reason']}")
    op = ops.find(op_name)
    text = json.dumps(list(range(len(op.smoke))))
    code = (
        "import json, sys\n"
        "from tests.libraries.test_backends import smoke\n"
        f"print(json.dumps(smoke({name!r}, {op_name!r}, {direction!r}, {precision_name!r}, {chosen!r}, {text})))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert 0 == done.returncode, done.stderr[-2000:]
    results = json.loads(done.stdout.splitlines()[-1])

    unsupported = [r for s, r in results if s == "unsupported"]
    if len(unsupported) == len(results):
        pytest.skip(f"{name} on this machine: {unsupported[0]}")
    wanted = "ok" if backends.find(name).computes else "unchecked"
    assert [] == [r for r in results if r[0] not in (wanted, "unsupported")]


def smoke(name, op_name, direction, precision_name, chosen, indices):
    """Status and reason of each smoke problem, all in this process: they are tiny."""
    from deepbench import worker

    class Silent:
        def write(self, text):
            pass

        def flush(self):
            pass

    op, found = ops.find(op_name), []
    for i in indices:
        kind = precision.find(precision_name)
        case = Case(op_name, op.smoke[i], direction, kind, name, 2, check_settings(op_name, chosen))
        request = {"case": case.text, "round": 1, "rules": SHORT.__dict__}
        record = worker._measure(request, Silent())
        found.append((record["status"], record["reason"]))
    return found


@pytest.mark.parametrize("name", ["onednn", "mkl"])
def test_packed_weights_say_what_packing_cost(opened, name):
    if "unavailable" in opened[name]:
        pytest.skip(f"{name}: {opened[name]['unavailable']['reason']}")
    op = ops.find("gemm")
    problem = op.Problem(m=256, n=16, k=256)
    case = Case("gemm", problem, "forward", precision.find("f32"), name, 2, (("weights", "packed"),))

    record = run.measure_case(case, 1, SHORT, 60.0)

    assert "ok" == record["status"], record["reason"]
    assert record["notes"]["pack_s"] > 0
    assert record["notes"]["packed_bytes"] >= 256 * 256 * 4


def test_one_openmp_runtime_in_a_process(opened):
    for name in ("onednn", "mkl", "openblas"):
        if "unavailable" in opened[name]:
            continue
        problem = ops.find("gemm").Problem(m=64, n=64, k=64)
        record = run.measure_case(Case("gemm", problem, "forward", precision.find("f32"), name, 2), 1, SHORT, 60.0)

        assert len(record["process"]["openmp_runtimes"]) <= 1
        assert [] == [w for w in record["warnings"] if w["code"] == "two_openmp_runtimes"]


def test_settings_of_an_op_are_known_to_cases():
    assert {"weights", "beta", "pin", "cache"} == set(known_settings("gemm"))


@pytest.mark.parametrize("cache", ["cold", "weights"])
@pytest.mark.parametrize("name", ["onednn", "mkl", "openblas", "reference"])
def test_buffers_that_take_turns_are_larger_than_the_caches_and_all_are_right(opened, name, cache):
    if "unavailable" in opened[name]:
        pytest.skip(f"{name}: {opened[name]['unavailable']['reason']}")
    problem = ops.find("gemm").Problem(m=512, n=3, k=512)
    case = Case("gemm", problem, "forward", precision.find("f32"), name, 2, (("cache", cache),))

    record = run.measure_case(case, 1, SHORT, 60.0)

    assert "ok" == record["status"], record["reason"]
    caches = system.cache_bytes() or 0
    assert record["notes"]["buffer_bytes"] >= 2 * caches
    assert 0 == record["measurement"]["calls_per_sample"] % record["notes"]["buffer_sets"]
    assert record["check"]["after"]["passed"]
