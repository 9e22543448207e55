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

from deepbench.core.errors import DeepBenchError, LibraryError, OutOfMemory, Unsupported

if TYPE_CHECKING:
    from deepbench.core.kernel import Kernel
    from deepbench.native.gpu.device import Gpu

GRAPH_BELOW_S = 50e-6
STALL_BELOW_S = 5e-3
# A call that is many launches, such as all steps of a recurrent layer, keeps the host busy for more than this share of
# its time: then it goes into a graph, however long it is.
LAUNCH_SHARE = 0.1

# A driver takes about a thousand launches before it makes the host wait, which would never end in a stalled stream.
MOST_STALLED_CALLS = 400
# And a call may be many launches, or wait for the card itself: then the stall is let go and not used again.
STALL_MOST_S = 0.25

# Calls that the host waits for one by one, for the time a user sees.
HOST_CALLS, HOST_MOST_S = 20, 0.1

# Choosing an algorithm: seconds in all, and for one candidate beside its two first calls.
SEARCH_MOST_S = 2.0
CANDIDATE_S = 2e-3
# The card has idled until then: its clocks rise while the first candidate runs so long.
RAISE_CLOCKS_S = 30e-3
# And the best are timed once more, for a single reading of two milliseconds may be off.
FINALISTS = 3

# Calls in a graph for energy.
MOST_ENERGY_CALLS = 5000


