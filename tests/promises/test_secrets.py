"""Files of earlier versions hold variables that may be secrets: no table, export, page or copy shows their values."""

import json
import sqlite3

import pytest

from deepbench.core.json_lines import to_line
from deepbench.core.variables import HIDDEN
from deepbench.fleets.file import SCHEMA, read_fleet
from deepbench.judge.compare import compare_files
from deepbench.reporting import database, export, site
from deepbench.reporting.page import content
from deepbench.results.file import lines_of, read_results
from deepbench.results.secrets import without_secrets
from deepbench.results.summary import summarize
from tests.conftest import run_command
from tests.help import samples

pytestmark = pytest.mark.programs

SECRET = "nvapi-hunter2"
TEXT = "gemm m=4 n={} k=4 a_t=0 b_t=0 forward f32 mkl threads=1"


def old_lines():
    """A header and records as an earlier version wrote them."""
    header = samples.header()
    header["command"] = ["run", "--ab", f"NVIDIA_API_KEY={SECRET},x", f"--ab=MY_TOKEN={SECRET},x", "gemm", "m=4"]
    environment = {"NVIDIA_API_KEY": SECRET, "OMP_WAIT_POLICY": "passive"}
    header["plan"]["interleaved"] = {"run": "1", "side": "a", "choices": {}, "environment": environment}
    records = [samples.measured(text=TEXT.format(n)) for n in (1, 2)]
    for record in records:
        record["process"]["environment"] = {
            "NVIDIA_API_KEY": SECRET,
            "CUDA_DATABASE_URL": SECRET,
            "OMP_WAIT_POLICY": "passive",
            "OMP_NUM_THREADS": "1",
        }
    return [header, *records]


@pytest.fixture
def old(tmp_path):
    header, *records = old_lines()
    return samples.write(tmp_path / "results" / "old.jsonl", records, header)


def test_values_outside_the_list_are_hidden_when_a_file_is_read(old):
    assert SECRET in old.read_text()
    read = read_results(old)

    assert [
        {
            "NVIDIA_API_KEY": HIDDEN,
            "CUDA_DATABASE_URL": HIDDEN,
            "OMP_WAIT_POLICY": "passive",
            "OMP_NUM_THREADS": "1",
        }
    ] * 2 == [r["process"]["environment"] for r in read.records]
    assert {"NVIDIA_API_KEY": HIDDEN, "OMP_WAIT_POLICY": "passive"} == read.header["plan"]["interleaved"]["environment"]
    assert ["run", "--ab", f"NVIDIA_API_KEY={HIDDEN}", f"--ab=MY_TOKEN={HIDDEN}", "gemm", "m=4"] == read.header[
        "command"
    ]


@pytest.mark.parametrize("kind", ["training", "serving"])
@pytest.mark.parametrize("environment", [{"MY_TOKEN": SECRET, "OMP_WAIT_POLICY": "passive"}, SECRET, [SECRET]])
def test_values_in_runs_of_applications_are_hidden(kind, environment):
    read = without_secrets({kind: {"run": 0, "start": {"environment": environment}}})
    hidden = {"MY_TOKEN": HIDDEN, "OMP_WAIT_POLICY": "passive"} if isinstance(environment, dict) else HIDDEN

    assert hidden == read[kind]["start"]["environment"]


@pytest.mark.parametrize(
    "environment", [[SECRET], SECRET, {"OMP_STACKSIZE": [SECRET]}, {"OMP_STACKSIZE": {"a": SECRET}}]
)
def test_an_environment_of_another_type_is_hidden(tmp_path, environment):
    record = samples.measured()
    record["process"]["environment"] = environment
    read = read_results(samples.write(tmp_path / "r.jsonl", [record]))

    assert SECRET.encode() not in b"".join(lines_of(read))


def test_a_fleet_file_hides_them_too(tmp_path):
    path = tmp_path / "fleet.jsonl"
    header = {"schema": SCHEMA, "expected": ["a"], "command": ["fleet", f"MY_TOKEN={SECRET}"]}
    host = {"host": "a", "run": 1, "status": "ok", "reason": None, "lines": old_lines()}
    link = {"link": ["a", "b"], "record": old_lines()[1]}
    path.write_text("".join(map(to_line, [header, host, link])))
    read = read_fleet(path)

    assert 2 == len(read.runs[0].records)
    assert SECRET not in repr(read)
    assert SECRET.encode() not in b"".join(lines_of(read.results_of("a")))


def test_no_export_and_no_page_has_them(old, tmp_path):
    read = read_results(old)
    summaries = summarize(read.records, read.order)
    database.sqlite(read, summaries, tmp_path / "r.db")
    database.parquet(read, summaries, tmp_path / "r.parquet")
    with sqlite3.connect(tmp_path / "r.db") as tables:
        dump = "".join(tables.iterdump())
    tables.close()
    outputs = [
        export.to_json(read, summaries),
        export.to_csv(read, summaries),
        export.to_markdown(read, summaries),
        json.dumps(content.of_file(read, "old")),
        dump,
        (tmp_path / "r.parquet").read_bytes().decode(errors="replace"),
    ]

    assert 2 == len(summaries)
    assert not [text for text in outputs if SECRET in text]


def test_a_comparison_names_neither_their_values_nor_the_variables(old, tmp_path):
    header, *records = old_lines()
    for record in records:
        record["process"]["environment"] = {"OMP_WAIT_POLICY": "active"}
    other = samples.write(tmp_path / "new.jsonl", records, header)
    found = compare_files(read_results(old), read_results(other))

    assert ["OMP_WAIT_POLICY: passive → active"] == [d for d in found.differences if d.isupper() or "_" in d]


def test_a_site_has_them_in_no_file_and_its_download_has_everything_else(old, tmp_path):
    pytest.importorskip("jinja2", reason="a page needs Jinja2: pip install jinja2")
    built = site.build(old.parent, tmp_path / "public", with_published=False)

    assert (1, []) == (built.machines, built.refused)
    assert not [p for p in (tmp_path / "public").rglob("*") if p.is_file() and SECRET in p.read_text()]
    given = read_results(old)
    download = read_results(tmp_path / "public" / "data" / "old.jsonl")
    assert (given.header, given.records, given.limits) == (download.header, download.records, download.limits)


def test_a_new_file_has_no_secret(tmp_path):
    done = run_command(
        *(tmp_path, "run", "gemm m=3 n=4 k=5", "--backend", "null", "--quick", "-o", "out.jsonl"),
        NVIDIA_API_KEY=SECRET,
        NCCL_API_TOKEN=SECRET,
        CUDA_DEVICE_MAX_CONNECTIONS="3",
    )
    assert 0 == done.returncode, done.stderr
    text = (tmp_path / "out.jsonl").read_text()

    assert SECRET not in text
    assert '"CUDA_DEVICE_MAX_CONNECTIONS":"3"' in text


def test_a_secret_cannot_tell_two_sides_apart(tmp_path):
    done = run_command(tmp_path, "run", "gemm m=3 n=4 k=5", "--ab", f"NVIDIA_API_KEY={SECRET},x", "--backend", "null")

    assert 64 == done.returncode
    assert "this is the name of a secret" in done.stderr
    assert [] == list(tmp_path.iterdir())
