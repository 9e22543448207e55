"""Groups of cases that moved together: found where no single case is decided, and rarely where nothing changed."""

import random
from pathlib import Path

import pytest

from deepbench.core import stats
from deepbench.judge import together
from deepbench.judge.compare import ComparedCase, Comparison, compare_files
from deepbench.judge.reasons import Reasons
from deepbench.results.file import ResultFile
from deepbench.results.summary import summarize
from tests.help import samples

KINDS = [(op, precision) for op in ("gemm", "sparse_gemm") for precision in ("f32", "bf16", "f16")]


def of_kind(op, precision):
    """The summary of a case of such a group."""
    (summary,) = summarize([{**samples.measured(), "op": op, "precision": precision}])
    return summary


SUMMARIES = {kind: of_kind(*kind) for kind in KINDS}


def simulated(rng, changed=1.0, cases=6, processes=3, noise=0.03, session=0.0, known=0.0):
    """Six groups of cases; times of the first group change by a factor. Other programs slow every fourth process."""
    drift = [rng.gauss(0, session) for _ in "ab"]

    def times(side, factor):
        interference = (rng.expovariate(10) if rng.random() < 0.25 else 0.0 for _ in range(processes))
        return [factor * 2.718 ** (drift[side] + rng.gauss(0, noise) + slow) for slow in interference]

    compared = []
    for kind, summary in SUMMARIES.items():
        factor = changed if kind == KINDS[0] else 1.0
        for number in range(cases):
            difference = stats.faster_half_difference(times(0, 1.0), times(1, factor), known)
            case = ComparedCase(f"{kind} {number}", summary, summary, difference, False, None, 0.02, known)
            compared.append(case)
    return Comparison(compared, Reasons([], {}, {}), [], between_sessions=known)


@pytest.mark.parametrize(("processes", "session"), [(2, 0.03), (3, 0.0), (5, 0.0), (5, 0.03)])
def test_equal_code_rarely_moves_together(processes, session):
    """Of comparisons with six groups each, fewer than one in twenty reports any group."""
    rng = random.Random(f"{processes} {session}")
    found = [simulated(rng, processes=processes, session=session, known=session) for _ in range(150)]

    assert sum(bool(together.moved_together(c)) for c in found) < 0.05 * len(found)


def test_changes_at_the_margin_rarely_move_together():
    rng = random.Random(2)
    found = [simulated(rng, changed=1.02, noise=0.01) for _ in range(150)]

    assert sum(bool(together.moved_together(c)) for c in found) < 0.05 * len(found)


def test_drift_between_sessions_that_is_not_known_would_look_like_a_change():
    """The spread between sessions is what keeps drift apart from a change, however many cases there are."""
    rng = random.Random(3)
    unaware = [simulated(rng, cases=20, session=0.05) for _ in range(20)]

    assert sum(bool(together.moved_together(c)) for c in unaware) > 10


def test_a_shift_that_decides_no_case_is_found_in_its_group():
    rng = random.Random(4)
    found = [together.moved_together(simulated(rng, changed=1.2, cases=16)) for _ in range(20)]
    first = [groups[0] for groups in found if groups]

    assert len(first) >= 18
    assert {("gemm", "forward", "f32", "MKL", "slower", 0)} == {
        (g.op, g.direction, g.precision, g.library, g.verdict, g.decided) for g in first
    }
    assert sum(low < 1.2 < high for low, high in (g.interval for g in first)) >= 0.85 * len(first)


def file_of(factors, version="1"):
    """A file of one product per factor, with five steady processes each."""
    records = []
    for m, factor in enumerate(factors, 2):
        text = f"gemm m={m} n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=1"
        for number, noise in enumerate((1.0, 1.03, 0.97, 1.015, 0.985), 1):
            records.append(samples.measured(seconds=1e-3 * factor * noise, round_number=number, text=text))
    return ResultFile(Path(f"{version}.jsonl"), samples.header([r["case"] for r in records]), records)


@pytest.mark.parametrize(
    ("factors", "moved"),
    [
        ([1.036] * 8, True),  # each of them is too close to the margin to be decided
        ([1.036] * 2, False),  # fewer than three
        ([1.5, 1.0, 1.0, 1.0], False),  # one case is slower, and not the group
        ([1.3] * 3, False),  # each is decided: no news
    ],
)
def test_a_group_needs_several_cases_that_agree(factors, moved):
    comparison = compare_files(file_of([1.0] * len(factors)), file_of(factors, "2"))

    assert moved == bool(together.moved_together(comparison))


def test_times_that_other_programs_may_explain_belong_to_no_group():
    sides = file_of([1.0] * 8), file_of([1.036] * 8, "2")
    for file, cpus in zip(sides, (0.0, 1.0), strict=True):
        for record in file.records:
            record["measurement"]["other_cpus"] = cpus

    assert [] == together.moved_together(compare_files(*sides))