class DeviceTimer:
    """Repeats → nanoseconds that they took on the card together."""

    def __init__(self, gpu: Gpu, enqueue: Callable[[int], int], calls: int) -> None:
        self._gpu, self._enqueue, self._calls = gpu, enqueue, calls
        self._call_s: float | None = None
        self._launch_s = 0.0
        self._graphs: dict[int, Any] = {}
        self._no_graph: str | None = None
        self._start, self._end = self.event(gpu), self.event(gpu)
        self.clock = "events"
        """How the last sample was taken: `graph`, `stalled events` or `events`."""

    def __call__(self, repeats: int) -> int:
        self.clock = self._clock(repeats * self._calls)
        elapsed = self._graph(repeats) if self.clock == "graph" else self._between(lambda: self._enqueue(repeats))
        first = self._call_s is None
        self._call_s = elapsed / 1e9 / (repeats * self._calls)
        if self.clock != "graph" and not first:  # the first call loads kernels, which is no launching
            self._launch_s = self._last_launch_s / (repeats * self._calls)
        return max(1, round(elapsed))

    def _clock(self, calls: int) -> str:
        """By how long a call takes, and how long it takes to launch."""
        if self._call_s is None:
            return "events"
        many_launches = self._launch_s > LAUNCH_SHARE * self._call_s
        if (self._call_s < GRAPH_BELOW_S or many_launches) and self._no_graph is None:
            return "graph"
        if self._call_s < STALL_BELOW_S and calls <= MOST_STALLED_CALLS and self._gpu.stall.usable:
            return "stalled events"
        return "events"

    @staticmethod
    def event(gpu: Gpu) -> ctypes.c_void_p:
        """A new event that keeps the time."""
        made = ctypes.c_void_p()
        gpu.call("cudaEventCreateWithFlags", ctypes.byref(made), 0)
        return made

    def _between(self, enqueue: Callable[[], object]) -> float:
        """Nanoseconds between two events around what `enqueue` puts into the stream."""
        gpu = self._gpu
        held = self.clock != "events" and gpu.stall.usable and self._hold()
        if self.clock == "stalled events" and not held:
            self.clock = "events"
        try:
            gpu.call("cudaEventRecord", self._start, gpu.stream)
            start = perf_counter()
            enqueue()
            launching = perf_counter() - start
            gpu.call("cudaEventRecord", self._end, gpu.stream)
        finally:
            if held:
                self._watch.cancel()
                gpu.stall.release()
        gpu.call("cudaEventSynchronize", self._end)
        if self.clock != "graph":
            self._last_launch_s = launching
        if held and not gpu.stall.usable and self.clock == "stalled events":
            self.clock = "events"  # it was let go before everything was in the stream
        milliseconds = ctypes.c_float()
        gpu.call("cudaEventElapsedTime", ctypes.byref(milliseconds), self._start, self._end)
        return milliseconds.value * 1e6

    def _hold(self) -> bool:
        gpu = self._gpu
        gpu.synchronize()
        reason = f"putting the calls into a held stream took over {STALL_MOST_S} s"
        # Before the stream is held: whatever happens then, it is let go.
        self._watch = threading.Timer(STALL_MOST_S, gpu.stall.give_up, (reason,))
        self._watch.daemon = True
        self._watch.start()
        if gpu.stall.begin():
            return True
        self._watch.cancel()
        return False

    def _graph(self, repeats: int) -> float:
        if repeats not in self._graphs:
            try:
                made = self._capture(repeats)
            except (LibraryError, Unsupported, OutOfMemory) as error:
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

    def facts(self, sets: int, energy_s: float | None = None) -> dict[str, Any]:
        """For the record: which clock, the time a user sees, and joules a call if a window for them is given.

        `sets` of buffers take turns: so many calls of the case are in one repeat.
        """
        short = self._call_s is not None and self._call_s < STALL_BELOW_S
        why = None
        if self._no_graph is not None:
            why = self._no_graph
        elif self.clock == "events" and short:
            why = self._gpu.stall.reason or "a sample has too many calls to hold back"
        found: dict[str, Any] = {"clock": self.clock, "fallback": why, "host_call_s": self._host_calls(sets)}
        if energy_s is not None:
            found["energy"] = self._energy(sets, energy_s)
        return found

    def _host_calls(self, sets: int) -> list[float]:
        """Seconds of single calls, made and waited for by the host. A call is one of those that take turns."""
        samples: list[float] = []
        start = perf_counter()
        while len(samples) < HOST_CALLS and (not samples or perf_counter() - start < HOST_MOST_S):
            before = perf_counter_ns()
            self._enqueue(1)
            self._gpu.synchronize()
            samples.append(float(f"{(perf_counter_ns() - before) / 1e9 / sets:.7g}"))
        return samples

    def _energy(self, sets: int, window_s: float) -> dict[str, Any] | None:
        """Joules a call over a window of calls without a pause; None where the card does not count energy."""
        at_once = min(0.05 / max(self._call_s or 0.05, 1e-7), MOST_ENERGY_CALLS)
        repeats = max(1, round(at_once / self._calls))
        self(repeats)  # its graph is made before the window
        before, start, made = self._gpu.energy_mj(), perf_counter(), 0
        if before is None:
            return None
        while perf_counter() - start < window_s:
            self(repeats)
            made += repeats
        seconds, after = perf_counter() - start, self._gpu.energy_mj()
        if after is None:
            return None
        joules, calls = (after - before) / 1e3, made * sets
        return {"joules_per_call": joules / calls, "calls": calls, "window_s": seconds, "watts": joules / seconds}


