"""Findings about machines that are simulated with files."""

import os
import subprocess
import sys
import time

import pytest

from deepbench.machine import describe, doctor

pytestmark = [pytest.mark.programs, pytest.mark.alone]

STAT = "cpu  100 0 0 {idle} 0 0 0 {steal}\n"


@pytest.fixture
def machine(tmp_path):
    """A root with these files."""

    def make(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


def finding_of(root, what):
    return next((f for f in doctor.examine(root, 0.0) if f.what == what), None)


CPU = "sys__devices__system__cpu__"


@pytest.mark.parametrize(
    ("files", "what", "good", "words"),
    [
        ({CPU + "cpu0__cpufreq__scaling_governor": "powersave"}, "governor", False, "cpupower frequency-set"),
        ({CPU + "cpu0__cpufreq__scaling_governor": "performance"}, "governor", True, None),
        ({CPU + "intel_pstate__no_turbo": "0"}, "turbo", False, "echo 1 | sudo tee"),
        ({CPU + "intel_pstate__no_turbo": "1"}, "turbo", True, None),
        ({CPU + "cpufreq__boost": "1"}, "turbo", False, "echo 0 | sudo tee"),
        ({CPU + "smt__active": "1"}, "hardware threads", True, None),
        ({"sys__kernel__mm__transparent_hugepage__enabled": "always madvise [never]"}, "huge pages", False, "madvise"),
        ({"sys__kernel__mm__transparent_hugepage__enabled": "always [madvise] never"}, "huge pages", True, None),
        ({CPU + "cpu0__thermal_throttle__core_throttle_count": "7"}, "heat", False, "cool the machine"),
        ({"sys__class__thermal__thermal_zone0__temp": "45000"}, "heat", True, None),
        (
            {"proc__meminfo": "SwapTotal: 4000000 kB\nSwapFree: 1000000 kB\n"},
            "swap",
            False,
            "stop programs that use much memory",
        ),
        (
            {"sys__devices__system__node__node0__x": "", "sys__devices__system__node__node1__x": ""},
            "NUMA",
            False,
            "numactl",
        ),
    ],
)
def test_a_finding_and_its_remedy(machine, files, what, good, words):
    finding = finding_of(machine(**files), what)

    assert good == finding.good, finding
    assert (words is None) == (finding.remedy is None), finding
    if words:
        assert words in finding.remedy


def test_steal_and_other_load(monkeypatch):
    quiet = doctor._load({"idle": 0, "user": 0, "steal": 0}, {"idle": 95, "user": 5, "steal": 0})
    loud = doctor._load({"idle": 0, "user": 0, "steal": 0}, {"idle": 50, "user": 30, "steal": 20})

    assert [True, True] == [f.good for f in quiet]
    assert [False, False] == [f.good for f in loud]
    assert "took 20.0 % of the CPU time" in loud[0].text
    assert "use 30 % of the CPU time" in loud[1].text


def test_unreadable_files_are_no_problem(tmp_path):
    assert [] == [f for f in doctor.examine(tmp_path, 0.0) if not f.good]


def test_two_openmp_runtimes_are_a_problem_in_one_library_only():
    both = {"mkl": {"library": {}, "openmp": ["libiomp5.so", "libgomp.so.1"]}}
    separate = {
        "mkl": {"library": {}, "openmp": ["libiomp5.so"]},
        "onednn": {"library": {}, "openmp": ["libgomp.so.1"]},
    }

    assert not doctor.openmp(both).good
    assert doctor.openmp(separate).good
    assert "libgomp and libiomp5" in doctor.openmp(separate).text
    assert doctor.openmp({"mkl": {"unavailable": {}}}).good


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (doctor.Load(2, 1.3), "other programs use 1.3 of 2 CPUs"),
        (doctor.Load(2, 0.1), None),
        (doctor.Load(2, None), None),
        (doctor.Load(2, 0.0, steal=0.2), "the host takes 20 % of the CPU time for other virtual machines"),
        (doctor.Load(2, 1.0, steal=0.2), "other programs use 1.0 of 2 CPUs and the host takes 20 %"),
        (doctor.Load(64, 32.0, quota=2.0, busy_of_quota=0.0), None),  # enough CPUs are left for the quota
        (doctor.Load(64, 63.5, quota=2.0), "other programs use 63.5 of 64 CPUs"),
        (doctor.Load(64, 1.0, quota=2.0, busy_of_quota=1.0), "other programs use 1.0 of the container's 2 CPUs"),
    ],
)
def test_other_programs_are_named_before_a_run(load, words):
    if words is None:
        assert load.sentence is None
    else:
        assert load.sentence.startswith(words)


def test_a_busy_program_is_seen():
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        load = doctor.LoadWatch().load(0.5)
    finally:
        for process in busy:
            process.kill()
            process.wait()

    assert load.busy_cpus > 0.5
    assert "other programs use" in load.sentence or load.cpus > 20


def test_the_work_of_finished_children_is_not_load():
    begin = time.monotonic()
    everything, watch = describe.OtherPrograms(os.sched_getaffinity(0)), doctor.LoadWatch()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.4: pass"], check=True)

    of_child = 0.4 / (time.monotonic() - begin)
    assert everything.cpus() - watch.load(0.0).busy_cpus > 0.5 * of_child


def test_a_short_measurement_takes_the_load_since_an_earlier_time():
    earlier = describe.OtherPrograms(os.sched_getaffinity(0))
    assert earlier.from_now().cpus() is None
    time.sleep(describe.LEAST_INTERVAL_S)
    begin = time.monotonic()
    later = earlier.from_now()
    later.complete()

    assert later.cpus() is not None
    assert time.monotonic() - begin < describe.LEAST_INTERVAL_S


def test_steal_and_the_time_of_a_control_group_are_read(machine):
    root = machine(
        proc__stat="cpu0 1 2 3 4 5 6 7 80 0 0\ncpu1 1 2 3 4 5 6 7 30 0 0\n",
        proc__self__cgroup="0::/box\n",
        sys__fs__cgroup__box__cpu_stat="",
    )
    (root / "sys/fs/cgroup/box/cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")

    assert 110 == doctor._steal(root, {0, 1})
    assert 80 == doctor._steal(root, {0})
    assert doctor._steal(root, {0, 5}) is None
    assert 2.5 == doctor._group_cpu_s(root)
