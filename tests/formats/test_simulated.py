"""Results of simulators, and estimates by the model: read, marked as simulated, and shown with what was measured."""

import json
import math
import re

import pytest

import deepbench
from deepbench.core.errors import BadInput
from deepbench.core.lowering import MatrixProduct
from deepbench.networks.what_if.hardware import Hardware
from tests.conftest import ROOT, run_command
from tests.networks.test_systolic import TEXT

WORDS = ["gemm m=20 n=30 k=40 f32", "gemm m=7 n=8 k=9 f32", "recurrent cell=lstm hidden=8 batch=3 timesteps=5 f32"]
REPORT = "LayerID, Total Cycles (incl. prefetch), Total Cycles, Stall Cycles, Overall Util %, Mapping Efficiency %,\n"
STATS = "Level 0\nCycles: 9\n\nSummary Stats\n-------------\nUtilization: 1.00\nCycles: {}\n\nComputes = 4\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    deepbench.export_problems(WORDS, "scalesim", "out")
    return tmp_path


def layers(folder):
    counts = json.loads((folder / "out" / "counts.json").read_text())
    return [layer for problem in counts["problems"] for layer in problem["layers"]]


def report(folder, cycles):
    rows = [f"{i}, 1.0, {n}.0, 0.0, 50.0, 50.0,\n" for i, n in enumerate(cycles)]
    path = folder / "COMPUTE_REPORT.csv"
    path.write_text(REPORT + "".join(rows))
    return path


def read(path, **options):
    path.with_suffix(".jsonl").unlink(missing_ok=True)
    return deepbench.import_results(path, problems="out/counts.json", clock="1GHz", **options)


def times(results):
    return [s.time_s for s in results.summaries]


def test_a_problem_takes_its_layers_as_often_as_it_runs_them(folder):
    cycles = [1000 + i for i in range(len(layers(folder)))]

    results = read(report(folder, cycles), machine="my chip")

    total = sum(layer["times"] * n for layer, n in zip(layers(folder)[2:], cycles[2:], strict=True))
    assert 3 == len(layers(folder))
    assert [1000e-9, 1001e-9, total * 1e-9] == pytest.approx(times(results))
    assert "my chip" == results.header["machine"]["cpu"]


def test_simulated_times_are_marked(folder):
    results = read(report(folder, [10] * len(layers(folder))))

    assert {"unchecked"} == {s.status for s in results.summaries}
    assert all(s.is_simulated for s in results.summaries)
    assert "simulated (SCALE-Sim)" in str(results)
    deepbench.report(results, folder / "page.html")
    page = (folder / "page.html").read_text()
    assert '"kind": "simulated"' in page or '"kind":"simulated"' in page
    assert "no hardware ran them" in page
    assert "measured by others" not in page


def test_timeloop_has_a_folder_for_each_layer(folder):
    for i, layer in enumerate(layers(folder)):
        path = folder / "runs" / layer["name"] / "timeloop-mapper.stats.txt"
        path.parent.mkdir(parents=True)
        path.write_text(STATS.format(100 + i))
    (folder / "runs" / "notes.stats.txt").write_text("nothing of Timeloop")

    found = deepbench.import_results("runs", "t.jsonl", problems="out/counts.json", clock=2e9)

    assert [50e-9, 50.5e-9] == pytest.approx(times(found)[:2])


def test_a_problem_with_a_missing_layer_has_no_time(folder):
    results = read(report(folder, [10, 20]))

    *_, last = results.summaries
    assert last.estimate is None
    assert "SCALE-Sim gives no cycles of recurrent_3" in last.record["reason"]


def test_applications_come_from_the_export(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    deepbench.export_problems("deepbench/server", "scalesim", "out", ops="gemm", applications="Speech Recognition")
    results = read(report(tmp_path, [10] * len(layers(tmp_path))))

    assert {"Speech Recognition"} == {x["application"] for s in results.summaries for x in s.record["sources"]}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clock": "1GHz"}, r"name the counts\.json .* --problems counts\.json"),
        ({"problems": "out/counts.json"}, r"say how many there are in a second: --clock 1GHz"),
        ({"problems": "out/counts.json", "clock": "fast"}, r"--clock wants cycles per second, .* found 'fast'"),
        ({"problems": "out/counts.json", "clock": "1e300"}, r"--clock wants cycles per second"),
        ({"problems": "out/counts.json", "clock": 0}, r"--clock wants cycles per second"),
        ({"problems": "out/topology.csv", "clock": "1GHz"}, r"--problems: the file is not valid JSON"),
        ({"problems": "none.json", "clock": "1GHz"}, r"none\.json"),
    ],
)
def test_what_is_missing_is_one_sentence(folder, options, reason):
    path = report(folder, [10] * len(layers(folder)))
    with pytest.raises(BadInput, match=reason):
        deepbench.import_results(path, **options)
    assert not path.with_suffix(".jsonl").exists()


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"format": "csv", "problems": 3}',
        '{"format": "csv", "problems": [3]}',
        '{"format": "csv", "problems": [{"problem": "gemm m=1 n=1 k=1", "layers": []}]}',
        '{"format": "csv", "problems": [{"problem": "x", "layers": [{"name": "a", "times": -1}]}]}',
        '{"format": "csv", "problems": [{"problem": "x", "layers": [{"name": "a", "times": 1e999}]}]}',
        '{"format": "csv", "problems": [{"problem": "\\u001b[31m", "layers": [{"name": "a", "times": 1}]}]}',
    ],
)
def test_hostile_counts_are_one_sentence(folder, text):
    (folder / "counts.json").write_text(text)
    path = report(folder, [10])
    with pytest.raises(BadInput) as found:
        deepbench.import_results(path, problems="counts.json", clock="1GHz")
    assert "\x1b" not in str(found.value)


