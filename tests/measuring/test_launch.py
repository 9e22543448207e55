"""The environment of a worker, and the command that reaches another host."""

import json

from deepbench.core.variables import thread_variables, tuning
from deepbench.measuring import launch


def test_threads_reach_every_runtime_whatever_the_parent_has():
    found = launch.worker_environment(
        3, "none", [0, 1], {"OMP_NUM_THREADS": "99", "HOME": "/h", "KMP_AFFINITY": "compact"}
    )

    assert {"3"} == {found[name] for name in thread_variables()}
    assert "/h" == found["HOME"]
    assert "OMP_PLACES" not in found
    assert "KMP_AFFINITY" not in found


def test_pinned_workers_get_a_place_a_thread():
    found = launch.worker_environment(2, "cores", [4, 6, 8], {})

    assert ("true", "{4},{6}") == (found["OMP_PROC_BIND"], found["OMP_PLACES"])


def test_the_record_repeats_only_what_tunes_libraries():
    assert {"KMP_BLOCKTIME": "0"} == tuning({"KMP_BLOCKTIME": "0", "SECRET_TOKEN": "x"})


def test_only_what_python_needs_to_start_is_in_the_command_for_a_host():
    environment = {"PYTHONPATH": "/here", "LD_LIBRARY_PATH": "/l", "DEEPBENCH_X": "secret", "OMP_X": "1", "HOME": "/h"}
    command, request = launch.on_host("node7", environment, ["program", "word"])

    assert ["ssh", "node7"] == [command[0], command[-2]]
    assert command[-1].startswith("/usr/bin/env LD_LIBRARY_PATH=/l PYTHONPATH=/here ")
    assert "secret" not in " ".join(command)
    assert {k: v for k, v in environment.items() if k != "HOME"} == json.loads(request)["environment"]
    assert ["program", "word"] == json.loads(request)["command"]


def test_only_ssh_gets_options_of_ssh():
    def words(shell):
        return launch.on_host("node7", {"DEEPBENCH_REMOTE_SHELL": shell}, [])[0]

    assert ["/own/shell", "node7"] == words("/own/shell")[:2]
    assert ["/usr/bin/ssh", "-T", "-o", "BatchMode=yes"] == words("/usr/bin/ssh")[:4]
    assert "ServerAliveInterval=5" in words("")
