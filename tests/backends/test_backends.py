"""Every installed library, on every op, precision and direction that it is marked for, checked against the reference.

The list of tests is generated: a new backend or op is tested as soon as its file exists.
"""

import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import cache

import pytest

from deepbench.core.backend import all_backends, find_backend
from deepbench.core.case import Case, check_settings, known_settings
from deepbench.core.op import all_ops, find_op
from deepbench.core.precision import find_precision
from deepbench.core.variables import thread_variables
from deepbench.machine import describe
from deepbench.measuring.heat import measure_case
from deepbench.plan.modes import Rules
from tests.conftest import EMULATED, ROOT, made_once

pytestmark = pytest.mark.programs

SHORT = Rules(least_samples=2, least_s=0.0, most_s=0.002, warm_up_s=0.001)
MOST_S = 60.0 if not EMULATED else 600.0
"""A worker that gives no sign of life for this long is ended."""

FEW_PRECISIONS = {
    "reference": {"f32", "bf16", "i8", "i8u8", "f8e4m3"},
    "null": {"f32"},
    "openvino": {"f32", "bf16"},
    "iree": {"f32", "bf16"},
    "torch_compiled": {"f32", "f16"},
}

# Libraries that no lane of `.ci/run` installs: all their smoke problems are computed whenever they are tested.
RARELY = ("iree", "onednn_sycl", "openvino", "paddle", "torch", "torch_compiled")

LEFT_OUT = "left out"
"""Instead of a status: `make test` leaves this case to `make test-long`."""


def uses_fake_gpu(name):
    """Whether this library would run on the fake GPU of `tests/native/gpu`."""
    return find_backend(name).device != "cpu" and bool(os.environ.get("FAKE_GPU_EVEN"))


def is_slow(name):
    """Whether a case takes long: on the fake GPU, because it is compiled, or in float64. `null` ignores settings."""
    return uses_fake_gpu(name) or name in ("torch_compiled", "iree", "reference", "null")


def combinations(name, op):
    """(direction, precision, settings): all that a backend is marked for, with at most one setting changed."""
    chosen = [{}] + [{n: v} for n, values in op.settings.items() for v in values[1:]]
    # Where cases are slow, settings are tested in one precision: the test is about our calls, not the arithmetic.
    slow = is_slow(name)
    # These treat all precisions alike: a few are enough.
    few = FEW_PRECISIONS.get(name)
    return [
        (d, p, c)
        for mark in find_backend(name).marks()
        if mark.op == op.name
        for p, d, c in itertools.product(mark.precisions, mark.directions, chosen)
        if (few is None or p in few)
        and not (slow and c and p != ("f16" if "f16" in mark.precisions else mark.precisions[-1]))
    ]


# Compiling each of their problems takes a second: tests/devices/test_stablehlo.py has one of each operation, and all of
# them in its long part. What is simulated never runs.
ELSEWHERE = ("pjrt", "simulated")


def pairs():
    """Every backend with each of its ops."""
    ops = [op for op in all_ops().values() if not op.is_group]  # groups: test_group_libraries.py
    names = [name for name in all_backends() if name not in ELSEWHERE]
    return [(name, op.name) for name in names for op in ops if combinations(name, op)]


def marked_pairs():
    """The same. GPU libraries are marked, so that `pytest -m gpu` runs only them."""
    marks = {True: (), False: (pytest.mark.gpu, pytest.mark.costly)}
    return [pytest.param(name, op, marks=marks[find_backend(name).device == "cpu"]) for name, op in pairs()]


@pytest.mark.parametrize(("name", "op_name"), marked_pairs())
def test_a_library_gives_the_right_answer(opened, shared_folder, name, op_name):
    check_answers(opened, shared_folder, name, op_name, name in RARELY or find_backend(name).device != "cpu")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "op_name"), [p for p in pairs() if p[0] not in RARELY and find_backend(p[0]).device == "cpu"]
)
def test_a_library_gives_the_right_answer_to_every_problem(opened, shared_folder, name, op_name):
    check_answers(opened, shared_folder, name, op_name, True)


