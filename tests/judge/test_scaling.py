"""Models of all-reduce: fits recover the constants, a change of protocol is detected, predictions are marked."""

import pytest

from deepbench.core.case import parse_case
from deepbench.judge import groups as judge_groups
from deepbench.judge import scaling
from deepbench.judge.scaling import Point
from deepbench.reporting import groups
from deepbench.results.schema import schema_error
from deepbench.results.summary import summarize
from tests.help import samples

SIZES = [2**k for k in range(10, 27, 2)]


def points(model, constants, ranks=(2, 4, 8), sizes=SIZES):
    terms = scaling.MODELS[model]
    return [Point(r, s, sum(c * t(r, s) for c, t in zip(constants, terms, strict=True))) for r in ranks for s in sizes]


@pytest.mark.parametrize("model", ["ring", "rabenseifner", "recursive_doubling", "tree"])
def test_the_fit_recovers_the_model_and_its_constants(model):
    fit = scaling.fit(points(model, (5e-6, 2e-11)), list(scaling.MODELS)[:4])

    assert model == fit.model
    assert (5e-6, 2e-11) == pytest.approx(fit.constants)
    assert fit.error < 1e-9
    assert 5e10 == pytest.approx(fit.bytes_per_s)
    (far,) = points(model, (5e-6, 2e-11), (1024,), (2**20,))
    assert far.time_s == pytest.approx(fit.time_s(1024, 2**20))


def test_a_change_of_protocol_is_detected():
    small = points("ring", (1e-6, 1e-9), sizes=SIZES[:4])
    large = points("ring", (50e-6, 2e-11), sizes=SIZES[4:])
    bound, fits = scaling.fit_by_size(small + large)

    assert SIZES[4] == bound
    assert [1e-6, 50e-6] == pytest.approx([fit.constants[0] for fit in fits])
    assert small[0].time_s == pytest.approx(scaling.predicted_s(bound, fits, small[0].ranks, small[0].bytes))


def test_a_single_good_fit_is_not_split():
    bound, fits = scaling.fit_by_size(points("tree", (5e-6, 2e-11)))

    assert (None, 1) == (bound, len(fits))


def test_no_constant_is_negative_and_too_few_points_give_no_model():
    falling = [Point(2, 2**10, 1e-3), Point(4, 2**10, 9e-4), Point(2, 2**20, 5e-4), Point(4, 2**20, 4e-4)]
    fit = scaling.fit(falling)

    assert fit is None or min(fit.constants) >= 0
    assert scaling.fit(falling[:2]) is None
    assert (None, []) == scaling.fit_by_size([])


def test_the_published_rows_are_all_there():
    known = judge_groups.published_times()

    assert 203 == sum(map(len, known.values()))
    assert {2, 4, 8, 16, 32} == {ranks for times in known.values() for _, ranks in times}
    assert 9e-5 == pytest.approx(known[groups.CPU_MACHINE][100000, 2])


def test_the_error_on_published_tables_is_reported():
    """Figures of this text are computed, so a change of the models that makes them worse is seen."""
    text = groups.check_on_published()
    numbers = [int(w) for w in text.replace("−", "-").split() if w.lstrip("-").isdigit()]

    assert "fitted to 2 to 8 ranks" in text
    assert max(n for n in numbers if n not in (2, 8, 16, 32)) <= 35


def summaries(ranks=(2, 4), library="mpich"):
    records = []
    for point in points("ring", (5e-6, 2e-10), ranks, [400_000, 4_000_000, 40_000_000, 258_000_000]):
        c = parse_case(f"all_reduce n={point.bytes // 4} ranks={point.ranks} forward f32 {library} threads=1")
        record = samples.measured(text=c.text, seconds=point.time_s)
        group = {"launcher": "hydra", "hosts": {"h": point.ranks}, "oversubscribed": False, "deterministic": "yes"}
        notes = {"bus_factor": 2 * (point.ranks - 1) / point.ranks, "original_bytes": point.ranks * point.bytes}
        records.append({**record, "group": group, "notes": notes})
        assert schema_error(records[-1]) is None
    return summarize(records)


def test_predictions_are_marked_as_such():
    view = groups.scaled(summaries(), (64, 1024))

    (row,) = [r for r in view.rows if r["bytes"] == 258_000_000]
    (wanted,) = points("ring", (5e-6, 2e-10), (64,), [258_000_000])
    assert wanted.time_s == pytest.approx(row["64 ranks"], rel=1e-3)
    assert row["1024 keep"] < row["64 keep"] <= 1
    text = " ".join(view.notes)
    assert "predictions of a model, not measurements" in text
    assert "Uncertain: 1024 ranks" in text


def test_one_number_of_ranks_gives_no_model():
    view = groups.scaled(summaries(ranks=(2,)), (64,))

    assert [] == view.rows
    assert "measured with one number of ranks" in view.notes[0]


def test_the_shortest_time_is_shown_next_to_published_ones():
    view = groups.by_ranks(summaries() + summaries(library="ring"))

    first = view.rows[0]
    assert (100_000, 2) == (first["floats"], first["ranks"])
    assert 9e-5 == pytest.approx(first["Xeon Phi 2017"])
    assert "yes" == first["deterministic"]
    assert first["bus B/s"] == pytest.approx(400_000 / first["time"])
    assert first["original B/s"] == pytest.approx(2 * first["bus B/s"])
