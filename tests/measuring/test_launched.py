"""Started several times by a launcher: rank 0 measures and writes, the others serve it in silence."""

import os
import subprocess
import sys

import pytest

from deepbench.measuring.group.link import RankInfo, rank_info
from tests.conftest import ROOT, records_of

pytestmark = pytest.mark.programs

SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "3"}


@pytest.fixture
def launched(tmp_path, plugins):
    """Start the command as three ranks of a Slurm step; returns exit code, output and errors of each."""

    def run(*words, ranks=(2, 1, 0), **environment):
        known = {**os.environ, "PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": str(plugins), **SLURM, **environment}
        started = {
            rank: subprocess.Popen(
                [sys.executable, "-m", "deepbench", "run", *words],
                cwd=tmp_path,
                env={**known, "SLURM_PROCID": str(rank)},
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in ranks
        }
        told = {rank: process.communicate(timeout=120) for rank, process in started.items()}
        return {rank: (started[rank].returncode, *told[rank]) for rank in ranks}

    return run


def test_rank_0_writes_and_the_others_are_silent(launched, tmp_path):
    done = launched("all_reduce n=40 ranks=3 f32 grouphonest", "--rounds", "1", "-o", "out.jsonl")

    assert (0, 0, 0) == tuple(done[r][0] for r in range(3)), done
    assert ("", "") == done[1][1:] == done[2][1:]
    (record,) = records_of(tmp_path / "out.jsonl")
    assert "ok" == record["status"], record["reason"]
    assert 3 == record["problem"]["ranks"]
    assert ["out.jsonl"] == [p.name for p in tmp_path.iterdir()]  # where they met is forgotten


def test_a_kernel_without_ranks_is_measured_by_rank_0_alone(launched, tmp_path):
    done = launched("gemm m=4 n=4 k=4 i8 null threads=1", "--rounds", "1", "-o", "out.jsonl")

    assert (0, 0, 0) == tuple(done[r][0] for r in range(3)), done
    assert "slurm started 3 processes; this one measures" in done[0][2]
    assert ("", "") == done[1][1:] == done[2][1:]
    assert 1 == len(records_of(tmp_path / "out.jsonl"))


@pytest.mark.parametrize(("step", "rank"), [("0", RankInfo("slurm", 0, 3)), ("4294967290", None), ("", None)])
def test_the_shell_of_an_allocation_is_no_rank(step, rank):
    """Slurm gives it the number of tasks, too, and its own kind of step."""
    assert rank == rank_info({**SLURM, "SLURM_STEP_ID": step, "SLURM_PROCID": "0"})


def test_a_hostfile_has_no_place_there(launched, tmp_path):
    (tmp_path / "hosts").write_text("a\n")
    done = launched("all_reduce n=40 ranks=3 f32 grouphonest", "--hostfile", "hosts", ranks=[0])

    assert 64 == done[0][0]
    assert "leave out --hostfile: slurm has started deepbench on the hosts to use" in done[0][2]


def test_a_place_that_is_none_is_one_sentence(launched):
    done = launched("all_reduce n=40 ranks=3 f32 grouphonest", ranks=[1], DEEPBENCH_RENDEZVOUS="nonsense")

    assert 64 == done[1][0]
    assert "DEEPBENCH_RENDEZVOUS is 'nonsense', wanted host:port of rank 0" in done[1][2]
