"""What may explain a ratio: only what both sides recorded, and what differs."""

from pathlib import Path

import pytest

from deepbench.judge import reasons
from deepbench.judge.compare import compare_files
from deepbench.reporting import compare as report
from deepbench.results.file import ResultFile
from tests.help import samples

TIMES = [1.00, 1.01, 0.99, 1.005, 0.995]
TEXT = "gemm m={} n=3 k=4 a_t=0 b_t=0 forward f32 {} threads=2"


def side(*changes, factor=1.0, backends=("onednn",), machine=(), tool="deepbench 1"):
    """A file with one case per list of changes of its records; a change is a path such as `notes.algorithm`."""
    records = []
    for i, change in enumerate(changes):
        for number, seconds in enumerate(TIMES, 1):
            text = TEXT.format(i + 2, backends[i % len(backends)])
            record = samples.measured(seconds=factor * seconds, round_number=number, text=text)
            record["process"] |= {"environment": {}, "openmp_runtimes": ["libgomp.so.1"]}
            for path, value in change.items():
                *parents, name = path.split(".")
                part = record
                for parent in parents:
                    part = part[parent]
                part[name] = value
            records.append(record)
    header = samples.header()
    header["machine"] |= dict(machine)
    return ResultFile(Path(f"{factor}.jsonl"), {**header, "tool": tool}, records)


def texts_of(first, second, factor=1.5, **more):
    """The reasons of the only case of two sides."""
    comparison = compare_files(side(first, **more), side(second, factor=factor, **more))
    return [r.text for r in comparison.reasons_of(comparison.cases[0])]


@pytest.mark.parametrize(
    ("path", "first", "second", "text"),
    [
        ("notes.implementation", "brg:avx512_core", "brg:amx", "implementation: brg:avx512_core → brg:amx"),
        ("notes.algorithm", "direct", "Winograd", "algorithm: direct → Winograd"),
        ("notes.threads_used", 2, 1, "threads used: 2 → 1"),
        ("library.version", "3.5", "3.6", "oneDNN 3.5 → 3.6"),
        ("library.build", "Build 20260915 for Intel", "Build 20261015 for Intel", "oneDNN build 20260915 → 20261015"),
        ("library.build", "1" * 40, "2" * 40, f"oneDNN build {'1' * 12} → {'2' * 12}"),
        ("library.path", "/old/libdnnl.so.3", "/new/libdnnl.so.3", "oneDNN file /old/… → /new/…"),
        ("library.path", "/lib/libdnnl.so.3", "/lib/libdnnl.so.4", "oneDNN file /lib/libdnnl.so.3 → /lib/libdnnl.so.4"),
        ("library.cpu_kernels", "Haswell", "SkylakeX", "oneDNN CPU kernels Haswell → SkylakeX"),
        ("process.environment", {"OMP_WAIT_POLICY": "active"}, {}, "OMP_WAIT_POLICY: active → not set"),
        ("process.openmp_runtimes", ["libgomp.so.1"], ["libiomp5.so"], "OpenMP runtime: libgomp.so.1 → libiomp5.so"),
        ("measurement.loop", "native", "python", "measuring loop: native → python"),
        ("library.card", {"driver": "550.1"}, {"driver": "560.2"}, "GPU driver: 550.1 → 560.2"),
        ("settings", {"weights": "plain"}, {"weights": "packed"}, "weights: plain → packed"),
    ],
)
def test_a_fact_that_both_sides_recorded_and_that_differs_is_a_reason(path, first, second, text):
    assert [text] == texts_of({path: first}, {path: second})


@pytest.mark.parametrize("path", ["notes.implementation", "library.version", "process.environment", "measurement.loop"])
def test_a_fact_that_one_side_lacks_is_no_reason(path):
    value = {"OMP_WAIT_POLICY": "active"} if path.endswith("environment") else "native"

    assert [] == texts_of({path: value}, {path: None})
    assert [] == texts_of({path: None}, {path: value})


