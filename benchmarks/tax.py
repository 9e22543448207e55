"""Harness tax: our samples against a plain C loop on the same call, sample by sample in one process.

Each process prepares one case, then takes samples in turn by our code (`measure.take_sample` with the compiled loop,
evidence read around each) and by the typed loop of `plain_loop.c`. Printed is the ratio ours / plain of the medians,
and its interval over fresh processes. Last: what one call costs in the loop itself, compiled and in Python.

Run: python benchmarks/tax.py [PROCESSES]     needs a C compiler
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from deepbench.core import stats, units
from deepbench.core.backend import find_backend
from deepbench.core.case import Case, parse_case
from deepbench.core.errors import Unavailable
from deepbench.core.kernel import Kernel
from deepbench.core.op import find_op
from deepbench.machine import describe
from deepbench.measuring import launch
from deepbench.measuring.clock import SystemClock, _warm_up, take_sample
from deepbench.native import callloop
from deepbench.plan.modes import RIGOROUS

HERE = Path(__file__).parent

# About 5 µs, 20 µs, 100 µs, 1 ms, 10 ms and 50 ms on two cores of a server of 2021.
SHAPES = ((48, 48, 96), (128, 96, 128), (256, 128, 256), (512, 256, 768), (1024, 768, 1024), (2048, 1024, 2048))
# Convolutions and an LSTM from about 20 µs up: oneDNN's primitive, executed by a typed loop as a C program would.
OTHERS = (
    "conv n=1 c=64 h=14 w=14 k=64 r=1 s=1",
    "conv n=1 c=64 h=28 w=28 k=64 r=3 s=3 pad_h=1 pad_w=1",
    "conv n=8 c=64 h=54 w=54 k=64 r=3 s=3 pad_h=1 pad_w=1",
    "recurrent cell=lstm hidden=64 batch=2 timesteps=10",
    "recurrent cell=lstm hidden=512 batch=4 timesteps=25",
)
# A session of ONNX Runtime, about 1 µs and 5 µs on one core.
SESSIONS = ("gemm m=8 n=8 k=8 a_t=0 b_t=0", "gemm m=64 n=64 k=64 a_t=0 b_t=0")
SAMPLES = 60


def build(folder: str) -> str:
    """Compile the plain loops; the path of the library."""
    path = f"{folder}/plain_loop.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(HERE / "plain_loop.c"), "-o", path], check=True)
    return path


def one_process(text: str, plain_path: str) -> tuple[float, float]:
    """Median seconds a call of our samples and of the plain loop's, taken in turn."""
    c = parse_case(text)
    arrays = find_op(c.op).operands(c)
    library = find_backend(c.backend)
    library.open()
    kernel = library.prepare(c, arrays)
    kernel.load()
    timer, kind = callloop.timer(kernel)
    assert kind == "native", "no compiled loop; install with a C compiler"
    clock = SystemClock(timer)
    plain = _plain(ctypes.CDLL(plain_path), c, kernel, arrays)
    first = take_sample(clock, 1)
    calls, _, _ = _warm_up(clock, RIGOROUS.rules, first.call_s, is_typical=True)
    ours, theirs = [], []
    for i in range(SAMPLES):
        # The order changes from pair to pair, so that neither is always the one after a pause.
        for which in ((0, 1), (1, 0))[i % 2]:
            if which:
                ours.append(take_sample(clock, calls).call_s)
            else:
                theirs.append(plain(calls) / calls / 1e9)
    return median(ours), median(theirs)


def _plain(library: ctypes.CDLL, c: Case, kernel: Kernel, arrays: dict[str, Any]) -> Callable[[int], int]:
    """The typed C loop on the same call: calls → nanoseconds."""
    call = kernel.calls[0]
    words = [ctypes.c_void_p(w) for w in call.words]
    if c.backend == "onednn":
        function = library.plain_execute
        before = [ctypes.c_void_p(call.address), words[0], words[1], ctypes.c_int(call.words[2]), words[3]]
    elif c.backend == "onnxruntime":
        function, before = library.plain_run, [ctypes.c_void_p(call.address), *words]
    else:
        function, p = library.plain_sgemm, c.problem
        sizes = [ctypes.c_int64(x) for x in (p.m, p.n, p.k)]
        operands = [ctypes.c_void_p(arrays[x].ctypes.data) for x in "abc"]
        before = [ctypes.c_void_p(call.address), *sizes, *operands]
    function.restype = ctypes.c_int64
    return lambda calls: function(*before, ctypes.c_int64(calls))


def _is_here(name: str) -> bool:
    """Whether a library that is not installed everywhere can be opened."""
    try:
        find_backend(name).open()
    except Unavailable:
        return False
    return True


def loop_cost(python: bool) -> float:
    """Seconds a call of an empty function with thirteen arguments, compiled loop or Python's."""
    c = parse_case("gemm m=1 n=1 k=1 forward f32 null threads=1")
    kernel = find_backend("null").prepare(c, {})
    if python:
        call = kernel.calls[0]
        arguments = callloop.python_arguments(call)
        timer = callloop._python_timer([(call.function, arguments, False)])
    else:
        timer, _ = callloop.timer(Kernel(calls=kernel.calls))
    timer(1000)
    return median(timer(20_000) / 20_000 / 1e9 for _ in range(21))


def main() -> None:
    """Print one line per shape and library."""
    if len(sys.argv) == 4:
        print(json.dumps(one_process(*sys.argv[2:])))
        return
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    threads = describe.default_threads()
    print(f"{'case':100} {'plain C':>9} {'ours/plain':>10}  interval")
    with tempfile.TemporaryDirectory() as folder:
        path = build(folder)
        environment = launch.worker_environment(threads, "none", [], os.environ)
        texts = [
            f"gemm m={m} n={n} k={k} a_t=0 b_t=0 forward f32 {name} threads={threads}"
            for m, n, k in SHAPES
            for name in ("onednn", "mkl")
        ]
        # In the library's own format, so that one primitive is one call.
        own_format = {"conv": "layout=any", "recurrent": "weights=packed"}
        texts += [f"{text} forward f32 onednn threads={threads} {own_format[text.split()[0]]}" for text in OTHERS]
        if _is_here("onnxruntime"):
            texts += [f"{text} forward f32 onnxruntime threads=1 beta=0" for text in SESSIONS]
        pairs: dict[str, list[tuple[float, float]]] = {text: [] for text in texts}
        for _ in range(processes):
            for text in texts:
                words = [sys.executable, __file__, "one", text, path]
                done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
                pairs[text].append(json.loads(done.stdout))
        for text, found in pairs.items():
            ratios = [ours / theirs for ours, theirs in found]
            low, high = stats.median_interval(ratios) or (min(ratios), max(ratios))
            time = stats.lower_quartile([theirs for _, theirs in found])
            print(f"{text:100} {units.seconds(time):>9} {median(ratios):10.4f}  {low:.4f} to {high:.4f}", flush=True)
    print(f"empty call with 13 arguments: compiled loop {units.seconds(loop_cost(False))}, ", end="")
    print(f"Python {units.seconds(loop_cost(True))}")


if __name__ == "__main__":
    main()
