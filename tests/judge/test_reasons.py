"""What may explain a ratio: only what both sides recorded, and what differs."""

from pathlib import Path

import pytest

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
