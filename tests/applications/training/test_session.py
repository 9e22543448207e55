"""A training session and its worker in one process: killed at every step, on a full disk, and with files of others.

The task is a few additions, and the worker is a thread that runs only while the session waits for it.
"""

import errno
import os
import threading
import types
from collections import deque
from pathlib import Path

import numpy as np
import pytest

from deepbench.applications.api import plan_training
from deepbench.applications.training import checkpoint, inference, session, worker
from deepbench.applications.training.application import Rung, Setup
from deepbench.applications.training.scenarios import ServingOptions
from deepbench.applications.training.session import Stopped, TrainingSession
from deepbench.applications.training.worker import Places
from deepbench.core.errors import BadInput, Unavailable
from deepbench.core.files import NotWritten
from deepbench.measuring import process
from deepbench.results.file import Store, read_results
from tests.help import trained
from tests.help.command import run_here

BATCH, EVERY, SAMPLES = 10, 20, 60
RUNG = Rung("a sum", BATCH, SAMPLES, EVERY, 0.5)


class Killed(BaseException):
    """As `kill -9`: nobody handles it."""


class Sum:
    """A task whose state depends on every step."""

    parameters = examples = tests = 4
    optimizer_name, learning_rate, device_name = "none", 0.1, None

    def __init__(self):
        self.x, self.samples = np.ones(4), 0

    def step(self):
        self.samples += BATCH
        self.x = self.x * 1.01 + np.arange(4) * self.samples

    def loss(self):
        return 1.0

    def evaluate(self):
        return float(self.x.sum())

    def state(self):
        return {"x": self.x}

    def restore(self, state, samples):
        if state["x"].shape != (4,):
            raise RuntimeError("size mismatch for x")
        self.x, self.samples = state["x"], samples


class Thread:
    """In place of a worker process: it is `ahead` messages before the session, or has ended."""

    def __init__(self, request, ahead):
        self.messages, self.ahead = deque(), ahead
        self._may_go, self._has_stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._is_closed = self._has_ended = False
        self._killed = None
        self._thread = threading.Thread(target=self._run, args=(request,), daemon=True)
        self._thread.start()

    def _run(self, request):
        try:
            self._wait()
            setup, places = Setup(**request["setup"]), Places(Path(request["checkpoints"]), request["run"])
            worker.guarded(lambda: worker.train(setup, places, request["samples"], self._emit), self._emit)
        except Killed as killed:
            self._killed = killed
        self._has_ended = True
        self._has_stopped.release()

    def _wait(self):
        self._may_go.acquire()
        if self._is_closed:
            raise Killed

    def _emit(self, message):
        self.messages.append(message)
        if len(self.messages) > self.ahead:
            self._has_stopped.release()
            self._wait()

    def listen(self, answers, timeout_s):
        while True:
            if not self._has_ended and len(self.messages) <= self.ahead:
                self._may_go.release()
                self._has_stopped.acquire()
            if self._killed is not None:
                raise self._killed
            message = self.messages.popleft()
            if answers & set(message):
                return process.Ending(message)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._is_closed = True
        self._may_go.release()
        self._thread.join()


@pytest.fixture
def task(monkeypatch):
    """Every run trains this task; a test may change the class."""

    class Own(Sum):
        pass

    application = types.SimpleNamespace(rungs={"mini": RUNG}, outside_steps=None, datasets=())
    monkeypatch.setattr(worker, "find_application", lambda _: application)
    monkeypatch.setattr(worker, "make_task", lambda *_: (Own(), {"numpy": "2"}, 0))
    return Own


@pytest.fixture
def run(monkeypatch, task):
    """Begin or resume a file with one run; the session, when it has ended. `start` gives the worker."""

    def go(path, ahead=0, start=Thread):
        monkeypatch.setattr(TrainingSession, "_process", lambda _, setup, request: start(request, ahead))
        if not path.exists():
            setup = {"batch": BATCH, "samples": SAMPLES, "every": EVERY}
            trained.write(path, [(setup, {"qualities": (), "end": None})])
            lines = path.read_text().splitlines(keepends=True)
            path.write_text(lines[0])  # without the events
        store = Store.reopen(path)
        file = read_results(path)
        store.append_after(file)
        with TrainingSession(file, store) as one:
            one.run()
        return one

    return go


