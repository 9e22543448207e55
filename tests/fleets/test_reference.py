"""References: what is read from a file of others, who is slow, and how seldom that is chance."""

import json
import math
import random
from itertools import combinations
from statistics import mean

import pytest

from deepbench.core import stats
from deepbench.core.errors import BadInput
from deepbench.fleets import reference as references
from deepbench.fleets.reference import MachineType, expected_quartile, read_reference
from tests.help.references import MACHINE, ONE, TWO, fields, reference, times, write

# ---- who is slow


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_the_value_of_a_host_is_what_a_check_of_it_finds_on_average(rounds):
    runs = [1.0, 1.5, 0.9, 1.1, 3.0, 1.05]
    found = [stats.lower_quartile([math.log(t) for t in some]) for some in combinations(runs, rounds)]

    assert mean(found) == pytest.approx(expected_quartile(runs, rounds))


def test_a_host_that_is_slow_in_one_kernel_is_found_in_that_kernel():
    findings = reference(hosts=12).findings({ONE: [1.2e-3] * 3, TWO: [1e-3] * 3})

    assert {ONE: True, TWO: False} == {f.case: f.is_slow for f in findings if f.case}
    assert 1.2 == pytest.approx(next(f.ratio for f in findings if f.case == ONE), rel=0.02)


def test_a_host_that_is_a_little_slow_in_all_kernels_is_found_in_all_together():
    made = reference(hosts=40, texts=[ONE, TWO])
    limits = {f.case: f.limit for f in made.findings({ONE: [1e-3], TWO: [1e-3]})}

    assert limits[None] <= min(limits[ONE], limits[TWO])
    assert all(limit >= references.KERNEL_RATIO for limit in limits.values())


@pytest.mark.parametrize("hosts", [3, 6, 20])
def test_fewer_hosts_and_larger_spreads_widen_the_limit(hosts):
    few, more = (reference(hosts=n).detectable() for n in (hosts, 4 * hosts))
    noisy = reference(hosts=hosts, of_runs=0.05).detectable()

    assert more < few < noisy
    assert reference(hosts=hosts, of_hosts=0.05).detectable() > few


def test_healthy_hosts_are_rarely_slow_at_one_look_and_slow_hosts_are_found():
    """`benchmarks/fleet_check.py` simulates many more."""
    rng, accused, found, checks = random.Random(1), 0, 0, 0
    for seed in range(100):
        made = reference(hosts=6, seed=seed)
        for _ in range(20):
            checks += 1
            for slower in (1.0, 1 / 0.9):
                level = rng.gauss(math.log(slower * 1e-3), 0.01)
                look = {text: [math.exp(rng.gauss(level, 0.01)) for _ in range(3)] for text in (ONE, TWO)}
                is_slow = any(f.is_slow for f in made.findings(look))
                accused, found = accused + (is_slow and slower == 1), found + (is_slow and slower > 1)

    assert accused <= 4, f"{accused} of {checks}"  # at most one is expected
    assert found > 0.8 * checks


def test_a_host_must_be_slow_in_the_same_thing_at_both_looks():
    made = reference(hosts=12)
    first, second = {ONE: [1.3e-3] * 3, TWO: [1e-3] * 3}, {ONE: [1e-3] * 3, TWO: [1.3e-3] * 3}

    assert {ONE, None} == {f.case for f in made.slow_in_both(first, first)}
    assert {None} >= {f.case for f in made.slow_in_both(first, second)}
    assert [] == made.slow_in_both(first, {ONE: [1e-3] * 3, TWO: [1e-3] * 3})
    assert [] == made.slow_in_both(first, {})


def test_kernels_that_were_not_measured_are_left_out():
    made = reference()

    assert [ONE] == [f.case for f in made.findings({ONE: [1e-3], TWO: []})]
    assert [] == made.findings({})


def test_rounds_fit_into_the_time():
    assert 3 == reference().rounds_in(54)
    assert 1 == reference(duration_s=10.0).rounds_in(54)
    assert 1 == reference(duration_s=100.0).rounds_in(54)


# ---- types of machines


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({}, None),
        ({"memory_bytes": 2**34 - 2**28}, None),
        ({"memory_bytes": 2**33}, "memory: wanted 16 GiB, found 8 GiB"),
        ({"cpu": "Another"}, "CPU: wanted A CPU, found Another"),
        ({"cores_allowed": 1}, "cores: wanted 2, found 1"),
        ({"cpu_quota": 1.5}, "CPU quota: wanted none, found 1.5"),
        ({"devices": (("cublas", "NVIDIA H100"),)}, "devices: wanted none, found {'cublas': 'NVIDIA H100'}"),
    ],
)
def test_types_differ_in_what_decides_the_speed(change, difference):
    here = MachineType(**{**vars(MACHINE), **change})

    assert difference == MACHINE.difference(here)


@pytest.mark.parametrize("machine", [{}, {"cpu": 7, "cores_allowed": 2, "memory_bytes": 1}, {"cpu": "A CPU"}])
def test_a_machine_without_the_facts_has_no_type(machine):
    assert MachineType.of(machine, {}) is None


def test_facts_that_no_healthy_host_has_are_named():
    made = reference()

    assert [] == made.differences({"cpu_ids": {"microcode": "0x2"}, "governor": "performance"})
    assert ["microcode is 0x1 and not 0x2", "governor is powersave and not performance"] == made.differences(
        {"cpu_ids": {"microcode": "0x1"}, "governor": "powersave"}
    )