def check_answers(opened, folder, name, op_name, is_thorough):
    """Each result of these smoke problems is right, or refused with a reason."""
    if "unavailable" in opened[name]:
        pytest.skip(f"{name}: {opened[name]['unavailable']['reason']}")
    wanted = "ok" if find_backend(name).computes else "unchecked"
    results = smoke_results(name, uses_fake_gpu(name), folder, is_thorough)[op_name]

    bad = [r for r in results if r[1] not in (wanted, "unsupported", LEFT_OUT)]
    assert [] == bad[:5], f"{len(bad)} of {len(results)}"
    assert {} == never_served(name, op_name, results)
    if not [r for r in results if r[1] == wanted]:
        pytest.skip(f"{name} on this machine: {results[0][2]}")


# A library may lack a precision on this CPU or in this build only; then `info --matrix` offers it rightly.
OF_THIS_MACHINE = ("this build", "this CPU", "this machine", "this card", "instructions", "AVX", "AMX")


def never_served(name, op_name, results):
    """What `info --matrix` offers although every smoke problem with every setting ends unsupported, with a reason."""
    answers = {}
    for ((direction, precision, _), _), (_, status, reason) in zip(
        smoke_cases(name, find_op(op_name)), results, strict=False
    ):
        answers.setdefault((direction, precision), []).append((status, reason))
    return {
        offer: found[0][1]
        for offer, found in answers.items()
        if all(status == "unsupported" for status, _ in found)
        and not any(word in reason for _, reason in found for word in OF_THIS_MACHINE)
    }


def test_an_offer_that_always_ends_unsupported_is_found():
    cases = smoke_cases("null", find_op("memory"))
    results = [["a case", "unsupported", "no datatype"] for _ in cases]

    assert {("forward", "f32"): "no datatype"} == never_served("null", "memory", results)
    results[0][1] = "unchecked"
    assert {} == never_served("null", "memory", results)
    results = [["a case", "unsupported", "this CPU has no instructions for it"] for _ in cases]
    assert {} == never_served("null", "memory", results)


def smoke_cases(name, op):
    """Every combination on every smoke problem, or on half of them with a changed setting and where they are slow.

    One such combination has the half that the next one leaves out. Each begins with another problem.
    """
    halves = op.smoke[::-2], op.smoke[-2::-2] or op.smoke
    slow = is_slow(name)
    found = []
    for number, c in enumerate(combinations(name, op)):
        problems = halves[number % 2] if c[2] or slow else op.smoke
        begin = number // 2 % len(problems)
        found += [(c, p) for p in (*problems[begin:], *problems[:begin])]
    return found


def is_usual(name, op, combination):
    """Whether `make test` computes every smoke problem: in the first precision without settings.

    The others share most code with it. Of each, the first problem that is not refused is enough.
    """
    _, precision, chosen = combination
    return not chosen and precision == combinations(name, op)[0][1]


# An operation with more combinations of settings than this has too many for `make test`: it computes a third of them.
MANY = 30


def is_left_to_others(name, op, combination):
    """Whether `make test` leaves this combination to `make test-long`, once its precision has been served."""
    every = combinations(name, op)
    return len(every) > MANY and bool(combination[2]) and every.index(combination) % 3 > 0


@cache
def smoke_results(name, fake, folder, is_thorough):
    """By operation: (case, status, reason) of every smoke problem in every combination.

    Of a fake GPU there are other results. One test process computes them, and the others read them in `folder`.
    """
    path = folder / f"smoke-{name}-{fake}-{is_thorough}.json"
    return made_once(path, lambda: computed_results(name, is_thorough))