@pytest.mark.parametrize("value", [[[]], {"a": 1}, 1.5, [], True])
def test_facts_of_any_type_in_a_file_of_others_do_no_harm(value):
    names = ["notes.implementation", "notes.formats", "notes.converted_bytes", "library.card", "process.environment"]
    for name in names:
        texts_of({name: value}, {name: {"driver": [value]}})


def test_equal_sides_have_no_reason():
    assert [] == texts_of({"notes.implementation": "sgemm"}, {"notes.implementation": "sgemm"})


def test_a_version_stands_for_the_build_and_the_file_that_come_with_it():
    first = {"library.version": "3.5", "library.build": "abc", "library.path": "/old/libdnnl.so"}
    second = {"library.version": "3.6", "library.build": "def", "library.path": "/new/libdnnl.so"}

    assert ["oneDNN 3.5 → 3.6"] == texts_of(first, second)


def test_layout_conversions_are_compared_by_array_or_by_size():
    by_name = [{"x": "acdb", "w": "Acdb64a"}, {"x": "acdb"}]
    notes = [{"notes.formats": formats, "notes.converted_bytes": 64} for formats in by_name]

    assert ["layout of w: Acdb64a → not converted"] == texts_of(*notes)
    sizes = [{"notes.converted_bytes": size} for size in (0, 2**20)]
    assert ["layout conversions: none → 1.00 MiB"] == texts_of(*sizes)
    assert [] == texts_of({"notes.converted_bytes": 0}, {})


def device(mhz, limited_by):
    readings = {"clock_mhz": mhz, "limited_by": limited_by}
    clock = {"clock": "graph", "fallback": None, "host_call_s": [], "before": readings, "after": readings}
    return {"measurement.device": clock}


def test_the_clock_of_a_gpu_is_a_reason_beyond_its_margin():
    assert ["clock: 1410 MHz → 1200 MHz", "clock limited by: none → power"] == texts_of(
        device(1410, []), device(1200, ["power"])
    )
    assert [] == texts_of(device(1410, []), device(1400, []))
    assert [] == texts_of(device(None, None), device(1400, ["power"]))


def test_what_all_cases_of_a_library_share_is_said_once_and_what_is_particular_in_its_row():
    first = [{"library.version": "3.5", "notes.implementation": "brg"}, {"library.version": "1"}] * 2
    second = [
        {**change, **({"library.version": "3.6"} if change["library.version"] == "3.5" else {})} for change in first
    ]
    second[2]["notes.implementation"] = "jit"
    backends = ("onednn", "mkl")
    comparison = compare_files(side(*first, backends=backends), side(*second, factor=1.5, backends=backends))
    rows = {row["case"].split()[0]: row["reason"] for row in report.cases(comparison).rows}

    assert ["oneDNN: version 3.5 → 3.6"] == comparison.differences
    assert {"2": "oneDNN 3.5 → 3.6", "3": None, "4": "implementation: brg → jit", "5": None} == rows
    assert 1 == sum("No recorded difference explains 2 of them." == line for line in report.answer(comparison))


def test_an_undecided_case_and_one_that_is_the_same_name_no_shared_reason():
    comparison = compare_files(side({"library.version": "3.5"}), side({"library.version": "3.6"}))

    assert ["same"] == [c.verdict for c in comparison.cases]
    assert [None] == [row["reason"] for row in report.cases(comparison).rows]
    assert ["oneDNN: version 3.5 → 3.6"] == comparison.differences


def test_facts_about_the_machine_are_reasons_of_all_cases():
    machines = [
        {
            "cpu": "Xeon",
            "instructions": ["avx2", "amx_bf16"],
            "cpus_allowed": [0, 1],
            "memory_bytes": 2**34,
            "libc": None,
        },
        {
            "cpu": "EPYC",
            "instructions": ["avx2"],
            "cpus_allowed": [0, 1, 2],
            "memory_bytes": 2**34 + 1,
            "libc": "glibc",
        },
    ]
    sides = [side({}, factor=f, machine=m) for f, m in zip((1.0, 1.5), machines, strict=True)]
    comparison = compare_files(*sides)
    expected = ["CPU: Xeon → EPYC", "instructions: with amx_bf16 → without", "CPUs: 2 → 3"]

    assert expected == comparison.differences == [r.text for r in comparison.reasons_of(comparison.cases[0])]
    (row,) = report.cases(comparison).rows
    assert row["reason"] is None  # said once, above the table


