"""What a fleet file shows: which hosts are slow, which cannot be told yet, and what sets them apart."""

import io
import random
import time

import pytest
from rich.console import Console

from deepbench.fleets import tables
from deepbench.fleets.file import HostRun
from deepbench.fleets.judge import judge
from deepbench.reporting.table import print_parts
from tests.fleets.made import CASE, SECOND, fleet, host_run, with_links
from tests.help import samples

EQUAL = {"n1": 1.0, "n2": 1.0, "n3": 1.0}
SLOW = {**EQUAL, "n3": 2.54}


def told(file):
    return tables.sentences(file, judge(file))


def verdicts(file):
    return {v.host: (v.is_slow, v.is_undecided) for v in judge(file).hosts}


def test_a_host_that_was_slower_in_3_of_3_runs_is_undecided_and_told_how_many_runs_decide():
    """An operator saw exit code 0, and `undecided: n3; measure more runs`."""
    file = fleet(SLOW, runs=3)

    assert 2 == judge(file).exit_code
    looks = (
        "n3 looks 2.54× slower than the median of the others, in 3 of 3 runs; at least 3 more runs decide (--runs 6)"
    )
    assert [f"undecided: {looks}", "what sets n3 apart: nothing that was recorded"] == told(file)
    assert 2 == judge(fleet(SLOW, runs=5)).exit_code
    assert "in 5 of 5 runs; at least 1 more run decides (--runs 6)" in told(fleet(SLOW, runs=5))[0]
    assert 1 == judge(fleet(SLOW, runs=6)).exit_code
    assert (
        "n3 is slow: 2.54× slower than the median of the others (p < 0.0001) over all kernels"
        in told(fleet(SLOW, runs=7))[0]
    )


def test_two_runs_can_detect_no_slow_host_and_say_so():
    """An operator read `none is slow (a slowdown below 6 % would not be detected)`."""
    file = fleet(EQUAL, runs=2)

    assert 2 == judge(file).exit_code
    assert judge(file).detectable is None
    assert [
        "undecided: all 3 hosts returned results, and none looks slow, but these runs can detect no slow host; it "
        "takes at least 6 (--runs 6)"
    ] == told(file)


def test_enough_runs_of_equal_hosts_are_fine_and_tell_what_they_would_have_found():
    file = fleet(EQUAL, runs=7)

    assert 0 == judge(file).exit_code
    assert 1.05 == judge(file).detectable
    assert [
        "all 3 hosts returned results, and none is slow (one that is less than 5.0 % slower might not be found)"
    ] == told(file)


def test_what_would_have_been_found_depends_on_the_noise_of_these_runs():
    rng = random.Random(3)
    runs = [host_run(host, run, {CASE: 1e-3 * (1 + rng.expovariate(5))}) for run in range(1, 8) for host in EQUAL]
    file = fleet(EQUAL, runs=0)
    file.runs.extend(runs)
    detectable = judge(file).detectable
    slowest = {host: 1.001 * detectable / judge(file).hosts[i].overall.ratio for i, host in enumerate(EQUAL)}

    assert detectable > 1.3
    for host, factor in slowest.items():
        slowed = [
            HostRun(r.host, r.run, "ok", None, [r.lines[0], scaled(r.lines[1], factor)]) if r.host == host else r
            for r in runs
        ]
        file.runs = slowed
        assert (True, False) == verdicts(file)[host]


def scaled(record, factor):
    measurement = record["measurement"]
    return {**record, "measurement": {**measurement, "samples_s": [factor * s for s in measurement["samples_s"]]}}


def test_a_host_that_is_slow_in_one_kernel_of_many_is_undecided_by_that_kernel():
    hosts = {**dict.fromkeys(("a", "b", "c", "d"), 1.0), "d": {SECOND: 1.08}}
    few, enough = (fleet(hosts, runs=n, cases=(CASE, SECOND)) for n in (4, 8))

    assert told(few)[0].startswith("undecided: d looks 8.0 % slower than the median of the others, in 4 of 4 runs in ")
    assert told(few)[0].endswith(f"{SECOND}; at least 2 more runs decide (--runs 6)")
    assert 2 == judge(few).exit_code
    assert "d is slow: " in told(enough)[0]
    assert "8.0 % slower than the median of the others" in told(enough)[0]
    assert SECOND in told(enough)[0]


def test_the_cause_of_a_slow_host_is_named_next_to_it():
    """The record of the operator's slow host had OPENBLAS_CORETYPE=Prescott, and the output did not say so."""
    libraries = {"openblas": {"library": {"name": "OpenBLAS", "version": "0.3.34", "path": None, "cpu_kernels": "Zen"}}}
    slow = {"openblas": {"library": {**libraries["openblas"]["library"], "cpu_kernels": "Prescott"}}}
    facts = {name: {"libraries": libraries} for name in ("n1", "n2")}
    facts["n3"] = {"environment": {"OPENBLAS_CORETYPE": "Prescott"}, "libraries": slow, "machine": {"kernel": "6.1"}}

    for runs in (3, 7):
        assert (
            "what sets n3 apart: openblas CPU kernels Prescott (elsewhere Zen); OPENBLAS_CORETYPE Prescott (elsewhere "
            "not set)"
        ) == told(fleet(SLOW, runs, facts=facts))[1]
    assert 2 == len(told(fleet(SLOW, 7, facts=facts)))  # the same is not told again as a difference between hosts
    (all_well, *others) = told(fleet(EQUAL, 7, facts=facts))
    assert "none is slow" in all_well
    assert [
        "hosts differ in openblas CPU kernels: Zen on n1 and n2; Prescott on n3",
        "hosts differ in OPENBLAS_CORETYPE: not set on n1 and n2; Prescott on n3",
    ] == others


