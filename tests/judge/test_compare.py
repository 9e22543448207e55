"""Comparing two files: verdicts, intervals, what differs, what is left out."""

import random
from pathlib import Path

import pytest

from deepbench.core import stats, units
from deepbench.judge import compare, gate
from deepbench.reporting import compare as report
from deepbench.results.file import ResultFile, read_results
from tests.help import samples


def with_load(times, cpus):
    """A file of one case, measured while other programs used `cpus` CPUs."""
    records = [samples.measured(seconds=s, round_number=i) for i, s in enumerate(times, 1)]
    for r in records:
        r["measurement"]["other_cpus"] = cpus
    return ResultFile(Path("mine.jsonl"), samples.header([records[0]["case"]]), records)


LOADED = [1.0, 1.01, 0.99, 1.005, 0.995, 1.002]


@pytest.mark.parametrize(
    ("ratio", "before", "after", "verdict", "judged"),
    [
        (2.0, 0.0, 0.0, "slower", gate.REGRESSION),
        (2.0, 0.0, 1.0, "cannot tell", gate.CANNOT_TELL),  # the load during the second side explains it
        (2.0, 1.0, 0.0, "slower", gate.REGRESSION),  # slower despite less load
        (0.5, 1.0, 0.0, "cannot tell", gate.CANNOT_TELL),  # the load may have slowed the first side
        (0.5, 0.0, 1.0, "faster", gate.PASSED),
    ],
)
def test_load_from_other_programs_excuses_only_what_it_explains(ratio, before, after, verdict, judged):
    comparison = compare.compare_files(with_load(LOADED, before), with_load([t * ratio for t in LOADED], after))

    assert verdict == comparison.cases[0].verdict
    assert judged == gate.judge(comparison).verdict


def file_of(tmp_path, name, times, interleaved=None, **machine):
    """A result file with one case per list of times, one round per time."""
    header = samples.header()
    header["machine"] |= machine
    texts = [f"gemm m={i + 2} n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=2" for i in range(len(times))]
    header["plan"]["cases"] = [{"case": t, "sources": []} for t in texts]
    if interleaved:
        header["plan"]["interleaved"] = {
            "run": interleaved[0],
            "side": interleaved[1],
            "choices": {},
            "environment": {},
        }
    records = [
        samples.measured(seconds=s, round_number=i, text=text)
        for text, values in zip(texts, times, strict=True)
        for i, s in enumerate(values, 1)
    ]
    return read_results(samples.write(tmp_path / name, records, header))


FAST = [1.00, 1.01, 0.99, 1.005, 0.995]


def slower(times, by):
    return [t * by for t in times]


@pytest.mark.parametrize(("by", "verdict"), [(1.0, "same"), (1.1, "slower"), (0.9, "faster"), (1.015, "cannot tell")])
def test_the_verdict_follows_from_the_ratio(tmp_path, by, verdict):
    comparison = compare.compare_files(file_of(tmp_path, "a", [FAST]), file_of(tmp_path, "b", [slower(FAST, by)]))

    (case,) = comparison.cases
    assert verdict == case.verdict, case
    assert by == pytest.approx(case.ratio)
    low, high = case.interval
    assert low < by < high
    assert (case.more_rounds is None) == (verdict != "cannot tell")
    assert (case.advice is None) == (verdict != "cannot tell")


def lasting(file, seconds):
    """The same file; each process took so long."""
    for r in file.records:
        r["process"]["duration_s"] = seconds
    return file


def test_undecided_cases_say_how_many_minutes_would_decide(tmp_path):
    sides = [lasting(file_of(tmp_path, n, [slower(FAST, by)]), 20.0) for n, by in (("a", 1.0), ("b", 1.015))]
    comparison = compare.compare_files(*sides)
    (case,) = comparison.cases

    assert compare.ROUNDS == case.advice
    assert case.more_rounds + 5 == case.rounds_to_decide
    assert case.rounds_to_decide * 2 * (20 + compare.START_S) == pytest.approx(case.seconds_to_decide)
    (row,) = report.cases(comparison).rows
    assert f"{units.minutes(case.seconds_to_decide)}, {case.rounds_to_decide} rounds" == row["to decide"]
    assert any("min" in line and line.startswith("to decide: ") for line in report.sentences(comparison))


