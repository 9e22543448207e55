"""Limits of containers and of the address space, as files and the system give them."""

import resource

import pytest

from deepbench.machine import describe

GIB = 2**30
NONE = 9223372036854771712  # version 1 without a limit
MEMORY, CPU = "sys/fs/cgroup/memory/", "sys/fs/cgroup/cpu/"
V1 = "9:name=systemd:/\n4:memory:/job/step\n1:cpu,cpuacct:/job/step\n"
V1_FILES = {
    "proc/self/cgroup": V1,
    CPU + "cpu.cfs_quota_us": -1,
    CPU + "job/cpu.cfs_quota_us": 250000,
    CPU + "job/cpu.cfs_period_us": 100000,
    CPU + "job/step/cpu.cfs_quota_us": -1,
    CPU + "job/step/cpu.cfs_period_us": 100000,
    MEMORY + "memory.limit_in_bytes": NONE,
    MEMORY + "memory.usage_in_bytes": 20 * GIB,
    MEMORY + "job/memory.limit_in_bytes": 8 * GIB,
    MEMORY + "job/memory.usage_in_bytes": 3 * GIB,
    MEMORY + "job/memory.stat": f"cache 5\ntotal_inactive_file {GIB}",
}
V2_FILES = {
    "proc/self/cgroup": "0::/outer/inner",
    "sys/fs/cgroup/outer/cpu.max": "150000 100000",
    "sys/fs/cgroup/outer/inner/cpu.max": "max 100000",
    "sys/fs/cgroup/outer/memory.max": 4 * GIB,
    "sys/fs/cgroup/outer/memory.current": 3 * GIB,
    "sys/fs/cgroup/outer/inner/memory.max": "max",
    "sys/fs/cgroup/outer/inner/memory.current": GIB,
}
IN_CONTAINER = {  # /proc/self/cgroup has the name on the host, which this container does not see
    "proc/self/cgroup": "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n",
    CPU + "cpu.cfs_quota_us": 50000,
    CPU + "cpu.cfs_period_us": 100000,
    MEMORY + "memory.limit_in_bytes": 2 * GIB,
    MEMORY + "memory.usage_in_bytes": GIB,
}


@pytest.mark.parametrize(
    ("files", "quota", "available"),
    [
        (V1_FILES, 2.5, 6 * GIB),
        (V2_FILES, 1.5, GIB),
        (IN_CONTAINER, 0.5, GIB),
        ({}, None, 16 * GIB),
        ({CPU + "cpu.cfs_quota_us": "x", "sys/fs/cgroup/memory.max": "many"}, None, 16 * GIB),
    ],
)
def test_the_tightest_limit_of_all_control_groups_counts(tmp_path, files, quota, available):
    for name, text in {"proc/meminfo": f"MemAvailable: {16 * 2**20} kB", **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    assert quota == describe.cpu_quota(tmp_path)
    assert available == describe.memory_available(tmp_path)


def test_the_limit_of_the_address_space_counts(tmp_path, monkeypatch):
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "statm").write_text("1000 10 5 1 0 100 0\n")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (GIB, GIB))

    assert GIB - 1000 * resource.getpagesize() == describe.memory_available(tmp_path)