def test_another_version_of_deepbench_is_a_reason():
    comparison = compare_files(side({}), side({}, factor=1.5, tool="deepbench 2"))

    assert ["DeepBench: 1 → 2"] == comparison.differences


# ---- of one host among many


def host(machine=(), libraries=(), environment=(), readings=(), notes=(), runs=3):
    """What the runs of one host recorded."""
    known = reasons.HostFacts()
    for number in range(1, runs + 1):
        record = samples.measured(round_number=number)
        record["process"] |= {"environment": dict(environment), "openmp_runtimes": ["libgomp.so.1"]}
        record["notes"] |= dict(notes)
        for name, value in dict(readings).items():
            if name == "other_cpus":
                record["measurement"][name] = value
            else:
                device = record["measurement"].setdefault("device", {"during": {}, "before": None, "after": None})
                device["during"][name] = value
        header = samples.header()
        header["machine"] |= {"host": f"name {id(known)}", "cpu_quota": None, **dict(machine)}
        header["libraries"] = {"openblas": {"library": {"name": "x", "version": "1", "path": None, **dict(libraries)}}}
        known.add(header, [record])
    return known


def apart(slow, *others):
    return reasons.Hosts({"slow": slow, **{f"h{i}": other for i, other in enumerate(others)}}).apart("slow")


@pytest.mark.parametrize(
    ("facts", "name", "words"),
    [
        ({"environment": {"OPENBLAS_CORETYPE": "Prescott"}}, "OPENBLAS_CORETYPE", "Prescott (elsewhere not set)"),
        ({"libraries": {"version": "0.9"}}, "openblas version", "0.9 (elsewhere 1)"),
        ({"libraries": {"cpu_kernels": "Prescott"}}, "openblas CPU kernels", "Prescott (elsewhere SkylakeX)"),
        ({"machine": {"cpu_ids": {"microcode": "0x1"}}}, "microcode", "0x1 (elsewhere 0x2)"),
        ({"machine": {"governor": "powersave"}}, "governor", "powersave (elsewhere performance)"),
        ({"machine": {"cpu_quota": 1.5}}, "CPU quota", "1.5 (elsewhere none)"),
        ({"machine": {"memory_bytes": 2**34}}, "memory", "16.0 GiB (elsewhere 32.0 GiB)"),
        ({"machine": {"instructions": ["avx", "fma"]}}, "instructions", "without avx512f"),
        ({"machine": {"caches": [{"level": 3, "bytes": 2**24}]}}, "caches", "L3 16.0 MiB (elsewhere L3 32.0 MiB)"),
        (
            {"notes": {"implementation": "ref"}},
            f"implementation of {samples.measured()['case']}",
            "ref (elsewhere jit)",
        ),
        ({"readings": {"other_cpus": 0.8}}, "CPUs that other programs used", "0.8 (elsewhere 0)"),
        ({"readings": {"celsius": 88}}, "temperature", "88 °C (elsewhere 50 °C)"),
        ({"readings": {"clock_mhz": 2100}}, "clock", "2100 MHz (elsewhere 3000 MHz)"),
        ({"readings": {"limited_by": ["power"]}}, "clock limited by", "power (elsewhere none)"),
    ],
)
def test_what_only_the_slow_host_has_sets_it_apart(facts, name, words):
    usual = {
        "libraries": {"cpu_kernels": "SkylakeX"},
        "machine": {
            "cpu_ids": {"microcode": "0x2"},
            "governor": "performance",
            "memory_bytes": 2**35,
            "instructions": ["avx", "avx512f", "fma"],
            "caches": [{"level": 3, "bytes": 2**25}],
        },
        "readings": {"other_cpus": 0.0, "celsius": 50, "clock_mhz": 3000, "limited_by": []},
        "notes": {"implementation": "jit"},
    }
    own = {group: {**usual.get(group, {}), **dict(facts.get(group, {}))} for group in {*usual, *facts}}

    assert {name: words} == apart(host(**own), *(host(**usual) for _ in range(3)))
    assert {} == apart(host(**own), host(**own), host(**usual), host(**usual))
    assert {} == apart(host(**usual), host(**usual), host(**own), host(**usual))


