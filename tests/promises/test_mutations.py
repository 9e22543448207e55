"""Damaged files of every kind that strangers may send end with a result or with one sentence, soon."""

import gzip
import json
from pathlib import Path

import pytest

from deepbench import formats
from deepbench.api.filters import make_choices, plan_cases
from deepbench.fleets.reference import read_reference as read_reference_of_hosts
from deepbench.judge import limits
from deepbench.networks import api
from deepbench.networks.traces.from_log import trace_log, trace_log_text
from deepbench.networks.traces.trace import suite_text
from deepbench.networks.what_if.hardware import Hardware
from deepbench.plan.suites import coverage
from deepbench.reporting.sections import sections
from deepbench.results import summary
from deepbench.results.file import ResultFile, read_results
from tests.conftest import ROOT
from tests.help import references, samples
from tests.help.mutations import MANY, try_mutations
from tests.help.predicted import network
from tests.networks.test_hardware import TEXT as HARDWARE
from tests.workloads.test_flashinfer_trace import gemm, norm, paged, ragged, workload

DATA = ROOT / "tests" / "data"

MODEL = b"""
title = "a network"
source = "nobody"
unit = "token"

[sizes]
hidden = 64
heads = "hidden/16"
parameters = "12*hidden*hidden"

[phases.prefill]
batch = 1
context = 128
units = "batch*context"

[phases.train]
batch = 8
ranks = 2
context = 32

[kernels]
all = \"\"\"
gemm m=3*hidden n=batch*context k=hidden forward backward_data backward_weights count=2 # layers.*.qkv
attention batch=batch heads=heads kv_heads=heads queries=context keys=context head_size=16 mask=causal
layer_norm rows=batch*context columns=hidden forward backward count=4 weights=2*hidden # layers.*.norm
\"\"\"
train = "all_reduce n=parameters ranks=ranks count=1 # gradients"
"""
LIST = b'suites = ["llm/gpt2", "vision/resnet18:phase=train,batch=8"]\n'
COLUMNS = b"op,precision,m,n,k,count,name\ngemm,f32,64,32,16,3,first\ngemm,bf16,128,1,16,1,second\n"
CSV = b"m,n,k,a_t,b_t,application,label,needed\n64,32,16,0,0,Speech,first,yes\n128,1,16,1,0,Speech,,no\n"
TXT = b"# a list\ngemm m=64 n=32 k=16 a_t=0 b_t=0 f32,bf16 onednn\nconv n=1 c=3 h=8 w=8 k=4 r=3 s=3 # first\n"

# Of models that ran on a phone.
COUNTS = json.dumps(
    {
        "format": "tflite",
        "problems": [
            {"name": name, "problem": text, "layers": [{"name": name, "times": 1}]}
            for name, text in {
                "gemm_1": "gemm m=64 n=4 k=32 forward f32",
                "conv_2": "conv n=1 c=64 h=56 w=56 k=64 r=3 s=3 forward f32",
                "recurrent_3": "recurrent cell=lstm hidden=8 batch=2 timesteps=5 forward f32",
            }.items()
        ],
    }
)

REFERENCE = """import torch

def run(A, B):
    x = torch.matmul(A.float(), B.T.float()) * 1.0
    return x.to(A.dtype)
"""

# More of what references may do: branches, loops, functions, several results.
CODE = (
    b"""import torch

EPS = 1e-6

@torch.no_grad()
def run(A, B):
    def double(x, by=2.0):
        return x * by if by > 1 else x
    rows, columns = A.shape
    out = torch.zeros((rows, B.shape[0]), dtype=torch.float32)
    for i in range(rows):
        out[i] = double(A[i].to(torch.float32)) @ B.T.float()
    if columns == 0:
        raise ValueError("no columns")
    return {"C": (out / 2.0).to(A.dtype)}
""",
    b"def run(A, B):\n    return [x for x in (A @ B.mT, lambda: A[..., None, 1:-1])][0] + EPS ** 2\n",
)


def written(folder, name):
    """A function that writes a file of this name and returns its path."""

    def write(content):
        (folder / name).write_bytes(content)
        return str(folder / name)

    return write


def read_model(path):
    plan_cases(path, make_choices())
    api.trace_report(api.trace(path)).text("json")


def read_list(path):
    plan_cases(path, make_choices())


def read_trace(path):
    plan_cases(path, make_choices())
    found = api.trace(path)
    api.trace_summary(found)
    api.trace_report(found).text("csv")
    suite_text(found)


def read_log(content):
    found = trace_log_text(content.decode(errors="replace"), "a net", "net.log", 1)
    api.trace_report(found).text("markdown")


def read_hardware(path):
    found = Hardware.load(path)
    assert Hardware.parse(found.toml()).peak == found.peak
    found.replace("memory.bytes_per_s*2")


def read_workloads(folder):
    def read(content):
        definition, _, lines = content.partition(b"\n")
        (folder / "definition.json").write_bytes(definition)
        (folder / "workload.jsonl").write_bytes(lines)
        coverage(str(folder))

    return read


