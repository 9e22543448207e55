"""OpenBLAS that is slower by a known amount, made by `benchmarks/slowed.c`."""

import glob
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "benchmarks" / "slowed.c"


def real():
    """The OpenBLAS of the package index; the test is skipped without it."""
    found = glob.glob(os.path.join(sysconfig.get_path("purelib"), "scipy_openblas64/lib/libscipy_openblas64_*.so*"))
    if not found or shutil.which("cc") is None:
        pytest.skip("needs a C compiler, and scipy-openblas64: pip install scipy-openblas64")
    return Path(sorted(found)[0])


def command(target, percent=0, nanoseconds=0, source=SOURCE):
    """What compiles it."""
    library = real()
    return [
        *("cc", "-O2", "-shared", "-fPIC", "-DFUNCTION=scipy_sgemm_64_", f'-DREAL="{library}"', f"-DPERCENT={percent}"),
        *(f"-DNANOSECONDS={nanoseconds}", str(source), "-o", str(target), "-Wl,--no-as-needed", str(library)),
        *(f"-Wl,-rpath,{library.parent}", "-ldl"),
    ]


def compiled(target, percent=0, nanoseconds=0):
    """Compile it; the path."""
    subprocess.run(command(target, percent, nanoseconds), check=True)
    return target
