"""`deepbench fleet`: bad input, refused before any host is contacted, and result files. Real fleets: tests/hosts."""

import json
import re
from pathlib import Path

import pytest

from deepbench.core.errors import BadInput
from deepbench.fleets import file as fleet
from deepbench.fleets.judge import judge
from tests.conftest import lines_of, run_command
from tests.help import samples

pytestmark = pytest.mark.programs


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fleet"], "expected hosts, found none: name them (--hosts 'node[001-016]' or --hostfile FILE), start"),
        (["fleet", "--hostfile", "hosts"], "a fleet needs two or more hosts"),
        (["fleet", "--hostfile", "hosts", "--runs", "0"], "--runs must be from 1 to 1000"),
        (["fleet", "--hosts", "a,b", "--hostfile", "two"], "--hosts and --hostfile exclude each other"),
        (["fleet", "--hosts", "a,-x"], "'-x' is no name of a host"),
        (
            ["fleet", "--hosts", "a,b", "--through", "mytool"],
            "--through wants one of ssh, slurm, kubernetes, flux",
        ),
        (["fleet", "--hosts", "a,b", "--through", "/no/tool {host}"], "hosts are reached by /no/tool, which was not"),
        (["fleet", "--hosts", "a,b", "--python", "python3"], "must be a whole path such as /usr/bin/python3, found"),
        (["fleet", "--hosts", "a,b", "--fanout", "0"], "--fanout must be from 1 to 100000"),
        (["fleet", "--hostfile", "two", "--links", "nonsense"], "'nonsense' is not a direction"),
        (["fleet", "--scheduler", "tcp://127.0.0.1:1"], "No such option '--scheduler'"),
        (["show", "hosts", "--host", "a"], "hosts, line 1: not JSON"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(deepbench, tmp_path, words, expected):
    (tmp_path / "hosts").write_text("a\n")
    (tmp_path / "two").write_text("a\nb\n")
    done = deepbench(*words, DEEPBENCH_REMOTE_SHELL="/bin/false")

    assert 64 == done.returncode, done.stdout
    assert expected in done.stderr
    assert 1 == len(done.stderr.strip().splitlines()), done.stderr


@pytest.mark.parametrize(
    ("rank", "ranks", "advice"),
    [
        (
            "SLURM_PROCID",
            "SLURM_NTASKS",
            "slurm has started this command 16 times; start it once inside the",
        ),
        ("PMI_RANK", "PMI_SIZE", "hydra has started this command 16 times; start it once, and name the hosts"),
    ],
)
def test_a_launcher_must_not_start_it_many_times(deepbench, rank, ranks, advice):
    known = {"SLURM_STEP_ID": "0", ranks: "16"}
    first, other = (deepbench("fleet", **known, **{rank: number}) for number in ("0", "7"))

    assert (64, 64) == (first.returncode, other.returncode)
    assert advice in first.stderr
    assert "" == other.stderr


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The lines of a result file with one case."""
    folder = tmp_path_factory.mktemp("one")
    run_command(folder, "run", "gemm m=4 n=4 k=4 i8 null threads=1", "--quick", "-o", "out.jsonl")
    header, record = lines_of(folder / "out.jsonl")
    checks = {"before": samples.check(), "after": samples.check()}
    return [header, {**record, "status": "ok", "check": checks}]  # only its times matter; `null` computes nothing


def with_times(lines, factor, **facts):
    """The same lines from a machine with these facts that takes `factor` times as long."""
    header, record = json.loads(json.dumps(lines))
    header["machine"] |= facts
    samples_s = record["measurement"]["samples_s"]
    # Real ones differ in what other programs did to them.
    record["measurement"]["samples_s"] = [1e-3 * factor * (1 + 0.001 * (i % 3)) for i in range(len(samples_s))]
    return [header, record]


def fleet_of(lines, hosts, runs=10, expected=None):
    """A fleet file in memory. `hosts` maps each host to the factor of its times."""
    header = {"schema": fleet.SCHEMA, "expected": expected or list(hosts)}
    results = [
        fleet.HostRun(name, run, "ok", None, with_times(lines, factor * (1 + run / 1000)))
        for run in range(1, runs + 1)
        for name, factor in hosts.items()
    ]
    return fleet.FleetFile(Path("fleet.jsonl"), header, results)


def test_a_slow_host_is_named_with_the_evidence(lines):
    from deepbench.fleets import tables as report

    file = fleet_of(lines, {"a": 1.0, "b": 1.0, "c": 1.1, "d": 1.0})
    judged = judge(file)

    assert ["c"] == [v.host for v in judged.hosts if v.is_slow]
    sentence, apart = report.sentences(file, judged)
    assert "what sets c apart: nothing that was recorded" == apart
    assert re.match(r"c is slow: (9\.9|10\.[01]) % slower than the median of the others \(p < 0\.0001\)", sentence)
    assert ["fine", "fine", "slow", "fine"] == [row["verdict"] for row in report.by_host(file, judged).rows]


def test_a_host_with_wrong_results_or_other_hardware_is_reported(lines):
    from deepbench.fleets import tables as report

    file = fleet_of(lines, {"a": 1.0, "b": 1.0})
    header, record = with_times(lines, 1.0, memory_bytes=1)
    wrong = {**record, "status": "wrong", "reason": "element 3 is 7"}
    file.runs.append(fleet.HostRun("b", 11, "ok", None, [header, wrong]))
    judged = judge(file)

    assert [False, True] == [bool(v.failed_cases) for v in judged.hosts]
    sentences = report.sentences(file, judged)
    assert "b fails where other hosts do not: gemm m=4" in sentences[0]
    assert any("hosts differ in memory: " in sentence for sentence in sentences)


def test_missing_and_unexpected_hosts_are_reported(lines):
    from deepbench.fleets import tables as report

    file = fleet_of(lines, {"a": 1.0, "stranger": 1.0}, expected=["a", "b"])
    sentences = report.sentences(file, judge(file))

    assert "b returned no result: it took part in no run" in sentences
    assert "unexpected hosts: stranger" in sentences


def test_a_slow_link_differs_from_a_host_whose_links_are_all_slow(lines):
    from deepbench.fleets import tables as report

    header, record = lines
    hosts = "abcde"
    pairs = [(x, y) for x in hosts for y in hosts if x < y]

    def sentences_with(slow):
        file = fleet_of(lines, dict.fromkeys(hosts, 1.0))
        for run in range(1, 11):
            for pair in pairs:
                file.links.append((pair, with_times([header, record], 1.5 if slow(pair) else 1.0 + run / 1e3)[1]))
        return report.sentences(file, judge(file))

    assert "the link between a and c is slow: 1.5" in sentences_with(lambda pair: pair == ("a", "c"))[0]
    sentence, _ = sentences_with(lambda pair: "d" in pair)
    assert "d is slow: 1.4" in sentence or "d is slow: 1.5" in sentence
    assert "in messages to and from it" in sentence


def test_a_file_is_read_back_unchanged(lines, tmp_path):
    file = fleet_of(lines, {"a": 1.0, "b": 1.0}, runs=2)
    path = tmp_path / "fleet.jsonl"
    text = [json.dumps(file.header), *(json.dumps(vars(r)) for r in file.runs)]
    path.write_text("\n".join(text) + '\n{"host": "incomplete')
    again = fleet.read_fleet(path)

    assert file.runs == again.runs
    assert again.truncated
    assert [1, 2] == [r["round"] for r in again.results_of("b").records]


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
def test_a_line_that_is_no_fleet_result_is_refused_in_one_sentence(tmp_path, line):
    path = tmp_path / "fleet.jsonl"
    path.write_text(json.dumps({"schema": fleet.SCHEMA, "expected": ["a"]}) + "\n" + line + "\n")
    with pytest.raises(BadInput, match="line 2: not a line of a fleet file"):
        fleet.read_fleet(path)


@pytest.fixture
def slow_fleet(lines, tmp_path):
    """A fleet file whose host c is slow."""
    file = fleet_of(lines, {"a": 1.0, "b": 1.0, "c": 1.2})
    file.header["through"] = "slurm"
    text = [json.dumps(file.header), *(json.dumps(vars(r)) for r in file.runs)]
    (tmp_path / "fleet.jsonl").write_text("".join(f"{line}\n" for line in text))


def test_lines_that_drain_and_the_file_for_prometheus_come_from_a_fleet_file(deepbench, tmp_path, slow_fleet):
    done = deepbench("fleet", "fleet.jsonl", "--prometheus", "deepbench.prom", "--drain")

    assert 1 == done.returncode, done.stderr
    reason = r"'reason=deepbench: gemm 1\.[12]. x the median, p < 0\.001'"
    assert re.search(f"^scontrol update nodename=c state=drain {reason}$", done.stdout, re.MULTILINE), done.stdout
    assert 'deepbench_fleet_slow{host="c"} 1' in (tmp_path / "deepbench.prom").read_text()
    assert "kubectl taint nodes c " in deepbench("fleet", "fleet.jsonl", "--drain=kubernetes").stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fleet.jsonl", "--drain", "pbs"], "--drain has lines for slurm and kubernetes, found 'pbs'; choose one"),
        (["fleet.jsonl", "--prometheus", "fleet.jsonl"], "--prometheus wants a name that ends in .prom"),
        (["fleet.jsonl", "--prometheus", "none/x.prom"], "cannot write none/x.prom: No such file or directory"),
    ],
)
def test_a_wrong_way_to_hand_over_is_refused_in_one_sentence(deepbench, slow_fleet, words, expected):
    done = deepbench("fleet", *words)

    assert 64 == done.returncode, done.stdout
    assert expected in done.stderr
    assert 1 == len(done.stderr.strip().splitlines()), done.stderr
