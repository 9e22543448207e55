"""The kernels of a network in the logs of the libraries that ran it: oneDNN, rocBLAS, hipBLASLt, MIOpen and cuDNN.

A log says what was called, in which order and with which sizes. It does not say which arrays are the same, so a trace
of it has no buffers, and it knows nothing of operators that a framework computes itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from deepbench.core.errors import BadInput, shorten
from deepbench.core.files import read_regular
from deepbench.core.json_lines import printable
from deepbench.networks.traces.logs import Logged, cudnn, onednn, rocm
from deepbench.networks.traces.recorder import Recorder
from deepbench.networks.traces.trace import MOST_CALLS, Trace, TracedCall

LARGEST_BYTES = 256 * 2**20

# Longer lines are no line of these logs.
MOST_CHARACTERS = 100_000

WANTED = (
    "wanted the log of a library: of oneDNN (ONEDNN_VERBOSE=1), rocBLAS (ROCBLAS_LAYER=2), "
    "hipBLASLt (HIPBLASLT_LOG_MASK=32), MIOpen (MIOPEN_ENABLE_LOGGING_CMD=1) or cuDNN (CUDNN_LOGLEVEL_DBG=3)"
)


def trace_log(path: Path, steps: int = 1, title: str | None = None) -> Trace:
    """The calls in a log of so many `steps` of a network, of one step.

    What was not understood is in the source of the trace, with its first line. `BadInput` if nothing was understood, or
    if the steps are not alike.
    """
    content = read_regular(path, LARGEST_BYTES, "the log of a library")
    name = printable(path.name)
    return trace_log_text(content.decode("utf-8", errors="replace"), title or printable(path.stem), name, steps)


def trace_log_text(text: str, title: str, source: str, steps: int = 1) -> Trace:
    """The same from the text of a log."""
    if steps < 1:
        raise BadInput(f"steps must be at least 1, found {steps}")
    found, reasons = list[Logged](), list[str]()
    for entry in _entries(text):
        if isinstance(entry, Logged):
            found.append(entry)
        else:
            reasons.append(entry)
    if not found:
        raise BadInput(f"{source}: {WANTED}" + (f"; the first line of one: {reasons[0]}" if reasons else ""))
    if len(found) > MOST_CALLS * steps:
        raise BadInput(f"{source} has {len(found)} calls; a trace has at most {MOST_CALLS}; shorten the log")
    one = _one_step(found, steps, source)
    notes = [f"{source}, log of {steps} steps" if steps > 1 else f"{source}, log"]
    if fused := sum(entry.is_fused for entry in one):
        notes.append(f"{fused} calls do more than their kernels")
    if reasons:
        lines = "1 line was" if len(reasons) == 1 else f"{len(reasons)} lines were"
        notes.append(f"{lines} not understood, the first: {shorten(printable(reasons[0]), 200)}")
    record = Recorder([TracedCall(entry.operator, entry.kernel, "", (), (), entry.bytes) for entry in one])
    is_training = any(" backward" in entry.kernel for entry in one if entry.kernel)
    return record.trace(title, "; ".join(notes), is_training, None)


def _entries(text: str) -> Iterator[Logged | str]:
    """The calls of a log in their order; of those that are not understood the line and the reason."""
    block, first = None, ""
    for line in text.splitlines():
        if len(line) > MOST_CHARACTERS:
            continue
        if block is not None and block.add(line):
            continue
        if block is not None:
            yield from _block(block, first)
        block, first = cudnn.starts(line), line
        try:
            if onednn.is_line(line):
                yield onednn.read(line)
            elif rocm.is_line(line):
                yield from rocm.read(line)
        except (BadInput, ValueError, LookupError, ArithmeticError) as error:
            yield f"{shorten(line.strip(), 120)} ({error})"
    if block is not None:
        yield from _block(block, first)


def _block(block: cudnn.CudnnCall, line: str) -> Iterator[Logged | str]:
    if cudnn.is_work(block):
        try:
            yield cudnn.read(block)
        except (BadInput, ValueError, LookupError, ArithmeticError) as error:
            yield f"{shorten(line.strip(), 120)} ({error})"


def _one_step(found: list[Logged], steps: int, source: str) -> list[Logged]:
    """The calls of one step: of each as many as there are in all, divided by the number of steps."""
    counts = Counter(found)
    for entry, count in counts.items():
        if count % steps:
            what = entry.kernel or entry.operator
            raise BadInput(
                f"{source}: {shorten(what, 120)} is called {count} times in {steps} steps, so the steps are not alike; "
                "state how many steps the log has, and leave out what runs before the first"
            )
    left = {entry: count // steps for entry, count in counts.items()}
    one = []
    for entry in found:
        if left[entry]:
            left[entry] -= 1
            one.append(entry)
    return one
