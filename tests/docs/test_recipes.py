"""The recipes for operators: their files parse, and their scripts do what they say, with stubs."""

import ast
import contextlib
import json
import re
import stat
import subprocess
import sys
import types
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

pytestmark = pytest.mark.programs

FOLDER = ROOT / "docs" / "recipes"
PAGE = (ROOT / "docs" / "recipes.md").read_text()
OPTIONS = ("--check", "--reference", "--history", "--prometheus")


def test_every_recipe_is_in_the_table_and_has_short_lines():
    files = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())

    for name in files:
        if not name.endswith((".pyc", "node-problem-detector.sh")):  # named by its JSON
            assert f"](recipes/{name})" in PAGE, name
        assert all(len(line) <= 120 for line in (FOLDER / name).read_text().splitlines()), name


def test_options_in_recipes_exist():
    from deepbench.cli import cli

    known = {option for parameter in cli.commands["fleet"].params for option in parameter.opts}
    for path in FOLDER.rglob("*.*"):
        text = path.read_text()
        if "fleet" in text:
            used = {option for option in re.findall(r"--[a-z][a-z-]+", text) if option in OPTIONS}
            assert used <= known, path


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_executable_and_parse(path):
    assert path.stat().st_mode & stat.S_IXUSR
    subprocess.run(["sh", "-n", path], check=True)


@pytest.fixture
def script(tmp_path):
    """Run a script with stubs of DeepBench, logger and scontrol; its exit code, what they were told, its output."""

    def run(name, code, line="deepbench: slow: why", clear=True):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "told").write_text("")
        stubs = {
            "deepbench": f'echo "deepbench $*" >> {tmp_path}/told; echo "{line}" >&2; exit {code}',
            "logger": f'echo "logger $*" >> {tmp_path}/told',
            "scontrol": f'echo "scontrol $*" >> {tmp_path}/told',
        }
        for stub, text in stubs.items():
            (tmp_path / "bin" / stub).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / "bin" / stub).chmod(0o755)
        text = (FOLDER / name).read_text().replace("/opt/deepbench/bin/deepbench", f"{tmp_path}/bin/deepbench")
        (tmp_path / name).write_text(text.replace("PATH=/usr/bin:/bin", f"PATH={tmp_path}/bin:/usr/bin:/bin"))
        done = subprocess.run(["/bin/sh", tmp_path / name], env={}, capture_output=True, text=True, timeout=60)
        return done.returncode, (tmp_path / "told").read_text(), done.stdout

    return run


@pytest.mark.parametrize(("code", "wanted"), [(0, 0), (1, 1), (2, 0), (64, 0), (127, 0), (130, 0)])
def test_the_prolog_fails_only_if_the_host_is_slow_wrong_or_failed(script, code, wanted):
    found, told, _ = script("slurm-prolog.sh", code)

    assert wanted == found
    assert f"logger -t deepbench -- exit code {code}: deepbench: slow: why" in told
    assert "scontrol" not in told
    assert "scontrol" not in (FOLDER / "slurm-prolog.sh").read_text()


@pytest.mark.parametrize("code", [0, 1, 2, 64])
def test_the_health_check_drains_a_bad_host_and_always_ends_with_success(script, code):
    found, told, _ = script("slurm-health-check.sh", code)

    assert 0 == found
    drained = re.search(r"^scontrol update nodename=\S+ state=drain reason=deepbench: slow: why$", told, re.MULTILINE)
    assert (code == 1) == bool(drained)


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_plug_in_of_the_node_problem_detector_prints_the_line(script, code):
    found, _, output = script("node-problem-detector.sh", code)

    assert (code, "deepbench: slow: why\n") == (found, output)


@pytest.mark.parametrize("code", [0, 1, 2, 64])
def test_the_check_of_nhc_dies_only_for_a_bad_host(tmp_path, code):
    (tmp_path / "deepbench").write_text(f"#!/bin/sh\necho 'deepbench: slow: why' >&2; exit {code}\n")
    (tmp_path / "deepbench").chmod(0o755)
    program = f"""
die() {{ echo "die $*"; }}
dbg() {{ echo "dbg $*"; }}
DEEPBENCH={tmp_path}/deepbench
. {FOLDER}/deepbench.nhc
check_deepbench /etc/deepbench/references
echo "code $?"
"""
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)

    dead, alive = "die 1 check_deepbench:", f"dbg check_deepbench:  exit code {code}:"
    wanted = [f"{dead if code == 1 else alive}  deepbench: slow: why", f"code {int(code == 1)}"]
    assert wanted == done.stdout.splitlines()


