"""All errors that the package raises deliberately.

    DeepBenchError
    ├── BadInput           an argument or a file from the user is invalid: one sentence, exit code 64
    ├── Unavailable        a library or device is missing: reason and remedy
    ├── Unsupported        the library is present but does not support the case
    ├── OutOfMemory        the case does not fit into memory, or an allocation failed
    ├── ClockFault         the time of a case cannot be trusted
    └── LibraryError       a C function returned an error status

Only `cli/` turns `BadInput` into an exit code. All the others become the reason in the record of one case.
"""

from __future__ import annotations

import re
import resource
from typing import Literal


class DeepBenchError(Exception):
    """Base class of all errors that the package raises deliberately."""

    record_status: Literal["crashed", "unavailable", "unsupported", "out_of_memory", "wrong"] = "crashed"
    """The status of the record of a case that ends with this error."""


class BadInput(DeepBenchError):
    """An argument or a file is invalid. The text says what was expected, what was found, and what to do."""


class Unavailable(DeepBenchError):
    """A library or device is missing."""

    record_status = "unavailable"

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


class Unsupported(DeepBenchError):
    """The library is present but does not support this case. The text is the reason."""

    record_status = "unsupported"


class OutOfMemory(DeepBenchError):
    """The case needs more memory than is free. The text gives the numbers."""

    record_status = "out_of_memory"


class ClockFault(DeepBenchError):
    """The device or its interface does not do what the clock relies on, so there is no time. The text is the reason."""

    record_status = "wrong"


# What Python, the loader and libraries say where an allocation failed. (A mount without `exec` fails to map, too, and
# the space for static TLS is short whatever the memory.)
NO_MEMORY = re.compile(
    r"bad_alloc|cannot allocate memory(?! in static tls)|out of memory|memory allocation|memoryerror|"
    r"failed to map segment from shared object(?!: operation not permitted)",
    re.IGNORECASE,
)
MORE_MEMORY = "free some memory, or raise its limit (ulimit -v, the container)"

# What an import raises where a package or a library that it needs is missing, damaged, or gets no memory.
IMPORT_ERRORS = (ImportError, OSError, MemoryError, SystemError)


def not_loaded(title: str, error: BaseException, remedy: str) -> Unavailable:
    """Why something that this error kept from loading is not available: is it missing, or did it get no memory?"""
    text = str(error) or type(error).__name__
    if isinstance(error, MemoryError) or NO_MEMORY.search(text):
        return Unavailable(f"{title} does not load for lack of memory ({text})", MORE_MEMORY)
    if isinstance(error, ModuleNotFoundError):
        return Unavailable(f"{title} not found ({text})", remedy)
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes != resource.RLIM_INFINITY:
        text += f"; its address space is limited to {limit_bytes / 2**30:.3g} GiB, and then errors may mean anything"
        remedy = f"raise that limit (ulimit -v unlimited); if this does not help, {remedy}"
    return Unavailable(f"{title} does not load ({text})", remedy)


class LibraryError(DeepBenchError):
    """A C function of a library returned an error status."""

    def __init__(self, library: str, call: str, status: int, text: str) -> None:
        super().__init__(f"{library}: {call} returned {status} ({text})")
        self.call = call
        self.status = status


def shorten(text: str, most: int = 60) -> str:
    """`text`, truncated to `most` characters with an ellipsis, for quoting in messages."""
    return text if len(text) <= most else text[: most - 1] + "…"
