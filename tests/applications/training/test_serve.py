"""`deepbench serve`: models that answer well, wrong, late and not at all."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deepbench.applications.judge.serving import served
from deepbench.results.file import lines_of, read_results
from tests.conftest import ROOT, run_command
from tests.help import fork_server

pytestmark = [pytest.mark.programs, pytest.mark.torch]

pytest.importorskip("torch")


@pytest.fixture(scope="module", autouse=True)
def _torch_is_imported():
    """Each of these tests starts several processes that use PyTorch."""
    with fork_server.having("torch"):
        yield


SHORT = ("--seconds", "0.4")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a file of each rung, trained once."""
    folder = tmp_path_factory.mktemp("trained")
    plugins = folder / "plugins" / "applications"
    plugins.mkdir(parents=True)
    shutil.copy(Path(__file__).parent / "plugin.py", plugins / "line.py")
    done = set()

    def train(rung):
        if rung not in done:
            seeds = "2" if rung == "mini" else "1"
            words = ("train", "line", "--rung", rung, "--seeds", seeds, "--threads", "1", "-o", f"{rung}.jsonl")
            assert 0 == run_command(folder, *words, DEEPBENCH_PLUGINS=str(plugins.parent)).returncode
            done.add(rung)
        return folder

    return train


@pytest.fixture
def serve(trained, tmp_path):
    """Serve the model of a rung, in a folder of its own."""

    def run(rung, *words, **environment):
        source = trained(rung)
        if not (tmp_path / f"{rung}.jsonl").exists():
            shutil.copytree(source, tmp_path, dirs_exist_ok=True)
        plugins = str(tmp_path / "plugins")
        return run_command(tmp_path, "serve", f"{rung}.jsonl", *words, DEEPBENCH_PLUGINS=plugins, **environment)

    return run


def lines(path):
    return {found.line["scenario"]: found for found in served(read_results(path))}


def test_a_trained_model_answers_in_every_scenario(serve, deepbench, tmp_path):
    done = serve("mini", *SHORT)
    found = lines(tmp_path / "mini.jsonl")

    assert 0 == done.returncode, done.stderr + done.stdout
    assert ["batches", "single", "multi", "offline", "server"] == list(found)
    assert {"ok"} == {one.line["status"] for one in found.values()}
    assert 0 < found["single"].latency_s < found["server"].line["search"]["bound_s"]
    assert found["offline"].samples_per_second.value > 1000
    assert found["server"].kept_rate is not None or found["server"].lacks
    for one in found.values():
        answers = one.line["answers"]
        assert answers["answers"] >= answers["equal"] > 0.9 * answers["answers"]
        assert answers["grade"] == pytest.approx(answers["plain_grade"], rel=0.01)
    file = read_results(tmp_path / "mini.jsonl")
    (tmp_path / "copy.jsonl").write_bytes(b"".join(lines_of(file)))
    copy = read_results(tmp_path / "copy.jsonl")
    assert (file.training, file.serving) == (copy.training, copy.serving)
    assert done.stdout.partition("application")[2] in deepbench("show", "mini.jsonl").stdout


def test_training_keeps_the_models_and_no_checkpoint(trained):
    folder = trained("mini")

    assert ["0.npz", "1.npz"] == sorted(path.name for path in (folder / "mini.jsonl.models").iterdir())
    assert not (folder / "mini.jsonl.checkpoints").exists()


def test_a_model_that_a_killed_training_left_is_kept_by_the_next(trained, deepbench, tmp_path):
    """Killed between the end of the run and the move of its checkpoint."""
    shutil.copytree(trained("mini"), tmp_path, dirs_exist_ok=True)
    (tmp_path / "mini.jsonl.models").rename(tmp_path / "mini.jsonl.checkpoints")
    for seed in (0, 1):
        (tmp_path / "mini.jsonl.checkpoints" / f"{seed}.npz").rename(
            tmp_path / "mini.jsonl.checkpoints" / f"{seed}.320.npz"
        )
    done = deepbench("train", "--resume", "-o", "mini.jsonl", DEEPBENCH_PLUGINS=str(tmp_path / "plugins"))

    assert 0 == done.returncode, done.stderr
    assert (tmp_path / "mini.jsonl.models" / "1.npz").exists()
    assert not (tmp_path / "mini.jsonl.checkpoints").exists()


