"""One run on a machine with a GPU: is every library right, how fast is it, and is it as fast as PyTorch?

Each section is a process of its own with a time limit, and writes into the folder as it goes, so that whatever ends a
section leaves the others. All together take five minutes.

  info     the GPU, and the libraries found
  right    one small problem of each library, operation, precision and direction, checked against float64
  measure  the peak of each precision, then problems from microseconds to tens of milliseconds
  load     how long a product takes after seconds of load: power limits lower the clock. With energy
  torch    the same products, convolutions and copies in PyTorch, where it is installed

It needs a checkout and the packages of `pip install --editable .`, or these packages in PYTHONPATH.

Run: python benchmarks/gpu.py FOLDER [DEVICE] [SECTION …]     DEVICE is cuda or hip
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
CONV = "n=16 c=64 h=56 w=56 k=64 r=3 s=3 pad_h=1 pad_w=1"
LARGE = "gemm m=8192 n=8192 k=8192"

# Products whose time is the peak of their precision. 8-bit kernels need A transposed.
PEAKS = [
    *(f"{LARGE} {p} result=narrow" for p in ("bf16", "f16")),
    *(f"{LARGE} {p}" for p in ("f32", "tf32")),
    *(f"{LARGE} a_t=1 {p}" for p in ("i8", "f8e4m3")),
    f"{LARGE} bf16",
    "memory kind=copy n=134217728",
]
SAMPLE = [
    *(f"gemm m=1760 n={n} k=1760 {p}" for n in (16, 7000) for p in ("f32", "tf32", "bf16", "bf16 result=narrow", "i8")),
    "gemm m=1760 n=16 k=1760 bf16 result=narrow cache=cold",
    "gemm m=2048 n=2048 k=2048 a_t=1 f8e4m3",
    *(f"conv {CONV} {d} {p}" for d in ("forward", "backward_data", "backward_weights") for p in ("tf32", "f16")),
    f"conv {CONV} forward f32",
    f"conv {CONV} forward f16 layout=nhwc",
    f"conv {CONV} forward i8 layout=nhwc",
    *(f"recurrent cell={c} hidden=512 batch=16 timesteps=25 {d} f16" for c in ("lstm", "gru")
      for d in ("forward", "backward")),
    "sparse_gemm m=7680 n=2 k=2560 sparsity=95 f32",
    "sparse_gemm m=10752 n=1500 k=3584 sparsity=90 f32",
    *(f"sparse_gemm m=8192 n=8192 k=8192 sparsity=50 structure=2_4 {p}" for p in ("bf16 result=narrow", "i8")),
]  # fmt: skip
# One library for each operation, for the time is short.
LIBRARIES = {
    "cuda": "cublaslt,cudnn,cusparse,cusparselt,cudart",
    "hip": "hipblaslt,miopen,hipsparse,hipsparselt,hiprt",
}

RIGHT = """
import json, sys, time
from deepbench.core.backend import all_backends, find_backend
from deepbench.core.case import Case, check_settings
from deepbench.core.op import find_op
from deepbench.core.precision import find_precision
from deepbench.measuring import worker
from deepbench.measuring.launch import Request
from deepbench.native.gpu import timing
from deepbench.plan.modes import Rules
from tests.backends.test_backends import SHORT, Parent
timing.RAISE_CLOCKS_S = timing.HOST_MOST_S = timing.CANDIDATE_S = 0.0  # only the answers matter
timing.FINALISTS, timing.COMPILED_SEARCH_MOST_S = 1, 1.0
device, path, found = sys.argv[1], sys.argv[2], []
marks = [(b, m) for b in all_backends() if find_backend(b).device == device for m in find_backend(b).marks()]
with open(path, "w") as file:
    for name, mark in marks:
        op = find_op(mark.op)
        if op.is_group:
            continue
        settings = [{}] + [{n: v} for n, values in op.settings.items() for v in values[1:]]
        for precision in mark.precisions:
            for direction in mark.directions:
                for chosen, problem in ((c, p) for p in reversed(op.smoke) for c in settings):
                    setting = check_settings(op.name, chosen)
                    case = Case(op.name, problem, direction, find_precision(precision), name, 1, setting)
                    start = time.perf_counter()
                    record = worker.measure_alone(Request(case, 1, SHORT, 60.0), Parent())
                    if record["status"] != "unsupported":
                        break
                line = dict(case=case.text, status=record["status"], reason=record["reason"], check=record["check"],
                            seconds=round(time.perf_counter() - start, 3), notes=record["notes"])
                file.write(json.dumps(line) + "\\n")
                file.flush()
                found.append(record["status"])
                if record["status"] != "ok":
                    print(record["status"], case.text, record["reason"], flush=True)
