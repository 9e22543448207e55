"""Checks an installed DeepBench, outside a checkout: every compiled library loads, and one case is measured.

python packaging/check_installed.py [--load-only]

Wheels, the conda package and the container run it. Only the installed package is needed. Exit code 1: a library is
missing, or the case was not measured with the compiled loop. `--load-only` measures nothing, for emulators.
"""

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import deepbench
from deepbench.core.kernel import Call, Kernel
from deepbench.native import attention, callloop, library

CASE = "gemm m=64 n=32 k=100 f32 openblas"


def missing() -> list[str]:
    """The compiled libraries that do not load: one for each C file of the package."""
    names = sorted(path.stem for path in (Path(deepbench.__file__).parent / "native").glob("*.c"))
    if not names:
        return ["the C files of the package"]
    attention.load_openmp()  # for the library that is linked to no OpenMP runtime
    return [name for name in names if library.compiled(name) is None]


def failure() -> str | None:
    """Why the case was not measured as it should be; None if it was."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.jsonl"
        command = [sys.executable, "-m", "deepbench", "run", CASE, "--quick", "-o", str(file)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if not file.exists():
            return f"deepbench run wrote no file: {done.stdout}{done.stderr}"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
    records = [line for line in lines if "case" in line]
    if [record["status"] for record in records] != ["ok"]:
        return f"the case was not measured: {records or done.stderr}"
    loop = records[0]["measurement"]["loop"]
    return None if loop == "native" else f"the case was timed by the {loop} loop, not the compiled one"


def time_of_additions() -> int | None:
    """Nanoseconds of ten calls of 100,000 additions each, timed by the compiled loop; None if it is missing."""
    loop = callloop.native_library()
    if loop is None:
        return None
    timer, _ = callloop.host_timer(Kernel(calls=(Call(loop.deepbench_additions, 100_000),)))
    return timer(10)


def main() -> int:
    """Check, and print what was found."""
    lost, time_ns = missing(), time_of_additions()
    found = "not loaded: " + ", ".join(lost) if lost else "all compiled libraries load"
    print(f"DeepBench {deepbench.__version__}, {platform.machine()}, Python {platform.python_version()}: {found}")
    if lost or time_ns is None:
        return 1
    print(f"a million additions, timed by the compiled loop: {time_ns / 1e6:.3g} ms")
    if "--load-only" in sys.argv[1:]:
        return 0
    reason = failure()
    print(reason or f"measured and checked: {CASE}")
    return int(reason is not None)


if __name__ == "__main__":
    sys.exit(main())
