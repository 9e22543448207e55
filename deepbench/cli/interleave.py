"""`deepbench run --ab` and `--against`: two sides that take turns, a result file each, and their comparison."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.cli.choose import choices_of
from deepbench.cli.compare import print_comparison
from deepbench.cli.printing import make_console, steps_bar
from deepbench.cli.root import EXIT_INTERRUPTED, EXIT_WRONG
from deepbench.errors import BadInput

if TYPE_CHECKING:
    from deepbench.sides import Pair, Side
    from deepbench.store import ResultFile, Store

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
    from deepbench import plan, record, sides, store, system
    from deepbench.cli import run

    a, b, words = _sides(words, filters, ab, against)
    entries = plan.read_words(words or ("quick",))
    expanded = [plan.expand(entries, side.applied(choices_of(filters)), system.default_threads()) for side in (a, b)]
    paired = sides.pairs(expanded[0], expanded[1], set(a.choices))
    mark, stem = secrets.token_hex(8), Path(output).with_suffix("") if output else _stem()
    with ExitStack() as stack:
        stores: list[Store] = []
        files: list[ResultFile] = []
        for side in (a, b):
            with side.at_work():
                planned = [plan.Planned(getattr(p, side.name), p.sources) for p in paired]
                header = run.header_of(planned, mode or "default", rounds, energy, timeout_s, [])
            header["plan"]["rounds"] |= _rounds(mode or "default", rounds)
            header["plan"]["interleaved"] = {
                "run": mark,
                "side": side.name,
                "choices": side.choices,
                "environment": side.environment,
            }
            path = Path(f"{stem}.{side.name}.jsonl")
            stores.append(store.Store.create(path, record.cleaned(header)))
            stack.callback(stores[-1].close)
            files.append(store.read(path))
        return _take_turns(paired, (a, b), files, stores)


def _sides(
    words: tuple[str, ...], filters: dict[str, Any], ab: str | None, against: str | None
) -> tuple[Side, Side, tuple[str, ...]]:
    from deepbench import sides, store
    from deepbench.cli.run import open_backends

    if ab is not None:
        return *sides.parse(ab), words
    if words or any(filters.values()):
        raise BadInput("--against takes its cases from the file; leave out words and filters")
    found = store.read(Path(str(against)))
    here = open_backends(sorted({r["backend"] for r in found.records}))
    return *sides.of_file(found, here), tuple(found.order)


def _rounds(mode: str, exactly: str | None) -> dict[str, int]:
    if exactly is not None:
        return {}
    least, most = ROUNDS[mode]
    return {"least": least, "most": most}


def _take_turns(paired: list[Pair], both: tuple[Side, Side], files: list[ResultFile], stores: list[Store]) -> int:
    import random

    from deepbench import comparison, plan, sides
    from deepbench.cli.run import Measuring, interruptible

    console = make_console()
    header = files[0].header
    rounds, seed = plan.Rounds(**header["plan"]["rounds"]), header["plan"]["order_seed"]
    console.print(f"first side   {both[0].words}, to {files[0].path}", markup=False)
    console.print(f"second side  {both[1].words}, to {files[1].path}", markup=False)
    console.print(f"cases        {len(paired)}, {rounds.least} to {rounds.most} rounds of each side", markup=False)
    timeout_s = header["plan"]["timeout_s"]
    judges = [Measuring(f, s, timeout_s) for f, s in zip(files, stores, strict=True)]
    done = 0
    coin = random.Random(seed)
    code = 0
    try:
        with interruptible(), steps_bar(console, len(paired) * rounds.least) as step:
            for side, judge, number in zip(both, judges, (0, 1), strict=True):
                with side.at_work():
                    judge.probe([(p.a, p.b)[number] for p in paired], lambda _: None)
            while batch := sides.queue(paired, files[0], files[1], rounds, seed, comparison.MARGIN):
                for i, (pair, number) in enumerate(batch):
                    turns = [(both[0], judges[0], pair.a), (both[1], judges[1], pair.b)]
                    coin.shuffle(turns)
                    for side, judge, case in turns:
                        with side.at_work():
                            judge.finish(judge.measure(case, number))
                    done += 1
                    step(
                        f"round {number}  {pair.a.text}",
                        done + len(batch) - 1 - i + max(0, rounds.least - number) * len(batch),
                    )
    except KeyboardInterrupt:
        console.print("interrupted; both files are whole up to here", markup=False)
        code = EXIT_INTERRUPTED
    found = comparison.compare(files[0], files[1])
    if found.cases:
        print_comparison(found, (both[0].words, both[1].words), None)
    else:
        console.print(f"no case has a time on both sides: {'; '.join(found.left_out[:3])}", markup=False)
    console.print(f"\nNext:\n  deepbench compare {files[0].path} {files[1].path}", markup=False, highlight=False)
    wrong = any(r["status"] == "wrong" for f in files for r in f.records)
    return code or (EXIT_WRONG if wrong else 0)


def _stem() -> str:
    return f"deepbench-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