def curve(path):
    """The last quality after each number of samples."""
    points = (event["point"] for event in read_results(path).training if "point" in event)
    return {point["samples"]: point["quality"] for point in points}


def ends(path):
    return [event["end"] for event in read_results(path).training if "end" in event]


@pytest.fixture
def whole(run, tmp_path):
    """The curve of a run that nothing happens to."""
    run(tmp_path / "whole.jsonl")
    return curve(tmp_path / "whole.jsonl")


def killing(monkeypatch, at):
    """Kill the process before its step `at`: a step changes files. Returns how many there were, in a list."""
    count = [0]

    def steps(owner, name):
        original = getattr(owner, name)

        def step(*arguments, **named):
            count[0] += 1
            if count[0] == at:
                raise Killed
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, step)

    for owner, name in (
        (Store, "append"),
        (Path, "replace"),
        (Path, "unlink"),
        (Path, "mkdir"),
        (Path, "rmdir"),
        (os, "fsync"),
        (np, "savez"),
    ):
        steps(owner, name)
    return count


@pytest.mark.parametrize("ahead", [0, 2, 50])
def test_a_kill_at_any_step_loses_nothing_that_was_stored(run, whole, tmp_path, monkeypatch, ahead):
    """Whether the worker waits for its parent, is a few messages ahead, or has trained to the end meanwhile."""
    at, was_killed = 0, True
    while was_killed:
        at += 1
        path = tmp_path / f"{at}.jsonl"
        with monkeypatch.context() as patch:
            killing(patch, at)
            try:
                run(path, ahead)
                was_killed = False
            except Killed:
                pass
        before = curve(path)
        notes = run(path).notes
        starts = [event["start"]["samples"] for event in read_results(path).training if "start" in event]

        assert curve(path) == whole, at
        assert [{"status": "ok", "reason": None}] == ends(path)
        assert [] == notes
        if was_killed and len(starts) > 1:
            assert starts[-1] == max(before, default=0), "it goes on from the last evaluation in the file"
        assert ["0.npz"] == [one.name for one in (tmp_path / f"{at}.jsonl.models").iterdir()]
        assert not (tmp_path / f"{at}.jsonl.checkpoints").exists()
    assert at > 15


def test_one_earlier_checkpoint_is_kept_and_no_more(run, tmp_path, monkeypatch):
    """Before the event of an evaluation is stored, its checkpoint and the one before are there; behind it, one."""
    found, append = [], Store.append

    def appended(store, line):
        names = sorted(path.name for path in (tmp_path / "a.jsonl.checkpoints").iterdir())
        found.append((*(line.get("training") or line), names))
        append(store, line)

    monkeypatch.setattr(Store, "append", appended)
    run(tmp_path / "a.jsonl")

    of_points = [names for *words, names in found if "point" in words]
    assert [["0.20.npz"], ["0.20.npz", "0.40.npz"], ["0.40.npz", "0.60.npz"]] == of_points


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        OSError(errno.EIO, os.strerror(errno.EIO)),
    ],
    ids=lambda error: error.strerror,
)
def test_a_checkpoint_that_cannot_be_written_stops_the_run_which_then_goes_on(run, whole, tmp_path, monkeypatch, error):
    path, save = tmp_path / "a.jsonl", np.savez

    def fails(file, *arrays):
        if "40" in file.name:
            raise error
        save(file, *arrays)

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", fails)
        with pytest.raises(Stopped, match=rf"cannot write .*0\.40\.npz: {error.strerror}"):
            run(path)
    assert [] == ends(path)
    assert [20] == list(curve(path))

    assert [] == run(path).notes
    assert curve(path) == whole
    assert [0, 20] == [e["start"]["samples"] for e in read_results(path).training if "start" in e]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/kernel.so"),
        RuntimeError("write failed: No space left on device"),
    ],
)
def test_a_full_disk_of_a_library_stops_the_run(run, task, whole, tmp_path, monkeypatch, error):
    with monkeypatch.context() as patch:
        patch.setattr(task, "step", lambda _: (_ for _ in ()).throw(error))
        with pytest.raises(Stopped, match=r"the disk is full .*No space left on device.*; free some space"):
            run(tmp_path / "a.jsonl")

    assert [] == ends(tmp_path / "a.jsonl")
    run(tmp_path / "a.jsonl")
    assert curve(tmp_path / "a.jsonl") == whole


