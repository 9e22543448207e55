"""One run on a machine with a GPU: is every library right, how fast is it, and is it as fast as PyTorch?

Each section is a process of its own with a time limit, and writes into the folder as it goes, so that whatever ends a
section leaves what it has. All together take seven minutes at most.

  info     the GPU, and the libraries found
  peaks    the peak of each precision: products of 8192³ and a copy, alone
  right    small problems against float64: first one of each library, operation and precision, then all others
  sample   the suite `gpu`: what people run, with hot and cold caches, next to its limits
  load     how long products take after seconds of load, when power has lowered the clock; with energy
  torch    the same products, convolutions and copies in PyTorch, where it is installed
  pjrt     a product in XLA through PJRT, where this DeepBench and a plug-in have it

It runs from a checkout. NVIDIA's libraries may be those of PyTorch. Packages of Python that are missing are unpacked
from a folder of wheels (--wheels); without them, only the section torch runs.

Run: python benchmarks/gpu.py FOLDER [SECTION …] [--device hip] [--wheels FOLDER] [--share 0.5]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent

# Seconds of each section.
SECTIONS = {"info": 40, "peaks": 75, "right": 45, "sample": 170, "load": 40, "torch": 45, "pjrt": 40}
WITHOUT_PACKAGES = ("torch",)
# What `deepbench` imports, by the names of modules; see pyproject.toml.
PACKAGES = ("numpy", "ml_dtypes", "click", "rich", "fastjsonschema", "orjson")

# Products whose time is the peak of their precision: transpositions, precision and settings. 8-bit kernels need A
# transposed.
PEAKS = (
    ("a_t=1", "bf16", "beta=0 result=narrow"),
    ("a_t=1", "f16", "beta=0 result=narrow"),
    ("a_t=1", "f8e4m3", "beta=0 result=narrow"),
    ("a_t=1", "f8e4m3", "beta=0 result=narrow accumulate=fast"),
    ("a_t=1", "i8", "beta=0"),
    ("a_t=1", "tf32", "beta=0"),
    ("a_t=1", "f32", "beta=0"),
    ("a_t=1", "f8e4m3", ""),
    ("a_t=0", "bf16", "result=narrow"),
)
SMALL = "gemm m=4096 n=16 k=4096 a_t=1 bf16 beta=0 result=narrow"
# One library for each operation, for the time is short.
LIBRARIES = {
    "cuda": {"blas": "cublaslt", "others": "cudnn,cusparse,cusparselt", "runtime": "cudart"},
    "hip": {"blas": "hipblaslt", "others": "miopen,hipsparse,hipsparselt", "runtime": "hiprt"},
}

# After a crash the rest is measured in a new process, so many times.
MOST_CRASHES = 20

TORCH = """
import json, sys
try:
    import torch
except ImportError:
    sys.exit("PyTorch is not installed here, so there is nothing to compare with")
SIZE = int(sys.argv[2])
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
    with open(sys.argv[1], "w") as file: json.dump(found, file, indent=1)
    print(json.dumps({name: value}), flush=True)
