"""Lines that would drain slow hosts: what they say, for whom there is none, and that no file of others abuses them."""

import shlex
import string
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbench.core.errors import BadInput
from deepbench.fleets.drain import drain_lines
from deepbench.fleets.judge import judge
from tests.fleets.made import CASE, SECOND, fleet, with_links

EQUAL = {"n1": 1.0, "n2": 1.0, "n3": 1.0}
NOT_RUN = "# DeepBench does not run these lines."


def drained(file, wanted="slurm"):
    return drain_lines(file, judge(file), wanted)


def slow(name, runs=7, **header):
    return fleet({**EQUAL, name: 1.14}, runs, **header)


def test_a_slow_node_of_slurm_is_drained_with_the_reason():
    (note, line) = drained(slow("node3"))

    assert NOT_RUN == note
    assert "scontrol update nodename=node3 state=drain 'reason=deepbench: gemm 1.14 x the median, p < 0.001'" == line
    reason = "reason=deepbench: gemm 1.14 x the median, p < 0.001"
    assert ["scontrol", "update", "nodename=node3", "state=drain", reason] == shlex.split(line)


def test_a_slow_node_of_kubernetes_is_tainted():
    assert [
        NOT_RUN,
        "# A name must be that of a node, not of a pod: kubectl get nodes",
        "# node3: deepbench: gemm 1.14 x the median, p < 0.001",
        "kubectl taint nodes node3 deepbench=slow:NoSchedule",
    ] == drained(slow("node3"), "kubernetes")


@pytest.mark.parametrize(("through", "program"), [("slurm", "scontrol"), ("kubernetes", "kubectl")])
def test_the_file_says_what_manages_its_hosts(through, program):
    assert drained(slow("node3", through=through), None)[-1].startswith(program)
    assert drained(slow("node3", through=through), "slurm")[-1].startswith("scontrol")


@pytest.mark.parametrize(
    ("header", "wanted", "expected"),
    [
        ({}, None, "fleet.jsonl does not say how its hosts were reached; choose one: --drain slurm or --drain kub"),
        ({"through": "ssh"}, None, "says that its hosts were reached through 'ssh'; choose one"),
        ({"through": ["slurm"]}, None, "does not say how"),
        ({"through": "x" * 10**6}, None, "xxx…'; choose"),
        ({"through": "slurm"}, "pbs", "--drain has lines for slurm and kubernetes, found 'pbs'"),
    ],
)
def test_without_a_known_manager_there_are_no_lines(header, wanted, expected):
    with pytest.raises(BadInput) as error:
        drained(slow("node3", **header), wanted)

    assert expected in str(error.value)
    assert len(str(error.value)) < 400


def test_nothing_is_drained_where_nothing_is_slow():
    assert ["# No host is slow: there is nothing to drain."] == drained(fleet(EQUAL, 7))


def test_an_undecided_host_is_not_drained_and_a_comment_says_so():
    assert [
        "# No host is slow: there is nothing to drain.",
        "# undecided, so not drained: 'n3'; more runs decide",
    ] == drained(fleet({**EQUAL, "n3": 2.5}, 3))


def test_a_missing_host_is_not_drained_and_a_comment_says_so():
    lines = drained(fleet(EQUAL, 7, expected=[*EQUAL, "n4"]))

    assert "# failed or wrong, but not slow, so not drained: 'n4'" == lines[-1]


def test_the_reason_names_all_kernels_or_the_slow_one_or_the_links():
    hosts = dict.fromkeys("abcd", 1.0)
    every = fleet({**hosts, "d": 1.2}, 8, (CASE, SECOND))
    one = fleet({**hosts, "d": {SECOND: 1.08}}, 8, (CASE, SECOND))
    links = with_links(fleet(hosts, 8), {(a, "d"): 1.5 for a in "abc"}, 8)

    for file, words in ((every, "all kernels 1.20 x"), (one, "conv 1.08 x"), (links, "links 1.50 x")):
        assert f"reason=deepbench: {words} the median, p < 0.001" == shlex.split(drained(file)[1])[-1]


@pytest.mark.parametrize(
    ("host", "manager"),
    [
        *((name, "slurm") for name in ("node[1-9]", "a,b", "ALL", "all", "-f", "a b", "", ".", "n\n", "n;reboot", "ü")),
        *((name, "slurm") for name in ("$(reboot)", "`reboot`", "a'b", "n\nreboot", "n=1", "a/b", "x" * 300, "n1\x1b")),
        *((name, "kubernetes") for name in ("Node1", "a_b", "--all", "a/b", "node[1-9]", "-l", "a=b", "n\u2028m", "*")),
    ],
)
def test_a_host_with_a_strange_name_is_left_out_with_a_sentence(host, manager):
    lines = drained(slow(host), manager)

    assert all(line.startswith("# ") for line in lines)
    (left_out,) = [line for line in lines if line.startswith("# left out: ")]
    assert f"is slow, but this is no name of a host of {manager}" in left_out
    assert all(line.isprintable() and len(line) < 200 for line in lines)


@pytest.mark.parametrize("host", ["node001", "n", "n1.cluster.example.org", "gpu-a_7", "10.0.0.7", "allen"])
def test_usual_names_are_drained(host):
    assert f"nodename={host}" == shlex.split(drained(slow(host))[1])[2]


@given(st.text(st.characters(codec="utf-8") | st.sampled_from(string.punctuation + "\n\r\t\x1b$`'\"\\"), max_size=40))
def test_whatever_a_host_is_called_a_shell_runs_scontrol_for_that_host_or_nothing(host):
    lines = [line for line in drained(slow(host)) if not line.startswith("#")]

    assert all(["scontrol", "update", f"nodename={host}", "state=drain"] == shlex.split(line)[:4] for line in lines)
    assert all("\n" not in line for line in drained(slow(host)))


@pytest.mark.parametrize("case", ["$(reboot) m=1", "\n reboot", "", "gemm'; reboot '", "GEMM m=2"])
def test_the_reason_has_no_word_of_a_case_that_is_no_operation(case):
    file = slow("node3")
    for run in file.runs:
        run.lines[1]["case"] = case

    assert "reason=deepbench: kernel 1.14 x the median, p < 0.001" == shlex.split(drained(file)[1])[-1]


@pytest.mark.programs
def test_a_shell_runs_the_lines_as_they_are_meant(tmp_path):
    (tmp_path / "scontrol").write_text('#!/bin/sh\nfor word; do printf "%s|" "$word"; done\n')
    (tmp_path / "scontrol").chmod(0o700)
    text = "\n".join([*drained(slow("node3")), *drained(slow("$(touch here)")), *drained(slow("n\ntouch here"))])
    done = subprocess.run(
        ["sh"], input=text, capture_output=True, text=True, cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )

    assert "update|nodename=node3|state=drain|reason=deepbench: gemm 1.14 x the median, p < 0.001|" == done.stdout
    assert "" == done.stderr
    assert ["scontrol"] == [path.name for path in tmp_path.iterdir()]
