"""`deepbench run`: where the steps of the pipe meet."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepbench import __version__
from deepbench.core.errors import BadInput

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.plan.cases import Planned
    from deepbench.plan.modes import Rounds, Rules
    from deepbench.report.progress import Bar
    from deepbench.results.file import ResultFile, Store
    from deepbench.results.record import Limit, Record

from deepbench.cli.choose import DEFAULT_DEVICE, case_options, plan_of
from deepbench.cli.place import any_group, check_environment, launched, read_hosts, taking_place
from deepbench.cli.printing import make_console, print_head, print_table
from deepbench.cli.root import EXIT_INTERRUPTED, EXIT_WRONG, HELP, cli, drop_output, interruptible


@cli.command(context_settings=HELP)
@click.argument("words", nargs=-1, metavar="[SUITE|FILE|CASE]...")
@case_options
@click.option("--quick", "mode", flag_value="quick", help="One round, short samples.")
@click.option("--rigorous", "mode", flag_value="rigorous", help="Ten to twenty rounds, ±0.5 %.")
@click.option("--rounds", metavar="N", help="Exactly so many rounds, each in fresh processes.")
@click.option("--energy", is_flag=True, help="Joules a call, where CPU or device count energy (2 s more a case).")
@click.option("--hostfile", metavar="FILE", help="Hosts for groups, one a line; ranks are spread evenly over them.")
@click.option("--ab", metavar="NAME=A,B", help="Both values in turn: a setting, threads, backend, or a VARIABLE.")
@click.option("--against", metavar="FILE", help="The cases of FILE with its libraries, in turn with those of now.")
@click.option("--budget", metavar="TIME", help="Stop after so long, such as 10min, with the most that can be known.")
@click.option("--timeout", metavar="S", help="Seconds without a sign of life that end a case (default 600).")
@click.option("-o", "--output", metavar="FILE", help="The result file (default: deepbench-<time>.jsonl).")
@click.option("--resume", is_flag=True, help="Go on with FILE where it stops.")
@click.option("--full", is_flag=True, help="A line for each library in the table.")
def run(
    words: tuple[str, ...],
    mode: str | None,
    rounds: str | None,
    energy: bool,
    hostfile: str | None,
    ab: str | None,
    against: str | None,
    budget: str | None,
    timeout: str | None,
    output: str | None,
    resume: bool,
    full: bool,
    **filters: Any,
) -> int:
    """Measure cases, keep every record in a file, print the table. Without words: the suite `quick`.

    \b
    Examples:
      deepbench run
      deepbench run deepbench/train --backend mkl,onednn --precision f32 -o train.jsonl
      deepbench run my_problems.csv --set weights=plain,packed --threads 1,2
      deepbench run --ab threads=1,2 gemm m=1760 n=128 k=1760 -o mine    # mine.a.jsonl and mine.b.jsonl, compared
      deepbench run --resume -o train.jsonl
    """
    from deepbench.cli import interleave
    from deepbench.core.case import parse_case
    from deepbench.core.json_lines import sanitized
    from deepbench.results.file import Store, default_path, read_results

    check_environment()
    begin, budget_s = time.monotonic(), duration_of(budget)
    if budget_s is not None and rounds is not None:
        raise BadInput("--budget decides how many rounds there are; leave out --rounds")
    if resume:
        if not output:
            raise BadInput("--resume needs the file to go on with: deepbench run --resume -o FILE")
        given = [n for n, v in filters.items() if v] + [
            n for n in (mode, rounds, energy, hostfile, ab, against, budget) if n
        ]
        if words or given:
            raise BadInput("--resume takes cases and settings from the file; leave out everything but -o FILE")
        with taking_place(launched(), True) as hosts:
            store = Store.reopen(Path(output))
            found = read_results(Path(output))
            if found.header["plan"].get("interleaved"):
                raise BadInput(f"{output} is one side of two that took turns; measure both again: deepbench run --ab")
            refuse_other_machine(found, hosts)
            wanted = [parse_case(p["case"]) for p in found.header["plan"]["cases"]]
            require_cold(wanted, found.header["machine"])
            store.append_after(found)
            return _go_on(found, store, seconds(timeout), full, begin)
    if ab or against:
        if (ab and against) or hostfile or budget or launched():
            raise BadInput("--ab and --against stand alone: one of them, on one host, without --budget")
        return interleave.measure(words, filters, ab, against, mode, rounds, energy, seconds(timeout), output)
    where = launched()
    if hostfile and where is not None:
        raise BadInput(f"leave out --hostfile: {where.launcher} has started deepbench on the hosts to use")
    planned = plan_of(words, filters)
    with taking_place(where, any_group(planned)) as hosts:
        hosts = read_hosts(hostfile, planned) if hostfile else hosts
        header = header_of(planned, mode or "default", rounds, energy, seconds(timeout), hosts)
        header["plan"]["budget_s"] = budget_s
        if budget_s is not None and timeout is None:  # what hangs must not take the rest of it
            header["plan"]["timeout_s"] = min(DEFAULT_TIMEOUT_S, max(10.0, budget_s / 4))
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        path = Path(output) if output else default_path(Path(), stamp)
        require_cold([p.case for p in planned], header["machine"])
        store = Store.create(path, sanitized(header))
        return _go_on(read_results(path), store, None, full, begin)


def rules_of(mode: str, exactly: str | None, energy: bool) -> tuple[Rounds, Rules]:
    """How many rounds, and how each process samples."""
    from dataclasses import replace

    from deepbench.core.case import whole_number
    from deepbench.plan.modes import DEFAULT, ENERGY_S, QUICK, RIGOROUS

    rounds = {"quick": QUICK.rounds, "default": DEFAULT.rounds, "rigorous": RIGOROUS.rounds}[mode]
    rules = {"quick": QUICK.rules, "default": DEFAULT.rules, "rigorous": RIGOROUS.rules}[mode]
    if exactly is not None:
        number = whole_number("--rounds", exactly)
        if not 1 <= number <= 1000:
            raise BadInput(f"--rounds must be from 1 to 1000, found {number}")
        rounds = replace(rounds, least=number, most=number)
    return rounds, replace(rules, energy_s=ENERGY_S) if energy else rules


UNITS_S = {"s": 1, "min": 60, "h": 3600}


def duration_of(text: str | None) -> float | None:
    """`90s`, `10min` or `1.5h` in seconds."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?(s|min|h)", text.strip())
    if found is None or float(found[1]) <= 0:
        raise BadInput(f"--budget wants a time such as 90s, 10min or 1.5h, found {text[:60]!r}")
    return float(found[1]) * UNITS_S[found[2]]


