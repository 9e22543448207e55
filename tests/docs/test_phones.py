"""The loop of docs/phones.md: it parses, and what it prints with a stub of benchmark_model can be imported."""

import re
import stat
import subprocess

import pytest

import deepbench
from deepbench.api.foreign import convert
from tests.conftest import ROOT

pytestmark = pytest.mark.programs

(LOOP,) = re.findall(r"<!-- loop -->\n```sh\n(.*?)```", (ROOT / "docs" / "phones.md").read_text(), re.DOTALL)

STUBS = {
    "getprop": 'echo "the $1"',
    "taskset": 'echo "Taskset $1" >> told; shift; exec "$@"',
    "benchmark_model": """
echo "$*" >> told
case "$1" in *conv*) echo "Segmentation fault"; exit 139;; esac
echo "INFO: STARTING!"
echo "INFO: Num threads: [${2#--num_threads=}]"
echo "INFO: Graph: [${1#--graph=}]"
echo "INFO: count=50 first=120 curr=101 min=98 max=130 avg=102.5 std=4"
echo "INFO: Inference timings in us: Init: 17187, First inference: 180, Warmup (avg): 120.5, Inference (avg): 102.5"
""",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "phone").mkdir()
    for name, text in {"run_models.sh": LOOP, **{n: f"#!/bin/sh\n{t}" for n, t in STUBS.items()}}.items():
        path = tmp_path / "phone" / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def run(folder, *words):
    environment = {"PATH": f"{folder / 'phone'}:/usr/bin:/bin"}
    return subprocess.run(["sh", "phone/run_models.sh", *words], capture_output=True, text=True, env=environment)


def test_the_loop_parses(folder):
    assert 0 == subprocess.run(["sh", "-n", "phone/run_models.sh"]).returncode


def test_the_loop_wants_cores_and_threads(folder):
    done = run(folder, "f0")

    assert (64, "") == (done.returncode, done.stdout)
    assert "usage" in done.stderr


def test_what_the_loop_prints_is_imported(folder):
    (folder / "phone" / "sleep").write_text("#!/bin/sh\n")
    (folder / "phone" / "sleep").chmod(0o755)
    words = ["gemm m=64 n=4 k=32 f32", "conv n=1 c=4 h=6 w=6 k=8 r=3 s=3 f32"]
    deepbench.export_problems(words, "tflite", "models", directions="forward")
    for path in (folder / "models").glob("*.tflite"):
        path.rename(folder / "phone" / path.name)

    (folder / "phone.txt").write_text(run(folder, "f0", "4", "--use_xnnpack=true").stdout)
    path, found, _ = convert("phone.txt", problems="models/counts.json")
    conv, gemm = deepbench.load(path).summaries

    words = "--num_threads=4 --use_xnnpack=true"
    calls = [f"Taskset f0\n--graph={model}.tflite {words}\n" for model in ("conv_2", "gemm_1")]
    assert 3 * "".join(calls) == (folder / "phone" / "told").read_text()
    assert (3, pytest.approx(102.5e-6), 4, "f0") == (
        len(gemm.rounds), gemm.time_s, gemm.record["threads"], gemm.record["notes"]["cores"]
    )  # fmt: skip
    assert "the program ended with exit code 139: Segmentation fault" == conv.record["reason"]
    assert found.cpu == ("the ro.product.manufacturer the ro.product.model, Android the ro.build.version.release")
