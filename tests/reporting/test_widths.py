"""Every table fits a terminal of 60 columns or more, and says which columns it left out."""

import io
import itertools
import random
import re
from dataclasses import replace
from functools import cache

import pytest
from rich.console import Console

from deepbench.api.filters import plan_cases
from deepbench.fleets import file as fleet
from deepbench.fleets import tables as fleets
from deepbench.fleets.judge import judge
from deepbench.judge import compare, selftest, totals
from deepbench.judge import furthest as judged_furthest
from deepbench.judge import limits as judged
from deepbench.judge.published import match
from deepbench.judge.ranking import Machine, competing, rankings
from deepbench.plan.cases import Choices
from deepbench.reporting import cases, furthest, groups, limits, published, ranking, views
from deepbench.reporting import compare as comparisons
from deepbench.reporting import selftest as selftests
from deepbench.reporting.table import Column, Table, number, print_parts
from deepbench.results import published as results
from deepbench.results.file import read_results
from deepbench.results.summary import summarize
from tests.conftest import ROOT
from tests.help import samples

FILE = read_results(ROOT / "tests" / "data" / "quick-epyc-2cores.jsonl")
SUMMARIES = summarize(FILE.records, FILE.order)
V100 = results.find("V100")
LINE = {"at": "2026-11-22T00:00:00+00:00"}


def all_reduces():
    texts = [
        f"all_reduce n={n} ranks={ranks} forward f32 {backend} threads=1"
        for n in (100_000, 3_097_600, 64_500_000)
        for ranks in (2, 4)
        for backend in ("mpich", "openmpi")
    ]
    return summarize([samples.measured(text.split()[-2], 1e-4 * i, text=text) for i, text in enumerate(texts, 1)])


def two_files(tmp_path):
    """The stored results, and the same with other times."""
    generator = random.Random(1)
    rounds = []
    for _ in range(2):
        records = []
        for record in FILE.records:
            for round_number in range(1, 6):
                copy = {**record, "round": round_number}
                if copy["measurement"]:
                    factor = generator.uniform(0.9, 1.1)
                    times = [factor * s for s in copy["measurement"]["samples_s"]]
                    cpu = [s and factor * s for s in copy["measurement"]["cpu_s"]]
                    copy["measurement"] = {**copy["measurement"], "samples_s": times, "cpu_s": cpu}
                records.append(copy)
        rounds.append(records)
    files = [type(FILE)(tmp_path / f"{name}.jsonl", FILE.header, r) for name, r in zip("ab", rounds, strict=True)]
    return compare.compare_files(*files)


def with_reasons(tmp_path, count):
    """Two files with so many slower cases, of long and short names, on other machines and with other kernels."""
    texts = [
        "gemm m={n} n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=1",
        "conv n={n} c=2048 h=112 w=112 k=1024 r=3 s=3 pad_h=1 pad_w=1 backward_weights f8e4m3 onednn threads=1",
    ]
    files = []
    for name, factor, cpu in (
        ("a", 1.0, "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"),
        ("b", 1.31, "AMD EPYC 7B13"),
    ):
        records = []
        for i in range(count):
            for round_number in range(1, 7):
                text = texts[i % 2].format(n=i + 2)
                record = samples.measured(
                    seconds=factor * (1 + round_number / 1000), round_number=round_number, text=text
                )
                record["library"] = {**record["library"], "version": f"3.{name}"}
                if i % 2 or count == 1:
                    record["notes"]["implementation"] = f"brgconv_bwd_w_{name}:avx512_core_amx_fp16"
                records.append(record)
        header = samples.header()
        header["machine"] |= {"cpu": cpu, "host": name}
        files.append(type(FILE)(tmp_path / f"{name}.jsonl", header, records))
    return compare.compare_files(*files)


def in_suite():
    """Products of a suite in two precisions."""
    cases = [p.case for p in plan_cases("deepbench/device", Choices(ops=("gemm",), precisions=("f32", "i8u8")))]
    place = {"suite": "deepbench/device", "label": None, "note": None, "needed": True}
    records = []
    for row, case in enumerate(cases, 1):
        sources = [{**place, "row": row, "application": "Speech Recognition"}]
        records.append({**samples.measured(case.backend, 1e-4 * row, text=case.text), "sources": sources})
    return summarize(records)


def by_limit(most):
    known = judged.of_file(FILE, SUMMARIES)
    nearest = [known.nearest(s) for s in SUMMARIES]
    fastest = [r.ranked[0] for r in cases.rankings(SUMMARIES) if r.ranked]
    return furthest.table(judged_furthest.kernels(SUMMARIES, fastest, nearest), "limit", most)


def ranked():
    """Eight machines with prices, and their rankings."""
    ours = totals.of_summaries(in_suite())
    machines = [Machine(f"machine {i}", "measured", ours, float(i)) for i in range(1, 6)]
    for name in ("Raspberry Pi 3", "iPhone 6", "iPhone 7"):
        machines.append(Machine(name, "imported", totals.of_summaries(results.summaries(name)), 0.01))
    return machines, rankings(machines, competing(("all",)))