@pytest.mark.parametrize(
    ("rung", "status", "words", "code", "timeout"),
    [
        ("wrong-by-8", "wrong", "a plain evaluation of the same samples has", 1, "60"),
        ("dies-by-8", "crashed", "killed by SIGKILL during: the scenario multi", 0, "60"),
        ("hangs-by-8", "timeout", "no sign of life for 12 s during: the scenario multi", 0, "12"),
    ],
)
def test_a_scenario_that_fails_leaves_the_others(serve, tmp_path, rung, status, words, code, timeout):
    """With batches of at most 4, only `multi` has 8 samples at once."""
    done = serve(rung, "--batch", "4", "--seconds", "0.4", "--timeout", timeout)
    found = lines(tmp_path / f"{rung}.jsonl")
    multi = found.pop("multi")

    assert code == done.returncode, done.stderr
    assert (status, True) == (multi.line["status"], words in multi.line["reason"]), multi.line
    assert f"line, multi: {status}: " in done.stdout
    assert None is multi.latency_s
    assert 4 == len(found)
    assert {"ok"} == {one.line["status"] for one in found.values()}
    assert "Traceback" not in done.stdout + done.stderr


def test_a_model_that_keeps_answers_is_noticed(serve, tmp_path):
    done = serve("keeps-answers", "--scenario", "single", "--seconds", "2")

    assert lines(tmp_path / "keeps-answers.jsonl")["single"].repeats_ratio > 2
    assert "something caches answers or inputs" in done.stdout


def test_a_served_file_that_was_killed_is_repeated(serve, trained, tmp_path):
    serve("mini", "--scenario", "single", *SHORT)
    path = tmp_path / "mini.jsonl"
    before = len(read_results(path).serving)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": str(tmp_path / "plugins")}
    command = [sys.executable, "-m", "deepbench", "serve", "mini.jsonl", "--seconds", "2"]
    run = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while len(read_results(path).serving) < before + 2 and time.monotonic() < end:
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.wait()
    killed = len(read_results(path).serving)
    done = serve("mini", *SHORT)

    assert before + 2 <= killed < before + 5
    assert 0 == done.returncode, done.stderr
    assert killed + 5 == len(read_results(path).serving)
    assert 5 == len(lines(path))


def test_another_file_takes_the_results_and_can_be_repeated(serve, deepbench, tmp_path):
    words = ("--scenario", "single", "--seconds", "0.2", "-o", "served.jsonl")
    assert [0, 0] == [serve("mini", *words).returncode for _ in range(2)]

    assert [] == read_results(tmp_path / "mini.jsonl").serving
    assert 2 == len(read_results(tmp_path / "served.jsonl").serving)
    assert "single" in deepbench("show", "served.jsonl").stdout
    refused = deepbench("train", "--resume", "-o", "served.jsonl")
    assert (64, True) == (refused.returncode, "has no training runs, but served models" in refused.stderr)
    refused = serve("mini", "-o", "mini.jsonl")
    assert (64, True) == (refused.returncode, "has no results of serving the models" in refused.stderr)


def fifo(folder):
    (folder / "0.npz").unlink()
    os.mkfifo(folder / "0.npz")


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (lambda folder: (folder / "0.npz").unlink(), "unavailable", "does not exist"),
        (lambda folder: (folder / "0.npz").write_bytes(b"nothing"), "unavailable", "train the run again"),
        (fifo, "unavailable", "is not a regular file"),
        (lambda folder: (folder / "1.npz").replace(folder / "0.npz"), "wrong", "this is another model"),
    ],
)
def test_a_model_that_is_not_that_of_the_run(serve, trained, tmp_path, change, status, words):
    shutil.copytree(trained("mini"), tmp_path, dirs_exist_ok=True)
    change(tmp_path / "mini.jsonl.models")
    done = serve("mini", "--scenario", "single", "--seconds", "0.2")
    found = lines(tmp_path / "mini.jsonl")["single"]

    assert (status, True) == (found.line["status"], words in found.line["reason"]), found.line
    assert "Traceback" not in done.stdout + done.stderr


