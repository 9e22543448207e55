"""A fleet of pods: a script stands in for kubectl, and runs the command here."""

import json
import os

import pytest

from tests.conftest import NO_LIBRARIES, lines_of

pytestmark = pytest.mark.programs

CASE = "gemm m=33 n=17 k=9 i8 null threads=1"

KUBECTL = """#!/bin/sh
case "$1" in
get)
    [ "$*" = "get pods --selector app=deepbench --output json" ] || { echo "what is $*?" >&2; exit 1; }
    cat pods.json;;
exec)
    [ "$2 $4" = "--stdin --" ] || { echo "what is $*?" >&2; exit 1; }
    [ "$3" = deepbench-2 ] && { echo 'error: cannot exec into a container in a completed pod' >&2; exit 1; }
    echo "$3" >>asked
    shift 4
    exec "$@";;
esac
"""


@pytest.fixture
def pods(deepbench, tmp_path):
    """Run `deepbench fleet` through a kubectl that knows three pods of a Job, one of which has ended."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "kubectl").write_text(KUBECTL)
    (folder / "kubectl").chmod(0o755)
    items = [{"metadata": {"name": f"deepbench-{i}"}, "spec": {"nodeName": f"node{i}"}} for i in range(3)]
    (tmp_path / "pods.json").write_text(json.dumps({"items": items}))

    def run(*words):
        words = ("fleet", CASE, "--quick", "--runs", "1", *words, "-o", "fleet.jsonl")
        done = deepbench(*words, PATH=f"{folder}:{os.environ['PATH']}", **NO_LIBRARIES)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def test_each_pod_is_the_node_that_it_runs_on(pods, tmp_path):
    done = pods("--through", "kubernetes")

    header, *results = lines_of(tmp_path / "fleet.jsonl")
    assert ["node0", "node1", "node2"] == header["expected"]
    assert "kubernetes" == header["through"]
    found = {}
    for line in results:
        found.setdefault(line["host"], []).append(line["status"])
    assert {"node0": ["ok"], "node1": ["ok"], "node2": ["missing"]} == found, done.stdout
    assert ["deepbench-0", "deepbench-1"] == sorted((tmp_path / "asked").read_text().split())
    assert "node2 returned no result" in done.stdout
    assert "cannot exec into a container in a completed pod" in done.stdout
    assert 1 == done.returncode


def test_pods_can_be_named(pods, tmp_path):
    pods("--through", "kubernetes", "--hosts", "deepbench-0,deepbench-1")

    header, *results = lines_of(tmp_path / "fleet.jsonl")
    assert ["deepbench-0", "deepbench-1"] == header["expected"]
    assert {"ok"} == {line["status"] for line in results}
