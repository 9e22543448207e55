"""Many hosts at once: the same cases run on each of them, again and again, and are kept in one file.

What runs on a host is an ordinary `deepbench run` in a process of its own. Dask distributed only carries its words
there and its file back: it starts on any host where a Python can be started, and says when one is lost.

A fleet file is JSON Lines: a header (`schema` deepbench-fleet/1), then a line for each host in each run with the lines
of its result file, and a line for each pair of hosts whose link was timed, with the record.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepbench.core import stats
from deepbench.core.errors import BadInput
from deepbench.core.json_lines import from_line, printable, sanitized
from deepbench.judge import outliers
from deepbench.judge.outliers import Deviation
from deepbench.measure import launch
from deepbench.measure.group import launcher
from deepbench.results import summary
from deepbench.results.file import ResultFile, file_lines
from deepbench.results.old_files import complete, read_limit
from deepbench.results.record import Record
from deepbench.results.schema import schema_error, semantic_error

SCHEMA = "deepbench-fleet/1"

# Rounds of pairs: with more hosts than this plus one, not every pair meets.
MOST_ROUNDS = 15

# One pair's messages take a second or so; a link that does not carry them is found soon.
LINK_TIMEOUT_S = 30.0

# Where nobody says how many hosts there are: those that are there when none has come for so long.
SETTLE_S = 3.0

# A worker that does not send a sign of life for so long is lost: its host, or the way to it.
LOST_S = 15.0

# Set where our scheduler and workers start. A sick host must not hand its task to another; nothing may poll beside a
# measurement.
DASK = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": f"{LOST_S:g}s",
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error",
}


@dataclass(frozen=True)
class Result:
    """What one host gave in one run."""

    host: str
    run: int
    status: str
    """`ok` (a whole file came), `failed` (something went wrong there) or `missing` (no worker)."""
    reason: str | None
    lines: list[Any]

    def as_line(self) -> dict[str, Any]:
        """For the file."""
        return {
            "host": self.host,
            "run": self.run,
            "status": self.status,
            "reason": self.reason,
            "lines": self.lines,
        }


@dataclass
class FleetFile:
    """What a fleet file says."""

    path: Path
    header: dict[str, Any]
    results: list[Result] = field(default_factory=list)
    links: list[tuple[tuple[str, str], Record]] = field(default_factory=list)
    truncated: bool = False

    @property
    def hosts(self) -> list[str]:
        """Those expected, then others that came."""
        return list(dict.fromkeys([*self.header["expected"], *(r.host for r in self.results)]))


# ---- on a host


def measure_here(words: Sequence[str]) -> dict[str, Any]:
    """Run the command on this host; what its file says, its exit code and its last words. Dask calls this."""
    with tempfile.TemporaryDirectory(prefix="deepbench-") as folder:
        path = Path(folder) / "out.jsonl"
        command = [sys.executable, "-P", "-m", "deepbench", "run", *words, "-o", str(path)]
        # The worker may be one of many that srun has started; what it runs is alone.
        environment = launch.package_path(launcher.without_launcher(os.environ))
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment)
        lines = path.read_text(encoding="utf-8") if path.exists() else ""
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
    return {"lines": lines, "exit_code": done.returncode, "said": said[0][:300] if said else ""}


# ---- the engine


class Engine:
    """Workers on hosts, through Dask. `hosts` are those that have joined, in order."""

    def __init__(self, client: Any, addresses: dict[str, str], own: Sequence[subprocess.Popen[bytes]]) -> None:
        self._client, self._addresses, self._own = client, addresses, own

    @property
    def hosts(self) -> list[str]:
        """Whose worker has joined, and may have been lost since."""
        return list(self._addresses)

    def measure(self, host: str, words: Sequence[str]) -> Callable[[], dict[str, Any]]:
        """Start on a host; a function that waits for what came out, and raises `Lost`."""
        address = self._addresses[host]
        if address not in self._client.scheduler_info(n_workers=-1)["workers"]:
            return _raise(Lost("its worker has left"))
        future = self._client.submit(
            measure_here, list(words), workers=[address], allow_other_workers=False, retries=0, pure=False
        )

        def wait() -> dict[str, Any]:
            while True:
                try:
                    found: dict[str, Any] = future.result(timeout=LOST_S)
                except TimeoutError:  # still at it, or gone: a scheduler of others may wait for ever
                    if address not in self._client.scheduler_info(n_workers=-1)["workers"]:
                        raise Lost("its worker has left") from None
                except Exception as error:  # whatever happened over there
                    raise Lost(f"{type(error).__name__}: {_first_line(error)}") from None
                else:
                    return found

        return wait

    def close(self) -> None:
        """End scheduler and workers, those that we have started at once."""
        if self._own:
            with contextlib.suppress(Exception):
                self._client.shutdown()
        with contextlib.suppress(Exception):
            self._client.close(timeout=2)
        _end(self._own)


class Lost(Exception):
    """A host gave no answer."""


def _raise(error: Exception) -> Callable[[], Any]:
    def wait() -> Any:
        raise error

    return wait


def connect(address: str, wait_s: float, expected: int | None) -> Engine:
    """Take the workers of a scheduler that runs already; one worker a host."""
    _answers(address)
    client, known = _client(address), 0
    end = time.monotonic() + wait_s
    while True:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        names = {w: str(info.get("host") or info["name"]) for w, info in workers.items()}
        try:
            told = client.run(_hostname, workers=list(workers)) if workers else {}
        except Exception as error:  # whatever happened over there
            raise BadInput(f"a worker of {address} cannot be used: {_first_line(error)}; is deepbench there?") from None
        found = {str(told.get(w) or name): w for w, name in sorted(names.items())}
        settled = expected is None and len(found) >= 2 and len(found) == known
        if settled or (expected is not None and len(found) >= expected) or time.monotonic() > end:
            break
        known = len(found)
        time.sleep(0.2 if expected is not None else SETTLE_S)
    if not found:
        raise BadInput(f"no worker has joined {address} within {wait_s:g} s; start one a host: dask worker {address}")
    return Engine(client, found, ())


def start(hosts: dict[str, str], address: str, wait_s: float) -> Engine:
    """A scheduler here and a worker on each host (address by name), by ssh or what stands for it."""
    _dask()
    environment = {**launch.package_path(os.environ), **DASK}
    folder = tempfile.mkdtemp(prefix="deepbench-")
    told = Path(folder) / "scheduler.json"
    words = [sys.executable, "-P", "-m", "distributed.cli.dask_scheduler", "--host", address, "--port", "0"]
    own = [_spawn([*words, "--no-dashboard", "--no-show", "--scheduler-file", str(told)], environment)]
    try:
        end = time.monotonic() + 60
        while not told.exists():
            if own[0].poll() is not None or time.monotonic() > end:
                raise BadInput(f"Dask's scheduler does not start at {address}; try: dask scheduler --host {address}")
            time.sleep(0.05)
        where = json.loads(told.read_text())["address"]
        worker = [sys.executable, "-P", "-m", "distributed.cli.dask_worker", where, "--nthreads", "1", "--no-nanny"]
        worker += ["--no-dashboard", "--death-timeout", "60", "--memory-limit", "0"]
        own += [
            _spawn(launch.on_host(host, environment, [*worker, "--name", name]), environment)
            for name, host in hosts.items()
        ]
        client = _client(where)
        end = time.monotonic() + wait_s
        found: dict[str, str] = {}
        while len(found) < len(hosts) and time.monotonic() < end:
            workers = client.scheduler_info(n_workers=-1)["workers"]
            found = {str(info["name"]): w for w, info in workers.items() if info["name"] in hosts}
            time.sleep(0.1)
        return Engine(client, {name: found[name] for name in hosts if name in found}, own)
    except BaseException:
        _end(own)
        raise
    finally:
        told.unlink(missing_ok=True)
        os.rmdir(folder)


def _spawn(words: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Silent: what Dask has to say of lost workers is said by us."""
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        words, stdin=nothing, stdout=nothing, stderr=nothing, env=environment, start_new_session=True
    )


