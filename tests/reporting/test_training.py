"""Tables, logs and pages of trained applications."""

import io
import json
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from deepbench.applications.judge.trained import runs_of, trained
from deepbench.applications.judge.training_pairs import pairs
from deepbench.applications.reporting import curves, mllog, training
from deepbench.applications.reporting.page import write_page
from deepbench.results.file import read_results
from tests.help.trained import GOOD, START, seeds, write


@pytest.fixture
def file(tmp_path):
    return lambda runs, name="a.jsonl": write(tmp_path / name, runs)


def printed(table, width):
    console = Console(width=width, record=True, file=io.StringIO(), force_terminal=True)
    table.print(console)
    return console.export_text()


def test_the_table_has_both_factors_and_their_product(file):
    (row,) = training.table(trained(runs_of(file(seeds(3))))).rows

    assert row["samples to target"] == pytest.approx(2990, rel=0.01)
    assert row["samples/s"] == pytest.approx(100, rel=0.01)
    assert row["time to target"] == pytest.approx(row["samples to target"] / row["samples/s"])
    assert 3 == row["reached"] == row["runs"]


def test_80_columns_have_quality_and_time(file):
    runs = [run for name in ("image", "recommendation") for run in seeds(3, application=name)]
    text = printed(training.table(trained(runs_of(file(runs)))), 80)

    assert all(words in text for words in ("quality", "target", "time to target", "92.1 %", "recommendation"))
    assert max(map(len, text.splitlines())) <= 80


def test_only_settings_that_differ_have_a_column(file):
    found = trained(runs_of(file(seeds(2, batch=100) + seeds(2, batch=200))))

    assert ["batch"] == training.differing(found)
    assert "rung mini, torch, cpu, f32, threads 2" == training.common(found)
    assert [100, 200] == [row["batch"] for row in training.table(found).rows]


def test_a_time_is_withheld_where_a_seed_misses_the_target(file):
    table = training.table(trained(runs_of(file([*seeds(2), ({"seed": 2}, {"qualities": (0.1, 0.2)})]))))

    assert None is table.rows[0]["time to target"] is table.rows[0]["samples to target"]
    assert table.rows[0]["samples/s"] is not None
    assert "image: the time is withheld, because not every seed reached the target." in table.notes


def test_a_run_that_failed_says_why(file):
    runs = [*seeds(2), ({"seed": 2}, {"qualities": (0.1,), "end": "diverged", "reason": "the loss is nan"})]
    table = training.table(trained(runs_of(file(runs))))

    assert "image, seed 2: diverged: the loss is nan." in table.notes


def test_scaling_efficiency_is_a_sentence(file):
    table = training.table(trained(runs_of(file(seeds(3, ranks=1) + seeds(3, ranks=2, chunk_s=6.0)))))

    (line,) = [note for note in table.notes if "efficiency" in note]
    assert "image: 2 ranks train 1.67 times as fast as one" in line
    assert "scaling efficiency 83 %" in line


def test_parts_add_up_to_the_run_and_the_score_of_2018_drops_two_seeds(file):
    (row,) = training.parts_table(trained(runs_of(file(seeds(4))))).rows

    assert row["whole run"] == pytest.approx(sum(row[name] or 0.0 for name in training.PARTS))
    assert None is row["checkpoint"], "files of earlier versions do not have it"
    assert row["whole run"] == pytest.approx(1 + 2 + 4 * 10 + 4 * 1, rel=0.01)
    assert 30 < row["2018"] < 34


def test_pairs_say_what_the_second_file_is(file):
    sides = [trained(runs_of(file(seeds(4, chunk_s=s), f"{s}.jsonl"))) for s in (10.0, 12.0)]
    (row,) = training.pairs_table(pairs(*sides, 0.02)[0]).rows

    assert ("slower", pytest.approx(1.2, rel=0.01)) == (row["verdict"], row["time to target"])
    assert row["rate"] == pytest.approx(1 / 1.2, rel=0.01)


def test_logs_are_lines_of_json_up_to_the_target(file, tmp_path):
    written = mllog.write(file([({"seed": 7}, {"qualities": GOOD})]), tmp_path / "logs")
    (path,) = written
    lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]
    keys = [line["key"] for line in lines]
    values = {line["key"]: line["value"] for line in lines}

    assert all({"namespace", "time_ms", "event_type", "key", "value", "metadata"} == set(line) for line in lines)
    times = {line["key"]: line["time_ms"] for line in lines}
    assert [3000, 3 * 11_000] == [times["init_stop"] - times["init_start"], times["run_stop"] - times["run_start"]]
    assert (7, 100, 600, 100, "fp32") == tuple(
        values[k]
        for k in ("seed", "global_batch_size", "train_samples", "eval_samples", "lowest_numerical_precision_in_linear")
    )
    assert 3 == keys.count("eval_accuracy")  # the target is reached at the third evaluation
    assert {"status": "success", "samples_count": 3000}.items() <= lines[-1]["metadata"].items()
    assert values["deepbench_setup"]["application"] == "image"
    assert {"OMP_WAIT_POLICY": "passive"} == values["deepbench_environment"]


def test_the_parser_of_the_public_checker_reads_the_logs(file, tmp_path):
    parser = pytest.importorskip("mlperf_logging.compliance_checker.mlp_parser")
    (path,) = mllog.write(file([({}, {})]), tmp_path / "logs")

    lines, failed = parser.parse_file(str(path), "6.0.0")

    assert [] == failed
    assert len(path.read_text().splitlines()) == len(lines)
    assert ["run_start", "run_stop"] == [line.key for line in lines if line.key.startswith("run_")]


