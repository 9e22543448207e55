"""The real SCALE-Sim and ZigZag on exported problems: their cycles are those of our closed forms."""

import csv
import json
import math

import pytest

import deepbench
from deepbench.core.lowering import MatrixProduct
from deepbench.networks.what_if.systolic import SystolicArray
from tests.help import simulators

pytestmark = [pytest.mark.simulators, pytest.mark.programs, pytest.mark.costly]

WORDS = [
    "gemm m=12 n=5 k=7 f32",
    "gemm m=64 n=33 k=100 f32",
    "gemm m=1 n=128 k=70 f32",
    "batched_gemm batch=3 m=20 n=30 k=10 f32",
    "conv n=2 c=6 h=9 w=8 k=4 r=3 s=2 pad_h=1 pad_w=1 stride_h=2 stride_w=1 f32",
    "recurrent cell=gru hidden=16 batch=3 timesteps=2 f32",
    "attention batch=1 heads=2 kv_heads=1 queries=9 keys=11 head_size=8 f32",
]


@pytest.fixture(autouse=True)
def _installed():
    for name in ("scalesim", "zigzag"):
        try:
            simulators.python_of(name)
        except FileNotFoundError as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("dataflow", ["ws", "is", "os"])
@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (16, 4), (5, 32)])
def test_scalesim_has_the_cycles_of_our_model(tmp_path, rows, columns, dataflow):
    array = SystolicArray(rows, columns, dataflow)
    deepbench.export_problems(WORDS, "scalesim", tmp_path / "out")

    report = simulators.run_scalesim(tmp_path / "out", array.rows, array.columns, array.dataflow)

    counts = json.loads((tmp_path / "out" / "counts.json").read_text())
    layers = [layer for problem in counts["problems"] for layer in problem["layers"]]
    with report.open(newline="") as file:
        rows_of_report = list(csv.DictReader(file, skipinitialspace=True))
    assert len(layers) == len(rows_of_report) > 7
    for layer, row in zip(layers, rows_of_report, strict=True):
        product = MatrixProduct("", *(layer["product"][size] for size in "mnk"))
        assert array.cycles(product) == int(float(row["Total Cycles"])), layer["name"]
        # The mapping efficiency is the part of the array that the folds fill.
        full = array.folds(product) * rows * columns
        down, across, _ = array._sizes(product)
        assert math.isclose(100 * down * across / full, float(row["Mapping Efficiency %"]), rel_tol=1e-3)


def test_cycles_of_scalesim_become_times(tmp_path):
    deepbench.export_problems(WORDS, "scalesim", tmp_path / "out")
    array = SystolicArray(8, 8, "ws")
    report = simulators.run_scalesim(tmp_path / "out", array.rows, array.columns, array.dataflow)

    results = deepbench.import_results(
        report, tmp_path / "x.jsonl", problems=tmp_path / "out" / "counts.json", clock="1GHz"
    )

    for summary in results.summaries:
        case = deepbench.cases(summary.record["case"].replace(" simulated ", " reference "), backends="reference")[0]
        products = case.operation.matrix_products(case)
        assert math.isclose(sum(map(array.cycles, products)) / 1e9, summary.time_s, rel_tol=1e-6)


OF_ZIGZAG = ["gemm m=128 n=128 k=256 i8", "conv n=1 c=32 h=8 w=8 k=32 r=3 s=3 pad_h=1 pad_w=1 i8"]


def test_zigzag_computes_a_mac_per_multiplier_and_cycle(tmp_path):
    """On its stock design of 32 × 32, with problems that fill it."""
    deepbench.export_problems(OF_ZIGZAG, "zigzag", tmp_path / "out")
    found_in = simulators.run_zigzag(tmp_path / "out")

    counts = json.loads((tmp_path / "out" / "counts.json").read_text())
    for problem in counts["problems"]:
        (layer,) = problem["layers"]
        found = json.loads((found_in / f"{layer['name']}_complete.json").read_text())
        assert layer["multiply_adds"] == 1024 * found["outputs"]["latency"]["computation"]

    results = deepbench.import_results(
        found_in, tmp_path / "x.jsonl", problems=tmp_path / "out" / "counts.json", clock="1GHz"
    )
    assert all(s.time_s > s.record["flop"] / 2 / 1024e9 for s in results.summaries)
    assert "simulated (ZigZag)" in str(results)