def test_the_manifest_of_kubernetes_is_sound():
    namespace, daemon = yaml.safe_load_all((FOLDER / "kubernetes-node-check.yaml").read_text())
    pod = daemon["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert ("Namespace", "DaemonSet", "apps/v1") == (namespace["kind"], daemon["kind"], daemon["apiVersion"])
    assert daemon["spec"]["selector"]["matchLabels"] == daemon["spec"]["template"]["metadata"]["labels"]
    assert namespace["metadata"]["name"] == daemon["metadata"]["namespace"]
    assert False is pod["automountServiceAccountToken"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert {v["name"] for v in pod["volumes"]} == {v["name"] for v in container["volumeMounts"]}
    for command in (container["command"], container["readinessProbe"]["exec"]["command"]):
        subprocess.run([*command[:1], "-n", *command[1:]], check=True)


def test_the_configuration_of_the_node_problem_detector_is_sound():
    found = json.loads((FOLDER / "node-problem-detector.json").read_text())

    assert "custom" == found["plugin"]
    assert {r["condition"] for r in found["rules"]} == {c["type"] for c in found["conditions"]}
    assert (FOLDER / Path(found["rules"][0]["path"]).name).exists()


def test_the_test_of_reframe_parses():
    tree = ast.parse((FOLDER / "reframe_deepbench.py").read_text())

    assert {"deepbench_check", "deepbench_kernels"} <= {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    assert 40 <= len((FOLDER / "reframe_deepbench.py").read_text().splitlines()) <= 80


def test_the_recipe_of_spack_agrees_with_the_project(monkeypatch):
    import tomllib

    said = []
    package, python = types.ModuleType("spack.package"), types.ModuleType("spack_repo.builtin.build_systems.python")
    python.PythonPackage = object
    for name in ("license", "version", "variant", "depends_on"):
        setattr(package, name, lambda *words, _name=name, **options: said.append((_name, words, options)))
    package.default_args = lambda **options: contextlib.nullcontext()
    package.find_libraries = lambda *words, **options: ["/spack/lib/libdnnl.so"]
    package.EnvironmentModifications = object
    for module in (package, python):
        parts = module.__name__.split(".")
        for length in range(1, len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[:length]), types.ModuleType(".".join(parts[:length])))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    names = {}
    exec(compile((FOLDER / "spack" / "package.py").read_text(), "package.py", "exec"), names)

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {words[0]: options.get("when") for name, words, options in said if name == "depends_on"}
    for requirement in project["dependencies"]:
        name, least = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
        if name == "scipy-openblas64":
            assert f"openblas@{least}: threads=openmp" in needed
        elif name != "onednn-cpu-gomp":
            assert f"py-{name}@{least}:" in needed, requirement
    assert f"python@{project['requires-python'].removeprefix('>=')}:" in needed
    assert ("license", (project["license"],), {}) in said
    extras = {words[0] for name, words, _ in said if name == "variant"} - {"onednn"}
    assert {"mpi", "fleet", "report"} <= extras
    for extra in extras:
        name, least = re.match(r"([\w-]+)>=([\d.]+)", project["optional-dependencies"][extra][0]).groups()
        assert f"+{extra}" == needed.get(f"py-{name.lower()}@{least}:"), extra

    class Spec(dict):
        prefix = "/spack"

        def satisfies(self, what):
            return True

    spec, set_variables = Spec(), {}
    spec["openblas"] = types.SimpleNamespace(libs=["/spack/lib/libopenblas.so"])
    spec["onednn"] = types.SimpleNamespace(prefix="/spack")
    package = names["PyDeepbenchKernels"]()
    package.spec = spec
    package.setup_run_environment(types.SimpleNamespace(set=set_variables.__setitem__))
    assert {"DEEPBENCH_OPENBLAS_PATH", "DEEPBENCH_ONEDNN_PATH"} == set_variables.keys()
