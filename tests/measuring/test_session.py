"""A session measures only what belongs to its file."""

import os

import pytest

from deepbench.core.errors import BadInput
from deepbench.measuring import session
from deepbench.measuring.session import Session, measure_together
from deepbench.results.file import Store, read_results
from tests.help import samples


@pytest.fixture
def new_session(tmp_path):
    """A session of one case, on the CPUs that this process may use."""
    record = samples.measured()
    header = samples.header([record["case"]])
    header["machine"]["cpus_allowed"] = sorted(os.sched_getaffinity(0))
    path = tmp_path / "mine.jsonl"
    with Session(_created(path, header), Store.reopen(path)) as found:
        yield found


def _created(path, header):
    samples.write(path, [], header)
    return read_results(path)


def heat(monkeypatch, cpus):
    """Every heat gives this record: its process could use these CPUs."""
    record = samples.measured()
    record["process"]["cpus_allowed"] = cpus
    monkeypatch.setattr(session, "measure_heat", lambda *_: [record])


def test_with_the_same_cpus_a_record_is_kept(new_session, monkeypatch):
    heat(monkeypatch, sorted(os.sched_getaffinity(0)))
    measure_together([(new_session, new_session.cases[0], 1)])

    assert ["ok"] == [r["status"] for r in new_session.file.records]


def test_a_record_of_other_cpus_ends_the_run_and_is_not_kept(new_session, monkeypatch):
    heat(monkeypatch, [997])
    with pytest.raises(BadInput, match=r"and are now 997 .* continue: deepbench run --resume -o"):
        measure_together([(new_session, new_session.cases[0], 1)])

    assert [] == new_session.file.records


def test_with_other_cpus_nothing_is_started(new_session, monkeypatch):
    monkeypatch.setattr(session, "measure_heat", lambda *_: pytest.fail("a process was started"))
    monkeypatch.setattr(session, "measure_case", lambda *_: pytest.fail("a process was started"))
    new_session.file.header["machine"]["cpus_allowed"] = [997, 998]

    with pytest.raises(BadInput, match="were 997-998 when"):
        measure_together([(new_session, new_session.cases[0], 1)])
    with pytest.raises(BadInput, match="were 997-998 when"):
        new_session._measure(new_session.cases[0], new_session.rules)
    assert [] == new_session.file.records


@pytest.mark.parametrize("no_limits", [False, True])
def test_limits_are_probed_unless_the_plan_forbids_it(new_session, monkeypatch, no_limits):
    asked = []
    monkeypatch.setattr(new_session._prober, "complete", lambda cases, *_: asked.append(cases))
    new_session.file.header["plan"]["no_limits"] = no_limits
    new_session.probe(new_session.cases)

    assert ([] if no_limits else [new_session.cases]) == asked
