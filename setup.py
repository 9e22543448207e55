"""Builds small C libraries, if a C compiler is there. pyproject.toml has no such optional parts."""

import os
from glob import glob

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# Loops for many threads, each in a library of its own.
LOOPS = ("memory", "layers", "elementwise", "moves", "weight_only")

# They are rebuilt if one of these changes.
HEADERS = sorted(glob("deepbench/native/*.h"))


class BuildLibraries(build_ext):
    """Names them without the ABI of a Python: `_callloop.so`. None of them knows Python."""

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + ".so"


class BuildWheel(bdist_wheel):
    """One wheel per platform for every Python: its libraries are loaded with ctypes."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"build_ext": BuildLibraries, "bdist_wheel": BuildWheel},
    ext_modules=[
        # All are loaded with ctypes, so that no Python headers are needed.
        *(
            Extension(
                f"deepbench.native._{name}", [f"deepbench/native/{name}.c"], extra_compile_args=["-O2"], optional=True
            )
            for name in ("callloop", "pjrt")
        ),
        *(
            Extension(
                f"deepbench.native._{name}",
                [f"deepbench/native/{name}.c"],
                # Square roots that set errno are not vectors.
                extra_compile_args=["-O3", "-fno-math-errno", "-fopenmp"],
                extra_link_args=["-fopenmp"],
                depends=HEADERS,
                optional=True,
            )
            for name in LOOPS
        ),
        Extension(
            "deepbench.native._attention",
            ["deepbench/native/attention.c"],
            # Not linked to an OpenMP runtime: it uses the one of the library that it works with.
            extra_compile_args=["-O3", "-fopenmp"],
            depends=HEADERS,
            optional=True,
        ),
    ],
)