# ---- files


def test_a_file_is_read_back(tmp_path):
    made = reference()
    again = read_reference(write(tmp_path / "r.json", made))

    assert (made.machine, made.libraries, made.facts, made.mode) == (
        *(again.machine, again.libraries),
        *(again.facts, again.mode),
    )
    assert made.kernels == again.kernels
    assert made.findings({ONE: [1e-3]}) == again.findings({ONE: [1e-3]})


def refused(tmp_path, content):
    (tmp_path / "r.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(BadInput) as error:
        read_reference(tmp_path / "r.json")
    assert "\n" not in str(error.value)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1000
    return str(error.value)


def with_kernel(**changes):
    content = fields()
    content["kernels"][0] |= changes
    return content


TIMES = [list(runs) for runs in times(random.Random(1), 6)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is no reference: "),
        ("not JSON", "is no reference: "),
        ("[]", "data must be object"),
        ("[" * 100_000, "is no reference: "),
        ('{"schema": ' * 900 + "1" + "}" * 900, "is no reference: "),
        ('{"schema": NaN}', "is no reference: "),
        ({**fields(), "schema": "deepbench-reference/2"}, "data.schema must be same as const"),
        ({**fields(), "kernels": []}, "data.kernels must contain at least 1"),
        ({**fields(), "kernels": fields()["kernels"] * 40}, "data.kernels must contain less than or equal to 64"),
        ({**fields(), "mode": "rigorous"}, "data.mode must be one of"),
        ({**fields(), "libraries": {}}, "it does not say which version of mkl was measured"),
        ({**fields(), "machine": {**fields()["machine"], "memory_bytes": -1}}, "memory_bytes"),
        ({**fields(), "machine": {**fields()["machine"], "cores_allowed": 10**9}}, "cores_allowed"),
        ({**fields(), "kernels": [fields()["kernels"][0]] * 2}, "it has a kernel twice"),
        (with_kernel(times_s=TIMES[:2]), "must contain at least 3"),
        (with_kernel(times_s=[[1e-3] * 2] * 3), "its kernels come from different numbers of hosts"),
        (with_kernel(times_s=[[-1e-3] * 2] * 6), "must be bigger than or equal to 1e-12"),
        (with_kernel(times_s=[["1e-3"] * 2] * 6), "must be number"),
        (with_kernel(times_s=[[1e-3]] * 6), "must contain at least 2"),
        (with_kernel(times_s=[[1e-3] * 101] * 6), "must contain less than or equal to 100"),
        (with_kernel(times_s=[[1e-3] * 2] * 1001), "must contain less than or equal to 1000"),
        (with_kernel(times_s=[[9.0] * 2] * 6), "a call takes up to 9 s, and a check has time for 5 s"),
        (with_kernel(duration_s=1e9), "duration_s"),
        (with_kernel(case="rm -rf /"), "rm"),
        (with_kernel(case="gemm"), "gemm"),
        (with_kernel(case="gemm m=2 n=3 k=4 forward f32 ../../evil threads=1"), "evil"),
        (with_kernel(case=ONE.replace("threads=1", "threads=4096")), "it has 4096 threads, and the machine 2 cores"),
        (with_kernel(case=ONE.replace("m=2", "m=1000000").replace("k=4", "k=1000000")), "more than half of the memory"),
        (
            with_kernel(case=ONE.replace("m=2", "m=20000").replace("n=3", "n=20000").replace("k=4", "k=20000")),
            "are more than any device computes",
        ),
        (with_kernel(case="gemm m=2 n=3 k=4 forward f32 null threads=1"), "computes nothing"),
        (
            with_kernel(case="all_reduce n=64 ranks=4096 forward f32 mpich threads=1"),
            "several processes take part in it",
        ),
        (with_kernel(case="\x1b[31m\u202e gemm"), "is no reference: "),
        (with_kernel(case="x" * 10**6), "case must be shorter"),
    ],
)
def test_a_hostile_file_is_refused_in_one_sentence(tmp_path, content, reason):
    if isinstance(content, dict) and "20000" in json.dumps(content):
        content["kernels"][0]["times_s"] = [[1e-9] * 2] * 6
    assert reason in refused(tmp_path, content)


@pytest.mark.parametrize("name", ["missing.json", ".", "pipe"])
def test_what_is_no_file_is_refused_without_waiting(tmp_path, name):
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="expected a reference that"):
        read_reference(tmp_path / name)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    with open(tmp_path / "r.json", "wb") as file:
        file.truncate(references.LARGEST_BYTES + 1)
    with pytest.raises(BadInput, match="and at most 33554432 are read"):
        read_reference(tmp_path / "r.json")


def test_extreme_but_allowed_times_make_no_overflow(tmp_path):
    content = with_kernel(times_s=[[1e-12, 5.0], [5.0, 1e-12], [1e-12, 5.0], [5.0, 1e-12], [1e-6, 1e-3], [1.0, 1.0]])
    content["kernels"][0]["case"] = "memory kind=read n=64 passes=1 forward f32 loops threads=1"
    content["libraries"]["loops"] = "x"
    (tmp_path / "r.json").write_text(json.dumps(content))
    made = read_reference(tmp_path / "r.json")

    assert math.isfinite(made.detectable())
    assert not any(f.is_slow for f in made.findings({made.kernels[0].case.text: [5.0] * 3}) if f.case)
