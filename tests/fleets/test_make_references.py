"""From a fleet file to references: only healthy hosts count, and each type of machine has a file of its own."""

import copy
import random
from pathlib import Path

import pytest

from deepbench.core.errors import BadInput
from deepbench.fleets.file import SCHEMA, FleetFile, HostRun
from deepbench.fleets.make_references import file_name, references_of, sentences, write_references
from deepbench.fleets.reference import read_reference
from tests.help import samples
from tests.help.references import ONE, TWO, reference

MACHINE = {"host": "here", "cpu": "A CPU", "cores_allowed": 2, "cpu_quota": None, "memory_bytes": 2**34}
LIBRARIES = {"mkl": {"library": {"name": "MKL", "version": "1.0", "path": None}}}


def lines(number, factor=1.0, texts=(ONE, TWO), library=LIBRARIES, mode="default", make=samples.measured, **facts):
    """What a host returns: its header, and a record of each case."""
    header = samples.header(texts)
    header["machine"] = {**MACHINE, **facts}
    header["libraries"] = copy.deepcopy(library)
    header["plan"]["mode"] = mode
    return [header, *(make(text=text, seconds=1e-3 * factor) for text in texts)]


def fleet_of(*hosts, runs=8):
    """A fleet file; of each host a name, a factor of its times, and facts of its lines."""
    rng, found = random.Random(1), []
    for number in range(1, runs + 1):
        for name, factor, facts in hosts:
            found.append(HostRun(name, number, "ok", None, lines(number, factor * rng.gauss(1, 0.005), **facts)))
    return FleetFile(Path("fleet.jsonl"), {"schema": SCHEMA, "expected": [name for name, *_ in hosts]}, found)


def equal(count, **facts):
    return [(f"{facts.get('cpu', 'host')}{i}", 1.0, facts) for i in range(count)]


def test_a_fleet_of_equal_hosts_makes_one_reference():
    (made,) = references_of(fleet_of(*equal(4))).references

    assert 4 == made.hosts
    assert [ONE, TWO] == [k.case.text for k in made.kernels]
    assert [8] * 4 == [len(runs) for runs in made.kernels[0].times_s]
    assert {"mkl": "MKL 1.0"} == made.libraries
    assert 0.5 == made.kernels[0].duration_s
    assert all(0.97e-3 < t < 1.03e-3 for runs in made.kernels[1].times_s for t in runs)


def test_hosts_that_are_slow_wrong_failed_or_missing_do_not_count():
    file = fleet_of(*equal(8), ("slow", 1.5, {}), ("wrong", 1.0, {}), ("failing", 1.0, {}))
    for run in file.runs:
        if run.host == "wrong":
            run.lines[1] = {**run.lines[1], "status": "wrong", "reason": "element 1 is 7"}
    file.runs.append(HostRun("failing", 9, "failed", "killed"))
    file.runs.append(HostRun("absent", 1, "missing", "no answer"))
    (made,) = references_of(file).references

    assert 8 == made.hosts
    assert max(t for runs in made.kernels[0].times_s for t in runs) < 1.1e-3


def test_each_type_is_judged_by_itself_and_has_a_reference():
    file = fleet_of(*equal(4), *((name, 2.0, facts) for name, _, facts in equal(4, cpu="Slower")))
    made = references_of(file).references

    assert {"A CPU": 4, "Slower": 4} == {r.machine.cpu: r.hosts for r in made}
    assert 2 == len({file_name(r) for r in made})


def test_memories_of_nearly_the_same_size_are_one_type():
    hosts = [(f"h{i}", 1.0, {"memory_bytes": 2**34 - i * 2**20}) for i in range(5)]
    (made,) = references_of(fleet_of(*hosts)).references

    assert (5, 2**34 - 2 * 2**20) == (made.hosts, made.machine.memory_bytes)


