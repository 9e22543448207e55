"""Results in the formats of other programs, as far as possible read by these programs themselves."""

import csv
import io
import json

import pytest
import yaml

import deepbench
from deepbench.core.errors import BadInput
from deepbench.core.json_lines import to_line
from deepbench.formats import export_formats
from tests.help.samples import disturbed, header, measured

PRODUCT = "gemm m=3 n=2 k=4 a_t=1 forward f32 {backend} threads=1 beta=0"
NORM = "rms_norm rows=8 columns=64 forward f32 {backend} threads=1"


@pytest.fixture
def result_file(tmp_path):
    """Write a result file of these records."""

    def write(*records, name="new.jsonl", **facts):
        head = header([r["case"] for r in records]) | facts
        (tmp_path / name).write_bytes(b"".join(to_line(line).encode() for line in [head, *records]))
        return tmp_path / name

    return write


def rounds(text=PRODUCT, seconds=1e-3):
    return [measured(text=text, seconds=seconds * (1 + 0.01 * n), round_number=n + 1) for n in range(3)]


@pytest.fixture
def exported(result_file, tmp_path):
    """The text of an export of these records."""

    def run(to, *records, **options):
        (path, *_) = deepbench.export(result_file(*records), to, tmp_path / "out", **options)
        return path.read_text()

    return run


def test_pytorch_hud_has_a_time_per_process_in_microseconds_and_marks(exported):
    (record,) = json.loads(exported("pytorch-hud", *rounds(), commit="abc", repository="o/r"))
    assert [1000.0, 1010.0, 1020.0] == pytest.approx(record["metric"]["benchmark_values"], rel=1e-3)
    assert ("latency", "us") == (record["metric"]["name"], record["metric"]["extra_info"]["unit"])
    assert "false" == record["metric"]["extra_info"]["disturbed"]
    assert ("float32", "inference") == (record["benchmark"]["dtype"], record["benchmark"]["mode"])
    assert "1.0" == record["dependencies"]["MKL"]["version"]
    assert "abc" == record["dependencies"]["o/r"]["sha"]
    texts = [record["benchmark"]["extra_info"], record["metric"]["extra_info"], record["model"]["extra_info"]]
    assert all(isinstance(value, str) for facts in texts for value in facts.values())


def test_a_disturbed_time_is_marked_or_left_out(result_file, tmp_path):
    path = result_file(disturbed(text=PRODUCT), *rounds(NORM))
    (record, _) = json.loads(deepbench.export(path, "pytorch-hud", tmp_path / "hud")[0].read_text())
    assert "true" == record["metric"]["extra_info"]["disturbed"]
    prom = deepbench.export(path, "openmetrics", tmp_path / "prom")[0].read_text()
    (line,) = [x for x in prom.splitlines() if x.startswith("deepbench_case_disturbed") and "gemm" in x]
    assert line.endswith(" 1")
    for to in ("bencher", "github-action-benchmark", "otava", "flashinfer-trace"):
        paths = deepbench.export(path, to, tmp_path / to)
        assert all("gemm" not in p.read_text() for p in paths), to
        assert any("rms" in p.read_text() for p in paths), to


def test_bencher_has_nanoseconds_with_their_interval(exported):
    (measures,) = json.loads(exported("bencher", *rounds())).values()
    latency = measures["latency"]
    assert {"value", "lower_value", "upper_value"} == set(latency)
    assert latency["lower_value"] <= latency["value"] == pytest.approx(1e6, rel=0.02)
    assert latency["value"] <= latency["upper_value"]


def test_github_action_benchmark_has_smaller_is_better(exported):
    (entry,) = json.loads(exported("github-action-benchmark", *rounds()))
    assert "us" == entry["unit"]
    assert entry["value"] == pytest.approx(1000, rel=0.02)
    assert entry["range"].startswith("± ")
    assert "MKL 1.0; 3 processes" in entry["extra"]


