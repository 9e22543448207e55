"""Documentation is tested: its examples run, its fields are the schema's, its commands exist."""

import json
import re
from pathlib import Path

import pytest

from deepbench.core.backend import all_backends, find_backend
from deepbench.core.case import parse_case
from deepbench.core.op import all_ops
from deepbench.results.record import make_record
from tests.conftest import ROOT, long, records_of

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md", *sorted(DOCS.glob("*.md"))]


def test_the_example_op_runs_on_the_reference_at_once(deepbench, tmp_path):
    done = deepbench(
        *("run", "layer_norm rows=64 columns=100", "--backend", "reference", "--quick", "-o", "out.jsonl"),
        DEEPBENCH_PLUGINS=str(DOCS / "examples"),
    )

    assert 0 == done.returncode, done.stderr
    (found,) = records_of(tmp_path / "out.jsonl")
    assert "ok" == found["status"], found["reason"]
    assert 8 * 64 * 100 == found["flop"]


@long
def test_the_example_library_multiplies(deepbench, tmp_path):
    """BLIS is rarely there; MKL's library has the same Fortran names and stands in for it."""
    from deepbench.core.errors import Unavailable

    try:
        path = find_backend("mkl").open()["path"]
    except Unavailable as error:
        pytest.skip(str(error))
    done = deepbench(
        *("run", "gemm m=64 n=32 k=100 f32 blis", "--quick", "-o", "out.jsonl"),
        DEEPBENCH_PLUGINS=str(DOCS / "examples"),
        DEEPBENCH_BLIS_PATH=path,
    )

    assert 0 == done.returncode, done.stderr
    (found,) = records_of(tmp_path / "out.jsonl")
    assert ("ok", "blis") == (found["status"], found["backend"]), found["reason"]


@pytest.mark.parametrize(
    ("page", "example"), [("adding-an-op", "ops/layer_norm"), ("adding-a-library", "backends/blis")]
)
def test_the_code_on_the_page_is_the_tested_file(page, example):
    text = (DOCS / f"{page}.md").read_text()

    assert (DOCS / "examples" / f"{example}.py").read_text().strip() in text


def leaves(schema, prefix=""):
    """Dotted names of all fields of a JSON Schema."""
    for name, inner in schema.get("properties", {}).items():
        yield prefix + name
        yield from leaves(inner, f"{prefix}{name}.")
        yield from leaves(inner.get("items", {}), f"{prefix}{name}[].")


def test_every_field_of_the_schema_is_described():
    schema = json.loads((ROOT / "deepbench" / "results" / "schema.json").read_text())
    text = (DOCS / "results.md").read_text()
    described = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    fields = set()
    while part := schema:  # header, roof, limit, record
        fields |= set(leaves(part.get("then", part)))
        schema = part.get("else")

    assert {"plan.mode", "roof.at", "limit.at", "measurement.samples_s"} <= fields
    assert set() == fields - described
    made = make_record(parse_case("gemm m=1 n=1 k=1 forward f32 mkl threads=1"), 1, "ok")
    assert set() == set(made) - described


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_in_code_blocks_have_options_that_exist(deepbench, page):
    from deepbench.cli import cli

    known = {}
    for name, command in cli.commands.items():
        both = [command, *getattr(command, "commands", {}).values()]  # `reference list` is a command of a command
        known[name] = {o for c in both for p in c.params for o in p.opts} | {"--help", "-h"}
    for line in re.findall(r"^(?:\$ )?deepbench (.+)$", page.read_text(), re.MULTILINE):
        verb, *words = line.split("#")[0].split()
        if verb.startswith("-"):
            continue
        assert verb in known, line
        for word in words:
            if word.startswith("-"):
                assert word.split("=")[0] in known[verb], line


def test_the_readme_names_every_folder_and_file_it_shows():
    tree = re.search(r"```text\ndeepbench/\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names = re.findall(r"^ +([\w./]+)  ", tree[1], re.MULTILINE)

    assert len(names) > 15
    for name in names:
        assert (ROOT / "deepbench" / name).exists(), name


def test_every_op_and_library_is_in_the_readme():
    text = (ROOT / "README.md").read_text()

    for found in [*all_ops().values(), *all_backends().values()]:
        assert found.name in text


def test_no_path_of_a_machine_is_in_the_project():
    for path in [*ROOT.glob("*.md"), *DOCS.rglob("*"), *(ROOT / "deepbench").rglob("*.py")]:
        if Path(path).is_file():
            assert "/tmp/" not in path.read_text(errors="replace"), path
