"""The kernels of a network in the logs of the libraries that ran it: oneDNN, rocBLAS, hipBLASLt, MIOpen and cuDNN.

A log says what was called, in which order and with which sizes. It does not say which arrays are the same, so a trace
of it has no buffers, and it knows nothing of operators that a framework computes itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from deepbench.core.errors import BadInput, shorten
from deepbench.core.foreign_text import read_text
from deepbench.core.json_lines import printable
from deepbench.networks.traces.logs import Logged, cudnn, onednn, rocm
from deepbench.networks.traces.logs.lines import FoundCall, LogText
from deepbench.networks.traces.recorder import Recorder
from deepbench.networks.traces.trace import MOST_CALLS, Trace, TracedCall

# Some 8 s, whatever is in it. A step of a network has some 10,000 calls of 200 bytes.
LARGEST_BYTES = 16 * 2**20

# Each is read and counted in some 1 ms.
MOST_DIFFERENT = 8_000

WANTED = (
    "wanted the log of a library: of oneDNN (ONEDNN_VERBOSE=1), rocBLAS (ROCBLAS_LAYER=2), "
    "hipBLASLt (HIPBLASLT_LOG_MASK=32), MIOpen (MIOPEN_ENABLE_LOGGING_CMD=1) or cuDNN (CUDNN_LOGLEVEL_DBG=3)"
)


def trace_log(path: Path, steps: int = 1, title: str | None = None) -> Trace:
    """The calls in a log of so many `steps` of a network, of one step.

    What was not understood is in the notes of the trace, with its first line. `BadInput` if nothing was understood, or
    if the steps are not alike.
    """
    text = read_text(path, LARGEST_BYTES, "the log of a library")
    return trace_log_text(text, title or printable(path.stem), printable(path.name), steps)


def trace_log_text(text: str, title: str, source: str, steps: int = 1) -> Trace:
    """The same from the text of a log."""
    if steps < 1:
        raise BadInput(f"steps must be at least 1, found {steps}")
    found, reasons = list[Logged](), list[str]()
    log = LogText(text)
    for entry in _entries(log):
        if isinstance(entry, Logged):
            found.append(entry)
        else:
            reasons.append(entry)
        if len(found) + len(reasons) > MOST_CALLS * steps:
            raise BadInput(f"{source} has more than {MOST_CALLS * steps} calls; a step has at most {MOST_CALLS}")
    left_out = _left_out(reasons, log.comments)
    if not found:
        reason = f"no call was understood: {'; '.join(left_out)}" if left_out else WANTED
        raise BadInput(f"{source}: {reason}")
    one = _one_step(found, steps, source)
    kind = f"log of {steps} steps" if steps > 1 else "log"
    calls = [TracedCall(entry.operator, entry.kernel, "", (), (), entry.bytes) for entry in one]
    notes = Counter(note for entry in one for note in entry.notes)
    record = Recorder(calls, notes=notes, remarks=dict.fromkeys(left_out))
    is_training = any(" backward" in entry.kernel for entry in one if entry.kernel)
    return record.trace(title, f"{source}, {kind}", is_training, None)


def _left_out(reasons: list[str], comments: int) -> list[str]:
    """Sentences about what does not count."""
    left_out = []
    if reasons:
        calls = "1 call was" if len(reasons) == 1 else f"{len(reasons)} calls were"
        left_out.append(f"{calls} not understood, the first: {shorten(printable(reasons[0]), 400)}")
    if comments:
        left_out.append(f"{comments} call{'s' if comments > 1 else ''} in comments left out")
    return left_out


def _entries(log: LogText) -> Iterator[Logged | str]:
    """The calls of a log in their order; of those that are not understood the line and the reason.

    A network calls the same again and again, so each different line is read once.
    """
    known: dict[str, Sequence[Logged] | str] = {}
    for call in log:
        key = call.text
        if call.library == "onednn":
            if not onednn.is_execution(key):
                continue
            key = onednn.without_time(key)
        entries = known.get(key)
        if entries is None:
            if len(known) == MOST_DIFFERENT:
                raise BadInput(f"the log has more than {MOST_DIFFERENT} different calls; shorten it")
            entries = known[key] = _understood(call)
        if isinstance(entries, str):
            yield entries
        else:
            yield from entries


def _understood(call: FoundCall) -> Sequence[Logged] | str:
    """The kernels of a call, or its line and the reason why it is not understood."""
    try:
        match call.library:
            case "onednn":
                return [onednn.read(call.text)]
            case "rocm":
                return rocm.read(call.text)
            case "cudnn":
                block = cudnn.block_of(call)
                return [cudnn.read(block)] if cudnn.is_work(block) else []
    except (BadInput, ValueError, LookupError, ArithmeticError) as error:
        first = call.text.partition("\n")[0]
        return f"{shorten(first.strip(), 120)} ({error})"


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