def test_a_result_without_enough_queries_has_no_percentile_but_a_reason(serve, tmp_path):
    done = serve("keeps-answers", "--scenario", "multi", "--seconds", "0.001")
    found = lines(tmp_path / "keeps-answers.jsonl")["multi"]

    assert ("ok", None) == (found.line["status"], found.latency_s)
    assert "are too few to bound the 99th percentile; it takes 459: use --seconds" in done.stdout


def test_a_file_of_another_machine_is_not_continued(serve, trained, tmp_path):
    shutil.copytree(trained("mini"), tmp_path, dirs_exist_ok=True)
    path = tmp_path / "mini.jsonl"
    file = read_results(path)
    file.header["machine"] = {**file.header["machine"], "cpu": "Z80"}
    path.write_bytes(b"".join(lines_of(file)))
    refused = serve("mini")

    assert (64, True) == (refused.returncode, "is of another machine (cpu was 'Z80'" in refused.stderr), refused.stderr
    assert 0 == serve("mini", "--scenario", "single", "--seconds", "0.2", "-o", "here.jsonl").returncode


def test_a_file_without_a_model_is_a_sentence(deepbench, serve, tmp_path):
    serve("mini", "--scenario", "single", "--seconds", "0.1", "-o", "served.jsonl")
    done = deepbench("serve", "served.jsonl")

    assert (64, True) == (done.returncode, "served.jsonl has no model; train one" in done.stderr)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--scenario", "dance"), "--scenario is single, multi, server, offline or all, found 'dance'"),
        (("--scenario", "batches"), "--scenario is single"),
        (("--batch", "0"), "--batch must be from 1"),
        (("--seconds", "0"), "--seconds must be a number of seconds above 0"),
        (("--latency-ms", "soon"), "--latency-ms"),
        (("--driver", "elf"), "--driver is deepbench or loadgen, found 'elf'"),
    ],
)
def test_what_is_wrong_is_a_sentence(serve, words, sentence):
    done = serve("mini", *words)

    assert (64, True) == (done.returncode, sentence in done.stderr), done.stderr
    assert "Traceback" not in done.stderr


has_loadgen = importlib.util.find_spec("mlperf_loadgen") is not None


@pytest.mark.skipif(has_loadgen, reason="LoadGen is installed")
def test_without_loadgen_the_remedy_is_named(serve, tmp_path):
    done = serve("mini", "--driver", "loadgen")

    assert (64, True) == (done.returncode, "pip install mlcommons-loadgen" in done.stderr)
    assert [] == read_results(tmp_path / "mini.jsonl").serving


@pytest.mark.skipif(not has_loadgen, reason="LoadGen is not installed")
def test_loadgen_asks_the_same_model(serve, tmp_path):
    done = serve("mini", "--driver", "loadgen", "--seconds", "1")
    found = lines(tmp_path / "mini.jsonl")
    single = found["single"].line["loadgen"]

    assert 0 == done.returncode, done.stderr
    assert "SingleStream" == single["Scenario"]
    assert 0.2 < float(single["90.00 percentile latency (ns)"]) / 1e9 / found["single"].latency_s < 5
    assert {"single", "multi", "offline"} <= {name for name, one in found.items() if "loadgen" in one.line}
    assert "LoadGen says" in done.stdout


def test_the_summary_of_loadgen_is_read_up_to_the_settings():
    from deepbench.applications.training.loadgen import summary_of

    text = "====\nMLPerf Results Summary\n====\nResult is : VALID\nMean latency (ns)  : 12\n"

    assert {"Result is": "VALID", "Mean latency (ns)": "12"} == summary_of(text + "Test Parameters Used\nmode : x\n")