DEFAULT_TIMEOUT_S = 600.0


def seconds(text: str | None, name: str = "--timeout") -> float | None:
    """The value of an option that is a time."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise BadInput(f"{name} must be a number of seconds above 0, found {text[:60]!r}")
    return value


def header_of(
    planned: list[Planned],
    mode: str,
    rounds: str | None,
    energy: bool,
    timeout_s: float | None,
    hosts: list[str],
) -> dict[str, Any]:
    """The first line of a new result file."""
    import random

    from deepbench.core.backend import GroupBackend, all_backends, find_backend
    from deepbench.machine import describe
    from deepbench.results.record import SCHEMA

    how, rules = rules_of(mode, rounds, energy)
    names = {p.case.backend for p in planned}
    devices = {find_backend(name).device for name in names}
    # Those that may set a peak.
    names |= {
        name
        for name, b in all_backends().items()
        if b.default and b.device in devices and not isinstance(b, GroupBackend)
    }
    libraries = open_backends(sorted(names))
    _refuse_without_device(planned, libraries)
    return {
        "schema": SCHEMA,
        "tool": f"deepbench {__version__}",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv[1:],
        "machine": describe.describe_machine(),
        "libraries": libraries,
        "plan": {
            "rounds": asdict(how),
            "mode": mode,
            "order_seed": random.SystemRandom().randrange(2**31),
            "timeout_s": timeout_s or DEFAULT_TIMEOUT_S,
            "rules": asdict(rules),
            "hosts": hosts,
            "cases": [{"case": p.case.text, "sources": p.sources} for p in planned],
        },
    }


def _refuse_without_device(planned: list[Planned], libraries: dict[str, Any]) -> None:
    """`BadInput` in one sentence where all cases are for a device that is not here."""
    from deepbench.core.backend import find_backend

    names = {p.case.backend for p in planned}
    missing = [libraries[n]["unavailable"] for n in sorted(names) if "unavailable" in libraries[n]]
    if len(missing) == len(names) and all(find_backend(n).device != DEFAULT_DEVICE for n in names):
        raise BadInput(f"{missing[0]['reason']}; {missing[0]['remedy']}")


def open_backends(names: list[str]) -> dict[str, Any]:
    """Facts about libraries, or why they are not here, as a header has them."""
    opened = open_fully(names)
    return {n: {k: v for k, v in answer.items() if k in ("library", "unavailable")} for n, answer in opened.items()}


def open_fully(names: list[str]) -> dict[str, Any]:
    """The same with the OpenMP runtimes each brings, every one from a process of its own."""
    from concurrent.futures import ThreadPoolExecutor

    from deepbench.measure.parent import open_backend

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:  # each waits for a process
        return dict(zip(names, threads.map(lambda name: open_backend(name, 60.0), names), strict=True))


def refuse_other_machine(found: ResultFile, hosts: list[str]) -> None:
    """`BadInput` naming what differs between the machine, hosts or libraries of the file and those here."""
    from deepbench.machine import describe

    differs = describe.differences(found.header["machine"], describe.describe_machine())
    then_hosts = found.header["plan"].get("hosts") or []
    if hosts and hosts != then_hosts:
        differs.append(f"the hosts were {' '.join(then_hosts) or 'this one alone'} and are {' '.join(hosts)}")
    here = open_backends(sorted(found.header["libraries"]))
    for name, then in found.header["libraries"].items():
        old, new = then.get("library"), here[name].get("library")
        if old != new:
            differs.append(f"library {name} was {_library_words(old)} and is {_library_words(new)}")
    if differs:
        raise BadInput(f"{found.path} was measured elsewhere: {'; '.join(differs)}; start a new file instead")


def _library_words(library: Any) -> str:
    if library is None:
        return "unavailable"
    build = library.get("cpu_kernels") or library.get("build") or "-"
    return f"{library.get('version')} at {library.get('path')} ({build})"


def require_cold(wanted: Iterable[Case], machine: Any) -> None:
    """`BadInput` where cold caches are asked for and a measurement shows that there are none; measures if need be."""
    from deepbench.cli.selftest import prove_cold
    from deepbench.core.backend import find_backend
    from deepbench.judge import limits, selftest
    from deepbench.machine import describe, remembered

    if all(c.settings["cache"] == "hot" or find_backend(c.backend).device != "cpu" for c in wanted):
        return
    measured, told = limits.Limits(limits.recall(machine)).cache_bytes(), describe.cache_bytes()
    if describe.MEASURED_CACHES not in os.environ and measured is not None and (told is None or measured < told):
        os.environ[describe.MEASURED_CACHES] = str(measured)
    size = describe.cache_bytes() or selftest.GUESSED_CACHE_BYTES
    proofs = [
        line
        for line in remembered.remembered(machine, "cold")
        if isinstance(line.get("cold_is_cold"), bool) and line.get("cache_bytes") == size
    ]
    if not proofs:
        print("deepbench: measuring first whether cold is cold here (once)", file=sys.stderr)
    proof: Any = proofs[-1] if proofs else prove_cold(machine)
    if proof is not None and not proof["cold_is_cold"]:
        rates = [proof.get(f"{n}_bytes_per_s") or 0.0 for n in ("small_cold", "large_hot")]
        raise BadInput(
            "cache=cold and cache=weights are refused: a measurement here showed that cold is not cold "
            f"({rates[0] / 1e9:.1f} GB/s cold, {rates[1] / 1e9:.1f} from memory); "
            "name the size of the caches in DEEPBENCH_CACHE_BYTES, and run deepbench selftest again"
        )


def measure_again(found: ResultFile, flagged: list[str], path: Path) -> ResultFile:
    """Cases of a file in fresh processes, as many rounds as a comparison takes, into a file of their own."""
    from deepbench.cli.interleave import ROUNDS
    from deepbench.core.case import parse_case
    from deepbench.plan.cases import Planned
    from deepbench.plan.modes import Rounds
    from deepbench.plan.rounds import queue
    from deepbench.results.file import Store, read_results

    kept = [p for p in found.header["plan"]["cases"] if p["case"] in flagged]
    least, most = ROUNDS[found.header["plan"]["mode"]]
    rounds: Any = {**found.header["plan"]["rounds"], "least": least, "most": most}
    header: Any = {**found.header, "plan": {**found.header["plan"], "cases": kept, "rounds": rounds}}
    store = Store.create(path, header)
    fresh = read_results(path)
    measuring = Measuring(fresh, store, header["plan"]["timeout_s"])
    planned = [Planned(parse_case(p["case"]), p["sources"]) for p in kept]
    measuring.probe([p.case for p in planned], lambda _: None)
    while batch := queue(planned, fresh.records, Rounds(**rounds), header["plan"]["order_seed"]):
        for case, number in batch:
            measuring.finish(measuring.measure(case, number))
    store.close()
    return fresh


def _go_on(found: ResultFile, store: Store, timeout_s: float | None, full: bool, begin: float) -> int:
    """Measure what the plan of the file still lacks; returns the exit code."""
    from deepbench.report.progress import Bar

    console, plan_line = make_console(), found.header["plan"]
    print_head(console, found)
    try:
        with Bar(console) as bar, interruptible():
            _measure_remaining(found, store, bar, timeout_s or plan_line["timeout_s"], begin)
    except BrokenPipeError:
        drop_output()
        raise BadInput(
            f"the output was closed; {found.path} is whole up to here; "
            f"go on with: deepbench run --resume -o {found.path}"
        ) from None
    except KeyboardInterrupt:
        store.close()
        console.print()
        if any(r["status"] != "interrupted" for r in found.records):
            print_table(console, found, full)
        console.print(
            f"interrupted; {found.path} is whole up to here. Go on with:\n  deepbench run --resume -o {found.path}",
            markup=False,
            highlight=False,
        )
        return EXIT_INTERRUPTED
    store.close()
    print_table(console, found, full)
    console.print(f"\n{found.path} keeps every sample. Next:", markup=False, highlight=False)
    console.print(f"  deepbench show {found.path} --full", markup=False, highlight=False)
    return EXIT_WRONG if any(r["status"] == "wrong" for r in found.records) else 0


class Measuring:
    """A result file that is being measured: each record is judged by the limits and kept."""

    def __init__(self, found: ResultFile, store: Store, timeout_s: float) -> None:
        from deepbench.core.backend import all_backends
        from deepbench.judge.limits import Limits
        from deepbench.plan.modes import Rules

        header = found.header
        self.found, self._store, self._timeout_s = found, store, timeout_s
        self.rules = Rules(**header["plan"]["rules"])
        self.sources = {p["case"]: p["sources"] for p in header["plan"]["cases"]}
        self.unavailable = {
            n: f"{a['unavailable']['reason']}; {a['unavailable']['remedy']}"
            for n, a in header["libraries"].items()
            if "unavailable" in a
        }
        self._hosts = header["plan"].get("hosts") or []
        defaults = [n for n, b in all_backends().items() if b.default]
        self._libraries = [n for n in defaults if n in header["libraries"] and n not in self.unavailable]
        # Of probes alone: a result must not raise the peak by which it is judged.
        self.limits = Limits(found.limits, header["machine"])

    def keep(self, line: Any) -> None:
        """Into the file, and into what is known of it."""
        self._store.append(line)
        if "limit" in line:
            self.found.limits.append(line["limit"])
        else:
            self.found.records.append(line)

    def probe(self, cases: Sequence[Case], say: Callable[[str], None]) -> None:
        """Measure the limits that these cases need and nobody has measured."""
        from deepbench.judge import limits
        from deepbench.measure.parent import measure_case
        from deepbench.plan.modes import QUICK

        def quick(case: Case, number: int) -> Record:
            return measure_case(case, number, QUICK.rules, self._timeout_s)

        plan = self.found.header["plan"]
        here = [case for case in cases if case.backend not in self.unavailable]
        limits.complete(
            *(self.limits, here, self._libraries, self.found.header["machine"]),
            *(quick, self._keep_limit, say, plan.get("budget_s")),
        )

    def _keep_limit(self, limit: Limit) -> None:
        self.keep({"limit": limit})

    def estimate(self, case: Case) -> float:
        """Seconds that a round of a case will take, roughly."""
        from deepbench.core.backend import find_backend
        from deepbench.plan.cost import estimated_s

        if case.backend in self.unavailable:
            return 0.0
        peak = self.limits.peak(case.precision.name, find_backend(case.backend).device, case.threads)
        return estimated_s(case, peak, self.rules)

    def measure(self, case: Case, number: int) -> Record:
        """One round of a case, in a fresh process; where its library is not here, a record that says so."""
        from deepbench.measure.parent import measure_case
        from deepbench.results.record import make_record

        if case.backend in self.unavailable:
            return make_record(case, number, "unavailable", self.unavailable[case.backend])
        return measure_case(case, number, self.rules, self._timeout_s, self._hosts)

    def finish(self, measured: Record) -> Record:
        """Judge a record by the limits and keep it; returns what was kept."""
        from deepbench.judge.limits import judge_rate
        from deepbench.measure.parent import measure_case
        from deepbench.plan.modes import DEFAULT

        def longer(case: Case, number: int) -> Record:
            return measure_case(case, number, DEFAULT.rules, self._timeout_s)

        judged = judge_rate(measured, self.limits, self._libraries, longer, self._keep_limit)
        judged = {**judged, "sources": self.sources[measured["case"]]}
        self.keep(judged)
        return judged


def _measure_remaining(found: ResultFile, store: Store, bar: Bar, timeout_s: float, begin: float) -> None:
    """The loop where plan, run, limits and store meet. `begin` is when the command began, for a budget."""
    from deepbench.core.case import parse_case
    from deepbench.plan.cases import Planned
    from deepbench.plan.modes import Rounds
    from deepbench.plan.rounds import next_within_budget, queue
    from deepbench.results.record import make_record

    header, measuring = found.header, Measuring(found, store, timeout_s)
    rounds, seed = Rounds(**header["plan"]["rounds"]), header["plan"]["order_seed"]
    planned = [Planned(parse_case(p["case"]), p["sources"]) for p in header["plan"]["cases"]]
    measuring.probe([case for case, _ in queue(planned, found.records, rounds, seed)], bar.say)
    budget_s = header["plan"].get("budget_s")
    widths: dict[tuple[str, int], float] = {}

    def next_batch() -> list[tuple[Case, int]]:
        if budget_s is None:
            return queue(planned, found.records, rounds, seed)
        left_s = begin + budget_s - time.monotonic()
        chosen = next_within_budget(planned, found.records, measuring.estimate, left_s, seed, widths)
        return [chosen] if chosen is not None else []

    bar.start(planned, found.records, rounds, measuring.estimate, begin + budget_s if budget_s else None)
    while batch := next_batch():
        for case, number in batch:
            bar.started(case, number)
            try:
                bar.finished(measuring.finish(measuring.measure(case, number)))
            except KeyboardInterrupt:
                measuring.keep(make_record(case, number, "interrupted", "stopped by the user (Ctrl-C)"))
                raise