def test_otava_has_a_row_per_file_in_order_of_time_and_what_all_have(result_file, tmp_path):
    files = []
    for day in (3, 1, 2):
        more = rounds(NORM) if day != 2 else []
        moment = {"started": f"2026-11-0{day}T00:00:00+00:00"}
        files.append(result_file(*rounds(seconds=1e-3 * day), *more, name=f"{day}.jsonl", **moment))
    table, configuration = deepbench.export(files, "otava", tmp_path / "o" / "history", commit="abc")
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    (column,) = [name for name in rows[0] if name.startswith(("gemm", "rms"))]
    assert column.startswith("gemm")
    assert ["1", "2", "3"] == [row["file"] for row in rows]
    assert [1e-3, 2e-3, 3e-3] == pytest.approx([float(row[column]) for row in rows], rel=0.02)
    (test,) = yaml.safe_load(configuration.read_text())["tests"].values()
    assert str(table) == test["file"]
    assert {"column": column, "direction": -1, "scale": 1} == test["metrics"][column]


def test_otava_itself_finds_the_change(result_file, tmp_path):
    """Twelve days, the last six 20 % slower."""
    config = pytest.importorskip("otava.test_config", reason="needs Apache Otava: pip install apache-otava")
    importer = pytest.importorskip("otava.importer", reason="needs Apache Otava: pip install apache-otava")
    files = []
    for day in range(1, 13):
        seconds = 1e-3 * (1 + 0.001 * (day % 3)) * (1.2 if day > 6 else 1)
        moment = {"started": f"2026-11-{day:02}T00:00:00+00:00"}
        files.append(result_file(*rounds(seconds=seconds), name=f"{day}.jsonl", **moment))
    _, configuration = deepbench.export(files, "otava", tmp_path / "history")
    (name, wanted), *_ = yaml.safe_load(configuration.read_text())["tests"].items()
    series = importer.CsvImporter().fetch_data(config.create_test_config(name, wanted))
    (change,) = series.analyze().change_points_by_time
    assert "2026-11-07" in str(importer.format_timestamp(change.time))


def test_openmetrics_is_read_by_both_parsers_of_prometheus(exported):
    openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")
    classic = pytest.importorskip("prometheus_client.parser")
    text = exported("openmetrics", *rounds())
    for parse in (openmetrics.text_string_to_metric_families, classic.text_string_to_metric_families):
        samples = [s for family in parse(text) for s in family.samples]
        (seconds,) = [s for s in samples if s.name == "deepbench_case_seconds"]
        assert seconds.value == pytest.approx(1e-3, rel=0.02)
        assert ("mkl", "here") == (seconds.labels["backend"], seconds.labels["host"])


def test_hostile_texts_are_escaped(result_file, tmp_path):
    """Of the machine and the library: quotes, ends of lines and control codes."""
    records = rounds()
    for record in records:
        record["library"]["version"] = 'x"} 1\n# EOF\x1b[31m'
    path = result_file(*records, machine={"host": 'a"\nb', "cpu": "\\", "architecture": "x"})
    openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")
    for to in export_formats():
        for written in deepbench.export(path, to, tmp_path / to):
            assert "\x1b" not in written.read_text(), to
    families = list(openmetrics.text_string_to_metric_families((tmp_path / "openmetrics").read_text()))
    assert 5 == len(families)


def test_flashinfer_trace_defines_what_it_times(result_file, tmp_path):
    plain = "gemm m=2 n=3 k=4 forward f32 {backend} threads=1"  # adds to C, and B is not transposed
    export = deepbench.export(
        result_file(*rounds(), *rounds(NORM), *rounds(plain)), "flashinfer-trace", tmp_path / "set"
    )
    assert {"definitions", "workloads", "traces"} == {p.relative_to(tmp_path / "set").parts[0] for p in export}
    definitions = {p.stem: json.loads(p.read_text()) for p in (tmp_path / "set").rglob("*.json")}
    traces = [
        json.loads(line) for p in (tmp_path / "set" / "traces").rglob("*.jsonl") for line in p.read_text().splitlines()
    ]
    assert {"gemm_f32_float32_n3_k4", "rmsnorm_f32_float32_h64"} == set(definitions)
    assert set(definitions) == {t["definition"] for t in traces}
    by_name = {t["definition"]: t for t in traces}
    assert {"M": 2} == by_name["gemm_f32_float32_n3_k4"]["workload"]["axes"]
    assert by_name["gemm_f32_float32_n3_k4"]["evaluation"]["performance"]["latency_ms"] == pytest.approx(1, rel=0.02)
    errors = {t["evaluation"]["correctness"]["max_absolute_error"] for t in traces}
    assert {0.0} == errors  # the samples got what they wanted
    for definition in definitions.values():
        assert {"type": "var"} in definition["axes"].values()
        compile(definition["reference"], definition["name"], "exec")