def computed_results(name, is_thorough):
    """The same, computed in one process, because starting one per operation takes minutes.

    If a case crashes, a new process continues after it.
    """
    of_ops = [(op, case) for backend, op in pairs() if backend == name for case in smoke_cases(name, find_op(op))]
    results = []
    # Threads that spin while they wait take CPU time from those that compute; short kernels then take much longer.
    threads = dict.fromkeys(thread_variables(), "2")  # as cases have
    environment, most_s = {**os.environ, **threads, "OMP_WAIT_POLICY": "passive"}, 1800 if is_slow(name) else 600
    while len(results) < len(of_ops):
        code = f"from tests.backends.test_backends import smoke; smoke({name!r}, {len(results)}, {is_thorough})"
        command = [sys.executable, "-c", code]
        with tempfile.TemporaryDirectory() as folder:  # for what is compiled
            environment["TMPDIR"] = folder
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=most_s)
        results += [json.loads(line[2:]) for line in done.stdout.splitlines() if line.startswith("> ")]
        if done.returncode:
            op = of_ops[len(results)][0]
            results.append([f"{op} after {len(results)} cases", "crashed", f"{done.returncode}: {done.stderr[-500:]}"])
    by_op = {}
    for (op, _), result in zip(of_ops, results, strict=True):
        by_op.setdefault(op, []).append(result)
    return by_op


def loaded_once(load):
    """The same function, which searches for each library only once."""
    libraries = {}

    def load_once(title, *arguments, **options):
        if title not in libraries:
            libraries[title] = load(title, *arguments, **options)
        return libraries[title]

    return load_once


class Parent:
    """Lets the worker sample until it has a reason to stop."""

    def __init__(self):
        self.answers = [{"slice": 0, "seconds": None}, {"rivals_s": 0.0}]

    def send(self, message):
        """Nobody listens."""

    def receive(self):
        return self.answers.pop(0)


def smoke(name, start, is_thorough):
    """Print the result of each smoke problem of each operation, beginning with number `start`."""
    from deepbench.backends import torch_compiled
    from deepbench.measuring import worker
    from deepbench.measuring.launch import Request
    from deepbench.native import library, slope
    from deepbench.native.gpu import timing

    library.load = loaded_once(library.load)  # each case opens its backend, and that searches for the library
    # Only the answers matter, not the times.
    timing.RAISE_CLOCKS_S = timing.HOST_MOST_S = timing.CANDIDATE_S = 0.0
    slope.AWAITED_S, slope.HIDDEN = 0.0, float("inf")
    describe.LEAST_INTERVAL_S = -1.0  # no case waits until the load is known
    timing.FINALISTS = 1
    torch_compiled.PRECOMPILE_HEADERS = True  # this process compiles many functions

    of_ops = [(op, case) for backend, op in pairs() if backend == name for case in smoke_cases(name, find_op(op))]
    served, offers = None, set()
    for number, (op, (combination, problem)) in enumerate(of_ops[start:]):
        direction, kind, chosen = combination
        is_one_of_many = (op, direction, kind) in offers and is_left_to_others(name, find_op(op), combination)
        is_repeated = served == (op, combination) and not is_usual(name, find_op(op), combination)
        if not is_thorough and (is_repeated or is_one_of_many):
            print("\n>", json.dumps([f"{op} {problem.text}", LEFT_OUT, None]), flush=True)
            continue
        if number % 20 == 0:
            gc.collect()  # a measured case has cycles, and may keep threads and open files
        case = Case(op, problem, direction, find_precision(kind), name, 2, check_settings(op, chosen))
        record = worker.measure_alone(Request(case, 1, SHORT, MOST_S), Parent())
        if record["status"] != "unsupported":
            served = op, combination
            offers.add((op, direction, kind))
        print("\n>", json.dumps([case.text, record["status"], record["reason"]]), flush=True)


@pytest.mark.parametrize("name", ["onednn", "mkl", "aocl"])
def test_the_record_has_the_time_of_packing(opened, name):
    if "unavailable" in opened[name]:
        pytest.skip(f"{name}: {opened[name]['unavailable']['reason']}")
    op = find_op("gemm")
    problem = op.Problem(m=256, n=16, k=256)
    case = Case("gemm", problem, "forward", find_precision("f32"), name, 2, (("weights", "packed"),))

    record = measure_case(case, 1, SHORT, MOST_S)

    assert "ok" == record["status"], record["reason"]
    assert record["notes"]["pack_s"] > 0
    converted = name != "onednn" or "formats" in record["notes"]
    assert not converted or record["notes"]["converted_bytes"] >= 256 * 256 * 4


