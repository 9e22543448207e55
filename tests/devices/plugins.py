"""Where real PJRT plug-ins for CPUs are, for tests."""

import importlib.util
import os
from pathlib import Path

PACKAGES = ("xla_plugins", "lammps_jax_pjrt_cpu")


def plugins():
    """Files that `DEEPBENCH_TEST_PJRT` names, else those of installed packages."""
    if named := os.environ.get("DEEPBENCH_TEST_PJRT"):
        return named.split(os.pathsep)
    found = []
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            found += [str(path) for path in sorted(Path(folder).rglob("*cpu*.so"))]
    return found
