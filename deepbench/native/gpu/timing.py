"""Time on the GPU's own clock.

The method depends on the time per call. Up to 50 µs: all calls in one captured graph, so that neither Python nor the
driver runs between them. Up to 5 ms: calls in a stream that is held back until all are launched, between two events.
Longer: between two events. `docs/gpu.md` explains the limits.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import Any

from deepbench.core.errors import DeepBenchError, LibraryError, OutOfMemory, Unsupported
from deepbench.core.kernel import Kernel
from deepbench.native.gpu import telemetry
from deepbench.native.gpu.runtime import Runtime
from deepbench.native.gpu.telemetry import Sensors

GRAPH_BELOW_S = 50e-6
STALL_BELOW_S = 5e-3
# A call of many launches, such as all steps of a recurrent layer, also goes into a graph if launching takes more than
# this share of its time.
LAUNCH_SHARE = 0.1

# A driver's queue takes about a thousand launches; then the host waits, forever if the stream is held back.
MOST_STALLED_CALLS = 400
# A call may be many launches, or wait for the GPU itself. After so many seconds the stream is released, for good.
STALL_MOST_S = 0.25

# Calls that the host waits for one by one: the time that a user sees.
HOST_CALLS, HOST_MOST_S = 20, 0.1

# The choice of an algorithm: seconds in total, in total where each candidate is compiled, and per candidate after its
# first two calls.
SEARCH_MOST_S, COMPILED_SEARCH_MOST_S = 2.0, 30.0
CANDIDATE_S = 2e-3
# A candidate whose second call took longer is not called again.
LONG_CALL_S = 0.5
# The GPU was idle before: the first candidate runs this long, so that the clocks rise.
RAISE_CLOCKS_S = 30e-3
# The fastest candidates are timed again, because a single 2 ms sample may be off.
FINALISTS = 3

# Sensors are read while the GPU works, after the calls of a sample are launched: at most once in so many seconds, and
# not again where a reading takes longer than that. (NVML needs 2 µs per value.)
READ_EVERY_S = 5e-3

# A load of seconds is launched in slices of about this length, with at most so many calls.
SLICE_S, MOST_SLICE_CALLS = 0.05, 5000


class EventTimer:
    """Repeats → nanoseconds on the GPU."""

    def __init__(self, gpu: Runtime, sensors: Sensors | None, enqueue: Callable[[int], int], calls: int) -> None:
        self._gpu, self._sensors, self._enqueue, self._calls = gpu, sensors, enqueue, calls
        self._call_s: float | None = None
        self._launch_s = 0.0
        self._graphs: dict[int, Any] = {}
        self._no_graph: str | None = None
        self._start, self._end = gpu.new_event(), gpu.new_event()
        self.clock = "events"
        """How the last sample was taken: `graph`, `stalled events` or `events`."""
        self._settled: str | None = None
        self._is_settled = False
        self._load = telemetry.LoadReadings()
        self._next_reading = 0.0

    def __call__(self, repeats: int) -> int:
        self.clock = self._settled or self._choose_clock(repeats * self._calls)
        elapsed = self._graph(repeats) if self.clock == "graph" else self._between(lambda: self._enqueue(repeats))
        first = self._call_s is None
        self._call_s = elapsed / 1e9 / (repeats * self._calls)
        if self.clock != "graph" and not first:  # the first call also loads kernels
            self._launch_s = self._last_launch_s / (repeats * self._calls)
        if self._is_settled:
            self._settled = self.clock
        return max(1, round(elapsed))

    def _choose_clock(self, calls: int) -> str:
        """By the time per call, and how much of it is launching."""
        if self._call_s is None:
            return "events"
        many_launches = self._launch_s > LAUNCH_SHARE * self._call_s
        if (self._call_s < GRAPH_BELOW_S or many_launches) and self._no_graph is None:
            return "graph"
        if self._call_s < STALL_BELOW_S and calls <= MOST_STALLED_CALLS and self._gpu.stall.usable:
            return "stalled events"
        return "events"

    def _between(self, enqueue: Callable[[], object]) -> float:
        """Nanoseconds between two events around the work of `enqueue`."""
        gpu = self._gpu
        stalled = self.clock != "events" and gpu.stall.usable and self._stall()
        if self.clock == "stalled events" and not stalled:
            self.clock = "events"
        try:
            gpu.record(self._start)
            start = perf_counter()
            enqueue()
            launch_s = perf_counter() - start
            gpu.record(self._end)
        finally:
            if stalled:
                self._watchdog.cancel()
                gpu.stall.release()
        self._read_sensors()
        elapsed = gpu.elapsed_ns(self._start, self._end)
        if self.clock != "graph":
            self._last_launch_s = launch_s
        if stalled and not gpu.stall.usable and self.clock == "stalled events":
            self.clock = "events"  # the stream was released before everything was launched
        return elapsed

    def _read_sensors(self) -> None:
        """Read clock, limits and power while the calls run."""
        start = perf_counter()
        if self._sensors is None or start < self._next_reading:
            return
        self._load.add(self._sensors)
        end = perf_counter()
        self._next_reading = end + READ_EVERY_S if end - start < READ_EVERY_S else math.inf

    def _stall(self) -> bool:
        gpu = self._gpu
        gpu.synchronize()
        reason = f"launching the calls into a stalled stream took over {STALL_MOST_S} s"
        # Started before the stall, so that the stream is released whatever happens.
        self._watchdog = threading.Timer(STALL_MOST_S, gpu.stall.release, (reason,))
        self._watchdog.daemon = True
        self._watchdog.start()
        if gpu.stall.begin():
            return True
        self._watchdog.cancel()
        return False

    def _graph(self, repeats: int) -> float:
        if repeats not in self._graphs:
            try:
                graph = self._capture(repeats)
            except (LibraryError, Unsupported, OutOfMemory) as error:
                self._no_graph = str(error)
                self._gpu.function("cudaGetLastError")()
                self.clock = "stalled events" if repeats * self._calls <= MOST_STALLED_CALLS else "events"
                return self._between(lambda: self._enqueue(repeats))
            for earlier in self._graphs.values():  # after warm-up every sample has the same number of calls
                self._gpu.call("cudaGraphExecDestroy", earlier)
            self._graphs.clear()
            self._graphs[repeats] = graph
        gpu, graph = self._gpu, self._graphs[repeats]
        return self._between(lambda: gpu.call("cudaGraphLaunch", graph, gpu.stream))

    def _capture(self, repeats: int) -> ctypes.c_void_p:
        gpu, graph, executable = self._gpu, ctypes.c_void_p(), ctypes.c_void_p()
        gpu.call("cudaStreamBeginCapture", gpu.stream, gpu.vendor.CAPTURE_RELAXED)
        try:
            self._enqueue(repeats)
        finally:
            status = gpu.function("cudaStreamEndCapture")(gpu.stream, ctypes.byref(graph))
        gpu.check("cudaStreamEndCapture", status)
        gpu.call("cudaGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
        gpu.call("cudaGraphDestroy", graph)
        gpu.call("cudaGraphUpload", executable, gpu.stream)
        gpu.synchronize()
        return executable

    def settle(self) -> None:
        """The warm-up is over: from now on the clock stays the same, unless it fails.

        Times near a limit between two clocks would otherwise alternate between them, with different errors.
        """
        self._is_settled = True

    def facts(self, sets: int, energy_s: float | None = None, sustained_s: float | None = None) -> dict[str, Any]:
        """For the record: the clock, the time that a user sees, and what a load of so many seconds shows.

        One repeat is a call on each of so many `sets` of buffers. `energy_s`: joules per call; `sustained_s`: clock and
        power over time.
        """
        short = self._call_s is not None and self._call_s < STALL_BELOW_S
        fallback = self._no_graph
        if fallback is None and self.clock == "events" and short:
            fallback = self._gpu.stall.reason or "a sample has too many calls to hold the stream back"
        facts: dict[str, Any] = {
            "clock": self.clock,
            "fallback": fallback,
            "during": self._load.facts(),
            "host_call_s": self._host_calls(sets),
        }
        if energy_s is not None or sustained_s is not None:
            load = self._hold(sets, max(energy_s or 0.0, sustained_s or 0.0))
            if energy_s is not None:
                facts["energy"] = load.energy()
            if sustained_s is not None:
                facts["sustained"] = load.sustained()
        return facts

    def _host_calls(self, sets: int) -> list[float]:
        """Seconds of single calls, each launched and waited for by the host."""
        samples: list[float] = []
        start = perf_counter()
        while len(samples) < HOST_CALLS and (not samples or perf_counter() - start < HOST_MOST_S):
            before = perf_counter_ns()
            self._enqueue(1)
            self._gpu.synchronize()
            samples.append(float(f"{(perf_counter_ns() - before) / 1e9 / sets:.7g}"))
        return samples

    def _energy_mj(self) -> float | None:
        return None if self._sensors is None else self._sensors.energy_mj()

    def _hold(self, sets: int, window_s: float) -> HeldLoad:
        """Load the GPU with calls for so many seconds, without a longer pause than a launch."""
        self._is_settled, self._settled = False, None  # so many calls may need another clock
        at_once = min(SLICE_S / max(self._call_s or SLICE_S, 1e-7), MOST_SLICE_CALLS)
        repeats = max(1, round(at_once / self._calls))
        self(repeats)  # captures the graph before the window starts
        self._load, slices, calls = telemetry.LoadReadings(), list[dict[str, Any]](), 0
        before, start = self._energy_mj(), perf_counter()
        while not slices or perf_counter() - start < window_s:
            self._load.last, self._next_reading = (None, None), 0.0  # once in each slice
            call_s = self(repeats) / 1e9 / repeats / sets
            calls += repeats * sets
            clock, watts = self._load.last
            at_s = round(perf_counter() - start, 4)
            slices.append({"at_s": at_s, "call_s": float(f"{call_s:.7g}"), "clock_mhz": clock, "watts": watts})
        seconds, after = perf_counter() - start, self._energy_mj()
        joules = None if before is None or after is None else (after - before) / 1e3
        return HeldLoad(joules, calls, seconds, slices, self._load.facts())


@dataclass(frozen=True)
class HeldLoad:
    """What some seconds of calls without a pause have shown."""

    joules: float | None
    """Of the board; None if it does not count them."""
    calls: int
    seconds: float
    slices: list[dict[str, Any]]
    during: dict[str, Any] | None

    def energy(self) -> dict[str, Any] | None:
        """Joules per call; None if the GPU does not count energy."""
        if self.joules is None:
            return None
        return {
            "joules_per_call": self.joules / self.calls,
            "calls": self.calls,
            "window_s": self.seconds,
            "watts": self.joules / self.seconds,
            "during": self.during,
        }

    def sustained(self) -> dict[str, Any]:
        """Time per call in the second half of the load, when clocks have fallen, and the slices of all of it."""
        late = self.slices[len(self.slices) // 2 :]
        clocks = [s["clock_mhz"] for s in late if s["clock_mhz"] is not None]
        return {
            "call_s": median(s["call_s"] for s in late),
            "clock_mhz": median(clocks) if clocks else None,
            "calls": self.calls,
            "window_s": self.seconds,
            "slices": self.slices,
            "during": self.during,
        }


class GroupTimer:
    """Times calls of all ranks of this process, one after the other after one barrier, between two events on each GPU.

    Kernels of the ranks wait for each other on the GPUs, so one barrier is enough.
    """

    def __init__(self, gpus: Sequence[Runtime], kernel: Kernel) -> None:
        from deepbench.native import callloop

        assert kernel.barrier is not None, "a group's kernel needs a barrier"
        self._gpus = gpus
        self._barrier, _ = callloop.host_timer(kernel.barrier)
        self._enqueue, self.kind = callloop.host_timer(kernel)
        self._call_s: float | None = None
        self._events = [(gpu, gpu.new_event(), gpu.new_event()) for gpu in gpus]

    def __call__(self, repeats: int, together: bool = True) -> list[int]:
        """Nanoseconds of all calls on the slowest GPU, as one number."""
        if together:
            self._barrier(1)
            self._synchronize()
        for gpu, start, _ in self._events:
            gpu.record(start)
        self._enqueue(repeats)
        for gpu, _, end in self._events:
            gpu.record(end)
        slowest = max(gpu.elapsed_ns(start, end) for gpu, start, end in self._events)
        self._call_s = slowest / repeats / 1e9
        return [max(1, round(slowest))]

    def facts(self) -> dict[str, Any]:
        """The same fields as of `EventTimer`."""
        samples: list[float] = []
        for _ in range(HOST_CALLS):  # the same number on every rank, however long they take
            before = perf_counter_ns()
            self._enqueue(1)
            self._synchronize()
            samples.append((perf_counter_ns() - before) / 1e9)
        short = self._call_s is not None and self._call_s < STALL_BELOW_S
        fallback = "ranks wait for each other, so calls of a group are launched one by one" if short else None
        return {"clock": "events", "fallback": fallback, "during": None, "host_call_s": samples}

    def _synchronize(self) -> None:
        for gpu in self._gpus:
            gpu.synchronize()


def fastest(
    gpu: Runtime,
    candidates: Mapping[str, Callable[[], Kernel]],
    load: Callable[[], None] | None = None,
    most_s: float = SEARCH_MOST_S,
) -> tuple[str, dict[str, Any]]:
    """Name of the fastest candidate, and facts about the search for the notes of a record.

    Candidates are created and timed in the library's own order for up to `most_s` seconds. Those that fail are skipped;
    `Unsupported` if all do. `load` fills the buffers that candidates share; without it each candidate loads its own.
    """
    start, times, failures = perf_counter(), dict[str, float](), list[DeepBenchError]()
    if load is not None:
        load()
    for name, create in candidates.items():
        if times and perf_counter() - start > most_s:
            break
        try:
            times[name] = _candidate_s(create(), load is None, 0.0 if times else RAISE_CLOCKS_S)
        except (LibraryError, Unsupported, OutOfMemory) as error:
            failures.append(gpu.explain(error) if isinstance(error, LibraryError) else error)
            gpu.function("cudaGetLastError")()
    if not times:
        errors = [error for error in failures if not isinstance(error, Unsupported)]
        if errors:
            raise errors[0]
        reason = failures[0] if failures else "the library proposes none"
        raise Unsupported(f"none of {len(candidates)} algorithms runs this: {reason}")
    best = sorted(times, key=lambda name: times[name])[:FINALISTS]
    if len(best) > 1:
        final = {name: _candidate_s(candidates[name](), load is None, 0.0) for name in best}
        best = sorted(final, key=lambda name: final[name])
        times |= final
    notes = {
        # Frameworks mostly run the first algorithm that a library proposes.
        "proposed_first_s": times.get(next(iter(candidates))),
        "chosen_s": times[best[0]],
        "algorithms_tried": len(times),
        "algorithms_failed": len(failures),
        "algorithms_proposed": len(candidates),
        "search_s": round(perf_counter() - start, 6),
    }
    return best[0], notes


def refusal(
    gpu: Runtime,
    candidates: Mapping[str, Callable[[], Kernel]],
    name: str,
    load: Callable[[], None] | None = None,
) -> str | None:
    """Why the candidate that an earlier search chose cannot be used; None if it runs, and the clocks are high."""
    if name not in candidates:
        return "the library no longer proposes the algorithm that was chosen before"
    try:
        if load is not None:
            load()
        _candidate_s(candidates[name](), load is None, RAISE_CLOCKS_S)
    except (LibraryError, Unsupported, OutOfMemory) as error:
        gpu.function("cudaGetLastError")()
        explained = gpu.explain(error) if isinstance(error, LibraryError) else error
        return f"the algorithm that was chosen before does not run: {explained}"
    return None


def _candidate_s(kernel: Kernel, loads: bool, warm_up_s: float) -> float:
    """Seconds per call of a candidate, after two calls and a warm-up, or of its second call if that is long."""
    from deepbench.native import callloop

    if loads:
        kernel.load()
    timer, _ = callloop.timer(kernel)
    timer(1)  # may load or compile its kernels
    once = timer(1) / 1e9
    if once > LONG_CALL_S:
        return once
    for _ in range(min(1000, round(warm_up_s / max(once, 1e-6)))):
        timer(1)
    repeats = max(1, min(100, round(CANDIDATE_S / max(once, 1e-7))))
    again = timer(repeats) / 1e9 / repeats
    return min(once, again) if repeats == 1 else again
