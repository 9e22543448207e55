"""Findings about machines that are simulated with files."""

import pytest

from deepbench.machine import doctor

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
