"""Bad input to `deepbench fleet`, before any host is asked, and files of fleets. Fleets themselves: tests/hosts."""

import json
from pathlib import Path

import pytest

from deepbench.core.errors import BadInput
from deepbench.measure import fleet
from tests.conftest import lines_of


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["fleet"], "wanted one source of hosts"),
        (["fleet", "--hostfile", "hosts", "--scheduler", "tcp://127.0.0.1:1"], "found several"),
        (["fleet", "--hostfile", "hosts"], "a fleet is two hosts or more"),
        (["fleet", "--hostfile", "hosts", "--runs", "0"], "--runs must be from 1 to 1000"),
        (["fleet", "--scheduler", "tcp://127.0.0.1:1", "--links", "mpich"], "--links needs hosts"),
        (["show", "hosts", "--host", "a"], "--host is for files of a fleet"),
    ],
)
def test_bad_input_is_one_sentence(deepbench, tmp_path, words, wanted):
    (tmp_path / "hosts").write_text("a\n")
    done = deepbench(*words, DEEPBENCH_REMOTE_SHELL="/bin/false")

    assert 64 == done.returncode, done.stdout
    assert wanted in done.stderr
    assert 1 == len(done.stderr.strip().splitlines()), done.stderr


def test_a_scheduler_that_is_not_there_is_one_sentence(deepbench):
    pytest.importorskip("distributed", reason="Dask distributed is not installed (extra fleet)")
    done = deepbench("fleet", "--scheduler", "tcp://127.0.0.1:1")

    assert (64, 1) == (done.returncode, len(done.stderr.strip().splitlines()))
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in done.stderr


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The lines of an ordinary result file of one case."""
    import subprocess
    import sys

    path = tmp_path_factory.mktemp("one") / "out.jsonl"
    words = ["run", "gemm m=4 n=4 k=4 i8 null threads=1", "--quick", "-o", str(path)]
    subprocess.run([sys.executable, "-m", "deepbench", *words], check=True, capture_output=True, timeout=120)
    found = lines_of(path)
    for line in found:
        if "case" in line:
            line["status"] = "ok"  # `null` computes nothing; here its times are what counts
    return found


def with_times(lines, factor, **facts):
    """The same file of a machine so much slower."""
    found = json.loads(json.dumps(lines))
    found[0]["machine"] |= facts
    for line in found:
        if "case" in line:
            line["measurement"]["samples_s"] = [s * factor for s in line["measurement"]["samples_s"]]
    return found


def made(lines, hosts, runs=10, expected=None):
    """A fleet file in memory: hosts with their factors."""
    header = {"schema": fleet.SCHEMA, "expected": expected or list(hosts)}
    results = [
        fleet.Result(name, run, "ok", None, with_times(lines, factor * (1 + run / 1000)))
        for run in range(1, runs + 1)
        for name, factor in hosts.items()
    ]
    return fleet.FleetFile(Path("made.jsonl"), header, results)


def test_a_slow_host_is_named_with_its_evidence(lines):
    from deepbench.report import fleet as report

    found = made(lines, {"a": 1.0, "b": 1.0, "c": 1.1, "d": 1.0})
    judged = fleet.judge(found)

    assert ["c"] == [v.host for v in judged.hosts if v.slower]
    (sentence,) = report.sentences(found, judged)
    assert sentence.startswith("c is slow: 1.10× the median of the others (p < 0.0001) over all kernels; 1.10×")
    assert ["fine", "fine", "slow", "fine"] == [row["verdict"] for row in report.by_host(found, judged).rows]


def test_a_host_that_computes_wrong_or_is_another_machine_is_told(lines):
    from deepbench.report import fleet as report

    found = made(lines, {"a": 1.0, "b": 1.0})
    spoiled = with_times(lines, 1.0, memory_bytes=1)
    for line in spoiled:
        if "case" in line:
            line["status"], line["reason"] = "wrong", "element 3 is 7"
    found.results.append(fleet.Result("b", 11, "ok", None, spoiled))
    judged = fleet.judge(found)

    assert [False, True] == [bool(v.bad) for v in judged.hosts]
    told = report.sentences(found, judged)
    assert "b fails where other hosts do not: gemm m=4" in told[0]
    assert any("hosts differ in memory bytes: " in sentence for sentence in told)


def test_who_was_expected_and_did_not_come_is_told_and_strangers_too(lines):
    from deepbench.report import fleet as report

    found = made(lines, {"a": 1.0, "stranger": 1.0}, expected=["a", "b"])
    told = report.sentences(found, fleet.judge(found))

    assert "b returned no result: it took part in no run" in told
    assert "unexpected hosts: stranger" in told


def test_a_slow_link_is_told_apart_from_a_host_with_slow_links(lines):
    from deepbench.report import fleet as report

    record = next(line for line in lines if "case" in line)
    hosts = "abcde"
    pairs = [(x, y) for x in hosts for y in hosts if x < y]

    def fleet_with(slow):
        found = made(lines, dict.fromkeys(hosts, 1.0))
        for run in range(1, 11):
            for pair in pairs:
                found.links.append((pair, with_times([lines[0], record], 1.5 if slow(pair) else 1.0 + run / 1e3)[1]))
        return report.sentences(found, fleet.judge(found))

    assert "the link between a and c is slow: 1.5" in fleet_with(lambda pair: pair == ("a", "c"))[0]
    (told,) = fleet_with(lambda pair: "d" in pair)
    assert "d is slow: 1.4" in told or "d is slow: 1.5" in told
    assert "in messages to and from it" in told


def test_a_file_is_read_back_as_it_was(lines, tmp_path):
    found = made(lines, {"a": 1.0, "b": 1.0}, runs=2)
    path = tmp_path / "fleet.jsonl"
    text = [json.dumps(found.header), *(json.dumps(r.as_line()) for r in found.results)]
    path.write_text("\n".join(text) + '\n{"host": "torn')
    again = fleet.read(path)

    assert found.results == again.results
    assert again.truncated
    assert [1, 2] == [r["round"] for r in fleet.of_host(again, "b").records]


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        '{"host": "a"}',
        '{"host": "a", "run": 1, "status": "fine", "reason": null, "lines": []}',
        '{"host": "a", "run": 1, "status": "ok", "reason": null, "lines": [{"case": 1}]}',
        '{"link": ["a"], "record": {}}',
        '{"link": ["a", "b"], "record": {"schema": "deepbench/1"}}',
    ],
)
def test_a_line_from_elsewhere_is_one_sentence(tmp_path, line):
    path = tmp_path / "fleet.jsonl"
    path.write_text(json.dumps({"schema": fleet.SCHEMA, "expected": ["a"]}) + "\n" + line + "\n")
    with pytest.raises(BadInput, match="line 2: no line of a fleet file"):
        fleet.read(path)
