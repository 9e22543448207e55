"""Records state what readers need to know, and records that do not are completed."""

import json
import os
import subprocess
import sys

import pytest

from deepbench.results.file import Store, read_results
from deepbench.results.old_files import ADDED, complete
from deepbench.results.schema import schema_error
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

CASES = (
    "gemm m=2 n=3 k=4 a_t=0 b_t=1 forward bf16 onednn threads=2 weights=packed",
    "conv n=1 c=2 h=8 w=8 k=3 r=3 s=3 pad_h=1 pad_w=1 backward_data f32 mkl threads=1",
    "sparse_gemm m=8 n=3 k=4 sparsity=95 forward f32 mkl threads=2 beta=0 cache=cold",
    "all_reduce n=8 ranks=2 forward f32 mpich threads=1 algorithm=ring",
    "gemm m=2 n=3 k=4 forward f16 cublas threads=1",
    "gemm m=2 n=3 k=4 forward f32 torch threads=1",
)


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


def test_an_old_record_of_plug_ins_is_read_by_its_names(from_elsewhere, tmp_path):
    (record,) = read_back(tmp_path / "r.jsonl", samples.as_old(from_elsewhere))
    (summary,) = summarize([record])

    assert "cpu" == summary.record["device"]
    assert "n=4 way=shift order=down" == summary.problem_title
    assert "turbo" == summary.library_title
    assert record["least_flop"] is None


@pytest.mark.parametrize("text", CASES)
def test_an_old_record_reads_like_a_new_one(text, tmp_path):
    new = samples.measured(text=text)
    old = samples.as_old(new)
    assert schema_error(old) is None

    (completed, stored) = read_back(tmp_path / "r.jsonl", {**old, "other_flop": new["other_flop"]}, new)

    assert stored == completed


def test_an_old_record_of_an_unknown_operation_is_completed():
    old = samples.as_old(samples.measured()) | {"op": "no_op", "backend": "no_library", "group": None}

    record = complete(old)

    assert record.keys() >= ADDED
    assert ("m=2 n=3 k=4 a_t=0 b_t=0", "no_library") == (record["problem_title"], record["library_title"])


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
    for written in (records, [complete(samples.as_old(r)) for r in records]):
        ((text, found),) = baselines(summarize(written)).items()

        assert sparse.split()[:4] == text.split()[:4]
        assert "weights=packed" in found.summary.record["case"]
        assert 0.25 == pytest.approx(found.time_over_baseline)
