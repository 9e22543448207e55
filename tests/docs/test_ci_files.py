"""The action and its scripts: valid by the schema of GitHub, without a place where an input could be executed."""

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action.yml"
SCRIPT = ROOT / "ci" / "compare.sh"
RELEASE = ROOT / ".github" / "workflows" / "release.yml"


def program(name, package):
    path = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if path is None:
        pytest.skip(f"needs {name}: pip install {package}")
    return path


@pytest.mark.programs
def test_the_action_fits_the_schema_of_github():
    words = [program("check-jsonschema", "check-jsonschema"), "--builtin-schema", "vendor.github-actions", str(ACTION)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.programs
def test_the_workflows_fit_the_schema_of_github():
    files = sorted(map(str, RELEASE.parent.glob("*.yml")))
    words = [program("check-jsonschema", "check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *files]
    done = subprocess.run(words, capture_output=True, text=True)
    assert str(RELEASE) in files
    assert done.returncode == 0, done.stdout


def test_the_workflow_of_releases_publishes_nothing():
    text = RELEASE.read_text()
    workflow = yaml.safe_load(text)
    assert {"contents": "read"} == workflow["permissions"]
    assert all("permissions" not in job and "environment" not in job for job in workflow["jobs"].values())
    assert "secrets" not in text
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    uses = [step["uses"] for step in steps if "uses" in step]
    assert {"checkout", "setup-python", "upload-artifact", "download-artifact"} == {
        re.fullmatch(r"actions/([a-z-]+)@[0-9a-f]{40}", use)[1] for use in uses
    }
    commands = "\n".join(step.get("run", "") for step in steps)
    assert "${{" not in commands
    assert not re.search(r"\b(twine upload|gh release|git push|curl|uv publish)\b", commands)


@pytest.mark.programs
@pytest.mark.parametrize("file", [ACTION, RELEASE], ids=lambda file: file.name)
def test_an_auditor_of_actions_finds_nothing(file):
    words = [program("zizmor", "zizmor"), "--offline", "--no-progress", str(file)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_input_is_part_of_a_script():
    steps = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    assert all("${{" not in step.get("run", "") for step in steps)
    uses = [step["uses"] for step in steps if "uses" in step]
    assert uses
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", use) for use in uses)


def test_every_input_is_documented():
    text = (ROOT / "docs" / "ci.md").read_text()
    missing = [name for name in yaml.safe_load(ACTION.read_text())["inputs"] if f"`{name}`" not in text]
    assert ["python"] == missing


@pytest.mark.programs
def test_the_script_is_valid_and_refuses_in_one_sentence(tmp_path):
    assert subprocess.run(["bash", "-n", str(SCRIPT)]).returncode == 0
    done = subprocess.run(
        ["bash", str(SCRIPT)], cwd=tmp_path, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )
    assert done.returncode == 64
    assert "COMPARE_LIBRARY is not set" in done.stderr


HOSTILE = "$(touch hostile); `touch hostile`; touch hostile\n'\"; touch hostile #"


@pytest.mark.programs
@pytest.mark.parametrize("name", ["LIBRARY", "BASE", "HEAD", "SUITE", "BUDGET", "MARGIN", "OUTPUT", "FILE"])
def test_no_input_of_the_script_is_executed(tmp_path, name):
    """DeepBench is a stub here that prints its words."""
    (tmp_path / "deepbench").mkdir()
    (tmp_path / "deepbench" / "__init__.py").touch()
    (tmp_path / "deepbench" / "__main__.py").write_text("import sys, json; print(json.dumps(sys.argv[1:]))")
    given = {"LIBRARY": "openblas", "BASE": "1.0", "HEAD": "2.0", name: HOSTILE}
    variables = {f"COMPARE_{n}": v for n, v in given.items()}
    variables |= {"COMPARE_PYTHON": sys.executable, "PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(["bash", str(SCRIPT)], cwd=tmp_path, capture_output=True, text=True, env=variables)
    assert not list(tmp_path.rglob("hostile"))
    assert (done.returncode == 64) == (name == "LIBRARY"), done.stderr
    if name == "FILE":
        assert json.loads(done.stdout)[:3] == ["ci", "--ab", "openblas==1.0,2.0"]


class Answers(http.server.BaseHTTPRequestHandler):
    """The part of GitHub's API that comments need."""

    comments: list = []
    seen: list = []

    def do(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.seen.append((self.command, self.path.partition("?")[0], body, self.headers["Authorization"]))
        answer = json.dumps(self.comments if self.command == "GET" else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PATCH = do

    def log_message(self, *_):
        pass


@pytest.fixture
def github():
    Answers.comments, Answers.seen = [], []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def comment(github, tmp_path, **variables):
    (tmp_path / "comment.md").write_text("### text")
    given = {
        "GITHUB_API_URL": github,
        "GITHUB_TOKEN": "secret",
        "GITHUB_REPOSITORY": "o/r",
        "COMPARE_PULL_REQUEST": "7",
    }
    return subprocess.run(
        [sys.executable, str(ROOT / "ci" / "comment.py"), str(tmp_path / "comment.md")],
        env={"PATH": os.environ["PATH"], **given, **variables},
        capture_output=True,
        text=True,
    )


@pytest.mark.programs
def test_a_comment_is_put_once_and_then_replaced(github, tmp_path):
    assert comment(github, tmp_path).returncode == 0
    (_, (method, path, body, token)) = Answers.seen
    assert ("POST", "/repos/o/r/issues/7/comments", "Bearer secret") == (method, path, token)
    forged = {"id": 1, "body": body["body"], "user": {"type": "User"}}
    Answers.comments = [forged, {"id": 5, "body": body["body"], "user": {"type": "Bot"}}]
    assert comment(github, tmp_path).returncode == 0
    assert ("PATCH", "/repos/o/r/issues/comments/5") == Answers.seen[-1][:2]


@pytest.mark.programs
@pytest.mark.parametrize(
    "variables", [{"GITHUB_REPOSITORY": "../x"}, {"COMPARE_PULL_REQUEST": "7/../8"}, {"GITHUB_TOKEN": ""}]
)
def test_a_comment_without_a_place_is_refused(github, tmp_path, variables):
    assert comment(github, tmp_path, **variables).returncode == 64
    assert not Answers.seen


@pytest.mark.programs
def test_a_github_that_does_not_answer_is_one_sentence(tmp_path):
    done = comment("http://127.0.0.1:9", tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