@pytest.mark.parametrize(
    ("spread", "by", "duration"),
    [(0.3, 1.0, 20.0), (0.01, 1.0197, 20.0), (0.005, 1.015, 3000.0)],  # noisy; at the margin; slow
)
@pytest.mark.parametrize("in_turn", [True, False])
def test_beyond_an_hour_another_way_of_measuring_is_advised(tmp_path, spread, by, duration, in_turn):
    rng = random.Random(5)
    times = [[rng.lognormvariate(0, spread) for _ in range(6)] for _ in "ab"]
    run = [("run", side) if in_turn else None for side in "ab"]
    sides = [
        lasting(file_of(tmp_path, name, [slower(values, factor)], interleaved), duration)
        for name, values, factor, interleaved in zip("ab", times, (1.0, by), run, strict=True)
    ]
    comparison = compare.compare_files(*sides)
    (case,) = comparison.cases

    assert "cannot tell" == case.verdict
    assert (compare.QUIET_MACHINE if in_turn else compare.IN_TURN) == case.advice
    text = "\n".join(report.sentences(comparison))
    assert ("idle" in text or "pin=cores" in text) if in_turn else "run --against" in text
    assert "1000" not in str(report.cases(comparison)) + text
    outcome = gate.judge(comparison, max(0.0, case.ratio - 1) + 1e-4)
    assert ("idle machine" if in_turn else "run --against") in outcome.cases[0].reason


def test_the_gate_says_how_many_minutes_would_decide(tmp_path):
    sides = [lasting(file_of(tmp_path, n, [slower(FAST, by)]), 20.0) for n, by in (("a", 1.0), ("b", 1.015))]

    (case,) = gate.judge(compare.compare_files(*sides), 0.016).cases

    assert gate.CANNOT_TELL == case.verdict
    assert "min" in case.reason
    assert "--rounds" in case.reason


def test_equal_code_is_almost_never_called_different(tmp_path):
    """200 cases whose processes differ by 5 %: one in twenty calls may be wrong, and all of them here are."""
    rng = random.Random(3)
    sides = [[[rng.lognormvariate(0, 0.05) for _ in range(5)] for _ in range(200)] for _ in "ab"]
    comparison = compare.compare_files(*(file_of(tmp_path, n, side) for n, side in zip("ab", sides, strict=True)))

    assert len(comparison.of("slower") + comparison.of("faster")) <= 2
    _, (low, high) = compare.mean_ratio(comparison.cases)
    assert low < 1 < high
    assert high - low < 0.03
    (overall, *_) = comparison.means()
    assert (200, None, None) == (overall.count, overall.ratio, overall.interval)
    assert overall.undecided > 190


def test_with_one_process_per_side_the_significance_is_unknown(tmp_path):
    comparison = compare.compare_files(file_of(tmp_path, "a", [[1.0]]), file_of(tmp_path, "b", [[2.0]]))

    (case,) = comparison.cases
    assert ("cannot tell", None, 2.0) == (case.verdict, case.interval, case.ratio)
    assert {None} == {mean.ratio for mean in comparison.means()}


def test_sides_of_one_run_are_compared_round_by_round(tmp_path):
    """A machine that doubles its times from round to round hides 5 % from two files, not from pairs."""
    drift = [1.0, 2.0, 1.5, 3.0, 1.2]
    wobble = [1.000, 1.002, 0.999, 1.001, 0.998]
    times = [d * 1.05 * w for d, w in zip(drift, wobble, strict=True)]
    a = file_of(tmp_path, "a", [drift], ("run1", "a"))
    b = file_of(tmp_path, "b", [times], ("run1", "b"))
    other = file_of(tmp_path, "c", [times], ("run2", "b"))

    assert compare.compare_files(a, b).interleaved
    assert "slower" == compare.compare_files(a, b).cases[0].verdict
    assert not compare.compare_files(a, other).interleaved
    assert "cannot tell" == compare.compare_files(a, other).cases[0].verdict


