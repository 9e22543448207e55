"""The one thing pyproject.toml cannot say: build two small C libraries where a compiler is there, and go on without."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        # No Python header is needed: both are loaded with ctypes.
        Extension(
            "deepbench.native._callloop", ["deepbench/native/callloop.c"], extra_compile_args=["-O2"], optional=True
        ),
        Extension(
            "deepbench.native._memory",
            ["deepbench/native/memory.c"],
            extra_compile_args=["-O3", "-fopenmp"],
            extra_link_args=["-fopenmp"],
            optional=True,
        ),
    ]
)