def out_of_memory_behind(samples, step=Sum.step):
    def fails(one):
        if one.samples >= samples:
            raise MemoryError("Unable to allocate 3 GiB")
        step(one)

    return fails


def test_memory_that_is_full_ends_a_run_that_never_fitted_and_no_other(run, task, whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(task, "step", out_of_memory_behind(10))
        run(tmp_path / "large.jsonl")
        patch.setattr(task, "step", out_of_memory_behind(30))
        with pytest.raises(Stopped, match=r"the memory is full, which was enough before .*3 GiB.*; free some memory"):
            run(tmp_path / "a.jsonl")

    assert [{"status": "out_of_memory", "reason": "Unable to allocate 3 GiB"}] == ends(tmp_path / "large.jsonl")
    assert [] == ends(tmp_path / "a.jsonl")
    run(tmp_path / "a.jsonl")
    assert curve(tmp_path / "a.jsonl") == whole


@pytest.mark.parametrize(
    ("kills", "status"), [((3, 3), "crashed"), ((3, 4), "out_of_memory"), ((None, None), "crashed")]
)
def test_a_process_that_the_system_kills_for_memory_has_not_crashed(kills, status, monkeypatch):
    monkeypatch.setattr(session.describe, "kills_for_memory", lambda: kills[1])
    ending = process.Ending(status="crashed", reason="killed by SIGKILL", was_killed=True)

    assert status == session._failure(ending, kills[0] or 0)["status"]


@pytest.mark.parametrize("error", [Unavailable("cannot start python", "free some memory"), OSError(12, "no memory")])
def test_a_process_that_cannot_be_started_ends_no_run(run, tmp_path, error):
    def refused(*_):
        raise error

    with pytest.raises(Stopped, match="memory"):
        run(tmp_path / "a.jsonl", start=refused)

    assert [] == read_results(tmp_path / "a.jsonl").training


def test_the_checkpoint_of_a_run_that_did_not_end_well_stays(run, task, tmp_path, monkeypatch):
    def diverges(one):
        return float("nan") if one.samples > 20 else 1.0

    monkeypatch.setattr(task, "loss", diverges)
    run(tmp_path / "a.jsonl")

    assert ["diverged"] == [end["status"] for end in ends(tmp_path / "a.jsonl")]
    assert ["0.20.npz"] == [path.name for path in (tmp_path / "a.jsonl.checkpoints").iterdir()]
    assert not (tmp_path / "a.jsonl.models").exists()


def interrupted(run, path, monkeypatch):
    """A file whose only run was killed behind its second evaluation; the path of its checkpoint."""
    points, append = [0], Store.append

    def appended(store, line):
        append(store, line)
        points[0] += "point" in (line.get("training") or ())
        if points[0] == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Store, "append", appended)
        with pytest.raises(Killed):
            run(path)
    return path.with_name(f"{path.name}.checkpoints") / "0.40.npz"


def fifo(path):
    path.unlink()
    os.mkfifo(path)


