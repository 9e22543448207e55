"""Many hosts at once: every run measures the same cases on each of them, and times the links between them.

`FleetSession` measures and writes the fleet file; `Engine` starts commands on hosts.

On each host an ordinary `deepbench run` does the work. Dask distributed only carries its words there and its file back:
it starts on any host that has Python, and reports hosts that are lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deepbench.core.case import Case, parse_case
from deepbench.core.errors import BadInput
from deepbench.core.json_lines import printable, sanitized
from deepbench.core.version import VERSION
from deepbench.judge.fleet import judge
from deepbench.judge.outliers import tournament
from deepbench.measure import launch, process
from deepbench.measure.group import launcher
from deepbench.measure.parent import measure_case
from deepbench.measure.session import Step, open_libraries
from deepbench.plan.modes import QUICK
from deepbench.results.consistency import Consistency
from deepbench.results.file import Store
from deepbench.results.fleet import SCHEMA, FleetFile, HostRun, Pair, lines_of
from deepbench.results.record import Record

# Runs of every host, and the most there are while one of them could still be slow.
LEAST_RUNS, MOST_RUNS = 5, 30

# The message that times a link: 16 MiB are limited by bandwidth on any network.
LINK_CASE = "all_reduce n=4194304 ranks=2 forward f32 {library} threads=1"

# Rounds of pairs per run. With more hosts than this plus one, not every pair is timed.
MOST_ROUNDS = 15

# The messages of a pair take about a second; a link that does not carry them is found soon.
LINK_TIMEOUT_S = 30.0

# Where the number of hosts is unknown, it is taken as final when no host has joined for this long.
SETTLE_S = 3.0

# A worker of Dask that gives no sign of life for this long is lost.
LOST_S = 15.0

# For our scheduler and workers. The task of a lost host must not go to another, and nothing may poll while others
# measure.
DASK = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": f"{LOST_S:g}s",
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error",
}


def measure_here(words: Sequence[str]) -> dict[str, Any]:
    """Run the command on this host. Dask calls this in a worker."""
    with tempfile.TemporaryDirectory(prefix="deepbench-") as folder:
        path = Path(folder) / "out.jsonl"
        command = launch.module_command("deepbench", "run", *words, "-o", str(path))
        # srun may have started the worker as one of many ranks, but the command runs alone.
        environment = launch.package_path(launcher.without_launcher(os.environ))
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment)
        lines = path.read_text(encoding="utf-8") if path.exists() else ""
        output = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return {"lines": lines, "exit_code": done.returncode, "last_output": output[-1][:300] if output else ""}


class Lost(Exception):
    """A host returned no answer."""


class Engine:
    """Workers of Dask on hosts."""

    def __init__(self, client: Any, addresses: dict[str, str], children: Sequence[process.Child]) -> None:
        self._client, self._addresses, self._children = client, addresses, children

    @property
    def hosts(self) -> list[str]:
        """The hosts whose worker has joined; it may have been lost since."""
        return list(self._addresses)

    def measure(self, host: str, words: Sequence[str]) -> dict[str, Any]:
        """Run the command on a host, and wait for what `measure_here` returns there; `Lost` if the worker is gone."""
        address = self._addresses[host]
        self._check_worker(address)
        future = self._client.submit(
            measure_here, list(words), workers=[address], allow_other_workers=False, retries=0, pure=False
        )
        while True:
            try:
                answer: dict[str, Any] = future.result(timeout=LOST_S)
            except TimeoutError:  # another's scheduler may wait forever for a worker that is gone
                self._check_worker(address)
            except Exception as error:  # anything may have happened there
                raise Lost(f"{type(error).__name__}: {_first_line(error)}") from None
            else:
                return answer

    def _check_worker(self, address: str) -> None:
        if address not in self._client.scheduler_info(n_workers=-1)["workers"]:
            raise Lost("its worker has left")

    def close(self) -> None:
        """Disconnect, and end the scheduler and workers that were started from here."""
        if self._children:
            with contextlib.suppress(Exception):
                self._client.shutdown()
        with contextlib.suppress(Exception):
            self._client.close(timeout=2)
        process.end(self._children, grace_s=3.0)


def connect(address: str, wait_s: float, expected: int | None) -> Engine:
    """Use the workers of a scheduler that runs already, one per host."""
    _check_scheduler(address)
    client, known = _client(address), 0
    deadline = time.monotonic() + wait_s
    while True:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        names = {w: str(info.get("host") or info["name"]) for w, info in workers.items()}
        try:
            host_names = client.run(socket.gethostname, workers=list(workers)) if workers else {}
        except Exception as error:  # anything may have happened there
            reason = f"a worker of {address} cannot be used: {_first_line(error)}"
            raise BadInput(f"{reason}; check that deepbench is installed there") from None
        hosts = {str(host_names.get(w) or name): w for w, name in sorted(names.items())}
        settled = expected is None and len(hosts) >= 2 and len(hosts) == known
        if settled or (expected is not None and len(hosts) >= expected) or time.monotonic() > deadline:
            break
        known = len(hosts)
        time.sleep(0.2 if expected is not None else SETTLE_S)
    if not hosts:
        reason = f"no worker has joined {address} within {wait_s:g} s"
        raise BadInput(f"{reason}; start one per host: dask worker {address}")
    return Engine(client, hosts, ())


def start(hosts: dict[str, str], address: str, wait_s: float) -> Engine:
    """Start a scheduler here and, by ssh, a worker on each host. `hosts` has addresses by name."""
    _distributed()
    environment, nothing = {**launch.package_path(os.environ), **DASK}, subprocess.DEVNULL
    children: list[process.Child] = []
    try:
        with tempfile.TemporaryDirectory(prefix="deepbench-") as folder:
            file = Path(folder) / "scheduler.json"
            command = [sys.executable, "-P", "-m", "distributed.cli.dask_scheduler", "--host", address, "--port", "0"]
            command += ["--no-dashboard", "--no-show", "--scheduler-file", str(file)]
            children.append(process.start(command, environment, nothing))
            deadline = time.monotonic() + 60
            while not file.exists():
                if children[0].poll() is not None or time.monotonic() > deadline:
                    reason = f"Dask's scheduler does not start at {address}"
                    raise BadInput(f"{reason}; try it by hand: dask scheduler --host {address}")
                time.sleep(0.05)
            scheduler = json.loads(file.read_text())["address"]
        worker = [sys.executable, "-P", "-m", "distributed.cli.dask_worker", scheduler, "--nthreads", "1"]
        worker += ["--no-nanny", "--no-dashboard", "--death-timeout", "60", "--memory-limit", "0"]
        for name, host in hosts.items():
            command = launch.on_host(host, environment, [*worker, "--name", name])
            children.append(process.start(command, environment, nothing))
        client, joined = _client(scheduler), dict[str, str]()
        deadline = time.monotonic() + wait_s
        while len(joined) < len(hosts) and time.monotonic() < deadline:
            workers = client.scheduler_info(n_workers=-1)["workers"]
            joined = {str(info["name"]): w for w, info in workers.items() if info["name"] in hosts}
            time.sleep(0.1)
        return Engine(client, {name: joined[name] for name in hosts if name in joined}, children)
    except BaseException:
        process.end(children, grace_s=3.0)
        raise


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise BadInput(f"a fleet needs Dask distributed ({error}); install it: pip install distributed") from None
    return distributed


def _client(address: str) -> Any:
    import logging

    distributed = _distributed()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # `Lost` reports lost workers
    try:
        return distributed.Client(address, timeout=20, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise BadInput(f"no Dask scheduler answers at {address}: {_first_line(error)}") from None


def _check_scheduler(address: str) -> None:
    """`BadInput` at once where nothing listens: Dask itself would try for a long time."""
    parts = re.fullmatch(r"(?:tcp://|tls://)?(\[[0-9a-fA-F:]+\]|[^:/]+):([0-9]{1,5})/?", address)
    if parts is None:
        raise BadInput(f"--scheduler wants an address such as tcp://10.0.0.1:8786, found {address[:60]!r}")
    try:
        socket.create_connection((parts[1].strip("[]"), int(parts[2])), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise BadInput(f"no Dask scheduler answers at {address}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return printable(lines[0][:200]) if lines else "no reason given"


class FleetSession:
    """The runs of one fleet, written to a fleet file as they arrive."""

    def __init__(
        self,
        engine: Engine,
        path: Path,
        *,
        expected: Sequence[str],
        addresses: dict[str, str],
        words: Sequence[str],
        library: str | None,
        one_by_one: bool,
    ) -> None:
        """Create the file; `BadInput` if it exists.

        `expected` has the hosts that should take part, `addresses` those of the hosts whose links `library` can time,
        and `words` the arguments of `deepbench run` on each host. With `one_by_one` only one host measures at a time.
        """
        header = sanitized(
            {
                "schema": SCHEMA,
                "tool": f"deepbench {VERSION}",
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "command": sys.argv[1:],
                "expected": list(expected),
                "words": list(words),
                "links": library,
                "one_by_one": one_by_one,
            }
        )
        self._engine, self._addresses, self._words, self._one_by_one = engine, addresses, words, one_by_one
        self._link_case = parse_case(LINK_CASE.format(library=library)) if library else None
        self._store, self._consistency = Store.create(path, header), Consistency()
        self.file = FleetFile(path, header)
        self.hosts = list(dict.fromkeys([*expected, *engine.hosts]))
        self.missing = [host for host in self.hosts if host not in engine.hosts]

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def measure(self, runs: int | None) -> Iterator[Step]:
        """Run so often, or as often as the verdict on each host needs; yields what has just ended."""
        pairs = tournament(self.hosts, MOST_ROUNDS) if self._link_case else []
        per_run, done = len(self.hosts) + sum(map(len, pairs)), 0
        for number in range(1, (runs or MOST_RUNS) + 1):
            for text in self._run(number):
                done += 1
                yield Step(text, done, max(runs or LEAST_RUNS, number) * per_run)
            if runs is None and number >= LEAST_RUNS and not judge(self.file).needs_runs:
                break

    def _run(self, number: int) -> Iterator[str]:
        """One run on all hosts in random order, then over all links."""
        hosts = random.sample(self.hosts, len(self.hosts))
        for result in run_once(self._engine, hosts, number, self._words, self._one_by_one):
            self._store.append(vars(result))
            self.file.runs.append(result.marked(self._consistency))
            yield f"run {number}  {result.host} {result.status}"
        if self._link_case is None:
            return
        lost = {r.host for r in self.file.runs if r.run == number and r.status != "ok"}
        linked = [host for host in hosts if host not in lost and host in self._addresses]
        for pair, record in time_links(linked, self._addresses, self._link_case, number, self._one_by_one):
            self._store.append({"link": pair, "record": record})
            self.file.links.append((pair, self._consistency.marked([record], [])[0]))
            yield f"run {number}  {pair[0]} – {pair[1]} {record['status']}"


def link_library(wanted: str | None, hosts: int) -> str | None:
    """The library that times links between so many hosts with known addresses, or None.

    `wanted` names it, or is `none`. By default it is the first of MPICH and Gloo that is installed.
    """
    if wanted == "none" or hosts < 2:
        if wanted not in (None, "none"):
            raise BadInput("--links needs the addresses of the hosts; use --hostfile, or start with srun or mpirun")
        return None
    names = [wanted] if wanted else ["mpich", "gloo"]
    for name in names:
        parse_case(LINK_CASE.format(library=name))  # reports an unknown library, or one without all-reduce
    opened = open_libraries(names)
    available = next((name for name in names if "library" in opened[name]), None)
    if available is None and wanted:
        missing = opened[wanted]["unavailable"]
        raise BadInput(f"--links {wanted}: {missing['reason']}; {missing['remedy']}")
    return available


def run_once(
    engine: Engine, hosts: Sequence[str], run: int, words: Sequence[str], one_by_one: bool
) -> Iterator[HostRun]:
    """One run on every host, all at the same time unless `one_by_one`; yields each when it ends."""
    threads = ThreadPoolExecutor(max_workers=1 if one_by_one else max(1, len(hosts)))
    try:
        for future in as_completed([threads.submit(_measure_host, engine, host, run, words) for host in hosts]):
            yield future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C, do not wait for other hosts


def time_links(
    hosts: Sequence[str], addresses: dict[str, str], case: Case, run: int, one_by_one: bool
) -> Iterator[tuple[Pair, Record]]:
    """Time messages between pairs of hosts, disjoint pairs at the same time unless `one_by_one`."""

    def measure(pair: Pair) -> tuple[Pair, Record]:
        return pair, measure_case(case, run, QUICK.rules, LINK_TIMEOUT_S, [addresses[host] for host in pair])

    for pairs in tournament(hosts, MOST_ROUNDS):
        ordered = [(a, b) if a < b else (b, a) for a, b in pairs]
        with ThreadPoolExecutor(max_workers=1 if one_by_one else max(1, len(ordered))) as threads:
            for future in as_completed([threads.submit(measure, pair) for pair in ordered]):
                yield future.result()


def _measure_host(engine: Engine, host: str, run: int, words: Sequence[str]) -> HostRun:
    if host not in engine.hosts:
        return HostRun(host, run, "missing", "no worker has joined from there", [])
    try:
        answer = engine.measure(host, words)
    except Lost as lost:
        return HostRun(host, run, "failed", str(lost), [])
    try:
        lines = lines_of(answer["lines"])
    except (ValueError, RecursionError) as error:
        return HostRun(host, run, "failed", f"it returned no result file: {_first_line(error)}", [])
    if not lines or answer["exit_code"] not in (0, 1):
        reason = printable(answer["last_output"]) or f"exit code {answer['exit_code']}"
        return HostRun(host, run, "failed", reason, lines)
    return HostRun(host, run, "ok", None, lines)
