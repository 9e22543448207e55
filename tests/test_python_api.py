"""The Python library, as people use it: in a script, a thread, a notebook, under pytest."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import deepbench
from deepbench.core.case import parse_case
from tests.conftest import ROOT
from tests.help import samples

pytestmark = pytest.mark.programs

CASE = "gemm m=5 n=4 k=3 i8 null threads=1"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("api") / "null.jsonl"
    return deepbench.measure(CASE, mode="quick", output=path)


@pytest.fixture
def two_libraries(tmp_path):
    records = [samples.measured("mkl", 2e-3), samples.measured("openblas", 1e-3, round_number=1)]
    return deepbench.load(samples.write(tmp_path / "two.jsonl", records))


def test_importing_costs_next_to_nothing():
    heavy = "{'numpy', 'rich', 'click', 'orjson', 'deepbench.api'}"
    code = f"import sys, deepbench; print(sorted({heavy} & set(sys.modules))); print(callable(deepbench.measure))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert ["[]", "True"] == done.stdout.splitlines()


def test_showing_a_file_loads_only_the_operations_and_libraries_that_it_names():
    code = (
        "import sys\nfrom deepbench.cli import root\n"
        "sys.argv = ['deepbench', 'show', 'tests/data/quick-epyc-2cores.jsonl']\nroot._run()\n"
        "loaded = [name.split('.')[1:3] for name in sys.modules if name.count('.') > 1]\n"
        "print(sorted({tuple(n) for n in loaded if n[0] in ('ops', 'backends')}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    named = [("backends", "mkl"), ("backends", "onednn"), ("backends", "openblas"), ("ops", "gemm")]
    assert str(named) == done.stderr.strip()


def test_a_measured_case_is_a_result_with_samples_in_a_file(results):
    (summary,) = results

    assert 1 == len(results)
    assert "unchecked" == summary.status  # null computes nothing
    assert [summary.record["case"]] == [case.text for case in results.cases]
    (samples_s,) = results.samples("gemm m=5 n=4 k=3 i8")  # words may be missing
    assert all(0 < s < 1 for s in samples_s)
    assert results.samples(results.cases[0]) == [samples_s]
    assert results.path.exists()
    assert [r["case"] for r in deepbench.load(results.path).records] == [r["case"] for r in results.records]


def test_records_are_plain_values(results):
    loaded = deepbench.load(results.path)

    assert json.loads(json.dumps(loaded.records)) == loaded.records
    assert json.dumps(loaded.records) == json.dumps(results.records)
    assert "gemm m=5" in json.dumps(loaded.header)


def test_measuring_leaves_the_caller_alone(tmp_path):
    environment, affinity = dict(os.environ), os.sched_getaffinity(0)
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)]
    deepbench.measure(CASE, mode="quick", output=tmp_path / "a.jsonl")

    assert environment == dict(os.environ)
    assert affinity == os.sched_getaffinity(0)
    assert handlers == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)]


def test_measuring_in_a_thread(tmp_path):
    found = []
    thread = threading.Thread(
        target=lambda: found.append(deepbench.measure(CASE, mode="quick", output=tmp_path / "a.jsonl"))
    )
    thread.start()
    thread.join(60)

    assert 1 == len(found[0])


def test_measuring_in_a_script_without_a_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"import deepbench\nprint(len(deepbench.measure({CASE!r}, mode='quick', output='a.jsonl')))\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )

    assert ("1\n", "") == (done.stdout, done.stderr)


def test_progress_is_told_before_each_measurement(tmp_path):
    steps = []
    deepbench.measure(CASE, rounds=3, mode="quick", output=tmp_path / "a.jsonl", progress=steps.append)

    assert [0, 1, 2] == [step.done for step in steps]
    assert all(step.total == 3 and step.left_s > 0 and "gemm m=5" in step.text for step in steps)


def test_an_interrupted_file_is_resumed(tmp_path):
    path = tmp_path / "a.jsonl"

    def stop(step):
        if step.done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deepbench.measure(CASE, rounds=3, mode="quick", output=path, progress=stop)

    assert 1 == len(deepbench.load(path).records)
    assert 3 == len(deepbench.resume(path).records)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: deepbench.measure("gemm m=1 n=1", output=path), "gemm needs k"),
        (lambda path: deepbench.measure("nosuch", output=path), "unknown suite"),
        (lambda path: deepbench.measure(CASE, mode="fast", output=path), "mode must be one of quick"),
        (lambda path: deepbench.measure(CASE, rounds=0, output=path), "rounds must be from 1"),
        (lambda path: deepbench.measure(CASE, backends="nosuch", output=path), "unknown backend"),
        (lambda path: deepbench.measure(CASE, device="tpu", output=path), "unknown device 'tpu'; there are cpu"),
        (lambda path: deepbench.load(path), "does not exist"),
        (lambda path: deepbench.report(path, "out.txt"), "ends in .html"),
        (lambda path: deepbench.cases("gemm m=1 n=1 k=1", ops="conv"), "no case is left"),
    ],
)
def test_bad_words_are_one_sentence(tmp_path, call, message):
    with pytest.raises(deepbench.BadInput, match=message):
        call(tmp_path / "a.jsonl")

    assert not (tmp_path / "a.jsonl").exists()


def test_cases_of_a_suite(tmp_path):
    found = deepbench.cases("deepbench/train", ops=["conv"], backends="null", directions="forward")

    assert 90 == len(found)  # 94 rows, of which some ask for the same problem
    assert all(case.op == "conv" and case.direction == "forward" for case in found)
    assert deepbench.cases(found[:2]) == found[:2]


def test_a_case_among_several_must_be_named(two_libraries):
    with pytest.raises(deepbench.BadInput, match="several cases"):
        two_libraries.samples("gemm m=2 n=3 k=4 f32")
    with pytest.raises(deepbench.BadInput, match="not in "):
        two_libraries.samples("gemm m=9 n=9 k=9 f32")

    assert 2 == len(two_libraries.select("gemm m=2 n=3 k=4"))
    assert 1 == len(two_libraries.samples("gemm m=2 n=3 k=4 mkl"))


def test_libraries_are_ranked_with_intervals(two_libraries):
    table = two_libraries.fastest("gemm")

    assert ["OpenBLAS", "MKL"] == [row["library"] for row in table.rows]
    assert [1.0, 2.0] == pytest.approx([row["time_over_fastest"] for row in table.rows])
    assert all(row["low"] <= row["time"] <= row["high"] for row in table.rows)
    assert [] == list(two_libraries.fastest("conv").rows)
    with pytest.raises(deepbench.BadInput, match="unknown operation"):
        two_libraries.fastest("convolution")


def test_results_are_a_table_in_a_terminal_and_in_a_notebook(two_libraries):
    assert "OpenBLAS" in repr(two_libraries)
    assert "2 cases, 2 with a time" in repr(two_libraries)
    assert "<td" in two_libraries._repr_html_()
    assert len(repr(two_libraries.summaries[0])) < 200


def test_a_notebook_shows_texts_of_a_file_as_texts(tmp_path):
    record = samples.failed("crashed", "<script>alert(1)</script>")
    results = deepbench.load(samples.write(tmp_path / "<b>.jsonl", [record]))

    assert "<script>" not in results._repr_html_()
    assert "<b>" not in results._repr_html_()


def test_a_data_frame_has_the_columns_of_the_csv(two_libraries):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    from deepbench.reporting import export

    frame = two_libraries.to_frame()
    columns = export.to_csv(two_libraries.file, two_libraries.summaries).splitlines()[0].split(",")

    assert isinstance(frame, pandas.DataFrame)
    assert columns == list(frame.columns)
    assert ["mkl", "openblas"] == list(frame["backend"])


def test_comparing_gives_values(two_libraries, tmp_path):
    slower = deepbench.load(samples.write(tmp_path / "slow.jsonl", [samples.measured("mkl", 4e-3)]))
    comparison = deepbench.compare(two_libraries, slower)

    (compared,) = comparison.cases
    assert 2.0 == pytest.approx(compared.ratio)
    assert "cannot tell" == compared.verdict  # one process per side
    assert comparison.cases[0].case == deepbench.compare(two_libraries.path, slower.path).cases[0].case


def test_a_page_is_written(two_libraries, tmp_path):
    deepbench.report(two_libraries, tmp_path / "out.html")

    assert (tmp_path / "out.html").stat().st_size > 100_000


def test_types_are_declared():
    assert (Path(deepbench.__file__).parent / "py.typed").exists()
    assert set(deepbench.__all__) <= set(dir(deepbench))
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        deepbench.nosuch  # noqa: B018


@pytest.mark.long
def test_the_page_about_python_runs(tmp_path, monkeypatch):
    """Every example of docs/python.md, one after the other, as in one notebook."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    text = (ROOT / "docs" / "python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 7
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    variables = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), variables)

    assert {"ok"} == {s.status for s in variables["results"]}
    assert parse_case(variables["text"]) in variables["results"].cases
    assert (tmp_path / "out.html").exists()


def test_the_columns_of_a_frame_keep_the_fields_of_the_problem(tmp_path):
    """A column once had the name of a field, `hidden`, and replaced its value."""
    text = "recurrent cell=lstm hidden=8 batch=1 timesteps=2 forward f32 {backend} threads=2"
    results = deepbench.load(samples.write(tmp_path / "r.jsonl", [samples.measured(text=text)]))
    layers = [s.record for s in results if s.record["op"] == "recurrent"]

    assert layers
    frame = results.to_frame().set_index("case")
    assert [r["problem"]["hidden"] for r in layers] == [frame.loc[r["case"], "hidden"] for r in layers]
