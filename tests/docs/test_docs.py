"""The documentation is tested: its fields are those of the types, its commands, links and files exist."""

import importlib.util
import re
import subprocess

import pytest

from deepbench.core.backend import all_backends
from deepbench.core.op import all_ops
from tests.conftest import ROOT

pytestmark = pytest.mark.programs

DOCS = ROOT / "docs"
GUIDES = [
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "results/README.md")),
    *sorted(page for page in DOCS.glob("*.md") if page.name != "LOG.md"),
]
PAGES = [ROOT / "README.md", *GUIDES]


def test_the_tables_of_result_files_are_those_of_the_types():
    spec = importlib.util.spec_from_file_location("make_results", DOCS / "make_results.py")
    make_results = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_results)

    assert make_results.page() == (DOCS / "results.md").read_text(), "run python docs/make_results.py"


def test_every_chart_of_the_page_is_described():
    charts = (ROOT / "deepbench" / "reporting" / "page" / "charts.js").read_text()
    titles = re.findall(r'\bid: "\w+",\s+title: "([^"]+)"', charts)
    first_column = re.findall(r"^\| ([^|]+) \|", (DOCS / "reports.md").read_text(), re.MULTILINE)

    assert len(titles) > 5
    assert set(titles) <= {name for cell in first_column for name in cell.split(", ")}


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


# Files of others, and files that readers or commands create.
OTHER_FILES = {"dnnl.h", "dnnl_types.h", "dnnl_common_types.h", "index.json"}
OTHER_FILES |= {"topology.csv", "layout.csv", "products.csv", "problems.json", "counts.json"}
OTHER_FILES |= {"submission.json", "results/2026/ryzen-9950x-64-gb/"}
OTHER_FILES |= {"COMPUTE_REPORT.csv", "gemm_001.stats.txt", "gemm_001/timeloop-model.stats.txt"}


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_folders_that_a_page_names_exist(page):
    """In backticks, relative to the project or to `deepbench/`."""
    missing = []
    for name in re.findall(r"`([\w./-]+(?:\.(?:py|js|json|c|h|csv|txt|md|yml|html)|/))`", page.read_text()):
        if name in OTHER_FILES:
            continue
        places = [ROOT / name, ROOT / "deepbench" / name, page.parent / name]
        if "/" not in name:  # a file of a folder that the sentence names
            places += (ROOT / "deepbench").rglob(name)
        if not any(place.exists() for place in places):
            missing.append(name)

    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_environment_variables_that_a_page_names_exist(page):
    code = "".join(path.read_text() for path in [*ROOT.glob("deepbench/**/*.py"), *DOCS.glob("examples/**/*.py")])

    for name in set(re.findall(r"DEEPBENCH_[A-Z]+_[A-Z_]+|DEEPBENCH_[A-Z]+", page.read_text())):
        assert name in code, name


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_fit_into_120_columns(page):
    for number, line in enumerate(page.read_text().splitlines(), 1):
        assert len(line) <= 120, f"line {number}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_code_blocks_have_options_that_exist(page):
    from deepbench.cli import cli

    known = {}
    for name, command in cli.commands.items():
        both = [command, *getattr(command, "commands", {}).values()]  # `reference list` is a command of a command
        known[name] = {o for c in both for p in c.params for o in p.opts} | {"--help", "-h"}
    text = page.read_text().replace("\\\n", " ")
    for line in re.findall(r"^(?:\$ )?deepbench (.+)$", text, re.MULTILINE):
        verb, *words = line.split("#")[0].split()
        if verb.startswith("-"):
            continue
        assert verb in known, line
        for word in words:
            if word.startswith("-"):
                assert word.split("=")[0] in known[verb], line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", page.read_text(), re.MULTILINE)) <= targets


@pytest.mark.parametrize("name", [*all_ops(), *all_backends()])
def test_every_operation_and_library_is_in_the_readme(name):
    """As a word in code, so that `ring` is not found in `measuring`."""
    code = " ".join(re.findall(r"`([^`\n]+)`", (ROOT / "README.md").read_text()))

    assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", code), f"add `{name}` to the table in README.md"


def sources():
    """Text files of the project that people read: pages and code."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    paths = [ROOT / name for name in tracked] or [*ROOT.glob("*.md"), *DOCS.rglob("*"), *ROOT.glob("deepbench/**/*.py")]
    return [p for p in paths if p.is_file() and p.suffix in (".md", ".py") and "tests" not in p.parts]


def test_no_path_of_a_machine_is_in_the_project():
    assert [] == [path for path in sources() if "/tmp/" in path.read_text(errors="replace")]


def test_nothing_is_to_be_installed_from_an_index_that_does_not_have_it():
    """Our distribution is on no index, so a stranger could register its name."""
    pages = [path for path in sources() if path.name != "LOG.md"]

    found = [p for p in pages if re.search(r"pip install +(-\S+ +)*['\"]?deepbench", p.read_text(errors="replace"))]
    assert [] == found


def test_folders_of_users_are_described():
    """Every data set that a user provides has a row with its rung, its variable and what is in the folder."""
    from deepbench.applications import datasets
    from deepbench.applications.training.application import applications

    text = (DOCS / "applications" / "own-data.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `") and "DEEPBENCH_" in line]
    folders = {n: d for n, d in datasets.datasets().items() if isinstance(d, datasets.UserFolder)}
    found = {}
    for row in rows:
        application, rungs, variable, files = row.strip("| ").split(" | ")[:4]
        for rung in rungs.split(", "):
            (name,) = applications()[application.strip("`")].rungs[rung.strip("`")].datasets
            found[name] = variable.strip("`")
            assert all(file.split("/")[0] in files for file in folders[name].files), name

    assert {name: folder.variable for name, folder in folders.items()} == found
    assert {folder.variable for folder in folders.values()} == set(re.findall(r"DEEPBENCH_\w+", text))
