"""Everything that can go wrong on purpose.

    DeepBenchError
    ├── BadInput           a word or a file from a person is wrong: one sentence, exit code 64
    ├── Unavailable        a library or device is not here: reason and remedy
    ├── Unsupported        the library is here, this case is not for it
    ├── OutOfMemory        the case does not fit, or an allocation failed
    └── LibraryError       a C function returned a bad status

Only `cli/` turns a `BadInput` into an exit code; all the others end in the record of one case.
"""

from __future__ import annotations


class DeepBenchError(Exception):
    """Base of every error that this package raises on purpose."""


class BadInput(DeepBenchError):
    """A word on the command line or a file cannot be used; the text says wanted, found and remedy."""


class Unavailable(DeepBenchError):
    """A library or device is not here."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


class Unsupported(DeepBenchError):
    """The library is here but does not serve this case; the text is the reason."""


class OutOfMemory(DeepBenchError):
    """The case needs more memory than there is; the text gives the numbers."""


class LibraryError(DeepBenchError):
    """A C function of a library returned a status that is not success."""

    def __init__(self, library: str, call: str, status: int, text: str) -> None:
        super().__init__(f"{library}: {call} returned {status} ({text})")
        self.library = library
        self.call = call
        self.status = status


def shorten(text: str, most: int = 60) -> str:
    """`text`, cut with an ellipsis: messages quote what was found, however long."""
    return text if len(text) <= most else text[: most - 1] + "…"
