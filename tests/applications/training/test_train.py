"""`deepbench train`: from start to end, interrupted, and with everything that goes wrong."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from deepbench.applications.judge.trained import runs_of, trained
from deepbench.applications.training import checkpoint
from deepbench.results.file import read_results
from tests.conftest import ROOT
from tests.help import fork_server

pytestmark = [pytest.mark.programs, pytest.mark.torch]

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module", autouse=True)
def _torch_is_imported():
    """Each of these tests starts several processes that use PyTorch."""
    with fork_server.having("torch"):
        yield


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

    assert (status, True, 1) == (run.status, words in run.end["reason"], done.returncode), run.end
    assert f"seed 0: {status}" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_memory_that_was_enough_before_is_no_end_of_a_run(train, deepbench, tmp_path):
    done = train("line", "--rung", "later-memory", "--seeds", "1", "--threads", "1", "-o", "a.jsonl")
    (run,) = runs_of(read_results(tmp_path / "a.jsonl"))

    assert (64, None, 1) == (done.returncode, run.end, len(run.points))
    assert "the memory is full, which was enough before" in done.stderr
    assert "To continue: deepbench train --resume -o a.jsonl" in done.stderr
    assert ["0.80.npz"] == [path.name for path in (tmp_path / "a.jsonl.checkpoints").iterdir()]
    assert "interrupted" in deepbench("show", "a.jsonl").stdout


def test_a_full_disk_is_no_end_of_a_run(train, tmp_path):
    """A folder in place of the draft of the second checkpoint cannot be removed: the system refuses to write."""
    (tmp_path / "a.jsonl.checkpoints" / "0.160.new" / "full").mkdir(parents=True)
    words = ("line", "--seeds", "1", "--threads", "1")
    done = train(*words, "-o", "a.jsonl")
    (run,) = runs_of(read_results(tmp_path / "a.jsonl"))

    assert (64, None, 1) == (done.returncode, run.end, len(run.points))
    assert "deepbench: cannot write " in done.stderr
    assert "0.160.npz: Is a directory" in done.stderr
    assert "To continue: deepbench train --resume -o a.jsonl" in done.stderr
    shutil.rmtree(tmp_path / "a.jsonl.checkpoints" / "0.160.new")
    assert 0 == train("--resume", "-o", "a.jsonl").returncode
    train(*words, "-o", "whole.jsonl")
    assert curves(tmp_path / "a.jsonl") == curves(tmp_path / "whole.jsonl")


def test_a_step_is_explained_by_its_kernels(train, tmp_path):
    done = train("line", "--explain", "--threads", "1", "--all", "-o", "a.jsonl", timeout=500)
    text = " ".join(done.stdout.split())

    assert 0 == done.returncode, done.stderr
    assert "line, rung mini: one training step of 8 samples" in text
    assert "linear 1 × 8 × 1" in text
    assert re.search(r"explained (measured kernels are \d+ % of the measured step|withheld)", text), text
    assert "left out drawing the line" in text
    assert re.search(r"2 times as fast, (the step takes|no kernel)|would change is withheld", text), text
    assert "linear" in {record["op"] for record in read_results(tmp_path / "a.jsonl").records}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "name an application: "),
        (("shoes",), "unknown application 'shoes'"),
        (("line", "--rung", "huge"), "line has no rung 'huge'; choose one of mini"),
        (("line", "--framework", "jax"), "line has no version in 'jax'; choose one of torch"),
        (("line", "--framework", "abacus"), "line has no version in 'abacus'"),
        (("line", "--seeds", "many"), "--seeds"),
        (("line", "--precision", "f64"), "no training in precision 'f64'; choose one of f32, bf16"),
        (("line", "--device", "tpu"), "no training on the device 'tpu'; choose cpu, cuda"),
        (("all", "--framework", "abacus"), "no application has a version in 'abacus'"),
        (("line", "--batch", "0"), "--batch"),
        (("line", "--sweep", "batch=8,16,8"), "has a value twice"),
        (("line", "--device", "cuda:1", "--ranks", "2"), "2 ranks cannot share the device cuda:1"),
        (("--resume",), "--resume takes everything from the file"),
        (("--resume", "-o", "a.jsonl", "--seeds", "10"), "--resume takes everything from the file"),
        (("line", "--explain", "--ranks", "2"), "--explain takes"),
        (("--resume", "-o", "nothing.jsonl"), "nothing.jsonl"),
    ],
)
def test_what_is_wrong_is_a_sentence(train, words, sentence):
    done = train(*words)

    assert 64 == done.returncode
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_two_ranks_share_each_batch_and_follow_the_same_curve(train, tmp_path):
    done = train("line", "--seeds", "2", "--sweep", "ranks=1,2", "--threads", "1", "-o", "a.jsonl")
    assert 0 == done.returncode, done.stderr
    alone, both = trained(runs_of(read_results(tmp_path / "a.jsonl")))

    assert (1, 2) == (alone.setup["ranks"], both.setup["ranks"])
    for one, two in zip(alone.runs, both.runs, strict=True):
        assert "ok" == two.status, two.end
        assert [p.samples for p in one.points] == [p.samples for p in two.points]
        # Dropout differs between the ranks, so the curves are alike and not equal.
        assert [p.quality for p in two.points] == pytest.approx([p.quality for p in one.points], abs=0.15)
    assert "scaling efficiency" in done.stdout


def test_ranks_go_on_from_the_checkpoint_of_rank_0(train, plugins, tmp_path):
    words = ("line", "--rung", "slow", "--seeds", "1", "--ranks", "2", "--threads", "1")
    train(*words, "-o", "whole.jsonl")
    halt = tmp_path / "halt"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": plugins, "HALT": str(halt)}
    command = [sys.executable, "-m", "deepbench", "train", *words, "-o", "killed.jsonl"]
    run = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not halt.exists() and time.monotonic() < end:
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.wait()

    assert [2] == [len(points) for points in curves(tmp_path / "killed.jsonl")]
    assert 0 == train("--resume", "-o", "killed.jsonl").returncode
    assert curves(tmp_path / "killed.jsonl") == curves(tmp_path / "whole.jsonl")


def test_a_batch_that_ranks_cannot_share_is_a_sentence(train, tmp_path):
    train("line", "--seeds", "1", "--ranks", "3", "--threads", "1", "-o", "a.jsonl")
    (run,) = runs_of(read_results(tmp_path / "a.jsonl"))

    assert ("unsupported", True) == (run.status, "a batch of 8 cannot be shared by 3 ranks" in run.end["reason"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--sweep", "colour=1,2"), "--sweep is 'colour=1,2', wanted NAME=A,B,... with one of precision, ranks"),
        (("--sweep", "batch="), "wanted NAME=A,B,..."),
        (("--sweep", "batch=8,x"), "--batch"),
        (("--sweep", "batch=8,16", "--batch", "8"), "leave out --batch: --sweep gives its values"),
        (("--explain", "--sweep", "batch=8,16"), "--explain takes"),
    ],
)
def test_a_sweep_that_cannot_be_is_a_sentence(train, words, sentence):
    done = train("line", *words)

    assert (64, True) == (done.returncode, sentence in done.stderr), done.stderr


def test_a_sweep_trains_every_seed_with_each_value(train, tmp_path):
    train("line", "--seeds", "2", "--sweep", "batch=8,16", "--threads", "1", "-o", "a.jsonl")
    runs = runs_of(read_results(tmp_path / "a.jsonl"))

    assert [(0, 8), (0, 16), (1, 8), (1, 16)] == [(r.setup["seed"], r.setup["batch"]) for r in runs]


def test_torchrun_starts_the_ranks(plugins, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": plugins}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "deepbench"]
    words = ["train", "line", "--seeds", "1", "--threads", "1", "-o", "a.jsonl"]
    done = subprocess.run(
        [*command, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )

    assert 0 == done.returncode, done.stderr
    (run,) = runs_of(read_results(tmp_path / "a.jsonl"))
    assert ("ok", 2) == (run.status, run.setup["ranks"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_gpu_that_is_missing_is_a_status_with_a_remedy(train, tmp_path):
    train("line", "--seeds", "1", "--device", "cuda", "-o", "a.jsonl")
    (run,) = runs_of(read_results(tmp_path / "a.jsonl"))

    assert ("unavailable", True) == (run.status, "finds no GPU; use --device cpu" in run.end["reason"]), run.end


CHANGES = {
    "of other samples": (lambda path, model: path.write_bytes(model), "is not one after 80 samples"),
    "damaged": (lambda path, model: path.write_bytes(model[: len(model) // 2]), "cannot be read"),
    "a FIFO": (lambda path, model: os.mkfifo(path), "is not a regular file"),
    "of another run": (
        lambda path, model: checkpoint.write(path, {"model/1.weight": np.ones(3), "samples": 80}),
        "is not one of this run",
    ),
}


@pytest.mark.parametrize(("name", "ranks"), [*((name, "1") for name in CHANGES), ("damaged", "2"), ("a FIFO", "2")])
def test_a_checkpoint_that_cannot_be_used_makes_the_run_begin_anew(train, tmp_path, name, ranks):
    """Its curve is that of the seed, and a sentence says why."""
    change, reason = CHANGES[name]
    words = ("line", "--seeds", "1", "--threads", "1", "--ranks", ranks)
    train(*words, "-o", "whole.jsonl")
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_text("".join(lines[:3]))  # header, start and the first evaluation
    folder = tmp_path / "cut.jsonl.checkpoints"
    folder.mkdir()
    model = (tmp_path / "whole.jsonl.models" / "0.npz").read_bytes()  # of the last evaluation
    change(folder / "0.80.npz", model)
    done = train("--resume", "-o", "cut.jsonl")

    assert 0 == done.returncode, done.stderr
    assert "deepbench: line, seed 0: begins anew: " in done.stderr
    assert reason in done.stderr
    assert curves(tmp_path / "cut.jsonl") == curves(tmp_path / "whole.jsonl")


def test_seeds_of_another_gpu_do_not_join_a_file(train, tmp_path):
    train("line", "--seeds", "2", "--threads", "1", "-o", "a.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    lines[1]["training"]["start"]["device"] = "A GPU"
    ends = [i for i, line in enumerate(lines) if "end" in line.get("training", {})]
    kept = [
        {name: v for name, v in line.items() if name not in ("crc32", "checksums")} for line in lines[: ends[0] + 1]
    ]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    done = train("--resume", "-o", "b.jsonl")

    assert (64, True) == (done.returncode, "b.jsonl was trained on A GPU, and this is no GPU" in done.stderr), (
        done.stderr
    )
    assert [4, 0] == [len(points) for points in curves(tmp_path / "b.jsonl")]


def test_a_file_of_other_rungs_is_refused(train, tmp_path):
    train("line", "--seeds", "1", "--threads", "1", "-o", "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    header = {name: value for name, value in json.loads(lines[0]).items() if name not in ("crc32", "checksums")}
    header["plan"]["training"][0]["target"] = 0.7
    (tmp_path / "b.jsonl").write_text(json.dumps(header) + "\n")
    done = train("--resume", "-o", "b.jsonl")

    assert (64, True) == (done.returncode, "line, rung mini had other target" in done.stderr), done.stderr


def test_variables_that_change_the_speed_are_those_of_the_run_and_not_of_the_reader(train, deepbench, tmp_path):
    chosen = {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true", "JAX_AUTH_TOKEN": "of no one's business"}
    train("line", "--seeds", "1", "--threads", "1", "-o", "set.jsonl", **chosen)
    train("line", "--seeds", "1", "--threads", "1", "-o", "plain.jsonl")

    assert chosen["XLA_FLAGS"] == read_results(tmp_path / "set.jsonl").chosen_variables["XLA_FLAGS"]
    assert "XLA_FLAGS=--xla_cpu" in deepbench("show", "set.jsonl").stdout
    assert "XLA_FLAGS" not in deepbench("show", "plain.jsonl", **chosen).stdout
    assert chosen["JAX_AUTH_TOKEN"] not in (tmp_path / "set.jsonl").read_text()