def test_flashinfer_traces_have_the_error_of_the_worst_value_or_are_left_out(result_file, tmp_path):
    """The format reads a missing error as 0."""
    known, unknown = rounds(), rounds(NORM)
    for record in known:
        record["check"]["after"] |= {"got": 1.5, "want": 2.0}
    for record in unknown:
        for check in record["check"].values():
            del check["got"], check["want"]
    paths = deepbench.export(result_file(*known, *unknown), "flashinfer-trace", tmp_path / "set")
    (trace,) = [json.loads(p.read_text()) for p in paths if "traces" in p.parts]
    correctness = trace["evaluation"]["correctness"]
    assert (0.5, 0.25) == (correctness["max_absolute_error"], correctness["max_relative_error"])


def test_flashinfer_traces_are_read_back_by_our_reader(result_file, tmp_path):
    """The same problem comes out of `deepbench list`."""
    deepbench.export(result_file(*rounds()), "flashinfer-trace", tmp_path / "set")
    (case,) = deepbench.cases(str(tmp_path / "set"), backends=["mkl"], threads=[1])
    assert "gemm m=3 n=2 k=4 a_t=1 b_t=0 forward f32 mkl threads=1 beta=0" == case.text


def test_flashinfer_bench_itself_accepts_it(result_file, tmp_path):
    data = pytest.importorskip("flashinfer_bench.data", reason="needs FlashInfer-Bench: pip install flashinfer-bench")
    for path in deepbench.export(result_file(*rounds(), *rounds(NORM)), "flashinfer-trace", tmp_path / "set"):
        if path.suffix == ".json":
            data.Definition.model_validate_json(path.read_text())
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else ():
            data.Trace.model_validate_json(line)


def test_unknown_formats_and_too_many_files_are_refused(result_file, tmp_path):
    path = result_file(*rounds())
    with pytest.raises(BadInput, match="did you mean bencher"):
        deepbench.export(path, "benchr", tmp_path / "out")
    with pytest.raises(BadInput, match="takes one file, found 2"):
        deepbench.export([path, path], "bencher", tmp_path / "out")
    with pytest.raises(BadInput, match="is a result file and would be replaced"):
        deepbench.export(path, "bencher", path)


def test_no_format_writes_what_is_no_number(result_file, tmp_path):
    for to in export_formats():
        for written in deepbench.export(result_file(*rounds()), to, tmp_path / f"out-{to}"):
            for word in written.read_text().replace('"', " ").replace(",", " ").split():
                assert word.lower() not in ("nan", "inf", "infinity"), to


def test_the_command_prints_or_writes_and_names_what_is_left_out(deepbench, result_file, tmp_path):
    path = result_file(*rounds(), disturbed(text=NORM))
    shown = deepbench("export", str(path), "--to", "bencher")
    assert 0 == shown.returncode
    assert ["gemm m=3 n=2 k=4 a_t=1 b_t=0 forward f32 mkl threads=1 beta=0"] == list(json.loads(shown.stdout))
    assert "left out: rms_norm" in shown.stderr
    assert "no mark" in shown.stderr
    refused = deepbench("export", str(path), "--to", "otava")
    assert 64 == refused.returncode
    assert "writes several files" in refused.stderr
    written = deepbench("export", str(path), "--to", "otava", "-o", str(tmp_path / "h"))
    assert "h.csv and 1 more file" in written.stdout