LINES = [
    *(
        {**LINE, "what": "memory", "device": "cpu", "kind": "read", "threads": n}
        | {"bytes": size, "bytes_per_s": 1e10, "seconds": 1e-3, "case": f"memory kind=read n={size // 4}"}
        for n in (1, 2)
        for size in (2**14, 2**20, 2**29)
    ),
    *(
        {**LINE, "what": "call", "threads": n, "backend": name, "library": "MKL 2026", "seconds": 1e-6}
        | {"case": f"gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32 {name} threads={n}"}
        for n in (1, 2)
        for name in ("mkl", "openblas")
    ),
    *FILE.limits,
]


def of_many_libraries():
    """A product that nine libraries compute."""
    text = "gemm m=1760 n=128 k=1760 a_t=0 b_t=0 forward f32 {} threads=1"
    records = []
    for i in range(9):
        for shape in ("1760", "35"):
            record = samples.measured("mkl", 1e-3 * (i + 1), text=text.format("mkl").replace("1760", shape))
            records.append({**record, "case": f"{record['case']} {i}", "library_title": f"Library{i}"})
    return summarize(records)


def of_threads():
    """The same products with one and with two threads."""
    text = "gemm m={} n=128 k=1760 a_t=0 b_t=0 forward f32 {} threads={}"
    cases = [text.format(m, name, n) for m in (35, 1760) for n in (1, 2) for name in ("mkl", "onednn")]
    return summarize([samples.measured(case.split()[-2], 1e-3 * i, text=case) for i, case in enumerate(cases, 1)])


def self_test():
    times = [1e-3 * (1 + i / 1e3) for i in range(12)]
    text = "gemm m=1760 n=128 k=1760 a_t=0 b_t=0 forward f32 onednn threads=2"
    (found,) = [selftest.sensitivity(text, selftest.two_runs(times), 0.02)]
    return selftests.table(
        selftest.SelfTestResult({text: times}, [found], [found], 5e-9, "compiled", 5e-8, {}, {}, None, None)
    )


def fleet_tables():
    """Tables of hosts, kernels and links."""
    header = {"schema": fleet.SCHEMA, "expected": [f"node-{i:03}" for i in range(4)]}
    lines = [FILE.header, FILE.records[0]]
    runs = [fleet.HostRun(host, run, "ok", None, lines) for run in range(1, 6) for host in header["expected"]]
    file = fleet.FleetFile(FILE.path, header, runs)
    for a, b in itertools.combinations(header["expected"], 2):
        file.links.append(((a, b), FILE.records[0]))
    judged = judge(file)
    tables = fleets.by_host(file, judged), fleets.by_kernel(judged), fleets.by_link(judged)
    return dict(zip(("hosts", "kernels of hosts", "links of hosts"), tables, strict=True))


TABLES = {
    "many libraries": lambda tmp_path: views.by_backend(of_many_libraries()),
    "numbers of threads": lambda tmp_path: cases.library_table(of_threads(), limits.Limits(())),
    "self-test": lambda tmp_path: self_test(),
    **{
        name: lambda tmp_path, name=name: fleet_tables()[name]
        for name in ("hosts", "kernels of hosts", "links of hosts")
    },
    "cases by library": lambda tmp_path: cases.library_table(SUMMARIES, limits.Limits(FILE.limits)),
    "ranking": lambda tmp_path: cases.ranking_table(SUMMARIES),
    "applications": lambda tmp_path: views.by_application(in_suite()),
    "a ranking of machines": lambda tmp_path: ranking.parts(ranked()[1])[1],
    "applications and machines": lambda tmp_path: ranking.matrix(*ranked()),
    "problems by limit": lambda tmp_path: by_limit(10),
    "backends": lambda tmp_path: views.by_backend(SUMMARIES),
    "published machines": lambda tmp_path: published.machines(),
    "with a published machine": lambda tmp_path: published.matched(match(SUMMARIES, V100)),
    "means of a published machine": lambda tmp_path: published.means(match(SUMMARIES, V100)),
    "all published machines": lambda tmp_path: published.among_all(SUMMARIES),
    "two files": lambda tmp_path: comparisons.cases(two_files(tmp_path)),
    "means of two files": lambda tmp_path: comparisons.means(two_files(tmp_path)),
    "ranks": lambda tmp_path: groups.by_ranks(all_reduces()),
    "predictions": lambda tmp_path: groups.scaled(all_reduces()),
    **{
        f"limits: {name}": lambda tmp_path, name=name: limits.tables(LINES, [1, 2], FILE.header["machine"])[name]
        for name in ("compute", "memory", "calls")
    },
}


WIDTHS = [60, 80, 100, 120, 200]

