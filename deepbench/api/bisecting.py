"""Which version or commit of a library is the first that is slower."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from deepbench.api.filters import Choices, Filters, What, make_choices, words_of
from deepbench.core.backend import find_backend
from deepbench.core.errors import BadInput
from deepbench.core.progress import Progress
from deepbench.judge.bisection import EXIT_CODES
from deepbench.machine.system import require_linux
from deepbench.measuring import bisect as measured
from deepbench.measuring import builds, commits
from deepbench.measuring.bisect import MARGIN, Asked, Question
from deepbench.measuring.commits import BuildCommand, FirstBad
from deepbench.measuring.session import Options
from deepbench.reporting.progress import shown

__all__ = [
    "EXIT_CODES",
    "MARGIN",
    "Asked",
    "Bisected",
    "BuildCommand",
    "FirstBad",
    "bisect_commits",
    "bisect_versions",
    "is_slower",
    "question",
    "search",
]


@dataclass(frozen=True)
class Bisected:
    """The end of a bisection over versions."""

    good: str
    """The last version that is not slower."""
    bad: list[str]
    """The first that is; several where those between could not be judged."""
    asked: list[Asked]

    @property
    def is_confirmed(self) -> bool:
        """Whether the last two neighbors were measured next to each other, and differ."""
        return len(self.bad) == 1 and self.asked[-1].answer == "bad"


def bisect_versions(
    backend: str,
    versions: str | Sequence[str],
    what: What | Iterable[What] = "quick",
    *,
    margin: float = MARGIN,
    mode: str = "default",
    rounds: int | None = None,
    told: Callable[[Asked], None] = lambda asked: None,
    progress: bool | Progress = False,
    **filters: Unpack[Filters],
) -> Bisected:
    """Find the first version of a library that is slower than the first of those named.

    Args:
        backend: the library, such as `openblas`.
        versions: `0.3.29..0.3.34`, for which the package index is asked, or a list.
        what: what to measure, as in `cases`.
        margin: slowdowns below this share do not count.
        mode: as in `measure`, and so are `rounds` and `progress`.
        rounds: exactly this many processes per case and side; None: until it is decided.
        told: is called with each answer.
        progress: True shows a progress bar.
        filters: which cases; see `Filters`.

    Needs about the logarithm of the number of versions in measurements, and two more. `BadInput` where the last version
    is not slower than the first.
    """
    asking = question(backend, words_of(what), make_choices(mode, **filters), margin, Options(mode, rounds))
    with shown(progress) as show:
        return search(asking, versions, told, show)


def is_slower(asking: Question, good: str | Path, library: str | Path, progress: Progress) -> Asked:
    """Whether one file or folder of a library is slower than a good one: the answer is good, bad or skip."""
    first, second = Path(good).resolve(), Path(library).resolve()
    for path in (first, second):
        if not path.exists():
            raise BadInput(f"{path} does not exist; wanted the file of a library, or a folder that has it")
    return measured.ask(asking, first, second, str(library), progress)


def bisect_commits(
    repository: str | Path, good: str, bad: str, build: BuildCommand, step: Sequence[str], show: Callable[[str], None]
) -> FirstBad:
    """Find the first slower commit of a repository; `step` are the words of `deepbench bisect --step`."""
    return commits.bisect(Path(repository), good, bad, build, step, show)


def question(backend: str, words: Sequence[str], choices: Choices, margin: float, options: Options) -> Question:
    """What is measured for every version or commit."""
    require_linux("a bisection")
    library = find_backend(backend)
    if library.path_variable is None:
        raise BadInput(f"{library.title} cannot be loaded from a path, so its builds cannot be compared")
    return Question(library, words, replace(choices, backends=(backend,)), options, margin)


def search(
    asking: Question, versions: str | Sequence[str], told: Callable[[Asked], None], progress: Progress
) -> Bisected:
    """As `bisect_versions`."""
    if isinstance(versions, str):
        first, dots, last = versions.partition("..")
        found = builds.versions_between(asking.backend, first, last) if dots else versions.split(",")
    else:
        found = list(versions)
    names = list(dict.fromkeys(filter(None, found)))
    ended, asked = measured.versions(asking, names, told, progress)
    return Bisected(names[ended.good], [names[state] for state in ended.candidates], asked)
