"""Time on the card's own clock.

Up to 50 µs a call: one captured graph of all calls, so that neither Python nor the driver is between them. Up to 5 ms:
calls put into a stream that is held back, then let go, between two events. Longer: between two events as they come.
`docs/gpu.md` argues the numbers.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

from deepbench.errors import LibraryError, OutOfMemory, Unsupported

if TYPE_CHECKING:
    from deepbench.backend import Kernel
    from deepbench.native.gpu.device import Gpu

GRAPH_BELOW_S = 50e-6
STALL_BELOW_S = 5e-3

# A driver takes about a thousand launches before it makes the host wait, which would never end in a stalled stream.
MOST_STALLED_CALLS = 400
# And a call may be many launches, or wait for the card itself: then the stall is let go and not used again.
STALL_MOST_S = 0.25

# Calls that the host waits for one by one, for the time a user sees.
HOST_CALLS, HOST_MOST_S = 20, 0.1

# Choosing an algorithm: seconds in all, and for one candidate beside its two first calls.
SEARCH_MOST_S = 2.0
CANDIDATE_S = 2e-3


class DeviceTimer:
    """Repeats → nanoseconds that they took on the card together."""

    def __init__(self, gpu: Gpu, enqueue: Callable[[int], int], calls: int) -> None:
        self._gpu, self._enqueue, self._calls = gpu, enqueue, calls
        self._call_s: float | None = None
        self._graphs: dict[int, Any] = {}
        self._no_graph: str | None = None
        self._start, self._end = self._event(), self._event()
        self.clock = "events"
        """How the last sample was taken: `graph`, `stalled events` or `events`."""

    def __call__(self, repeats: int) -> int:
        calls = repeats * self._calls
        if self._call_s is None:
            self.clock = "events"
        elif self._call_s < GRAPH_BELOW_S and self._no_graph is None:
            self.clock = "graph"
        elif self._call_s < STALL_BELOW_S and calls <= MOST_STALLED_CALLS and self._gpu.stall.usable:
            self.clock = "stalled events"
        else:
            self.clock = "events"
        elapsed = self._graph(repeats) if self.clock == "graph" else self._between(lambda: self._enqueue(repeats))
        self._call_s = elapsed / 1e9 / calls
        return max(1, round(elapsed))

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self._gpu.call("cudaEventCreateWithFlags", ctypes.byref(event), 0)
        return event

    def _between(self, enqueue: Callable[[], object]) -> float:
        """Nanoseconds between two events around what `enqueue` puts into the stream."""
        gpu = self._gpu
        held = self.clock != "events" and gpu.stall.usable and self._hold()
        if self.clock == "stalled events" and not held:
            self.clock = "events"
        try:
            gpu.call("cudaEventRecord", self._start, gpu.stream)
            enqueue()
            gpu.call("cudaEventRecord", self._end, gpu.stream)
        finally:
            if held:
                self._watch.cancel()
                gpu.stall.release()
        gpu.call("cudaEventSynchronize", self._end)
        if held and not gpu.stall.usable and self.clock == "stalled events":
            self.clock = "events"  # it was let go before everything was in the stream
        milliseconds = ctypes.c_float()
        gpu.call("cudaEventElapsedTime", ctypes.byref(milliseconds), self._start, self._end)
        return milliseconds.value * 1e6

    def _hold(self) -> bool:
        gpu = self._gpu
        gpu.synchronize()
        if not gpu.stall.begin():
            return False
        reason = f"putting the calls into a held stream took over {STALL_MOST_S} s"
        self._watch = threading.Timer(STALL_MOST_S, gpu.stall.give_up, (reason,))
        self._watch.daemon = True
        self._watch.start()
        return True

    def _graph(self, repeats: int) -> float:
        if repeats not in self._graphs:
            try:
                made = self._capture(repeats)
            except (LibraryError, Unsupported) as error:
                self._no_graph = str(error)
                self._gpu.function("cudaGetLastError")()
                self.clock = "stalled events" if repeats * self._calls <= MOST_STALLED_CALLS else "events"
                return self._between(lambda: self._enqueue(repeats))
            self._drop_graphs()
            self._graphs[repeats] = made
        gpu, graph = self._gpu, self._graphs[repeats]
        return self._between(lambda: gpu.call("cudaGraphLaunch", graph, gpu.stream))

    def _capture(self, repeats: int) -> ctypes.c_void_p:
        gpu, graph, executable = self._gpu, ctypes.c_void_p(), ctypes.c_void_p()
        gpu.call("cudaStreamBeginCapture", gpu.stream, gpu.vendor.CAPTURE_RELAXED)
        try:
            self._enqueue(repeats)
        finally:
            status = gpu.function("cudaStreamEndCapture")(gpu.stream, ctypes.byref(graph))
        gpu.expect("cudaStreamEndCapture", status)
        gpu.call("cudaGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
        gpu.call("cudaGraphDestroy", graph)
        gpu.call("cudaGraphUpload", executable, gpu.stream)
        gpu.synchronize()
        return executable

    def _drop_graphs(self) -> None:
        """Only the last graph is kept: a sample has the same number of calls once warmed up."""
        for graph in self._graphs.values():
            self._gpu.call("cudaGraphExecDestroy", graph)
        self._graphs.clear()

    def facts(self, energy_s: float | None = None) -> dict[str, Any]:
        """For the record: which clock, the time a user sees, and joules a call if a window for them is given."""
        why = self._no_graph if self._no_graph is not None else self._gpu.stall.reason
        found: dict[str, Any] = {"clock": self.clock, "fallback": why, "host_call_s": self._host_calls()}
        if energy_s is not None:
            found["energy"] = self._energy(energy_s)
        return found

    def _host_calls(self) -> list[float]:
        """Seconds of single calls, made and waited for by the host. A call is one of those that take turns."""
        samples: list[float] = []
        start = perf_counter()
        while len(samples) < HOST_CALLS and (not samples or perf_counter() - start < HOST_MOST_S):
            before = perf_counter_ns()
            self._enqueue(1)
            self._gpu.synchronize()
            samples.append(float(f"{(perf_counter_ns() - before) / 1e9 / self._calls:.7g}"))
        return samples

    def _energy(self, window_s: float) -> dict[str, Any] | None:
        """Joules a call over a window of calls without a pause; None where the card does not count energy."""
        before = self._gpu.energy_mj()
        if before is None:
            return None
        start, repeats = perf_counter(), 0
        at_once = max(1, round(0.05 / max(self._call_s or 0.05, 1e-7) / self._calls))
        while perf_counter() - start < window_s:
            self(at_once)
            repeats += at_once
        seconds, after = perf_counter() - start, self._gpu.energy_mj()
        if after is None:
            return None
        joules = (after - before) / 1e3
        calls = repeats * self._calls
        return {"joules_per_call": joules / calls, "calls": calls, "window_s": seconds, "watts": joules / seconds}


def fastest(
    gpu: Gpu, candidates: Sequence[Callable[[], Kernel]], most_s: float = SEARCH_MOST_S
) -> tuple[int, dict[str, Any]]:
    """The index of the fastest candidate, and what the search was, for the notes of a record.

    Candidates are made and tried in the library's own order until the time is up; those that fail are left out, and
    `Unsupported` says that all did.
    """
    from deepbench.native import callloop

    start, times, failures = perf_counter(), dict[int, float](), list[str]()
    for i, make in enumerate(candidates):
        if times and perf_counter() - start > most_s:
            break
        try:
            kernel = make()
            kernel.load()
            timer, _ = callloop.timer(kernel)
            timer(1)
            once = timer(1) / 1e9
            repeats = max(1, min(100, round(CANDIDATE_S / max(once, 1e-7))))
            again = timer(repeats) / 1e9 / repeats
            times[i] = min(once, again) if repeats == 1 else again
        except (LibraryError, Unsupported, OutOfMemory) as error:
            failures.append(str(error))
            gpu.function("cudaGetLastError")()
    if not times:
        why = failures[0] if failures else "the library proposes none"
        raise Unsupported(f"none of {len(candidates)} algorithms runs this: {why}")
    best = min(times, key=lambda i: times[i])
    notes = {
        "algorithms_tried": len(times),
        "algorithms_failed": len(failures),
        "algorithms_proposed": len(candidates),
        "search_s": round(perf_counter() - start, 6),
    }
    return best, notes