def test_a_fact_with_a_value_for_every_host_is_told_in_one_short_line():
    facts = {f"n{i}": {"machine": {"memory_bytes": (i + 32) * 2**30}} for i in range(40)}
    (_, line) = told(fleet(dict.fromkeys(facts, 1.0), runs=5, facts=facts))

    assert line.startswith("hosts differ in memory: 32.0 GiB on n0; 33.0 GiB on n1; ")
    assert line.endswith("36.0 GiB on n4; 35 more values")


def test_a_host_with_other_cases_is_not_compared_and_the_rest_is():
    file = fleet({"a": 1.0, "b": 1.0, "c": 1.3}, runs=7)
    file.header["expected"].append("d")
    file.runs.extend(host_run("d", run, {CASE.replace("threads=1", "threads=2"): 1e-3}) for run in range(1, 8))

    assert ["c"] == [host for host, (is_slow, _) in verdicts(file).items() if is_slow]
    (line,) = [line for line in told(file) if "cannot be compared" in line]
    assert "undecided: d cannot be compared: no other host has a correct time of the same kernels" == line
    assert "not compared" == tables.by_host(file, judge(file)).rows[3]["verdict"]
    file.runs = [run for run in file.runs if run.host != "c"]
    file.header["expected"].remove("c")
    assert 2 == judge(file).exit_code


def test_hosts_without_correct_times_cannot_be_compared():
    file = fleet(EQUAL, runs=7)
    file.runs = [host_run(r.host, r.run, {CASE: 1e-3}, status="unchecked") for r in file.runs]

    assert 2 == judge(file).exit_code
    assert [
        "undecided: none of the 3 hosts can be compared: no other host has a correct time of the same kernels"
    ] == told(file)


@pytest.mark.parametrize(
    ("hosts", "runs", "needs"),
    [(EQUAL, 5, True), (EQUAL, 7, False), (SLOW, 7, False), ({**EQUAL, "n3": 1.06}, 5, True)],
)
def test_a_session_goes_on_until_a_slow_host_could_be_found(hosts, runs, needs):
    assert needs == judge(fleet(hosts, runs)).needs_runs


def test_a_host_that_fails_needs_no_more_runs():
    """It has been found already, and its few times must not keep the others measuring."""
    file = fleet({**EQUAL, "n4": 1.0}, runs=7)
    file.runs = [r if r.host != "n4" or r.run < 3 else HostRun("n4", r.run, "failed", "lost") for r in file.runs]

    assert not judge(file).needs_runs
    assert 1 == judge(file).exit_code


def test_a_link_that_looks_slow_is_undecided():
    hosts = dict.fromkeys("abcd", 1.0)
    few = with_links(fleet(hosts, runs=7), {("a", "c"): 2.0}, runs=3)
    enough = with_links(fleet(hosts, runs=7), {("a", "c"): 2.0}, runs=7)

    assert [2, 1] == [judge(file).exit_code for file in (few, enough)]
    assert judge(few).needs_runs
    assert (
        "undecided: the link between a and c looks 2.00× slower than the median of the others, in 3 of 3 runs; at "
        in (told(few)[0])
    )
    rows = {row["link"]: row["verdict"] for row in tables.by_link(judge(few)).rows}
    assert {"a – c": "undecided", **dict.fromkeys(rows.keys() - {"a – c"}, "fine")} == rows


def test_of_a_large_fleet_people_see_the_hosts_first_that_are_not_fine():
    file = fleet({**{f"n{i}": 1.0 for i in range(60)}, "z": 1.5}, runs=3)
    judged = judge(file)
    table = tables.parts(file, judged)[1]

    assert 61 == len(tables.by_host(file, judged).rows)
    assert ["z", "n0"] == [row["host"] for row in table.rows[:2]]
    assert tables.MOST_HOSTS == len(table.rows)
    assert "21 more hosts are not shown; `deepbench show FILE --csv` has all." in table.notes


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_and_their_headings_are_words(width):
    file = fleet({**dict.fromkeys("abcd", 1.0), "node-0123": 1.4}, runs=7, cases=(CASE, SECOND))
    with_links(file, {("a", "b"): 2.0}, runs=7)
    text = io.StringIO()
    print_parts(
        tables.parts(file, judge(file)), Console(file=text, width=width, force_terminal=True, color_system=None)
    )
    lines = text.getvalue().splitlines()

    assert all(len(line) <= width for line in lines)
    for strange in ("this host is", "there it is", "its ratio", "its links", "vs others"):
        assert strange not in text.getvalue()
    heads = [name for line in lines for name in line.split("  ")]
    for head in ("all kernels", "verdict", "slowest host", "vs median"):
        assert any(head.split()[0] in name for name in heads)


def big(hosts, rng):
    """A fleet of so many hosts, and 3 runs."""
    header = samples.header()
    record = samples.measured()
    runs = [
        HostRun(f"n{i}", run, "ok", None, [header, scaled(record, rng.uniform(1, 1.02) * (2 if i == 7 else 1))])
        for run in range(1, 4)
        for i in range(hosts)
    ]
    file = fleet({}, runs=0, expected=[f"n{i}" for i in range(hosts)])
    file.runs = runs
    return file


@pytest.mark.alone
@pytest.mark.costly
def test_the_verdict_takes_time_in_proportion_to_the_hosts():
    rng, took_s = random.Random(1), []
    for hosts in (500, 4000):
        file = big(hosts, rng)
        start = time.process_time()
        judged = judge(file)
        text = tables.sentences(file, judged)
        tables.to_json(file, judged)
        took_s.append(time.process_time() - start)
        assert text[0].startswith("n7 is slow: ")
    assert took_s[1] < 3 * 8 * took_s[0]  # eight times the hosts; their square is 64 times