class GroupTimer:
    """Calls of the ranks of a process: so many one after the other behind one barrier, between two events on each card.

    Kernels of the ranks wait for each other on the cards, so a barrier before each would add nothing.
    """

    def __init__(self, gpus: Sequence[Gpu], kernel: Kernel) -> None:
        from deepbench.native import callloop

        assert kernel.barrier is not None, "ranks must meet"
        self._gpus = gpus
        self._barrier, _ = callloop.host_timer(kernel.barrier)
        self._enqueue, self.kind = callloop.host_timer(kernel)
        self._call_s: float | None = None
        self._events = [(DeviceTimer.event(gpu), DeviceTimer.event(gpu)) for gpu in gpus]

    def __call__(self, repeats: int, together: bool = True) -> list[int]:
        """Nanoseconds of all of them on the slowest card, as one number."""
        if together:
            self._barrier(1)
            self._synchronize()
        for gpu, (start, _) in zip(self._gpus, self._events, strict=True):
            gpu.call("cudaEventRecord", start, gpu.stream)
        self._enqueue(repeats)
        for gpu, (_, end) in zip(self._gpus, self._events, strict=True):
            gpu.call("cudaEventRecord", end, gpu.stream)
        slowest = 0.0
        for gpu, (start, end) in zip(self._gpus, self._events, strict=True):
            gpu.call("cudaEventSynchronize", end)
            milliseconds = ctypes.c_float()
            gpu.call("cudaEventElapsedTime", ctypes.byref(milliseconds), start, end)
            slowest = max(slowest, milliseconds.value * 1e6)
        self._call_s = slowest / repeats / 1e9
        return [max(1, round(slowest))]

    def facts(self) -> dict[str, Any]:
        """As of `DeviceTimer`."""
        samples: list[float] = []
        for _ in range(HOST_CALLS):  # as many on every rank, however long they take
            before = perf_counter_ns()
            self._enqueue(1)
            self._synchronize()
            samples.append((perf_counter_ns() - before) / 1e9)
        short = self._call_s is not None and self._call_s < STALL_BELOW_S
        why = "calls of a group are launched one by one, while ranks wait for each other" if short else None
        return {"clock": "events", "fallback": why, "host_call_s": samples}

    def _synchronize(self) -> None:
        for gpu in self._gpus:
            gpu.synchronize()


def fastest(
    gpu: Gpu,
    candidates: Sequence[Callable[[], Kernel]],
    load: Callable[[], None] | None = None,
    most_s: float = SEARCH_MOST_S,
) -> tuple[int, dict[str, Any]]:
    """The index of the fastest candidate, and what the search was, for the notes of a record.

    Candidates are made and tried in the library's own order until the time is up; those that fail are left out, and
    `Unsupported` says that all did. `load` fills buffers that they share; without it each loads its own.
    """
    start, times, failures = perf_counter(), dict[int, float](), list[DeepBenchError]()
    if load is not None:
        load()
    for i, make in enumerate(candidates):
        if times and perf_counter() - start > most_s:
            break
        try:
            times[i] = _candidate_s(make(), load is None, 0.0 if times else RAISE_CLOCKS_S)
        except (LibraryError, Unsupported, OutOfMemory) as error:
            failures.append(gpu.explained(error) if isinstance(error, LibraryError) else error)
            gpu.function("cudaGetLastError")()
    if not times:
        broken = [error for error in failures if not isinstance(error, Unsupported)]
        if broken:
            raise broken[0]
        why = failures[0] if failures else "the library proposes none"
        raise Unsupported(f"none of {len(candidates)} algorithms runs this: {why}")
    best = sorted(times, key=lambda i: times[i])[:FINALISTS]
    if len(best) > 1:
        final = {i: _candidate_s(candidates[i](), load is None, 0.0) for i in best}
        best = sorted(final, key=lambda i: final[i])
    notes = {
        "algorithms_tried": len(times),
        "algorithms_failed": len(failures),
        "algorithms_proposed": len(candidates),
        "search_s": round(perf_counter() - start, 6),
    }
    return best[0], notes


def _candidate_s(kernel: Kernel, loads: bool, warm_up_s: float) -> float:
    """Seconds a call of a candidate, after its first calls and so long a warm-up."""
    from deepbench.native import callloop

    if loads:
        kernel.load()
    timer, _ = callloop.timer(kernel)
    timer(1)
    once = timer(1) / 1e9
    for _ in range(min(1000, round(warm_up_s / max(once, 1e-6)))):
        timer(1)
    repeats = max(1, min(100, round(CANDIDATE_S / max(once, 1e-7))))
    again = timer(repeats) / 1e9 / repeats
    return min(once, again) if repeats == 1 else again