CHANGES = {
    "missing": (Path.unlink, "is missing"),
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:100]), "cannot be read"),
    "a FIFO": (fifo, "is not a regular file"),
    "of other samples": (
        lambda path: checkpoint.write(path, {"x": np.ones(4), "samples": 60}),
        "is not one after 40 samples",
    ),
    "of another run": (
        lambda path: checkpoint.write(path, {"x": np.ones(5), "samples": 40}),
        "is not one of this run: size mismatch for x",
    ),
    "without a name": (
        lambda path: checkpoint.write(path, {"y": np.ones(4), "samples": 40}),
        "is not one of this run: 'x'",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_whose_checkpoint_cannot_be_used_begins_anew_with_a_sentence(run, whole, tmp_path, monkeypatch, name):
    change, reason = CHANGES[name]
    path = tmp_path / "a.jsonl"
    change(interrupted(run, path, monkeypatch))
    (note,) = run(path).notes

    assert note.startswith("image, seed 0: begins anew: ")
    assert reason in note
    assert curve(path) == whole
    assert [0, 0] == [e["start"]["samples"] for e in read_results(path).training if "start" in e]


def test_a_checkpoint_for_which_memory_lacks_is_not_given_up(run, whole, tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    interrupted(run, path, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.describe, "memory_available", lambda: 10)
        with pytest.raises(Stopped, match="10 bytes of memory are free"):
            run(path)

    assert [] == run(path).notes
    assert curve(path) == whole


@pytest.mark.parametrize("name", ["checkpoints", "models"])
def test_a_folder_that_somebody_else_has_put_there_is_not_used(run, tmp_path, name):
    (tmp_path / "theirs").mkdir()
    (tmp_path / f"a.jsonl.{name}").symlink_to(tmp_path / "theirs")
    with pytest.raises(BadInput, match=rf"a\.jsonl\.{name} is a link; wanted a folder of yours"):
        run(tmp_path / "a.jsonl")

    assert [] == list((tmp_path / "theirs").iterdir())


def test_a_link_that_was_put_into_the_folder_is_not_written_through(run, tmp_path):
    """The folder is that of this user, and others may write into it."""
    folder = tmp_path / "a.jsonl.checkpoints"
    folder.mkdir()
    (tmp_path / "victim").write_text("precious")
    for name in ("0.20.new", "0.40.npz", "0.60.new"):
        (folder / name).symlink_to(tmp_path / "victim")
    run(tmp_path / "a.jsonl")

    assert "precious" == (tmp_path / "victim").read_text()
    assert ["0.npz"] == [path.name for path in (tmp_path / "a.jsonl.models").iterdir()]


def test_a_model_that_cannot_be_moved_is_a_sentence_and_is_kept_later(run, tmp_path, monkeypatch):
    replace = Path.replace

    def refused(path, target):
        if "models" in str(target):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refused)
        with pytest.raises(NotWritten, match="Disk quota exceeded; free some space"):
            run(tmp_path / "a.jsonl")
    run(tmp_path / "a.jsonl")

    assert (tmp_path / "a.jsonl.models" / "0.npz").exists()
    assert not (tmp_path / "a.jsonl.checkpoints").exists()


class Asked:
    """In place of a process in which a model answers: it sends one message."""

    def __init__(self, message):
        self.message, self.request = message, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def send(self, request):
        self.request = request

    def listen(self, answers, timeout_s):
        assert answers & set(self.message)
        return process.Ending(self.message)


def served_by(tmp_path, monkeypatch, message):
    """The process that is asked to serve the model of two ranks, and the session."""
    source, asked = trained.write(tmp_path / "a.jsonl", trained.seeds(1, ranks=2)), Asked(message)
    monkeypatch.setattr(inference.parent, "Worker", lambda *_: asked)
    store = Store.create(tmp_path / "b.jsonl", source.header)
    return asked, inference.InferenceSession(source, read_results(tmp_path / "b.jsonl"), store, ServingOptions())


def test_a_full_disk_is_no_result_of_serving(tmp_path, monkeypatch):
    _, one = served_by(tmp_path, monkeypatch, {"stopped": "the disk is full"})
    with one, pytest.raises(Stopped, match="the disk is full"):
        one.run()

    assert [] == read_results(tmp_path / "b.jsonl").serving


def test_one_process_serves_the_model_of_several_ranks(tmp_path, monkeypatch):
    end = {"status": "unavailable", "reason": "not here"}
    asked, one = served_by(tmp_path, monkeypatch, {"end": end})
    with one:
        one.run()

    assert (1, "0.npz") == (asked.request["setup"]["ranks"], Path(asked.request["checkpoint"]).name)
    assert {"unavailable"} == {line["status"] for line in one.file.serving}


def test_seeds_are_named_or_counted():
    assert [0, 1] == [setup["seed"] for setup in plan_training("sentiment", seeds=2)]
    assert [7, 11] == [setup["seed"] for setup in plan_training("sentiment", seeds=[7, 11])]
    for wrong in ([], [7, 7], [-1], [2**31]):
        with pytest.raises(BadInput, match="seeds are different whole numbers from 0 to 2147483647, found "):
            plan_training("sentiment", seeds=wrong)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--seed", "7,x"], "--seed must be a whole number, found 'x'"),
        (["--seed", "7", "--seeds", "2"], "--seed names the seeds and --seeds their number; leave out one"),
    ],
)
def test_words_for_seeds_that_cannot_be_used_are_refused(words, sentence):
    done = run_here(["train", "sentiment", *words])

    assert (64, f"deepbench: {sentence}\n") == (done.code, done.errors)
