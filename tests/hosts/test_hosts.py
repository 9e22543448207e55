"""Collectives over several simulated hosts: a link with a known rate, a host that vanishes, a rank that is killed."""

import os
import signal
import sys
import time

import pytest

from tests.conftest import NO_LIBRARIES, ROOT, lines_of, records_of
from tests.hosts.lab import Lab, missing

pytestmark = pytest.mark.hosts

GIGABIT = 125e6  # bytes per second


@pytest.fixture(scope="module", autouse=True)
def _requirements():
    """Skip this file, and say what is missing, where hosts cannot be simulated."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed (extra mpi)")
    if reason := missing("1gbit"):
        pytest.skip(reason)


def start(lab, *words, timeout="60", **environment):
    command = [sys.executable, "-m", "deepbench", "run", *words, "--hostfile", "hosts", "--timeout", timeout]
    return lab.start([*command, "-o", "out.jsonl"], PYTHONPATH=str(ROOT), **environment)


@pytest.mark.parametrize(("count", "elements"), [(2, 16777217), (4, 1638400)])
def test_large_messages_cross_the_link(count, elements):
    """The link limits the rate from above. `benchmarks/link.py` says how much they reach."""
    with Lab(count, "1gbit") as lab:
        words = ["--rounds", "1", "--backend", "mpich", f"all_reduce n={elements} ranks={count}"]
        process = start(lab, *words, "--set", "algorithm=default,ring")
        text = process.communicate(timeout=120)[0]
        records = records_of(lab.folder / "out.jsonl")

    assert ["ok"] * 2 == [r["status"] for r in records], text
    for r in records:
        assert dict.fromkeys(lab.names, 1) == r["group"]["hosts"]
        assert "yes" == r["group"]["deterministic"]
    best = min(min(r["measurement"]["samples_s"]) for r in records)
    bus = 2 * (count - 1) / count * 4 * elements / best
    assert GIGABIT / 8 < bus < 1.02 * GIGABIT


# Where rank 0 is, by the name of its host, and the secret of the job.
GIVEN = {"DEEPBENCH_RENDEZVOUS": "h0:7002", "DEEPBENCH_SECRET": "sixteen or more characters"}


def _until(condition, most_s=30.0):
    end = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.05)


def _wait_until_measuring(lab):
    """Wait until ranks on both hosts have started, and some time more."""
    _until(lambda: lab.ranks("h0") and lab.ranks("h1"))
    time.sleep(2.0)


def test_a_cut_link_ends_the_case_in_time_and_leaves_no_process():
    with Lab(2, "200mbit") as lab:
        words = ["--rounds", "1", "--backend", "mpich", "all_reduce n=6553600 ranks=2", "all_reduce n=10 ranks=2"]
        process = start(lab, *words, timeout="4")
        _wait_until_measuring(lab)
        start_s = time.monotonic()
        lab.cut("h1")
        text = process.communicate(timeout=90)[0]
        took = time.monotonic() - start_s
        records = records_of(lab.folder / "out.jsonl")
        _until(lambda: not lab.ranks("h0") and not lab.ranks("h1"))

    large = next(r for r in records if r["problem"]["n"] > 10)
    assert large["status"] in ("timeout", "crashed"), text
    assert 2 == len(records)  # the order is random: the other case was measured before or afterwards
    assert took < 60


def test_a_rank_killed_on_another_host_is_reported_and_the_run_continues():
    with Lab(2, "200mbit") as lab:
        cases = ["all_reduce n=6553600 ranks=2", "all_reduce n=6553600 ranks=2 place=in"]
        process = start(lab, "--rounds", "1", "--backend", "mpich", *cases, timeout="30")
        _wait_until_measuring(lab)
        os.kill(lab.ranks("h1")[0], 9)
        text = process.communicate(timeout=120)[0]
        records = records_of(lab.folder / "out.jsonl")

    assert ["crashed", "ok"] == [r["status"] for r in records], text
    assert "rank 1 on h1 ended during" in records[0]["reason"]


@pytest.mark.parametrize("given", [{}, GIVEN], ids=["file", "given"])
def test_a_run_inside_mpirun_starts_its_ranks_on_the_hosts_of_mpirun(given):
    """Without ssh: the processes that mpirun started launch the ranks on their hosts."""
    from deepbench.native import mpi

    with Lab(2) as lab:
        hosts = ",".join(lab.address(n) for n in lab.names)
        words = ["all_reduce n=1000 ranks=4", "--rounds", "1", "--backend", "mpich,ring", "-o", "out.jsonl"]
        launcher = [mpi.find(mpi.MPICH).mpiexec, "-hosts", hosts, "-ppn", "2", "-n", "4"]
        command = [*launcher, sys.executable, "-m", "deepbench", "run", *words]
        process = lab.start(command, PYTHONPATH=str(ROOT), **given)
        text = process.communicate(timeout=120)[0]
        records = records_of(lab.folder / "out.jsonl")
        _until(lambda: not lab.ranks("h0") and not lab.ranks("h1"))

    assert ["ok", "ok"] == [r["status"] for r in records], text
    assert "sixteen or more" not in str(records)
    assert [{"h0": 2, "h1": 2}] * 2 == [r["group"]["hosts"] for r in records]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
def test_a_run_that_is_killed_leaves_no_process_on_any_host(how):
    """Its ranks are started by MPICH."""
    with Lab(2, "200mbit") as lab:
        process = start(lab, "--rounds", "1", "--backend", "mpich", "all_reduce n=65536000 ranks=4")
        _wait_until_measuring(lab)
        process.send_signal(how)
        process.communicate(timeout=60)
        _until(lambda: not lab.processes())


def test_a_fleet_times_its_links():
    """Over MPICH, which is told the remote shell."""
    with Lab(2) as lab:
        words = ["fleet", "gemm m=4 n=4 k=4 i8 null threads=1", "--hostfile", "hosts", "--runs", "1", "--quick"]
        command = [sys.executable, "-m", "deepbench", *words, "-o", "fleet.jsonl"]
        process = lab.start(command, PYTHONPATH=str(ROOT), HYDRA_LAUNCHER_EXEC="/bin/false", **NO_LIBRARIES)
        text = process.communicate(timeout=120)[0]
        header, *results, link = lines_of(lab.folder / "fleet.jsonl")
        _until(lambda: not lab.processes())

    assert "mpich" == header["links"]
    assert {(lab.address(name), "ok") for name in lab.names} == {(r["host"], r["status"]) for r in results}, text
    assert [lab.address(name) for name in lab.names] == link["link"]
    assert "ok" == link["record"]["status"], link["record"]["reason"]
    assert {"h0": 1, "h1": 1} == link["record"]["group"]["hosts"]
