"""Find and load a shared library: a path the user names, else the newest of system, conda and PyPI wheels."""

from __future__ import annotations

import ctypes
import glob
import os
import re
import sys
from collections.abc import Callable, Sequence

from deepbench.core.errors import Unavailable

# Where the makers of GPUs install by default, unless these variables say otherwise.
TOOLKITS = {"CUDA_HOME": "/usr/local/cuda", "ROCM_PATH": "/opt/rocm"}


def candidates(variable: str, patterns: Sequence[str]) -> list[str]:
    """Files to try, in order.

    `variable` is the environment variable with the user's own path, which is then the only candidate. `patterns`
    are glob patterns such as `libdnnl.so*`, looked for in every folder of `roots`; within one pattern the highest
    version in a file's real name comes first, and a later pattern comes after all of an earlier one.
    """
    named = os.environ.get(variable)
    if named:
        return [named]
    found: list[str] = []
    for pattern in patterns:
        paths = {
            os.path.realpath(path) for root in roots() for path in glob.glob(os.path.join(glob.escape(root), pattern))
        }
        found += sorted(paths, key=lambda p: (_version(p), p), reverse=True)
    # A plain name may be known to the system's loader alone, as drivers in containers are.
    return found + [p for p in patterns if not set(p) & set("*?[/")]


def load(
    title: str,
    variable: str,
    patterns: Sequence[str],
    needs: Sequence[str],
    remedy: str,
    accept: Callable[[str], bool] = lambda path: True,
) -> ctypes.CDLL:
    """The first candidate that loads and exports one of the functions `needs`; else `Unavailable`, with what was tried.

    `accept` may turn a file down before it is loaded, unless the user named it.
    """
    named = os.environ.get(variable)
    tried = []
    for path in candidates(variable, patterns):
        try:
            if not named and not accept(path):
                tried.append(f"{path}: passed over")
                continue
            library = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        except (OSError, ValueError) as error:
            tried.append(str(error) if path in str(error) else f"{path}: {error}")
            continue
        if not needs or any(hasattr(library, name) for name in needs):
            return library
        tried.append(f"{path}: has no function {' or '.join(needs)}")
    where = f"{variable}={named}" if named else f"{variable}, system, conda, wheels"
    found = "; ".join(tried) or f"no file {' or '.join(patterns)}"
    raise Unavailable(f"{title} not found (looked in {where}: {found})", remedy)


def roots() -> list[str]:
    """Folders that hold shared libraries: the loader's path, conda, the system, the Python prefix, site-packages."""
    machine = os.uname().machine
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders += [os.path.join(p, "lib") for p in (os.environ.get("CONDA_PREFIX"),) if p]
    folders += ["/usr/local/lib", f"/usr/lib/{machine}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib"]
    toolkits = [os.environ.get(name) or usual for name, usual in TOOLKITS.items()]
    folders += [os.path.join(toolkit, lib) for toolkit in toolkits for lib in ("lib64", "lib")]
    folders += [os.path.join(sys.prefix, "lib")]
    folders += [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    return [f for f in dict.fromkeys(folders) if os.path.isdir(f)]


def _version(path: str) -> tuple[int, ...]:
    """`libdnnl.so.3.2` → (3, 2)."""
    tail = re.search(r"\.so\.([0-9.]+)$", path)
    return tuple(int(n) for n in tail[1].split(".") if n) if tail else ()


def path_of(library: ctypes.CDLL, symbol: str) -> str | None:
    """The file that `symbol` was really loaded from, by the dynamic linker's word."""

    class DlInfo(ctypes.Structure):
        _fields_ = (
            ("file_name", ctypes.c_char_p),
            ("base", ctypes.c_void_p),
            ("symbol", ctypes.c_char_p),
            ("address", ctypes.c_void_p),
        )

    info = DlInfo()
    dladdr = ctypes.CDLL(None).dladdr
    if not dladdr(ctypes.cast(getattr(library, symbol), ctypes.c_void_p), ctypes.byref(info)):
        return None
    return os.path.realpath(os.fsdecode(info.file_name)) if info.file_name else None


def first_symbol(library: ctypes.CDLL, names: Sequence[str]) -> ctypes._NamedFuncPointer | None:
    """The first of these functions that the library exports, or None."""
    for name in names:
        if hasattr(library, name):
            return library[name]
    return None