@pytest.mark.parametrize(
    "facts",
    [
        {"library": {"mkl": {"library": {"name": "MKL", "version": "2.0", "path": None}}}},
        {"mode": "quick"},
        {"cores_allowed": 1},
        {"memory_bytes": 2**33},
    ],
)
def test_hosts_that_measured_differently_are_not_mixed(facts):
    made = references_of(fleet_of(*equal(3), *((f"other{i}", 1.0, facts) for i in range(3)))).references

    assert [3, 3] == [r.hosts for r in made]


def test_disturbed_runs_do_not_count_and_too_few_hosts_make_no_reference():
    file = fleet_of(*equal(3))
    for run in file.runs:
        if run.host == "host0" and run.run > 1:
            run.lines[1:] = lines(run.run, make=samples.disturbed)[1:]
    made = references_of(file)

    assert [] == made.references
    assert "needs 3 healthy hosts with 2 undisturbed runs of each kernel, found 2 of 3" in made.left_out[0]
    assert "found 2 healthy of 2 hosts" in references_of(fleet_of(*equal(2))).left_out[0]


def test_kernels_that_do_not_fit_into_a_check_are_left_out():
    texts = [f"gemm m={m} n=2 k=2 a_t=0 b_t=0 forward f32 mkl threads=1" for m in range(1, 41)]
    made = references_of(fleet_of(*equal(3, texts=texts), runs=2))
    (found,) = made.references

    assert texts[: len(found.kernels)] == [k.case.text for k in found.kernels]
    assert 20 <= len(found.kernels) < 40
    assert 1 == found.rounds_in(54)
    assert f"{40 - len(found.kernels)} kernels that do not fit into the time of a check" in made.left_out[0]


def test_facts_that_may_explain_a_difference_are_kept():
    file = fleet_of(*equal(3, governor="performance", cpu_ids={"microcode": "0x2", "model": "1"}))
    (made,) = references_of(file).references

    assert ["0x2"] == made.facts["microcode"]
    assert ["performance"] == made.facts["governor"]
    assert "host" not in made.facts


def test_references_are_written_and_read(tmp_path):
    written, left_out = write_references(fleet_of(*equal(4)), tmp_path / "new" / "folder")
    (path,) = (tmp_path / "new" / "folder").iterdir()

    assert [] == left_out
    assert path == written[0].path
    assert "a-cpu-2-cores-16gib.json" == path.name
    assert read_reference(path).kernels == written[0].kernels
    (sentence,) = sentences(written, left_out)
    assert f"{path}: 2 kernels of 4 healthy hosts; finds a host that is slower by " in sentence
    write_references(fleet_of(*equal(5)), tmp_path / "new" / "folder")
    assert 5 == read_reference(path).hosts


def test_names_of_files_have_only_plain_characters():
    made = reference()
    machine = type(made.machine)("../../etc \x1b Intel(R) Xeon® ", 2, None, 2**34, (("cublas", "NVIDIA H100"),))

    name = file_name(type(made)(machine, {}, {}, "quick", made.kernels))
    assert "etc-intel-r-xeon-2-cores-16gib-nvidia-h100-quick.json" == name
    assert "etc-intel-r-xeon-2-cores-16gib-nvidia-h100-quick-2.json" == file_name(
        type(made)(machine, {}, {}, "quick", made.kernels), [name]
    )


def test_a_fleet_without_any_reference_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"fleet.jsonl makes no reference: A CPU with 2 cores: a reference needs 3"):
        write_references(fleet_of(*equal(2)), tmp_path)
    with pytest.raises(BadInput, match="it has no host with results"):
        write_references(FleetFile(Path("fleet.jsonl"), {"schema": SCHEMA, "expected": ["a"]}), tmp_path)


def test_strange_headers_make_no_type():
    for facts in ({"cpu": 7}, {"cores_allowed": "2"}, {"memory_bytes": None}, {"mode": "rigorous"}):
        assert [] == references_of(fleet_of(*equal(3, **facts))).references
