"""How a command reaches a host: the table of carriers, and a line of a user."""

import os
import shlex

import pytest

from deepbench.core.errors import BadInput
from deepbench.measuring import carriers
from deepbench.measuring.carriers import CARRIERS


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("slurm", ["srun", "--overlap", "--quiet", "--nodes=1", "--ntasks=1", "--nodelist=n1", "--export=NONE"]),
        ("kubernetes", ["kubectl", "exec", "--stdin", "n1", "--"]),
        ("flux", ["flux", "exec", "--rank=n1"]),
        ("lsf", ["blaunch", "-z", "n1"]),
        ("docker", ["docker", "exec", "--interactive", "n1"]),
    ],
)
def test_the_words_of_a_command_are_arguments(name, begin):
    command = CARRIERS[name].command("n1", ["env", "A=a b"])

    assert begin == command[: len(begin)]
    assert ["env", "A=a b"] == command[-2:]


def test_ssh_gets_one_word_for_the_shell_there():
    assert ["n1", "env 'A=a b'"] == CARRIERS["ssh"].command("n1", ["env", "A=a b"])[-2:]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("mytool {host} --", ["mytool", "n1", "--", "env", "A=a b"]),
        ("my 'two words' -w={host}.site x{host}", ["my", "two words", "-w=n1.site", "xn1", "env", "A=a b"]),
        ("ssh -J jump {host}", ["ssh", "-J", "jump", "n1", "env 'A=a b'"]),
    ],
)
def test_a_line_of_a_user(line, command):
    assert command == carriers.choose(line, {}).command("n1", ["env", "A=a b"])
    assert command == carriers.choose(None, {"DEEPBENCH_REMOTE_SHELL": line}).command("n1", ["env", "A=a b"])


@pytest.mark.parametrize(
    "line",
    [
        *("", "mytool", "mytool host", "{host}", "{host} {host}", "run-{host} {host}"),
        *("'a {host}", "a {host}\n", "a {host}" * 999),
    ],
)
def test_other_lines_are_refused(line):
    with pytest.raises(BadInput, match=r"--through (wants one of ssh, slurm, |starts with a program, and a host must)"):
        carriers.choose(line, {})


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a;b", "{host}", "a b", "a\n", "\x1ba", "", "$(x)", "x" * 254])
def test_what_is_no_name_of_a_host_is_refused(host):
    for carrier in CARRIERS.values():
        with pytest.raises(BadInput, match="is no name of a host; wanted up to 253 letters, digits and any of"):
            carrier.command(host, ["true"])


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Put programs into PATH that do nothing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("srun", "blaunch"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o700)
    return tmp_path


def test_an_allocation_is_found(programs):
    assert "slurm" == carriers.choose(None, {"SLURM_JOB_ID": "7"}).name
    assert "lsf" == carriers.choose(None, {"LSB_JOBID": "7"}).name
    assert "ssh" == carriers.choose(None, {}).name
    assert "ssh" == carriers.choose("ssh", {"SLURM_JOB_ID": "7"}).name
    assert "own" == carriers.choose(None, {"SLURM_JOB_ID": "7", "DEEPBENCH_REMOTE_SHELL": "/own/shell"}).name
    (programs / "srun").unlink()
    assert "ssh" == carriers.choose(None, {"SLURM_JOB_ID": "7"}).name  # as inside a container


def test_a_program_that_is_not_here_is_one_sentence(programs):
    CARRIERS["slurm"].require_program()
    wanted = r"reached by kubectl, which was not found .*; install it, add its folder to PATH, or choose another way"
    with pytest.raises(BadInput, match=wanted):
        CARRIERS["kubernetes"].require_program()


def test_no_carrier_sends_the_environment_or_needs_a_path():
    assert "--export=NONE" in CARRIERS["slurm"].words
    from deepbench.measuring import launch

    words, request = launch.on_host("n1", {**os.environ, "OMP_X": "a-value"}, ["true"], carrier=CARRIERS["slurm"])
    assert "/usr/bin/env" == next(word for word in words if word.startswith("/"))
    assert "a-value" not in shlex.join(words)
    assert b"a-value" in request
