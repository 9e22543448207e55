"""`deepbench run --ab` and `--against`: two sides that take turns, a result file each, and their comparison."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.cli.choose import choices_of
from deepbench.cli.compare import print_comparison
from deepbench.cli.printing import make_console, steps_bar
from deepbench.cli.root import EXIT_INTERRUPTED, EXIT_WRONG
from deepbench.core.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from deepbench.measure.sides import Pair, Side
    from deepbench.results.file import ResultFile

# More than a lone file needs: an interval of a ratio takes more rounds than one of a time.
ROUNDS = {"quick": (3, 5), "default": (5, 15), "rigorous": (10, 40)}


def measure(
    words: tuple[str, ...],
    filters: dict[str, Any],
    ab: str | None,
    against: str | None,
    mode: str | None,
    rounds: str | None,
    energy: bool,
    timeout_s: float | None,
    output: str | None,
) -> int:
    """Measure both sides in turn and print what they say; the exit code is that of `run`."""
    from deepbench.judge import compare

    a, b, words = _sides(words, filters, ab, against)
    stem = Path(output.removesuffix(".jsonl")) if output else _stem()
    chosen = Chosen(words or ("quick",), filters, mode or "default", rounds, energy, timeout_s)
    files, paired = _begin((a, b), chosen, stem)
    console = make_console()
    least, most = (files[0].header["plan"]["rounds"][n] for n in ("least", "most"))
    console.print(f"first side   {a.words}, to {files[0].path}", markup=False)
    console.print(f"second side  {b.words}, to {files[1].path}", markup=False)
    console.print(f"cases        {len(paired)}, {least} to {most} rounds of each side", markup=False)
    code = 0
    try:
        _take_turns(paired, (a, b), files, console)
    except KeyboardInterrupt:
        console.print("interrupted; both files are whole up to here", markup=False)
        code = EXIT_INTERRUPTED
    found = compare.compare_files(files[0], files[1])
    if found.cases:
        print_comparison(found, (a.words, b.words), None)
    else:
        console.print(f"no case has a time on both sides: {'; '.join(found.left_out[:3])}", markup=False)
    console.print(f"\nNext:\n  deepbench compare {files[0].path} {files[1].path}", markup=False, highlight=False)
    wrong = any(r["status"] == "wrong" for f in files for r in f.records)
    return code or (EXIT_WRONG if wrong else 0)


def measure_sides(both: tuple[Side, Side], words: tuple[str, ...], stem: Path) -> tuple[ResultFile, ResultFile]:
    """Cases of both sides in turn, without a word."""
    files, paired = _begin(both, Chosen(words), stem)
    _take_turns(paired, both, files, make_console(quiet=True))
    return files


@dataclass(frozen=True)
class Chosen:
    """What the command line says of both sides."""

    words: tuple[str, ...]
    filters: dict[str, Any] = field(default_factory=dict)
    mode: str = "default"
    rounds: str | None = None
    energy: bool = False
    timeout_s: float | None = None


def _begin(
    both: tuple[Side, Side], chosen: Chosen, stem: Path | str
) -> tuple[tuple[ResultFile, ResultFile], list[Pair]]:
    """The cases of both sides, and their files with a first line each."""
    from deepbench.cli import run
    from deepbench.core.json_lines import sanitized
    from deepbench.machine import describe
    from deepbench.measure import sides
    from deepbench.plan.cases import Planned, expand
    from deepbench.plan.suites import read_words
    from deepbench.results.file import Store, read_results

    entries = read_words(chosen.words)
    filters = choices_of({**NO_FILTERS, **chosen.filters})
    expanded = [expand(entries, side.applied(filters), describe.default_threads()) for side in both]
    paired, mark = sides.pairs(expanded[0], expanded[1], set(both[0].choices)), secrets.token_hex(8)
    files = []
    for side in both:
        with side.at_work():
            run.require_cold([getattr(p, side.name) for p in paired], describe.describe_machine())
            planned = [Planned(getattr(p, side.name), p.sources) for p in paired]
            header = run.header_of(planned, chosen.mode, chosen.rounds, chosen.energy, chosen.timeout_s, [])
        header["plan"]["rounds"] |= _rounds(chosen.mode, chosen.rounds)
        own = {"side": side.name, "choices": side.choices, "environment": side.environment}
        header["plan"]["interleaved"] = {"run": mark, **own}
        path = Path(f"{stem}.{side.name}.jsonl")
        Store.create(path, sanitized(header)).close()
        files.append(read_results(path))
    return (files[0], files[1]), paired


NO_FILTERS: dict[str, Any] = {
    **dict.fromkeys(("op", "backend", "precision", "direction", "application", "threads", "ranks", "set"), ()),
    "device": None,
}


def _sides(
    words: tuple[str, ...], filters: dict[str, Any], ab: str | None, against: str | None
) -> tuple[Side, Side, tuple[str, ...]]:
    from deepbench.cli.run import open_backends
    from deepbench.measure import sides
    from deepbench.results.file import read_results

    if ab is not None:
        return *sides.parse_sides(ab), words
    if words or any(filters.values()):
        raise BadInput("--against takes its cases from the file; leave out words and filters")
    found = read_results(Path(str(against)))
    here = open_backends(sorted({r["backend"] for r in found.records}))
    return *sides.of_file(found, here), tuple(found.order)


def _rounds(mode: str, exactly: str | None) -> dict[str, int]:
    if exactly is not None:
        return {}
    least, most = ROUNDS[mode]
    return {"least": least, "most": most}


def _take_turns(
    paired: list[Pair], both: tuple[Side, Side], files: tuple[ResultFile, ResultFile], console: Console
) -> None:
    import random

    from deepbench.cli.root import interruptible
    from deepbench.cli.run import Measuring
    from deepbench.judge import compare
    from deepbench.measure import sides
    from deepbench.plan.modes import Rounds
    from deepbench.results.file import Store

    plan_line = files[0].header["plan"]
    rounds, seed = Rounds(**plan_line["rounds"]), plan_line["order_seed"]
    coin, done = random.Random(seed), 0
    with ExitStack() as stack:
        sides_at_work = []
        for side, found in zip(both, files, strict=True):
            store = Store.reopen(found.path)
            stack.callback(store.close)
            store.append_after(found)
            sides_at_work.append((side, Measuring(found, store, plan_line["timeout_s"])))
        stack.enter_context(interruptible())
        step = stack.enter_context(steps_bar(console, len(paired) * rounds.least))
        for side, measuring in sides_at_work:
            with side.at_work():
                measuring.probe([getattr(p, side.name) for p in paired], lambda _: None)
        while batch := sides.queue(paired, files[0], files[1], rounds, seed, compare.MARGIN):
            for i, (pair, number) in enumerate(batch):
                for side, measuring in coin.sample(sides_at_work, 2):
                    with side.at_work():
                        measuring.finish(measuring.measure(getattr(pair, side.name), number))
                done += 1
                left = len(batch) * (1 + max(0, rounds.least - number)) - 1 - i
                step(f"round {number}  {pair.a.text}", done + left)


def _stem() -> str:
    return f"deepbench-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
