"""What a card has shown: files that an NVIDIA H200 gave, and the page that quotes them."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from deepbench.reporting.heading import card_name
from deepbench.results.file import read_results
from deepbench.results.summary import summarize
from tests.conftest import ROOT

FOLDER = ROOT / "tests/data/gpu"
PAGE = (ROOT / "docs/gpu.md").read_text()
LARGE = 2 * 8192**3


def summaries(name):
    return {s.record["case"]: s for s in summarize(read_results(Path(FOLDER / f"h200-{name}.jsonl.gz")).records)}


@pytest.fixture(scope="module")
def torch_s():
    return json.loads((FOLDER / "h200-torch.json").read_text())


@pytest.mark.parametrize(("name", "cases"), [("measure", 33), ("load", 3), ("server", 32)])
def test_its_files_are_read_without_damage(name, cases):
    found = Counter(s.status for s in summaries(name).values())

    assert cases == found["ok"] + found["wrong"]
    assert {"ok", "wrong", "interrupted"} >= set(found)


def small_problems():
    """Case, status, reason and algorithm of each."""
    return [json.loads(line) for line in gzip.decompress((FOLDER / "h200-right.jsonl.gz").read_bytes()).splitlines()]


def test_small_problems_of_every_library_were_right_but_for_seven():
    lines = small_problems()
    found = Counter(status for _, status, *_ in lines)

    assert {"ok": 709, "unsupported": 558, "wrong": 7} == found
    assert f"{len(lines):,} small problems" in PAGE
    assert re.search(r"709\s+right, 558\s+unsupported, 7\s+wrong", PAGE)
    wrong = [case for case, status, *_ in lines if status == "wrong"]
    assert 6 == sum(case.startswith("conv") and "i8" in case and "result=wide" in case for case in wrong)


def test_the_bits_of_alpha_explain_the_six_convolutions():
    lines = small_problems()
    pairs = [
        re.search(r"found ([-+.\de]+), wanted (-?\d+)", reason)
        for case, status, reason, _ in lines
        if status == "wrong" and "i8" in case
    ]
    one = 0x3F800000  # 1.0 as f32
    for found, wanted in (pair.groups() for pair in pairs):
        product = (int(wanted) * one + 2**31) % 2**32 - 2**31
        assert product == pytest.approx(float(found), rel=1e-6)


def quoted():
    """The rates of both columns of the table on the page, in FLOP/s, by the first word of the row."""
    table = PAGE.partition("<!-- peaks of the H200 -->")[2].partition("**Answers**")[0]
    rows = re.findall(r"\| (\w+)[^|]*\| ([\d.]+) TFLOP/s \| (?:([\d.]+) TFLOP/s|–) \|", table)
    return {name: (float(ours), float(other) if other else None) for name, ours, other in rows}


def test_the_page_quotes_the_rates_of_the_files(torch_s):
    found = summaries("measure")
    peaks = {"tf32": 398.586}  # of its probe
    for name, text in [
        *((p, f"a_t=0 b_t=0 forward {p} cublaslt threads=1 result=narrow") for p in ("bf16", "f16")),
        ("f32", "a_t=0 b_t=0 forward f32 cublaslt threads=1"),
        *((p, f"a_t=1 b_t=0 forward {p} cublaslt threads=1") for p in ("i8", "f8e4m3")),
    ]:
        peaks[name] = LARGE / found[f"gemm m=8192 n=8192 k=8192 {text}"].time_s / 1e12
    others = {
        **{p: torch_s[f"gemm 8192 8192 8192 {n}"] for p, n in (("bf16", "bfloat16"), ("f16", "float16"))},
        **{"f32": torch_s["gemm 8192 8192 8192 float32"], "tf32": torch_s["gemm 8192 8192 8192 float32 tf32"]},
        "f8e4m3": torch_s["gemm 8192 float8_e4m3fn to bfloat16"],
    }
    page = quoted()

    assert set(page) == set(peaks)
    for name, (ours, other) in page.items():
        assert ours == pytest.approx(peaks[name], rel=5e-3)
        assert other is None or other == pytest.approx(LARGE / others[name] / 1e12, rel=5e-3)


def test_load_lowers_the_clock_and_the_record_shows_it():
    (case,) = [s for text, s in summaries("load").items() if " bf16 " in text]
    device = case.record["measurement"]["device"]
    sampled, loaded = device["during"], device["energy"]["during"]

    assert 1980 == sampled["clock_mhz"]
    assert 0.75 * sampled["clock_mhz"] > loaded["clock_mhz"]
    assert "software power cap" in loaded["limited_by"]
    assert "throttled" in {w["code"] for w in case.record["warnings"]}
    call_s = device["energy"]["window_s"] / device["energy"]["calls"]
    assert 1.15 < call_s / case.time_s < 1.25
    assert f"| {case.time_s * 1e3:.2f} ms |" in PAGE
    assert f"| {call_s * 1e3:.2f} ms |" in PAGE
    assert f"{device['energy']['watts']:.0f} W" in PAGE


def test_f32_and_copies_take_as_long_as_in_pytorch(torch_s):
    found = summaries("measure")
    ours_s = found["gemm m=8192 n=8192 k=8192 a_t=0 b_t=0 forward f32 cublaslt threads=1"].time_s
    copy = found["memory kind=copy n=134217728 forward f32 cudart threads=1"]

    assert ours_s == pytest.approx(torch_s["gemm 8192 8192 8192 float32"], rel=2e-3)
    assert 2**30 / copy.time_s == pytest.approx(torch_s["copy of 512 MiB, 20 in a graph, bytes/s"], rel=1e-2)


def test_the_maker_of_the_card_is_named_once():
    (case, *_) = summaries("load").values()

    assert "NVIDIA H200" == card_name(case.record["library"]["card"])
    assert "AMD Instinct" == card_name({"vendor": "AMD", "name": "Instinct"})


def test_the_clock_without_events_agrees_with_events():
    """One heat per size: cuBLASLt by events, PyTorch by a graph and by the slope, PJRT by slope and loop."""
    found = summaries("clock")
    assert {"ok": 9} == Counter(s.status for s in found.values())
    by = {(s.record["problem"]["n"], s.record["backend"]): s.record["measurement"] for s in found.values()}
    events_s, graph, program = (by[2048, name] for name in ("cublaslt", "torch", "pjrt"))

    assert ["graph", "loop", "slope"] == [m["device"]["clock"] for m in (events_s, graph, program)]
    middle_s = median(events_s["samples_s"])
    assert 22e-6 < middle_s < 23e-6
    queue = graph["device"]["queue"]
    for seconds in (queue["loop_s"], queue["slope_s"], median(graph["samples_s"])):
        assert 1 <= seconds / middle_s < 1.07  # upper bounds
    assert 1 <= program["device"]["queue"]["slope_s"] / middle_s < 1.2  # other code
    # Python gives 512³ too slowly, and the slope says so: the graph does not.
    short = by[512, "torch"]["device"]["queue"]
    assert short["slope_s"] > 4 * short["loop_s"]
    large_s = median(by[8192, "cublaslt"]["samples_s"])
    for name in ("torch", "pjrt"):
        assert abs(by[8192, name]["device"]["queue"]["slope_s"] / large_s - 1) < 0.05


def test_fast_sums_of_8_bit_floats_are_faster_and_a_choice_is_reused():
    found = summaries("f8")
    assert {"ok"} == {s.status for s in found.values()}
    rounds = {s.record["settings"]["accumulate"]: s.rounds for s in found.values()}

    assert [["now", "reused"]] * 2 == [[r["notes"]["search"] for r in rounds[name]] for name in ("full", "fast")]
    assert all(1 == len({r["notes"]["choice"] for r in of}) for of in rounds.values())
    full, fast = (min(min(r["measurement"]["samples_s"]) for r in rounds[name]) for name in ("full", "fast"))
    assert fast < full
    assert LARGE / fast > 1.45e15