def test_a_pause_is_no_part_of_the_logged_time(file, tmp_path):
    found = file([({}, {"qualities": GOOD})])
    again = {"run": 0, "at": "2026-11-24T09:00:00.000+00:00", "start": {**START, "samples": 1000}}
    later = [{**event, "at": again["at"]} for event in found.training[2:]]
    found.training[2:] = [again, *later]
    (path,) = mllog.write(found, tmp_path / "logs")
    lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]
    times = {line["key"]: line["time_ms"] for line in lines}

    assert 3 * 11_000 == times["run_stop"] - times["run_start"]
    assert 2 == lines[-1]["metadata"]["processes"]


def test_a_log_names_the_device_the_optimizer_and_its_rate(file, tmp_path):
    found = file([({}, {})])
    found.training[0]["start"] = {**START, "device": "A GPU", "optimizer": "SGD", "learning_rate": 0.8}
    (path,) = mllog.write(found, tmp_path / "logs")
    lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]
    values = {line["key"]: line["value"] for line in lines}

    assert ("A GPU", "SGD", 0.8) == tuple(
        values[key] for key in ("submission_platform", "opt_name", "opt_base_learning_rate")
    )
    assert "rung mini, torch, cpu, f32, threads 2, A GPU" == training.common(trained(runs_of(found)))


def test_a_run_that_misses_its_target_is_logged_as_aborted(file, tmp_path):
    (path,) = mllog.write(file([({}, {"qualities": (0.1, 0.2)})]), tmp_path / "logs")

    assert '"status": "aborted"' in path.read_text().splitlines()[-1]


def test_a_picture_has_curves_bands_and_the_target():
    drawn = curves.svg(
        "image <1>",
        curves.Axis("samples"),
        curves.Axis("accuracy"),
        [curves.Curve("a & b", [(1, 0.5), (2, 0.9)], [(0.4, 0.6), (0.8, 1.0)])],
        [curves.Rule("target", 0.8)],
    )

    HTMLParser().feed(drawn)
    assert ("image &lt;1&gt;" in drawn, "a &amp; b" in drawn, "<1>" in drawn) == (True, True, False)
    assert 1 == drawn.count("<polyline") == drawn.count("<polygon") == drawn.count("stroke-dasharray")


def test_a_picture_without_points_is_empty():
    assert "" == curves.svg("", curves.Axis(""), curves.Axis(""), [curves.Curve("", [])])


@pytest.mark.parametrize("values", [[(5, 0.7)], [(5, 0.7), (6, 0.7)], [(1, 1e-9), (1e9, 1e9)]])
@pytest.mark.parametrize("is_log", [False, True])
def test_any_values_are_drawn(values, is_log):
    axis = curves.Axis("x", is_log=is_log)

    assert "nan" not in curves.svg("t", axis, axis, [curves.Curve("c", values)])


def test_a_page_has_a_picture_per_application_and_compares_files(file, tmp_path):
    pytest.importorskip("jinja2")
    names = ("image", "speech", "go")
    files = [
        file([run for name in names for run in seeds(3, application=name, chunk_s=s)], f"<{s}>.jsonl")
        for s in (10.0, 12.0)
    ]
    write_page(files, tmp_path / "page.html", None)
    page = (tmp_path / "page.html").read_text()

    assert 3 == page.count("<svg")
    assert 6 == page.count('class="stack"')
    assert "<10.0>" not in page
    assert page.count("slower") >= 3
    assert "withheld" not in page


def test_pictures_of_batches_join_only_what_differs_in_the_batch(file, tmp_path):
    pytest.importorskip("jinja2")

    def drawn(*files):
        write_page(files, tmp_path / "page.html", None)
        page = (tmp_path / "page.html").read_text()
        (tmp_path / "page.html").unlink()
        return re.findall(r"<text[^>]*>(image[^<]*: samples/s)</text>", page)

    laptop, server = (file(seeds(2, batch=batch), f"{batch}.jsonl") for batch in (100, 200))
    sweep = seeds(2, batch=100) + seeds(2, batch=200)
    both = seeds(2, batch=100, precision="bf16") + seeds(2, batch=200, precision="bf16")

    assert [] == drawn(laptop, server)
    assert ["image: samples/s"] == drawn(file(sweep, "sweep.jsonl"))
    assert ["image, precision f32: samples/s", "image, precision bf16: samples/s"] == drawn(
        file(sweep + both, "both.jsonl")
    )


def test_a_page_names_variables_and_escapes_them(tmp_path):
    pytest.importorskip("jinja2")
    path = tmp_path / "a.jsonl"
    write(path, seeds(1))
    path.write_text(path.read_text().replace('"passive"', '"<b>1</b>"'))
    write_page([read_results(path)], tmp_path / "page.html", None)
    page = (tmp_path / "page.html").read_text()

    assert "OMP_WAIT_POLICY=&lt;b&gt;1&lt;/b&gt;: set outside DeepBench" in page
    assert "<b>1</b>" not in page


def test_a_page_withholds_times_of_missed_targets(file, tmp_path):
    pytest.importorskip("jinja2")
    write_page([file(seeds(3, shift=-0.3))], tmp_path / "page.html", None)

    assert "withheld: not every seed reached the target" in (tmp_path / "page.html").read_text()