for m, n, k, calls in ((SIZE, SIZE, SIZE, 1), (1760, 7000, 1760, 20), (1760, 16, 1760, 100)):
    for kind, tf32 in ((torch.bfloat16, False), (torch.float16, False), (torch.float32, False), (torch.float32, True)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        # Column-major C = A·B + C is row-major Cᵀ = Bᵀ·Aᵀ + Cᵀ.
        a, b, c = random(k, m, kind=kind), random(n, k, kind=kind), random(n, m, kind=kind)
        say(f"gemm {m} {n} {k} {str(kind)[6:]}{' tf32' * tf32}", time(lambda: torch.addmm(c, b, a, out=c), calls))
one = torch.ones((), device="cuda")
a, b = random(SIZE, SIZE).to(torch.float8_e4m3fn), random(SIZE, SIZE).to(torch.float8_e4m3fn).t()
for fast in (False, True):
    run = lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast)
    say(f"gemm {SIZE} float8_e4m3fn to bfloat16{' fast sums' * fast}", time(run, 1))
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
"""


# ---- in the processes of peaks and right


class Alone:
    """Stands for the parent of a worker: lets it sample until it has a reason to stop."""

    def __init__(self) -> None:
        self._answers: list[dict[str, object]] = [{"slice": 0, "seconds": None}, {"rivals_s": 0.0}]

    def send(self, message: object) -> None:
        """Nobody listens."""

    def receive(self) -> dict[str, object]:
        """What to do next."""
        return self._answers.pop(0)


def small_problems(device: str) -> Iterator[list[str]]:
    """Texts of small cases, of which the first that is supported counts: the most important ones first."""
    from deepbench.core.backend import all_backends
    from deepbench.core.case import Case, check_settings
    from deepbench.core.op import find_op
    from deepbench.core.precision import find_precision

    first: list[list[str]] = []
    rest: list[list[str]] = []
    for name, backend in all_backends().items():
        for mark in backend.marks() if backend.device == device else ():
            op = find_op(mark.op)
            if op.is_group:
                continue
            for p in mark.precisions:
                for direction in mark.directions:
                    settings = [{}, *({n: v} for n, values in op.settings.items() for v in values[1:])]
                    for chosen in settings:
                        overrides = check_settings(op.name, chosen)
                        texts = [
                            Case(op.name, problem, direction, find_precision(p), name, 1, overrides).text
                            for problem in reversed(op.smoke)
                        ]
                        is_first = not chosen and direction == mark.directions[0]
                        (first if is_first else rest).append(texts)
    yield from first
    yield from rest


def measure_cases(what: str, device: str, size: int, path: Path) -> None:
    """Measure the cases of a section that `path` does not have yet, in this process; a line for each."""
    from deepbench.core.case import parse_case
    from deepbench.measuring import worker
    from deepbench.measuring.launch import Request
    from deepbench.native.gpu import timing
    from deepbench.plan.modes import QUICK, Rules

    is_peaks, rules = what == "peaks", QUICK.rules
    groups = iter([text] for text in peaks(device, size)) if is_peaks else small_problems(device)
    if not is_peaks:  # only the answers matter
        timing.RAISE_CLOCKS_S = timing.HOST_MOST_S = timing.CANDIDATE_S = 0.0
        timing.FINALISTS, timing.COMPILED_SEARCH_MOST_S = 1, 1.0
        rules = Rules(least_samples=2, least_s=0.0, most_s=0.002, warm_up_s=0.001)
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done, current = {line["asked"] for line in lines}, path.with_suffix(".current")
    with path.open("a") as file:

        def write(line: dict[str, object]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()
            if line["status"] != "ok":
                print(line["status"], line["case"], line["reason"], flush=True)

        if current.exists():  # the process that measured this case ended without an answer
            asked, text = current.read_text().splitlines()
            write({"asked": asked, "case": text, "status": "crashed", "reason": "its process ended"})
            done.add(asked)
        for texts in groups:
            if texts[0] in done:
                continue
            start = perf_counter()
            for text in texts:
                current.write_text(f"{texts[0]}\n{text}")
                record = worker.measure_alone(Request(parse_case(text), 1, rules, 60.0), Alone())  # type: ignore[arg-type]
                if record["status"] != "unsupported":
                    break
            seconds, measurement = round(perf_counter() - start, 3), record["measurement"]
            write(
                {
                    "asked": texts[0],
                    **{n: record[n] for n in ("case", "status", "reason", "check", "notes")},
                    "seconds": seconds,
                    **({"measurement": measurement} if is_peaks else {}),
                }
            )
            if is_peaks and measurement:
                samples = sorted(measurement["samples_s"])
                call_s = samples[len(samples) // 2]
                rate = f"{record['flop'] / call_s / 1e12:.4g} TFLOP/s, " if record["flop"] else ""
                print(f"{text}: {call_s:.4g} s, {rate}{record['traffic_bytes'] / call_s / 1e9:.4g} GB/s", flush=True)
    current.unlink(missing_ok=True)


def large(size: int, *words: str) -> str:
    """A product of three equal sizes."""
    return " ".join(filter(None, (f"gemm m={size} n={size} k={size}", *words)))


def peaks(device: str, size: int) -> list[str]:
    """The cases of the section peaks."""
    from deepbench.core.case import parse_case

    blas, runtime = (f"{LIBRARIES[device][part]} threads=1" for part in ("blas", "runtime"))
    texts = [large(size, a_t, "forward", precision, blas, settings) for a_t, precision, settings in PEAKS]
    return [parse_case(text).text for text in (*texts, f"memory kind=copy n={2 * size**2} forward f32 {runtime}")]


# ---- sections


def run(folder: Path, name: str, words: list[str], limit_s: float, environment: dict[str, str]) -> str:
    """Run a section; its output is kept beside what it writes. How it ended."""
    with (folder / f"{name}.log").open("a") as log:
        process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            return f"exit {process.wait(max(0.1, limit_s))}"
        except subprocess.TimeoutExpired:
            process.terminate()  # `deepbench run` then ends its workers
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            return f"stopped after {limit_s:.1f} s"


def unpacked(wheels: Path, folder: Path) -> Path:
    """A folder with the content of all wheels."""
    to = folder / "packages"
    for wheel in sorted(wheels.glob("*.whl")):
        zipfile.ZipFile(wheel).extractall(to)
    return to


def wanted(arguments: list[str] | None = None) -> argparse.Namespace:
    """The words of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--device", choices=sorted(LIBRARIES), default="cuda")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="where wheels of missing packages are")
    parser.add_argument("--share", type=float, default=1.0, metavar="X", help="multiplies the time of each section")
    parser.add_argument("--size", type=int, default=8192, metavar="N", help="of the largest products")
    parser.add_argument("--sample", default="gpu", metavar="WORDS", help="the suite, file or case of this section")
    parser.add_argument("--cases", help=argparse.SUPPRESS)  # what a process of peaks or right is started with
    words = parser.parse_args(arguments)
    if unknown := set(words.sections) - set(SECTIONS):
        parser.error(f"unknown sections: {', '.join(sorted(unknown))}; choose among {', '.join(SECTIONS)}")
    return words


