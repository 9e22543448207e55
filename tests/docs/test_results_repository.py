"""The page about results repositories, and the workflow that it offers."""

import re
import subprocess
from dataclasses import fields

import pytest
import yaml

from deepbench.cli import cli
from deepbench.plan.results_rounds import FOLDER, RoundRules, find_round
from deepbench.results import redaction
from tests.conftest import ROOT
from tests.docs.test_ci_files import program

PAGE = (ROOT / "docs" / "results-repository.md").read_text()
WORKFLOW = ROOT / "docs" / "recipes" / "results-repository" / "check.yml"
OWN = ROOT / ".github" / "workflows" / "results.yml"


def steps_of(path):
    return [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.programs
@pytest.mark.parametrize("path", [WORKFLOW, OWN], ids=lambda path: path.name)
def test_the_workflows_fit_the_schema_of_github(path):
    words = [program("check-jsonschema", "check-jsonschema"), "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.programs
def test_an_auditor_of_workflows_finds_nothing():
    words = [program("zizmor", "zizmor"), "--offline", "--no-progress", str(WORKFLOW)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_has_no_rights_and_no_input_in_a_script():
    workflow = yaml.safe_load(WORKFLOW.read_text())
    uses = [step["uses"] for step in steps_of(WORKFLOW) if "uses" in step]

    assert {} == workflow["permissions"]
    assert {"contents": "read"} == workflow["jobs"]["check"]["permissions"]
    assert "github.event_name == 'push'" == workflow["jobs"]["deploy"]["if"]
    assert [] == [step for step in steps_of(WORKFLOW) if "${{" in step.get("run", "")]
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", use) for use in uses)


@pytest.mark.parametrize("path", [WORKFLOW, OWN], ids=lambda path: path.name)
def test_the_commands_of_the_workflows_exist(path):
    lines = [line for step in steps_of(path) for line in step.get("run", "").splitlines() if "deepbench" in line]
    called = re.findall(r"deepbench (\w+)((?: -{1,2}[\w-]+)*)", "\n".join(lines))

    assert {"submit", "site"} <= {verb for verb, _ in called}
    for verb, options in called:
        known = {o for p in cli.commands[verb].params for o in p.opts} | {"--"}
        assert set(options.split()) <= known


@pytest.mark.programs
def test_the_shell_lines_see_every_folder_and_nothing_else(tmp_path):
    """DeepBench is a stub here that prints its words."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "deepbench").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "bin" / "deepbench").chmod(0o755)
    for name in ("2026/a", "2026/-b c", "published/d"):
        (tmp_path / "results" / name).mkdir(parents=True)
        (tmp_path / "results" / name / "README.md").touch()
    alone, every = (step["run"] for step in steps_of(WORKFLOW) if "find " in step.get("run", ""))

    def run(line):
        words = ["bash", "-euo", "pipefail", "-c", line]
        environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)

    folders = ["results/2026/-b c", "results/2026/a", "results/published/d"]
    assert 0 == run(alone).returncode
    assert ["--", "--check", *folders, "submit"] == sorted(run(every).stdout.splitlines())
    (tmp_path / "results" / "2026" / "link").symlink_to("a")
    assert 1 == run(alone).returncode


def test_the_page_names_every_rule_of_the_round_with_its_value():
    rules = find_round("2026").rules

    for name in (*(f.name for f in fields(RoundRules)), "first_day", "oldest_tool", "required"):
        assert f"`{name}`" in PAGE, name
    assert (3, 0.15, 0.9, 0.1, 0.5, 0.5) == tuple(getattr(rules, f.name) for f in fields(RoundRules)), "see the table"
    assert "deepbench/suites/rounds/2026.toml" in PAGE
    assert {"2026.toml", "published.toml"} == {path.name for path in FOLDER.iterdir()}, "describe it in the page"


def test_the_page_names_what_takes_the_place_of_private_texts():
    words = ("ADDRESS", "E_MAIL", "FOLDER", "HOME", "SERIAL", "USER", "HIDDEN")

    for name in words:
        assert f"| `{getattr(redaction, name)}` |" in PAGE, name
