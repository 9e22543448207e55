"""Where hosts come from: words, files, and what the programs of a site print."""

import json
import time

import pytest

from deepbench.core.errors import BadInput
from deepbench.fleets import hosts
from deepbench.fleets.api import find_hosts, make_reach
from deepbench.measuring.carriers import CARRIERS


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Put programs of these names into PATH: scripts of a shell."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(**scripts):
        for name, script in scripts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o700)

    return put


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("b,a\nc", ["b", "a", "c"]),
        (" a, b,,a ", ["a", "b"]),
        ("me@node-1.site,10.0.0.1", ["me@node-1.site", "10.0.0.1"]),
    ],
)
def test_plain_names_need_no_other_library(text, names, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ClusterShell.NodeSet", None)

    assert names == hosts.named(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node[001-003]", ["node001", "node002", "node003"]),
        ("n[1-2]-[7,9]", ["n1-7", "n1-9", "n2-7", "n2-9"]),
        ("n[0-6/3],login", ["login", "n0", "n3", "n6"]),
        ("n[1-4]!n[2-3]", ["n1", "n4"]),
    ],
)
def test_sets_of_hosts(text, names):
    pytest.importorskip("ClusterShell", reason="ClusterShell is not installed (extra fleet)")

    assert names == sorted(hosts.named(text))


def test_without_cluster_shell_a_set_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ClusterShell.NodeSet", None)
    with pytest.raises(BadInput, match=r"node\[1-3\] is a set of hosts, which needs ClusterShell: pip install"):
        hosts.named("node[1-3]")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no host is named"),
        ("-oProxyCommand=x", "'-oProxyCommand=x' is no name of a host"),
        ("a;b", "'a;b' is no name of a host"),
        ("{host}", "'{host}' is no name of a host"),
        ("a\x1b", "printable characters"),
        ("x" * 254, "is no name of a host; wanted up to 253 letters"),
        ("n[1-100001]", r"names up to 100001 hosts; a fleet has at most 100000"),
        ("n[1-9999999999999]", "names up to 9999999999999 hosts"),
        ("n[1-999]m[1-999]", "names up to 998001 hosts"),
        ("a,n[0-90000],m[0-90000]", "names up to 180003 hosts"),
        ("n[1-99999999999999999999]", "is no range of hosts; wanted one such as 001-512"),
        ("n[a-b]", "'a-b' is no range of hosts"),
        ("n[1-2/0]", "is no range of hosts"),
        ("n[]", "'' is no range of hosts"),
        ("#0#n[1-999999999]", "is no set of hosts; wanted one such as"),
        ("n[1-3];touch made", "is no set of hosts"),
    ],
)
def test_other_words_are_refused_before_the_work(text, reason):
    start = time.monotonic()
    with pytest.raises(BadInput, match=reason):
        hosts.named(text)

    assert time.monotonic() - start < 2


@pytest.mark.programs
def test_a_set_that_cluster_shell_refuses_is_one_sentence():
    pytest.importorskip("ClusterShell", reason="ClusterShell is not installed (extra fleet)")
    for text in ("n[1-3", "@no-such-group-of-hosts", "n[3-1]"):
        with pytest.raises(BadInput, match="is no set of hosts: "):
            hosts.named(text)


def test_a_file_names_hosts_and_sets(tmp_path):
    (tmp_path / "hosts").write_text("# all\nlogin:2 slots=4\nlogin slots=2\n\nnode7 # old\n")

    assert ["login", "node7"] == hosts.of_file(str(tmp_path / "hosts"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("# none\n", "names no host"),
        ("a\n-x\n", "'-x' is no name of a host"),
        ("\n".join(f"h{i}" for i in range(100_001)), "at most 100000 hosts, found 100001 or more"),
    ],
)
def test_a_file_without_hosts_is_refused(tmp_path, content, reason):
    (tmp_path / "hosts").write_text(content)
    with pytest.raises(BadInput, match=reason):
        hosts.of_file(str(tmp_path / "hosts"))


@pytest.mark.programs
def test_an_allocation_of_slurm_names_its_nodes(programs, monkeypatch):
    programs(srun="exit 1", scontrol='[ "$*" = "show hostnames node[1-2]" ] && printf "node1\\nnode2\\n"')
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-2]")
    monkeypatch.delenv("DEEPBENCH_REMOTE_SHELL", raising=False)
    reach = make_reach()

    assert "slurm" == reach.carrier.name
    assert {"node1": "node1", "node2": "node2"} == find_hosts(None, None, reach)
    assert ["x"] == list(find_hosts("x", None, reach))  # a name that is given counts


def test_an_allocation_of_lsf_names_each_host_once(monkeypatch):
    monkeypatch.setenv("LSB_HOSTS", "b a a b")

    assert ["b", "a"] == list(hosts.of_site(CARRIERS["lsf"]))


def test_a_large_allocation_of_lsf_has_a_file(monkeypatch, tmp_path):
    (tmp_path / "hosts").write_text("a\na\nb\n")
    monkeypatch.delenv("LSB_HOSTS", raising=False)
    monkeypatch.setenv("LSB_DJOB_HOSTFILE", str(tmp_path / "hosts"))

    assert ["a", "b"] == list(hosts.of_site(CARRIERS["lsf"]))


def _pod(name, node):
    return {"metadata": {"name": name}, "spec": {"nodeName": node} if node else {}}


@pytest.mark.programs
def test_pods_are_the_hosts_of_kubernetes(programs):
    listed = {"items": [_pod("p1", "n1"), _pod("p2", "n2"), _pod("p3", "n2"), _pod("p4", None)]}
    wanted = "get pods --selector app=deepbench --output json"
    programs(kubectl=f"""[ "$*" = "{wanted}" ] && echo '{json.dumps(listed)}'""")

    assert {"n1": "p1", "p2": "p2", "p3": "p3", "p4": "p4"} == hosts.of_site(CARRIERS["kubernetes"])


@pytest.mark.programs
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo 'error: no \033cluster' >&2; exit 1",
            "kubectl get pods lists no hosts: error: no \ufffdcluster; name them",
        ),
        ("exit 3", "exit code 3"),
        ("echo '{\"items\": []}'", "no pod has the label app=deepbench; start some, or name pods with --hosts"),
        ("echo '{\"items\": [[]]}'", "expected a list of pods from kubectl, found"),
        ("echo no", "expected a list of pods from kubectl, found 'no"),
        ("echo '[[[['", "expected a list of pods"),
        (
            'echo \'{"items": [{"metadata": {"name": "-x"}, "spec": {}}]}\'',
            "'-x' is no name of a host",
        ),
    ],
)
def test_what_kubectl_prints_may_be_anything(programs, script, reason):
    programs(kubectl=script)
    with pytest.raises(BadInput, match=reason):
        hosts.of_site(CARRIERS["kubernetes"])


@pytest.mark.programs
def test_a_missing_program_of_the_site_is_one_sentence(programs, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="cannot list hosts with kubectl: No such file or directory; name them with"):
        hosts.of_site(CARRIERS["kubernetes"])


def test_without_any_source_the_sources_are_named():
    with pytest.raises(BadInput, match=r"expected hosts, found none: name them \(--hosts"):
        hosts.of_site(CARRIERS["ssh"])
