"""Many hosts: every run measures the same cases on each of them, and times the links between them.

On each host an ordinary `deepbench run` does the work (`asking.py`). `FleetSession` writes the fleet file.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from deepbench.core.errors import BadInput
from deepbench.core.json_lines import sanitized
from deepbench.core.progress import Activity
from deepbench.core.version import VERSION
from deepbench.fleets.asking import Reach, require_files, run_once
from deepbench.fleets.file import SCHEMA, FleetFile, HostRun
from deepbench.fleets.judge import judge
from deepbench.fleets.links import MOST_ROUNDS, link_case, link_library, time_links
from deepbench.judge.outliers import tournament
from deepbench.measuring.carriers import require_host
from deepbench.results.consistency import Consistency
from deepbench.results.file import Store

# Runs of every host, and the most there are while one of them could still be slow.
LEAST_RUNS, MOST_RUNS = 5, 30


class FleetSession:
    """The runs of one fleet, written to a fleet file as they arrive."""

    def __init__(
        self,
        path: Path,
        addresses: Mapping[str, str],
        words: Sequence[str],
        reach: Reach,
        *,
        quick: bool = False,
        rounds: int = 1,
        one_by_one: bool = False,
        links: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Create the file; `BadInput` if it exists, without a second host, or where hosts cannot be reached.

        `addresses` has the address of each host by its name, and `words` the arguments of `deepbench run` there: what
        to measure. A host that does not answer in time is missing, and is not asked again. The other arguments are
        those of `deepbench.fleet`.
        """
        if len(addresses) < 2:
            raise BadInput(f"a fleet needs two or more hosts, found only {next(iter(addresses), 'none')}")
        for address in addresses.values():
            require_host(address)
        self._reach = replace(reach, fanout=1) if one_by_one else reach
        reach.carrier.require_program()
        require_files(len(addresses), self._reach)
        words = [*words, "--rounds", str(rounds), *(["--quick"] if quick else [])]
        words += [] if timeout_s is None else ["--timeout", f"{timeout_s:g}"]
        library = link_library(links, reach.carrier)
        header = sanitized(
            {
                "schema": SCHEMA,
                "tool": f"deepbench {VERSION}",
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "command": sys.argv[1:],
                "expected": list(addresses),
                "through": reach.carrier.name,
                "words": words,
                "links": library,
                "one_by_one": one_by_one,
            }
        )
        self._addresses, self._words = addresses, words
        self._missing: dict[str, str] = {}
        """Why hosts are not asked again."""
        self._link_case = link_case(library)
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
        for pair, record in time_links(linked, self._addresses, self._link_case, number, self._reach):
            self._store.append({"link": pair, "record": record})
            self.file.links.append((pair, self._consistency.marked([record], [])[0]))
            yield f"run {number}  {pair[0]} – {pair[1]} {record['status']}"

    def _measure_hosts(self, hosts: Sequence[str], run: int) -> Iterator[HostRun]:
        """One run on every host; yields each when it ends."""
        for host in self._missing:
            yield HostRun(host, run, "missing", self._missing[host])
        asked = {host: self._addresses[host] for host in hosts if host not in self._missing}
        words = [*self._words, "--no-limits"] if run > 1 else self._words  # the first run has found them
        for result in run_once(asked, run, words, self._reach):
            if result.status == "missing":
                self._missing[result.host] = str(result.reason)
            yield result
