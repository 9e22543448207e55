"""Many hosts at once: every run measures the same cases on each of them, and times the links between them.

On each host an ordinary `deepbench run` does the work. It is started over ssh, and `remote.py` sends its file back over
the same connection, so nothing listens for others. `FleetSession` writes the fleet file.
"""

from __future__ import annotations

import os
import random
import selectors
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deepbench.core.case import Case, parse_case
from deepbench.core.errors import BadInput, Unavailable
from deepbench.core.json_lines import from_line, printable, sanitized
from deepbench.core.progress import Activity
from deepbench.core.version import VERSION
from deepbench.fleets.file import SCHEMA, FleetFile, HostRun, Pair, lines_of
from deepbench.fleets.judge import judge
from deepbench.judge.outliers import tournament
from deepbench.measuring import awake, launch, process
from deepbench.measuring.heat import measure_case
from deepbench.measuring.remote import SIGN_S
from deepbench.measuring.session import open_libraries
from deepbench.plan.modes import QUICK
from deepbench.results.consistency import Consistency
from deepbench.results.file import LARGEST_FILE_BYTES, Store
from deepbench.results.record import Record

# How long a host may take to answer.
WAIT_S = 60.0

# Runs of every host, and the most there are while one of them could still be slow.
LEAST_RUNS, MOST_RUNS = 5, 30

# The message that times a link: 16 MiB are limited by bandwidth on any network.
LINK_CASE = "all_reduce n=4194304 ranks=2 forward f32 {library} threads=1"

# Rounds of pairs per run. With more hosts than this plus one, not every pair is timed.
MOST_ROUNDS = 15

# The messages of a pair take about a second; a link that does not carry them is found soon.
LINK_TIMEOUT_S = 30.0

# A host that has begun and then sends nothing for this long is lost.
LOST_S = 3 * SIGN_S

# How long the connections that are left may take to end.
GRACE_S = 2.0