print({s: found.count(s) for s in sorted(set(found))})
"""

TORCH = """
import json, sys
import torch
torch.backends.cudnn.benchmark = True
def time(run, calls):
    for _ in range(5): run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls): run()
    times = []
    for _ in range(30):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record(); graph.replay(); b.record(); b.synchronize()
        times.append(a.elapsed_time(b) / 1e3 / calls)
    return sorted(times)[len(times) // 2]
def random(*shape, kind=torch.bfloat16): return (torch.rand(*shape, device="cuda") * 2 - 1).to(kind)
found = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version()}
def say(name, value):
    found[name] = value
    print(json.dumps({name: value}), flush=True)
for m, n, k, calls in ((8192, 8192, 8192, 1), (1760, 7000, 1760, 20), (1760, 16, 1760, 100)):
    for kind, tf32 in ((torch.bfloat16, False), (torch.float16, False), (torch.float32, False), (torch.float32, True)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        # Column-major C = A·B + C is row-major Cᵀ = Bᵀ·Aᵀ + Cᵀ.
        a, b, c = random(k, m, kind=kind), random(n, k, kind=kind), random(n, m, kind=kind)
        say(f"gemm {m} {n} {k} {str(kind)[6:]}{' tf32' * tf32}", time(lambda: torch.addmm(c, b, a, out=c), calls))
one = torch.ones((), device="cuda")
a, b = random(8192, 8192).to(torch.float8_e4m3fn), random(8192, 8192).to(torch.float8_e4m3fn).t()
for fast in (False, True):
    run = lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast)
    say(f"gemm 8192 float8_e4m3fn to bfloat16{' fast sums' * fast}", time(run, 1))
torch.backends.cudnn.allow_tf32 = True
for kind in (torch.float16, torch.float32):
    for last in (False, True):
        x, w = random(16, 64, 56, 56, kind=kind), random(64, 64, 3, 3, kind=kind)
        if last: x, w = x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)
        name = f"conv {str(kind)[6:]}{' tf32' * (kind == torch.float32)} {'nhwc' if last else 'nchw'}"
        say(name, time(lambda: torch.nn.functional.conv2d(x, w, padding=1), 100))
big = torch.empty(2**27, dtype=torch.float32, device="cuda"); other = torch.empty_like(big)
for calls in (1, 20):
    say(f"copy of 512 MiB, {calls} in a graph, bytes/s", 2 * big.nbytes / time(lambda: other.copy_(big), calls))
# Is A·B rounded to 16 bits before C is added?
a, b, c = random(512, 4096), random(4096, 512), (torch.randint(-8, 9, (512, 512), device="cuda")).to(torch.bfloat16)
exact = a.double() @ b.double()
once = (exact + c.double()).to(torch.bfloat16)
twice = (exact.to(torch.bfloat16).double() + c.double()).to(torch.bfloat16)
got = torch.addmm(c, a, b)
say("addmm bf16: elements that equal one rounding, two roundings, of",
    [int((got == once).sum()), int((got == twice).sum()), got.numel()])
json.dump(found, open(sys.argv[1], "w"), indent=1)
"""


def run(folder: Path, name: str, words: list[str], limit_s: float) -> None:
    """Run a section; its output is kept beside what it writes."""
    start, environment = perf_counter(), {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            code: object = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # `deepbench run` then ends its workers
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
            code = f"stopped after {limit_s:g} s"
    print(f"{name:8} {perf_counter() - start:6.1f} s  exit {code}", flush=True)


def main() -> None:
    """All sections, or those named."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, device, *wanted = Path(sys.argv[1]).resolve(), *(sys.argv[2:] or ["cuda"])
    if device not in LIBRARIES:
        sys.exit(f"wanted cuda or hip as DEVICE, found {device}")
    folder.mkdir(parents=True, exist_ok=True)
    deepbench = [sys.executable, "-m", "deepbench"]
    measure = [*deepbench, "run", "--device", device, "--backend", LIBRARIES[device], "--quick"]
    sections: dict[str, tuple[list[str], float]] = {
        "info": ([*deepbench, "info", "--json"], 40),
        "right": ([sys.executable, "-c", RIGHT, device, str(folder / "right.jsonl")], 60),
        "measure": ([*measure, *PEAKS, *SAMPLE, "-o", str(folder / "measure.jsonl")], 240),
        "load": ([*measure, "--energy", *PEAKS[:2], SAMPLE[0], "-o", str(folder / "load.jsonl")], 60),
    }
    if device == "cuda":
        sections["torch"] = ([sys.executable, "-c", TORCH, str(folder / "torch.json")], 60)
    if unknown := set(wanted) - set(sections):
        sys.exit(f"unknown sections: {', '.join(sorted(unknown))}; choose among {', '.join(sections)}")
    for name, (words, limit_s) in sections.items():
        if not wanted or name in wanted:
            run(folder, name, words, limit_s)
    for path in sorted(folder.glob("*.jsonl")):
        records = [line for line in map(json.loads, path.read_text().splitlines()) if "status" in line]
        counts = {s: sum(r["status"] == s for r in records) for s in sorted({r["status"] for r in records})}
        print(f"{path.name:13} {counts}")


if __name__ == "__main__":
    main()
