"""`deepbench train`: from start to end, interrupted, and with everything that goes wrong."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deepbench.judge.trained import runs_of, trained
from deepbench.results.file import read_results
from tests.conftest import ROOT

pytest.importorskip("torch")


@pytest.fixture
def plugins(tmp_path):
    folder = tmp_path / "plugins" / "applications"
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).parent / "plugin.py", folder / "line.py")
    return str(folder.parent)


@pytest.fixture
def train(deepbench, plugins):
    return lambda *words, **environment: deepbench("train", *words, DEEPBENCH_PLUGINS=plugins, **environment)


def curves(path):
    return [[(p.samples, p.quality) for p in run.points] for run in runs_of(read_results(path))]


def test_seeds_are_trained_and_judged_together(train, tmp_path):
    done = train("line", "--seeds", "3", "--threads", "1", "-o", "a.jsonl")
    assert 0 == done.returncode, done.stderr

    (found,) = trained(runs_of(read_results(tmp_path / "a.jsonl")))
    assert [0, 1, 2] == [run.setup["seed"] for run in found.runs]
    assert [[80, 160, 240, 320]] * 3 == [[p.samples for p in run.points] for run in found.runs]
    assert all(run.points[-1].quality < run.points[0].quality for run in found.runs)
    assert "3 of 3" in done.stdout or found.reached < 3
    assert found.samples_per_second.value > 0
    assert not (tmp_path / "a.jsonl.checkpoints").exists()


def test_the_same_seed_gives_the_same_curve(train, tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        train("line", "--seeds", "2", "--threads", "1", "-o", name)

    assert curves(tmp_path / "a.jsonl") == curves(tmp_path / "b.jsonl")
    first, second = curves(tmp_path / "a.jsonl")
    assert first != second


def test_a_run_that_was_killed_goes_on_to_the_same_curve(train, plugins, tmp_path):
    """Killed in the third chunk of the first seed, behind its second checkpoint."""
    train("line", "--rung", "slow", "--seeds", "2", "--threads", "1", "-o", "whole.jsonl")
    halt = tmp_path / "halt"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": plugins, "HALT": str(halt)}
    words = ["train", "line", "--rung", "slow", "--seeds", "2", "--threads", "1", "-o", "killed.jsonl"]
    command = [sys.executable, "-m", "deepbench", *words]
    run = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not halt.exists() and time.monotonic() < end:
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.wait()

    assert [2, 0] == [len(points) for points in curves(tmp_path / "killed.jsonl")]
    done = train("--resume", "-o", "killed.jsonl")

    assert 0 == done.returncode, done.stderr
    assert curves(tmp_path / "killed.jsonl") == curves(tmp_path / "whole.jsonl")


@pytest.mark.parametrize(
    ("rung", "status", "words"),
    [
        ("diverges", "diverged", "the loss is nan after 160 samples"),
        ("crashes", "crashed", "killed by SIGKILL during: training"),
        ("memory", "out_of_memory", "memory"),
        ("raises", "crashed", "seven is no colour"),
        ("unknown-data", "unavailable", "nothing"),
    ],
)
def test_what_goes_wrong_is_a_status_with_a_sentence(train, tmp_path, rung, status, words):
    done = train("line", "--rung", rung, "--seeds", "1", "--threads", "1", "-o", "a.jsonl")
    (run,) = runs_of(read_results(tmp_path / "a.jsonl"))

    assert (status, True) == (run.status, words in run.end["reason"]), run.end
    assert f"seed 0: {status}" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "name an application: "),
        (("shoes",), "unknown application 'shoes'"),
        (("line", "--rung", "huge"), "line has no rung 'huge'; choose one of mini"),
        (("line", "--framework", "jax"), "line has no version in 'jax'; choose one of torch"),
        (("line", "--framework", "abacus"), "line has no version in 'abacus'"),
        (("line", "--seeds", "many"), "--seeds"),
        (("line", "--batch", "0"), "--batch"),
        (("--resume",), "--resume goes on with a file"),
        (("--resume", "-o", "nothing.jsonl"), "nothing.jsonl"),
    ],
)
def test_what_is_wrong_is_a_sentence(train, words, sentence):
    done = train(*words)

    assert 64 == done.returncode
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
