"""Records state what readers need to know: those of plug-ins are read where these are not installed."""

import json
import os
import subprocess
import sys

import pytest

from deepbench.results.file import Store, read_results
from deepbench.results.summary import baselines, summarize
from tests.conftest import ROOT
from tests.help import samples

pytestmark = pytest.mark.programs

GPU_LIBRARY = """
from deepbench.core.backend import Backend, kernel

class Turbo(Backend):
    name, title, device = "turbo", "Turbo BLAS", "cuda"

    def open(self): return {}

    @kernel("double", precisions=("f32",))
    def double(self, case, arrays): ...

BACKEND = Turbo()
"""

OPERATION = """
from dataclasses import dataclass

from deepbench.core.op import Op
from deepbench.core.problem import BaseProblem, size

@dataclass(frozen=True)
class Numbers(BaseProblem):
    n: int = size()

class Double(Op):
    name, Problem, sweep_field, variants = "double", Numbers, "n", ("way",)
    settings = {"way": ("add", "shift"), "order": ("up", "down")}
    smoke, outputs = (Numbers(1),), ("y",)

    def flop(self, case): return 3 * case.problem.n
    def least_flop(self, case): return 1.5 * case.problem.n
    def traffic_bytes(self, case): return 8 * case.problem.n
    operand_bytes = traffic_bytes
    def operands(self, case): raise NotImplementedError
    def reference(self, case, arrays): raise NotImplementedError
    def compare(self, case, arrays): raise NotImplementedError
    def title(self, problem): return f"twice {problem.n} numbers"

OP = Double()
"""

WRITE = """
import json
from deepbench.core.case import parse_case
from deepbench.results.record import make_record
case = parse_case("double n=4 forward f32 turbo threads=1 order=down way=shift")
print(json.dumps(make_record(case, 1, "unsupported", "no")))
"""


@pytest.fixture
def from_elsewhere(tmp_path):
    """A record of an operation and a GPU library of plug-ins that are absent here."""
    for folder, text in (("backends", GPU_LIBRARY), ("ops", OPERATION)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "plugin.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEEPBENCH_PLUGINS": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", WRITE], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def read_back(path, *records):
    store = Store.create(path, samples.header())
    for record in records:
        store.append(record)
    store.close()
    return read_results(path).records


def test_a_record_of_plug_ins_can_be_read_without_them(from_elsewhere, tmp_path):
    (record,) = read_back(tmp_path / "r.jsonl", from_elsewhere)
    (summary,) = summarize([record])

    assert ("cuda", False, False) == (summary.record["device"], summary.record["framework"], summary.is_group)
    assert "twice 4 numbers order=down" == summary.problem_title
    assert "Turbo BLAS shift" == summary.library_title
    assert (6.0, "n") == (record["least_flop"], record["sweep_field"])


def test_a_sparse_product_finds_the_fastest_dense_one_on_any_library():
    sparse = "sparse_gemm m=8 n=3 k=4 sparsity=95 forward f32 mkl threads=2"
    dense = "gemm m=8 n=3 k=4 forward f32 {} threads={}{}"
    records = [
        samples.measured("mkl", 1e-3, text=sparse),
        samples.measured("mkl", 5e-3, text=dense.format("mkl", 2, "")),
        samples.measured("onednn", 4e-3, text=dense.format("onednn", 2, " weights=packed")),
        samples.measured("onednn", 2e-3, text=dense.format("onednn", 1, "")),
        samples.measured("onednn", 2e-3, text=dense.format("onednn", 2, " beta=0")),
    ]
    ((text, found),) = baselines(summarize(records)).items()

    assert sparse.split()[:4] == text.split()[:4]
    assert "weights=packed" in found.summary.record["case"]
    assert 0.25 == pytest.approx(found.time_over_baseline)