def read_foreign(content):
    text = content.decode(errors="replace")
    case = "gemm m={M} n={N} k={K} f16" if "axis_values" in text else "gemm m=1 n=2 k=3" if "metadata" in text else None
    if "benchmark_litert_model" in text or "Inference timings" in text:
        options = formats.ImportOptions(problems=COUNTS)
    else:
        options = formats.ImportOptions(backend="cublas", case=case)
    header, records = formats.to_results(formats.read(text, options), options, [])
    summaries = summary.summarize(records, [planned["case"] for planned in header["plan"]["cases"]])
    str(sections(summaries, limits.of_file(ResultFile(Path("foreign.jsonl"), header, records), summaries)))


def read_reference(folder):
    """Of a definition only the Python in it, which is parsed and never executed."""
    read = read_workloads(folder)
    return lambda content: read(definition_text(gemm(), {"M": 3}, content.decode(errors="replace")).encode())


def definition_text(table, axes, reference=REFERENCE):
    return json.dumps({**table, "reference": reference}) + "\n" + json.dumps(workload(axes))


def read_log_file(path):
    trace_log(Path(path))


def read_result_file(path):
    file = read_results(Path(path), skip_damaged=True)
    summaries = summary.summarize(file.records, [planned["case"] for planned in file.header["plan"]["cases"]])
    str(sections(summaries, limits.of_file(file, summaries)))


def read_hosts(path):
    found = read_reference_of_hosts(Path(path))
    found.findings({k.case.text: [1e-3] * 3 for k in found.kernels})
    found.detectable()
    found.rounds_in(54)
    found.differences({})


def in_file(folder, name, read):
    write = written(folder, name)
    return lambda content: read(write(content))


def readers(folder):
    """Of each kind of file: good ones, and what reads them."""
    definitions = [
        definition_text(table, axes)
        for table, axes in (
            (gemm(), {"M": 3}),
            (norm(), {"batch_size": 7}),
            (paged(page=16), {"batch_size": 2, "num_pages": 100, "len_indptr": 3, "num_kv_indices": 40}),
            (ragged(), {"total_q": 30, "total_kv": 30, "len_indptr": 4}),
        )
    ]
    logs = [path.read_bytes() for path in sorted((DATA / "logs").iterdir()) if path.stat().st_size < 10_000]
    results = [path.read_bytes() for path in sorted((DATA / "imports").iterdir()) if "noaxes" not in path.name]
    measured = samples.write(folder / "good.jsonl", [samples.measured(round_number=n) for n in (1, 2, 3)])
    return {
        "models": ([MODEL], in_file(folder, "model.toml", read_model)),
        "lists of models": ([LIST], in_file(folder, "list.toml", read_list)),
        "lists": ([TXT], in_file(folder, "list.txt", read_list)),
        "tables": ([CSV, COLUMNS], in_file(folder, "gemm.csv", read_list)),
        "traces": ([suite_text(network()).encode()], in_file(folder, "net.suite", read_trace)),
        "logs": (logs, read_log),
        "hardware": ([HARDWARE.encode()], in_file(folder, "hardware.toml", read_hardware)),
        "workloads": ([text.encode() for text in definitions], read_workloads(folder)),
        "references": ([REFERENCE.encode(), *CODE], read_reference(folder)),
        "references of hosts": (
            [references.write(folder / "hosts.json").read_bytes()],
            in_file(folder, "r.json", read_hosts),
        ),
        "results of others": (results, read_foreign),
        "result files": ([measured.read_bytes()], in_file(folder, "r.jsonl", read_result_file)),
        "compressed logs": (
            [*map(gzip.compress, logs)],
            in_file(folder, "net.log", read_log_file),
        ),
        "compressed result files": (
            [gzip.compress(measured.read_bytes(), mtime=0)],
            in_file(folder, "r.jsonl.gz", read_result_file),
        ),
    }


KINDS = {
    "models": 60,
    "lists of models": 100,
    "lists": 300,
    "tables": 300,
    "traces": 200,
    "logs": 100,
    "hardware": 500,
    "workloads": 400,
    "references": 200,
    "references of hosts": 300,
    "results of others": 100,
    "result files": 100,
    "compressed logs": 100,
    "compressed result files": 100,
}

# How they end, where not in both ways: a reference that is not understood is a reason in a table.
ENDS = {"references": {"read"}, "compressed result files": {"refused"}}


@pytest.fixture(autouse=True)
def _without_suites(monkeypatch):
    """Reading the suites of the original for each imported file would take most of the time."""
    monkeypatch.setattr(formats, "SUITES", ())


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_ends_with_a_result_or_a_sentence(tmp_path, kind):
    originals, read = readers(tmp_path)[kind]
    for content in originals:
        read(content)
    ended = try_mutations(originals, read, KINDS[kind], tmp_path / "kept")

    ends = set(ended)
    # Of a compressed file, a change in the head of gzip, such as its date, may change nothing.
    assert ENDS.get(kind, {"read", "refused"}) == ends - ({"read"} if kind == "compressed result files" else set())


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files(tmp_path, kind):
    originals, read = readers(tmp_path)[kind]

    assert MANY == sum(try_mutations(originals, read, MANY, tmp_path / "kept", seed=2).values())
