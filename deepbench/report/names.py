"""Names for people."""

from __future__ import annotations

from deepbench.core.backend import all_backends


def library_name(backend: str) -> str:
    """The library as its makers spell it; the word itself where this machine has no such backend."""
    known = all_backends()
    return known[backend].title if backend in known else backend