def test_differences_between_sessions_widen_intervals(tmp_path):
    files = file_of(tmp_path, "a", [FAST, FAST]), file_of(tmp_path, "b", [slower(FAST, 1.05)] * 2)
    narrow, wide = compare.compare_files(*files), compare.compare_files(*files, between_sessions=0.05)

    assert ["slower"] * 2 == [c.verdict for c in narrow.cases]
    assert ["cannot tell"] * 2 == [c.verdict for c in wide.cases]
    intervals = [compare.mean_ratio(f.cases, f.between_sessions)[1] for f in (narrow, wide)]
    widths = [high - low for low, high in intervals]
    assert widths[1] > 10 * widths[0]  # it does not average out over cases


def test_differences_are_reported_and_missing_cases_are_left_out(tmp_path):
    a = file_of(tmp_path, "a", [FAST, FAST, FAST], cpu="One CPU")
    b = file_of(tmp_path, "b", [FAST, FAST], cpu="Another CPU")
    for r in b.records:
        if r["problem"]["m"] == 3:
            r["status"], r["reason"] = "wrong", "element 0"
    comparison = compare.compare_files(a, b)

    assert "CPU: One CPU → Another CPU" in comparison.differences
    assert 1 == len(comparison.cases)
    assert any("not in b" in text for text in comparison.left_out)
    assert [text for text in comparison.broken.values() if "wrong, element 0" in text]


def test_unchecked_results_are_left_out_unless_asked_for(tmp_path):
    files = file_of(tmp_path, "a", [FAST]), file_of(tmp_path, "b", [FAST])
    for f in files:
        for r in f.records:
            r["status"] = "unchecked"

    assert [] == compare.compare_files(*files).cases
    assert 1 == compare.compare_files(*files).unmeasured
    assert 1 == len(compare.compare_files(*files, unchecked=True).cases)


def test_slow_processes_do_not_hide_a_difference():
    """Two of five processes of each side met something that took half as long again."""
    a, b = [1.0, 1.5, 1.01, 1.6, 0.99], [1.6, 1.06, 1.07, 1.05, 1.7]
    difference = stats.faster_half_difference(a, b)

    assert "slower" == compare.verdict_of(difference, difference.p, 0.02)
    assert 0.058 == pytest.approx(difference.mean, abs=0.002)


def test_more_processes_do_not_make_a_side_faster():
    rng = random.Random(5)
    means = []
    for _ in range(2000):
        a, b = ([rng.lognormvariate(0, 0.1) for _ in range(n)] for n in (3, 12))
        means.append(stats.faster_half_difference(a, b).mean)

    assert 0.0 == pytest.approx(sum(means) / len(means), abs=0.006)


@pytest.mark.parametrize("n", [3, 5, 8, 20, 40])
def test_of_equal_normal_sides_one_in_twenty_looks_different(n):
    """Beyond the table, too."""
    rng = random.Random(n)
    chances = [
        stats.faster_half_difference(*([rng.lognormvariate(0, 0.05) for _ in range(n)] for _ in "ab")).p
        for _ in range(3000)
    ]

    assert 0.05 == pytest.approx(sum(p < 0.05 for p in chances) / len(chances), abs=0.015)


@pytest.mark.parametrize(
    ("t", "freedom", "p"), [(0.0, 3, 1.0), (1.0, 1, 0.5), (2.0, 2, 0.18350342), (2.5, 3.7, 0.0717), (12.706, 1, 0.05)]
)
def test_student_t_agrees_with_tables(t, freedom, p):
    assert p == pytest.approx(stats.t_p_value(t, freedom), rel=2e-3)
    if 0 < p < 1:
        assert t == pytest.approx(stats.t_critical(freedom, 1 - p), rel=2e-3)


def test_holm_corrects_the_smallest_most():
    assert {"a": pytest.approx(0.03), "b": pytest.approx(0.04), "c": 0.5} == stats.holm(
        {"a": 0.01, "b": 0.02, "c": 0.5}
    )