# Headings that every width must show: what was measured, by which library, and the number that the table is for.
ALWAYS = {
    "cases by library": ("problem", "type", "library", "time", "±"),
    "ranking": ("problem", "type", "library", "time"),
    "backends": ("problem", "type", "MKL", "oneDNN", "OpenBLAS"),
    "many libraries": ("problem", "type", *(f"Library{i}" for i in range(9))),
    "numbers of threads": ("problem", "threads", "library", "time"),
    "published machines": ("machine", "year", "results"),
    "with a published machine": ("operation", "problem", "type", "library", "time", "published", "vs ours"),
    "all published machines": ("machine", "cases"),
    "ranks": ("elements", "ranks", "type", "fastest", "time", "bus GB/s"),
    "predictions": ("library", "type", "bytes", "16 ranks", "8192 ranks"),
    "self-test": ("case", "time", "detects"),
    "hosts": ("host", "runs", "all kernels", "verdict"),
    "kernels of hosts": ("kernel", "median time", "slowest host"),
    "links of hosts": ("link", "time", "verdict"),
    "limits: compute": ("type", "1 thread", "2 threads"),
    "limits: memory": ("working set", "1 thread", "level"),
    "limits: calls": ("library", "call", "1 thread", "2 threads"),
}


def printed(table, width):
    text = io.StringIO()
    table.print(Console(file=text, width=width, force_terminal=True, color_system=None, highlight=False))
    return text.getvalue()


@pytest.fixture(scope="module")
def table_of(tmp_path_factory):
    """A table by its name, built once."""
    return cache(lambda name: TABLES[name](tmp_path_factory.mktemp("files")))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ALWAYS)
def test_what_a_table_is_for_is_shown_at_every_width(name, width, table_of):
    table = table_of(name)
    left_out = printed(table, width).partition("Not shown at this width: ")[2].replace(".", ",").split(", ")
    headings = [column.heading for column in table.columns]

    assert [] == [heading for heading in ALWAYS[name] if heading in left_out or heading not in headings]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_without_rows_fits(name, width, table_of):
    empty = replace(table_of(name), rows=[])

    assert max(map(len, printed(empty, width).splitlines())) <= width


def test_a_table_that_is_too_wide_continues_below_with_the_rows_that_have_more():
    columns = [Column("problem"), *(number(f"library {i}") for i in range(3)), Column("notes", whole=True)]
    rows = [
        {"problem": "first", "library 0": 1_000_000_001, "library 1": 1_000_000_002, "library 2": 1_000_000_003},
        {"problem": "", "library 0": 1_000_000_004, "notes": "a note as long as this"},
        {"problem": "other", "library 0": 1_000_000_005},
    ]

    assert [line.rstrip() for line in printed(Table(columns, rows), 43).splitlines()] == [
        "problem   library 0   library 1   library 2",
        "first    1000000001  1000000002  1000000003",
        "         1000000004           –           –",
        "other    1000000005           –           –",
        "",
        "problem  notes",
        "first    a note as long as this",
    ]


def test_rates_are_in_a_unit_that_suits_the_largest():
    seconds = {1e-2: "GFLOP/s", 1e-5: "TFLOP/s", 1.0: "MFLOP/s"}
    text = "gemm m=640 n=128 k=640 a_t=0 b_t=0 forward f32 mkl threads=1"
    tables = [
        cases.library_table(summarize([samples.measured("mkl", s, text=text)]), limits.Limits(())) for s in seconds
    ]

    assert list(seconds.values()) == [
        next(c.heading for c in table.columns if c.name == "flop_per_s") for table in tables
    ]
    assert [["10.5"], ["10.5"], ["105"]] == [re.findall(r" (10\.?5) ", printed(table, 200)) for table in tables]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_fits(name, width, table_of):
    table = table_of(name)
    lines = printed(table, width).splitlines()

    assert table.rows
    assert max(map(len, lines)) <= width
    shown = " ".join(" ".join(lines).split())
    left_out = [c.heading for c in table.columns if c.narrow and c.heading.split()[0] not in shown]
    assert not left_out or "Not shown at this width: " in shown


@pytest.mark.parametrize("name", TABLES)
def test_elsewhere_a_table_has_all_columns(name, table_of):
    table = table_of(name)
    text = io.StringIO()
    table.print(Console(file=text, width=80, highlight=False))

    assert "Not shown" not in text.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("count", [0, 1, 24])
def test_a_comparison_fits_and_ends_with_its_answer(width, count, tmp_path):
    """Empty, with one case, and with many: case, ratio and verdict are always shown, the answer in eight lines."""
    comparison = with_reasons(tmp_path, count)
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None, highlight=False)
    table = comparisons.listed(comparison, full=False)
    print_parts(comparisons.parts(comparison, ("a.jsonl", "b.jsonl"), table), console)
    lines = text.getvalue().splitlines()
    last = max(i for i, line in enumerate(lines) if not line)

    assert max(map(len, lines)) <= width
    assert len(lines) - last - 1 <= 8
    found = f"{count} of {count} case{'s' * (count > 1)}, most 1.31×" if count else "none of 0 cases."
    assert lines[last + 1].startswith(f"Slower: {found}")
    assert sum("slower" in line and "1.31×" in line for line in lines) >= count
    heads = [line for line in lines if line.startswith("case") and "vs first" in line and "verdict" in line]
    assert bool(count) == len(heads)
    if count:
        head = heads[0].replace("vs first", "ratio")
        shown = {name: f" {name} " in f"{head} " for name in ("reason", "first", "low")}
        assert (width >= 80) == shown["reason"]
        assert (width >= 100) == shown["first"]
        assert (width == 200) == shown["low"]
