"""How long a session of training still takes."""

import pytest

from deepbench.applications.training.session import TrainingSession
from deepbench.results.file import Store
from tests.help.trained import seeds, write


@pytest.fixture
def session(tmp_path):
    """Two seeds of 4,000 samples each, of an application without a reference."""
    file = write(tmp_path / "a.jsonl", [(setup, {"qualities": (), "end": None}) for setup, _ in seeds(2)])
    file.training.clear()
    with TrainingSession(file, Store.reopen(file.path)) as found:
        yield found


def test_a_run_of_an_unknown_setup_says_nothing_at_its_begin(session):
    assert session._left_s(0, 2.0, 5.0, 0, 0.05) is None


def test_loading_is_not_left_any_more(session):
    """10 s for a quarter, so 30 s are left; the next run loads for 5 s and trains for 40 s."""
    assert 30.0 + 45.0 == pytest.approx(session._left_s(0, 10.0, 5.0, 0, 0.25))


def test_a_run_takes_as_long_as_the_last_one_of_its_setup(session):
    assert 45.0 == pytest.approx(session._left_s(0, 40.0, 5.0, 0, 1.0))
    assert 45.0 - 5.0 == pytest.approx(session._left_s(1, 0.0, 5.0, 0, 0.0))
    assert 20.0 == pytest.approx(session._left_s(1, 20.0, 5.0, 0, 0.5))


def test_a_run_that_goes_on_counts_only_what_it_trains(session):
    """From 3,000 of 4,000 samples on, in 10 s: a whole run would train for 40 s."""
    assert 45.0 == pytest.approx(session._left_s(0, 10.0, 5.0, 3000, 1.0))
    assert 5.0 + 45.0 == pytest.approx(session._left_s(0, 5.0, 5.0, 3000, 0.5))