def test_the_benjamini_hochberg_correction():
    given = {"a": 0.01, "b": 0.02, "c": 0.5, "d": 0.03}

    assert {"a": 0.04, "b": 0.04, "d": 0.04, "c": 0.5} == {
        n: pytest.approx(p) for n, p in stats.benjamini_hochberg(given).items()
    }


class TestGate:
    """Three answers and their exit codes."""

    def outcome(self, tmp_path, sides, **more):
        from deepbench.judge import gate

        comparison = compare.compare_files(file_of(tmp_path, "a", sides[0]), file_of(tmp_path, "b", sides[1]))
        return gate.judge(comparison, **more)

    def test_no_regression(self, tmp_path):
        outcome = self.outcome(tmp_path, ([FAST], [slower(FAST, 1.01)]))
        assert ("passed", 0) == (outcome.verdict, outcome.exit_code)

    def test_regression(self, tmp_path):
        outcome = self.outcome(tmp_path, ([FAST, FAST], [FAST, slower(FAST, 1.2)]))
        assert ("regression", 1) == (outcome.verdict, outcome.exit_code)
        assert ["gemm m=3 n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=2"] == [j.case for j in outcome.of("regression")]

    def test_cannot_tell(self, tmp_path):
        loud = [1.0, 1.5, 0.8, 1.3, 0.9]
        outcome = self.outcome(tmp_path, ([loud], [slower(loud, 1.05)]))
        assert ("cannot tell", 2) == (outcome.verdict, outcome.exit_code)

    def test_the_p_values_of_a_run_that_could_stop_early_are_corrected(self, tmp_path):
        from deepbench.judge import gate

        sides = [FAST], [[1.13, 1.02, 1.08, 1.06, 1.10]]
        files = [file_of(tmp_path, n, s, ("run", n)) for n, s in zip("ab", sides, strict=True)]
        once = gate.judge(compare.compare_files(*files), 0.01)
        files[0].header["plan"]["rounds"] = {**files[0].header["plan"]["rounds"], "most": 15}
        looked = gate.judge(compare.compare_files(*files), 0.01)

        assert ("regression", "cannot tell") == (once.verdict, looked.verdict)

    def test_a_case_that_fails_now_is_a_regression(self, tmp_path):
        from deepbench.judge import gate

        a, b = file_of(tmp_path, "a", [FAST, FAST]), file_of(tmp_path, "b", [FAST, FAST])
        for r in b.records[:5]:
            r["status"], r["reason"], r["measurement"] = "crashed", "killed by SIGSEGV", None
        outcome = gate.judge(compare.compare_files(a, b))
        assert 1 == outcome.exit_code
        assert ["crashed, killed by SIGSEGV"] == [j.reason for j in outcome.of("regression")]

    def test_cases_that_were_measured_again_are_judged_by_the_new_times_alone(self, tmp_path):
        from deepbench.judge import gate

        flagged = self.outcome(tmp_path, ([FAST, FAST], [FAST, slower(FAST, 1.2)]))
        again = gate.GateVerdict([gate.CaseOutcome(j.case, "passed", "fresh", None) for j in flagged.of("regression")])
        assert 0 == gate.after_rerun(flagged, again).exit_code

    def test_junit_has_a_failure_and_escapes_what_files_say(self, tmp_path):
        import xml.etree.ElementTree as xml

        from deepbench.judge import gate

        outcome = gate.GateVerdict(
            [
                gate.CaseOutcome('gemm <x> & "y"', "regression", "<slow>", None),
                gate.CaseOutcome("b", "cannot tell", "?", None),
                gate.CaseOutcome("c", "passed", "fine", None),
            ]
        )
        suite = xml.fromstring(gate.junit(outcome))
        assert {"tests": "3", "failures": "1", "skipped": "1"}.items() <= suite.attrib.items()
        assert 'gemm <x> & "y"' == suite[0].attrib["name"]
        assert "<slow>" == suite[0].find("failure").attrib["message"]
