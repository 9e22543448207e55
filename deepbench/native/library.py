"""Finds and loads shared libraries: the user's own path, else the newest on the system, in conda and in PyPI wheels."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from deepbench.core.errors import NO_MEMORY, Unavailable, not_loaded

# Default folders of the GPU vendors' toolkits, unless these variables name others.
TOOLKITS = {"CUDA_HOME": "/usr/local/cuda", "ROCM_PATH": "/opt/rocm"}


def remedy(on_x86: str, elsewhere: str) -> str:
    """What to do about a missing library, by the processor of this machine: some wheels are for x86-64 only."""
    return on_x86 if platform.machine().lower() in ("x86_64", "amd64") else elsewhere


def candidates(variable: str, patterns: Sequence[str]) -> list[str]:
    """Files to try, in order: if the environment variable is set, only the file in it, or those in its folder.

    Otherwise `patterns` such as `libdnnl.so*` are searched for in every folder of `roots`. Files of an earlier pattern
    come first; within a pattern, the highest version in a file's real name.
    """
    patterns = [_as_named_here(pattern) for pattern in patterns]
    named = os.environ.get(variable)
    if named and os.path.isdir(named):  # such as an unpacked wheel
        names = {os.path.basename(pattern) for pattern in patterns}
        inside = [os.path.join(glob.escape(named), "**", name) for name in names]
        found = {os.path.realpath(path) for name in inside for path in glob.iglob(name, recursive=True)}
        return sorted(found, key=lambda p: (_version(p), p), reverse=True) or [named]
    if named:
        return [named]
    files: list[str] = []
    for pattern in patterns:
        paths = {
            os.path.realpath(path) for root in roots() for path in glob.glob(os.path.join(glob.escape(root), pattern))
        }
        files += sorted(paths, key=lambda p: (_version(p), p), reverse=True)
    # The system's loader may know a plain name that no folder has, such as a driver in a container, and on macOS the
    # path of a library that is no file.
    return files + [p for p in patterns if not set(p) & set("*?[") and ("/" not in p or os.path.isabs(p))]


def _as_named_here(pattern: str) -> str:
    """On macOS shared libraries have names such as `libdnnl.3.dylib`."""
    return re.sub(r"\*?\.so\*?$", "*.dylib", pattern) if sys.platform == "darwin" else pattern


def load(
    title: str,
    variable: str,
    patterns: Sequence[str],
    needs: Sequence[str],
    remedy: str,
    accept: Callable[[str], bool] = lambda path: True,
    beside: Sequence[str] = (),
) -> ctypes.CDLL:
    """The first candidate that loads and exports one of the functions in `needs`; else `Unavailable`.

    `accept` may reject a file before it is loaded, unless the user named it. Files `beside` it are loaded first.
    """
    named = os.environ.get(variable)
    tried = []
    for path in candidates(variable, patterns):
        try:
            if not named and not accept(path):
                tried.append(f"{path}: skipped")
                continue
            load_all(os.path.dirname(path), beside)
            library = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        except (OSError, ValueError) as error:
            if NO_MEMORY.search(str(error)):
                raise not_loaded(title, error, remedy) from None
            tried.append(str(error) if path in str(error) else f"{path}: {error}")
            continue
        if not needs or first_symbol(library, needs):
            return library
        tried.append(f"{path}: has no function {' or '.join(needs)}")
    where = f"{variable}={named}" if named else f"{variable}, system, conda, wheels"
    result = "; ".join(tried) or f"no file {' or '.join(patterns)}"
    raise Unavailable(f"{title} not found (looked in {where}: {result})", remedy)


def load_all(folder: str, patterns: Sequence[str]) -> list[ctypes.CDLL]:
    """The libraries in this folder whose names match, in the order of the patterns; `OSError` if one cannot be loaded.

    Some wheels contain libraries that do not say where those are that they need. The loader finds what is loaded.
    """
    files = [file for pattern in patterns for file in sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))]
    return [ctypes.CDLL(file, mode=os.RTLD_LOCAL | os.RTLD_NOW) for file in dict.fromkeys(map(os.path.realpath, files))]


def roots() -> list[str]:
    """Folders of shared libraries: LD_LIBRARY_PATH, conda, the system, toolkits, this Python and its packages."""
    machine = os.uname().machine
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders += [os.path.join(p, "lib") for p in (os.environ.get("CONDA_PREFIX"),) if p]
    folders += [
        "/usr/local/lib",
        f"/usr/lib/{machine}-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/lib/wsl/lib",
        "/opt/homebrew/lib",
    ]
    toolkits = [os.environ.get(name) or default for name, default in TOOLKITS.items()]
    folders += [os.path.join(toolkit, lib) for toolkit in toolkits for lib in ("lib64", "lib")]
    folders += [os.path.join(sys.prefix, "lib")]
    folders += [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    return [f for f in dict.fromkeys(folders) if os.path.isdir(f)]


def _version(path: str) -> tuple[int, ...]:
    """`libdnnl.so.3.2` → (3, 2)."""
    tail = re.search(r"\.so\.([0-9.]+)$", path)
    return tuple(int(n) for n in tail[1].split(".") if n) if tail else ()


def path_of(library: ctypes.CDLL, symbol: str) -> str | None:
    """The file that a symbol was loaded from, according to the dynamic linker."""
    info = (ctypes.c_char_p * 4)()  # Dl_info: four pointers, the first one to the name of the file
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p)
    if not ctypes.CDLL(None).dladdr(address, info) or not info[0]:
        return None
    return os.path.realpath(os.fsdecode(info[0]))


def first_symbol(library: ctypes.CDLL, names: Sequence[str]) -> ctypes._NamedFuncPointer | None:
    """The first of these functions that the library exports, or None."""
    return next((library[name] for name in names if hasattr(library, name)), None)


def openmp_threads(library: ctypes.CDLL) -> int | None:
    """The threads of the OpenMP runtime that a loaded library is linked to; None if there is none.

    The linker looks a symbol up in the library and in what it depends on, so no second runtime is loaded.
    """
    threads = first_symbol(library, ("omp_get_max_threads",))
    return None if threads is None else int(threads())


def openmp_runtime() -> str | None:
    """The file of an OpenMP runtime that this process has loaded; None if there is none."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found = re.search(r" (/.*/lib(?:gomp|iomp5|omp)[^/\s]*\.so[.0-9]*)$", maps.read(), re.MULTILINE)
    return found[1] if found else None


