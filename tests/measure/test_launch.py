"""The environment of a worker."""

from deepbench.core.variables import thread_variables, tuning
from deepbench.measure import launch


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
