"""The runs of a fleet: who is asked how often, and what each run asks for."""

import json

import pytest

from deepbench.core.errors import BadInput
from deepbench.fleets import session as fleet
from deepbench.fleets.asking import Reach
from deepbench.measuring.carriers import Carrier

pytestmark = pytest.mark.programs

HOSTS = {"a": "10.0.0.1", "b": "10.0.0.2"}


@pytest.fixture
def session_of(tmp_path, monkeypatch):
    """A session whose carrier is this script; no run is judged."""
    monkeypatch.setattr(fleet, "judge", lambda file: None)

    def make(script, addresses=HOSTS, **options):
        (tmp_path / "carrier").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "carrier").chmod(0o700)
        reach = Reach(Carrier("own", (str(tmp_path / "carrier"), "{host}")), wait_s=20.0)
        return fleet.FleetSession(tmp_path / "fleet.jsonl", addresses, ["words"], reach, links="none", **options)

    return make


def test_a_missing_host_is_asked_once_and_reported_in_every_run(session_of, tmp_path):
    session = session_of(f"echo $1 >> {tmp_path}/asked; exit 3", one_by_one=True)
    steps = [step.text for step in session.measure(5)]
    session.close()

    assert ["run 1  a missing", "run 1  b missing"] == sorted(steps)  # no host is left
    assert ["10.0.0.1", "10.0.0.2"] == sorted((tmp_path / "asked").read_text().split())


def test_the_first_run_alone_measures_limits(session_of, tmp_path):
    answer = json.dumps({"lines": "", "exit_code": 64, "last_output": "no"})
    script = f"""head -n 1 >> {tmp_path}/asked; echo '{{"started": 1}}'; echo '{answer}'"""
    session = session_of(script, one_by_one=True)
    steps = [step.text for step in session.measure(2)]
    session.close()
    commands = [json.loads(line)["command"] for line in (tmp_path / "asked").read_text().splitlines()]

    assert 4 == len(steps)
    assert [False, False, True, True] == ["--no-limits" in command for command in commands]
    assert all(command[-1] == "-o" for command in commands)


@pytest.mark.parametrize("address", ["-oProxyCommand=touch made", "a;touch made", "{host}", "a b", "a\x1b", "x" * 254])
def test_what_is_no_name_of_a_host_reaches_no_carrier(session_of, tmp_path, address):
    with pytest.raises(BadInput, match="is no name of a host; wanted up to 253 letters, digits and any of"):
        session_of(f"touch {tmp_path}/asked", {"a": "10.0.0.1", "b": address})

    assert not (tmp_path / "asked").exists()
    assert not (tmp_path / "fleet.jsonl").exists()


def test_a_carrier_that_is_not_here_is_one_sentence(tmp_path):
    reach = Reach(Carrier("slurm", ("srun-of-nowhere", "--nodelist={host}")))
    with pytest.raises(BadInput, match="hosts are reached by srun-of-nowhere, which was not found on this machine; in"):
        fleet.FleetSession(tmp_path / "fleet.jsonl", HOSTS, ["words"], reach, links="none")