class FleetSession:
    """The runs of one fleet, written to a fleet file as they arrive."""

    def __init__(
        self,
        path: Path,
        addresses: Mapping[str, str],
        words: Sequence[str],
        *,
        quick: bool = False,
        one_by_one: bool = False,
        links: str | None = None,
        wait_s: float | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Create the file; `BadInput` if it exists, or without a second host.

        `addresses` has the address of each host by its name, and `words` the arguments of `deepbench run` there: what
        to measure. A host that does not answer within `wait_s` is missing, and is not asked again. The other arguments
        are those of `deepbench.fleet`.
        """
        if len(addresses) < 2:
            raise BadInput(f"a fleet needs two or more hosts, found only {next(iter(addresses), 'none')}")
        words = [*words, "--rounds", "1", *(["--quick"] if quick else [])]
        words += [] if timeout_s is None else ["--timeout", f"{timeout_s:g}"]
        library = link_library(links)
        header = sanitized(
            {
                "schema": SCHEMA,
                "tool": f"deepbench {VERSION}",
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "command": sys.argv[1:],
                "expected": list(addresses),
                "words": words,
                "links": library,
                "one_by_one": one_by_one,
            }
        )
        self._addresses, self._words, self._one_by_one = addresses, words, one_by_one
        self._wait_s = wait_s or WAIT_S
        self._missing: dict[str, str] = {}
        """Why hosts are not asked again."""
        self._link_case = parse_case(LINK_CASE.format(library=library)) if library else None
        self._store, self._consistency = Store.create(path, header), Consistency()
        self.file = FleetFile(path, header)
        self.hosts = list(addresses)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def measure(self, runs: int | None) -> Iterator[Activity]:
        """Run so often, or as often as the verdict on each host needs; yields what has just ended."""
        pairs = tournament(self.hosts, MOST_ROUNDS) if self._link_case else []
        per_run, done = len(self.hosts) + sum(map(len, pairs)), 0
        for number in range(1, (runs or MOST_RUNS) + 1):
            for text in self._run(number):
                done += 1
                yield Activity(text, done, max(runs or LEAST_RUNS, number) * per_run)
            is_settled = runs is None and number >= LEAST_RUNS and not judge(self.file).needs_runs
            if is_settled or len(self._missing) == len(self.hosts):
                break

    def _run(self, number: int) -> Iterator[str]:
        """One run on all hosts in random order, then over all links."""
        hosts = random.sample(self.hosts, len(self.hosts))
        for result in self._measure_hosts(hosts, number):
            self._store.append(vars(result))
            self.file.runs.append(result.marked(self._consistency))
            yield f"run {number}  {result.host} {result.status}"
        if self._link_case is None:
            return
        lost = {r.host for r in self.file.runs if r.run == number and r.status != "ok"}
        linked = [host for host in hosts if host not in lost]
        for pair, record in time_links(linked, self._addresses, self._link_case, number, self._one_by_one):
            self._store.append({"link": pair, "record": record})
            self.file.links.append((pair, self._consistency.marked([record], [])[0]))
            yield f"run {number}  {pair[0]} – {pair[1]} {record['status']}"

    def _measure_hosts(self, hosts: Sequence[str], run: int) -> Iterator[HostRun]:
        """One run on every host, all at the same time unless one by one; yields each when it ends."""
        for host in self._missing:
            yield HostRun(host, run, "missing", self._missing[host])
        asked = {host: self._addresses[host] for host in hosts if host not in self._missing}
        for group in [{host: asked[host]} for host in asked] if self._one_by_one else [asked]:
            for result in run_once(group, run, self._words, self._wait_s):
                if result.status == "missing":
                    self._missing[result.host] = str(result.reason)
                yield result


def link_library(wanted: str | None) -> str | None:
    """The library that times links between hosts, or None.

    `wanted` names it, or is `none`. By default it is the first of MPICH and Gloo that is installed.
    """
    if wanted == "none":
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


def run_once(addresses: Mapping[str, str], run: int, words: Sequence[str], wait_s: float) -> Iterator[HostRun]:
    """One run on all these hosts at the same time; yields each when it ends."""
    environment = launch.package_path(os.environ)
    command = launch.module_command("deepbench", "run", *words, "-o")
    asked: list[_Asked] = []
    with selectors.DefaultSelector() as selector:
        try:
            for host, address in addresses.items():
                shell, request = launch.on_host(address, environment, command, returns_file=True)
                try:
                    child = process.start(shell, environment, subprocess.PIPE, request=request)
                except Unavailable as error:
                    yield HostRun(host, run, "missing", str(error))
                    continue
                asked.append(_Asked(host, child, awake.now() + wait_s))
                selector.register(asked[-1].output, selectors.EVENT_READ, asked[-1])
            while asked:
                step_s = awake.step(min(one.lost_at for one in asked) - awake.now(), LOST_S)
                with awake.waiting(step_s):
                    events = selector.select(step_s)
                for key, _ in events:
                    key.data.read()
                for one in [one for one in asked if one.has_ended or one.lost_at < awake.now()]:
                    selector.unregister(one.output)
                    result = one.result(run, wait_s)
                    asked.remove(one)
                    yield result
        finally:
            process.end((one.child for one in asked), GRACE_S)


@dataclass
class _Asked:
    """A host that was asked to measure, and what it has sent."""

    host: str
    child: process.Child
    lost_at: float
    """When it is given up, in seconds of `awake.now`."""
    has_begun: bool = False
    has_ended: bool = False
    answer: dict[str, Any] | None = None
    last_line: bytes = b""
    """The last one that is no message: an error of ssh or of Python."""
    _received_bytes: int = 0
    _incomplete: bytearray = field(default_factory=bytearray)

    @property
    def output(self) -> int:
        """The descriptor to read from."""
        assert self.child.stdout is not None
        return self.child.stdout.fileno()

    def read(self) -> None:
        """Read once."""
        chunk = os.read(self.output, 2**20)
        self._received_bytes += len(chunk)
        self._incomplete += chunk
        self.has_ended = not chunk or self._received_bytes > LARGEST_FILE_BYTES
        if b"\n" in chunk or not chunk:
            *lines, self._incomplete = self._incomplete.split(b"\n") if chunk else [self._incomplete, bytearray()]
            for line in filter(None, map(bytes.strip, map(bytes, lines))):
                self._take(line)
        if self.has_begun:
            self.lost_at = awake.now() + LOST_S

    def _take(self, line: bytes) -> None:
        try:
            message = from_line(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self.last_line = line[: process.LONGEST_QUOTE]
        elif "started" in message:
            self.has_begun = True
        elif isinstance(message.get("lines"), str):
            self.answer, self.has_ended = message, True

    def result(self, run: int, wait_s: float) -> HostRun:
        """What came of it. Ends the connection."""
        process.end([self.child], GRACE_S if self.has_ended and self.answer is None else 0.0)
        if self.answer is not None:
            return _host_run(self.host, run, self.answer)
        if self._received_bytes > LARGEST_FILE_BYTES:
            return HostRun(self.host, run, "failed", f"it sent more than {LARGEST_FILE_BYTES} bytes")
        if self.has_ended:
            reason = f"the connection ended without a result, {process.exit_status(self.child.returncode)}"
        else:
            reason = f"no sign of life for {LOST_S if self.has_begun else wait_s:g} s"
        quote = printable(self.last_line.decode(errors="replace"))
        reason += f", last output: {quote}" if quote else ""
        return HostRun(self.host, run, "failed" if self.has_begun else "missing", reason)


def time_links(
    hosts: Sequence[str], addresses: Mapping[str, str], case: Case, run: int, one_by_one: bool
) -> Iterator[tuple[Pair, Record]]:
    """Time messages between pairs of hosts, disjoint pairs at the same time unless `one_by_one`."""

    def measure(pair: Pair) -> tuple[Pair, Record]:
        return pair, measure_case(case, run, QUICK.rules, LINK_TIMEOUT_S, [addresses[host] for host in pair])

    for pairs in tournament(hosts, MOST_ROUNDS):
        ordered = [(a, b) if a < b else (b, a) for a, b in pairs]
        with ThreadPoolExecutor(max_workers=1 if one_by_one else max(1, len(ordered))) as threads:
            for future in as_completed([threads.submit(measure, pair) for pair in ordered]):
                yield future.result()


def _host_run(host: str, run: int, answer: Mapping[str, Any]) -> HostRun:
    """The result that a host returned, which may be anything."""
    *complete, _ = answer["lines"].split("\n")
    try:
        lines = lines_of("".join(f"{line}\n" for line in complete))
    except (ValueError, RecursionError) as error:
        reason = printable(str(error).strip().partition("\n")[0][:200])
        return HostRun(host, run, "failed", f"it returned no result file: {reason}")
    code, last_line = answer.get("exit_code"), answer.get("last_output")
    if not lines or code not in (0, 1):
        reason = printable(str(last_line)[: process.LONGEST_QUOTE]) if last_line else f"exit code {str(code)[:20]}"
        return HostRun(host, run, "failed", reason, lines)
    return HostRun(host, run, "ok", None, lines)