@pytest.mark.parametrize(
    "text",
    [
        REPORT + "99, 1, 1, 0, 0, 0,\n",
        REPORT + "-1, 1, 1, 0, 0, 0,\n",
        REPORT + "x, 1, 1, 0, 0, 0,\n",
        REPORT + "0, 1\n",
        REPORT + "0, 1, nan, 0, 0, 0,\n",
        REPORT + "0, 1, 1e300, 0, 0, 0,\n",
        REPORT + "0, 1, -5, 0, 0, 0,\n",
        REPORT,
    ],
)
def test_damaged_reports_are_one_sentence(folder, text):
    path = folder / "COMPUTE_REPORT.csv"
    path.write_text(text)
    with pytest.raises(BadInput):
        read(path)


def test_a_folder_without_results_is_one_sentence(folder):
    with pytest.raises(BadInput, match=r"out has no results of a simulator\. In a folder, deepbench reads SCALE-Sim"):
        deepbench.import_results("out", "x.jsonl", problems="out/counts.json", clock=1e9)


def test_a_folder_has_a_limit(folder, monkeypatch):
    from deepbench import formats

    monkeypatch.setattr(formats, "MOST_FILES", 2)
    with pytest.raises(BadInput, match="out has more than 2 files"):
        deepbench.import_results("out", "x.jsonl", problems="out/counts.json", clock=1e9)


# ---- estimates


def test_an_estimate_is_the_time_of_the_array(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(TEXT)

    results = deepbench.estimate("gemm m=64 n=48 k=100 f32", "mine.toml")

    (summary,) = results.summaries
    hardware = Hardware.parse(TEXT)
    cycles = hardware.array.cycles(_product(summary))
    assert math.isclose(cycles / 1e9, summary.time_s, rel_tol=1e-5)
    assert summary.is_simulated
    assert "simulated (time model)" in str(results)
    assert results.path.name == "mine.jsonl"


def _product(summary):
    from deepbench.core.case import parse_case

    case = parse_case(summary.record["case"])
    return case.operation.matrix_products(case)[0]


def test_estimates_of_all_operations(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(TEXT)

    results = deepbench.estimate("deepbench/train", "mine.toml")

    assert {"gemm", "conv", "recurrent"} <= {s.record["op"] for s in results.summaries}
    assert all(s.time_s > 0 for s in results.summaries)


def test_hardware_without_a_peak_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(TEXT.replace("clock_hz = 1e9", "") + "[peak]\nbf16 = 1e12\n")
    from deepbench.api.filters import make_choices
    from deepbench.networks import api

    _, found, _ = api.estimated(
        ["gemm m=3 n=4 k=5", "gemm m=3 n=4 k=6"], "mine.toml", None, make_choices(precisions=["f32", "bf16"])
    )
    assert [line for line in found.left_out if "array states no peak of f32" in line]
    assert {"bf16"} == {entry.text.split()[7] for entry in found.cases}


def test_a_call_costs_what_the_file_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(TEXT + "[overhead]\ncall_s = 1.0\n")
    (summary,) = deepbench.estimate("gemm m=4 n=4 k=4 f32", "mine.toml").summaries
    assert 1.0 == pytest.approx(summary.time_s, rel=1e-3)


# ---- the walk of docs/simulators.md

PAGE = (ROOT / "docs" / "simulators.md").read_text()
SECTION = PAGE.partition("## From an accelerator")[2].partition("\n## ")[0]
WALK = [line for line in re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)[0].splitlines() if line]


def write_report_of_array(folder, array):
    """What SCALE-Sim says; `make test-simulators` runs the real one."""
    counts = json.loads((folder / "counts.json").read_text())
    found = [layer for problem in counts["problems"] for layer in problem["layers"]]
    cycles = [array.cycles(MatrixProduct("", *(layer["product"][size] for size in "mnk"))) for layer in found]
    (folder / "runs").mkdir()
    rows = [f"{i}, 1.0, {n}.0, 0.0, 50.0, 50.0,\n" for i, n in enumerate(cycles)]
    (folder / "runs" / "COMPUTE_REPORT.csv").write_text(REPORT + "".join(rows))


@pytest.mark.programs
@pytest.mark.costly
def test_the_walk_of_an_architect(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", SECTION, re.DOTALL)
    (tmp_path / "chip.toml").write_text(text)
    (tmp_path / "wide.toml").write_text(text.replace("128", "256").replace("my acc", "my wide acc"))
    assert 10 == len(WALK)
    outputs = {}
    for line in WALK:
        done = run_command(tmp_path, *line.split()[1:])
        assert 0 == done.returncode, (line, done.stderr)
        outputs[line] = done.stdout
        if " export " in line:
            write_report_of_array(tmp_path / "scalesim", Hardware.parse(text).array)

    networks = [line for line in outputs["deepbench rank now.jsonl wide.jsonl"].splitlines() if " wide " in line]
    assert 30 < len(networks)
    assert "EfficientNet" not in "\n".join(networks)
    assert "Simulated, not measured: now, wide." in outputs["deepbench rank now.jsonl wide.jsonl"]
    # SCALE-Sim and the model agree, but for memory and the cost of a call.
    checked = {s.record["case"]: s.time_s for s in deepbench.load(tmp_path / "checked.jsonl").summaries if s.is_ranked}
    modelled = {s.record["case"]: s.time_s for s in deepbench.load(tmp_path / "now.jsonl").summaries}
    assert len(checked) == 5
    for case, seconds in checked.items():
        assert seconds <= modelled[case] <= 1.3 * seconds + 3e-6, case
