"""Builds small C libraries, if a C compiler is there. pyproject.toml has no such optional parts."""

from glob import glob

from setuptools import Extension, setup

# Loops for many threads, each in a library of its own.
LOOPS = ("memory", "layers", "elementwise", "moves", "weight_only")

# They are rebuilt if one of these changes.
HEADERS = sorted(glob("deepbench/native/*.h"))

setup(
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
    ]
)
