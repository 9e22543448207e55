"""Whoever sends a result file cannot make `--resume` start programs elsewhere, or as many as they like."""

import pytest

from tests.help import samples, trained

pytestmark = pytest.mark.programs

GROUP = "all_reduce n=64 ranks={} forward f32 gloo threads=1"


def kernels(path, ranks, hosts):
    header = samples.header([GROUP.format(ranks)])
    header["plan"]["hosts"] = hosts
    samples.write(path, [], header)


def training(path, ranks, hosts):
    trained.write(path, [({"ranks": ranks}, {"qualities": (), "end": None})])
    text = path.read_text()
    path.write_text(text.replace('"mode": "training"', f'"mode": "training", "hosts": {hosts}'.replace("'", '"')))


@pytest.mark.parametrize(("verb", "write"), [("run", kernels), ("train", training)])
def test_a_file_decides_neither_where_nor_how_many_programs_start(deepbench, tmp_path, verb, write):
    shell, log = tmp_path / "ssh", tmp_path / "called"
    shell.write_text(f"#!/bin/sh\necho $* >> {log}\nexit 255\n")
    shell.chmod(0o755)

    def resume(*words):
        done = deepbench(verb, "--resume", "-o", "a.jsonl", *words, DEEPBENCH_REMOTE_SHELL=str(shell))
        assert 64 == done.returncode, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    path = tmp_path / "a.jsonl"
    write(path, 2, ["localhost", "evil.invalid"])
    before = path.read_bytes()
    (tmp_path / "hosts").write_text("localhost\nevil.invalid\n")
    said = resume()
    assert "a.jsonl names hosts on which programs would be started: localhost evil.invalid; " in said
    assert "with --hostfile FILE, or look at the file first; if you trust it, add --trust a.jsonl" in said
    assert "--trust must name the file" in resume("--trust", "hosts")
    # What is asked next: whether this is the same machine.
    assert "a.jsonl was measured elsewhere" in resume("--trust", "a.jsonl")
    assert "a.jsonl was measured elsewhere" in resume("--hostfile", "hosts")
    write(path, 4096, [])
    assert "a.jsonl starts 4,096 processes at once, and this machine has cores for" in resume()
    assert "a.jsonl was measured elsewhere" in resume("--trust", "a.jsonl")
    write(path, 2, [])
    assert "a.jsonl was measured elsewhere" in resume()

    assert not log.exists()
    write(path, 2, ["localhost", "evil.invalid"])
    assert before == path.read_bytes()


def test_a_comparison_with_a_file_starts_no_more_programs_than_there_are_cores(deepbench, tmp_path):
    record = samples.failed("crashed", "killed", "gloo")
    record["case"] = GROUP.format(4096)
    header = samples.header([record["case"]])
    samples.write(tmp_path / "a.jsonl", [], header)
    done = deepbench("run", "--against", "a.jsonl")

    assert (64, True) == (done.returncode, "starts 4,096 processes at once" in done.stderr), done.stderr


def test_trust_belongs_to_a_file_that_is_resumed(deepbench):
    assert "--trust FILE belongs to --resume -o FILE" in deepbench("train", "image", "--trust", "a.jsonl").stderr
    assert "--trust FILE belongs to --against FILE, or to --resume" in deepbench("run", "--trust", "a.jsonl").stderr