def main() -> None:
    """All sections, or those named."""
    words = wanted()
    folder, device = words.folder.resolve(), words.device
    if words.cases:
        measure_cases(words.cases, device, words.size, folder / f"{words.cases}.jsonl")
        return
    folder.mkdir(parents=True, exist_ok=True)
    paths = [str(unpacked(words.wheels, folder))] if words.wheels else []
    sys.path += paths
    path = os.pathsep.join(filter(None, (str(ROOT), *paths, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path}
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        print(f"missing: {', '.join(missing)}. Install them, or put their wheels in a folder and add --wheels FOLDER.")
        print(f"Without them only {', '.join(WITHOUT_PACKAGES)} runs.", flush=True)
    deepbench, names = [sys.executable, "-m", "deepbench"], LIBRARIES[device]
    measure = [*deepbench, "run", "--device", device, "--quick", "--backend"]
    own = [sys.executable, str(Path(__file__).resolve()), str(folder), "--device", device, "--size", str(words.size)]
    libraries = ",".join(names.values())
    loads = [large(words.size, "a_t=1", p, "beta=0 result=narrow") for p in ("bf16", "f8e4m3")]
    commands = {
        "info": [*deepbench, "info", "--json"],
        "peaks": [*own, "--cases", "peaks"],
        "right": [*own, "--cases", "right"],
        "sample": [*measure, libraries, words.sample, "-o", str(folder / "sample.jsonl")],
        "load": [*measure, names["blas"], "--energy", "--sustained", *loads, SMALL],
        "torch": [sys.executable, "-c", TORCH, str(folder / "torch.json"), str(words.size)],
        "pjrt": [*deepbench, "run", "--device", device, "--backend", "pjrt", "--quick", loads[0]],
    }
    for name in ("load", "pjrt"):
        commands[name] += ["-o", str(folder / f"{name}.jsonl")]
    for name, command in commands.items():
        if words.sections and name not in words.sections:
            continue
        start = perf_counter()
        if missing and name not in WITHOUT_PACKAGES:
            how = f"left out: {', '.join(missing)} missing"
        elif (name, device) == ("torch", "hip"):
            how = "left out: its script is for CUDA"
        elif name == "pjrt" and not (ROOT / "deepbench/backends/pjrt").exists():
            how = "left out: this checkout has no backend pjrt"
        else:
            ends = start + words.share * SECTIONS[name]
            for _ in range(MOST_CRASHES):
                how = run(folder, name, command, ends - perf_counter(), environment)
                current = folder / f"{name}.current"  # exists where a process ended in the middle of a case
                if how.startswith("stopped"):
                    current.unlink(missing_ok=True)
                if not current.exists():
                    break
        last = [line for line in _lines(folder / f"{name}.log") if line.strip()][-1:]
        print(f"{name:8} {perf_counter() - start:6.1f} s  {how}{'' if how == 'exit 0' else f'  {last}'}", flush=True)
    for file in sorted(folder.glob("*.jsonl")):
        records = [line for line in map(json.loads, _lines(file)) if "status" in line]
        counts = {s: sum(r["status"] == s for r in records) for s in sorted({r["status"] for r in records})}
        print(f"{file.name:13} {counts}")


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


if __name__ == "__main__":
    main()