def own_openmp() -> str | None:
    """The file of the OpenMP runtime in our wheel; None in a checkout, whose loops use the runtime of the system.

    auditwheel puts a copy beside the package, and links those loops to it that are linked to OpenMP.
    """
    files = sorted((Path(__file__).parents[2] / "deepbench_kernels.libs").glob("libgomp-*.so*"))
    return str(files[0]) if files else None


def threads_of_case() -> int:
    """For libraries that are told by a call: DeepBench sets this variable. Without it, as many as there are CPUs."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    if text.isdecimal() and int(text):
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def version_text(number: int, unit: int = 10000) -> str:
    """A version in one number: 130100 → 13.1.0, or with `unit` 1000, 12601 → 12.6.1."""
    return f"{number // unit}.{number // 100 % (unit // 100)}.{number % 100}"


def c_function(name: str) -> ctypes._NamedFuncPointer:
    """A function of the C library."""
    return ctypes.CDLL(None)[name]


def compiled(name: str) -> ctypes.CDLL | None:
    """Our own C code from this folder; None if it was not built, or built for another machine."""
    folder = Path(__file__).parent
    # Older checkouts have names with the ABI of a Python. Where both are there, the plain name is the newer one.
    for path in (folder / f"_{name}.so", *sorted(folder.glob(f"_{name}.*.so"))):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(str(path))
    return None
