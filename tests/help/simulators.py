"""The real simulators, in environments of their own that `make test-simulators` makes."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCALESIM = """
from scalesim.scale_sim import scalesim
scalesim(save_disk_space=True, verbose=False, config="scalesim.cfg", topology="topology.csv", layout="layout.csv",
         input_type_gemm=True).run_scale(top_path="runs")
"""

ZIGZAG = """
import os, zigzag
from zigzag.api import get_hardware_performance_zigzag
inputs = os.path.join(os.path.dirname(zigzag.__file__), "inputs")
get_hardware_performance_zigzag(workload="workload.yaml", accelerator=inputs + "/hardware/tpu_like.yaml",
    mapping=inputs + "/mapping/tpu_like.yaml", opt="latency", dump_folder="results", pickle_filename="results/x.pickle")
"""


def python_of(name: str) -> str:
    """The Python of an environment; `FileNotFoundError` without."""
    python = ROOT / ".venv" / name / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError(f"{name} is not in .venv/{name}; make test-simulators")
    return str(python)


def run_scalesim(folder: Path, rows: int, columns: int, dataflow: str) -> Path:
    """Simulate an export on this array; the report."""
    python, path = python_of("scalesim"), folder / "scalesim.cfg"
    text = path.read_text()
    for name, value in {"ArrayHeight": rows, "ArrayWidth": columns, "Dataflow": dataflow}.items():
        text, count = re.subn(rf"^{name} = \w+$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1, name
    path.write_text(text)
    (folder / "runs").mkdir()
    _run([python, "-c", SCALESIM], folder)
    (report,) = folder.rglob("COMPUTE_REPORT.csv")
    return report


def run_zigzag(folder: Path, rows: int = 32, columns: int = 32, dataflow: str = "ws") -> Path:
    """Simulate an export on the stock design; the folder of the results."""
    assert (rows, columns, dataflow) == (32, 32, "ws"), "the stock design"
    _run([python_of("zigzag"), "-c", ZIGZAG], folder)
    return folder / "results"


def _run(words: list[str], folder: Path) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]
