"""Fleets that Slurm runs later: the batch script, and what sbatch answers. sbatch is a script here."""

import os
import subprocess

import pytest

pytestmark = pytest.mark.programs

CASE = "gemm m=33 n=17 k=9 i8 null threads=1"
WORDS = ("fleet", CASE, "--runs", "3", "--links", "none", "--submit", "--through", "slurm", "-o", "fleet.jsonl")


@pytest.fixture
def submit(deepbench, tmp_path):
    """Run `deepbench fleet --submit` with a sbatch that does this."""

    def run(*words, sbatch="echo 12; cp $2 submitted", **environment):
        folder = tmp_path / "programs"
        folder.mkdir(exist_ok=True)
        (folder / "sbatch").write_text(f"#!/bin/sh\n{sbatch}\n")
        (folder / "sbatch").chmod(0o755 if sbatch else 0o644)
        done = deepbench(*WORDS, *words, PATH=f"{folder}:{os.environ['PATH']}", **environment)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def test_the_script_is_written_printed_and_submitted(submit, tmp_path):
    done = submit("--nodes", "4", OMP_PROC_BIND="close", DEEPBENCH_TEST_TOKEN="hidden", TOKEN="hidden too")

    assert 0 == done.returncode, done.stderr
    text = (tmp_path / "fleet.sbatch").read_text()
    assert text == (tmp_path / "submitted").read_text()
    assert text in done.stdout
    assert "12" in done.stdout.replace(text, "")
    first, *lines = text.splitlines()
    assert "#!/bin/sh" == first
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    for option in ("--nodes=4", "--exclusive", "--no-requeue", "--no-kill", "--mem=0", "--signal=B:TERM@60"):
        assert option in options
    assert "--export=NONE" in options
    assert not [option for option in options if option.startswith("--nodelist")]
    assert "export OMP_PROC_BIND=close" in lines
    assert "hidden" not in text
    assert lines[-1].startswith("exec ")
    assert f"fleet '{CASE}'" in lines[-1]
    assert "--runs=3" in lines[-1]
    assert "--submit" not in lines[-1]
    assert 0 == subprocess.run(["sh", "-n", tmp_path / "fleet.sbatch"]).returncode


def test_a_list_of_hosts_is_a_list_of_nodes(submit, tmp_path):
    done = submit("--hosts", "node01,node02,node07")

    assert 0 == done.returncode, done.stderr
    lines = (tmp_path / "fleet.sbatch").read_text().splitlines()
    assert "#SBATCH --nodes=3" in lines
    assert "#SBATCH --nodelist=node01,node02,node07" in lines


def test_a_script_of_the_same_name_stays(submit, tmp_path):
    (tmp_path / "fleet.sbatch").write_text("mine")
    done = submit("--nodes", "4")

    assert 64 == done.returncode
    assert "fleet.sbatch exists and is not replaced" in done.stderr
    assert "mine" == (tmp_path / "fleet.sbatch").read_text()
    assert not (tmp_path / "submitted").exists()


def test_a_fleet_file_of_the_same_name_stays(submit, tmp_path):
    (tmp_path / "fleet.jsonl").write_text("mine")
    done = submit("--nodes", "4")

    assert 64 == done.returncode
    assert "fleet.jsonl" in done.stderr
    assert not (tmp_path / "fleet.sbatch").exists()


@pytest.mark.parametrize(
    ("sbatch", "reason"),
    [
        ("echo 'sbatch: error: no \033such partition' >&2; exit 1", "no \N{REPLACEMENT CHARACTER}such partition"),
        ("echo hello", "expected the number of a job from sbatch, found 'hello'"),
    ],
)
def test_what_sbatch_says_is_told_and_the_script_is_kept(submit, tmp_path, sbatch, reason):
    done = submit("--nodes", "4", sbatch=sbatch)

    assert 64 == done.returncode
    assert reason in done.stderr
    assert "sbatch fleet.sbatch" in done.stderr
    assert (tmp_path / "fleet.sbatch").exists()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((), "--nodes N"),
        (("--nodes", "1"), "two or more"),
        (("--nodes", "many"), "--nodes"),
        (("--nodes", "3", "--hosts", "a,b,c"), "--nodes lets"),
        (("--nodes", "4", "--through", "ssh"), "--through slurm"),
    ],
)
def test_words_that_do_not_fit_are_refused(submit, tmp_path, words, wanted):
    done = submit(*words)

    assert 64 == done.returncode, done.stdout
    assert wanted in done.stderr
    assert not (tmp_path / "fleet.sbatch").exists()
