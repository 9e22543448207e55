"""The worker process: it receives one request, measures one case or describes one library, answers, and ends.

Every round of a case gets a new process, so a library that prints, leaks, crashes or hangs affects nothing else.
Standard output and standard error are left to the libraries; messages go through a socket.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any

from deepbench.measuring import process, wire
from deepbench.measuring.launch import PARENT, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from deepbench.measuring.clock import Sampler
    from deepbench.results.record import Record


def main() -> None:
    """Serve one request. The argument is the descriptor of the socket."""
    process.die_with_parent(int(os.environ.get(PARENT, "0")))
    process.limit_output()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # OpenBLAS ends itself with it, after a message worth quoting
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # a process that a library starts must not keep the socket open
    connection = wire.Connection(socket.socket(fileno=descriptor))
    message = connection.receive()
    if message is not None:
        if message["cpus"] and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, message["cpus"])  # before any library counts its cores
        import_numpy()
        if "open" in message:
            connection.send(open_library(message["open"], message.get("device")))
        elif "probe" in message:
            connection.send(probe_devices(message["probe"], message["candidate"]))
        else:
            connection.send({"record": measure_alone(Request.of(message), connection)})
    # End without the destructors of libraries: some hang or crash there, and the answer has been sent.
    os._exit(0)


def import_numpy() -> None:
    """Import NumPy with one thread: its own OpenBLAS would keep threads waiting next to those of the library.

    Its warnings are off. A wrong number is found by the check, and BLAS kernels that use Arm's SME leave the flags of
    divisions by zero behind, for which NumPy warns although the product is right.
    """
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import numpy as np

    np.seterr(all="ignore")
    if threads is None:
        del os.environ["OPENBLAS_NUM_THREADS"]
    else:
        os.environ["OPENBLAS_NUM_THREADS"] = threads


def open_library(name: str, device: str | None = None) -> dict[str, Any]:
    """Facts about a library on its usual or another device, or why it is not available."""
    from deepbench.core.backend import find_backend
    from deepbench.core.errors import DeepBenchError, Unavailable
    from deepbench.machine import describe

    try:
        backend = find_backend(name)
        backend.select(device or backend.device)
        return {"library": backend.open(), "openmp": describe.openmp_runtimes()}
    except Unavailable as error:
        return {"unavailable": {"reason": error.reason, "remedy": error.remedy}}
    except DeepBenchError as error:
        return {"unavailable": {"reason": str(error), "remedy": "use another build of the library"}}


def probe_devices(name: str, candidate: str) -> dict[str, Any]:
    """The devices that a candidate of a backend reaches, or why there are none."""
    from dataclasses import asdict

    from deepbench.core.backend import all_device_backends
    from deepbench.core.errors import DeepBenchError, Unavailable

    try:
        return {"devices": [asdict(device) for device in all_device_backends()[name].probe(candidate)]}
    except Unavailable as error:
        return {"unavailable": {"reason": error.reason, "remedy": error.remedy}}
    except DeepBenchError as error:
        return {"unavailable": {"reason": str(error), "remedy": "use another build of it, or leave it out"}}


def take_turns(
    sampler: Sampler,
    send: Callable[[wire.Message], None],
    receive: Callable[[], wire.Message | None],
    choice: object = None,
) -> tuple[float, float]:
    """Sample when the parent says so; the CPU seconds of rivals meanwhile, and how long this process waited.

    The parent is told the `choice` of the library's search, if there was one.
    """
    waited_s = 0.0
    send({"ready": True, "stopped": sampler.stopped, "done": sampler.is_done, "choice": choice})
    while True:
        begin = perf_counter()
        message = receive()
        if message is None:
            os._exit(1)  # the parent is gone
        waited_s += perf_counter() - begin
        if "slice" not in message:
            return message["rivals_s"], waited_s
        sampler.slice(message["slice"], message["seconds"])
        send({"sampled": True, "stopped": sampler.stopped, "done": sampler.is_done})


def measure_alone(request: Request, connection: wire.Connection) -> Record:
    """Measure one round of a case in this process. The parent is told when each phase begins."""
    from deepbench.measuring import steps

    def phase(name: str) -> None:
        connection.send({"phase": name})

    def measure(findings: steps.StepResults) -> None:
        steps.check_cores(request)
        steps.check_memory(request)
        findings.library = steps.open_library(request)
        steps.check_device_memory(request)
        phase("inputs")
        findings.buffers = steps.make_inputs(request)
        phase("prepare")
        findings.prepared = prepared = steps.prepare(request, findings.buffers)
        phase("first call")
        first = steps.first_call(prepared, findings.library.others)
        if request.backend.computes:
            phase("check")
            findings.before = steps.check_result(request, findings.buffers, prepared)
            if findings.before.error is not None:
                return
        phase("measure")
        sampling = steps.Sampling.begin(request, findings.buffers, prepared, first)
        rivals_s, findings.waited_s = take_turns(
            sampling.sampler, connection.send, connection.receive, prepared.notes.get("choice")
        )
        findings.timing = sampling.end(rivals_s)
        if (window_s := request.rules.energy_s) is not None and prepared.device is None:
            phase("energy")
            findings.energy = steps.measure_energy(prepared, findings.timing, window_s)
        # A first call that is the only sample has been checked already.
        if request.backend.computes and findings.timing.measurement["stopped"] != "first_call":
            phase("check again")
            findings.after = steps.check_again(request, findings.buffers, prepared, findings.timing)

    return steps.record_of(request, measure)


if __name__ == "__main__":
    main()
