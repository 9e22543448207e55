"""One run on a machine with a GPU: is every library right, how fast is it, and is it as fast as PyTorch?

Each section is a process of its own with a time limit, and writes into the folder as it goes, so that whatever ends a
section leaves the others. With PyTorch for the card installed, matrix products, convolutions and copies are compared
with it in the same minute.

Run: python benchmarks/gpu.py FOLDER [DEVICE]     DEVICE is cuda or hip
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter

HERE = Path(__file__).parent
DEEPBENCH = [sys.executable, "-m", "deepbench"]
CONV = "n=16 c=64 h=56 w=56 k=64 r=3 s=3 pad_h=1 pad_w=1"
LARGE = "gemm m=8192 n=8192 k=8192"

# What a card should be seen at first: each op in each precision, from microseconds to tens of milliseconds.
SAMPLE = [
    *(f"gemm m=1760 n={n} k=1760 {p}" for n in (16, 128, 7000) for p in ("f32", "tf32", "bf16", "f16", "f16f16", "i8")),
    *(f"gemm m=2048 n=2048 k=2048 a_t=1 {p}" for p in ("i8", "f8e4m3", "f8e5m2")),
    *(f"conv {CONV} {d} {p}" for d in ("forward", "backward_data", "backward_weights") for p in ("f32", "tf32", "f16")),
    f"conv {CONV} forward i8",
    *(f"recurrent cell={c} hidden=512 batch=16 timesteps=25 {d} {p}" for c in ("vanilla", "lstm", "gru")
      for d in ("forward", "backward") for p in ("f32", "f16")),
    *(f"sparse_gemm m=7680 n={n} k=2560 sparsity=95 f32" for n in (1, 2)),
    "sparse_gemm m=10752 n=1500 k=3584 sparsity=90 f32",
    *(f"sparse_gemm m=8192 n=8192 k=8192 sparsity=50 structure=2_4 {p}" for p in ("bf16 result=narrow", "i8")),
    "all_reduce n=6553600 ranks=2 f32",  # where there are two cards
]  # fmt: skip

AGAINST_TORCH = """
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
def random(*shape): return (torch.rand(*shape, device="cuda") * 2 - 1).to(torch.bfloat16)
a, b, c = random(8192, 8192), random(8192, 8192), random(8192, 8192)
found = {"gemm bf16": time(lambda: torch.addmm(c, a, b, out=c), 1)}
x, w = random(16, 64, 56, 56).half(), random(64, 64, 3, 3).half()
found["conv f16"] = time(lambda: torch.nn.functional.conv2d(x, w, padding=1), 100)
big = torch.empty(2**30, dtype=torch.uint8, device="cuda"); other = torch.empty_like(big)
found["copy bytes_per_s"] = 2 * big.nbytes / time(lambda: other.copy_(big), 1)
print(json.dumps(found))
"""


def run(folder: Path, name: str, words: list[str], limit_s: float) -> None:
    """Run a section; its output is kept beside what it writes."""
    start = perf_counter()
    with (folder / f"{name}.log").open("w") as log:
        try:
            code: object = subprocess.run(words, stdout=log, stderr=subprocess.STDOUT, timeout=limit_s).returncode
        except subprocess.TimeoutExpired:
            code = f"stopped after {limit_s:g} s"
    print(f"{name:16} {perf_counter() - start:6.1f} s  exit {code}", flush=True)


def main() -> None:
    """All sections, under eight minutes together."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, device = Path(sys.argv[1]), (sys.argv[2:] or ["cuda"])[0]
    folder.mkdir(parents=True, exist_ok=True)
    names = {"cuda": "cublas or cudnn or cusparse", "hip": "hipblas or hipsparse or miopen"}[device]
    measure = [*DEEPBENCH, "run", "--device", device]
    run(folder, "info", [*DEEPBENCH, "info", "--json"], 60)
    # Convolution has hundreds of smoke cases and a search for each: the sample has some.
    right = [sys.executable, "-m", "pytest", str(HERE.parent / "tests/libraries"), "-k", f"({names}) and not conv"]
    run(folder, "right", right, 100)
    large = [f"{LARGE} {p} result=narrow" for p in ("bf16", "f16")] + [f"{LARGE} {p}" for p in ("f32", "tf32")]
    large += [f"{LARGE} a_t=1 {p}" for p in ("i8", "f8e4m3")]
    # One run, because each probes the roof of every precision first.
    run(folder, "sample", [*measure, "--quick", *large, *SAMPLE, "-o", str(folder / "sample.jsonl")], 300)
    run(
        folder,
        "energy",
        [*measure, "--quick", "--energy", large[0], "--backend", "cublaslt", "-o", str(folder / "energy.jsonl")],
        40,
    )
    if device == "cuda":
        run(folder, "torch", [sys.executable, "-c", AGAINST_TORCH], 60)
    for path in sorted(folder.glob("*.jsonl")):
        records = [line for line in map(json.loads, path.read_text().splitlines()) if "case" in line]
        counts = {s: sum(r["status"] == s for r in records) for s in {r["status"] for r in records}}
        print(path.name, counts)


if __name__ == "__main__":
    main()
