"""The one thing pyproject.toml cannot say: build the timing loop where a C compiler is there, and go on without."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        # No Python header is needed: the library is loaded with ctypes.
        Extension(
            "deepbench.native._callloop", ["deepbench/native/callloop.c"], extra_compile_args=["-O2"], optional=True
        )
    ]
)