@pytest.mark.parametrize(
    ("name", "usual", "other"), [("other_cpus", 0, 0.8), ("celsius", 50, 88), ("clock_mhz", 3e3, 2100)]
)
def test_a_reading_that_another_host_has_too_sets_nothing_apart(name, usual, other):
    here, there = {name: other}, {name: usual}
    facts = reasons.Hosts({str(i): host(readings=r) for i, r in enumerate((here, here, there, there))})

    assert [{}] * 4 == [facts.apart(str(i)) for i in range(4)]


def test_a_reading_counts_only_outside_of_all_values_of_all_others():
    """One of the others was as hot in one run."""
    hot, cool, once = (host(readings={"celsius": c}) for c in (88, 50, 50))
    once.readings["celsius"][1] = 88.0

    assert ["temperature"] == list(apart(hot, cool, cool))
    assert {} == apart(hot, cool, once)
    assert {} == apart(host(readings={"celsius": 54}), cool, cool)  # that is noise
    assert {} == apart(host(readings={"celsius": 88}))  # no other host has readings
    assert {} == apart(hot, host(), host())


def test_what_differs_from_host_to_host_anyway_sets_none_apart():
    hosts = [host(machine={"memory_bytes": (i + 32) * 2**30}) for i in range(5)]

    assert {} == apart(*hosts)
    assert 5 == len(reasons.Hosts(dict(zip("abcde", hosts, strict=True))).differences()["memory"])
    assert {} == apart(*hosts[:3])
    assert {"memory": "32.0 GiB (elsewhere 33.0 GiB)"} == apart(*hosts[:2])


def test_of_two_kinds_of_others_the_more_frequent_one_is_named():
    kernels = [host(machine={"kernel": name}) for name in ("6.1", "6.8", "6.8", "6.5", "6.5", "6.8")]

    assert {"kernel": "6.1 (elsewhere 6.8 and others)"} == apart(*kernels)


def test_a_variable_that_only_the_slow_host_lacks_sets_it_apart():
    set_there = host(environment={"OMP_WAIT_POLICY": "active"})

    assert {"OMP_WAIT_POLICY": "not set (elsewhere active)"} == apart(host(), set_there, set_there)
    assert {} == apart(host(environment={"OMP_NUM_THREADS": "1"}), host(), host())  # the threads of a case say it


def test_a_host_without_a_library_is_apart():
    known = reasons.HostFacts()
    header = samples.header()
    header["libraries"] = {"openblas": {"unavailable": {"reason": "not found", "remedy": "install it"}}}
    header["machine"] |= {"cpu_quota": None}
    known.add(header, [])

    assert {"openblas version": "missing (elsewhere 1)"} == apart(known, host(), host())


@pytest.mark.parametrize("value", [[[]], {"a": 1}, -1.5, 1e300, [], True, "", "\x1b[2J", "x" * 10**5, 10**400, [1e308]])
def test_facts_of_hosts_of_any_type_do_no_harm(value):
    machine = dict.fromkeys(["governor", "kernel", "cpu_ids", "cpu_quota", "system", "numa_nodes"], value)
    readings = dict.fromkeys(["other_cpus", "celsius", "clock_mhz", "limited_by"], value)
    strange = host(
        machine, {"cpu_kernels": value, "card": value}, {"OMP_SCHEDULE": value}, readings, {"algorithm": value}
    )
    found = apart(strange, host(), host(environment={"OMP_SCHEDULE": "static"}))

    assert all(len(words) < 500 for words in found.values())


def test_of_endless_variables_a_part_is_looked_at():
    many = host(environment={f"OMP_{i}": "1" for i in range(3 * reasons.MOST_VARIABLES)}, runs=1)

    assert reasons.MOST_VARIABLES == len(apart(many, host(), host()))
