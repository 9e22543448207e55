"""The package itself, where it is installed: what the small tables of other tests cannot show."""

import importlib.util
import subprocess
import sys

import pytest

from deepbench.gpus import package
from tests.conftest import ROOT
from tests.gpus.small_tables import forget

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        importlib.util.find_spec("aiconfigurator_core") is None,
        reason='needs the published tables: pip install "deepbench-kernels[gpus]"',
    ),
]


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.delenv("DEEPBENCH_GPU_TABLES", raising=False)
    forget()
    yield
    forget()


def test_all_tables_of_ten_gpus_can_be_counted():
    from deepbench.gpus.index import contents

    found = contents()
    assert 10 == len(found) == len(package.machines())
    assert sum(one.rows for one in found) > 12_000_000
    for one in found:
        assert one.families["linear"] > 10_000
        assert one.sources


def test_all_data_sheets_and_deployments_can_be_read():
    from deepbench.gpus.serving.deployments import deployments
    from deepbench.gpus.sheet import CHIPS, sheet

    for machine in package.machines():
        assert sheet(machine).memory_bytes > 2e10
        assert machine in CHIPS
    assert len(deployments()) > 3000
    assert {row.machine for row in deployments()} <= set(package.machines())


READ = """
import resource
from deepbench.gpus.table import table
found = table("h100_sxm", "linear")
marks = found.marks
print(len(found), (marks == 0).mean(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_the_products_of_a_gpu_are_read_in_little_memory():
    done = subprocess.run([sys.executable, "-c", READ], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert 0 == done.returncode, done.stderr
    rows, trusted, mib = done.stdout.split()
    assert int(rows) > 200_000
    assert float(trusted) > 0.8
    assert int(mib) < 500


def test_a_kernel_is_found_with_every_framework():
    from deepbench.gpus import times

    asked = times.as_arrays([{"m": 64, "n": 8192, "k": 8192, "type": 0}], ("m", "n", "k", "type"))
    for framework in times.frameworks("h100_sxm", "linear"):
        found = times.times("h100_sxm", "linear", asked, framework)
        assert times.MEASURED == found.how[0], framework
        # 134 MB of weights at no more than the bandwidth, and at no less than a third of it.
        assert 2 * 8192 * 8192 / 3.35e12 < found.seconds[0] < 3 * 2 * 8192 * 8192 / 3.35e12
