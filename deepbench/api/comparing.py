"""Compare files, gate a change, rank machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deepbench.api.results import FileResults, Gated, Results, load, load_kernels, results_of
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.core.kinds import wing

if TYPE_CHECKING:
    from deepbench.judge.ranking import Machine, Ranking
    from deepbench.reporting.output import Report
    from deepbench.results.file import ResultFile

Source = FileResults | str | Path
"""Results, or the path of a result file."""

# A slowdown that a gate ignores.
GATE_MARGIN = 0.05

STEADY = "steady"
"""The metric that is compared by default: the usual call."""


def of_metric(metric: str, *results: Any) -> list[Any]:
    """The results with this time of each process; as they are for that of the usual call."""
    return [r if metric == STEADY else r.of_metric(metric) for r in results]


def margins_of(metric: str) -> tuple[float, float]:
    """What `compare` and `gate` ignore by default."""
    from deepbench.judge.metrics import MARGINS, find_metric

    return MARGINS[find_metric(metric)]


def opened(source: Any, skip_damaged: bool = False) -> Any:
    """The results of a source: of a path, those of its file."""
    if isinstance(source, FileResults):
        return source
    return load(source, skip_damaged=skip_damaged) if isinstance(source, str | Path) else results_of(source)


def pair(a: Any, b: Any, skip_damaged: bool = False) -> tuple[Any, Any]:
    """Two results that can be compared; `BadInput` where they are of different kinds."""
    first, second = opened(a, skip_damaged), opened(b, skip_damaged)
    if type(first).compare is not type(second).compare:
        has = " and ".join(f"{printable(str(r.path))} has {r.kind.noun}" for r in (first, second))
        raise BadInput(f"{has}; compare two files of one kind")
    return first, second


def compare(
    a: Source | ResultFile,
    b: Source | ResultFile,
    *,
    margin: float | None = None,
    unchecked: bool = False,
    metric: str = STEADY,
) -> Any:
    """Compare what two results have in common; ratios are b's time over a's.

    Args:
        a: the baseline.
        b: what is compared with it.
        margin: differences below this share of the time do not matter; None: 2 %, or 10 % of another metric.
        unchecked: also compare times whose results were not checked.
        metric: which time of a process: `steady` is its usual call; `first_call`, `creation`, `pack`, `convert`,
            `optimize` and `compile` are others.

    Returns a `Comparison` of kernels; of trained applications, a list of `Pair`.
    """
    first, second = of_metric(metric, *pair(a, b))
    return first.compare(second, margins_of(metric)[0] if margin is None else margin, unchecked)


def gate(
    a: Source,
    b: Source,
    *,
    margin: float | None = None,
    metric: str = STEADY,
    rerun: bool = False,
    trusted: bool = False,
    unchecked: bool = False,
    skip_damaged: bool = False,
    on_rerun: Callable[[Sequence[str]], None] = lambda cases: None,
    on_load: Callable[[Mapping[str, str], str], None] = lambda libraries, file: None,
) -> Gated:
    """Whether anything is slower in b than in a: `outcome.verdict` is passed, regression or cannot tell.

    Args:
        a: before the change.
        b: after it.
        margin: slowdowns below this share do not count; None: 5 %, or 15 % of another metric.
        metric: which time of a process, as in `compare`.
        rerun: measure cases that look slower again, and judge them by that alone.
        trusted: with `rerun`, load the libraries whose paths a names: they run with the user's rights.
        unchecked: also compare times whose results were not checked.
        skip_damaged: leave out damaged lines of files.
        on_rerun: is called with the cases that are measured again.
        on_load: is called with the libraries that are loaded because a file names them, and with this file.
    """
    if metric != STEADY and rerun:
        raise BadInput("--rerun measures usual calls again; leave out --metric")
    first, second = of_metric(metric, *pair(a, b, skip_damaged))
    margin = margins_of(metric)[1] if margin is None else margin
    found: Gated = replace(first.gate(second, margin, unchecked), gaps=[*first.gaps, *second.gaps])
    if rerun and not isinstance(first, Results):
        first.refuse("--rerun measures kernels again; train again instead")
    if rerun and isinstance(second, Results) and found.regressions():
        from deepbench.measuring.sides import require_rerun

        require_rerun(second.file, found.regressions())
        on_rerun(found.regressions())
        found = first.measure_again(second, found, margin, unchecked, trusted, on_load)
    return found


# ---- rank


def rank(
    *machines: Source,
    application: str | None = None,
    prices: Mapping[str, float] | None = None,
    precisions: Sequence[str] = (),
    skip_damaged: bool = False,
) -> Ranked:
    """Rank machines by the time of applications, or by its cost where prices are given.

    Args:
        machines: results, result files, or names of machines that the original DeepBench published.
        application: only this one, by its name or a part of its title.
        prices: of an hour, by name of a machine.
        precisions: only these precisions, such as `bf16`; or `8`, `16` or `32` bits; or `all`. Default: all that meet
            DeepBench's minimum.
        skip_damaged: leave out damaged lines of files.
    """
    from deepbench.judge import ranking

    if gpus := [name for name in machines if not is_file(name) and wing("gpus").is_machine(name)]:
        raise BadInput(
            f"{gpus[0]} has kernel times and no applications; name a language model before the GPUs, such as deepbench "
            f"rank llm/llama31_70b {gpus[0]}"
        )
    files: list[Results] = []
    found = _priced(_machines(machines, skip_damaged, files), prices or {})
    rankings = ranking.rankings(found, ranking.competing(tuple(precisions)))
    if not rankings:
        raise BadInput(
            f"{', '.join(shorten(str(m)) for m in machines)}: no case comes from a suite that names applications; "
            "run rank (ten minutes), deepbench/server, deepbench/train or deepbench/device"
        )
    if application is None:
        return Ranked(found, rankings, files, True)
    titles = ranking.titles_named({r.title: r.application for r in rankings}, application)
    return Ranked(found, [r for r in rankings if r.title in titles], files, False)


def is_model(name: Any) -> bool:
    """Whether this is the name of a model, whose step GPUs can be ranked by."""
    from deepbench.plan.suites import is_suite, phases_of

    return isinstance(name, str) and not is_file(name) and is_suite(name) and bool(phases_of(name))


def rank_gpus(model: str, *machines: str, **words: Any) -> Report:
    """Rank GPUs by one step of a model, from published kernel times: see `deepbench.gpus.api.rank`."""
    if not machines:
        gpus = wing("gpus").machines()
        raise BadInput(f"name GPUs to rank by {shorten(model)}, such as {' '.join(gpus[:3]) or 'h100_sxm h200_sxm'}")
    found: Report = wing("gpus").rank(model, machines, **words)
    return found


class Ranked:
    """Rankings of machines, one per application and precision."""

    def __init__(
        self, machines: Sequence[Machine], rankings: Sequence[Ranking], files: Sequence[Results], is_all: bool
    ) -> None:
        self.machines = list(machines)
        self.rankings = list(rankings)
        self.files = list(files)
        """The results among the machines."""
        self._is_all = is_all

    def report(self) -> Report:
        """A table of all applications and machines; of one application, its ranking in sentences and a table."""
        from deepbench.reporting import ranking as tables
        from deepbench.reporting.output import Report, json_text

        if self._is_all:
            shown = Report.of_table(tables.matrix(self.machines, self.rankings))
        else:
            shown = Report.of_parts(tables.parts(self.rankings), list)
        forms = {
            "json": lambda: json_text(tables.to_json(self.rankings)),
            "csv": lambda: tables.for_programs(self.rankings).csv(),
        }
        return replace(shown, forms={**shown.forms, **forms})


def is_file(source: Source) -> bool:
    """Whether a source has results of its own; other texts are names of published machines."""
    from deepbench.results.file import GZIP, JSONL

    return not isinstance(source, str) or os.path.exists(source) or source.endswith((JSONL, JSONL + GZIP))


def _machines(sources: Sequence[Source], skip_damaged: bool, read: list[Results]) -> list[Machine]:
    """Results, files that exist, and published machines; what was read goes to `read`. `BadInput` if one is twice."""
    from deepbench.judge import totals
    from deepbench.judge.ranking import Machine
    from deepbench.results import published
    from deepbench.results.file import title_of

    files = [source for source in sources if is_file(source)]
    paths = [str(source.path if isinstance(source, FileResults) else source) for source in files]
    titles = [printable(title_of(Path(Path(path).name))) for path in paths]
    real = [os.path.realpath(path) for path in paths]
    if twice := [path for path, file in zip(paths, real, strict=True) if real.count(file) > 1]:
        raise BadInput(f"a machine is named twice: {', '.join(map(shorten, twice))}; name each once")
    labels = iter(titles if len(set(titles)) == len(titles) else [printable(path) for path in paths])
    found = []
    for source in sources:
        if is_file(source):
            results = source if isinstance(source, Results) else load_kernels(source, skip_damaged=skip_damaged)  # type: ignore[arg-type]
            read.append(results)
            imported = results.header["plan"]["mode"] == "imported"
            sums = totals.of_summaries(results.summaries)
            kind: Literal["imported", "measured"] = "imported" if imported else "measured"
            is_simulated = any(s.is_simulated for s in results.summaries)
            found.append(Machine(next(labels), kind, sums, is_simulated=is_simulated))
        else:
            machine = published.find(str(source))
            sums = totals.of_summaries(published.summaries(machine))
            found.append(Machine(machine, "imported", sums, is_published=True))
    if len({m.name for m in found}) < len(found):
        raise BadInput(f"a machine is named twice: {', '.join(m.name for m in found)}; name each once")
    return found


def _priced(machines: Sequence[Machine], prices: Mapping[str, float]) -> list[Machine]:
    """The machines with their prices per hour, in any currency."""
    from deepbench.judge.ranking import machine_named

    names = [m.name for m in machines]
    known = {machine_named(names, name): price for name, price in prices.items()}
    return [replace(m, price_per_h=known.get(m.name)) for m in machines]