def _end(processes: Sequence[subprocess.Popen[bytes]], grace_s: float = 3.0) -> None:
    end = time.monotonic() + grace_s
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, end - time.monotonic()))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _dask() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise BadInput(
            f"a fleet needs Dask distributed ({error}); install it: pip install 'deepbench-kernels[fleet]'"
        ) from None
    return distributed


def _client(address: str) -> Any:
    import logging

    distributed = _dask()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # lost workers are told in our words
    try:
        return distributed.Client(address, timeout=20, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise BadInput(f"no Dask scheduler answers at {address}: {_first_line(error)}") from None


def _answers(address: str) -> None:
    """`BadInput` at once where nobody listens: Dask itself tries again and again."""
    found = re.fullmatch(r"(?:tcp://|tls://)?(\[[0-9a-fA-F:]+\]|[^:/]+):([0-9]{1,5})/?", address)
    if found is None:
        raise BadInput(f"--scheduler wants an address such as tcp://10.0.0.1:8786, found {address[:60]!r}")
    try:
        socket.create_connection((found[1].strip("[]"), int(found[2])), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise BadInput(f"no Dask scheduler answers at {address}: {_first_line(error)}") from None


def _hostname() -> str:
    return socket.gethostname()


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return printable(text[0][:200]) if text else "no reason given"


# ---- runs


def run_once(engine: Engine, hosts: Sequence[str], run: int, words: Sequence[str], apart: bool) -> Iterator[Result]:
    """One run on every host, at the same time or one after the other; yields them as they end."""
    if apart:
        for host in hosts:
            yield _result(engine, host, run, words)
        return
    from concurrent.futures import as_completed

    threads = ThreadPoolExecutor(max_workers=max(1, len(hosts)))
    try:
        futures = [threads.submit(_result, engine, host, run, words) for host in hosts]
        for future in as_completed(futures):
            yield future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C nobody waits for what runs elsewhere


def time_links(
    hosts: Sequence[str], addresses: dict[str, str], text: str, run: int, apart: bool
) -> Iterator[tuple[tuple[str, str], Record]]:
    """Time messages between pairs of hosts, disjoint pairs at the same time unless `apart`; yields as they end."""
    from concurrent.futures import as_completed

    from deepbench.core.case import parse_case
    from deepbench.measure.parent import measure_case
    from deepbench.plan.modes import QUICK

    def one(pair: tuple[str, str]) -> tuple[tuple[str, str], Record]:
        ends = [addresses[host] for host in pair]
        return pair, measure_case(parse_case(text), run, QUICK.rules, LINK_TIMEOUT_S, ends)

    for pairs in outliers.tournament(hosts, MOST_ROUNDS):
        named = [(a, b) if a < b else (b, a) for a, b in pairs]
        with ThreadPoolExecutor(max_workers=1 if apart else max(1, len(named))) as threads:
            for future in as_completed([threads.submit(one, pair) for pair in named]):
                yield future.result()


def _result(engine: Engine, host: str, run: int, words: Sequence[str]) -> Result:
    if host not in engine.hosts:
        return Result(host, run, "missing", "no worker has joined from there", [])
    try:
        found = engine.measure(host, words)()
    except Lost as lost:
        return Result(host, run, "failed", str(lost), [])
    try:
        lines = _checked_file(found["lines"].splitlines())
    except (ValueError, RecursionError) as error:
        return Result(host, run, "failed", f"its file is no result file: {_first_line(error)}", [])
    if not lines or found["exit_code"] not in (0, 1):
        return Result(host, run, "failed", printable(found["said"]) or f"exit code {found['exit_code']}", lines)
    return Result(host, run, "ok", None, lines)


def _checked(text: str, kind: str | None = None) -> Any:
    """A line of a result file that may have come from anywhere; `ValueError` where it is none, or not of this kind."""
    value = sanitized(from_line(text))
    wrong = (schema_error(value) or semantic_error(value)) if isinstance(value, dict) else "no JSON object"
    if not wrong and kind is not None and kind not in value:
        wrong = f"no line with {kind}"
    if wrong:
        raise ValueError(wrong)
    assert isinstance(value, dict), "misfit would have said so"
    if "case" in value:
        complete(value)
    return value


def _checked_file(lines: Sequence[str]) -> list[Any]:
    """The lines of a result file: a header, and what follows one."""
    found = [_checked(line, "schema" if i == 0 else None) for i, line in enumerate(lines)]
    if any("schema" in line for line in found[1:]):
        raise ValueError("a second first line")
    return found


# ---- the file


def read(path: Path) -> FleetFile:
    """Read and check a fleet file; `BadInput` in one sentence for anything else."""
    found: FleetFile | None = None
    for number, line in enumerate(file_lines(path), 1):
        if not line.endswith(b"\n"):
            if found is not None:
                found.truncated = True
            break
        try:
            value = sanitized(from_line(line.decode()))
            if found is None:
                found = FleetFile(path, _header(value))
            elif "link" in value:
                a, b = value["link"]
                found.links.append(((str(a), str(b)), _checked(json.dumps(value["record"]), "case")))
            else:
                found.results.append(_read_result(value))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadInput(f"{path}, line {number}: no line of a fleet file ({_first_line(error)})") from None
    if found is None:
        raise BadInput(f"{path} has no complete line; wanted a file that `deepbench fleet` wrote")
    return found


def is_fleet(path: Path) -> bool:
    """Whether a file says that it is one of a fleet."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.readline(1 << 20))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("schema") == SCHEMA


def _header(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise ValueError(f"no schema {SCHEMA}")
    expected = value.get("expected")
    if not isinstance(expected, list) or not all(isinstance(h, str) for h in expected):
        raise ValueError("expected must be names of hosts")
    return value


def _read_result(value: dict[str, Any]) -> Result:
    if value["status"] not in ("ok", "failed", "missing") or not isinstance(value["run"], int):
        raise ValueError("unknown status or run")
    lines = _checked_file([json.dumps(line) for line in value["lines"]])
    reason = value["reason"]
    return Result(str(value["host"]), value["run"], value["status"], reason and str(reason), lines)


def of_host(found: FleetFile, host: str) -> ResultFile:
    """All runs of one host as an ordinary result file, each run a round."""
    results = [r for r in found.results if r.host == host and r.lines]
    if not results:
        raise BadInput(f"{found.path} has no results of a host {host[:60]!r}; there are {', '.join(found.hosts)}")
    merged = ResultFile(found.path, results[0].lines[0])
    for result in results:
        merged.limits += [limit for line in result.lines if (limit := read_limit(line))]
        merged.records += [line | {"round": result.run} for line in result.lines if "case" in line]
    return merged


# ---- numbers


def times(results: Sequence[Result]) -> dict[str, dict[str, list[float]]]:
    """Seconds by case and host, a number a run; only what was measured right."""
    found: dict[str, dict[str, list[float]]] = {}
    for result in sorted(results, key=lambda r: r.run):
        for s in summary.summarize([line for line in result.lines if "case" in line]):
            if s.estimate is not None and s.status == "ok":
                found.setdefault(s.record["case"], {}).setdefault(result.host, []).append(s.estimate.time_s)
    return found


def bad(results: Sequence[Result]) -> dict[str, list[str]]:
    """What went wrong on each host that another could do, in words."""
    statuses: dict[str, dict[str, tuple[str, str]]] = {}
    for result in results:
        for line in (line for line in result.lines if "case" in line):
            of_case = statuses.setdefault(line["case"], {})
            if result.host not in of_case or line["status"] != "ok":
                of_case[result.host] = (line["status"], str(line["reason"]))
    found: dict[str, list[str]] = {}
    for case, of_case in statuses.items():
        if any(status == "ok" for status, _ in of_case.values()):
            for host, (status, reason) in of_case.items():
                if status not in ("ok", "unchecked"):
                    found.setdefault(host, []).append(f"{case}: {status}, {reason}")
    return found


def link_times(links: Sequence[tuple[tuple[str, str], Record]]) -> dict[tuple[str, str], list[float]]:
    """Seconds of each pair's messages, a number a run."""
    found: dict[tuple[str, str], list[float]] = {}
    for pair, line in links:
        if line["status"] == "ok" and line["measurement"]:
            found.setdefault(pair, []).append(stats.lower_quartile(line["measurement"]["samples_s"]))
    return found


# What a host is, beside what it does: two hosts that differ here may well differ in speed.
KIND = (
    *("cpu", "cpu_ids", "instructions", "cores_allowed", "cpu_quota", "memory_bytes", "caches", "numa_nodes"),
    *("governor", "turbo_off", "huge_pages", "kernel", "system"),
)


def bad_links(links: Sequence[tuple[tuple[str, str], Record]]) -> dict[tuple[str, str], str]:
    """Pairs between which messages failed, with what the last of them says."""
    return {pair: f"{line['status']}, {line['reason']}" for pair, line in links if line["status"] != "ok"}


def unlike(results: Sequence[Result]) -> dict[str, dict[str, list[str]]]:
    """Where hosts are not of one kind: the hosts of each value, by field of the machine or by library."""
    facts: dict[str, dict[str, Any]] = {}
    for result in results:
        header = result.lines[0] if result.lines else {}
        if "machine" in header:
            known = {name: header["machine"].get(name) for name in KIND}
            for name, answer in header["libraries"].items():
                known[name] = (answer.get("library") or {"version": "missing"}).get("version")
            facts[result.host] = known
    found: dict[str, dict[str, list[str]]] = {}
    for name in dict.fromkeys(n for known in facts.values() for n in known):
        values: dict[str, list[str]] = {}
        for host, known in facts.items():
            values.setdefault(json.dumps(known.get(name), sort_keys=True), []).append(host)
        if len(values) > 1:
            found[name] = values
    return found


# ---- the verdict


@dataclass(frozen=True)
class Verdict:
    """What all runs say of one host."""

    host: str
    runs: int
    """Of which a whole file came."""
    whole: Deviation | None
    """By all kernels together; None where there is nothing to compare."""
    kernels: dict[str, Deviation]
    links: Deviation | None
    """By the links to all others."""
    failed: list[str]
    """Runs without a result, each with its reason."""
    bad: list[str]
    """Cases that went wrong here and not elsewhere."""

    @property
    def slow_kernels(self) -> dict[str, Deviation]:
        """Those in which it is slower than the rest, the worst first."""
        slow = {name: s for name, s in self.kernels.items() if s.slower}
        return dict(sorted(slow.items(), key=lambda item: -item[1].ratio))

    @property
    def slower(self) -> bool:
        """Whether it is slower than the rest at anything."""
        parts = [self.whole, self.links, *self.kernels.values()]
        return any(part.slower for part in parts if part is not None)

    @property
    def undecided(self) -> bool:
        """Whether more runs might show that it is."""
        return not self.slower and self.whole is not None and self.whole.undecided

    @property
    def fine(self) -> bool:
        """Nothing to say of it."""
        return not (self.slower or self.failed or self.bad) and self.runs > 0


@dataclass(frozen=True)
class Judgement:
    """What a fleet file says."""

    hosts: list[Verdict]
    pairs: dict[tuple[str, str], Deviation]
    """Single links, of hosts whose links are not slow as a whole."""
    pair_times: dict[tuple[str, str], float]
    failed_pairs: dict[tuple[str, str], str]
    """Links that did not carry a message, with the reason."""

    @property
    def slow_pairs(self) -> dict[tuple[str, str], Deviation]:
        """Links that are slower than the others, though both ends have good ones."""
        return {pair: s for pair, s in self.pairs.items() if s.slower}

    @property
    def open(self) -> bool:
        """Whether more runs might find another outlier."""
        return any(v.whole is not None and v.whole.open and not v.slower for v in self.hosts)

    @property
    def unseen(self) -> float | None:
        """How much slower a host could be without having been called so, as a share; None where nothing is known."""
        wholes = [v.whole for v in self.hosts if v.whole is not None and not v.slower]
        highs = [w.high for w in wholes if w.high is not None]
        return max(0.0, max(highs) - 1) if highs and len(highs) == len(wholes) else None


def judge(found: FleetFile) -> Judgement:
    """The verdict on every host and link."""
    by_kernel = times(found.results)
    whole = outliers.deviations(outliers.combined_times(by_kernel), outliers.KERNEL_RATIO)
    # One correction over hosts and kernels together: asking more questions must not accuse more hosts.
    kernels = {case: outliers.deviations(t, outliers.KERNEL_RATIO, False) for case, t in by_kernel.items()}
    chances = stats.holm({f"{case}\0{h}": s.p for case, of_case in kernels.items() for h, s in of_case.items()})
    wrong, by_link = bad(found.results), link_times(found.links)
    by_host: dict[str, list[float]] = {}
    for pair, values in by_link.items():
        for host in pair:
            by_host.setdefault(host, []).extend(values)
    linked = outliers.deviations(by_host, outliers.LINK_RATIO)
    sound = {"\0".join(p): v for p, v in by_link.items() if not any(linked[h].slower for h in p if h in linked)}
    pairs = outliers.deviations(sound, outliers.LINK_RATIO)
    hosts = []
    for host in found.hosts:
        own = [r for r in found.results if r.host == host]
        of_host = {case: t[host] for case, t in kernels.items() if host in t}
        of_host = {case: s.corrected(chances[f"{case}\0{host}"]) for case, s in of_host.items()}
        failed = [f"run {r.run}: {r.reason}" for r in own if r.status != "ok"]
        good = sum(r.status == "ok" for r in own)
        hosts.append(Verdict(host, good, whole.get(host), of_host, linked.get(host), failed, wrong.get(host, [])))
    named = {(a, b): s for key, s in pairs.items() for a, b in [key.split("\0")]}
    return Judgement(hosts, named, {p: stats.lower_quartile(v) for p, v in by_link.items()}, bad_links(found.links))