def test_the_record_has_the_time_of_conversions_within_a_call(opened):
    if "unavailable" in opened["onednn"]:
        pytest.skip(f"onednn: {opened['onednn']['unavailable']['reason']}")
    problem = find_op("conv").Problem(n=1, c=64, h=28, w=28, k=64, r=3, s=3, pad_h=1, pad_w=1)
    case = Case("conv", problem, "forward", find_precision("f32"), "onednn", 2)

    record = measure_case(case, 1, SHORT, MOST_S)
    ahead = measure_case(replace(case, overrides=check_settings("conv", {"layout": "any"})), 1, SHORT, MOST_S)

    assert ("ok", "ok") == (record["status"], ahead["status"]), (record["reason"], ahead["reason"])
    assert ("formats" in record["notes"]) == ("conversion_s" in record["notes"])
    assert record["notes"].get("conversion_s", 1.0) > 0
    assert "conversion_s" not in ahead["notes"]
    assert "convert_s" in ahead["notes"]


def multiplies(backend):
    """Whether this is a library for products on CPUs that a run uses without naming it."""
    return backend.device == "cpu" and backend.default and backend.supports("gemm", "f32", "forward")


LIBRARIES = [backend.name for backend in all_backends().values() if multiplies(backend)]


@pytest.mark.parametrize("name", LIBRARIES)
def test_one_openmp_runtime_in_a_process(opened, name):
    if "unavailable" in opened[name]:
        pytest.skip(f"{name}: {opened[name]['unavailable']['reason']}")
    problem = find_op("gemm").Problem(m=64, n=64, k=64)
    record = measure_case(Case("gemm", problem, "forward", find_precision("f32"), name, 2), 1, SHORT, MOST_S)

    assert len(record["process"]["openmp_runtimes"]) <= 1
    assert [] == [w for w in record["warnings"] if w["code"] == "two_openmp_runtimes"]


def test_cases_know_the_settings_of_an_op():
    assert {"weights", "beta", "result", "accumulate", "pin", "cache"} == set(known_settings("gemm"))


# Emulated, a case takes minutes, because the caches are those of the machine that emulates: one library is enough.
# `make test` has two libraries.
COLD = (("openblas", "cold"), ("onednn", "weights")) if not EMULATED else (("openblas", "weights"),)
ALL_COLD = itertools.product([*LIBRARIES, "reference"], ["cold", "weights"])


@pytest.mark.parametrize(
    ("name", "cache"), [pytest.param(*pair, marks=[] if pair in COLD else pytest.mark.long) for pair in ALL_COLD]
)
def test_cold_buffers_are_larger_than_the_caches_and_all_are_right(opened, name, cache):
    if "unavailable" in opened[name]:
        pytest.skip(f"{name}: {opened[name]['unavailable']['reason']}")
    problem = find_op("gemm").Problem(m=2048, n=3, k=1024)
    case = Case("gemm", problem, "forward", find_precision("f32"), name, 2, (("cache", cache),))

    record = measure_case(case, 1, SHORT, MOST_S)

    assert "ok" == record["status"], record["reason"]
    caches = describe.cache_bytes() or 0
    assert record["notes"]["buffer_bytes"] >= 2 * caches
    assert 0 == record["measurement"]["calls_per_sample"] % record["notes"]["buffer_sets"]
    assert record["check"]["after"]["passed"]


def test_a_table_of_which_all_calls_read_the_same_rows_is_not_cold(opened):
    if "unavailable" in opened["loops"]:
        pytest.skip(f"loops: {opened['loops']['unavailable']['reason']}")
    problem = find_op("embedding_bag").Problem(rows=1_000_000, dim=16, bags=64)
    case = Case("embedding_bag", problem, "forward", find_precision("f32"), "loops", 2, (("cache", "cold"),))

    record = measure_case(case, 1, SHORT, MOST_S)

    assert "ok" == record["status"], record["reason"]
    assert ["not_cold"] == [w["code"] for w in record["warnings"]]
